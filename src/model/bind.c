/* The binder: keys and tensors of a file by name, checked, and put on the device. */
#include "model/model_int.h"

#include "quant/quant.h"

#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static const char *key_of(const model *m, const char *name, char buf[96]) {
    snprintf(buf, 96, "%s.%s", m->shape.arch, name);
    return buf;
}

mica_status model_key_u32(const model *m, const char *name, uint32_t min, uint32_t max, uint32_t *out,
                          mica_error *err) {
    char key[96];
    uint64_t v = 0;
    TRY(gguf_need_u64(m->file, key_of(m, name, key), min, max, &v, err));
    *out = (uint32_t)v;
    return MICA_OK;
}

mica_status model_key_u32_or(const model *m, const char *name, uint32_t max, uint32_t *inout,
                             mica_error *err) {
    char key[96];
    uint64_t v = *inout;
    TRY(gguf_get_u64(m->file, key_of(m, name, key), 0, max, &v, err));
    *inout = (uint32_t)v;
    return MICA_OK;
}

mica_status model_key_eps(const model *m, float *out, mica_error *err) {
    char key[96];
    double v = 0;
    TRY(gguf_need_f64(m->file, key_of(m, "attention.layer_norm_rms_epsilon", key), 0, 1e30, &v, err));
    *out = (float)v;
    return MICA_OK;
}

mica_status model_key_f32_or(const model *m, const char *name, float *inout, mica_error *err) {
    char key[96];
    double v = *inout;
    TRY(gguf_get_f64(m->file, key_of(m, name, key), -1e30, 1e30, &v, err));
    *inout = (float)v;
    return MICA_OK;
}

mica_status model_key_bool_or(const model *m, const char *name, bool *inout, mica_error *err) {
    char key[96];
    return gguf_get_bool(m->file, key_of(m, name, key), inout, err);
}

mica_status model_key_layers(const model *m, const char *name, uint32_t max, uint32_t n_layer, uint32_t *out,
                             mica_error *err) {
    char key[96];
    const gguf_value *v = gguf_find(m->file, key_of(m, name, key));
    if (!v) return MICA_OK;
    if (gguf_value_kind(v) != GGUF_KIND_ARRAY) {
        uint32_t one;
        TRY(model_key_u32(m, name, 0, max, &one, err));
        for (uint32_t i = 0; i < n_layer; i++) out[i] = one;
        return MICA_OK;
    }
    if (gguf_value_count(v) < n_layer)
        return fail(err, MICA_E_FORMAT, "%s: key %s: %llu values for %u layers", gguf_name(m->file), key,
                    (unsigned long long)gguf_value_count(v), n_layer);
    for (uint32_t i = 0; i < n_layer; i++) {
        uint64_t u;
        if (!gguf_value_at_u64(v, i, &u) || u > max)
            return fail(err, MICA_E_FORMAT, "%s: key %s: item %u: not an integer up to %u",
                        gguf_name(m->file), key, i, max);
        out[i] = (uint32_t)u;
    }
    return MICA_OK;
}

mica_status model_key_u64s(const model *m, const char *name, uint32_t n, uint64_t *out, mica_error *err) {
    char key[96];
    const gguf_value *v;
    TRY(gguf_need_array(m->file, key_of(m, name, key), GGUF_OF_INT, GGUF_ANY_COUNT, &v, err));
    if (gguf_value_count(v) < n)
        return fail(err, MICA_E_FORMAT, "%s: key %s: %llu values, expected %u", gguf_name(m->file), key,
                    (unsigned long long)gguf_value_count(v), n);
    for (uint32_t i = 0; i < n; i++) {
        if (!gguf_value_at_u64(v, i, &out[i]))
            return fail(err, MICA_E_FORMAT, "%s: key %s: item %u: negative", gguf_name(m->file), key, i);
    }
    return MICA_OK;
}

mica_status model_keys_common(model *m, uint32_t *n_block, mica_error *err) {
    model_shape *s = &m->shape;
    TRY(model_key_u32(m, "block_count", 1, MODEL_LAYER_MAX, n_block, err));
    TRY(model_key_u32(m, "context_length", 1, 1u << 30, &s->n_ctx_train, err));
    TRY(model_key_u32(m, "embedding_length", 1, 1u << 20, &s->n_embd, err));
    TRY(model_key_u32_or(m, "expert_count", 1u << 16, &s->n_expert, err));
    TRY(model_key_u32_or(m, "expert_used_count", 1u << 16, &s->n_expert_used, err));
    if (s->n_expert && (s->n_expert_used == 0 || s->n_expert_used > s->n_expert))
        return fail(err, MICA_E_FORMAT, "%s: key %s.expert_used_count: %u of %u experts", gguf_name(m->file),
                    s->arch, s->n_expert_used, s->n_expert);
    const gguf_tensor *embd = gguf_tensor_find(m->file, "token_embd.weight");
    if (!embd) return fail(err, MICA_E_FORMAT, "%s: tensor token_embd.weight: missing", gguf_name(m->file));
    if (embd->shape[2] < 1 || embd->shape[2] > 1u << 24)
        return fail(err, MICA_E_FORMAT, "%s: tensor token_embd.weight: %llu rows", gguf_name(m->file),
                    (unsigned long long)embd->shape[2]);
    s->n_vocab = (uint32_t)embd->shape[2];
    s->n_layer = *n_block;
    return MICA_OK;
}

/* ---- tensors ---- */

static void name_of(char buf[128], int layer, const char *name) {
    if (layer < 0)
        snprintf(buf, 128, "%s", name);
    else
        snprintf(buf, 128, "blk.%d.%s", layer, name);
}

static const gguf_tensor *take(model *m, const char *name) {
    const gguf_tensor *t = gguf_tensor_find(m->file, name);
    if (t) m->used[t->index] = 1;
    return t;
}

void model_tensor_ignore(model *m, int layer, const char *name) {
    char full[128];
    name_of(full, layer, name);
    take(m, full);
}

bool model_tensor_exists(const model *m, int layer, const char *name) {
    char full[128];
    name_of(full, layer, name);
    return gguf_tensor_find(m->file, full) != NULL;
}

static mica_status missing(const model *m, const char *name, mica_error *err) {
    return fail(err, MICA_E_FORMAT, "%s: tensor %s: missing", gguf_name(m->file), name);
}

static mica_status check_shape(const model *m, const gguf_tensor *t, uint64_t n_stack, uint64_t n_row,
                               uint64_t n_col, mica_error *err) {
    if (t->shape[0] == 1 && t->shape[1] == n_stack && t->shape[2] == n_row && t->shape[3] == n_col)
        return MICA_OK;
    return fail(err, MICA_E_FORMAT,
                "%s: tensor %s: shape [%llu, %llu, %llu, %llu], expected [%llu, %llu, %llu]",
                gguf_name(m->file), t->name, (unsigned long long)t->shape[0], (unsigned long long)t->shape[1],
                (unsigned long long)t->shape[2], (unsigned long long)t->shape[3], (unsigned long long)n_stack,
                (unsigned long long)n_row, (unsigned long long)n_col);
}

static mica_status check_weight_type(const model *m, const gguf_tensor *t, mica_error *err) {
    gguf_type_class c = gguf_type_get(t->type)->cls;
    if (c == GGUF_CLASS_FLOAT || (c == GGUF_CLASS_QUANT && t->shape[3] % 32 == 0)) return MICA_OK;
    return fail(err, MICA_E_UNSUPPORTED, "%s: tensor %s: type %s: not a weight type", gguf_name(m->file),
                t->name, gguf_type_get(t->type)->name);
}

static mica_status check_vector_type(const model *m, const gguf_tensor *t, mica_error *err) {
    if (gguf_type_get(t->type)->cls == GGUF_CLASS_FLOAT) return MICA_OK;
    return fail(err, MICA_E_UNSUPPORTED, "%s: tensor %s: type %s for a vector", gguf_name(m->file), t->name,
                gguf_type_get(t->type)->name);
}

/* The values of t, each times factor, as f32 on the device. */
static mica_status vector_convert(model *m, const float **v, const gguf_tensor *t, float factor,
                                  mica_error *err) {
    size_t n = (size_t)(t->shape[1] * t->shape[2] * t->shape[3]);
    float *host = mem_alloc(n * sizeof *host);
    void *p = NULL;
    mica_status st = MICA_OK;
    if (!host) return fail(err, MICA_E_NOMEM, "%s: tensor %s: out of memory", gguf_name(m->file), t->name);
    quant_decode(host, t->data, t->type, n);
    for (size_t i = 0; i < n; i++) host[i] = host[i] * factor;
    TRY_GOTO(dev_alloc(m->d, &p, n * sizeof *host, t->name, err), done);
    m->owned[m->n_owned++] = p;
    TRY_GOTO(dev_upload(m->d, p, host, n * sizeof *host, err), done);
    *v = p;
done:
    mem_free(host);
    return st;
}

/* The f32 values of t on the device: as they are when the file has f32, else decoded once. */
static mica_status vector_put(model *m, const float **v, const gguf_tensor *t, mica_error *err) {
    *v = NULL;
    TRY(check_vector_type(m, t, err));
    if (!m->d) return MICA_OK;
    if (t->type == GGUF_F32 && ((uintptr_t)t->data & 3) == 0)
        return dev_bind(m->d, (const void **)v, t->data, t->size_bytes, err);
    return vector_convert(m, v, t, 1.0f, err);
}

/* "<base>.scale" or "<base>.weight.scale", "<base>.bias"; name ends in ".weight" or is a bare base. */
static mica_status companions(model *m, weight_ref *w, const char *name, uint32_t n_scale, mica_error *err) {
    char base[128], full[160];
    snprintf(base, sizeof base, "%s", name);
    char *dot = strstr(base, ".weight");
    if (dot) *dot = 0;
    static const char *const suffix[2] = {".scale", ".weight.scale"};
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%s%s", base, suffix[i]);
        const gguf_tensor *t = gguf_tensor_find(m->file, full);
        if (!t || check_shape(m, t, 1, 1, n_scale, NULL) != MICA_OK)
            continue; // the family's own, for it to ask for
        take(m, full);
        TRY(vector_put(m, &w->scale, t, err));
    }
    snprintf(full, sizeof full, "%s.bias", base);
    const gguf_tensor *bias = n_scale == 1 ? take(m, full) : NULL;
    if (bias) {
        TRY(check_shape(m, bias, 1, 1, w->n_row, err));
        TRY(vector_put(m, &w->bias, bias, err));
    }
    snprintf(full, sizeof full, "%s.input_scale",
             base); // a hint for quantised activations: ours have their own rule
    take(m, full);
    return MICA_OK;
}

/* The tensor `want` names, its shape checked; *t NULL: missing and optional. full gets its whole name. */
static mica_status find(model *m, const gguf_tensor **t, char full[128], const tensor_want *want,
                        mica_error *err) {
    name_of(full, want->layer, want->name);
    *t = take(m, full);
    if (!*t) return want->need == MODEL_OPTIONAL ? MICA_OK : missing(m, full, err);
    return check_shape(m, *t, 1, want->n_row, want->n_col, err);
}

mica_status model_matrix(model *m, weight_ref *w, tensor_want want, mica_error *err) {
    char full[128];
    const gguf_tensor *t;
    *w = (weight_ref){.n_row = want.n_row, .n_col = want.n_col};
    TRY(find(m, &t, full, &want, err));
    if (!t) return MICA_OK;
    TRY(check_weight_type(m, t, err));
    w->type = t->type;
    w->w = t->data;
    dev_limits *l = &m->shape.limits;
    if (want.n_col > l->n_col) l->n_col = want.n_col;
    if (want.n_row > l->n_out) l->n_out = want.n_row;
    if (m->d) TRY(dev_bind(m->d, &w->w, t->data, t->size_bytes, err));
    return companions(m, w, full, 1, err);
}

mica_status model_table(model *m, weight_ref *w, tensor_want want, uint32_t n_read, mica_error *err) {
    char full[128];
    name_of(full, want.layer, want.name);
    *w = (weight_ref){.n_row = want.n_row, .n_col = want.n_col};
    const gguf_tensor *t = take(m, full);
    if (!t) return missing(m, full, err);
    if (t->shape[0] != 1 || t->shape[1] != 1 || t->shape[2] < want.n_row || t->shape[3] != want.n_col)
        return fail(err, MICA_E_FORMAT, "%s: tensor %s: %llu rows of %llu, expected at least %u of %u",
                    gguf_name(m->file), full, (unsigned long long)t->shape[2],
                    (unsigned long long)t->shape[3], want.n_row, want.n_col);
    TRY(check_weight_type(m, t, err));
    w->type = t->type;
    w->w = t->data;
    m->table = t;
    m->n_table_row = n_read;
    if (m->d) gguf_advise(m->file, t->data, t->size_bytes, GGUF_ADVISE_RANDOM);
    return MICA_OK;
}

mica_status model_vector(model *m, const float **v, tensor_want want, mica_error *err) {
    char full[128];
    const gguf_tensor *t;
    *v = NULL;
    TRY(find(m, &t, full, &want, err));
    return t ? vector_put(m, v, t, err) : MICA_OK;
}

mica_status model_vector_scaled(model *m, const float **v, tensor_want want, float factor, mica_error *err) {
    char full[128];
    const gguf_tensor *t;
    *v = NULL;
    TRY(find(m, &t, full, &want, err));
    if (!t) return MICA_OK;
    TRY(check_vector_type(m, t, err));
    return m->d ? vector_convert(m, v, t, factor, err) : MICA_OK;
}

mica_status model_vector_host(model *m, float *out, tensor_want want, bool *found, mica_error *err) {
    char full[128];
    const gguf_tensor *t;
    *found = false;
    TRY(find(m, &t, full, &want, err));
    if (!t) return MICA_OK;
    TRY(check_vector_type(m, t, err));
    quant_decode(out, t->data, t->type, (size_t)want.n_row * want.n_col);
    *found = true;
    return MICA_OK;
}

/* ---- experts ---- */

mica_status model_experts_open(model *m, uint32_t n_layer, mica_error *err) {
    if (m->experts) return MICA_OK; // bind runs twice
    return store_new(&m->experts, m->file, n_layer, m->shape.n_expert, err);
}

/* One stack [n_expert, n_row, n_col]; *t stays NULL when it is missing and optional. */
static mica_status stack_take(model *m, const gguf_tensor **t, weight_ref *w, tensor_want want,
                              mica_error *err) {
    char full[128];
    name_of(full, want.layer, want.name);
    *w = (weight_ref){.n_row = want.n_row, .n_col = want.n_col};
    *t = take(m, full);
    if (!*t) return want.need == MODEL_OPTIONAL ? MICA_OK : missing(m, full, err);
    TRY(check_shape(m, *t, m->shape.n_expert, want.n_row, want.n_col, err));
    TRY(check_weight_type(m, *t, err));
    w->type = (*t)->type;
    if (want.n_col > m->shape.limits.n_col) m->shape.limits.n_col = want.n_col;
    return companions(m, w, full, m->shape.n_expert, err);
}

static size_t matrix_bytes(const weight_ref *w) {
    return (size_t)gguf_row_bytes(gguf_type_get(w->type), w->n_col) * w->n_row;
}

mica_status model_experts_bind(model *m, moe_weights *w, int layer, uint32_t n_ff, mica_error *err) {
    const model_shape *s = &m->shape;
    const gguf_tensor *gate, *up = NULL, *down;
    weight_ref fused;
    TRY(model_matrix(m, &w->router,
                     (tensor_want){layer, "ffn_gate_inp.weight", s->n_expert, s->n_embd, MODEL_NEEDED}, err));
    TRY(stack_take(m, &gate, &fused,
                   (tensor_want){layer, "ffn_gate_up_exps.weight", 2 * n_ff, s->n_embd, MODEL_OPTIONAL},
                   err));
    if (gate) {
        fused.n_row = n_ff;
        w->gate = w->up = fused;
    } else {
        TRY(stack_take(m, &gate, &w->gate,
                       (tensor_want){layer, "ffn_gate_exps.weight", n_ff, s->n_embd, MODEL_NEEDED}, err));
        TRY(stack_take(m, &up, &w->up,
                       (tensor_want){layer, "ffn_up_exps.weight", n_ff, s->n_embd, MODEL_NEEDED}, err));
    }
    TRY(stack_take(m, &down, &w->down,
                   (tensor_want){layer, "ffn_down_exps.weight", s->n_embd, n_ff, MODEL_NEEDED}, err));
    store_layer_set(m->experts, (uint32_t)layer, gate, up, down);
    dev_limits *l = &m->shape.limits;
    l->n_expert = s->n_expert;
    l->n_expert_used = s->n_expert_used;
    l->n_embd = s->n_embd;
    if (n_ff > l->n_ff_expert) l->n_ff_expert = n_ff;
    dev_expert_shape *shape = &m->shape.experts[layer];
    *shape = (dev_expert_shape){.layer = (uint32_t)layer, .n_expert = s->n_expert};
    shape->gate_bytes = matrix_bytes(&w->gate);
    shape->up_bytes = matrix_bytes(&w->up);
    shape->down_bytes = matrix_bytes(&w->down);
    return m->d ? dev_experts_bind(m->d, shape, err) : MICA_OK;
}
