/* Every kernel against the definition: random ragged shapes, every type of weights, both roles; every byte of
 * every buffer, guard words around them. On the simulated card at both wave widths, and on a real card when
 * MICA_TEST_DEVICE names one ("cuda:0", "hip:0"). */
#include "check.h"

#include "base/half.h"
#include "dev/dev.h"
#include "dev/gpu_sim.h"
#include "mirror.h"
#include "quant/quant.h"

#include <math.h>

/* ---- devices ---------------------------------------------------------------------------------- */

static const dev_limits g_limits = {.n_row = 160,
                                    .n_col = 16384,
                                    .n_out = 2600,
                                    .n_head = 24,
                                    .d_head = 512,
                                    .n_expert = 24,
                                    .n_expert_used = 6,
                                    .n_embd = 512,
                                    .n_ff_expert = 512};
static dev *g_ref, *g_dev;
static const char *g_card; // "sim:32", "sim:64" by wave, "cuda:N", "hip:N"

/* The experts of a case: three stacks. */
static struct {
    expert_source base;
    const char *gate, *up, *down;
    dev_expert_shape shape;
} g_source;

static mica_status source_acquire(expert_source *s, uint32_t layer, uint32_t expert, expert_lease *out,
                                  mica_error *err) {
    (void)s, (void)err;
    *out = (expert_lease){g_source.gate + expert * g_source.shape.gate_bytes,
                          g_source.up + expert * g_source.shape.up_bytes,
                          g_source.down + expert * g_source.shape.down_bytes, layer, expert};
    return MICA_OK;
}
static void source_release(expert_source *s, expert_lease *lease) {
    (void)s, (void)lease;
}

static void open_card(void) {
    mica_error err;
    dev_config cfg = {.n_thread = 1, .limits = g_limits, .experts = &g_source.base};
    cfg.kind = strncmp(g_card, "cuda", 4) == 0  ? DEV_CUDA
               : strncmp(g_card, "hip", 3) == 0 ? DEV_HIP
                                                : DEV_SIM;
    const char *number = strchr(g_card, ':');
    if (cfg.kind == DEV_SIM)
        CHECK_OK(gpu_sim_configure(strcmp(g_card, "sim:64") == 0 ? "wave=64" : "wave=32", &err));
    else
        cfg.card = number ? atoi(number + 1) : 0;
    CHECK_OK(dev_open(&g_dev, &cfg, &err));
}

static int open_all(void **state) {
    (void)state;
    mica_error err;
    g_source.base = (expert_source){source_acquire, source_release, NULL};
    dev_config cfg = {.kind = DEV_REF, .n_thread = 1, .limits = g_limits, .experts = &g_source.base};
    CHECK_OK(dev_open(&g_ref, &cfg, &err));
    open_card();
    printf("device %s\n", g_dev->what);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    dev_close(g_dev);
    dev_close(g_ref);
    return 0;
}

static uint64_t g_seed;

static uint32_t pick(uint32_t lo, uint32_t hi) {
    return lo + (uint32_t)(test_rand(&g_seed) % (hi - lo + 1));
}
static uint32_t pick_of(const uint32_t *of, uint32_t n) {
    return of[pick(0, n - 1)];
}

/* The record `a` on the host for the definition, `b` (made by `place`) for the device. Within a step, because
 * some operations' geometry depends on how far its rows see. */
#define RUN(op, what, place)                                                                                 \
    do {                                                                                                     \
        mica_error err;                                                                                      \
        mir_freeze();                                                                                        \
        CHECK_OK(dev_##op(g_ref, &a, &err));                                                                 \
        CHECK_OK(dev_sync(g_ref, &err));                                                                     \
        op##_args b = a;                                                                                     \
        step_begin();                                                                                        \
        mir_place(g_dev);                                                                                    \
        place;                                                                                               \
        CHECK_OK(dev_##op(g_dev, &b, &err));                                                                 \
        CHECK_OK(dev_step_end(g_dev, true, &err));                                                           \
        mir_compare(g_dev, what);                                                                            \
        mir_done();                                                                                          \
    } while (0)

static void step_begin(void) {
    mica_error err;
    bool done;
    dev_step s = {
        .n_row = 1, .n_prompt = 1, .n_kv = 1600 + pick(0, 1) * 500}; // with prompt rows: never a graph
    CHECK_OK(dev_step_begin(g_dev, &s, &done, &err));
    CHECK(!done);
}

/* ---- random contents -------------------------------------------------------------------------- */

static float *random_floats(size_t n, float span) {
    float *x = mir_floats(n);
    for (size_t i = 0; i < n; i++) x[i] = test_randf(&g_seed) * span;
    return x;
}

/* Values over many orders of magnitude, with zeros of both signs. */
static float *wild_floats(size_t n) {
    float *x = mir_floats(n);
    for (size_t i = 0; i < n; i++) {
        uint32_t kind = pick(0, 15);
        x[i] = test_randf(&g_seed) * (kind == 0 ? 0.0f : ldexpf(1.0f, (int)pick(0, 24) - 16));
    }
    return x;
}

static quant_act new_act(uint32_t n_row, uint32_t n_col) {
    uint32_t ld = (n_col + 63) / 64 * 64;
    size_t n = (size_t)n_row * ld;
    quant_act a = {.ld = ld};
    a.x = mir_floats(n);
    a.q = mir(n);
    a.d = mir_floats(n / 32);
    a.s = mir_floats(n / 32);
    a.s16 = mir_floats(n / 16);
    return a;
}

/* Random rows, quantised when the width allows; NaN where nobody may read. */
static quant_act random_act(uint32_t n_row, uint32_t n_col) {
    quant_act a = new_act(n_row, n_col);
    for (size_t i = 0; i < (size_t)n_row * a.ld; i++)
        a.x[i] = i % a.ld < n_col ? test_randf(&g_seed) * 3.0f : NAN;
    if (n_col % 32 == 0) CHECK(quant_ops_get(CPU_SCALAR)->act_rows(&a, 0, n_row, n_col));
    return a;
}

/* A type, and where its blocks have f16 numbers. */
typedef struct type_case {
    gguf_type type;
    int8_t f16[2]; // -1: none
} type_case;

static const type_case g_types[] = {
    {GGUF_Q4_0, {0, -1}},    {GGUF_Q4_1, {0, 2}},    {GGUF_Q5_0, {0, -1}},    {GGUF_Q5_1, {0, 2}},
    {GGUF_Q8_0, {0, -1}},    {GGUF_Q2_K, {80, 82}},  {GGUF_Q3_K, {108, -1}},  {GGUF_Q4_K, {0, 2}},
    {GGUF_Q5_K, {0, 2}},     {GGUF_Q6_K, {-1, -1}},  {GGUF_IQ2_XXS, {0, -1}}, {GGUF_IQ2_XS, {0, -1}},
    {GGUF_IQ3_XXS, {0, -1}}, {GGUF_IQ1_S, {0, -1}},  {GGUF_IQ4_NL, {0, -1}},  {GGUF_IQ3_S, {0, -1}},
    {GGUF_IQ2_S, {0, -1}},   {GGUF_IQ4_XS, {0, -1}}, {GGUF_IQ1_M, {-1, -1}},  {GGUF_TQ1_0, {52, -1}},
    {GGUF_TQ2_0, {64, -1}},  {GGUF_MXFP4, {-1, -1}}, {GGUF_NVFP4, {-1, -1}},  {GGUF_Q1_0, {0, -1}},
    {GGUF_Q2_0, {0, -1}},    {GGUF_F32, {-1, -1}},   {GGUF_F16, {0, -1}},     {GGUF_BF16, {-1, -1}},
};
enum { N_TYPE = sizeof g_types / sizeof g_types[0] };

static uint16_t random_f16(void) {
    return (uint16_t)((test_rand(&g_seed) & 0x83FF) | (uint32_t)(5 + pick(0, 8)) << 10);
}

/* Any bytes make a block, but for scales that are no numbers. */
static void random_block(uint8_t *p, const type_case *t) {
    const gguf_type_info *info = gguf_type_get(t->type);
    for (uint32_t i = 0; i < info->bytes; i++) p[i] = (uint8_t)test_rand(&g_seed);
    for (int i = 0; i < 2; i++) {
        uint16_t h = random_f16();
        if (t->f16[i] >= 0) memcpy(p + t->f16[i], &h, 2);
    }
    uint16_t h = random_f16();
    if (t->type == GGUF_Q6_K) memcpy(p + 208, &h, 2);
    if (t->type == GGUF_MXFP4) p[0] = (uint8_t)pick(100, 140);
    if (t->type == GGUF_IQ1_M) p[55] = (uint8_t)((p[55] & 0x8F) | 0x20);
    float x = test_randf(&g_seed);
    if (t->type == GGUF_F32) memcpy(p, &x, 4);
    uint16_t b = f32_to_bf16(x);
    if (t->type == GGUF_BF16) memcpy(p, &b, 2);
}

static weight_ref random_weight(const type_case *t, uint32_t n_row, uint32_t n_col) {
    const gguf_type_info *info = gguf_type_get(t->type);
    size_t row_bytes = (size_t)gguf_row_bytes(info, n_col), n_block = n_row * row_bytes / info->bytes;
    uint8_t *w = mir(n_row * row_bytes);
    for (size_t i = 0; i < n_block; i++) random_block(w + i * info->bytes, t);
    return (weight_ref){.w = w, .type = t->type, .n_row = n_row, .n_col = n_col};
}

/* A width that a type allows. */
static uint32_t width_of(const type_case *t, uint32_t most) {
    uint32_t block = gguf_type_get(t->type)->block;
    return block * pick(1, most / block > 0 ? most / block : 1);
}

/* ---- rows ------------------------------------------------------------------------------------- */

static void case_embed(const type_case *t) {
    uint32_t n_row = pick(1, 4), n_vocab = 9, n_col = width_of(t, 600);
    row_info *rows = mir(n_row * sizeof *rows);
    for (uint32_t i = 0; i < n_row; i++) rows[i].tok = (int32_t)pick(0, n_vocab - 1);
    embed_args a = {.table = random_weight(t, n_vocab, n_col), .rows = rows, .n_row = n_row};
    a.x = mir_floats((size_t)n_row * n_col);
    a.scale = pick(0, 1) ? 1.0f : 22.627417f;
    RUN(embed, gguf_type_get(t->type)->name, (MIR(b.x), b.table = mir_weight(b.table), MIR(b.rows)));
}

static void test_embed(void **state) {
    (void)state;
    for (int i = 0; i < N_TYPE; i++) case_embed(&g_types[i]);
}

static void case_norm(void) {
    static const uint32_t cols[] = {32, 64, 96, 576, 800, 1600};
    uint32_t want_q = pick(0, 3) > 0, n_col = want_q ? pick_of(cols, 6) : pick(1, 700), n_row = pick(1, 9);
    uint32_t ld_x = n_col + pick(0, 9);
    float *x = wild_floats((size_t)n_row * ld_x), *w = random_floats(n_col, 2.0f);
    int32_t *from = mir(n_row * sizeof *from);
    for (uint32_t i = 0; i < n_row; i++) from[i] = (int32_t)pick(0, n_row - 1);
    norm_args a = {new_act(n_row, n_col),
                   x,
                   pick(0, 3) ? w : NULL,
                   pick(0, 1) ? from : NULL,
                   ld_x,
                   n_row,
                   n_col,
                   1e-5f,
                   want_q};
    RUN(norm, "norm", (b.y = mir_act(b.y), MIR(b.x), MIR(b.w), MIR(b.row_of)));
}

static void case_add_norm(void) {
    uint32_t n_col = pick(1, 900), n_row = pick(1, 5);
    size_t n = (size_t)n_row * n_col;
    add_norm_args a = {wild_floats(n), wild_floats(n), random_floats(n_col, 1.0f), n_row, n_col, 1e-6f};
    RUN(add_norm, "add_norm", (MIR(b.x), MIR(b.y), MIR(b.w)));
}

static void case_quantise(void) {
    uint32_t n_row = pick(1, 7), n_col = pick(1, 40) * 32;
    quantise_args a = {new_act(n_row, n_col), n_row, n_col};
    for (size_t i = 0; i < (size_t)n_row * a.a.ld; i++)
        a.a.x[i] = test_randf(&g_seed) * ldexpf(1.0f, (int)pick(0, 60) - 30);
    RUN(quantise, "quantise", b.a = mir_act(b.a));
}

static void case_glu(void) {
    uint32_t want_q = pick(0, 1), n_col = want_q ? pick(1, 50) * 32 : pick(1, 1600), n_row = pick(1, 5);
    uint32_t ld = n_col + pick(0, 5);
    size_t n = (size_t)n_row * ld;
    glu_args a = {new_act(n_row, n_col),
                  wild_floats(n),
                  wild_floats(n),
                  ld,
                  n_row,
                  n_col,
                  pick(0, 1) ? GLU_SILU : GLU_GELU,
                  want_q};
    RUN(glu, "glu", (b.h = mir_act(b.h), MIR(b.gate), MIR(b.up)));
}

static void case_gate_norm(void) {
    uint32_t want_q = pick(0, 1), n_row = pick(1, 5), n_col = want_q ? pick(1, 5) * 32 : pick(1, 130),
             n_group = pick(1, 12);
    if (want_q && pick(0, 2) == 0) n_col = 48, n_group = 2 * pick(1, 3); // blocks across groups
    size_t n = (size_t)n_row * n_group * n_col;
    gate_norm_args a = {new_act(n_row, n_group * n_col),
                        wild_floats(n),
                        wild_floats(n),
                        random_floats(n_col, 2.0f),
                        n_row,
                        n_group,
                        n_col,
                        1e-6f,
                        pick(0, 1),
                        want_q};
    RUN(gate_norm, "gate_norm", (b.y = mir_act(b.y), MIR(b.o), MIR(b.z), MIR(b.w)));
}

static void case_values(void) {
    uint32_t n_row = pick(1, 4), n_col = pick(1, 900);
    size_t n = (size_t)n_row * n_col;
    {
        gated_add_args a = {wild_floats(n), wild_floats(n), random_floats(n_row, 4.0f), n_row, n_col};
        RUN(gated_add, "gated_add", (MIR(b.y), MIR(b.x), MIR(b.g)));
    }
    {
        softcap_args a = {wild_floats(n), n, 30.0f};
        RUN(softcap, "softcap", MIR(b.y));
    }
    {
        scale_args a = {wild_floats(n), random_floats(1, 3.0f), n};
        RUN(scale, "scale", (MIR(b.x), MIR(b.s)));
    }
}

static void case_router(void) {
    uint32_t n_expert = pick(0, 2) ? pick(1, 40) : pick(200, 600), n_row = pick(1, 5);
    uint32_t n_used = pick(1, n_expert < 10 ? n_expert : 10), n = n_row * n_used;
    float *l = random_floats((size_t)n_row * n_expert, 5.0f);
    for (uint32_t i = 0; i < n_row * n_expert; i++) l[i] = pick(0, 1) ? l[i] : rintf(l[i]); // ties
    router_args a = {mir(n * sizeof(int32_t)), mir_floats(n), l, n_row, n_expert, n_used,
                     pick(0, 1) ? 2.5f : 0.0f};
    RUN(router, "router", (MIR(b.ids), MIR(b.weights), MIR(b.logits)));
}

static void case_rope_table(void) {
    uint32_t n_row = pick(1, 9), n_pair = pick(1, 140);
    row_info *rows = mir(n_row * sizeof *rows);
    double *inv = mir(n_pair * sizeof *inv);
    for (uint32_t i = 0; i < n_row; i++) rows[i].pos = (int32_t)pick(0, 200000);
    for (uint32_t i = 0; i < n_pair; i++) inv[i] = pow(10000.0, -2.0 * i / (2.0 * n_pair));
    rope_table_args a = {
        mir_floats((size_t)n_row * n_pair * 2), inv, rows, n_row, n_pair, pick(0, 1) ? 1.0f : 1.13f};
    RUN(rope_table, "rope_table", (MIR(b.cs), MIR(b.inv_freq), MIR(b.rows)));
}

static void test_rows(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        case_norm();
        case_add_norm();
        case_quantise();
        case_glu();
        case_gate_norm();
        case_values();
        case_router();
        case_rope_table();
    }
}

/* ---- products --------------------------------------------------------------------------------- */

static linear_args mir_linear(linear_args a) {
    for (uint32_t k = 0; k < a.n_out; k++) {
        MIR(a.out[k].y);
        a.out[k].w = mir_weight(a.out[k].w);
    }
    a.a = mir_act(a.a);
    return a;
}

static void case_linear(const type_case *const *types, uint32_t n_out, uint32_t n_col, uint32_t n_row) {
    linear_args a = {.a = random_act(n_row, n_col), .n_out = n_out, .n_row = n_row};
    a.n_prompt = pick(0, 1) ? pick(0, n_row) : pick(0, 1) ? n_row : 0;
    for (uint32_t k = 0; k < n_out; k++) {
        linear_out *o = &a.out[k];
        o->w = random_weight(types[k], pick(0, 2) ? pick(1, 50) : pick(50, 90), n_col);
        o->ld_y = o->w.n_row + pick(0, 7);
        o->add = pick(0, 1);
        if (pick(0, 2) == 0) o->w.bias = random_floats(o->w.n_row, 2.0f);
        if (pick(0, 2) == 0) o->w.scale = random_floats(1, 2.0f);
        o->y = random_floats((size_t)n_row * o->ld_y, 5.0f);
    }
    RUN(linear, gguf_type_get(types[0]->type)->name, b = mir_linear(b));
}

static uint32_t random_n_row(void) {
    return pick(0, 3) ? pick(1, 9) : pick(60, 80);
}

/* Every type in both roles, then mixtures of types, then long rows of several segments. */
static void test_linear(void **state) {
    (void)state;
    const type_case *t[LINEAR_OUT_MAX];
    for (int i = 0; i < N_TYPE; i++) {
        t[0] = t[1] = &g_types[i];
        for (int k = 0; k < 2; k++) case_linear(t, pick(1, 2), width_of(t[0], 700), random_n_row());
    }
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < LINEAR_OUT_MAX; k++) t[k] = &g_types[pick(0, N_TYPE - 1)];
        case_linear(t, pick(2, LINEAR_OUT_MAX), pick(1, 3) * 256, pick(1, 5));
    }
    for (int i = 0; i < 8; i++) {
        t[0] = &g_types[pick(0, N_TYPE - 1)];
        case_linear(t, 1, pick(1, 3) * 4096 + pick(0, 2) * 256, pick(1, 3));
    }
    t[0] = &g_types[N_TYPE - 2]; // f16: any width
    for (int i = 0; i < 4; i++) case_linear(t, 1, pick(1, 5000), pick(1, 9));
}

/* ---- experts ---------------------------------------------------------------------------------- */

static float random_scale(void) {
    return 0.1f + fabsf(test_randf(&g_seed));
}

/* Weights of n_expert experts as one stack; the record describes one. */
static weight_ref random_stack(const type_case *t, uint32_t n_expert, uint32_t n_row, uint32_t n_col) {
    weight_ref w = random_weight(t, n_expert * n_row, n_col);
    w.n_row = n_row;
    if (pick(0, 1)) {
        float *s = mir_floats(n_expert);
        for (uint32_t i = 0; i < n_expert; i++) s[i] = random_scale();
        w.scale = s;
    }
    return w;
}

static experts_args mir_experts(experts_args a) {
    MIR(a.y), MIR(a.ids), MIR(a.weights), MIR(a.gate.scale), MIR(a.up.scale), MIR(a.down.scale);
    a.a = mir_act(a.a);
    return a;
}

static size_t stack_bytes(const weight_ref *w) {
    return w->n_row * (size_t)gguf_row_bytes(gguf_type_get(w->type), w->n_col);
}

/* Some in slots, the others beside the card. */
static void place_experts(const dev_expert_shape *shape) {
    mica_error err;
    uint32_t n = shape->n_expert, n_slot = pick(0, 2) ? pick(0, n) : n;
    dev_expert_slabs s = {.n_slab = 1, .n_layer = shape->layer + 1, .n_slot = {n_slot}};
    dev_expert_move m[32];
    s.blob_bytes[0] = dev_expert_room(shape->gate_bytes) + dev_expert_room(shape->up_bytes) +
                      dev_expert_room(shape->down_bytes);
    s.ram = (dev_expert_ram)pick(EXPERT_RAM_ALL, EXPERT_RAM_MMAP);
    CHECK(n <= 32 && n_slot <= n);
    CHECK_OK(dev_experts_take(g_dev, &s, &err));
    for (uint32_t i = 0; i < n_slot; i++)
        m[i] = (dev_expert_move){shape->layer, n - 1 - i, EXPERT_NOBODY, 0, 0, i};
    CHECK_OK(dev_experts_fill(g_dev, m, n_slot, &err));
}

/* The stacks as the source of a layer of its own, on a device of its own too. */
static void experts_are(experts_args *a) {
    mica_error err;
    dev_expert_shape s = {g_source.shape.layer + 1, a->n_expert, stack_bytes(&a->gate), stack_bytes(&a->up),
                          stack_bytes(&a->down)};
    g_source.shape = s;
    g_source.gate = a->gate.w;
    g_source.up = a->up.w;
    g_source.down = a->down.w;
    a->gate.w = a->up.w = a->down.w = NULL;
    a->layer = s.layer;
    dev_close(g_dev);
    open_card();
    CHECK_OK(dev_experts_bind(g_dev, &s, &err));
    place_experts(&s);
}

static void case_experts(void) {
    static const uint32_t widths[] = {256, 512};
    const type_case *tg = &g_types[pick(0, N_TYPE - 1)],
                    *tu = pick(0, 2) ? tg : &g_types[pick(0, N_TYPE - 1)],
                    *td = &g_types[pick(0, N_TYPE - 1)];
    uint32_t n_embd = pick_of(widths, 2), n_ff = pick_of(widths, 2), n_expert = pick(1, 20);
    uint32_t n_used = pick(1, n_expert < 6 ? n_expert : 6), n_row = pick(0, 2) ? pick(1, 6) : pick(20, 40);
    experts_args a = {.a = random_act(n_row, n_embd), .n_row = n_row, .n_expert = n_expert, .n_used = n_used};
    a.n_prompt = pick(0, 1) ? pick(0, n_row) : 0;
    a.kind = pick(0, 1) ? GLU_SILU : GLU_GELU;
    a.add = pick(0, 1);
    a.gate = random_stack(tg, n_expert, n_ff, n_embd);
    a.up = random_stack(tu, n_expert, n_ff, n_embd);
    a.down = random_stack(td, n_expert, n_embd, n_ff);
    experts_are(&a);
    int32_t *ids = mir((size_t)n_row * n_used * sizeof *ids);
    for (uint32_t ir = 0; ir < n_row; ir++) {
        uint32_t start = pick(0, n_expert - 1), step = pick(0, 3) ? 1 : n_expert - 1; // distinct
        for (uint32_t k = 0; k < n_used; k++) ids[ir * n_used + k] = (int32_t)((start + k * step) % n_expert);
    }
    a.ids = ids;
    a.weights = random_floats((size_t)n_row * n_used, 1.0f);
    a.y = random_floats((size_t)n_row * n_embd, 1.0f);
    RUN(experts, gguf_type_get(tg->type)->name, b = mir_experts(b));
}

static void test_experts(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) case_experts();
}

/* ---- the cache and attention ------------------------------------------------------------------ */

/* Sequences with their pages anywhere; what no sequence has written is NaN (or, for int8, has a NaN scale).
 */
typedef struct cache {
    kv_layer kv;
    kv_pages pages;
    uint32_t n_seq, n_slot, n_head_kv, d_k, d_v;
} cache;

static size_t kv_width(kv_type t) {
    return t == KV_F32 ? 4 : t == KV_F16 ? 2 : 1;
}

static void *spoiled(size_t n, kv_type type) {
    void *p = mir(n * kv_width(type));
    for (size_t i = 0; i < n; i++) {
        if (type == KV_F32)
            ((float *)p)[i] = NAN;
        else if (type == KV_F16)
            ((uint16_t *)p)[i] = 0x7E01;
        else
            ((int8_t *)p)[i] = -128;
    }
    return p;
}

static cache new_cache(kv_type type, uint32_t n_seq, uint32_t n_slot, uint32_t n_head_kv,
                       const uint32_t d[2]) {
    cache c = {.n_seq = n_seq, .n_slot = n_slot, .n_head_kv = n_head_kv, .d_k = d[0], .d_v = d[1]};
    size_t n_vec = (size_t)(n_seq * n_slot + 1) * n_head_kv * KV_PAGE;
    c.kv = (kv_layer){.k = spoiled(n_vec * d[0], type), .v = spoiled(n_vec * d[1], type), .type = type};
    if (type == KV_I8) {
        c.kv.k_scale = spoiled(n_vec, KV_F32);
        c.kv.v_scale = spoiled(n_vec, KV_F32);
    }
    int32_t *table = mir((size_t)n_seq * n_slot * sizeof *table);
    for (uint32_t i = 0; i < n_seq * n_slot; i++) { // a shuffle as it goes
        uint32_t j = pick(0, i);
        table[i] = table[j];
        table[j] = (int32_t)i + 1;
    }
    c.pages = (kv_pages){table, n_slot};
    return c;
}

static void put(void *p, size_t i, kv_type type, float x) {
    if (type == KV_F32)
        ((float *)p)[i] = x;
    else if (type == KV_F16)
        ((uint16_t *)p)[i] = f32_to_f16(x);
    else
        ((int8_t *)p)[i] = (int8_t)(x * 127.0f);
}

static void fill_position(cache *c, uint32_t seq, uint32_t pos) {
    uint32_t page = (uint32_t)c->pages.table[seq * c->n_slot + pos / KV_PAGE % c->n_slot];
    for (uint32_t ih = 0; ih < c->n_head_kv; ih++) {
        size_t at = ((size_t)page * c->n_head_kv + ih) * KV_PAGE + pos % KV_PAGE;
        for (uint32_t i = 0; i < c->d_k; i++) put(c->kv.k, at * c->d_k + i, c->kv.type, test_randf(&g_seed));
        for (uint32_t i = 0; i < c->d_v; i++) put(c->kv.v, at * c->d_v + i, c->kv.type, test_randf(&g_seed));
        if (c->kv.type != KV_I8) continue;
        c->kv.k_scale[at] = random_scale() / 127.0f;
        c->kv.v_scale[at] = random_scale() / 127.0f;
    }
}

/* Runs of neighbouring positions of random sequences, ending at or before `last`. Returns how many rows. */
static uint32_t random_rows(row_info *rows, uint32_t most, uint32_t n_seq, uint32_t last) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < n_seq && n < most; s++) {
        uint32_t len = pick(0, 2) ? pick(1, 4) : pick(1, most - n);
        len = len > most - n ? most - n : len;
        len = len > last + 1 ? last + 1 : len;
        uint32_t end = pick(len - 1, last);
        for (uint32_t i = 0; i < len; i++)
            rows[n++] = (row_info){0, (int32_t)s, (int32_t)(end - len + 1 + i), -1};
    }
    return n;
}

/* Fills what the rows may see: everything up to their position, or the window's reach of a ring. */
static void fill_visible(cache *c, const row_info *rows, uint32_t n_row, uint32_t window) {
    for (uint32_t i = 0; i < n_row; i++) {
        bool first = i == 0 || rows[i - 1].seq != rows[i].seq;
        int32_t from = first ? 0 : rows[i].pos;
        if (first && window && rows[i].pos >= (int32_t)window) from = rows[i].pos - (int32_t)window + 1;
        for (int32_t p = from; p <= rows[i].pos; p++) fill_position(c, (uint32_t)rows[i].seq, (uint32_t)p);
    }
}

/* Selected positions of each row: runs and single ones, ascending, the last of them the row's own. */
static int32_t *random_sel(const row_info *rows, uint32_t n_row, uint32_t ld) {
    int32_t *sel = mir((size_t)n_row * ld * sizeof *sel);
    for (uint32_t ir = 0; ir < n_row; ir++) {
        int32_t *s = sel + (size_t)ir * ld, n = 0;
        uint32_t keep = pick(1, 8);
        for (int32_t p = 0; p < rows[ir].pos && n + 2 < (int32_t)ld; p++) {
            if (pick(0, 8) < keep && !(p / KV_PAGE == 1 && keep < 4)) s[1 + n++] = p; // or without block 1
        }
        s[1 + n++] = rows[ir].pos;
        s[0] = pick(0, 4) ? n : -1;
    }
    return sel;
}

typedef struct attn_shape {
    uint32_t n_head_kv, n_share, d[2], n_seq, most_rows, last, window, n_slot;
    kv_type type;
    bool select;
} attn_shape;

static attn_args mir_attn(attn_args a) {
    a.o = mir_act(a.o);
    MIR(a.q), MIR(a.gate), MIR(a.kv.k), MIR(a.kv.v), MIR(a.kv.k_scale), MIR(a.kv.v_scale), MIR(a.pages.table);
    MIR(a.rows), MIR(a.sel);
    return a;
}

static void check_attn(const attn_shape *s) {
    cache c = new_cache(s->type, s->n_seq, s->n_slot, s->n_head_kv, s->d);
    row_info *rows = mir(s->most_rows * sizeof *rows);
    uint32_t n_row = random_rows(rows, s->most_rows, s->n_seq, s->last), n_head = s->n_head_kv * s->n_share;
    fill_visible(&c, rows, n_row, s->window);
    bool gated = pick(0, 1);
    attn_args a = {.kv = c.kv, .pages = c.pages, .rows = rows, .n_row = n_row, .n_head = n_head};
    a.n_head_kv = s->n_head_kv;
    a.d_k = s->d[0];
    a.d_v = s->d[1];
    a.window = s->window;
    a.want_q = n_head * a.d_v % 32 == 0 && pick(0, 3);
    a.head_ld_q = a.d_k + (gated ? a.d_v : pick(0, 3));
    a.ld_q = n_head * a.head_ld_q + pick(0, 5);
    float *q = random_floats((size_t)n_row * a.ld_q, pick(0, 2) ? 2.0f : 300.0f); // exp down to 0, too
    a.q = q;
    if (gated) a.gate = q + a.d_k;
    a.scale = 1.0f / sqrtf((float)a.d_k);
    a.ld_sel = 700;
    if (s->select) a.sel = random_sel(rows, n_row, a.ld_sel);
    a.o = new_act(n_row, n_head * a.d_v);
    RUN(attn, "attention", b = mir_attn(b));
}

static void case_attn(void) {
    static const uint32_t dims[] = {64, 80, 128, 256, 512, 100, 24};
    attn_shape s = {
        .n_head_kv = pick(1, 3), .n_share = pick(1, 8), .n_seq = pick(1, 3), .type = (kv_type)pick(0, 2)};
    s.d[0] = dims[pick(0, 9) % 7];
    s.d[1] = pick(0, 3) ? s.d[0] : dims[pick(0, 6)];
    s.most_rows = pick(s.n_seq, 6);
    s.last = pick(0, 1) ? pick(0, 600) : pick(0, 60);
    s.select = pick(0, 3) == 0;
    if (!s.select && pick(0, 2) == 0) s.window = pick(1, 300);
    s.n_slot = s.window ? (s.window + s.most_rows) / KV_PAGE + 2 : s.last / KV_PAGE + pick(1, 2);
    check_attn(&s);
}

/* Random shapes; then depth by parts, and many rows, which walk the blocks. */
static void test_attention(void **state) {
    (void)state;
    static const attn_shape shapes[] = {
        {3, 3, {64, 64}, 1, 1, 1500, 0, 6, KV_F16, false},
        {1, 1, {128, 128}, 1, 1, 1500, 0, 6, KV_I8, false},
        {1, 9, {64, 64}, 1, 2, 900, 512, 4, KV_F16, false},
        {1, 4, {64, 64}, 1, 1, 1500, 0, 6, KV_F32, true},
        {2, 2, {32, 32}, 2, 40, 500, 0, 2, KV_I8, false},
        {2, 3, {64, 64}, 1, 30, 600, 0, 3, KV_F16, true},
    };
    for (int i = 0; i < 14; i++) case_attn();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_attn(&shapes[i]);
}

static rope_kv_args mir_rope_kv(rope_kv_args a) {
    MIR(a.q), MIR(a.k), MIR(a.v), MIR(a.kv.k), MIR(a.kv.v), MIR(a.kv.k_scale), MIR(a.kv.v_scale);
    MIR(a.pages.table), MIR(a.rows), MIR(a.q_norm), MIR(a.k_norm), MIR(a.cs);
    return a;
}

static void case_rope_kv(void) {
    static const uint32_t dims[] = {64, 80, 128, 256, 100, 512};
    uint32_t d[2] = {pick_of(dims, 6), pick_of(dims, 6)}, n_head_kv = pick(1, 3), n_slot = pick(1, 2);
    if (pick(0, 1)) d[1] = d[0];
    cache c = new_cache((kv_type)pick(0, 2), 2, n_slot, n_head_kv, d);
    row_info *rows = mir(8 * sizeof *rows);
    rope_kv_args a = {
        .kv = c.kv, .pages = c.pages, .rows = rows, .d_k = d[0], .d_v = d[1], .n_head_kv = n_head_kv};
    a.eps = 1e-6f;
    a.n_row = random_rows(rows, 8, 2, n_slot * KV_PAGE - 1);
    a.n_head = n_head_kv * pick(1, 5);
    a.n_rot = pick(0, 1) ? d[0] : pick(1, d[0] / 2) * 2;
    a.rope = pick(0, 1) ? ROPE_NORM : ROPE_NEOX;
    a.v_norm = pick(0, 1);
    a.head_ld_q = d[0] + pick(0, 9);
    a.ld_q = a.n_head * a.head_ld_q + pick(0, 3);
    a.ld_kv = n_head_kv * (d[0] > d[1] ? d[0] : d[1]) + pick(0, 3);
    size_t nk = (size_t)a.n_row * a.ld_kv;
    a.q = wild_floats((size_t)a.n_row * a.ld_q);
    if (pick(0, 5) > 0) {
        a.k = wild_floats(nk);
        a.v = wild_floats(nk);
        for (uint32_t i = 0; i < nk && c.kv.type == KV_F16; i += 7) a.v[i] *= 1e6f; // beyond f16: clamped
    }
    float *w = random_floats(2 * d[0], 1.5f);
    if (pick(0, 1)) a.q_norm = w;
    if (pick(0, 1)) a.k_norm = w + d[0];
    a.cs = random_floats((size_t)a.n_row * a.n_rot, 1.0f);
    mir_scratch(a.k);
    mir_scratch(a.v);
    RUN(rope_kv, "rope_kv", b = mir_rope_kv(b));
}

static void test_rope_kv(void **state) {
    (void)state;
    for (int i = 0; i < 14; i++) case_rope_kv();
}

/* ---- recurrent mixers ------------------------------------------------------------------------- */

/* Runs of neighbouring positions, one a sequence; some are windows of drafts, some first apply logged rows.
 */
static uint32_t random_runs(row_run *runs, row_info *rows, uint32_t most, uint32_t n_seq) {
    uint32_t n = 0, n_run = 0;
    for (uint32_t s = 0; s < n_seq && n < most; s++) {
        uint32_t len = pick(0, 2) ? pick(1, 8) : pick(1, most - n),
                 pos = pick(0, 2) ? pick(0, 500) : pick(0, 4);
        len = len > most - n ? most - n : len;
        row_run *r = &runs[n_run++];
        *r = (row_run){
            .row0 = n, .n_row = len, .seq = (int32_t)s, .n_commit = pick(0, 1) ? pick(0, WINDOW_MAX) : 0};
        r->window = len <= WINDOW_MAX && pick(0, 1);
        r->bank = pick(0, 1);
        for (uint32_t i = 0; i < len; i++) rows[n++] = (row_info){0, (int32_t)s, (int32_t)(pos + i), -1};
    }
    return n_run;
}

static uint32_t run_rows_sum(const row_run *runs, uint32_t n_run) {
    return runs[n_run - 1].row0 + runs[n_run - 1].n_row;
}

static void case_conv(void) {
    row_run *runs = mir(4 * sizeof *runs);
    row_info *rows = mir(40 * sizeof *rows);
    conv_args a = {.runs = runs, .rows = rows, .n_col = pick(1, 600), .n_tap = pick(0, 3) ? 4 : pick(1, 6)};
    a.step = a.n_tap <= 4 ? pick(1, 3) : 1;
    a.n_run = random_runs(runs, rows, 40, 4);
    a.n_row = run_rows_sum(runs, a.n_run);
    a.ld_seq = (uint64_t)CONV_RING * a.n_col + pick(0, 9);
    a.u = random_floats((size_t)a.n_row * a.n_col, 2.0f);
    a.w = random_floats((size_t)a.n_col * a.n_tap, 1.0f);
    a.y = mir_floats((size_t)a.n_row * a.n_col);
    a.ring = random_floats((size_t)(4 * a.ld_seq), 2.0f);
    RUN(conv, "conv", (MIR(b.y), MIR(b.u), MIR(b.w), MIR(b.ring), MIR(b.runs), MIR(b.rows)));
}

static delta_args mir_delta(delta_args a) {
    MIR(a.o), MIR(a.qkv), MIR(a.alpha), MIR(a.beta), MIR(a.a), MIR(a.dt_bias), MIR(a.state), MIR(a.runs);
    return a;
}

static void case_delta(void) {
    static const uint32_t dims[] = {128, 64, 32, 16, 256, 37, 24};
    row_run *runs = mir(3 * sizeof *runs);
    row_info *rows = mir(30 * sizeof *rows);
    delta_args a = {.runs = runs, .n_k = pick(1, 3), .d_k = pick_of(dims, 5), .d_v = pick_of(dims, 7)};
    a.n_v = a.n_k * pick(1, 3);
    a.n_run = random_runs(runs, rows, pick(0, 3) ? 12 : 30, 3);
    a.n_row = run_rows_sum(runs, a.n_run);
    a.ld_seq = delta_state_floats(a.n_k, a.n_v, a.d_k, a.d_v) + pick(0, 5);
    // Small ones too: there the norm's 1e-6 counts.
    a.qkv = random_floats((size_t)a.n_row * (2 * a.n_k * a.d_k + a.n_v * a.d_v), pick(0, 1) ? 2.0f : 1e-3f);
    a.state = random_floats((size_t)(3 * a.ld_seq), 0.5f);
    a.o = mir_floats((size_t)a.n_row * a.n_v * a.d_v);
    float *decay = random_floats(a.n_v, 1.0f);
    for (uint32_t i = 0; i < a.n_v; i++) decay[i] = -fabsf(decay[i]);
    a.a = decay;
    a.dt_bias = random_floats(a.n_v, 1.0f);
    a.alpha = random_floats((size_t)a.n_row * a.n_v, 3.0f);
    a.beta = random_floats((size_t)a.n_row * a.n_v, 3.0f);
    RUN(delta, "delta", b = mir_delta(b));
}

static void test_recurrent(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        case_conv();
        case_delta();
    }
}

int main(void) {
    const char *seed = getenv("MICA_TEST_SEED"), *card = getenv("MICA_TEST_DEVICE");
    const char *const cards[] = {card ? card : "sim:32", "sim:64"};
    g_seed = seed ? strtoull(seed, NULL, 0) : 0x9E3779B97F4A7C15ull;
    printf("seed 0x%llx\n", (unsigned long long)g_seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),     cmocka_unit_test(test_rows),      cmocka_unit_test(test_linear),
        cmocka_unit_test(test_experts),   cmocka_unit_test(test_attention), cmocka_unit_test(test_rope_kv),
        cmocka_unit_test(test_recurrent),
    };
    int n_failed = 0;
    for (int i = 0; i < (card ? 1 : 2); i++) {
        g_card = cards[i];
        g_source.shape.layer = 0;
        n_failed += cmocka_run_group_tests_name(cards[i], tests, open_all, close_all);
    }
    return n_failed;
}
