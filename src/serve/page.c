/* GET / and the files beside it. */
#include "serve/page.h"

#include "serve/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { FILE_BYTES = 8 << 20 };

// Made by the build from web/: see the Makefile.
extern const page_file page_files[] __attribute__((visibility("hidden")));

const page_file *page_find(const char *name) {
    for (const page_file *f = page_files; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}

const char *page_type(const char *name) {
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".mjs", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".ico", "image/x-icon"},
        {".woff2", "font/woff2"},
        {".json", "application/json"},
        {".webmanifest", "application/manifest+json"},
    };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i][0], dot) == 0) return types[i][1];
    return "application/octet-stream";
}

bool page_name_is_safe(const char *name) {
    const size_t n = strlen(name);
    return n > 0 && n < 100 && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* A file of the folder; false: none, or not readable. */
static bool read_file(strbuf *out, const char *folder, const char *name) {
    char block[1 << 14];
    strbuf path = {0};
    strbuf_printf(&path, "%s/%s", folder, name);
    const int fd = open(strbuf_cstr(&path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    strbuf_fini(&path);
    if (fd < 0) return false;
    ssize_t n;
    while ((n = read(fd, block, sizeof block)) > 0 && out->n < FILE_BYTES) strbuf_put(out, block, (size_t)n);
    close(fd);
    return n == 0;
}

static void answer_none(exchange *x) {
    problem p;
    problem_set(&p, 404, NULL, "path: there is nothing at %.100s", x->path);
    exchange_problem(x, &p);
}

void route_page(mica_server *s, exchange *x) {
    const char *name = strcmp(x->path, "/") == 0 ? "index.html" : x->tail;
    strbuf text = {0};
    const page_file *f = NULL;
    if (!page_name_is_safe(name)) {
        answer_none(x);
        return;
    }
    x->page = true;
    if (s->web_dir && read_file(&text, s->web_dir, name))
        exchange_bytes(x, 200, page_type(name), text.p, text.n);
    else if (!s->web_dir && (f = page_find(name)))
        exchange_bytes(x, 200, page_type(name), f->data, f->n);
    else
        answer_none(x);
    strbuf_fini(&text);
}
