/* mica_inspect, mica_plan, mica_devices: looking without running. */
#include "mica_tools.h"

#include "base/cpu.h"
#include "dev/gpu_drv.h"
#include "eval/report.h"
#include "eval/selftest.h"
#include "gguf/gguf.h"
#include "run/api_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LONG_ARRAY = 8 }; // items shown of an array of metadata

/* ---- inspect ---- */

/* Bytes as a JSON string; what is no UTF-8 is shown with replacement characters. */
static json_t *json_text(slice s) {
    if (utf8_valid(s.p, s.n)) return json_stringn_nocheck(s.p, s.n);
    strbuf b = {0};
    for (size_t i = 0; i < s.n;) {
        int k = utf8_len(s.p + i, s.n - i);
        if (k > 0)
            strbuf_put(&b, s.p + i, (size_t)k);
        else
            strbuf_puts(&b, "\xEF\xBF\xBD");
        i += k > 0 ? (size_t)k : 1;
    }
    json_t *v = json_stringn_nocheck(strbuf_cstr(&b), b.n);
    strbuf_fini(&b);
    return v;
}

static json_t *json_item(const gguf_value *v, uint64_t i) {
    slice s;
    bool yes;
    int64_t n;
    uint64_t u;
    double d;
    switch (gguf_value_elem_kind(v)) {
    case GGUF_KIND_STR: return gguf_value_at_str(v, i, &s) ? json_text(s) : json_null();
    case GGUF_KIND_BOOL: return gguf_value_at_bool(v, i, &yes) ? json_boolean(yes) : json_null();
    case GGUF_KIND_F32:
    case GGUF_KIND_F64: return gguf_value_at_f64(v, i, &d) ? report_real(d) : json_null();
    default:
        if (gguf_value_at_i64(v, i, &n)) return json_integer(n);
        return gguf_value_at_u64(v, i, &u) ? report_real((double)u) : json_null();
    }
}

/* An array longer than LONG_ARRAY is {"count", "type", "first": [...]} unless all of it was asked for. */
static json_t *json_value(const gguf_value *v, bool all) {
    if (gguf_value_kind(v) != GGUF_KIND_ARRAY) return json_item(v, 0);
    uint64_t n = gguf_value_count(v), shown = all || n <= LONG_ARRAY ? n : LONG_ARRAY;
    json_t *list = json_array();
    for (uint64_t i = 0; i < shown; i++) json_array_append_new(list, json_item(v, i));
    if (shown == n) return list;
    return json_pack("{s:I, s:s, s:o}", "count", (json_int_t)n, "type",
                     gguf_kind_name(gguf_value_elem_kind(v)), "first", list);
}

static json_t *json_tensor(const gguf_file *g, const gguf_tensor *t) {
    json_t *shape = json_array();
    for (int i = 4 - t->n_dim; i < 4; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    (void)g;
    return json_pack("{s:s, s:s, s:o, s:I, s:i, s:I}", "name", t->name, "type", gguf_type_get(t->type)->name,
                     "shape", shape, "bytes", (json_int_t)t->size_bytes, "shard", t->shard, "offset",
                     (json_int_t)t->off_bytes);
}

mica_status mica_inspect(char **json, const char *path, bool all, mica_error *err) {
    gguf_file *g;
    slice arch = SLICE_LIT(""), name = SLICE_LIT("");
    uint64_t n_param = 0, alignment = 32;
    *json = NULL;
    TRY(gguf_open(&g, path, err));
    gguf_value_str(gguf_find(g, "general.architecture"), &arch);
    gguf_value_str(gguf_find(g, "general.name"), &name);
    gguf_value_u64(gguf_find(g, "general.alignment"), &alignment);
    json_t *meta = json_object(), *tensors = json_array();
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        slice k = gguf_kv_key(g, i);
        json_object_setn_new_nocheck(meta, k.p, k.n, json_value(gguf_kv_value(g, i), all));
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        n_param += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
        json_array_append_new(tensors, json_tensor(g, t));
    }
    json_t *out = json_pack("{s:s, s:i, s:I, s:I, s:I, s:o, s:o, s:I, s:o, s:o}", "path", path, "version",
                            (int)gguf_version(g), "alignment", (json_int_t)alignment, "shards",
                            (json_int_t)gguf_shard_count(g), "bytes", (json_int_t)gguf_total_bytes(g), "arch",
                            json_text(arch), "name", json_text(name), "parameters", (json_int_t)n_param,
                            "metadata", meta, "tensors", tensors);
    gguf_close(g);
    return report_text(json, out, err);
}

/* ---- plan ---- */

static json_t *json_tier(const plan *p, plan_tier tier) {
    json_t *items = json_array();
    uint64_t used = 0;
    for (int w = 0; w < PLAN_WHAT_N; w++) {
        const plan_item *i = &p->item[tier][w];
        used += i->n_bytes;
        if (i->n_bytes == 0) continue;
        json_array_append_new(items, json_pack("{s:s, s:I, s:I}", "what", plan_what_name[w], "bytes",
                                               (json_int_t)i->n_bytes, "count", (json_int_t)i->count));
    }
    if (tier == PLAN_VRAM)
        return json_pack("{s:s, s:I, s:I, s:I, s:o}", "device", p->card, "total", (json_int_t)p->vram_total,
                         "free", (json_int_t)p->vram_free, "reserve",
                         (json_int_t)(p->vram_free - p->vram_limit), "items", items);
    bool ram = tier == PLAN_RAM;
    uint64_t total = ram ? p->ram_total : used, spare = ram ? p->ram_free : 0;
    uint64_t reserve = ram && p->ram_free > p->ram_limit ? p->ram_free - p->ram_limit : 0;
    return json_pack("{s:s, s:I, s:I, s:I, s:o}", "device", ram ? "cpu" : "ssd", "total", (json_int_t)total,
                     "free", (json_int_t)spare, "reserve", (json_int_t)reserve, "items", items);
}

/* What to change for it to fit, null when nothing is known or needed. */
static json_t *json_near(const plan *p) {
    const plan_near *w = &p->near;
    json_t *o = json_object();
    if (w->n_ctx) json_object_set_new(o, "context", json_integer((json_int_t)w->n_ctx));
    if (w->kv) json_object_set_new(o, "kv", json_string(w->kv));
    if (w->n_ubatch) json_object_set_new(o, "ubatch", json_integer((json_int_t)w->n_ubatch));
    if (w->experts_ram) json_object_set_new(o, "experts_ram", json_string(plan_ram_name[w->experts_ram]));
    if (json_object_size(o) > 0) return o;
    json_decref(o);
    return json_null();
}

static json_t *json_plan(const plan *p) {
    json_t *tiers = json_array();
    if (p->card[0]) json_array_append_new(tiers, json_tier(p, PLAN_VRAM));
    json_array_append_new(tiers, json_tier(p, PLAN_RAM));
    json_array_append_new(tiers, json_tier(p, PLAN_SSD));
    return json_pack("{s:b, s:o, s:{s:I, s:I, s:I, s:I}, s:I, s:o}", "fits", p->fits, "tiers", tiers,
                     "experts", "total", (json_int_t)p->n_expert, "vram", (json_int_t)p->n_expert_vram, "ram",
                     (json_int_t)p->n_expert_ram, "ssd", (json_int_t)p->n_expert_ssd, "context",
                     (json_int_t)p->n_ctx, "nearest", json_near(p));
}

mica_status mica_plan(char **json, const mica_load_options *opt, mica_error *err) {
    engine_config c;
    gguf_file *g;
    plan p;
    *json = NULL;
    if (!opt->path) return fail(err, MICA_E_ARG, "model: no path");
    TRY(api_engine_config(&c, opt, err));
    TRY(gguf_open(&g, opt->path, err));
    c.g = g;
    mica_status st = opt->draft_path ? model_draft_join(g, opt->draft_path, err) : MICA_OK;
    if (st == MICA_OK) st = engine_plan(&p, &c, err);
    gguf_close(g);
    return st == MICA_OK ? report_text(json, json_plan(&p), err) : st;
}

/* ---- devices ---- */

static json_t *json_card(const gpu_card *c) {
    char version[24];
    snprintf(version, sizeof version, "%d", c->drv ? c->drv->code_version : 0);
    json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:b, s:b, s:b}", "id", c->id, "name",
                          c->name, "arch", c->arch, "wave", (json_int_t)c->wave, "vram_total",
                          (json_int_t)c->vram_total, "vram_free", (json_int_t)c->vram_free, "driver", version,
                          "library", c->drv ? c->drv->library : "", "integrated", c->integrated, "display",
                          c->display, "usable", c->usable);
    if (o) json_object_set_new(o, "reason", c->reason[0] ? json_string(c->reason) : json_null());
    return o;
}

static mica_status json_cpu(json_t **out, bool selftest, mica_error *err) {
    cpu_topology topo;
    uint64_t total, spare;
    cpu_topology_get(&topo);
    plan_machine(&total, &spare);
    *out = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:s, s:n, s:b, s:b, s:b, s:n, s:i, s:i}", "id", "cpu",
                     "name", topo.model, "arch", cpu_isa_name(cpu_isa_best()), "wave", 0, "vram_total",
                     (json_int_t)total, "vram_free", (json_int_t)spare, "driver", "none", "library",
                     "integrated", 0, "display", 0, "usable", 1, "reason", "cores", topo.n_physical,
                     "threads", topo.n_default);
    if (!*out) return fail(err, MICA_E_NOMEM, "devices: out of memory");
    if (!selftest) return MICA_OK;
    json_t *rows;
    mica_status st = selftest_run(&rows, err);
    if (st == MICA_OK) json_object_set_new(*out, "selftest", rows);
    return st;
}

mica_status mica_devices(char **json, bool selftest, mica_error *err) {
    gpu_card card[GPU_CARD_MAX];
    json_t *cpu = NULL, *list = json_array();
    *json = NULL;
    mica_status st = json_cpu(&cpu, selftest, err);
    json_array_append_new(list, cpu);
    if (st != MICA_OK) {
        json_decref(list);
        return st;
    }
    size_t n = gpu_card_list(card, GPU_CARD_MAX);
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_card(&card[i]));
    return report_text(json, list, err);
}
