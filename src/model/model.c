/* Opening a network by architecture, accounting for its tensors, carving scratch. */
#include "model/model_int.h"

#include <stdio.h>
#include <string.h>

static const model_family *const g_families[] = {&model_family_llama, &model_family_qwen35,
                                                 &model_family_gemma, &model_family_qwen4exp};

static const model_family *family_find(slice arch) {
    for (size_t i = 0; i < sizeof g_families / sizeof g_families[0]; i++) {
        for (int k = 0; k < 4 && g_families[i]->archs[k]; k++) {
            if (slice_is(arch, g_families[i]->archs[k])) return g_families[i];
        }
    }
    return NULL;
}

/* Every tensor must have been asked for: one we do not know may change what the network computes. */
static mica_status check_all_used(const model *m, mica_error *err) {
    static const char *const encoder[] = {"v.", "a.", "mm."};
    for (size_t i = 0; i < gguf_tensor_count(m->file); i++) {
        if (m->used[i]) continue;
        const char *name = gguf_tensor_at(m->file, i)->name;
        for (size_t k = 0; k < sizeof encoder / sizeof *encoder; k++) {
            if (strncmp(name, encoder[k], strlen(encoder[k])) == 0)
                return fail(err, MICA_E_UNSUPPORTED,
                            "%s: tensor %s: of an image or sound encoder: text alone is read",
                            gguf_name(m->file), name);
        }
        return fail(err, MICA_E_UNSUPPORTED, "%s: tensor %s: unknown in architecture %s", gguf_name(m->file),
                    name, m->shape.arch);
    }
    return MICA_OK;
}

/* Weights a decoded token reads: matrices whole, experts by the share used, one row of embedding tables. */
static void count_weights(model *m) {
    model_shape *s = &m->shape;
    bool tied = !gguf_tensor_find(m->file, "output.weight");
    for (size_t i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        uint64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3], bytes = t->size_bytes;
        s->n_param += n;
        s->weight_bytes += bytes;
        bool table =
            strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "per_layer_token_embd.weight") == 0;
        bool head = table && tied && strcmp(t->name, "token_embd.weight") == 0;
        if (strstr(t->name, "_exps.") && s->n_expert) {
            s->expert_bytes += bytes;
            if (strstr(t->name, "ffn_down_exps.weight")) s->n_expert_all += s->n_expert;
            bytes = bytes / s->n_expert * s->n_expert_used;
        }
        if (table && !head) bytes /= t->shape[2];
        if (t == m->table) {
            s->table_bytes = t->size_bytes;
            bytes *= m->n_table_row;
        }
        s->bytes_per_token += bytes;
    }
}

mica_status model_open(model **out, const gguf_file *g, mica_error *err) {
    *out = NULL;
    slice arch;
    mica_status st = MICA_OK;
    TRY(gguf_need_model(g, &arch, err));
    const model_family *f = family_find(arch);
    if (slice_is(arch, "clip"))
        return fail(err, MICA_E_UNSUPPORTED,
                    "%s: an image or sound encoder (architecture clip): text alone is read", gguf_name(g));
    if (!f)
        return fail(err, MICA_E_UNSUPPORTED, "%s: architecture %.*s: not one this build runs", gguf_name(g),
                    (int)(arch.n < 64 ? arch.n : 64), arch.p);
    model *m = mem_calloc(1, sizeof *m);
    if (!m) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(g));
    m->family = f;
    m->file = g;
    snprintf(m->shape.arch, sizeof m->shape.arch, "%.*s", (int)arch.n, arch.p);
    size_t n_tensor = gguf_tensor_count(g);
    m->used = mem_calloc(n_tensor, 1);
    m->owned = mem_calloc(n_tensor + 4, sizeof *m->owned); // + rope tables
    m->net = mem_calloc(1, f->net_bytes);
    if (!m->used || !m->owned || !m->net) {
        st = fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(g));
        goto done;
    }
    TRY_GOTO(f->shape(m, err), done);
    TRY_GOTO(f->bind(m, err), done);
    TRY_GOTO(check_all_used(m, err), done);
    count_weights(m);
    *out = m;
    m = NULL;
done:
    model_close(m);
    return st;
}

void model_unbind(model *m) {
    if (!m || !m->d) return;
    while (m->n_owned > 0) dev_release(m->d, m->owned[--m->n_owned]);
    m->d = NULL;
}

void model_close(model *m) {
    if (!m) return;
    if (m->net && m->family->fini) m->family->fini(m);
    model_unbind(m);
    store_free(m->experts);
    mem_free(m->owned);
    mem_free(m->used);
    mem_free(m->net);
    mem_free(m);
}

const model_shape *model_shape_of(const model *m) {
    return &m->shape;
}

store *model_store(model *m) {
    return m->experts;
}

expert_source *model_experts(model *m) {
    return m->experts ? store_experts(m->experts) : NULL;
}

mica_status model_bind(model *m, dev *d, mica_error *err) {
    m->d = d;
    return m->family->bind(m, err);
}

size_t model_scratch_bytes(model *m, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    carver c = {0};
    m->family->carve(m, &c, n_row, n_out, n_seq);
    return c.used_bytes;
}

void model_scratch_set(model *m, void *scratch, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    carver c = {.base = scratch};
    m->n_row_max = n_row;
    m->family->carve(m, &c, n_row, n_out, n_seq);
}

mica_status model_forward(model *m, const model_step *step, mica_error *err) {
    return m->family->forward(m, step, err);
}

void model_draft_enable(model *m) {
    m->drafting = m->shape.has_draft;
}

mica_status model_draft_forward(model *m, const draft_step *step, mica_error *err) {
    return m->family->draft(m, step, err);
}

mica_status model_draft_keep(model *m, const model_step *step, int32_t seq, uint32_t row, mica_error *err) {
    return m->family->draft_keep(m, step, seq, row, err);
}

mica_status model_draft_recall(model *m, const model_step *step, int32_t seq, mica_error *err) {
    return m->family->draft_recall(m, step, seq, err);
}

void *carve(carver *c, size_t n_bytes) {
    size_t at = c->used_bytes;
    c->used_bytes += (n_bytes + 63) & ~(size_t)63;
    return c->base ? c->base + at : NULL;
}

float *carve_f32(carver *c, size_t n) {
    return carve(c, n * sizeof(float));
}

/* Strides are odd multiples of 64: rows at a large power of two apart would all want the same few lines of a
 * first cache. */
quant_act carve_act(carver *c, uint32_t n_row, uint32_t n_col) {
    return carve_act_dense(c, n_row, ((n_col + 63u) & ~63u) | 64u);
}

quant_act carve_act_dense(carver *c, uint32_t n_row, uint32_t n_col) {
    uint32_t ld = (n_col + 63u) & ~63u;
    size_t n = (size_t)n_row * ld;
    quant_act a = {.ld = ld};
    a.x = carve_f32(c, n);
    a.q = carve(c, n);
    a.d = carve_f32(c, n / 32);
    a.s = carve_f32(c, n / 32);
    a.s16 = carve_f32(c, n / 16);
    return a;
}

bool model_wants_q(const weight_ref *w) {
    return gguf_type_get(w->type)->cls == GGUF_CLASS_QUANT;
}
