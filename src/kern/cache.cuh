/* The KV cache on a card: where a position's vectors are, and its three number types (rule 6). */
#ifndef MICA_KERN_CACHE_CUH
#define MICA_KERN_CACHE_CUH

#include "kern/act.cuh"

DEV i32 cache_page(const kv_pages *t, i32 seq, u32 pos) {
    return t->table[(u64)(u32)seq * t->n_slot + pos / KV_PAGE % t->n_slot];
}

/* Which vector (page, head, position): it begins at that times its length. */
DEV u64 cache_vector(i32 page, u32 n_head_kv, u32 head, u32 pos) {
    return ((u64)(u32)page * n_head_kv + head) * KV_PAGE + pos % KV_PAGE;
}

/* Value i of the cache; an i8 as the integer it is. */
DEV float cache_load(const void *p, kv_type type, u64 i) {
    if (type == KV_F32) return ((const float *)p)[i];
    if (type == KV_F16) return f16_to_f32(((const u16 *)p)[i]);
    return (float)((const i8 *)p)[i];
}

/* Values i .. i + 7, i a multiple of 8. */
DEV void cache_load8(float v[8], const void *p, kv_type type, u64 i) {
    u32 w[8];
    if (type == KV_F32) {
        load_16(w, (const float *)p + i);
        load_16(w + 4, (const float *)p + i + 4);
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = bits_f32(w[k]);
    } else if (type == KV_F16) {
        load_16(w, (const u16 *)p + i);
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = f16_to_f32((u16)(w[k / 2] >> 16 * (k % 2) & 0xFFFF));
    } else {
        load_8(w, (const i8 *)p + i);
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = (float)(i8)(w[k / 4] >> 8 * (k % 4) & 255);
    }
}

/* Values i, i + ld, .. i + 7 ld. */
DEV void cache_load_column(float v[8], const void *p, kv_type type, u64 i, u32 ld) {
    if (type == KV_F32) {
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = ((const float *)p)[i + k * ld];
    } else if (type == KV_F16) {
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = f16_to_f32(((const u16 *)p)[i + k * ld]);
    } else {
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = (float)((const i8 *)p)[i + k * ld];
    }
}

/* Value i of a vector in f32 or f16. */
DEV void cache_store_float(void *p, kv_type type, u64 i, float x) {
    if (type == KV_F32)
        ((float *)p)[i] = x;
    else
        ((u16 *)p)[i] = f32_to_f16(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

#endif
