/* The only place that allocates. Counts every allocation, so that a test can assert that a decode step adds
 * none, and can be told to fail the n-th one. An arena is one block taken once: model, session and step
 * lifetimes have one each. Threads: the mem_* functions are safe; an arena belongs to its owner. */
#ifndef MICA_BASE_MEM_H
#define MICA_BASE_MEM_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n_bytes); // uninitialised; NULL when out of memory; n_bytes 0 gives a unique pointer
void *mem_calloc(size_t n, size_t size_bytes); // zeroed; NULL also when the product overflows
void *mem_realloc(void *p, size_t n_bytes);    // NULL leaves p as it was
void mem_free(void *p);                        // NULL allowed
char *mem_strdup(const char *s);               // NULL when out of memory
void *mem_alloc_aligned(size_t align,
                        size_t n_bytes); // align a power of two >= 16; zeroed; free with mem_free

/* Whole pages straight from the system, zero and untouched, so that a large cache costs memory only where it
 * is used. Aligned to 64. NULL when out of memory. Paid back by mem_pages_free (NULL allowed). */
void *mem_pages_alloc(size_t n_bytes);
void mem_pages_free(void *p);

uint64_t mem_count(void); // allocations so far, of all threads
void mem_fail_after(
    int64_t n); // for tests: the n-th allocation from now on and all later ones fail; < 0 turns it off

/* A bump allocator over one block. Sizes are known before: arena_init takes all it will ever give. */
typedef struct arena {
    char *base; // owned
    size_t size_bytes, used_bytes;
} arena;

mica_status arena_init(arena *a, size_t size_bytes, const char *what, mica_error *err);
void arena_fini(arena *a);
void arena_reset(arena *a);                               // everything taken is gone
void *arena_take(arena *a, size_t n_bytes, size_t align); // zeroed only after init; NULL when it does not fit
#endif
