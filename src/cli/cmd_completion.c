/* `mica completion`: scripts for three shells, made from the tables. Model names come from `mica list` when
 * asked. */
#include "cli/command.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

#define PULL_NAMES "smollm2-135m gemma3-270m hf:" // cli_test.py compares them with what pull says

static const char *const g_shells[] = {"bash", "zsh", "fish"};

typedef void spelling_fn(void *user, const char *name, size_t n, const option_view *v);

/* Calls put for each spelling of a flag. */
static void each_spelling(const option_view *v, spelling_fn *put, void *user) {
    put(user, v->name, strlen(v->name), v);
    if (v->shorter) put(user, v->shorter, strlen(v->shorter), v);
    for (const char *p = v->aliases; p && *p;) {
        const size_t n = strcspn(p, " ");
        put(user, p, n, v);
        p += n + (p[n] == ' ');
    }
}

/* ---- bash: one function, a case for each command. zsh runs it through its bash layer. ---- */

static void bash_word(void *user, const char *name, size_t n, const option_view *v) {
    (void)user;
    (void)v;
    printf(" %.*s", (int)n, name);
}

/* *user is what stands before the next alternative of the case. */
static void bash_file_pattern(void *user, const char *name, size_t n, const option_view *v) {
    const char **before = user;
    if (!v->takes_file || strcmp(v->name, "--model") == 0) return;
    printf("%s%.*s", *before, (int)n, name);
    *before = "|";
}

static bool is_device(const option_view *v) {
    return strcmp(v->name, "--device") == 0;
}

static void put_offers(const option_view *v) {
    for (const char *p = v->offers; *p; p++) putchar(*p == '|' ? ' ' : *p);
}

static void bash_offer_case(void *user, const char *name, size_t n, const option_view *v) {
    (void)user;
    if (!v->offers) return;
    printf("        %.*s) COMPREPLY=($(compgen -W \"", (int)n, name);
    put_offers(v);
    if (is_device(v)) printf(" $(mica devices 2>/dev/null | awk 'NR > 1 { print $1 }')");
    printf("\" -- \"$cur\")); return ;;\n");
}

static bool takes_model(const command *c) {
    option_view v;
    for (size_t i = 0; options_view(c, i, &v); i++)
        if (strcmp(v.name, "--model") == 0) return true;
    return false;
}

static const char *last_word(const command *c) {
    const char *space = strchr(c->name, ' ');
    return space ? space + 1 : c->name;
}

static void bash_command_case(const command *c) {
    option_view v;
    printf("    \"%s\")\n        flags=\"", c->name);
    for (size_t i = 0; options_view(c, i, &v); i++) each_spelling(&v, bash_word, NULL);
    printf("\"\n        case \"$prev\" in\n");
    const char *before = "        ";
    for (size_t i = 0; options_view(c, i, &v); i++) each_spelling(&v, bash_file_pattern, &before);
    if (before[0] == '|') printf(") compopt -o default; COMPREPLY=(); return ;;\n");
    for (size_t i = 0; options_view(c, i, &v); i++) each_spelling(&v, bash_offer_case, NULL);
    if (takes_model(c)) // also as a plain word, right after the command
        printf("        %s) if [[ \"$cur\" != -* ]]; then _mica_models; return; fi ;;\n", last_word(c));
    printf("        esac ;;\n");
}

static void bash_first_words(void) {
    const char *last_group = "";
    size_t n_last = 0;
    for (int id = 0; id < CMD_N; id++) {
        const char *name = command_at((command_id)id)->name;
        const size_t n = strcspn(name, " ");
        if (n == n_last && strncmp(name, last_group, n) == 0) continue;
        printf("%s%.*s", id ? " " : "", (int)n, name);
        last_group = name;
        n_last = n;
    }
}

static void bash_second_words(const char *group) {
    const size_t n = strlen(group);
    for (int id = 0; id < CMD_N; id++) {
        const char *name = command_at((command_id)id)->name;
        if (strncmp(name, group, n) == 0 && name[n] == ' ') printf("%s ", name + n + 1);
    }
}

static void completion_bash(void) {
    printf("_mica_models() {\n"
           "    compopt -o default\n"
           "    COMPREPLY=($(compgen -W \"$(mica list 2>/dev/null | awk 'NR > 1 { print $1 }')\" -- "
           "\"$cur\"))\n"
           "}\n"
           "_mica() {\n"
           "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" flags=\"\"\n"
           "    local command=\"${COMP_WORDS[1]}\"\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"");
    bash_first_words();
    printf("\" -- \"$cur\")); return; fi\n"
           "    if [ \"$command\" = eval ]; then\n"
           "        if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W \"");
    bash_second_words("eval");
    printf("\" -- \"$cur\")); return; fi\n"
           "        command=\"eval ${COMP_WORDS[2]}\"\n"
           "    fi\n"
           "    case \"$command:$prev\" in\n"
           "    *:-m|*:--model|rm:*) _mica_models; return ;;\n"
           "    pull:*) COMPREPLY=($(compgen -W \"" PULL_NAMES "\" -- \"$cur\")); return ;;\n"
           "    completion:*) COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$cur\")); return ;;\n"
           "    help:*) COMPREPLY=($(compgen -W \"");
    bash_first_words();
    printf("\" -- \"$cur\")); return ;;\n"
           "    esac\n"
           "    case \"$command\" in\n");
    for (int id = 0; id < CMD_N; id++) bash_command_case(command_at((command_id)id));
    printf("    esac\n"
           "    if [[ \"$cur\" == -* ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\")); else compopt "
           "-o default; fi\n"
           "}\n"
           "complete -F _mica mica\n");
}

static void completion_zsh(void) {
    printf("#compdef mica\n"
           "autoload -U +X bashcompinit && bashcompinit\n");
    completion_bash();
}

/* ---- fish ---- */

/* Text in single quotes. */
static void fish_quoted(const char *s) {
    putchar('\'');
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\') putchar('\\');
        putchar(*s);
    }
    putchar('\'');
}

static void fish_flag(void *user, const char *name, size_t n, const option_view *v) {
    const char *condition = user;
    const bool is_long = n > 2 && name[1] == '-';
    printf("complete -c mica -n '%s' %s %.*s", condition,
           is_long  ? "-l"
           : n == 2 ? "-s"
                    : "-o",
           (int)(is_long ? n - 2 : n - 1), name + (is_long ? 2 : 1));
    if (v->value) printf(v->takes_file ? " -r -F" : " -x");
    if (v->offers) {
        printf(" -a '");
        put_offers(v);
        if (is_device(v)) printf(" (mica devices 2>/dev/null | awk \"NR > 1 { print \\$1 }\")");
        putchar('\'');
    }
    if (strcmp(v->name, "--model") == 0)
        printf(" -a '(mica list 2>/dev/null | awk \"NR > 1 { print \\\\$1 }\")'");
    printf(" -d ");
    fish_quoted(v->help);
    putchar('\n');
}

static void fish_command(const command *c) {
    char condition[160];
    const char *space = strchr(c->name, ' ');
    if (space) {
        printf("complete -c mica -n '__fish_seen_subcommand_from %.*s' -f -a %s -d ", (int)(space - c->name),
               c->name, space + 1);
        fish_quoted(c->summary);
        snprintf(condition, sizeof condition,
                 "__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s",
                 (int)(space - c->name), c->name, space + 1);
    } else {
        printf("complete -c mica -n __fish_use_subcommand -f -a %s -d ", c->name);
        fish_quoted(c->summary);
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", c->name);
    }
    putchar('\n');
    option_view v;
    for (size_t i = 0; options_view(c, i, &v); i++) each_spelling(&v, fish_flag, condition);
}

static void completion_fish(void) {
    printf("complete -c mica -n __fish_use_subcommand -f -a eval -d 'numbers for correctness and quality'\n"
           "complete -c mica -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n"
           "complete -c mica -n '__fish_seen_subcommand_from pull' -f -a '" PULL_NAMES "'\n"
           "complete -c mica -n '__fish_seen_subcommand_from rm' -f -a "
           "'(mica list 2>/dev/null | awk \"NR > 1 { print \\$1 }\")'\n");
    for (int id = 0; id < CMD_N; id++) fish_command(command_at((command_id)id));
}

mica_status cmd_completion(const options *o, mica_error *err) {
    static void (*const make[])(void) = {completion_bash, completion_zsh, completion_fish};
    for (size_t i = 0; i < sizeof make / sizeof make[0]; i++) {
        if (strcmp(o->args.p[0], g_shells[i]) != 0) continue;
        make[i]();
        return MICA_OK;
    }
    return fail(err, MICA_E_ARG, "%s: unknown shell: bash, zsh or fish", o->args.p[0]);
}
