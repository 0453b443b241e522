/* One walk over the candidates: the first gives the text, each further one shortens it to what they share. */
#include "cli/complete.h"

#include "base/env.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

void complete_path(const char *written, strbuf *out) {
    size_t n = strlen(written);
    while (n > 0 && isspace((unsigned char)written[n - 1])) n--;
    while (n > 0 && isspace((unsigned char)written[0])) written++, n--;
    const bool quoted = n >= 2 && (written[0] == '"' || written[0] == '\'') && written[n - 1] == written[0];
    if (quoted) written++, n -= 2;
    const char *home = env_get("HOME");
    if (!quoted && home && written[0] == '~' && (n == 1 || written[1] == '/')) {
        strbuf_puts(out, home);
        written++, n--;
    }
    strbuf_put(out, written, n);
}

typedef struct matches {
    strbuf *list;
    strbuf common; // what all candidates share
    size_t n;
    bool is_folder; // the last one
} matches;

static void add_match(matches *m, const char *name) {
    if (m->n++ == 0) {
        strbuf_puts(&m->common, name);
    } else {
        size_t k = 0;
        const char *common = strbuf_cstr(&m->common);
        while (common[k] && common[k] == name[k]) k++;
        while (k > 0 && ((unsigned char)name[k] & 0xC0) == 0x80) k--; // not inside a character
        strbuf_cut(&m->common, k);
        strbuf_puts(m->list, "  ");
    }
    strbuf_puts(m->list, name);
}

/* What is certain beyond the n_typed bytes that stand there, and the end of a sole candidate. */
static void finish(matches *m, size_t n_typed, char end, strbuf *insert) {
    if (m->common.n > n_typed) strbuf_puts(insert, strbuf_cstr(&m->common) + n_typed);
    if (m->n == 1) {
        strbuf_clear(m->list);
        if (end) strbuf_putc(insert, end);
    }
    strbuf_fini(&m->common);
}

static void complete_file(const char *typed, strbuf *insert, strbuf *list) {
    const char quote = typed[0] == '"' || typed[0] == '\'' ? typed[0] : 0;
    strbuf folder = {0}, path = {0};
    matches m = {.list = list};
    if (quote) typed++;
    const char *slash = strrchr(typed, '/'), *base = slash ? slash + 1 : typed;
    strbuf_put(&path, typed, (size_t)(base - typed));
    complete_path(path.n ? strbuf_cstr(&path) : "./", &folder);
    DIR *d = folder.failed ? NULL : opendir(strbuf_cstr(&folder));
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat sb;
        if (strncmp(e->d_name, base, strlen(base)) != 0 || (e->d_name[0] == '.' && base[0] != '.')) continue;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        m.is_folder = fstatat(dirfd(d), e->d_name, &sb, 0) == 0 && S_ISDIR(sb.st_mode);
        add_match(&m, e->d_name);
    }
    if (d) closedir(d);
    finish(&m, strlen(base), m.is_folder ? '/' : quote, insert);
    strbuf_fini(&folder);
    strbuf_fini(&path);
}

bool complete_line(const char *text, const char *const *commands, size_t n, strbuf *insert, strbuf *list) {
    static const char read[] = "/read ";
    if (text[0] != '/') return false;
    if (strncasecmp(text, read, sizeof read - 1) == 0) {
        complete_file(text + sizeof read - 1, insert, list);
        return true;
    }
    if (strchr(text, ' ')) return false;
    matches m = {.list = list};
    for (size_t i = 0; i < n; i++)
        if (strncasecmp(commands[i], text, strlen(text)) == 0) add_match(&m, commands[i]);
    finish(&m, strlen(text), ' ', insert);
    return true;
}
