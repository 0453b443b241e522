/* The scalar definition against plain double arithmetic on decoded weights: right numbers here, right bits in
 * tests/arith. */
#include "check.h"

#include "base/half.h"
#include "base/mem.h"
#include "gguf/type.h"
#include "quant/quant.h"

#include <math.h>

enum { N_ROW = 3, N_ACT = 4 };

/* Random bytes whose f16 scales are ordinary numbers: only exponents near 2^-7 can appear. */
static void fill_row(uint8_t *w, const gguf_type_info *t, gguf_type type, size_t n_block, uint64_t *seed) {
    for (size_t i = 0; i < n_block * t->bytes; i++) w[i] = (uint8_t)(test_rand(seed) >> 24);
    static const int at[GGUF_TYPE_N][2] = {
        [GGUF_Q4_1] = {0, 2},     [GGUF_Q5_1] = {0, 2},    [GGUF_Q2_K] = {80, 82},
        [GGUF_Q3_K] = {108, 108}, [GGUF_Q4_K] = {0, 2},    [GGUF_Q5_K] = {0, 2},
        [GGUF_Q6_K] = {208, 208}, [GGUF_TQ1_0] = {52, 52}, [GGUF_TQ2_0] = {64, 64},
    };
    for (size_t ib = 0; ib < n_block; ib++) {
        uint8_t *p = w + ib * t->bytes;
        uint16_t h[2] = {f32_to_f16(0.01f + 0.01f * test_randf(seed)), f32_to_f16(0.01f * test_randf(seed))};
        if (type == GGUF_MXFP4)
            p[0] = (uint8_t)(118 + p[0] % 8);
        else if (type == GGUF_NVFP4)
            for (int i = 0; i < 4; i++) p[i] = (uint8_t)(0x10 + p[i] % 0x20);
        else if (type == GGUF_IQ1_M)
            for (int i = 0; i < 4; i++)
                p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (h[0] >> 4 * i & 15) << 4);
        else if (type == GGUF_F32)
            memcpy(p, &(float){test_randf(seed)}, 4);
        else if (type == GGUF_F16)
            memcpy(p, &(uint16_t){f32_to_f16(test_randf(seed))}, 2);
        else if (type == GGUF_BF16)
            memcpy(p, &(uint16_t){f32_to_bf16(test_randf(seed))}, 2);
        else {
            memcpy(p + at[type][0], h, 2);
            if (at[type][1] != at[type][0]) memcpy(p + at[type][1], h + 1, 2);
        }
    }
}

typedef struct acts {
    quant_act a;
    float *back; // [N_ACT, ld] what the products see: d * q, or x for float weights
} acts;

static acts acts_new(uint32_t n_col, bool is_float, uint64_t *seed) {
    uint32_t ld = (n_col + 63) / 64 * 64;
    acts r = {.a = {mem_calloc(N_ACT * ld, 4), mem_calloc(N_ACT * ld, 1), mem_calloc(N_ACT * ld / 32, 4),
                    mem_calloc(N_ACT * ld / 32, 4), mem_calloc(N_ACT * ld / 16, 4), ld},
              .back = mem_calloc(N_ACT * ld, 4)};
    for (uint32_t i = 0; i < N_ACT * ld; i++) r.a.x[i] = i % ld < n_col ? test_randf(seed) : NAN;
    if (!is_float) CHECK(quant_ops_get(CPU_SCALAR)->act_rows(&r.a, 0, N_ACT, n_col));
    for (uint32_t i = 0; i < N_ACT * ld; i++)
        r.back[i] = is_float ? r.a.x[i] : r.a.d[i / 32] * (float)r.a.q[i];
    return r;
}

static void acts_free(acts *r) {
    mem_free(r->a.x);
    mem_free(r->a.q);
    mem_free(r->a.d);
    mem_free(r->a.s);
    mem_free(r->a.s16);
    mem_free(r->back);
}

/* Both roles of one type and length; the weights start at an odd address. */
static void compare(gguf_type type, uint32_t n_col, uint64_t *seed) {
    const gguf_type_info *t = gguf_type_get(type);
    const quant_ops *ops = quant_ops_get(CPU_SCALAR);
    size_t row_bytes = (size_t)gguf_row_bytes(t, n_col);
    uint8_t *w = mem_alloc(N_ROW * row_bytes + 1);
    float *dec = mem_alloc(n_col * sizeof *dec);
    void *scratch = mem_alloc_aligned(64, quant_prompt_scratch_bytes(n_col));
    for (size_t ir = 0; ir < N_ROW; ir++) fill_row(w + 1 + ir * row_bytes, t, type, n_col / t->block, seed);
    acts act = acts_new(n_col, t->cls == GGUF_CLASS_FLOAT, seed);
    float token[N_ACT][N_ROW], prompt[N_ACT][N_ROW];
    ops->token[type](token[0], N_ROW, w + 1, row_bytes, &act.a, 0, N_ACT, N_ROW, n_col);
    ops->prompt[type](prompt[0], N_ROW, w + 1, row_bytes, &act.a, 0, N_ACT, N_ROW, n_col, scratch);
    for (size_t ir = 0; ir < N_ROW; ir++) {
        quant_decode(dec, w + 1 + ir * row_bytes, type, n_col);
        for (int ia = 0; ia < N_ACT; ia++) {
            double sum = 0, mag = 0;
            for (uint32_t c = 0; c < n_col; c++) {
                double p = (double)dec[c] * (double)act.back[(size_t)ia * act.a.ld + c];
                sum += p;
                mag += fabs(p);
            }
            double bound = 3e-6 * mag + 1e-30;
            if (!(fabs(token[ia][ir] - sum) <= bound) || !(fabs(prompt[ia][ir] - sum) <= bound))
                print_error("%s n_col %u: token %.9g prompt %.9g double %.9g\n", t->name, n_col,
                            token[ia][ir], prompt[ia][ir], sum);
            CHECK(fabs(token[ia][ir] - sum) <= bound && fabs(prompt[ia][ir] - sum) <= bound);
        }
    }
    acts_free(&act);
    mem_free(w);
    mem_free(dec);
    mem_free(scratch);
}

static void test_products_are_near_double_arithmetic(void **state) {
    (void)state;
    uint64_t seed = 0x51A7E5;
    print_message("seed %llx\n", (unsigned long long)seed);
    static const uint32_t len[] = {1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 40};
    int n_type = 0;
    for (uint32_t id = 0; id < GGUF_TYPE_N; id++) {
        const gguf_type_info *t = gguf_type_get(id);
        if (!t || t->cls == GGUF_CLASS_ACTIVATION || t->cls == GGUF_CLASS_OTHER) continue;
        n_type++;
        for (size_t i = 0; i < sizeof len / sizeof *len; i++) {
            uint32_t unit = t->block == 1 ? 37 : t->block;
            compare((gguf_type)id, len[i] * unit, &seed);
        }
        CHECK(quant_calls(CPU_SCALAR, false, (gguf_type)id) == 11 &&
              quant_calls(CPU_SCALAR, true, (gguf_type)id) == 11);
    }
    CHECK(n_type == 28);
}

static void test_activation_blocks_at_the_edges(void **state) {
    (void)state;
    float x[32], d[1], s[1], s16[2];
    int8_t q[32];
    quant_act a = {x, q, d, s, s16, 32};
    const quant_ops *ops = quant_ops_get(CPU_SCALAR);
    // Ties go to even: with amax 127 the scale is 1.
    for (int i = 0; i < 32; i++) x[i] = (float)i - 15.5f;
    x[31] = 127;
    CHECK(ops->act_rows(&a, 0, 1, 32));
    CHECK(d[0] == 1 && q[31] == 127 && q[0] == -16 && q[1] == -14 && q[2] == -14 && q[16] == 0 &&
          q[17] == 2 && q[18] == 2);
    CHECK(s[0] == s16[0] + s16[1]);
    for (int i = 0; i < 32; i++) x[i] = i & 1 ? -0.0f : 0.0f;
    CHECK(ops->act_rows(&a, 0, 1, 32));
    CHECK(f32_bits(d[0]) == 0 && f32_bits(s[0]) == 0 && q[0] == 0 && q[1] == 0);
    // The smallest scale that counts, and the largest that does not.
    x[3] = 127 * 0x1p-126f;
    CHECK(ops->act_rows(&a, 0, 1, 32) && d[0] == 0x1p-126f && q[3] == 127);
    x[3] = 126.9f * 0x1p-126f;
    CHECK(ops->act_rows(&a, 0, 1, 32) && d[0] == 0 && q[3] == 0 && s[0] == 0);
    x[3] = 0x1.fffffep127f;
    x[4] = -0x1.fffffep127f;
    CHECK(ops->act_rows(&a, 0, 1, 32) && q[3] == 127 && q[4] == -127 && isfinite(d[0]));
    static const uint32_t bad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001};
    for (int i = 0; i < 4; i++) {
        x[31] = bits_f32(bad[i]);
        CHECK(!ops->act_rows(&a, 0, 1, 32));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_near_double_arithmetic),
        cmocka_unit_test(test_activation_blocks_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
