/* Names: found by hash, and made fit for messages. */
#include "gguf/gguf_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <xxhash.h>

bool name_index_init(name_index *ix, uint32_t n) {
    uint32_t size = 16;
    while (size < 2 * n) size *= 2; // n <= 2^17, so this cannot wrap
    *ix = (name_index){.slot = mem_calloc(size, sizeof *ix->slot), .mask = size - 1};
    ix->seed = clock_ns() ^ (uint64_t)(uintptr_t)ix->slot;
    return ix->slot != NULL;
}

void name_index_fini(name_index *ix) {
    mem_free(ix->slot);
    *ix = (name_index){0};
}

/* The slot that holds `name`, or the free one where it belongs. */
static uint32_t *slot_of(const name_index *ix, const void *items, name_of *of, slice name) {
    uint32_t at = (uint32_t)XXH3_64bits_withSeed(name.p, name.n, ix->seed) & ix->mask;
    while (ix->slot[at] && !slice_eq(of(items, ix->slot[at] - 1), name)) at = (at + 1) & ix->mask;
    return &ix->slot[at];
}

uint32_t name_index_put(name_index *ix, const void *items, name_of *of, uint32_t i) {
    uint32_t *slot = slot_of(ix, items, of, of(items, i));
    if (*slot) return *slot - 1;
    *slot = i + 1;
    return NAME_NONE;
}

uint32_t name_index_find(const name_index *ix, const void *items, name_of *of, slice name) {
    if (!ix->slot) return NAME_NONE;
    uint32_t *slot = slot_of(ix, items, of, name);
    return *slot ? *slot - 1 : NAME_NONE;
}

/* Copies whole UTF-8 sequences, '?' for what is none, until `room` bytes are used. Returns the bytes written.
 */
static size_t copy_clean(char *dst, size_t room, slice s) {
    size_t n = 0, i = 0;
    while (i < s.n) {
        int len = utf8_len(s.p + i, s.n - i);
        size_t step = len > 0 ? (size_t)len : 1;
        if (n + step > room) break;
        if (len > 0 && s.p[i])
            memcpy(dst + n, s.p + i, step);
        else
            dst[n] = '?';
        n += step;
        i += step;
    }
    dst[n] = 0;
    return n;
}

const char *gguf_quote(char buf[GGUF_QUOTE_BYTES], slice name) {
    size_t n = copy_clean(buf, GGUF_QUOTE_BYTES - 4, name);
    if (n < name.n) memcpy(buf + n, "...", 4);
    return buf;
}

const char *gguf_path_label(char buf[GGUF_LABEL_BYTES], const char *path) {
    slice s = slice_of(path);
    size_t room = GGUF_LABEL_BYTES - 1, head = 0;
    if (s.n > room) {
        memcpy(buf, "...", 3);
        head = 3;
        s.p += s.n - (room - head);
        s.n = room - head;
        while (s.n && ((unsigned char)*s.p & 0xC0) == 0x80)
            s.p++, s.n--; // not from the middle of a character
    }
    copy_clean(buf + head, room - head, s);
    return buf;
}
