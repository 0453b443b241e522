/* mica_model_load: file, vocabulary, template, engine; and what a model says of itself. */
#include "run/api_int.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mica_status mica_guard_files(mica_error *err) {
    return gguf_guard_install(err);
}

const char *mica_version(void) {
    return MICA_VERSION;
}

/* ---- options ---- */

/* "hip:0": the kind and which card. */
static bool parse_card(engine_config *c, const char *name) {
    static const struct {
        const char *prefix;
        dev_kind kind;
    } kinds[] = {{"hip:", DEV_HIP}, {"cuda:", DEV_CUDA}, {"sim:", DEV_SIM}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].prefix);
        char *end;
        if (strncmp(name, kinds[i].prefix, n) != 0 || name[n] < '0' || name[n] > '9') continue;
        long card = strtol(name + n, &end, 10);
        if (*end || card > 999) return false;
        c->dev = kinds[i].kind;
        c->card = (int)card;
        return true;
    }
    return false;
}

static mica_status parse_device(engine_config *c, const char *name, mica_error *err) {
    char why[240];
    c->dev = DEV_CPU;
    if (name && strcmp(name, "cpu") == 0) return MICA_OK;
    if (!name || strcmp(name, "auto") == 0) {
        dev_choose(&c->dev, &c->card, why, sizeof why);
        if (c->dev == DEV_CPU && why[0]) log_info("device", "%s; running on the CPU", why);
        return MICA_OK;
    }
    if (strcmp(name, "ref") == 0) {
        c->dev = DEV_REF;
        return MICA_OK;
    }
    if (parse_card(c, name)) return MICA_OK;
    if (strchr(name, ',')) return fail(err, MICA_E_ARG, "device: %s: one device at a time", name);
    return fail(err, MICA_E_DEVICE, "device: %s: not one of auto, cpu, ref, hip:N, cuda:N, sim:N", name);
}

static mica_status parse_isa(engine_config *c, const char *name, mica_error *err) {
    c->isa = cpu_isa_best();
    if (!name) return MICA_OK;
    cpu_isa want;
    if (!cpu_isa_parse(&want, name))
        return fail(err, MICA_E_ARG, "isa: %s: not one of scalar, avx2, avx512", name);
    if (want > c->isa)
        return fail(err, MICA_E_DEVICE, "isa: %s: this processor has %s at most", name, cpu_isa_name(c->isa));
    c->isa = want;
    return MICA_OK;
}

mica_status api_engine_config(engine_config *c, const mica_load_options *o, mica_error *err) {
    *c = (engine_config){.n_ctx = o->n_ctx, .ram_bytes = o->ram_bytes, .draft = !o->no_draft};
    c->cache_bytes = o->cache_bytes;
    c->vram_bytes = o->vram_bytes;
    c->vram_reserve = o->vram_reserve;
    c->trace_path = o->trace_path;
    c->profile_path = o->profile_path;
    c->experts_ram = (plan_experts_ram)o->experts_ram; // the same order
    TRY(parse_device(c, o->device, err));
    TRY(parse_isa(c, o->isa, err));
    cpu_topology topo;
    cpu_topology_get(&topo);
    c->n_thread = o->n_thread ? o->n_thread : topo.n_default;
    c->n_seq = o->n_seq ? o->n_seq : 1;
    c->n_ubatch = o->n_ubatch ? o->n_ubatch : 512;
    c->kv = o->kv == MICA_KV_F32 ? KV_F32 : o->kv == MICA_KV_I8 ? KV_I8 : KV_F16;
    if (c->n_thread < 1 || c->n_thread > 1024)
        return fail(err, MICA_E_ARG, "threads: %d: must be between 1 and 1024", c->n_thread);
    if (c->n_seq > 4096) return fail(err, MICA_E_ARG, "parallel: %u: at most 4096", c->n_seq);
    if (c->n_ubatch > 65536) return fail(err, MICA_E_ARG, "ubatch: %u: at most 65536", c->n_ubatch);
    if (c->n_ctx > 1u << 30) return fail(err, MICA_E_ARG, "context: %u: at most %u", c->n_ctx, 1u << 30);
    return MICA_OK;
}

/* ---- info ---- */

static float default_f32(const gguf_file *g, const char *key, float fallback) {
    double v;
    return gguf_value_f64(gguf_find(g, key), &v) && isfinite(v) ? (float)v : fallback;
}

/* The file's own sampling values (general.sampling.*) where it has them. */
static void default_sampling(mica_sampling *s, const gguf_file *g) {
    uint64_t k;
    *s = (mica_sampling){.top_k = 40, .penalty_last_n = 64};
    if (gguf_value_u64(gguf_find(g, "general.sampling.top_k"), &k) && k < INT32_MAX) s->top_k = (int32_t)k;
    s->temperature = default_f32(g, "general.sampling.temp", 0.8f);
    s->top_p = default_f32(g, "general.sampling.top_p", 0.95f);
    s->min_p = default_f32(g, "general.sampling.min_p", 0.05f);
    s->repeat_penalty = default_f32(g, "general.sampling.penalty_repeat", 1.0f);
    if (s->temperature < 0.0f) s->temperature = 0.8f;
    if (!(s->repeat_penalty > 0.0f)) s->repeat_penalty = 1.0f;
}

/* The type that holds most bytes: what people call the file. */
static const char *main_type(const gguf_file *g) {
    uint64_t bytes[GGUF_TYPE_N] = {0};
    int best = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        bytes[gguf_tensor_at(g, i)->type] += gguf_tensor_at(g, i)->size_bytes;
    for (int t = 0; t < GGUF_TYPE_N; t++) {
        if (bytes[t] > bytes[best]) best = t;
    }
    return gguf_type_get((uint32_t)best)->name;
}

static void copy_str(char *dst, size_t n, const gguf_file *g, const char *key, const char *fallback) {
    slice s;
    if (!gguf_value_str(gguf_find(g, key), &s)) s = slice_of(fallback);
    snprintf(dst, n, "%.*s", (int)(s.n < n ? s.n : n - 1), s.p);
}

static void fill_info(mica_model *m, const engine_config *c) {
    mica_model_info *i = &m->info;
    copy_str(m->name, sizeof m->name, m->g, "general.name", gguf_name(m->g));
    copy_str(m->arch, sizeof m->arch, m->g, "general.architecture", "");
    snprintf(m->file_type, sizeof m->file_type, "%s", main_type(m->g));
    i->name = m->name;
    i->arch = m->arch;
    i->file_type = m->file_type;
    i->device = "none";
    i->file_bytes = gguf_total_bytes(m->g);
    i->n_vocab = (uint32_t)text_vocab_n(m->vocab);
    i->bos = text_vocab_special(m->vocab, TEXT_BOS);
    i->eos = text_vocab_special(m->vocab, TEXT_EOS);
    i->has_template = chat_template_check(m->chat, NULL) == MICA_OK;
    if (i->has_template) {
        const chat_format *format = &chat_template_abilities(m->chat, false)->format;
        i->think_begin = format->think_begin;
        i->think_end = format->think_end;
    }
    default_sampling(&i->sampling, m->g);
    if (!m->e) return;
    const model_shape *s = engine_shape(m->e);
    const plan *p = engine_plan_of(m->e);
    i->device = engine_device(m->e);
    i->n_param = s->n_param;
    i->bytes_per_token = s->bytes_per_token;
    i->n_layer = s->n_layer;
    i->n_embd = s->n_embd;
    i->n_vocab = s->n_vocab;
    i->n_ctx_train = s->n_ctx_train;
    i->n_ctx = p->n_ctx;
    i->n_seq = c->n_seq;
    i->n_ubatch = c->n_ubatch;
    i->n_expert = s->n_expert;
    i->has_draft = s->has_draft && c->draft;
    i->n_expert_used = s->n_expert_used;
    i->weights_bytes = s->weight_bytes;
    i->on_card = p->card[0] != 0;
    if (i->on_card) {
        i->weights_bytes =
            p->item[PLAN_VRAM][PLAN_WEIGHTS].n_bytes + p->item[PLAN_VRAM][PLAN_EXPERTS].n_bytes;
        i->beside_bytes = p->item[PLAN_RAM][PLAN_EXPERTS].n_bytes;
    }
    plan_tier tier = p->card[0] ? PLAN_VRAM : PLAN_RAM;
    i->kv_bytes = p->item[tier][PLAN_KV].n_bytes;
    i->scratch_bytes = p->item[tier][PLAN_SCRATCH].n_bytes;
}

/* ---- what only an encoder of images or sounds could fill ---- */

static const char *const g_media[API_MEDIA_MAX] = {
    "<|image_pad|>",      "<|video_pad|>",      "<|audio_pad|>", // Qwen
    "<image_soft_token>", "<audio_soft_token>",                  // Gemma 3
    "<|image|>",          "<|video|>",          "<|audio|>"};    // Gemma 4

static void find_media(mica_model *m) {
    for (size_t i = 0; i < API_MEDIA_MAX; i++) {
        int32_t id = text_vocab_find(m->vocab, slice_of(g_media[i]));
        if (id >= 0) m->media[m->n_media++] = id;
    }
}

mica_status api_check_media(const mica_model *m, const int32_t *ids, size_t n, mica_error *err) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < m->n_media; k++) {
            if (ids[i] != m->media[k]) continue;
            slice s = text_vocab_bytes(m->vocab, ids[i]);
            return fail(err, MICA_E_UNSUPPORTED,
                        "prompt: token %zu is %.*s: images, video and sound are not read: text alone", i,
                        (int)s.n, s.p);
        }
    }
    return MICA_OK;
}

/* ---- load ---- */

/* "auto" chose a card that cannot take this model: the CPU can. */
static mica_status open_somewhere(mica_model *m, engine_config *c, const mica_load_options *o,
                                  mica_error *err) {
    mica_error why;
    bool chosen = (!o->device || strcmp(o->device, "auto") == 0) && c->dev != DEV_CPU;
    mica_status st = engine_open(&m->e, c, chosen ? &why : err);
    if (!chosen || st == MICA_OK) return st;
    if (st != MICA_E_FIT && st != MICA_E_NOMEM && st != MICA_E_DEVICE && st != MICA_E_UNSUPPORTED) {
        if (err) *err = why;
        return st;
    }
    log_info("device", "%s; running on the CPU", why.text);
    c->dev = DEV_CPU;
    return engine_open(&m->e, c, err);
}

static void tell_progress(void *user, uint64_t done, uint64_t total) {
    const mica_load_options *o = user;
    o->progress(o->progress_user, "load", done, total);
}

/* The embedding may have rows past the vocabulary (padding), never fewer than tokens. */
static mica_status open_engine(mica_model *m, engine_config *c, const mica_load_options *o, mica_error *err) {
    c->g = m->g;
    if (o->cancel && o->cancel->set) return fail(err, MICA_E_CANCELLED, "load: cancelled");
    if (o->progress) {
        c->loaded = tell_progress;
        c->loaded_user = (void *)(uintptr_t)o; // read, not written
    }
    TRY(open_somewhere(m, c, o, err));
    uint32_t n_row = engine_shape(m->e)->n_vocab, n_tok = (uint32_t)text_vocab_n(m->vocab);
    if (n_tok > n_row)
        return fail(err, MICA_E_FORMAT, "%s: %u tokens, but token_embd.weight has %u rows", gguf_name(m->g),
                    n_tok, n_row);
    TRY(sampler_new(&m->pick, n_row, err));
    size_t n_suppress;
    const int32_t *suppress = text_vocab_suppressed(m->vocab, &n_suppress);
    sampler_suppress(m->pick, suppress, n_suppress);
    if (o->cache_bytes) {
        uint64_t disk_bytes = o->disk_bytes ? o->disk_bytes : 4 * o->cache_bytes;
        TRY(prefix_new(&m->cache, m->e, o->cache_bytes, m->state_dir, disk_bytes, err));
    }
    m->slots = mem_calloc(c->n_seq, sizeof *m->slots);
    m->batch = mem_calloc(c->n_seq, sizeof *m->batch);
    m->parts = mem_calloc(c->n_seq, sizeof *m->parts);
    m->draft = mem_calloc(c->n_seq, sizeof *m->draft);
    m->work = mem_calloc(c->n_seq, sizeof *m->work);
    if (!m->slots || !m->batch || !m->parts || !m->draft || !m->work)
        return fail(err, MICA_E_NOMEM, "model: out of memory");
    if (o->n_ctx > engine_shape(m->e)->n_ctx_train)
        log_warn("load", "context of %u tokens: the model was made for %u", o->n_ctx,
                 engine_shape(m->e)->n_ctx_train);
    return MICA_OK;
}

mica_status mica_model_load(mica_model **out, const mica_load_options *opt, mica_error *err) {
    *out = NULL;
    engine_config c;
    mica_status st = MICA_OK;
    if (!opt->path || !opt->path[0]) return fail(err, MICA_E_ARG, "model: no path");
    TRY(api_engine_config(&c, opt, err));
    mica_model *m = mem_calloc(1, sizeof *m);
    if (!m) return fail(err, MICA_E_NOMEM, "model: out of memory");
    if (opt->progress) opt->progress(opt->progress_user, "load", 0, 3);
    TRY_GOTO(gguf_open(&m->g, opt->path, err), done);
    if (opt->draft_path) TRY_GOTO(model_draft_join(m->g, opt->draft_path, err), done);
    if (opt->progress) opt->progress(opt->progress_user, "load", 1, 3);
    TRY_GOTO(text_vocab_new(&m->vocab, m->g, err), done);
    TRY_GOTO(chat_template_new(&m->chat, m->g, m->vocab, err), done);
    find_media(m);
    if (opt->progress) opt->progress(opt->progress_user, "load", 2, 3);
    if (opt->state_dir && !(m->state_dir = mem_strdup(opt->state_dir))) {
        st = fail(err, MICA_E_NOMEM, "model: out of memory");
        goto done;
    }
    if (!opt->text_only) TRY_GOTO(open_engine(m, &c, opt, err), done);
    m->n_thread = c.n_thread;
    fill_info(m, &c);
    if (opt->progress) opt->progress(opt->progress_user, "load", 3, 3);
    *out = m;
    m = NULL;
done:
    mica_model_free(m);
    return st;
}

void mica_model_free(mica_model *m) {
    if (!m) return;
    sampler_free(m->pick);
    prefix_free(m->cache);
    engine_close(m->e);
    chat_template_free(m->chat);
    text_vocab_free(m->vocab);
    gguf_close(m->g);
    mem_free(m->state_dir);
    mem_free(m->slots);
    mem_free(m->batch);
    mem_free(m->parts);
    mem_free(m->draft);
    mem_free(m->work);
    mem_free(m);
}

void mica_model_get_info(const mica_model *m, mica_model_info *out) {
    tiers_total t = {0};
    *out = m->info;
    if (m->e) engine_tiers(m->e, &t);
    out->expert_hit_rate = t.n_use ? (double)t.n_hit / (double)t.n_use : 1.0;
    out->link_bytes_per_token = t.n_row ? t.link_bytes / t.n_row : 0;
}

mica_status api_needs_weights(const mica_model *m, mica_error *err) {
    if (m->e) return MICA_OK;
    return fail(err, MICA_E_ARG, "model: loaded for its text alone (text_only)");
}
