/* Residual streams, index keys, selected blocks and n-gram rows: every fast device against the definition,
 * bit for bit, and the definition of a selection and of n-gram rows against their words in
 * docs/ARITHMETIC.md. */
#include "dev_check.h"

#include "base/half.h"

/* ---- streams ------------------------------------------------------------------------------------ */

static void case_group_norm(void) {
    mica_error err;
    bool want_q = pick(0, 1);
    uint32_t n_col = want_q ? pick(1, 9) * 32 : pick(1, 300), n_group = pick(1, 5), n_row = pick(1, 30);
    uint32_t wide = n_group * n_col, ld_x = wide + pick(0, 9), ld_group = want_q ? n_col : n_col + pick(0, 5);
    float *x = wild_floats((size_t)n_row * ld_x), *w = random_floats(wide, 2.0f);
    int32_t *from = buf(n_row * sizeof *from);
    for (uint32_t i = 0; i < n_row; i++) from[i] = (int32_t)pick(0, n_row - 1);
    quant_act y = new_act(n_row, n_group * ld_group), z = new_act(n_row, n_group * ld_group);
    group_norm_args a = {.y = y, .x = x, .w = w, .row_of = pick(0, 1) ? from : NULL, .ld_x = ld_x};
    a.ld_group = ld_group;
    a.n_row = n_row;
    a.n_group = n_group;
    a.n_col = n_col;
    a.eps = 1e-6f;
    a.want_q = want_q;
    CHECK_OK(dev_group_norm(g_ref, &a, &err));
    a.y = z;
    EACH_DEV {
        memset(z.x, 0, (size_t)n_row * z.ld * sizeof(float));
        memset(z.q, 0, (size_t)n_row * z.ld);
        CHECK_OK(dev_group_norm(g_dev[id], &a, &err));
        CHECK(same_act("group_norm", &y, &z, n_row, want_q));
    }
}

static void case_silu(void) {
    mica_error err;
    bool want_q = pick(0, 1);
    uint32_t n_col = want_q ? pick(1, 40) * 32 : pick(1, 1300), n_row = pick(1, 30);
    quant_act y = new_act(n_row, n_col), z = new_act(n_row, n_col);
    silu_args a = {y, wild_floats((size_t)n_row * n_col), n_row, n_col, pick(0, 1) ? 4.0f : 3.0f, want_q};
    CHECK_OK(dev_silu(g_ref, &a, &err));
    a.h = z;
    EACH_DEV {
        memset(z.x, 0, (size_t)n_row * z.ld * sizeof(float));
        CHECK_OK(dev_silu(g_dev[id], &a, &err));
        CHECK(same_act("silu", &y, &z, n_row, want_q));
    }
}

static void case_spread(void) {
    mica_error err;
    uint32_t n_col = pick(1, 300), n_group = pick(1, 5), n_row = pick(1, 30), ld_y = n_col + pick(0, 5),
             ld_x = n_col + pick(0, 5);
    size_t n = (size_t)n_row * n_group * ld_x;
    float *y = random_floats((size_t)n_row * ld_y, 1.0f), *x = floats(n), *z = floats(n);
    int32_t *from = buf(n_row * sizeof *from);
    for (uint32_t i = 0; i < n_row; i++) from[i] = (int32_t)pick(0, n_row - 1);
    spread_args a = {x, y, pick(0, 1) ? from : NULL, ld_x, ld_y, n_row, n_group, n_col};
    CHECK_OK(dev_spread(g_ref, &a, &err));
    for (uint32_t r = 0; r < n_row; r++) {
        const float *want = y + (size_t)(a.row_of ? (uint32_t)from[r] : r) * ld_y;
        for (uint32_t g = 0; g < n_group; g++)
            CHECK(memcmp(x + ((size_t)r * n_group + g) * ld_x, want, n_col * sizeof(float)) == 0);
    }
    a.x = z;
    EACH_DEV {
        memset(z, 0, n * sizeof(float));
        CHECK_OK(dev_spread(g_dev[id], &a, &err));
        CHECK(same("spread", x, z, n));
    }
}

static void case_hyper(void) {
    mica_error err;
    bool want_q = pick(0, 1);
    uint32_t n_col = want_q ? pick(1, 20) * 32 : pick(1, 700), n_stream = pick(2, 5), n_row = pick(1, 20);
    uint32_t wide = n_stream * n_col, ld_xn = wide + pick(0, 9);
    size_t n = (size_t)n_row * wide;
    quant_act y = new_act(n_row, n_col), z = new_act(n_row, n_col);
    hyper_read_args a = {.m = y, .xn = wild_floats((size_t)n_row * ld_xn), .gate = wild_floats(n)};
    a.ld_xn = ld_xn;
    a.n_row = n_row;
    a.n_stream = n_stream;
    a.n_col = n_col;
    a.want_q = want_q;
    float *was = wild_floats(n), *x = floats(n), *got = floats(n);
    hyper_write_args w = {
        x, wild_floats((size_t)n_row * n_col), random_floats(n_row * n_stream, 9.0f), n_row, n_stream, n_col};
    add_args sum = {x, a.gate, w.y, (uint64_t)n_row * n_col};
    for (int id = -1; id < n_dev; id++) {
        dev *d = id < 0 ? g_ref : g_dev[id];
        a.m = id < 0 ? y : z;
        w.x = sum.x = id < 0 ? x : got;
        memset(a.m.x, 0, (size_t)n_row * z.ld * sizeof(float));
        memcpy(w.x, was, n * sizeof(float));
        CHECK_OK(dev_hyper_read(d, &a, &err));
        CHECK_OK(dev_hyper_write(d, &w, &err));
        CHECK_OK(dev_add(d, &sum, &err));
        if (id < 0) continue;
        CHECK(same_act("hyper_read", &y, &z, n_row, want_q) && same("hyper_write, add", x, got, n));
    }
}

static void test_streams(void **state) {
    (void)state;
    repeat(case_group_norm, 25);
    repeat(case_silu, 15);
    repeat(case_spread, 10);
    repeat(case_hyper, 25);
}

/* ---- index keys and selected blocks ------------------------------------------------------------- */

enum { N_SEQ = 4, N_SLOT = 4 };

static kv_pages random_pages(void) {
    int32_t *table = buf(N_SEQ * N_SLOT * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * N_SLOT; i++) { // a shuffle as it goes
        uint32_t j = pick(0, i);
        table[i] = table[j];
        table[j] = (int32_t)i;
    }
    return (kv_pages){table, N_SLOT};
}

static void case_index_keys(void) {
    mica_error err;
    row_run *runs = buf(N_SEQ * sizeof *runs);
    row_info *rows = buf(60 * sizeof *rows);
    index_keys_args a = {.runs = runs, .rows = rows, .pages = random_pages(), .eps = 1e-6f, .mscale = 1.0f};
    a.ratio = 1u << pick(0, 3);
    a.d = pick(0, 1) ? 64 : pick(2, 90);
    a.n_rot = pick(0, a.d / 2) * 2;
    a.n_run = random_runs(runs, rows, 60, N_SEQ);
    a.n_row = run_rows_sum(runs, a.n_run);
    a.ld_seq = (uint64_t)CONV_RING * a.d + pick(0, 9);
    size_t n_key = (size_t)N_SEQ * N_SLOT * (KV_PAGE / a.ratio) * a.d, n_ring = (size_t)(N_SEQ * a.ld_seq);
    double *inv = buf((a.n_rot / 2 + 1) * sizeof *inv);
    for (uint32_t i = 0; i < a.n_rot / 2; i++) inv[i] = pow(10000.0, -2.0 * i / a.n_rot);
    a.inv_freq = inv;
    a.k = wild_floats((size_t)a.n_row * a.d);
    a.w = random_floats(a.d, 2.0f);
    float *was = wild_floats(n_ring), *want = floats(n_key), *got = floats(n_key), *ring[2];
    ring[0] = floats(n_ring);
    ring[1] = floats(n_ring);
    for (int id = -1; id < n_dev; id++) {
        a.index = id < 0 ? want : got;
        a.ring = ring[id >= 0];
        memset(a.index, 0, n_key * sizeof(float));
        memcpy(a.ring, was, n_ring * sizeof(float));
        CHECK_OK(dev_index_keys(id < 0 ? g_ref : g_dev[id], &a, &err));
        CHECK_OK(dev_sync(id < 0 ? g_ref : g_dev[id], &err));
        CHECK(same("index keys", want, a.index, n_key) && same("index ring", ring[0], a.ring, n_ring));
    }
}

/* Of whole numbers: exact in any order. */
static float score_of(const index_select_args *a, uint32_t r, uint32_t block) {
    uint32_t n = KV_PAGE / a->ratio;
    int32_t page = a->pages.table[a->rows[r].seq * N_SLOT + (int32_t)(block / n)];
    const float *k = a->index + ((size_t)(uint32_t)page * n + block % n) * a->d;
    float score = 0;
    for (uint32_t ih = 0; ih < a->n_head; ih++) {
        float t = 0;
        for (uint32_t i = 0; i < a->d; i++) t += a->q[((size_t)r * a->n_head + ih) * a->d + i] * k[i];
        score += t > 0 ? t : 0;
    }
    return score;
}

/* The words of rule 14: every position that is listed belongs to the tail or to a block that fewer than
 * n_keep whole blocks beat, and all such are listed. */
static void check_selection(const index_select_args *a, uint32_t r) {
    const int32_t *sel = a->sel + (size_t)r * a->ld_sel;
    float score[N_SLOT * KV_PAGE];
    int32_t pos = a->rows[r].pos, n = 0;
    uint32_t n_block = ((uint32_t)pos + 1) / a->ratio;
    if ((uint32_t)pos + 1 < (a->n_keep + 1) * a->ratio) {
        CHECK(sel[0] == -1);
        return;
    }
    for (uint32_t b = 0; b < n_block; b++) score[b] = score_of(a, r, b);
    for (int32_t p = 0; p <= pos; p++) {
        uint32_t b = (uint32_t)p / a->ratio, n_better = 0;
        for (uint32_t i = 0; i < n_block && b < n_block; i++)
            n_better += score[i] > score[b] || (score[i] == score[b] && i < b);
        if (b < n_block && n_better >= a->n_keep) continue;
        CHECK(n < sel[0] && sel[1 + n] == p);
        n++;
    }
    CHECK(n == sel[0] && (uint32_t)n < a->ld_sel);
}

static void case_index_select(void) {
    mica_error err;
    row_run *runs = buf(N_SEQ * sizeof *runs);
    row_info *rows = buf(40 * sizeof *rows);
    index_select_args a = {.rows = rows, .pages = random_pages(), .n_head = pick(1, 5)};
    a.ratio = 1u << pick(0, 3);
    a.d = pick(0, 2) ? 64 : pick(1, 130);
    a.n_keep = pick(1, 40);
    uint32_t n_run = random_runs(runs, rows, pick(0, 1) ? 3 : 40, N_SEQ);
    a.n_row = run_rows_sum(runs, n_run);
    a.ld_sel = (a.n_keep + 1) * a.ratio + pick(0, 3);
    size_t n_key = (size_t)N_SEQ * N_SLOT * (KV_PAGE / a.ratio) * a.d, n_q = (size_t)a.n_row * a.n_head * a.d,
           n_sel = (size_t)a.n_row * a.ld_sel;
    float *key = random_floats(n_key, 1.0f), *q = random_floats(n_q, 1.0f);
    bool ties = pick(0, 1);
    for (size_t i = 0; i < n_key && ties; i++) key[i] = rintf(key[i]); // -1, 0, 1: many equal scores
    for (size_t i = 0; i < n_q && ties; i++) q[i] = rintf(q[i]);
    a.index = key;
    a.q = q;
    int32_t *want = buf(n_sel * sizeof *want), *got = buf(n_sel * sizeof *got);
    a.sel = want;
    CHECK_OK(dev_index_select(g_ref, &a, &err));
    for (uint32_t r = 0; r < a.n_row && ties; r++) check_selection(&a, r);
    a.sel = got;
    EACH_DEV {
        CHECK_OK(dev_index_select(g_dev[id], &a, &err));
        for (uint32_t r = 0; r < a.n_row; r++) {
            const int32_t *x = want + (size_t)r * a.ld_sel, *y = got + (size_t)r * a.ld_sel;
            CHECK(x[0] == y[0] && (x[0] < 0 || memcmp(x, y, (size_t)(x[0] + 1) * sizeof *x) == 0));
        }
    }
}

static void test_index(void **state) {
    (void)state;
    repeat(case_index_keys, 25);
    repeat(case_index_select, 40);
    mica_error err;
    float bad[2] = {NAN, 1.0f}, w[2] = {1.0f, 1.0f}, ring[CONV_RING * 2] = {0}, key[KV_PAGE * 2];
    row_info row = {0, 0, 0, -1};
    row_run run = {.n_row = 1};
    int32_t page = 0;
    index_keys_args a = {.index = key, .k = bad, .w = w, .ring = ring, .pages = {&page, 1}, .runs = &run};
    a.rows = &row;
    a.n_run = a.n_row = a.ratio = 1;
    a.d = 2;
    for (int id = -1; id < n_dev; id++) {
        CHECK_OK(dev_index_keys(id < 0 ? g_ref : g_dev[id], &a, &err));
        CHECK(dev_sync(id < 0 ? g_ref : g_dev[id], &err) == MICA_E_DEVICE && strstr(err.text, "index key"));
    }
}

/* ---- n-gram rows -------------------------------------------------------------------------------- */

/* The words of rule 15 on the whole text of a sequence. */
static uint64_t row_by_words(const ngram_args *a, const int32_t *text, int32_t pos, uint32_t head) {
    uint32_t n = 2 + head / (a->n_head / (a->n_gram - 1));
    uint64_t mix = (uint64_t)(uint32_t)text[pos] * a->mult[0];
    bool cut = false;
    for (uint32_t j = 1; j < n; j++) {
        cut = cut || pos < (int32_t)j || text[pos - (int32_t)j] == a->end;
        mix ^= (uint64_t)(uint32_t)(cut ? a->end : text[pos - (int32_t)j]) * a->mult[j];
    }
    return mix % a->n_of[head] + a->first[head];
}

/* The ring holds the run's last ids. */
static void check_ring(const ngram_args *a, const row_run *run) {
    uint32_t end = run->row0 + run->n_row;
    for (uint32_t r = end > run->row0 + CONV_RING ? end - CONV_RING : run->row0; r < end; r++)
        CHECK(a->ring[(uint32_t)run->seq * a->ld_seq + (uint32_t)a->rows[r].pos % CONV_RING] ==
              a->rows[r].tok);
}

static void check_rows(const ngram_args *a, const row_run *run, const int32_t *text, const quant_act *y) {
    float row[96];
    uint32_t n = a->table.n_col;
    size_t row_bytes = (size_t)gguf_row_bytes(gguf_type_get(a->table.type), n);
    for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) {
        for (uint32_t ih = 0; ih < a->n_head; ih++) {
            uint64_t at = row_by_words(a, text, a->rows[r].pos, ih);
            quant_decode(row, (const char *)a->table.w + at * row_bytes, (gguf_type)a->table.type, n);
            CHECK(same("n-gram row", row, y->x + (size_t)r * y->ld + ih * n, n));
        }
    }
}

static void case_ngram(void) {
    mica_error err;
    enum { N_TEXT = 600, N_TOK = 5 };
    row_run *runs = buf(N_SEQ * sizeof *runs);
    row_info *rows = buf(60 * sizeof *rows);
    ngram_args a = {.runs = runs, .rows = rows, .n_gram = pick(2, 4), .end = 3};
    a.n_head = (a.n_gram - 1) * pick(1, 5);
    a.n_run = random_runs(runs, rows, 60, N_SEQ);
    a.n_row = run_rows_sum(runs, a.n_run);
    a.ld_seq = CONV_RING + pick(0, 3);
    a.want_q = pick(0, 1);
    uint64_t *num = buf((NGRAM_MAX + 2 * 32) * sizeof *num), n_table = 0;
    for (uint32_t i = 0; i < a.n_gram; i++) num[i] = test_rand(&g_seed) | 1; // products wrap
    for (uint32_t i = 0; i < a.n_head; i++) {
        num[NGRAM_MAX + i] = pick(3, 40);
        num[NGRAM_MAX + 32 + i] = n_table;
        n_table += num[NGRAM_MAX + i];
    }
    a.mult = num;
    a.n_of = num + NGRAM_MAX;
    a.first = num + NGRAM_MAX + 32;
    a.table = random_weight((uint32_t)n_table, a.want_q ? pick(1, 3) * 32 : pick(1, 90));
    int32_t *text = buf((size_t)N_SEQ * N_TEXT * sizeof *text), *was = buf(N_SEQ * a.ld_seq * sizeof *was),
            *ring = buf(N_SEQ * a.ld_seq * sizeof *ring);
    for (int i = 0; i < N_SEQ * N_TEXT; i++) text[i] = (int32_t)pick(0, N_TOK); // 3 among them
    for (uint32_t i = 0; i < a.n_run; i++) {
        int32_t first = rows[runs[i].row0].pos, *mine = was + (size_t)i * a.ld_seq;
        for (int32_t p = first > CONV_RING ? first - CONV_RING : 0; p < first; p++)
            mine[p % CONV_RING] = text[i * N_TEXT + (uint32_t)p];
        for (uint32_t r = runs[i].row0; r < runs[i].row0 + runs[i].n_row; r++)
            rows[r].tok = text[i * N_TEXT + (uint32_t)rows[r].pos];
    }
    quant_act y = new_act(a.n_row, a.n_head * a.table.n_col), z = new_act(a.n_row, a.n_head * a.table.n_col);
    for (int id = -1; id < n_dev; id++) {
        a.e = id < 0 ? y : z;
        memset(a.e.x, 0, (size_t)a.n_row * z.ld * sizeof(float));
        memcpy(ring, was, N_SEQ * a.ld_seq * sizeof *ring);
        a.ring = ring;
        CHECK_OK(dev_ngram(id < 0 ? g_ref : g_dev[id], &a, &err));
        CHECK(same_act("ngram", &y, &a.e, a.n_row, a.want_q));
        for (uint32_t i = 0; i < a.n_run; i++) check_ring(&a, &runs[i]);
    }
    for (uint32_t i = 0; i < a.n_run; i++) check_rows(&a, &runs[i], text + i * N_TEXT, &y);
}

static void case_ngram_gate(void) {
    mica_error err;
    uint32_t n_col = pick(1, 700), n_stream = pick(1, 5), n_row = pick(1, 20),
             ld = n_stream * n_col + pick(0, 9);
    size_t n = (size_t)n_row * n_stream * n_col;
    float *key = random_floats((size_t)n_row * ld, 1.0f), *y = floats(n), *z = floats(n);
    for (uint32_t i = 0; i < n_col && pick(0, 1); i++) key[i] = 0.0f; // the sign of nothing is 0
    ngram_gate_args a = {y,
                         key,
                         random_floats((size_t)n_row * ld, 1.0f),
                         wild_floats((size_t)n_row * n_col),
                         ld,
                         n_row,
                         n_stream,
                         n_col};
    CHECK_OK(dev_ngram_gate(g_ref, &a, &err));
    a.gv = z;
    EACH_DEV {
        CHECK_OK(dev_ngram_gate(g_dev[id], &a, &err));
        CHECK(same("ngram_gate", y, z, n));
    }
}

static void test_ngram(void **state) {
    (void)state;
    repeat(case_ngram, 25);
    repeat(case_ngram_gate, 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_ngram),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
