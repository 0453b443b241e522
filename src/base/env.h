/* The environment variables mica reads: one table of name, meaning and default. getenv is called nowhere
 * else. */
#ifndef MICA_BASE_ENV_H
#define MICA_BASE_ENV_H
#include <stddef.h>

typedef struct env_var {
    const char *name, *meaning, *fallback; // fallback: what holds when it is unset, in words
} env_var;

size_t env_count(void);
const env_var *env_at(size_t i);
/* The value, or NULL when unset or empty. `name` must be in the table (asserted). */
const char *env_get(const char *name);
/* The whole environment, to be handed to a program that we start. */
char *const *env_all(void);
#endif
