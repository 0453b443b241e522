/* Chunks in chains. Free ones are a chain too, last given first taken, so that memory is touched only when
 * all that was touched before is in use. */
#include "run/slab.h"

#include "base/mem.h"

#include <assert.h>

mica_status slab_init(slab *s, uint32_t n_chunk, mica_error *err) {
    *s = (slab){.n_chunk = n_chunk, .n_free = n_chunk, .first_free = n_chunk ? 0 : SLAB_NONE};
    s->base = mem_pages_alloc((size_t)n_chunk * SLAB_CHUNK);
    s->next = mem_alloc((size_t)n_chunk * sizeof *s->next);
    if (!s->base || !s->next) {
        slab_fini(s);
        return fail(err, MICA_E_NOMEM, "prefix cache: %u chunks of %d bytes: out of memory", n_chunk,
                    SLAB_CHUNK);
    }
    for (uint32_t i = 0; i < n_chunk; i++) s->next[i] = i + 1 < n_chunk ? i + 1 : SLAB_NONE;
    return MICA_OK;
}

void slab_fini(slab *s) {
    mem_pages_free(s->base);
    mem_free(s->next);
    *s = (slab){.first_free = SLAB_NONE};
}

uint32_t slab_chunks(size_t n_bytes) {
    return n_bytes == 0 ? 1 : (uint32_t)((n_bytes + SLAB_CHUNK - 1) / SLAB_CHUNK);
}

uint32_t slab_take(slab *s, size_t n_bytes) {
    uint32_t n = slab_chunks(n_bytes), head = s->first_free, last = head;
    if (n > s->n_free) return SLAB_NONE;
    for (uint32_t i = 1; i < n; i++) last = s->next[last];
    s->first_free = s->next[last];
    s->next[last] = SLAB_NONE;
    s->n_free -= n;
    return head;
}

void slab_give(slab *s, uint32_t head) {
    uint32_t last = head, n = 1;
    if (head == SLAB_NONE) return;
    while (s->next[last] != SLAB_NONE) last = s->next[last], n++;
    s->next[last] = s->first_free;
    s->first_free = head;
    s->n_free += n;
}

size_t slab_span(slab_pos *at, size_t want, void **p) {
    assert(at->chunk != SLAB_NONE);
    if (at->off == SLAB_CHUNK) {
        at->chunk = at->s->next[at->chunk];
        at->off = 0;
        assert(at->chunk != SLAB_NONE);
    }
    size_t left = SLAB_CHUNK - at->off, n = want < left ? want : left;
    *p = at->s->base + (size_t)at->chunk * SLAB_CHUNK + at->off;
    at->off += (uint32_t)n;
    return n;
}

void slab_skip(slab_pos *at, size_t n_bytes) {
    void *p;
    while (n_bytes > 0) n_bytes -= slab_span(at, n_bytes, &p);
}
