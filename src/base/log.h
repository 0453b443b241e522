/* Log lines, "mica: room: text", to stderr by default. Never in a step unless asked. Threads: safe. */
#ifndef MICA_BASE_LOG_H
#define MICA_BASE_LOG_H

#include "mica_status.h"

typedef enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

void log_set_level(log_level level); // default LOG_INFO
/* Takes the lines instead of stderr; NULL goes back. `line` has no newline. */
void log_set_sink(void (*sink)(void *user, log_level level, const char *line), void *user);
void log_put(log_level level, const char *room, const char *fmt, ...) MICA_PRINTF(3, 4);

#define log_warn(room, ...) log_put(LOG_WARN, room, __VA_ARGS__)
#define log_info(room, ...) log_put(LOG_INFO, room, __VA_ARGS__)
#define log_debug(room, ...) log_put(LOG_DEBUG, room, __VA_ARGS__)
#endif
