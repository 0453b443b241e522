/* The fast CPU device against the definition: every operation, every instruction set this processor has,
 * several numbers of threads, random ragged shapes; outputs bit for bit with guard words around them. What
 * neither may read is NaN. */
#include "dev_check.h"

#include "base/half.h"
#include "base/mem.h"

/* ---- loops over rows -------------------------------------------------------------------------- */

static void case_embed(void) {
    static const uint32_t cols[] = {1, 37, 256, 512, 1536};
    mica_error err;
    uint32_t n_col = pick_of(cols, 5), n_row = pick(1, 40), n_vocab = 50;
    row_info *rows = buf(n_row * sizeof *rows);
    for (uint32_t i = 0; i < n_row; i++) rows[i].tok = (int32_t)pick(0, n_vocab - 1);
    weight_ref t = random_weight(n_vocab, n_col);
    float *y = floats((size_t)n_row * n_col), *z = floats((size_t)n_row * n_col);
    embed_args a = {y, t, rows, n_row, pick(0, 1) ? 1.0f : 22.627417f};
    CHECK_OK(dev_embed(g_ref, &a, &err));
    a.x = z;
    EACH_DEV {
        memset(z, 0xFF, (size_t)n_row * n_col * sizeof(float));
        CHECK_OK(dev_embed(g_dev[id], &a, &err));
        CHECK(same("embed", y, z, (size_t)n_row * n_col));
    }
}

static void case_norm(void) {
    static const uint32_t cols[] = {32, 64, 96, 576, 800, 1600};
    mica_error err;
    bool want_q = pick(0, 3) > 0;
    uint32_t n_col = want_q ? pick_of(cols, 6) : pick(1, 700), n_row = pick(1, 60), ld_x = n_col + pick(0, 9);
    float *x = wild_floats((size_t)n_row * ld_x), *w = random_floats(n_col, 2.0f);
    int32_t *from = buf(n_row * sizeof *from);
    for (uint32_t i = 0; i < n_row; i++) from[i] = (int32_t)pick(0, n_row - 1);
    quant_act y = new_act(n_row, n_col), z = new_act(n_row, n_col);
    norm_args a = {y, x, pick(0, 3) ? w : NULL, pick(0, 1) ? from : NULL, ld_x, n_row, n_col, 1e-5f, want_q};
    CHECK_OK(dev_norm(g_ref, &a, &err));
    a.y = z;
    EACH_DEV {
        memset(z.x, 0, (size_t)n_row * z.ld * sizeof(float));
        memset(z.q, 0, (size_t)n_row * z.ld);
        CHECK_OK(dev_norm(g_dev[id], &a, &err));
        CHECK(same_act("norm", &y, &z, n_row, want_q));
        CHECK_OK(dev_sync(g_dev[id], &err));
    }
}

static void case_add_norm(void) {
    mica_error err;
    uint32_t n_col = pick(1, 1600), n_row = pick(1, 30);
    size_t n = (size_t)n_row * n_col;
    float *x = wild_floats(n), *y = wild_floats(n), *w = random_floats(n_col, 1.0f), *r = floats(n),
          *z = floats(n);
    memcpy(r, x, n * sizeof(float));
    add_norm_args a = {r, y, w, n_row, n_col, 1e-6f};
    CHECK_OK(dev_add_norm(g_ref, &a, &err));
    a.x = z;
    EACH_DEV {
        memcpy(z, x, n * sizeof(float));
        CHECK_OK(dev_add_norm(g_dev[id], &a, &err));
        CHECK(same("add_norm", r, z, n));
    }
}

static void case_glu(void) {
    mica_error err;
    bool want_q = pick(0, 1);
    uint32_t n_col = want_q ? pick(1, 50) * 32 : pick(1, 1600), n_row = pick(1, 30), ld = n_col + pick(0, 5);
    float *g = wild_floats((size_t)n_row * ld), *u = wild_floats((size_t)n_row * ld);
    quant_act y = new_act(n_row, n_col), z = new_act(n_row, n_col);
    glu_args a = {y, g, u, ld, n_row, n_col, pick(0, 1) ? GLU_SILU : GLU_GELU, want_q};
    CHECK_OK(dev_glu(g_ref, &a, &err));
    a.h = z;
    EACH_DEV {
        memset(z.x, 0, (size_t)n_row * z.ld * sizeof(float));
        CHECK_OK(dev_glu(g_dev[id], &a, &err));
        CHECK(same_act("glu", &y, &z, n_row, want_q));
    }
}

/* Every kind of float once: the vector forms of exactf, softcap's tanh among them. */
static void test_elementary_sweep(void **state) {
    (void)state;
    mica_error err;
    enum { N = 1 << 16 };
    float *x = floats(N), *one = floats(N);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = bits_f32(i << 16 | pick(0, 65535));
        if (isnan(x[i])) x[i] = bits_f32(f32_bits(x[i]) & 0xFF800000u); // an infinity
        one[i] = 1.0f;
    }
    quant_act y = new_act(1, N), z = new_act(1, N);
    for (int k = 0; k < 2; k++) {
        glu_args a = {y, x, one, N, 1, N, k ? GLU_SILU : GLU_GELU, 0};
        CHECK_OK(dev_glu(g_ref, &a, &err));
        a.h = z;
        for (int id = 0; id < n_dev; id += N_THREADS) {
            CHECK_OK(dev_glu(g_dev[id], &a, &err));
            for (uint32_t i = 0; i < N; i++)
                CHECK(memcmp(y.x + i, z.x + i, 4) == 0 || (isnan(y.x[i]) && isnan(z.x[i])));
        }
    }
    for (int id = -1; id < n_dev; id += id < 0 ? 1 : N_THREADS) {
        float *v = id < 0 ? y.x : z.x;
        memcpy(v, x, N * sizeof(float));
        CHECK_OK(dev_softcap(id < 0 ? g_ref : g_dev[id], &(softcap_args){v, N, 1.0f}, &err));
        CHECK(id < 0 || same("tanh", y.x, z.x, N));
    }
    bufs_done();
}

static void case_values(void) {
    mica_error err;
    size_t n = pick(1, 50000);
    float *x = wild_floats(n), *s = random_floats(1, 3.0f), *r = floats(n), *z = floats(n);
    memcpy(r, x, n * sizeof(float));
    softcap_args c = {r, n, 30.0f};
    scale_args m = {r, s, n};
    CHECK_OK(dev_softcap(g_ref, &c, &err));
    CHECK_OK(dev_scale(g_ref, &m, &err));
    c.y = m.x = z;
    EACH_DEV {
        memcpy(z, x, n * sizeof(float));
        CHECK_OK(dev_softcap(g_dev[id], &c, &err));
        CHECK_OK(dev_scale(g_dev[id], &m, &err));
        CHECK(same("softcap, scale", r, z, n));
    }
}

static void case_router(void) {
    mica_error err;
    uint32_t n_expert = pick(1, 24), n_used = pick(1, n_expert < 6 ? n_expert : 6), n_row = pick(1, 40),
             n = n_row * n_used;
    float *l = random_floats((size_t)n_row * n_expert, 5.0f), *w = floats(n), *w2 = floats(n);
    for (uint32_t i = 0; i < n_row * n_expert; i++) l[i] = pick(0, 1) ? l[i] : rintf(l[i]); // ties
    int32_t *ids = buf(n * sizeof *ids), *ids2 = buf(n * sizeof *ids);
    router_args a = {ids, w, l, n_row, n_expert, n_used, pick(0, 1) ? 2.5f : 0.0f};
    CHECK_OK(dev_router(g_ref, &a, &err));
    a.ids = ids2;
    a.weights = w2;
    EACH_DEV {
        CHECK_OK(dev_router(g_dev[id], &a, &err));
        CHECK(memcmp(ids, ids2, n * sizeof *ids) == 0 && same("router", w, w2, n));
    }
}

static void case_rope_table(void) {
    mica_error err;
    uint32_t n_row = pick(1, 70), n_pair = pick(1, 64);
    row_info *rows = buf(n_row * sizeof *rows);
    double *inv = buf(n_pair * sizeof *inv);
    for (uint32_t i = 0; i < n_row; i++) rows[i].pos = (int32_t)pick(0, 200000);
    for (uint32_t i = 0; i < n_pair; i++) inv[i] = pow(10000.0, -2.0 * i / (2.0 * n_pair));
    float *y = floats((size_t)n_row * n_pair * 2), *z = floats((size_t)n_row * n_pair * 2);
    rope_table_args a = {y, inv, rows, n_row, n_pair, pick(0, 1) ? 1.0f : 1.13f};
    CHECK_OK(dev_rope_table(g_ref, &a, &err));
    a.cs = z;
    EACH_DEV {
        CHECK_OK(dev_rope_table(g_dev[id], &a, &err));
        CHECK(same("rope_table", y, z, (size_t)n_row * n_pair * 2));
    }
}

static void test_rows(void **state) {
    (void)state;
    repeat(case_embed, 12);
    repeat(case_norm, 30);
    repeat(case_add_norm, 20);
    repeat(case_glu, 30);
    repeat(case_values, 8);
    repeat(case_router, 20);
    repeat(case_rope_table, 8);
}

/* ---- products --------------------------------------------------------------------------------- */

static void case_linear(void) {
    static const uint32_t cols[] = {256, 512, 96, 64, 37, 768};
    mica_error err;
    uint32_t n_col = pick_of(cols, 6), n_row = pick(0, 3) ? pick(1, 12) : pick(60, 100);
    linear_args a = {.a = random_act(n_row, n_col), .n_out = pick(1, 4), .n_row = n_row};
    a.n_prompt = pick(0, 2) ? pick(0, n_row) : 0;
    float *was[4], *y[4], *z[4];
    for (uint32_t k = 0; k < a.n_out; k++) {
        linear_out *o = &a.out[k];
        o->w = random_weight(pick(0, 3) ? pick(1, 80) : pick(80, 400), n_col);
        o->ld_y = o->w.n_row + pick(0, 7);
        o->add = pick(0, 1);
        if (pick(0, 2) == 0) o->w.bias = random_floats(o->w.n_row, 2.0f);
        if (pick(0, 2) == 0) o->w.scale = random_floats(1, 2.0f);
        was[k] = random_floats((size_t)n_row * o->ld_y, 5.0f);
        y[k] = o->y = floats((size_t)n_row * o->ld_y);
        z[k] = floats((size_t)n_row * o->ld_y);
        memcpy(y[k], was[k], (size_t)n_row * o->ld_y * sizeof(float));
    }
    CHECK_OK(dev_linear(g_ref, &a, &err));
    EACH_DEV {
        for (uint32_t k = 0; k < a.n_out; k++) {
            a.out[k].y = z[k];
            memcpy(z[k], was[k], (size_t)n_row * a.out[k].ld_y * sizeof(float));
        }
        CHECK_OK(dev_linear(g_dev[id], &a, &err));
        for (uint32_t k = 0; k < a.n_out; k++)
            CHECK(same("linear", y[k], z[k], (size_t)n_row * a.out[k].ld_y));
    }
}

static void test_linear(void **state) {
    (void)state;
    repeat(case_linear, 16);
}

static float random_scale(void) {
    return 0.1f + fabsf(test_randf(&g_seed));
}

static void case_experts(void) {
    static const uint32_t embd[] = {64, 256}, ff[] = {64, 96, 256};
    mica_error err;
    uint32_t n_expert = pick(1, 24), n_used = pick(1, n_expert < 6 ? n_expert : 6),
             n_row = pick(0, 3) ? pick(1, 10) : pick(30, 60);
    uint32_t n_embd = pick_of(embd, 2), n_ff = pick_of(ff, 3);
    experts_args a = {
        .a = random_act(n_row, n_embd), .layer = 3, .n_row = n_row, .n_expert = n_expert, .n_used = n_used};
    a.n_prompt = pick(0, 1) ? pick(0, n_row) : 0;
    a.kind = pick(0, 1) ? GLU_SILU : GLU_GELU;
    a.add = pick(0, 1);
    weight_ref g = random_weight(n_expert * n_ff, n_embd), d = random_weight(n_expert * n_embd, n_ff), u = g;
    u.w = weights((gguf_type)g.type, u.n_row, u.n_col);
    g_source.gate = g.w;
    g_source.up = u.w;
    g_source.down = d.w;
    g.n_row = u.n_row = n_ff;
    d.n_row = n_embd;
    g_source.gate_bytes = n_ff * (size_t)gguf_row_bytes(gguf_type_get(g.type), n_embd);
    g_source.down_bytes = n_embd * (size_t)gguf_row_bytes(gguf_type_get(d.type), n_ff);
    g.w = u.w = d.w = NULL;
    float *scales = floats(3 * n_expert), *weight = random_floats((size_t)n_row * n_used, 1.0f);
    for (uint32_t i = 0; i < 3 * n_expert; i++) scales[i] = random_scale();
    if (pick(0, 1)) g.scale = scales;
    if (pick(0, 1)) u.scale = scales + n_expert;
    if (pick(0, 1)) d.scale = scales + 2 * n_expert;
    a.gate = g, a.up = u, a.down = d;
    int32_t *ids = buf((size_t)n_row * n_used * sizeof *ids);
    for (uint32_t ir = 0; ir < n_row; ir++) {
        uint32_t start = pick(0, n_expert - 1),
                 step = pick(0, 3) ? 1 : n_expert - 1; // distinct: neighbours on a ring
        for (uint32_t k = 0; k < n_used; k++) ids[ir * n_used + k] = (int32_t)((start + k * step) % n_expert);
    }
    a.ids = ids;
    a.weights = weight;
    size_t n = (size_t)n_row * n_embd;
    float *was = random_floats(n, 1.0f), *y = floats(n), *z = floats(n);
    memcpy(y, was, n * sizeof(float));
    g_source.n_max = 1;
    a.y = y;
    CHECK_OK(dev_experts(g_ref, &a, &err));
    a.y = z;
    EACH_DEV {
        g_source.n_max = pick(0, 1) ? 1000 : (int)pick(1, 3);
        memcpy(z, was, n * sizeof(float));
        CHECK_OK(dev_experts(g_dev[id], &a, &err));
        CHECK(g_source.n_held == 0);
        CHECK(same("experts", y, z, n));
    }
    // A source that fails for good: its error comes back, and every lease was paid back.
    g_source.n_acquired = 0;
    g_source.fail_at = pick(1, 3);
    mica_status st = dev_experts(g_dev[n_dev - 1], &a, &err);
    CHECK(g_source.n_held == 0 &&
          (st == MICA_E_IO || (st == MICA_OK && g_source.n_acquired < g_source.fail_at)));
    g_source.fail_at = 0;
}

static void test_experts(void **state) {
    (void)state;
    g_source.hinted = 0;
    repeat(case_experts, 8);
    CHECK(g_source.hinted > 0);
}

/* ---- the cache and attention ------------------------------------------------------------------ */

/* Sequences with their pages anywhere; what no sequence has written is NaN (or, for int8, has a NaN scale).
 */
typedef struct cache {
    kv_layer kv;
    kv_pages pages;
    uint32_t n_seq, n_slot, n_page, n_head_kv, d_k, d_v;
    size_t n_vec; // vectors of keys
} cache;

static size_t kv_width(kv_type t) {
    return t == KV_F32 ? 4 : t == KV_F16 ? 2 : 1;
}

static void spoil(void *p, size_t n, kv_type type) {
    for (size_t i = 0; i < n; i++) {
        if (type == KV_F32)
            ((float *)p)[i] = NAN;
        else if (type == KV_F16)
            ((uint16_t *)p)[i] = 0x7E01;
        else
            ((int8_t *)p)[i] = -128;
    }
}

static cache new_cache(kv_type type, uint32_t n_seq, uint32_t n_slot, uint32_t n_head_kv, uint32_t d_k,
                       uint32_t d_v) {
    cache c = {.n_seq = n_seq,
               .n_slot = n_slot,
               .n_page = n_seq * n_slot + 1,
               .n_head_kv = n_head_kv,
               .d_k = d_k,
               .d_v = d_v};
    c.n_vec = (size_t)c.n_page * n_head_kv * KV_PAGE;
    c.kv = (kv_layer){
        .k = buf(c.n_vec * d_k * kv_width(type)), .v = buf(c.n_vec * d_v * kv_width(type)), .type = type};
    spoil(c.kv.k, c.n_vec * d_k, type);
    spoil(c.kv.v, c.n_vec * d_v, type);
    if (type == KV_I8) {
        c.kv.k_scale = floats(c.n_vec);
        c.kv.v_scale = floats(c.n_vec);
        spoil(c.kv.k_scale, c.n_vec, KV_F32);
        spoil(c.kv.v_scale, c.n_vec, KV_F32);
    }
    int32_t *table = buf((size_t)n_seq * n_slot * sizeof *table);
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

/* A list of selected positions for some rows: runs and single ones, ascending, in the last of them the row's
 * own. */
static int32_t *random_sel(const row_info *rows, uint32_t n_row, uint32_t ld) {
    int32_t *sel = buf((size_t)n_row * ld * sizeof *sel);
    for (uint32_t ir = 0; ir < n_row; ir++) {
        int32_t *s = sel + (size_t)ir * ld, n = 0;
        uint32_t keep = pick(1, 8);
        for (int32_t p = 0; p < rows[ir].pos && n + 2 < (int32_t)ld; p++) {
            if (pick(0, 8) < keep) s[1 + n++] = p;
        }
        s[1 + n++] = rows[ir].pos;
        s[0] = pick(0, 4) ? n : -1;
    }
    return sel;
}

typedef struct attn_shape {
    uint32_t n_head_kv, n_share, d_k, d_v, n_seq, most_rows, last, window, n_slot;
    kv_type type;
    bool select;
} attn_shape;

static void check_attn(const attn_shape *s) {
    mica_error err;
    cache c = new_cache(s->type, s->n_seq, s->n_slot, s->n_head_kv, s->d_k, s->d_v);
    row_info *rows = buf(s->most_rows * sizeof *rows);
    uint32_t n_row = random_rows(rows, s->most_rows, s->n_seq, s->last), n_head = s->n_head_kv * s->n_share;
    fill_visible(&c, rows, n_row, s->window);
    bool gated = pick(0, 1), wants = n_head * s->d_v % 32 == 0 && pick(0, 3);
    attn_args a = {.kv = c.kv,
                   .pages = c.pages,
                   .rows = rows,
                   .n_row = n_row,
                   .n_head = n_head,
                   .n_head_kv = s->n_head_kv,
                   .d_k = s->d_k,
                   .d_v = s->d_v,
                   .window = s->window,
                   .want_q = wants};
    a.head_ld_q = s->d_k + (gated ? s->d_v : pick(0, 3));
    a.ld_q = n_head * a.head_ld_q + pick(0, 5);
    float *q = random_floats((size_t)n_row * a.ld_q, pick(0, 2) ? 2.0f : 300.0f); // exp down to 0, too
    a.q = q;
    if (gated) a.gate = q + s->d_k;
    a.scale = 1.0f / sqrtf((float)s->d_k);
    if (s->select) {
        a.ld_sel = 700;
        a.sel = random_sel(rows, n_row, a.ld_sel);
    }
    quant_act y = new_act(n_row, n_head * s->d_v), z = new_act(n_row, n_head * s->d_v);
    a.o = y;
    CHECK_OK(dev_attn(g_ref, &a, &err));
    CHECK(dev_sync(g_ref, &err) == MICA_OK);
    for (uint32_t i = 0; i < n_row * y.ld; i++) CHECK(y.x[i] - y.x[i] == 0.0f);
    a.o = z;
    EACH_DEV {
        memset(z.x, 0, (size_t)n_row * z.ld * sizeof(float));
        memset(z.q, 0, (size_t)n_row * z.ld);
        CHECK_OK(dev_attn(g_dev[id], &a, &err));
        CHECK_OK(dev_sync(g_dev[id], &err));
        if (!same_act(g_dev[id]->what, &y, &z, n_row, a.want_q)) {
            print_error("kv %u share %u d %u %u rows %u last %u window %u type %d\n", s->n_head_kv,
                        s->n_share, s->d_k, s->d_v, n_row, s->last, s->window, (int)s->type);
            CHECK(false);
        }
    }
}

static void case_attn(void) {
    static const uint32_t dims[] = {64, 80, 128, 256, 512, 100, 24};
    attn_shape s = {
        .n_head_kv = pick(1, 3), .n_share = pick(1, 8), .n_seq = pick(1, 3), .type = (kv_type)pick(0, 2)};
    s.d_k = dims[pick(0, 9) % 7];
    s.d_v = pick(0, 3) ? s.d_k : dims[pick(0, 6)];
    s.most_rows = pick(0, 1) ? pick(s.n_seq, 6) : pick(s.n_seq, s.d_k > 200 ? 12 : 40);
    s.last = pick(0, 1) ? pick(0, 600) : pick(0, 60);
    s.select = pick(0, 4) == 0;
    if (!s.select && pick(0, 2) == 0) s.window = pick(1, 300);
    s.n_slot = s.window ? (s.window + s.most_rows) / KV_PAGE + 2 : s.last / KV_PAGE + pick(1, 2);
    check_attn(&s);
}

static void test_attention(void **state) {
    (void)state;
    repeat(case_attn, 30);
}

/* Shapes of real models at depth: few heads (cut by blocks), one head, many heads of one key, long windows of
 * rows. */
static void test_attention_deep(void **state) {
    (void)state;
    static const attn_shape shapes[] = {
        {3, 3, 64, 64, 1, 1, 1500, 0, 6, KV_F16, false},
        {3, 3, 64, 64, 1, 1, 1400, 0, 6, KV_I8, false},
        {1, 1, 128, 128, 1, 1, 1500, 0, 6, KV_F32, false},
        {1, 23, 64, 64, 1, 3, 700, 0, 3, KV_F16, false},
        {1, 9, 256, 256, 1, 2, 900, 512, 4, KV_F16, false},
        {2, 4, 128, 128, 1, 40, 1100, 0, 5, KV_F16, false},
        {2, 2, 64, 64, 1, 130, 500, 0, 2, KV_I8, false},
        {1, 4, 64, 64, 1, 1, 1500, 0, 6, KV_F16, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_attn(&shapes[i]);
        bufs_done();
    }
}

static void case_rope_kv(void) {
    static const uint32_t dims[] = {64, 80, 128, 256, 100, 512};
    mica_error err;
    uint32_t d_k = pick_of(dims, 6), d_v = pick(0, 1) ? d_k : pick_of(dims, 6), n_head_kv = pick(1, 3),
             n_slot = pick(1, 3);
    cache c = new_cache((kv_type)pick(0, 2), 2, n_slot, n_head_kv, d_k, d_v);
    row_info *rows = buf(30 * sizeof *rows);
    rope_kv_args a = {.kv = c.kv,
                      .pages = c.pages,
                      .rows = rows,
                      .d_k = d_k,
                      .d_v = d_v,
                      .n_head_kv = n_head_kv,
                      .eps = 1e-6f};
    a.n_row = random_rows(rows, 30, 2, n_slot * KV_PAGE - 1);
    a.n_head = n_head_kv * pick(1, 5);
    a.n_rot = pick(0, 1) ? d_k : pick(1, d_k / 2) * 2;
    a.rope = pick(0, 1) ? ROPE_NORM : ROPE_NEOX;
    a.v_norm = pick(0, 1);
    a.head_ld_q = d_k + pick(0, 9);
    a.ld_q = a.n_head * a.head_ld_q + pick(0, 3);
    a.ld_kv = n_head_kv * (d_k > d_v ? d_k : d_v) + pick(0, 3);
    size_t nq = (size_t)a.n_row * a.ld_q, nk = (size_t)a.n_row * a.ld_kv;
    size_t kb = c.n_vec * d_k * kv_width(c.kv.type), vb = c.n_vec * d_v * kv_width(c.kv.type);
    float *q = wild_floats(nq), *k = wild_floats(nk), *v = wild_floats(nk),
          *cs = random_floats((size_t)a.n_row * a.n_rot, 1.0f);
    float *w = random_floats(2 * d_k, 1.5f), *work[3] = {floats(nq), floats(nk), floats(nk)};
    for (uint32_t i = 0; i < nk && c.kv.type == KV_F16; i += 7) v[i] *= 1e6f; // beyond f16: clamped
    bool has_k = pick(0, 5) > 0;
    if (pick(0, 1)) a.q_norm = w;
    if (pick(0, 1)) a.k_norm = w + d_k;
    a.cs = cs;
    a.q = work[0];
    a.k = has_k ? work[1] : NULL;
    a.v = has_k ? work[2] : NULL;
    float *want_q = floats(nq), *scales[2] = {floats(c.n_vec), floats(c.n_vec)};
    void *want_k = buf(kb), *want_v = buf(vb);
    for (int id = -1; id < n_dev; id++) {
        memcpy(work[0], q, nq * sizeof(float));
        memcpy(work[1], k, nk * sizeof(float));
        memcpy(work[2], v, nk * sizeof(float));
        if (id >= 0) spoil(c.kv.k, c.n_vec * d_k, c.kv.type);
        if (id >= 0) spoil(c.kv.v, c.n_vec * d_v, c.kv.type);
        CHECK_OK(dev_rope_kv(id < 0 ? g_ref : g_dev[id], &a, &err));
        CHECK_OK(dev_sync(id < 0 ? g_ref : g_dev[id], &err));
        if (id < 0) {
            memcpy(want_q, work[0], nq * sizeof(float));
            memcpy(want_k, c.kv.k, kb);
            memcpy(want_v, c.kv.v, vb);
            if (c.kv.type == KV_I8) memcpy(scales[0], c.kv.k_scale, c.n_vec * sizeof(float));
            if (c.kv.type == KV_I8) memcpy(scales[1], c.kv.v_scale, c.n_vec * sizeof(float));
        }
        CHECK(same("query", want_q, work[0], nq));
        CHECK(memcmp(want_k, c.kv.k, kb) == 0 && memcmp(want_v, c.kv.v, vb) == 0);
        if (c.kv.type == KV_I8) CHECK(same("key scale", scales[0], c.kv.k_scale, c.n_vec));
        if (c.kv.type == KV_I8) CHECK(same("value scale", scales[1], c.kv.v_scale, c.n_vec));
    }
}

static void test_rope_kv(void **state) {
    (void)state;
    repeat(case_rope_kv, 20);
}

/* ---- recurrent mixers ----------------------------------------------------------------------- */

static void case_conv(void) {
    mica_error err;
    row_run *runs = buf(4 * sizeof *runs);
    row_info *rows = buf(60 * sizeof *rows);
    conv_args a = {.runs = runs, .rows = rows, .n_col = pick(1, 1300), .n_tap = pick(0, 3) ? 4 : pick(1, 6)};
    a.step = a.n_tap > 1 ? pick(1, 9 / (a.n_tap - 1)) : 1;
    a.n_run = random_runs(runs, rows, 60, 4);
    a.n_row = run_rows_sum(runs, a.n_run);
    a.ld_seq = (uint64_t)CONV_RING * a.n_col + pick(0, 9);
    size_t n = (size_t)a.n_row * a.n_col, n_ring = (size_t)(4 * a.ld_seq);
    float *u = random_floats(n, 2.0f), *w = random_floats((size_t)a.n_col * a.n_tap, 1.0f), *y = floats(n),
          *z = floats(n);
    float *was = random_floats(n_ring, 2.0f), *ring = floats(n_ring), *want = floats(n_ring);
    memcpy(want, was, n_ring * sizeof(float));
    a.u = u;
    a.w = w;
    a.y = y;
    a.ring = want;
    CHECK_OK(dev_conv(g_ref, &a, &err));
    a.y = z;
    a.ring = ring;
    EACH_DEV {
        memcpy(ring, was, n_ring * sizeof(float));
        CHECK_OK(dev_conv(g_dev[id], &a, &err));
        CHECK(same("conv", y, z, n) && same("conv ring", want, ring, n_ring));
    }
}

static void case_delta(void) {
    static const uint32_t dims[] = {128, 64, 32, 16, 24, 37};
    mica_error err;
    row_run *runs = buf(3 * sizeof *runs);
    row_info *rows = buf(100 * sizeof *rows);
    delta_args a = {.runs = runs, .n_k = pick(1, 3), .d_k = pick_of(dims, 6), .d_v = pick_of(dims, 6)};
    a.n_v = a.n_k * pick(1, 3);
    a.n_run = random_runs(runs, rows, pick(0, 3) ? 12 : 100, 3);
    a.n_row = run_rows_sum(runs, a.n_run);
    a.ld_seq = delta_state_floats(a.n_k, a.n_v, a.d_k, a.d_v) + pick(0, 5);
    size_t n_qkv = (size_t)a.n_row * (2 * a.n_k * a.d_k + a.n_v * a.d_v),
           n_o = (size_t)a.n_row * a.n_v * a.d_v;
    size_t n_state = (size_t)(3 * a.ld_seq);
    float *qkv = random_floats(n_qkv, 2.0f), *was = random_floats(n_state, 0.5f);
    float *want_qkv = floats(n_qkv), *got_qkv = floats(n_qkv), *want = floats(n_state),
          *got = floats(n_state);
    float *y = floats(n_o), *z = floats(n_o), *decay = random_floats(a.n_v, 1.0f);
    for (uint32_t i = 0; i < a.n_v; i++) decay[i] = -fabsf(decay[i]);
    a.a = decay;
    a.dt_bias = random_floats(a.n_v, 1.0f);
    a.alpha = random_floats((size_t)a.n_row * a.n_v, 3.0f);
    a.beta = random_floats((size_t)a.n_row * a.n_v, 3.0f);
    for (int id = -1; id < n_dev; id++) {
        a.qkv = id < 0 ? want_qkv : got_qkv;
        a.state = id < 0 ? want : got;
        a.o = id < 0 ? y : z;
        memcpy(a.qkv, qkv, n_qkv * sizeof(float));
        memcpy(a.state, was, n_state * sizeof(float));
        CHECK_OK(dev_delta(id < 0 ? g_ref : g_dev[id], &a, &err));
        CHECK(same("delta qkv", want_qkv, a.qkv, n_qkv) && same("delta state", want, a.state, n_state));
        CHECK(same("delta", y, a.o, n_o));
    }
}

static void case_gates(void) {
    mica_error err;
    bool want_q = pick(0, 1);
    uint32_t n_row = pick(1, 30), n_col = want_q ? pick(1, 5) * 32 : pick(1, 130), n_group = pick(1, 12);
    size_t n = (size_t)n_row * n_group * n_col;
    quant_act y = new_act(n_row, n_group * n_col), z = new_act(n_row, n_group * n_col);
    gate_norm_args a = {
        .o = wild_floats(n), .z = wild_floats(n), .w = random_floats(n_col, 2.0f), .n_row = n_row};
    a.n_group = n_group;
    a.n_col = n_col;
    a.eps = 1e-6f;
    a.sigmoid = pick(0, 1);
    a.want_q = want_q;
    gated_add_args g = {floats(n), a.o, random_floats(n_row, 4.0f), n_row, n_group * n_col};
    float *sum = g.y, *got = floats(n);
    memcpy(sum, a.z, n * sizeof(float));
    a.y = y;
    CHECK_OK(dev_gate_norm(g_ref, &a, &err));
    CHECK_OK(dev_gated_add(g_ref, &g, &err));
    a.y = z;
    g.y = got;
    EACH_DEV {
        memset(z.x, 0, (size_t)n_row * z.ld * sizeof(float));
        memset(z.q, 0, (size_t)n_row * z.ld);
        memcpy(got, a.z, n * sizeof(float));
        CHECK_OK(dev_gate_norm(g_dev[id], &a, &err));
        CHECK_OK(dev_gated_add(g_dev[id], &g, &err));
        CHECK(same_act("gate_norm", &y, &z, n_row, want_q) && same("gated_add", sum, got, n));
        if (!want_q) continue;
        memset(z.q, 0, (size_t)n_row * z.ld);
        CHECK_OK(dev_quantise(g_dev[id], &(quantise_args){z, n_row, n_group * n_col}, &err));
        CHECK(same_act("quantise", &y, &z, n_row, true));
    }
}

static void test_recurrent(void **state) {
    (void)state;
    repeat(case_conv, 15);
    repeat(case_delta, 15);
    repeat(case_gates, 15);
}

/* ---- what must not happen --------------------------------------------------------------------- */

/* Puts one value that is not finite where an operation reads it; sync must name the operation once, then be
 * clean. */
static void expect_bad(dev *d, const char *what) {
    mica_error err;
    CHECK(dev_sync(d, &err) == MICA_E_DEVICE);
    if (!strstr(err.text, what)) print_error("%s: %s\n", what, err.text);
    CHECK(strstr(err.text, what) != NULL);
    CHECK_OK(dev_sync(d, &err));
}

static void check_bad(dev *d, float bad) {
    mica_error err;
    uint32_t n_row = pick(1, 40), n_col = pick(1, 20) * 32, at = pick(0, n_row * n_col - 1);
    float *x = random_floats((size_t)n_row * n_col, 1.0f), *u = random_floats((size_t)n_row * n_col, 1.0f);
    quant_act y = new_act(n_row, n_col);
    norm_args na = {y, x, NULL, NULL, n_col, n_row, n_col, 1e-5f, 1};
    CHECK_OK(dev_norm(d, &na, &err));
    CHECK_OK(dev_sync(d, &err));
    x[at] = bad;
    CHECK_OK(dev_norm(d, &na, &err));
    expect_bad(d, "norm");
    x[at] = fabsf(bad); // silu(-inf) is a number
    u[at] = 1.0f;
    glu_args ga = {y, x, u, n_col, n_row, n_col, GLU_SILU, 1};
    CHECK_OK(dev_glu(d, &ga, &err));
    expect_bad(d, "glu");

    int32_t ids[6];
    float logits[24], w[6];
    for (int i = 0; i < 24; i++) logits[i] = test_randf(&g_seed);
    logits[pick(0, 23)] = INFINITY;
    CHECK_OK(dev_router(d, &(router_args){ids, w, logits, 1, 24, 6, 0.0f}, &err));
    expect_bad(d, "router");
    for (int i = 0; i < 24; i++) logits[i] = bad;
    CHECK_OK(dev_router(d, &(router_args){ids, w, logits, 1, 24, 6, 0.0f}, &err));
    expect_bad(d, "router");
    for (int i = 0; i < 6; i++) CHECK(ids[i] == i); // in range and distinct even so
    bufs_done();
}

static void check_bad_rope(dev *d, float bad) {
    mica_error err;
    cache c = new_cache(KV_F16, 1, 1, 2, 64, 64);
    row_info rows[2] = {{0, 0, 0, -1}, {0, 0, 1, -1}};
    float *cs = random_floats(2 * 64, 1.0f), *q = random_floats(2 * 256, 1.0f),
          *k = random_floats(2 * 128, 1.0f);
    float *v = random_floats(2 * 128, 1.0f);
    rope_kv_args a = {.q = q,
                      .k = k,
                      .v = v,
                      .kv = c.kv,
                      .pages = c.pages,
                      .rows = rows,
                      .cs = cs,
                      .ld_q = 256,
                      .head_ld_q = 64,
                      .ld_kv = 128,
                      .n_row = 2,
                      .n_head = 4,
                      .n_head_kv = 2,
                      .d_k = 64,
                      .d_v = 64,
                      .n_rot = 64,
                      .rope = ROPE_NEOX,
                      .eps = 1e-5f};
    CHECK_OK(dev_rope_kv(d, &a, &err));
    CHECK_OK(dev_sync(d, &err));
    v[pick(0, 255)] = bad;
    CHECK_OK(dev_rope_kv(d, &a, &err));
    expect_bad(d, "key or value");
    for (int i = 0; i < 256; i++) v[i] = 0.0f;
    q[pick(0, 511)] = bad;
    CHECK_OK(dev_rope_kv(d, &a, &err));
    expect_bad(d, "query");
    bufs_done();
}

static void test_not_finite(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int id = -1; id < n_dev; id++) {
        for (int k = 0; k < 3; k++) check_bad(id < 0 ? g_ref : g_dev[id], bad[k]);
        for (int k = 0; k < 3; k++) check_bad_rope(id < 0 ? g_ref : g_dev[id], bad[k]);
    }
}

static void test_nothing_allocates(void **state) {
    (void)state;
    mica_error err;
    uint32_t n_row = 9;
    linear_args l = {.a = random_act(n_row, 256), .n_out = 1, .n_row = n_row, .n_prompt = 4};
    l.out[0].w =
        (weight_ref){.w = weights(GGUF_Q4_K, 200, 256), .type = GGUF_Q4_K, .n_row = 200, .n_col = 256};
    l.out[0].ld_y = 200;
    l.out[0].y = floats(n_row * 200);
    uint64_t before = mem_count();
    EACH_DEV CHECK_OK(dev_linear(g_dev[id], &l, &err));
    CHECK(mem_count() == before);
    bufs_done();
    before = mem_count();
    case_attn();
    CHECK(mem_count() == before);
    bufs_done();
    before = mem_count();
    case_experts();
    CHECK(mem_count() == before);
    bufs_done();
}

static void test_open_fails_cleanly(void **state) {
    (void)state;
    mica_error err;
    dev *d = g_ref;
    dev_config cfg = {.kind = DEV_CPU, .isa = CPU_AVX512, .n_thread = 2, .limits = g_limits};
    int n_fail = 0;
    for (int64_t n = 0; n < 8; n++) {
        mem_fail_after(n);
        mica_status st = dev_open(&d, &cfg, &err);
        mem_fail_after(-1);
        n_fail += st == MICA_E_NOMEM;
        CHECK((st == MICA_E_NOMEM && !d) || (st == MICA_OK && d));
        dev_close(d);
    }
    CHECK(n_fail >= 2);
    cfg.n_thread = 0;
    CHECK(dev_open(&d, &cfg, &err) == MICA_E_ARG && !d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_elementary_sweep),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_rope_kv),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_deep),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_nothing_allocates),
        cmocka_unit_test(test_open_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
