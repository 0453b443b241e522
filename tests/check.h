/* What every C test includes: cmocka with its odd prerequisites, and CHECK with the expression in the
 * message. */
#ifndef MICA_TESTS_CHECK_H
#define MICA_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#undef fail // cmocka takes the name; ours is base/status.h

#include "base/status.h"

static inline void check_failed(const char *file, int line, const char *what, const char *why) {
    print_error("%s:%d: %s%s%s\n", file, line, what, why[0] ? ": " : "", why);
    _fail(file, line);
}

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) check_failed(__FILE__, __LINE__, #x, "");                                                  \
    } while (0)

/* A call that must succeed; its error text is in the message. `err` is in scope. */
#define CHECK_OK(call)                                                                                       \
    do {                                                                                                     \
        mica_status check_st_ = (call);                                                                      \
        if (check_st_ != MICA_OK) check_failed(__FILE__, __LINE__, #call, err.text);                         \
    } while (0)

/* A test that cannot run says why and counts as skipped. */
#define SKIP(...)                                                                                            \
    do {                                                                                                     \
        printf("skip: ");                                                                                    \
        printf(__VA_ARGS__);                                                                                 \
        printf("\n");                                                                                        \
        skip();                                                                                              \
    } while (0)

/* Deterministic pseudo-random numbers for tests: xorshift64*, seed printed by whoever seeds. */
static inline uint64_t test_rand(uint64_t *s) {
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}
static inline float test_randf(uint64_t *s) {
    return (float)((double)(test_rand(s) >> 11) / 9007199254740992.0 * 2.0 - 1.0);
}

#endif
