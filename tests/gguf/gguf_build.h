/* Bytes of a GGUF file, right or wrong on purpose: each call appends one field. Counts and offsets are the
 * caller's. */
#ifndef MICA_TESTS_GGUF_BUILD_H
#define MICA_TESTS_GGUF_BUILD_H

#include "base/str.h"
#include "gguf/gguf.h"

#include <stdint.h>
#include <stdio.h>

static inline void put_u8(strbuf *b, uint8_t x) {
    strbuf_put(b, &x, 1);
}
static inline void put_u32(strbuf *b, uint32_t x) {
    strbuf_put(b, &x, 4);
}
static inline void put_u64(strbuf *b, uint64_t x) {
    strbuf_put(b, &x, 8);
}
static inline void put_f32(strbuf *b, float x) {
    strbuf_put(b, &x, 4);
}
static inline void put_f64(strbuf *b, double x) {
    strbuf_put(b, &x, 8);
}
static inline void put_bytes(strbuf *b, const void *p, size_t n) {
    put_u64(b, n);
    strbuf_put(b, p, n);
}
static inline void put_str(strbuf *b, const char *s) {
    put_bytes(b, s, strlen(s));
}
static inline void put_zeros(strbuf *b, size_t n) {
    while (n--) put_u8(b, 0);
}
static inline void put_pad(strbuf *b, size_t align) {
    while (b->n % align) put_u8(b, 0);
}

static inline void put_header(strbuf *b, uint32_t version, uint64_t n_tensor, uint64_t n_kv) {
    strbuf_put(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensor);
    put_u64(b, n_kv);
}

static inline void put_key(strbuf *b, const char *key, uint32_t kind) {
    put_str(b, key);
    put_u32(b, kind);
}
static inline void put_kv_u32(strbuf *b, const char *key, uint32_t x) {
    put_key(b, key, GGUF_KIND_U32);
    put_u32(b, x);
}
static inline void put_kv_str(strbuf *b, const char *key, const char *s) {
    put_key(b, key, GGUF_KIND_STR);
    put_str(b, s);
}
static inline void put_array(strbuf *b, const char *key, uint32_t elem, uint64_t n) {
    put_key(b, key, GGUF_KIND_ARRAY);
    put_u32(b, elem);
    put_u64(b, n);
}
static inline void put_kv_u16(strbuf *b, const char *key, uint16_t x) {
    put_key(b, key, GGUF_KIND_U16);
    strbuf_put(b, &x, 2);
}

/* One directory entry; ne in the file's order, contiguous axis first. */
static inline void put_tensor(strbuf *b, const char *name, uint32_t n_dim, const uint64_t *ne, uint32_t type,
                              uint64_t off) {
    put_str(b, name);
    put_u32(b, n_dim);
    for (uint32_t d = 0; d < n_dim; d++) put_u64(b, ne[d]);
    put_u32(b, type);
    put_u64(b, off);
}
static inline void put_vector(strbuf *b, const char *name, uint64_t n, uint64_t off) {
    put_tensor(b, name, 1, &n, GGUF_F32, off);
}

/* A small right file: two keys, two tensors (q8_0 [2, 32] and f32 [5]), data up to the last byte. */
static inline void put_small_model(strbuf *b) {
    put_header(b, 3, 2, 2);
    put_kv_str(b, "general.architecture", "llama");
    put_array(b, "tokenizer.ggml.tokens", GGUF_KIND_STR, 3);
    put_str(b, "a");
    put_str(b, "");
    put_str(b, "\xc3\xa4");
    put_tensor(b, "blk.0.w", 2, (uint64_t[]){32, 2}, GGUF_Q8_0, 0);
    put_vector(b, "norm", 5, 96);
    put_pad(b, 32);
    for (int i = 0; i < 96 + 20; i++) put_u8(b, (uint8_t)i);
}

/* One shard of several, with keys for its place and n tensors "PREFIX.i" of 8 floats, each filled with its
 * shard's no. */
static inline void put_shard(strbuf *b, uint16_t no, uint16_t count, uint32_t total, const char *prefix,
                             uint32_t n) {
    put_header(b, 3, n, no == 0 ? 4 : 3);
    put_kv_u16(b, "split.no", no);
    put_kv_u16(b, "split.count", count);
    put_key(b, "split.tensors.count", GGUF_KIND_I32);
    put_u32(b, total);
    if (no == 0) put_kv_str(b, "general.architecture", "llama");
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.%u", prefix, i);
        put_vector(b, name, 8, 32 * i);
    }
    if (n == 0) return; // a metadata-only first shard may end without padding
    put_pad(b, 32);
    for (uint32_t i = 0; i < 8 * n; i++) put_f32(b, (float)no);
}

#endif
