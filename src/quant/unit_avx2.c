/* Every type's unit, from its registers (unpack_avx2.h) to memory. */
#include "quant/unit_avx2.h"
#include "quant/block.h"
#include "quant/unpack_avx2.h"

SIMD void store(float *p, __m256 v) {
    _mm256_store_ps(p, v);
}

SIMD void unit_unpack(quant_unit *o, const unit_kind k, const uint8_t *p, int n) {
    __m256 v[2];
    uint16_t at[UNIT_INDEX_MAX];
    unit_index(at, k, p);
    if (k.scale) {
        __m256 s = k.scale(p, n);
        v[0] = _mm256_permute2f128_ps(s, s, 0x00);
        v[1] = _mm256_permute2f128_ps(s, s, 0x11);
    } else {
        k.scale16(v, p, n);
    }
    store(o->scale, v[0]);
    store(o->scale + 8, v[1]);
    if (k.min) store(o->min, k.min(p, n));
    if (k.min16) {
        k.min16(v, p, n);
        store(o->min, v[0]);
        store(o->min + 8, v[1]);
    }
    UNROLL
    for (int j = 0; j < 8; j++) {
        if (j < n) {
            __m256i q = unit_bytes(k, p, at, j);
            if (k.sgn) q = _mm256_sign_epi8(q, k.sgn(p, j));
            if (k.offset) q = _mm256_sub_epi8(q, bytes_all(k.offset));
            _mm256_store_si256((__m256i *)(void *)(o->q + 32 * j), q);
        }
    }
}

#define UNIT_FN(TYPE, name, n_sub, has_min)                                                                  \
    static void unit_##name##_unpack(quant_unit *o, const uint8_t *p, int n) {                               \
        unit_unpack(o, unit_##name, p, n);                                                                   \
    }
QUANT_TYPES(UNIT_FN)

#define UNIT_ENTRY(TYPE, name, n_sub, has_min)                                                               \
    [GGUF_##TYPE] = {unit_##name##_unpack, UNIT_BYTES_##name, n_sub, has_min},
const quant_unit_type quant_unit_types[GGUF_TYPE_N] = {QUANT_TYPES(UNIT_ENTRY)};
