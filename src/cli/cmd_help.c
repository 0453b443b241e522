/* `mica help`: one screen of commands, a page for each of them, and the same as a manual page. */
#include "cli/help.h"

#include "base/mem.h"
#include "base/status.h"
#include "cli/print.h"
#include "mica_tools.h"

#include <string.h>

enum { FLAG_COLUMN = 28, PAGE_WIDTH = 80 };

/* "-c, --context N" */
static void flag_heading(char *out, size_t size_bytes, const option_view *v) {
    snprintf(out, size_bytes, "%s%s%s%s%s", v->shorter ? v->shorter : "", v->shorter ? ", " : "", v->name,
             v->value ? " " : "",
             v->choices ? v->choices
             : v->value ? v->value
                        : "");
}

void help_wrapped(FILE *to, const char *text, int indent) {
    int column = indent;
    for (const char *p = text; *p;) {
        const int n = (int)strcspn(p, " ");
        if (column > indent && column + 1 + n > PAGE_WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', to);
            column++;
        }
        fprintf(to, "%.*s", n, p);
        column += n;
        p += n;
        while (*p == ' ') p++;
    }
    fputc('\n', to);
}

static void put_flag(FILE *to, const option_view *v) {
    char head[96];
    flag_heading(head, sizeof head, v);
    const int n = fprintf(to, "  %s", head);
    if (n + 2 > FLAG_COLUMN)
        fprintf(to, "\n%*s", FLAG_COLUMN, "");
    else
        fprintf(to, "%*s", FLAG_COLUMN - n, "");
    help_wrapped(to, v->help, FLAG_COLUMN);
}

static const char *const g_group_names[GROUP_N] = {"Flags", "Model and device", "Sampling", "General"};

static bool group_has_flags(const command *c, option_group g) {
    option_view v;
    for (size_t i = 0; options_view(c, i, &v); i++)
        if (v.group == g) return true;
    return false;
}

void help_page(FILE *to, const command *c) {
    fprintf(to, "mica %s: %s\n\nUsage: mica %s %s\n", c->name, c->summary, c->name, c->usage);
    if (c->text) fprintf(to, "\n%s", c->text);
    for (int g = 0; g < GROUP_N; g++) {
        if (!group_has_flags(c, (option_group)g)) continue;
        fprintf(to, "\n%s:\n", g_group_names[g]);
        option_view v;
        for (size_t i = 0; options_view(c, i, &v); i++)
            if (v.group == (option_group)g) put_flag(to, &v);
    }
}

/* A model that is here already, or "" when there is none. Owned by the caller. */
static char *first_model(void) {
    char *text = NULL, *name = NULL;
    json_t *list = NULL, *v;
    size_t i;
    if (mica_list(&text, NULL) == MICA_OK && print_parse(&list, text, NULL) == MICA_OK) {
        json_array_foreach(list, i, v) if (!name && member_true(v, "complete")) name =
            mem_strdup(member_text(v, "name"));
    }
    json_decref(list);
    mica_text_free(text);
    return name;
}

/* "  mica run NAME   what for" */
static void put_step(FILE *to, const char *verb, const char *name, const char *what) {
    char line[160];
    snprintf(line, sizeof line, "mica %s%s%s", verb, name[0] ? " " : "", name);
    fprintf(to, "  %-28s  %s\n", line, what);
}

void help_first_steps(FILE *to) {
    char *model = first_model();
    const char *name = model ? model : "smollm2-135m";
    fputs("mica runs GGUF language models on this machine.\n\n", to);
    if (!model) put_step(to, "pull", name, "download a small model (94 MiB)");
    put_step(to, "run", name, "talk to it; Ctrl-D leaves");
    put_step(to, "serve", name, "a web page, and an API for other programs");
    put_step(to, "devices", "", "what models can run on here");
    put_step(to, "help", "", "every command");
    fputc('\n', to);
    mem_free(model);
}

static void help_overview(FILE *to) {
    fputs("mica runs GGUF language models.\n\nUsage: mica COMMAND [FLAGS]\n\nCommands:\n", to);
    for (int id = 0; id < CMD_N; id++) {
        const command *c = command_at((command_id)id);
        fprintf(to, "  %-14s%s\n", c->name, c->summary);
    }
    fputs("\n"
          "Often used flags:\n"
          "  -m MODEL   a GGUF file or a pulled name    -c N     tokens of context\n"
          "  -p TEXT    prompt                          -t N     CPU threads\n"
          "  -f FILE    prompt from a file              -n N     most tokens to make\n"
          "  --temp T   temperature, 0: the likeliest   --json   results as JSON\n"
          "\n"
          "Examples:\n"
          "  mica pull smollm2-135m                     download a small model\n"
          "  mica run smollm2-135m                      talk to it\n"
          "  mica run smollm2-135m -p \"Hello\" --temp 0  one answer, always the same\n"
          "  git diff | mica run smollm2-135m -p \"Write a commit message.\"\n"
          "\n"
          "`mica help COMMAND` lists the flags of a command. Text goes to standard output,\n"
          "all else to standard error. Exit codes: 0 ok, 1 a check failed, 2 usage, 3 file,\n"
          "4 malformed model, 5 unsupported model, 6 does not fit, 7 device, 8 port in use,\n"
          "9 network or disk, 70 internal error, 130 Ctrl-C, 143 terminated.\n",
          to);
}

/* ---- The manual page ---- */

/* Text for troff: no line may begin with a control character, backslashes and hyphens are literal. */
static void put_troff(FILE *to, const char *s) {
    bool at_start = true;
    for (; *s; s++) {
        if (at_start && (*s == '.' || *s == '\'')) fputs("\\&", to);
        if (*s == '\\')
            fputs("\\e", to);
        else if (*s == '-')
            fputs("\\-", to);
        else
            fputc(*s, to);
        at_start = *s == '\n';
    }
}

static void man_command(FILE *to, const command *c) {
    fputs(".SS mica ", to);
    put_troff(to, c->name);
    fputc(' ', to);
    put_troff(to, c->usage);
    fputc('\n', to);
    put_troff(to, c->summary);
    fputc('\n', to);
    if (c->text) {
        fputs(".PP\n.nf\n", to);
        put_troff(to, c->text);
        fputs(".fi\n", to);
    }
    option_view v;
    for (size_t i = 0; options_view(c, i, &v); i++) {
        char head[96];
        if (v.group != GROUP_COMMAND) continue;
        flag_heading(head, sizeof head, &v);
        fputs(".TP\n.B ", to);
        put_troff(to, head);
        fputc('\n', to);
        put_troff(to, v.help);
        fputc('\n', to);
    }
}

/* Flags that several commands share are described once, as `run` takes them. */
static void man_shared(FILE *to) {
    for (int g = GROUP_MODEL; g < GROUP_N; g++) {
        option_view v;
        fprintf(to, ".SS %s\n", g_group_names[g]);
        for (size_t i = 0; options_view(command_at(CMD_RUN), i, &v); i++) {
            char head[96];
            if (v.group != (option_group)g) continue;
            flag_heading(head, sizeof head, &v);
            fputs(".TP\n.B ", to);
            put_troff(to, head);
            fputc('\n', to);
            put_troff(to, v.help);
            fputc('\n', to);
        }
    }
}

static void help_man(FILE *to) {
    fprintf(to, ".TH MICA 1 \"\" \"mica %s\"\n.SH NAME\nmica \\- run GGUF language models\n", mica_version());
    fputs(".SH SYNOPSIS\n.B mica\nCOMMAND [FLAGS]\n.SH COMMANDS\n", to);
    for (int id = 0; id < CMD_N; id++) man_command(to, command_at((command_id)id));
    fputs(".SH SHARED FLAGS\n", to);
    man_shared(to);
    fputs(".SH EXIT STATUS\n0 ok, 1 a check failed, 2 usage, 3 file missing or unreadable, 4 malformed "
          "model, 5 unsupported\n"
          "architecture or type, 6 does not fit in memory, 7 no usable device, 8 port in use, 9 network or "
          "disk, 70 internal\n"
          "error, 130 Ctrl\\-C, 143 SIGTERM.\n.SH ENVIRONMENT\n.B mica env\nlists the variables that are "
          "read.\n",
          to);
}

/* `mica help eval`: the pages of all commands whose first word it is. */
static void help_group(FILE *to, const char *word) {
    const size_t n = strlen(word);
    bool first = true;
    for (int id = 0; id < CMD_N; id++) {
        const command *c = command_at((command_id)id);
        if (strncmp(c->name, word, n) != 0 || c->name[n] != ' ') continue;
        fprintf(to, "%s  mica %-12s %s\n", first ? "Commands:\n" : "", c->name, c->summary);
        first = false;
    }
    fprintf(to, "\n`mica help %s WORD` lists the flags of one.\n", word);
}

mica_status cmd_help(const options *o, mica_error *err) {
    int n_word;
    if (o->man) {
        help_man(stdout);
        return MICA_OK;
    }
    if (o->args.n == 0 && o->help) { // `mica help --help`
        help_page(stdout, o->command);
        return MICA_OK;
    }
    if (o->args.n == 0) {
        help_overview(stdout);
        return MICA_OK;
    }
    const command *c = command_find((int)o->args.n, o->args.p, &n_word);
    if (c && (size_t)n_word == o->args.n) {
        help_page(stdout, c);
        return MICA_OK;
    }
    if (o->args.n == 1 && command_is_group(o->args.p[0])) {
        help_group(stdout, o->args.p[0]);
        return MICA_OK;
    }
    return fail(err, MICA_E_ARG, "%s: unknown command: `mica help` lists them", o->args.p[0]);
}
