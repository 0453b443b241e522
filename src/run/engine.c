/* Memory of a loaded network and the step.
 *
 * Pages: sequence s owns slots [s * n_slot, (s + 1) * n_slot) of each group, in order; layers of the full
 * group have a slot for every page of the context, layers with a window a ring that holds the window, the
 * longest batch and one page more. */
#include "run/engine.h"

#include "base/log.h"
#include "base/mem.h"
#include "store/trace.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* What the next run of a sequence must know of its last window. */
typedef struct window_log {
    uint32_t n_commit, bank;
    uint32_t row0;   // of the last step
    uint32_t n_seen; // positions written since the sequence last began at 0, taken back ones included
} window_log;

struct engine {
    const gguf_file *g; // borrowed
    kv_type kv_type;
    model *m;        // owned
    dev *d;          // owned
    expert_tiers *t; // owned
    plan p;
    uint32_t n_snapshot; // of a sequence's own
    uint32_t n_seq, n_ubatch, row_max, out_max, n_slot[MODEL_PAGE_GROUPS];
    kv_layer *kv;                      // owned, [n_layer] of device pointers
    row_info *rows;                    // device, [row_max]
    int32_t *out_rows;                 // device, [out_max]
    int32_t *out_rows_host;            // owned, [out_max]
    int32_t *table[MODEL_PAGE_GROUPS]; // device, [n_seq, n_slot]
    row_run *runs;                     // device, [row_max]
    row_run *runs_host;                // owned, [row_max]
    window_log *logs;                  // owned, [n_seq]
    float *state;                      // device, [n_seq, state_floats]
    void *scratch;                     // device
    float *logits;                     // device, [out_max, n_vocab]
    float *logits_host;                // owned, [out_max, n_vocab]
    row_info *draft_rows;              // device, [row_max]; NULL without drafting
    int32_t *h_rows;                   // device, [row_max]
    draft_row *pairs;                  // owned, [row_max]
    row_info *draft_rows_host;         // owned, [row_max]
    int32_t *h_rows_host;              // owned, [row_max]
    uint64_t n_step;
    bool draft;
    trace *routes; // owned; NULL: nobody wants a record
};

static size_t kv_value_bytes(kv_type t) {
    return t == KV_F32 ? 4 : t == KV_F16 ? 2 : 1;
}

/* Bytes of a page's index keys: f32 whatever the cache's type. */
static size_t index_page_bytes(const kv_spec *k) {
    return k->d_index ? (size_t)KV_PAGE / k->index_ratio * k->d_index * sizeof(float) : 0;
}

/* Bytes of one position of one layer. */
static size_t kv_position_bytes(const kv_spec *k, kv_type t) {
    size_t n = (size_t)k->n_head_kv * (k->d_k + k->d_v) * kv_value_bytes(t);
    if (t == KV_I8) n += 2 * (size_t)k->n_head_kv * sizeof(float);
    return n + index_page_bytes(k) / KV_PAGE;
}

static uint32_t ring_slots(const model_shape *s, uint32_t row_max) {
    return (s->window + row_max) / KV_PAGE + 2;
}

static uint32_t row_max_of(const engine_config *cfg) {
    uint32_t decode = cfg->n_seq * WINDOW_MAX;
    return cfg->n_ubatch > decode ? cfg->n_ubatch : decode;
}

static uint32_t out_max_of(const engine_config *cfg) {
    return cfg->n_seq * WINDOW_MAX;
}

enum { SNAPSHOT_BUDGET = 256 << 20, SNAPSHOT_MIN = 2, SNAPSHOT_MAX = 16 }; // of one sequence

/* A snapshot is a sequence's state and the logits after its last token. */
static size_t snapshot_bytes(const model_shape *s) {
    return (s->state_floats + s->n_vocab) * sizeof(float);
}

/* A prefix cache has room for everybody's. */
static uint32_t snapshot_count(const model_shape *s, uint64_t cache_bytes) {
    if (s->state_floats == 0 || cache_bytes > 0) return 0;
    size_t n = SNAPSHOT_BUDGET / snapshot_bytes(s);
    return n < SNAPSHOT_MIN ? SNAPSHOT_MIN : n > SNAPSHOT_MAX ? SNAPSHOT_MAX : (uint32_t)n;
}

uint32_t engine_snapshots(const engine *e) {
    return e->n_snapshot;
}

static dev_config device_config(const model *m, const engine_config *cfg) {
    dev_config dc = {.kind = cfg->dev, .isa = cfg->isa, .n_thread = cfg->n_thread, .card = cfg->card};
    dc.limits = model_shape_of(m)->limits;
    dc.limits.n_row = row_max_of(cfg);
    return dc;
}

/* What the card has and its device takes, when it is one. */
static mica_status plan_card(plan_request *r, dev_memory *mem, model *m, const engine_config *cfg,
                             mica_error *err) {
    if (cfg->dev == DEV_CPU || cfg->dev == DEV_REF) return MICA_OK;
    dev_config dc = device_config(m, cfg);
    TRY(dev_memory_get(mem, &dc, err));
    r->card = mem->id;
    r->vram_total = mem->total_bytes;
    r->vram_free = mem->free_bytes;
    r->vram_cap = cfg->vram_bytes;
    r->vram_fixed_bytes = mem->fixed_bytes;
    r->vram_reserve = cfg->vram_reserve;
    r->display = mem->display;
    r->desktop = mem->display && plan_desktop();
    r->integrated = mem->integrated;
    r->tiers = true;
    r->pin_limit = cfg->dev == DEV_HIP ? plan_pin_limit() : r->ram_total; // TTM does not bind the others
    return MICA_OK;
}

/* Bytes of a slot for an expert of each layer: its three matrices, each with the room its tier rounds up to.
 */
static void plan_blobs(uint64_t *blob_bytes, const model_shape *s, bool card) {
    for (uint32_t il = 0; il < MODEL_LAYER_MAX; il++) {
        const dev_expert_shape *e = &s->experts[il];
        const size_t part[] = {e->gate_bytes, e->up_bytes, e->down_bytes};
        blob_bytes[il] = 0;
        for (int k = 0; card && e->n_expert && k < 3; k++) blob_bytes[il] += dev_expert_room(part[k]);
        if (!card && e->n_expert) blob_bytes[il] = store_blob_room(e);
    }
}

static mica_status plan_from(plan *p, model *m, const engine_config *cfg, mica_error *err) {
    dev_memory mem;
    uint64_t blob_bytes[MODEL_LAYER_MAX];
    const model_shape *s = model_shape_of(m);
    uint32_t row_max = row_max_of(cfg), out_max = out_max_of(cfg);
    plan_request r = {.ram_cap = cfg->ram_bytes,
                      .weight_bytes = s->weight_bytes,
                      .expert_bytes = s->expert_bytes,
                      .table_bytes = s->table_bytes,
                      .n_expert = s->n_expert_all,
                      .blob_bytes = blob_bytes,
                      .n_layer = MODEL_LAYER_MAX,
                      .n_expert_layer = s->n_expert,
                      .n_expert_used = s->n_expert_used,
                      .experts_ram = cfg->experts_ram,
                      .n_seq = cfg->n_seq,
                      .n_ctx_train = s->n_ctx_train,
                      .n_ctx = cfg->n_ctx};
    plan_machine(&r.ram_total, &r.ram_free);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        size_t n = kv_position_bytes(&s->kv[il], cfg->kv);
        if (s->kv[il].group == KV_GROUP_FULL)
            r.kv_token_bytes += n;
        else
            r.kv_fixed_bytes += n * ring_slots(s, row_max) * KV_PAGE;
    }
    r.state_bytes = s->state_floats * sizeof(float) + snapshot_count(s, cfg->cache_bytes) * snapshot_bytes(s);
    r.cache_bytes = cfg->cache_bytes;
    r.scratch_bytes = model_scratch_bytes(m, row_max, out_max, cfg->n_seq) +
                      2 * (size_t)out_max * s->n_vocab * sizeof(float);
    TRY(plan_card(&r, &mem, m, cfg, err));
    plan_blobs(blob_bytes, s, r.card != NULL);
    plan_make(p, &r);
    return MICA_OK;
}

enum { NEAR_UBATCH = 64 };

/* What nobody asked to shrink is tried last: KV type, chunk, way of holding experts, then all of them. */
static void find_near(plan *p, model *m, const engine_config *cfg) {
    mica_error ignored;
    for (int how = 1; how < 8 && !p->fits && p->near.n_ctx == 0; how++) {
        engine_config c = *cfg;
        plan other;
        plan_near near = {0};
        if ((how & 1) && c.kv != KV_I8) c.kv = KV_I8, near.kv = "int8";
        if ((how & 2) && c.n_ubatch > NEAR_UBATCH) c.n_ubatch = near.n_ubatch = NEAR_UBATCH;
        if ((how & 4) && c.experts_ram != PLAN_RAM_MMAP) c.experts_ram = near.experts_ram = PLAN_RAM_MMAP;
        if (plan_from(&other, m, &c, &ignored) != MICA_OK || (!other.fits && other.near.n_ctx == 0)) continue;
        near.n_ctx = other.near.n_ctx;
        p->near = near;
        return;
    }
}

mica_status engine_plan(plan *out, const engine_config *cfg, mica_error *err) {
    model *m;
    TRY(model_open(&m, cfg->g, err));
    if (cfg->draft) model_draft_enable(m);
    mica_status st = plan_from(out, m, cfg, err);
    if (st == MICA_OK) find_near(out, m, cfg);
    model_close(m);
    return st;
}

static mica_status take_cache(engine *e, const engine_config *cfg, mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    e->kv = mem_calloc(s->n_layer, sizeof *e->kv);
    if (!e->kv) return fail(err, MICA_E_NOMEM, "cache: out of memory");
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const kv_spec *k = &s->kv[il];
        size_t n_head = (size_t)e->n_seq * e->n_slot[k->group] * k->n_head_kv * KV_PAGE,
               b = kv_value_bytes(cfg->kv);
        e->kv[il].type = cfg->kv;
        if (n_head == 0) continue;
        TRY(dev_alloc(e->d, &e->kv[il].k, n_head * k->d_k * b, "key cache", err));
        TRY(dev_alloc(e->d, &e->kv[il].v, n_head * k->d_v * b, "value cache", err));
        if (k->d_index)
            TRY(dev_alloc(e->d, (void **)&e->kv[il].index,
                          (size_t)e->n_seq * e->n_slot[k->group] * index_page_bytes(k), "index keys", err));
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

static mica_status take_drafts(engine *e, mica_error *err) {
    if (!e->draft) return MICA_OK;
    TRY(dev_alloc(e->d, (void **)&e->draft_rows, e->row_max * sizeof *e->draft_rows, "draft rows", err));
    TRY(dev_alloc(e->d, (void **)&e->h_rows, e->row_max * sizeof *e->h_rows, "draft rows", err));
    e->draft_rows_host = mem_calloc(e->row_max, sizeof *e->draft_rows_host);
    e->h_rows_host = mem_calloc(e->row_max, sizeof *e->h_rows_host);
    e->pairs = mem_calloc(e->row_max, sizeof *e->pairs);
    if (!e->draft_rows_host || !e->h_rows_host || !e->pairs)
        return fail(err, MICA_E_NOMEM, "draft rows: out of memory");
    return MICA_OK;
}

static mica_status take_step(engine *e, mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    size_t n_logit = (size_t)e->out_max * s->n_vocab;
    TRY(dev_alloc(e->d, (void **)&e->rows, e->row_max * sizeof *e->rows, "rows", err));
    TRY(dev_alloc(e->d, (void **)&e->out_rows, e->out_max * sizeof *e->out_rows, "rows", err));
    TRY(dev_alloc(e->d, (void **)&e->runs, e->row_max * sizeof *e->runs, "rows", err));
    if (s->state_floats)
        TRY(dev_alloc(e->d, (void **)&e->state, e->n_seq * s->state_floats * sizeof(float), "state", err));
    TRY(dev_alloc(e->d, &e->scratch, model_scratch_bytes(e->m, e->row_max, e->out_max, e->n_seq), "scratch",
                  err));
    TRY(dev_alloc(e->d, (void **)&e->logits, n_logit * sizeof(float), "logits", err));
    e->logits_host = mem_pages_alloc(n_logit * sizeof(float));
    e->out_rows_host = mem_calloc(e->out_max, sizeof *e->out_rows_host);
    e->runs_host = mem_calloc(e->row_max, sizeof *e->runs_host);
    e->logs = mem_calloc(e->n_seq, sizeof *e->logs);
    if (!e->logits_host || !e->out_rows_host || !e->runs_host || !e->logs)
        return fail(err, MICA_E_NOMEM, "logits: out of memory");
    model_scratch_set(e->m, e->scratch, e->row_max, e->out_max, e->n_seq);
    return take_drafts(e, err);
}

/* ---- who chose what --------------------------------------------------------------------------- */

static void note_routes(void *user, uint32_t layer, const int32_t *ids, uint32_t n) {
    engine *e = user;
    tiers_routed(e->t, layer, ids, n);
    if (e->routes) trace_add(e->routes, layer, ids, n / model_shape_of(e->m)->n_expert_used);
}

static mica_status open_trace(engine *e, const engine_config *cfg, mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    uint64_t blob_bytes[MODEL_LAYER_MAX];
    trace_head head = {.fingerprint = gguf_fingerprint(cfg->g), .n_expert = s->n_expert};
    if (!cfg->trace_path) return MICA_OK;
    if (s->n_expert == 0)
        return fail(err, MICA_E_ARG, "trace: %s has no experts: there is no routing to record",
                    gguf_name(cfg->g));
    head.n_used = s->n_expert_used;
    plan_blobs(blob_bytes, s, false);
    for (uint32_t il = 0; il < MODEL_LAYER_MAX; il++)
        if (blob_bytes[il]) head.n_layer = il + 1;
    return trace_create(&e->routes, cfg->trace_path, &head, blob_bytes, err);
}

/* A device counts bytes, the caller wants their share of all. Only while weights are bound. */
typedef struct load_watch {
    const engine_config *cfg;
    uint64_t n_total;
} load_watch;

static void tell_loaded(void *user, uint64_t n_bytes) {
    const load_watch *w = user;
    w->cfg->loaded(w->cfg->loaded_user, n_bytes, w->n_total);
}

/* Without a card: slots in memory, when it has no room for all experts. */
static mica_status take_slots(engine *e, mica_error *err) {
    double tokens;
    if (e->p.card[0] || e->p.n_slab == 0) return MICA_OK;
    const float *use = tiers_learned(e->t, &tokens);
    return store_slots_take(model_store(e->m), &e->p, use, tokens, err);
}

static mica_status open_device(engine *e, const engine_config *cfg, mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    dev_config dc = device_config(e->m, cfg);
    tiers_config tc = {.p = &e->p, .n_expert = s->n_expert, .n_used = s->n_expert_used};
    tc.fingerprint = gguf_fingerprint(cfg->g);
    tc.profile_path = cfg->profile_path;
    for (uint32_t il = 0; il < MODEL_LAYER_MAX; il++)
        if (s->experts[il].n_expert) tc.n_layer = il + 1;
    load_watch watch = {cfg, s->weight_bytes};
    TRY(tiers_new(&e->t, &tc, err));
    TRY(open_trace(e, cfg, err));
    dc.experts = model_experts(e->m);
    dc.routed = note_routes;
    dc.routed_user = e;
    if (cfg->loaded) {
        dc.loaded = tell_loaded;
        dc.loaded_user = &watch;
    }
    TRY(dev_open(&e->d, &dc, err));
    TRY(model_bind(e->m, e->d, err));
    TRY(take_slots(e, err));
    return tiers_fill(e->t, e->d, err);
}

mica_status engine_open(engine **out, const engine_config *cfg, mica_error *err) {
    *out = NULL;
    mica_status st = MICA_OK;
    engine *e = mem_calloc(1, sizeof *e);
    if (!e) return fail(err, MICA_E_NOMEM, "engine: out of memory");
    TRY_GOTO(model_open(&e->m, cfg->g, err), done);
    e->draft = cfg->draft && model_shape_of(e->m)->has_draft;
    if (e->draft) model_draft_enable(e->m);
    TRY_GOTO(plan_from(&e->p, e->m, cfg, err), done);
    find_near(&e->p, e->m, cfg);
    TRY_GOTO(plan_check(&e->p, err), done);
    const model_shape *s = model_shape_of(e->m);
    e->g = cfg->g;
    e->kv_type = cfg->kv;
    e->n_seq = cfg->n_seq;
    e->n_ubatch = cfg->n_ubatch;
    e->n_snapshot = snapshot_count(s, cfg->cache_bytes);
    e->row_max = row_max_of(cfg);
    e->out_max = out_max_of(cfg);
    e->n_slot[KV_GROUP_FULL] = (e->p.n_ctx + KV_PAGE - 1) / KV_PAGE;
    e->n_slot[KV_GROUP_WINDOW] = ring_slots(s, e->row_max);
    TRY_GOTO(open_device(e, cfg, err), done);
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
            dev_release(e->d, e->kv[il].index);
        }
        for (int g = 0; g < MODEL_PAGE_GROUPS; g++) dev_release(e->d, e->table[g]);
        dev_release(e->d, e->rows);
        dev_release(e->d, e->out_rows);
        dev_release(e->d, e->draft_rows);
        dev_release(e->d, e->h_rows);
        dev_release(e->d, e->runs);
        dev_release(e->d, e->state);
        dev_release(e->d, e->scratch);
        dev_release(e->d, e->logits);
    }
    mem_free(e->kv);
    mem_pages_free(e->logits_host);
    mem_free(e->out_rows_host);
    mem_free(e->draft_rows_host);
    mem_free(e->h_rows_host);
    mem_free(e->pairs);
    mem_free(e->runs_host);
    mem_free(e->logs);
    trace_close(e->routes);
    model_unbind(e->m);
    dev_close(e->d); // gives back what it leases from the model's store
    model_close(e->m);
    tiers_free(e->t);
    mem_free(e);
}

const model_shape *engine_shape(const engine *e) {
    return model_shape_of(e->m);
}
const plan *engine_plan_of(const engine *e) {
    return &e->p;
}
const char *engine_device(const engine *e) {
    return e->d->what;
}
void engine_tiers(const engine *e, tiers_total *out) {
    tiers_totals(e->t, out);
}
dev *engine_dev(engine *e) {
    return e->d;
}
void engine_experts(const engine *e, dev_expert_stats *out) {
    dev_experts_stats(e->d, out);
    if (e->p.card[0] || !model_store(e->m)) return;
    store_stats s = store_stats_get(model_store(e->m));
    out->n_use = s.n_use;
    out->n_hit = s.n_hit;
    out->ssd_bytes = s.ssd_bytes;
    out->n_slot = s.n_slot;
}
uint32_t engine_row_max(const engine *e) {
    return e->row_max;
}
uint32_t engine_ubatch(const engine *e) {
    return e->n_ubatch;
}
uint32_t engine_out_max(const engine *e) {
    return e->out_max;
}

/* The batch by sequence. */
static uint32_t build_runs(engine *e, const row_info *rows, uint32_t n_row, uint32_t n_prompt) {
    uint32_t n = 0;
    for (uint32_t ir = 0; ir < n_row; ir++) {
        row_run *last = n ? &e->runs_host[n - 1] : NULL;
        bool same = last && last->seq == rows[ir].seq && (ir < n_prompt) == (last->row0 < n_prompt);
        if (same) {
            last->n_row++;
            continue;
        }
        window_log *l = &e->logs[rows[ir].seq];
        e->runs_host[n++] =
            (row_run){.row0 = ir, .n_row = 1, .seq = rows[ir].seq, .n_commit = l->n_commit, .bank = l->bank};
    }
    for (uint32_t i = 0; i < n; i++) {
        row_run *r = &e->runs_host[i];
        r->window = r->row0 >= n_prompt && r->n_row > 1;
        assert(!r->window || r->n_row <= WINDOW_MAX);
    }
    return n;
}

/* Before the step: a step that fails has written too. */
static void mark_seen(engine *e, const row_info *rows, uint32_t n_row) {
    for (uint32_t ir = 0; ir < n_row; ir++) {
        window_log *l = &e->logs[rows[ir].seq];
        uint32_t n = (uint32_t)rows[ir].pos + 1;
        if (n == 1 || n > l->n_seen) l->n_seen = n;
    }
}

/* The page that holds the highest position written took the slot of the page n_slot before it. */
uint32_t engine_rewind_min(const engine *e, int32_t seq) {
    uint32_t n_page = (e->logs[seq].n_seen + KV_PAGE - 1) / KV_PAGE, n_slot = engine_ring_slots(e);
    if (n_slot == 0 || n_page <= n_slot) return 0;
    return (n_page - n_slot) * KV_PAGE + model_shape_of(e->m)->window - 1;
}

/* The runs happened: windows wait in their logs, to be applied whole unless engine_accept says less. */
static void settle_runs(engine *e, uint32_t n_run) {
    for (uint32_t i = 0; i < n_run; i++) {
        const row_run *r = &e->runs_host[i];
        window_log *l = &e->logs[r->seq];
        l->n_commit = r->window ? r->n_row : 0;
        l->bank = r->window ? r->bank ^ 1u : r->bank;
        l->row0 = r->row0;
    }
}

engine_log engine_log_get(const engine *e, int32_t seq) {
    const window_log *l = &e->logs[seq];
    return (engine_log){.n_commit = l->n_commit,
                        .bank = l->bank ^ 1u /* the half they were written to */,
                        .n_seen = l->n_seen};
}

void engine_log_set(engine *e, int32_t seq, const engine_log *l) {
    e->logs[seq] = (window_log){.n_commit = l->n_commit, .bank = l->bank ^ 1u, .n_seen = l->n_seen};
}

uint32_t engine_ring_slots(const engine *e) {
    return model_shape_of(e->m)->window ? e->n_slot[KV_GROUP_WINDOW] : 0;
}

kv_type engine_kv_type(const engine *e) {
    return e->kv_type;
}
uint64_t engine_fingerprint(const engine *e) {
    return gguf_fingerprint(e->g);
}

mica_status engine_read(engine *e, void *host, const void *at, size_t n_bytes, mica_error *err) {
    return dev_download(e->d, host, at, n_bytes, err);
}

mica_status engine_write(engine *e, void *at, const void *host, size_t n_bytes, mica_error *err) {
    return dev_upload(e->d, at, host, n_bytes, err);
}

/* Who gets the stretches, and which pages of a layer there are: n_slot of each sequence, n_page of them in
 * use. */
typedef struct region_walk {
    engine_region_fn *fn;
    void *user;
    int32_t seq;
    uint32_t n_slot, n_page;
} region_walk;

/* The used pages of one array of a layer; take_tables gives a sequence its slots in order. */
static mica_status page_regions(const region_walk *w, void *base, size_t page_bytes, mica_error *err) {
    if (!base || page_bytes == 0) return MICA_OK;
    char *first = (char *)base + (size_t)(uint32_t)w->seq * w->n_slot * page_bytes;
    return w->fn(w->user, first, w->n_page * page_bytes, err);
}

mica_status engine_regions(engine *e, int32_t seq, uint64_t n, engine_region_fn *fn, void *user,
                           mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    size_t b = kv_value_bytes(e->kv_type);
    if (e->state)
        TRY(fn(user, (char *)e->state + (size_t)seq * engine_state_bytes(e), engine_state_bytes(e), err));
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const kv_spec *k = &s->kv[il];
        const kv_layer *l = &e->kv[il];
        size_t heads = (size_t)k->n_head_kv * KV_PAGE;
        uint64_t used = (n + KV_PAGE - 1) / KV_PAGE;
        region_walk w = {.fn = fn, .user = user, .seq = seq, .n_slot = e->n_slot[k->group]};
        w.n_page = used < w.n_slot ? (uint32_t)used : w.n_slot;
        TRY(page_regions(&w, l->k, heads * k->d_k * b, err));
        TRY(page_regions(&w, l->v, heads * k->d_v * b, err));
        TRY(page_regions(&w, l->k_scale, heads * sizeof(float), err));
        TRY(page_regions(&w, l->v_scale, heads * sizeof(float), err));
        TRY(page_regions(&w, l->index, index_page_bytes(k), err));
    }
    return MICA_OK;
}

/* Where the stretches of a page go, for page_heads. */
typedef struct page_walk {
    engine_region_fn *fn;
    void *user;
    size_t at_page; // of the layer's arrays
    uint32_t n_head, n_pos;
    bool present;
} page_walk;

/* One array of a layer: [page, head, KV_PAGE, position_bytes]. A whole page is one stretch. */
static mica_status page_heads(const page_walk *w, void *base, size_t position_bytes, mica_error *err) {
    size_t n = w->n_pos * position_bytes, head = KV_PAGE * position_bytes;
    if (!base || n == 0) return MICA_OK;
    char *page = (char *)base + w->at_page * w->n_head * head;
    if (w->n_pos == KV_PAGE) return w->fn(w->user, w->present ? page : NULL, w->n_head * head, err);
    for (uint32_t h = 0; h < w->n_head; h++) TRY(w->fn(w->user, w->present ? page + h * head : NULL, n, err));
    return MICA_OK;
}

mica_status engine_page(engine *e, const engine_page_args *a, engine_region_fn *fn, void *user,
                        mica_error *err) {
    const model_shape *s = model_shape_of(e->m);
    size_t b = kv_value_bytes(e->kv_type);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const kv_spec *k = &s->kv[il];
        const kv_layer *l = &e->kv[il];
        uint32_t n_slot = e->n_slot[k->group];
        if (k->n_head_kv == 0) continue;
        page_walk w = {.fn = fn, .user = user, .n_head = k->n_head_kv, .n_pos = a->n_pos};
        w.at_page = (size_t)(uint32_t)a->seq * n_slot + a->page % n_slot;
        w.present = a->window || k->group == KV_GROUP_FULL;
        TRY(page_heads(&w, l->k, k->d_k * b, err));
        TRY(page_heads(&w, l->v, k->d_v * b, err));
        TRY(page_heads(&w, l->k_scale, sizeof(float), err));
        TRY(page_heads(&w, l->v_scale, sizeof(float), err));
        size_t n = index_page_bytes(k); // of whole blocks: not by the position
        if (n) TRY(fn(user, w.present ? (char *)l->index + w.at_page * n : NULL, n, err));
    }
    return MICA_OK;
}

size_t engine_page_bytes(const engine *e, uint32_t n_pos) {
    const model_shape *s = model_shape_of(e->m);
    size_t n = 0;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const kv_spec *k = &s->kv[il];
        if (k->n_head_kv == 0) continue;
        n += index_page_bytes(k);
        n += n_pos * (kv_position_bytes(k, e->kv_type) - index_page_bytes(k) / KV_PAGE);
    }
    return n;
}

void engine_page_seen(engine *e, int32_t seq, uint32_t n, bool anew) {
    window_log *l = &e->logs[seq];
    if (anew || n > l->n_seen) l->n_seen = n;
}

bool engine_page_held(const engine *e, int32_t seq, uint32_t page) {
    uint32_t n_page = (e->logs[seq].n_seen + KV_PAGE - 1) / KV_PAGE, n_slot = engine_ring_slots(e);
    return n_slot == 0 || page + n_slot >= n_page;
}

/* Processors compute the prompt role as the definition does; cards may use their matrix units. */
uint64_t engine_prompt_class(const engine *e) {
    return e->p.card[0] ? XXH3_64bits(e->d->what, strlen(e->d->what)) : 0;
}

static model_step step_of(const engine *e) {
    model_step s = {.rows = e->rows, .out_rows = e->out_rows, .kv = e->kv, .logits = e->logits};
    s.runs = e->runs;
    s.state = e->state;
    for (int g = 0; g < MODEL_PAGE_GROUPS; g++) s.pages[g] = (kv_pages){e->table[g], e->n_slot[g]};
    return s;
}

mica_status engine_accept(engine *e, int32_t seq, uint32_t n, mica_error *err) {
    window_log *l = &e->logs[seq];
    if (n < l->n_commit) l->n_commit = n;
    if (!e->draft) return MICA_OK;
    model_step s = step_of(e);
    return model_draft_keep(e->m, &s, seq, l->row0 + n - 1, err);
}

uint64_t engine_step_count(const engine *e) {
    return e->n_step;
}

int32_t engine_row_of(const engine *e, int32_t seq) {
    return (int32_t)e->logs[seq].row0;
}

bool engine_drafts(const engine *e) {
    return e->draft;
}

/* Calls go to the device between begin and end: it may replay what it recorded of the same step. */
static mica_status forward_draft(engine *e, const draft_step *s, mica_error *err) {
    dev_step key = {.n_row = s->n_row, .n_prompt = s->n_prompt, .n_out = s->n_out, .part = s->chain ? 2 : 1};
    bool done;
    for (uint32_t i = 0; i < s->n_row; i++) {
        if ((uint32_t)e->draft_rows_host[i].pos >= key.n_kv)
            key.n_kv = (uint32_t)e->draft_rows_host[i].pos + 1;
    }
    TRY(dev_step_begin(e->d, &key, &done, err));
    if (done) return MICA_OK;
    mica_status st = model_draft_forward(e->m, s, err);
    mica_status end = dev_step_end(e->d, st == MICA_OK, st == MICA_OK ? err : NULL);
    return st != MICA_OK ? st : end;
}

static mica_status forward(engine *e, const model_step *s, const row_info *rows, mica_error *err) {
    dev_step key = {.n_row = s->n_row, .n_prompt = s->n_prompt, .n_out = s->n_out, .n_run = s->n_run};
    bool done;
    key.n_out_prompt = s->n_out_prompt;
    for (uint32_t i = 0; i < s->n_row; i++) {
        if ((uint32_t)rows[i].pos >= key.n_kv) key.n_kv = (uint32_t)rows[i].pos + 1;
    }
    TRY(dev_step_begin(e->d, &key, &done, err));
    if (done) return MICA_OK;
    mica_status st = model_forward(e->m, s, err);
    mica_status end = dev_step_end(e->d, st == MICA_OK, st == MICA_OK ? err : NULL);
    return st != MICA_OK ? st : end;
}

/* Uploads rows and runs the draft block; n_prompt of them are prompt role. */
static mica_status run_draft(engine *e, const draft_row *rows, uint32_t n, uint32_t n_prompt, bool chain,
                             mica_error *err) {
    model_step t = step_of(e);
    draft_step s = {.rows = e->draft_rows, .h_row = e->h_rows, .kv = e->kv, .pages = t.pages[KV_GROUP_FULL]};
    s.logits = e->logits;
    s.out_rows = e->out_rows;
    s.chain = chain;
    s.n_row = n;
    s.n_prompt = n_prompt;
    for (uint32_t i = 0; i < n; i++) {
        e->draft_rows_host[i] =
            (row_info){.tok = rows[i].tok, .seq = rows[i].seq, .pos = rows[i].pos, .out = -1};
        e->h_rows_host[i] = rows[i].h_row;
        if (rows[i].h_row == DRAFT_KEPT && !chain) {
            e->h_rows_host[i] = (int32_t)e->row_max + rows[i].seq;
            TRY(model_draft_recall(e->m, &t, rows[i].seq, err));
        }
        if (rows[i].want) e->out_rows_host[s.n_out++] = (int32_t)i;
    }
    TRY(dev_upload(e->d, e->draft_rows, e->draft_rows_host, n * sizeof *e->draft_rows_host, err));
    TRY(dev_upload(e->d, e->h_rows, e->h_rows_host, n * sizeof *e->h_rows_host, err));
    if (s.n_out)
        TRY(dev_upload(e->d, e->out_rows, e->out_rows_host, s.n_out * sizeof *e->out_rows_host, err));
    TRY(forward_draft(e, &s, err));
    if (s.n_out == 0) return MICA_OK;
    return dev_download(e->d, e->logits_host, e->logits,
                        (size_t)s.n_out * model_shape_of(e->m)->n_vocab * sizeof(float), err);
}

mica_status engine_draft(engine *e, const draft_row *rows, uint32_t n, bool chain, mica_error *err) {
    assert(e->draft && n > 0 && n <= e->row_max);
    TRY(run_draft(e, rows, n, 0, chain, err));
    return dev_sync(e->d, err);
}

/* The draft block reads the prompt too, a token behind: row q pairs its token with the output of position q
 * - 1. */
static mica_status draft_prompt(engine *e, const row_info *rows, uint32_t n_run, uint32_t n_prompt,
                                mica_error *err) {
    model_step t = step_of(e);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_run && e->runs_host[i].row0 < n_prompt; i++) {
        const row_run *r = &e->runs_host[i];
        for (uint32_t k = r->row0; k < r->row0 + r->n_row; k++) {
            if (rows[k].pos == 0) continue;
            e->pairs[n++] = (draft_row){.tok = rows[k].tok,
                                        .seq = r->seq,
                                        .pos = rows[k].pos - 1,
                                        .h_row = k == r->row0 ? DRAFT_KEPT : (int32_t)k - 1};
        }
    }
    if (n) TRY(run_draft(e, e->pairs, n, n, false, err));
    for (uint32_t i = 0; i < n_run && e->runs_host[i].row0 < n_prompt; i++) {
        const row_run *r = &e->runs_host[i];
        TRY(model_draft_keep(e->m, &t, r->seq, r->row0 + r->n_row - 1, err));
    }
    return MICA_OK;
}

bool engine_has_state(const engine *e) {
    return e->state != NULL;
}

size_t engine_state_bytes(const engine *e) {
    return (size_t)model_shape_of(e->m)->state_floats * sizeof(float);
}

mica_status engine_state_save(engine *e, int32_t seq, void *host, mica_error *err) {
    size_t n = engine_state_bytes(e);
    assert(e->logs[seq].n_commit == 0);
    return n ? dev_download(e->d, host, (char *)e->state + (size_t)seq * n, n, err) : MICA_OK;
}

mica_status engine_state_load(engine *e, int32_t seq, const void *host, mica_error *err) {
    size_t n = engine_state_bytes(e);
    e->logs[seq].n_commit = 0;
    if (n == 0) return MICA_OK;
    char *at = (char *)e->state + (size_t)seq * n;
    return host ? dev_upload(e->d, at, host, n, err) : dev_zero(e->d, at, n, err);
}

mica_status engine_state_region(engine *e, int32_t seq, engine_region_fn *fn, void *user, mica_error *err) {
    size_t n = engine_state_bytes(e);
    e->logs[seq].n_commit = 0;
    return n ? fn(user, (char *)e->state + (size_t)seq * n, n, err) : MICA_OK;
}

mica_status engine_step(engine *e, const row_info *rows, uint32_t n_row, uint32_t n_prompt, mica_error *err) {
    assert(n_row > 0 && n_row <= e->row_max && n_prompt <= n_row);
    uint32_t n_vocab = model_shape_of(e->m)->n_vocab;
    model_step s = step_of(e);
    s.n_row = n_row;
    s.n_prompt = n_prompt;
    for (uint32_t ir = 0; ir < n_row; ir++) {
        assert(rows[ir].seq >= 0 && (uint32_t)rows[ir].seq < e->n_seq && (uint32_t)rows[ir].pos < e->p.n_ctx);
        assert(rows[ir].tok >= 0 && (uint32_t)rows[ir].tok < n_vocab);
        if (rows[ir].out < 0) continue;
        assert((uint32_t)rows[ir].out == s.n_out && s.n_out < e->out_max);
        e->out_rows_host[s.n_out++] = (int32_t)ir;
        s.n_out_prompt += ir < n_prompt;
    }
    s.n_run = build_runs(e, rows, n_row, n_prompt);
    mark_seen(e, rows, n_row);
    e->n_step++; // also of a step that fails: it has written over the rows of the one before
    TRY(dev_upload(e->d, e->rows, rows, n_row * sizeof *rows, err));
    TRY(dev_upload(e->d, e->runs, e->runs_host, s.n_run * sizeof *e->runs_host, err));
    if (s.n_out)
        TRY(dev_upload(e->d, e->out_rows, e->out_rows_host, s.n_out * sizeof *e->out_rows_host, err));
    TRY(forward(e, &s, rows, err));
    settle_runs(e, s.n_run);
    if (s.n_out)
        TRY(dev_download(e->d, e->logits_host, e->logits, (size_t)s.n_out * n_vocab * sizeof(float), err));
    if (e->draft && n_prompt) TRY(draft_prompt(e, rows, s.n_run, n_prompt, err));
    if (gguf_changed(e->g, err))
        return MICA_E_IO; // its pages may have been zeros: the step counts for nothing
    TRY(dev_sync(e->d, err));
    tiers_step(e->t, n_row);
    return MICA_OK;
}

const float *engine_logits(const engine *e, uint32_t out) {
    return e->logits_host + (size_t)out * model_shape_of(e->m)->n_vocab;
}
