/* The one writer of log lines. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic int g_level = LOG_INFO;
static void (*g_sink)(void *, log_level, const char *);
static void *g_sink_user;

void log_set_level(log_level level) {
    atomic_store(&g_level, level);
}

void log_set_sink(void (*sink)(void *user, log_level level, const char *line), void *user) {
    g_sink = sink;
    g_sink_user = user;
}

void log_put(log_level level, const char *room, const char *fmt, ...) {
    if ((int)level > atomic_load(&g_level)) return;
    char text[900], line[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "mica: %s%s%s", level == LOG_WARN ? "warning: " : "", room[0] ? room : "",
             room[0] ? ": " : "");
    size_t n = 0;
    while (line[n]) n++;
    snprintf(line + n, sizeof line - n, "%s", text);
    if (g_sink)
        g_sink(g_sink_user, level, line);
    else
        fprintf(stderr, "%s\n", line);
}
