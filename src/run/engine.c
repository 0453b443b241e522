/* Memory of a loaded network and the step.
 *
 * Pages: sequence s owns slots [s * n_slot, (s + 1) * n_slot) of each group, in order; layers of the full group have a slot
 * for every page of the context, layers with a window a ring that holds the window, the longest batch and one page more. */
#include "run/engine.h"

#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct engine {
    model *m;  // owned
    dev *d;    // owned
    plan p;
    uint32_t n_seq, n_ubatch, row_max, out_max, n_slot[MODEL_PAGE_GROUPS];
    kv_layer *kv;               // owned, [n_layer] of device pointers
    row_info *rows;             // device, [row_max]
    int32_t *out_rows;          // device, [out_max]
    int32_t *out_rows_host;     // owned, [out_max]
    int32_t *table[MODEL_PAGE_GROUPS]; // device, [n_seq, n_slot]
    void *scratch;              // device
    float *logits;              // device, [out_max, n_vocab]
    float *logits_host;         // owned, [out_max, n_vocab]
};

static size_t kv_value_bytes(kv_type t) { return t == KV_F32 ? 4 : t == KV_F16 ? 2 : 1; }

/* Bytes of one position of one layer. */
static size_t kv_position_bytes(const kv_spec *k, kv_type t) {
    size_t n = (size_t)k->n_head_kv * (k->d_k + k->d_v) * kv_value_bytes(t);
    return t == KV_I8 ? n + 2 * (size_t)k->n_head_kv * sizeof(float) : n;
}

static uint32_t ring_slots(const model_shape *s, uint32_t row_max) { return (s->window + row_max) / KV_PAGE + 2; }

static uint32_t row_max_of(const engine_config *cfg) {
    uint32_t decode = cfg->n_seq * ENGINE_WINDOW_MAX;
    return cfg->n_ubatch > decode ? cfg->n_ubatch : decode;
}

static uint32_t out_max_of(const engine_config *cfg) { return cfg->n_seq * ENGINE_WINDOW_MAX; }

static void plan_from(plan *p, model *m, const engine_config *cfg) {
    const model_shape *s = model_shape_of(m);
    uint32_t row_max = row_max_of(cfg), out_max = out_max_of(cfg);
    plan_request r = {.ram_cap = cfg->ram_bytes,
                      .weight_bytes = s->weight_bytes,
                      .expert_bytes = s->expert_bytes,
                      .n_expert = s->n_expert_all,
                      .n_seq = cfg->n_seq,
                      .n_ctx_train = s->n_ctx_train,
                      .n_ctx = cfg->n_ctx};
    plan_machine(&r.ram_total, &r.ram_free);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        size_t n = kv_position_bytes(&s->kv[il], cfg->kv);
        if (s->kv[il].group == KV_GROUP_FULL) r.kv_token_bytes += n;
        else r.kv_fixed_bytes += n * ring_slots(s, row_max) * KV_PAGE;
    }
    r.scratch_bytes = model_scratch_bytes(m, row_max, out_max) + 2 * (size_t)out_max * s->n_vocab * sizeof(float);
    plan_make(p, &r);
}

mica_status engine_plan(plan *out, const engine_config *cfg, mica_error *err) {
    model *m;
    TRY(model_open(&m, cfg->g, err));
    plan_from(out, m, cfg);
    model_close(m);
    return MICA_OK;
}

static mica_status take_cache(engine *e, const engine_config *cfg, mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    e->kv = mem_calloc(s->n_layer, sizeof *e->kv);
    if (!e->kv) return fail(err, MICA_E_NOMEM, "cache: out of memory");
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const kv_spec *k = &s->kv[il];
        size_t n_head = (size_t)e->n_seq * e->n_slot[k->group] * k->n_head_kv * KV_PAGE, b = kv_value_bytes(cfg->kv);
        e->kv[il].type = cfg->kv;
        if (n_head == 0) continue;
        TRY(dev_alloc(e->d, &e->kv[il].k, n_head * k->d_k * b, "key cache", err));
        TRY(dev_alloc(e->d, &e->kv[il].v, n_head * k->d_v * b, "value cache", err));
        if (cfg->kv != KV_I8) continue;
        TRY(dev_alloc(e->d, (void **)&e->kv[il].k_scale, n_head * sizeof(float), "key scales", err));
        TRY(dev_alloc(e->d, (void **)&e->kv[il].v_scale, n_head * sizeof(float), "value scales", err));
    }
    return MICA_OK;
}

static mica_status take_tables(engine *e, mica_error *err) {
    mica_status st = MICA_OK;
    for (int g = 0; g < MODEL_PAGE_GROUPS; g++) {
        size_t n = (size_t)e->n_seq * e->n_slot[g];
        int32_t *host = mem_alloc(n * sizeof *host);
        if (!host) return fail(err, MICA_E_NOMEM, "page table: out of memory");
        for (size_t i = 0; i < n; i++) host[i] = (int32_t)i;
        TRY_GOTO(dev_alloc(e->d, (void **)&e->table[g], n * sizeof *host, "page table", err), next);
        TRY_GOTO(dev_upload(e->d, e->table[g], host, n * sizeof *host, err), next);
    next:
        mem_free(host);
        if (st != MICA_OK) return st;
    }
    return MICA_OK;
}

static mica_status take_step(engine *e, mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    size_t n_logit = (size_t)e->out_max * s->n_vocab;
    TRY(dev_alloc(e->d, (void **)&e->rows, e->row_max * sizeof *e->rows, "rows", err));
    TRY(dev_alloc(e->d, (void **)&e->out_rows, e->out_max * sizeof *e->out_rows, "rows", err));
    TRY(dev_alloc(e->d, &e->scratch, model_scratch_bytes(e->m, e->row_max, e->out_max), "scratch", err));
    TRY(dev_alloc(e->d, (void **)&e->logits, n_logit * sizeof(float), "logits", err));
    e->logits_host = mem_pages_alloc(n_logit * sizeof(float));
    e->out_rows_host = mem_calloc(e->out_max, sizeof *e->out_rows_host);
    if (!e->logits_host || !e->out_rows_host) return fail(err, MICA_E_NOMEM, "logits: out of memory");
    model_scratch_set(e->m, e->scratch, e->row_max, e->out_max);
    return MICA_OK;
}

mica_status engine_open(engine **out, const engine_config *cfg, mica_error *err) {
    *out = NULL;
    mica_status st = MICA_OK;
    engine *e = mem_calloc(1, sizeof *e);
    if (!e) return fail(err, MICA_E_NOMEM, "engine: out of memory");
    TRY_GOTO(model_open(&e->m, cfg->g, err), done);
    plan_from(&e->p, e->m, cfg);
    TRY_GOTO(plan_check(&e->p, err), done);
    const model_shape *s = model_shape_of(e->m);
    e->n_seq = cfg->n_seq;
    e->n_ubatch = cfg->n_ubatch;
    e->row_max = row_max_of(cfg);
    e->out_max = out_max_of(cfg);
    e->n_slot[KV_GROUP_FULL] = (e->p.n_ctx + KV_PAGE - 1) / KV_PAGE;
    e->n_slot[KV_GROUP_WINDOW] = ring_slots(s, e->row_max);
    dev_config dc = {.kind = cfg->dev, .isa = cfg->isa, .n_thread = cfg->n_thread, .limits = s->limits};
    dc.limits.n_row = e->row_max;
    dc.experts = model_experts(e->m);
    TRY_GOTO(dev_open(&e->d, &dc, err), done);
    TRY_GOTO(model_bind(e->m, e->d, err), done);
    TRY_GOTO(take_cache(e, cfg, err), done);
    TRY_GOTO(take_tables(e, err), done);
    TRY_GOTO(take_step(e, err), done);
    *out = e;
    e = NULL;
done:
    engine_close(e);
    return st;
}

void engine_close(engine *e) {
    if (!e) return;
    uint32_t n_layer = e->m ? model_shape_of(e->m)->n_layer : 0;
    if (e->d) {
        for (uint32_t il = 0; e->kv && il < n_layer; il++) {
            dev_release(e->d, e->kv[il].k);
            dev_release(e->d, e->kv[il].v);
            dev_release(e->d, e->kv[il].k_scale);
            dev_release(e->d, e->kv[il].v_scale);
        }
        for (int g = 0; g < MODEL_PAGE_GROUPS; g++) dev_release(e->d, e->table[g]);
        dev_release(e->d, e->rows);
        dev_release(e->d, e->out_rows);
        dev_release(e->d, e->scratch);
        dev_release(e->d, e->logits);
    }
    mem_free(e->kv);
    mem_pages_free(e->logits_host);
    mem_free(e->out_rows_host);
    model_close(e->m);
    dev_close(e->d);
    mem_free(e);
}

const model_shape *engine_shape(const engine *e) { return model_shape_of(e->m); }
const plan *engine_plan_of(const engine *e) { return &e->p; }
const char *engine_device(const engine *e) { return e->d->what; }
uint32_t engine_row_max(const engine *e) { return e->row_max; }
uint32_t engine_ubatch(const engine *e) { return e->n_ubatch; }
uint32_t engine_out_max(const engine *e) { return e->out_max; }

mica_status engine_step(engine *e, const row_info *rows, uint32_t n_row, uint32_t n_prompt, mica_error *err) {
    assert(n_row > 0 && n_row <= e->row_max && n_prompt <= n_row);
    uint32_t n_vocab = model_shape_of(e->m)->n_vocab;
    model_step s = {.rows = e->rows, .out_rows = e->out_rows, .kv = e->kv, .logits = e->logits};
    s.n_row = n_row;
    s.n_prompt = n_prompt;
    for (int g = 0; g < MODEL_PAGE_GROUPS; g++) s.pages[g] = (kv_pages){e->table[g], e->n_slot[g]};
    for (uint32_t ir = 0; ir < n_row; ir++) {
        assert(rows[ir].seq >= 0 && (uint32_t)rows[ir].seq < e->n_seq && (uint32_t)rows[ir].pos < e->p.n_ctx);
        assert(rows[ir].tok >= 0 && (uint32_t)rows[ir].tok < n_vocab);
        if (rows[ir].out < 0) continue;
        assert((uint32_t)rows[ir].out == s.n_out && s.n_out < e->out_max);
        e->out_rows_host[s.n_out++] = (int32_t)ir;
        s.n_out_prompt += ir < n_prompt;
    }
    TRY(dev_upload(e->d, e->rows, rows, n_row * sizeof *rows, err));
    if (s.n_out) TRY(dev_upload(e->d, e->out_rows, e->out_rows_host, s.n_out * sizeof *e->out_rows_host, err));
    TRY(model_forward(e->m, &s, err));
    if (s.n_out) TRY(dev_download(e->d, e->logits_host, e->logits, (size_t)s.n_out * n_vocab * sizeof(float), err));
    return dev_sync(e->d, err);
}

const float *engine_logits(const engine *e, uint32_t out) {
    return e->logits_host + (size_t)out * model_shape_of(e->m)->n_vocab;
}
