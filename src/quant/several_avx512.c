/* The token role (docs/ARITHMETIC.md rule 3) with AVX-512 and VNNI for 2 to 8 rows of activations: see
 * several_avx2.c. Registers hold pairs of blocks as in token_avx512.c; with twice as many of them, two to
 * four rows of activations take one pass over a stretch, more take two.
 *
 * Signed weights are the second factor of the dot-product instruction, x + 128 is the first one: what that
 * adds is 128 times a sum of weights, made once for all rows of activations. */
#include "quant/pair_avx512.h"
#include "quant/several_avx2.h"

enum { PAIRS_MAX = 4 };

/* Pair i of unit iu; whole: both of its blocks are there. */
typedef struct pair_at {
    int iu, i;
    bool whole;
} pair_at;

/* A pair, its weights w, for each row of activations. */
SIMD void pair_add(__m512 *acc, const several *s, const several_kind k, __m512i w, pair_at at) {
    const __m512i shift = _mm512_set1_epi8(-128); // 128 as an unsigned byte
    __m512i start = _mm512_set1_epi32(MAGIC);
    if (k.is_signed) start = _mm512_sub_epi32(start, _mm512_dpbusd_epi32(_mm512_setzero_si512(), shift, w));
    UNROLL
    for (int a = 0; a < k.n_act; a++) {
        const int8_t *q = s->a[a].q + 256 * (size_t)at.iu + 64 * at.i;
        __m512i x = at.whole ? load512(q) : _mm512_maskz_loadu_epi8(0xFFFFFFFF, q), sum;
        if (k.is_signed)
            sum = _mm512_dpbusd_epi32(start, _mm512_xor_si512(x, shift), w);
        else
            sum = _mm512_dpbusd_epi32(start, w, x);
        __m512 scale = pair_scale(_mm512_loadu_ps(s->scale[at.iu][a]), at.i, k.n_sub == 2);
        __m512 f = float_of_magic(sum);
        acc[a] =
            at.whole ? _mm512_fmadd_ps(scale, f, acc[a]) : _mm512_mask3_fmadd_ps(scale, f, acc[a], 0x00FF);
    }
}

SIMD __m512i unpacked_get(const several *s, int iu, int i) {
    return _mm512_load_si512(s->q[iu] + 64 * i);
}

/* Pairs i0 .. i0 + n - 1 of every unit. */
SIMD void pass_run(several *s, const several_kind k, int i0, int n) {
    __m512 acc[PAIRS_MAX][QUANT_TOKEN_ROWS_MAX];
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int a = 0; a < k.n_act; a++) acc[i][a] = _mm512_load_ps(s->acc[a] + 16 * (i0 + i));
    }
    for (int iu = 0; iu < s->n_unit; iu++) {
        UNROLL
        for (int i = 0; i < n; i++)
            pair_add(acc[i], s, k, unpacked_get(s, iu, i0 + i), (pair_at){iu, i0 + i, true});
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        int left = s->n_tail - 2 * (i0 + i), iu = s->n_unit;
        if (left > 1) pair_add(acc[i], s, k, unpacked_get(s, iu, i0 + i), (pair_at){iu, i0 + i, true});
        if (left == 1) pair_add(acc[i], s, k, unpacked_get(s, iu, i0 + i), (pair_at){iu, i0 + i, false});
        UNROLL
        for (int a = 0; a < k.n_act; a++) _mm512_storeu_ps(s->acc[a] + 16 * (i0 + i), acc[i][a]);
    }
}

SIMD void several_run(several *s, const several_kind k) {
    const int n = k.n_act <= 4 ? PAIRS_MAX : PAIRS_MAX / 2;
    UNROLL
    for (int i = 0; i < PAIRS_MAX; i += n) pass_run(s, k, i, n);
}

SIMD __m512i pair_get(const unit_kind t, const uint8_t *p, const uint16_t *at, int i, bool whole) {
    __m256i lo = weights_get(t, p, at, 2 * i),
            hi = whole ? weights_get(t, p, at, 2 * i + 1) : _mm256_setzero_si256();
    return join(lo, hi);
}

/* Two rows of activations, from the type's own bytes at p. */
SIMD void two_run(several *s, const unit_kind t, const uint8_t *p) {
    const several_kind k = {!t.min && !t.min16, t.scale16 ? 2 : 1, 2};
    __m512 acc[PAIRS_MAX][2];
    UNROLL
    for (int i = 0; i < PAIRS_MAX; i++) {
        acc[i][0] = _mm512_load_ps(s->acc[0] + 16 * i);
        acc[i][1] = _mm512_load_ps(s->acc[1] + 16 * i);
    }
    for (int iu = 0; iu < s->n_unit; iu++, p += t.bytes) {
        UNROLL
        for (int i = 0; i < PAIRS_MAX; i++)
            pair_add(acc[i], s, k, pair_get(t, p, s->index[iu], i, true), (pair_at){iu, i, true});
    }
    UNROLL
    for (int i = 0; i < PAIRS_MAX; i++) {
        int left = t.block < 256 ? s->n_tail - 2 * i : 0, iu = s->n_unit;
        if (left > 1) pair_add(acc[i], s, k, pair_get(t, p, NULL, i, true), (pair_at){iu, i, true});
        if (left == 1) pair_add(acc[i], s, k, pair_get(t, p, NULL, i, false), (pair_at){iu, i, false});
        _mm512_storeu_ps(s->acc[0] + 16 * i, acc[i][0]);
        _mm512_storeu_ps(s->acc[1] + 16 * i, acc[i][1]);
    }
}

SEVERAL_TABLE(token_rows_several_avx512)
