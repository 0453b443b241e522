/* Time, monotonic. */
#ifndef MICA_BASE_CLOCK_H
#define MICA_BASE_CLOCK_H
#include <stdint.h>
uint64_t clock_ns(void);
static inline double clock_ms_since(uint64_t start_ns) {
    return (double)(clock_ns() - start_ns) * 1e-6;
}
#endif
