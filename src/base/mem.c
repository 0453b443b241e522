/* Allocation, counted. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t g_count;
static _Atomic int64_t g_fail_after = -1;

/* true when a test asked this allocation to fail. */
static int must_fail(void) {
    atomic_fetch_add_explicit(&g_count, 1, memory_order_relaxed);
    int64_t left = atomic_load_explicit(&g_fail_after, memory_order_relaxed);
    if (left < 0) return 0;
    if (left == 0) return 1;
    atomic_fetch_sub_explicit(&g_fail_after, 1, memory_order_relaxed);
    return 0;
}

void *mem_alloc(size_t n_bytes) {
    return must_fail() ? NULL : malloc(n_bytes ? n_bytes : 1);
}

void *mem_calloc(size_t n, size_t size_bytes) {
    if (must_fail()) return NULL;
    return calloc(n ? n : 1, size_bytes ? size_bytes : 1);
}

void *mem_realloc(void *p, size_t n_bytes) {
    return must_fail() ? NULL : realloc(p, n_bytes ? n_bytes : 1);
}

void mem_free(void *p) {
    free(p);
}

char *mem_strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *d = mem_alloc(n);
    if (d) memcpy(d, s, n);
    return d;
}

void *mem_alloc_aligned(size_t align, size_t n_bytes) {
    if (must_fail() || n_bytes > SIZE_MAX - align) return NULL;
    size_t rounded = (n_bytes + align - 1) & ~(align - 1);
    void *p = aligned_alloc(align, rounded ? rounded : align);
    if (p) memset(p, 0, rounded ? rounded : align);
    return p;
}

enum { PAGES_HEAD = 64 }; // holds the length of the mapping, keeps the alignment

void *mem_pages_alloc(size_t n_bytes) {
    if (must_fail() || n_bytes > SIZE_MAX - PAGES_HEAD) return NULL;
    size_t n = n_bytes + PAGES_HEAD;
    char *base = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    memcpy(base, &n, sizeof n);
    return base + PAGES_HEAD;
}

void mem_pages_free(void *p) {
    if (!p) return;
    char *base = (char *)p - PAGES_HEAD;
    size_t n;
    memcpy(&n, base, sizeof n);
    munmap(base, n);
}

uint64_t mem_count(void) {
    return atomic_load_explicit(&g_count, memory_order_relaxed);
}

void mem_fail_after(int64_t n) {
    atomic_store_explicit(&g_fail_after, n, memory_order_relaxed);
}

mica_status arena_init(arena *a, size_t size_bytes, const char *what, mica_error *err) {
    *a = (arena){0};
    a->base = mem_alloc_aligned(64, size_bytes);
    if (!a->base) return fail(err, MICA_E_NOMEM, "%s: allocate %zu bytes: out of memory", what, size_bytes);
    a->size_bytes = size_bytes;
    return MICA_OK;
}

void arena_fini(arena *a) {
    mem_free(a->base);
    *a = (arena){0};
}

void arena_reset(arena *a) {
    a->used_bytes = 0;
}

void *arena_take(arena *a, size_t n_bytes, size_t align) {
    size_t at = (a->used_bytes + align - 1) & ~(align - 1);
    if (at < a->used_bytes || at > a->size_bytes || n_bytes > a->size_bytes - at) return NULL;
    a->used_bytes = at + n_bytes;
    return a->base + at;
}
