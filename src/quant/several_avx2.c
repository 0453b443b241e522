/* The token role (docs/ARITHMETIC.md rule 3) with AVX2 for 2 to 8 rows of activations: a draft window, or a
 * row of each of several sequences.
 *
 * A stretch of a weight row is unpacked once to bytes in the first cache, and scales are multiplied with
 * those of every row of activations. The stretch is then walked in passes: a pass takes one, two or four of
 * the eight blocks of every unit, for all rows of activations at once, so that their accumulators (blocks
 * times rows) stay in registers, a weight is loaded once for all rows, and a scale comes broadcast from
 * memory, which no arithmetic port notices. What is left for a row is one step of each kind that rule 3 asks
 * for: products, sum of pairs, conversion, multiply and add. */
#include "quant/several_avx2.h"

/* Scales of block j spread over its groups. */
SIMD __m256 scale_spread(const float *s, const several_kind k, int j) {
    if (k.n_sub == 1) return _mm256_broadcast_ss(s + j);
    __m256 v[2] = {_mm256_loadu_ps(s), _mm256_loadu_ps(s + 8)}; // one of them is used
    return half_scale(v, j);
}

/* Block j of unit iu, its weights w, for each row of activations. */
SIMD void block_add(__m256 *acc, const several *s, const several_kind k, __m256i w, int iu, int j) {
    __m256i size = k.is_signed ? _mm256_abs_epi8(w) : w;
    UNROLL
    for (int a = 0; a < k.n_act; a++) {
        __m256i x = load256(s->a[a].q + 256 * (size_t)iu + 32 * j);
        if (k.is_signed) x = _mm256_sign_epi8(x, w);
        __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), _mm256_set1_epi16(1));
        acc[a] = _mm256_fmadd_ps(scale_spread(s->scale[iu][a], k, j), _mm256_cvtepi32_ps(sum), acc[a]);
    }
}

SIMD __m256i unpacked_get(const several *s, int iu, int j) {
    return _mm256_load_si256((const __m256i *)(const void *)(s->q[iu] + 32 * j));
}

/* Blocks j0 .. j0 + n - 1 of every unit. */
SIMD void pass_run(several *s, const several_kind k, int j0, int n) {
    __m256 acc[4][QUANT_TOKEN_ROWS_MAX];
    UNROLL
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int a = 0; a < k.n_act; a++) acc[j][a] = _mm256_load_ps(s->acc[a] + 8 * (j0 + j));
    }
    for (int iu = 0; iu < s->n_unit; iu++) {
        UNROLL
        for (int j = 0; j < n; j++) block_add(acc[j], s, k, unpacked_get(s, iu, j0 + j), iu, j0 + j);
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        if (j0 + j < s->n_tail)
            block_add(acc[j], s, k, unpacked_get(s, s->n_unit, j0 + j), s->n_unit, j0 + j);
        UNROLL
        for (int a = 0; a < k.n_act; a++) _mm256_store_ps(s->acc[a] + 8 * (j0 + j), acc[j][a]);
    }
}

/* The same for two rows of activations, half of the blocks, from the type's own bytes at p. */
SIMD void two_pass_run(several *s, const unit_kind t, const uint8_t *p, int j0) {
    const several_kind k = {!t.min && !t.min16, t.scale16 ? 2 : 1, 2};
    __m256 acc[4][2];
    UNROLL
    for (int j = 0; j < 4; j++) {
        acc[j][0] = _mm256_load_ps(s->acc[0] + 8 * (j0 + j));
        acc[j][1] = _mm256_load_ps(s->acc[1] + 8 * (j0 + j));
    }
    for (int iu = 0; iu < s->n_unit; iu++, p += t.bytes) {
        UNROLL
        for (int j = 0; j < 4; j++)
            block_add(acc[j], s, k, weights_get(t, p, s->index[iu], j0 + j), iu, j0 + j);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        if (t.block < 256 && j0 + j < s->n_tail)
            block_add(acc[j], s, k, weights_get(t, p, NULL, j0 + j), s->n_unit, j0 + j);
        _mm256_store_ps(s->acc[0] + 8 * (j0 + j), acc[j][0]);
        _mm256_store_ps(s->acc[1] + 8 * (j0 + j), acc[j][1]);
    }
}

SIMD void two_run(several *s, const unit_kind t, const uint8_t *p) {
    two_pass_run(s, t, p, 0);
    two_pass_run(s, t, p, 4);
}

/* All blocks of an unpacked stretch. */
SIMD void several_run(several *s, const several_kind k) {
    const int n = k.n_act <= 4 ? 2 : 1;
    UNROLL
    for (int j = 0; j < 8; j += n) pass_run(s, k, j, n);
}

SEVERAL_TABLE(token_rows_several_avx2)
