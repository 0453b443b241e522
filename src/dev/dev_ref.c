/* The scalar definition of every operation of the seam: one thread, plain loops, in the order of
 * docs/ARITHMETIC.md.
 *
 * Every other device must give these bits. So nothing here is tiled, blocked or clever; where a rule of that
 * page and this file disagree, one of them is a bug. Attention is in ref_attn.c and
 * ref_index.c, streams in ref_hyper.c, recurrence in ref_delta.c, n-gram rows in ref_ngram.c; products are
 * quant_ops_get(CPU_SCALAR). */
#include "dev/dev_ref.h"

#include "base/mem.h"
#include "dev/ref_math.h"

#include <stdio.h>

static void ref_close(dev *d) {
    ref_dev *r = (ref_dev *)d;
    mem_free(r->scratch);
    mem_free(r);
}

static mica_status ref_sync(dev *d, mica_error *err) {
    ref_dev *r = (ref_dev *)d;
    const char *bad = r->not_finite;
    r->not_finite = NULL;
    if (bad) return fail(err, MICA_E_DEVICE, "step: %s: a value is not finite", bad);
    return MICA_OK;
}

void ref_quantise(ref_dev *r, const quant_act *a, uint32_t n_row, uint32_t n_col, const char *what) {
    if (!r->q->act_rows(a, 0, n_row, n_col)) r->not_finite = what;
}

static mica_status ref_embed(dev *d, const embed_args *a, mica_error *err) {
    (void)d, (void)err;
    const weight_ref *t = &a->table;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        float *x = a->x + (size_t)ir * t->n_col;
        const char *row = (const char *)t->w + (size_t)(uint32_t)a->rows[ir].tok * weight_row_bytes(t);
        quant_decode(x, row, (gguf_type)t->type, t->n_col);
        for (uint32_t i = 0; i < t->n_col; i++) x[i] = x[i] * a->scale;
    }
    return MICA_OK;
}

static mica_status ref_norm(dev *d, const norm_args *a, mica_error *err) {
    (void)err;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        uint32_t from = a->row_of ? (uint32_t)a->row_of[ir] : ir;
        ref_rms(act_x(&a->y, ir), a->x + (size_t)from * a->ld_x, a->w, a->n_col, a->eps);
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->y, a->n_row, a->n_col, "norm");
    return MICA_OK;
}

static mica_status ref_quantise_rows(dev *d, const quantise_args *a, mica_error *err) {
    (void)err;
    ref_quantise((ref_dev *)d, &a->a, a->n_row, a->n_col, "activations");
    return MICA_OK;
}

static mica_status ref_add_norm(dev *d, const add_norm_args *a, mica_error *err) {
    (void)err;
    float *y = ((ref_dev *)d)->scratch;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        float *x = a->x + (size_t)ir * a->n_col;
        ref_rms(y, a->y + (size_t)ir * a->n_col, a->w, a->n_col, a->eps);
        for (uint32_t i = 0; i < a->n_col; i++) x[i] = x[i] + y[i];
    }
    return MICA_OK;
}

void ref_product(ref_dev *r, float *y, const weight_ref *w, const quant_act *a, uint32_t row, bool prompt) {
    size_t row_bytes = weight_row_bytes(w);
    if (prompt)
        r->q->prompt[w->type](y, w->n_row, w->w, row_bytes, a, row, 1, w->n_row, w->n_col, r->panel);
    else
        r->q->token[w->type](y, w->n_row, w->w, row_bytes, a, row, 1, w->n_row, w->n_col);
}

/* y = (add ? y : 0) + ((v * scale) + bias), each step only when it is asked for. */
static void finish_product(float *y, const float *v, const weight_ref *w, uint32_t add) {
    for (uint32_t o = 0; o < w->n_row; o++) {
        float t = v[o];
        if (w->scale) t = t * w->scale[0];
        if (w->bias) t = t + w->bias[o];
        y[o] = add ? y[o] + t : t;
    }
}

static mica_status ref_linear(dev *d, const linear_args *a, mica_error *err) {
    (void)err;
    ref_dev *r = (ref_dev *)d;
    for (uint32_t k = 0; k < a->n_out; k++) {
        const linear_out *o = &a->out[k];
        for (uint32_t ir = 0; ir < a->n_row; ir++) {
            ref_product(r, r->scratch, &o->w, &a->a, ir, ir < a->n_prompt);
            finish_product(o->y + (size_t)ir * o->ld_y, r->scratch, &o->w, o->add);
        }
    }
    return MICA_OK;
}

static mica_status ref_rope_table(dev *d, const rope_table_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        float *cs = a->cs + (size_t)ir * a->n_pair * 2;
        for (uint32_t i = 0; i < a->n_pair; i++) {
            exactd_sc t = exactd_sincos((double)a->rows[ir].pos * a->inv_freq[i]);
            cs[2 * i] = (float)t.cos * a->mscale;
            cs[2 * i + 1] = (float)t.sin * a->mscale;
        }
    }
    return MICA_OK;
}

static mica_status ref_glu(dev *d, const glu_args *a, mica_error *err) {
    (void)err;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        float *h = act_x(&a->h, ir);
        const float *g = a->gate + (size_t)ir * a->ld, *u = a->up + (size_t)ir * a->ld;
        for (uint32_t i = 0; i < a->n_col; i++) {
            float t = a->kind == GLU_SILU ? exactf_silu(g[i]) : exactf_gelu(g[i]);
            h[i] = t * u[i];
        }
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->h, a->n_row, a->n_col, "glu");
    return MICA_OK;
}

/* The expert of the largest logit that is not among ids[0..k), the lower index first among equals (rule 10).
 */
static int32_t next_best(const float *l, uint32_t n_expert, const int32_t *ids, uint32_t k) {
    int32_t best = -1;
    for (uint32_t e = 0; e < n_expert; e++) {
        bool taken = false;
        for (uint32_t j = 0; j < k; j++) taken |= ids[j] == (int32_t)e;
        if (!taken && (best < 0 || l[e] > l[best])) best = (int32_t)e;
    }
    return best;
}

/* Selection, then softmax over the chosen: the same as softmax over all and renormalising, without the sum
 * over all. */
static mica_status ref_router(dev *d, const router_args *a, mica_error *err) {
    (void)err;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        const float *l = a->logits + (size_t)ir * a->n_expert;
        int32_t *ids = a->ids + (size_t)ir * a->n_used;
        float *w = a->weights + (size_t)ir * a->n_used, sum = 0.0f;
        for (uint32_t k = 0; k < a->n_used; k++) {
            ids[k] = next_best(l, a->n_expert, ids, k);
            w[k] = exactf_exp(l[ids[k]] - l[ids[0]]);
            sum = sum + w[k];
            if (!(l[ids[k]] - l[ids[k]] == 0.0f)) ((ref_dev *)d)->not_finite = "router";
        }
        for (uint32_t k = 0; k < a->n_used; k++) {
            w[k] = w[k] / sum;
            if (a->scale != 0.0f && a->scale != 1.0f) w[k] = w[k] * a->scale;
        }
    }
    return MICA_OK;
}

/* out = (down(act(gate a) * up a)) of one expert for one row; each product times the stack's scale of that
 * expert. */
static mica_status one_expert(ref_dev *r, const experts_args *a, uint32_t ir, uint32_t e, float *out,
                              mica_error *err) {
    expert_lease lease;
    TRY(r->experts->acquire(r->experts, a->layer, e, &lease, err));
    bool prompt = ir < a->n_prompt;
    weight_ref gate = a->gate, up = a->up, down = a->down;
    gate.w = lease.gate;
    up.w = lease.up;
    down.w = lease.down;
    uint32_t n_ff = gate.n_row;
    float *g = r->scratch, *u = g + n_ff, *h = act_x(&r->hidden, 0);
    ref_product(r, g, &gate, &a->a, ir, prompt);
    ref_product(r, u, &up, &a->a, ir, prompt);
    for (uint32_t i = 0; i < n_ff; i++) {
        float gi = gate.scale ? g[i] * gate.scale[e] : g[i], ui = up.scale ? u[i] * up.scale[e] : u[i];
        h[i] = (a->kind == GLU_SILU ? exactf_silu(gi) : exactf_gelu(gi)) * ui;
    }
    if (gguf_type_get(down.type)->cls == GGUF_CLASS_QUANT) ref_quantise(r, &r->hidden, 1, n_ff, "expert");
    ref_product(r, out, &down, &r->hidden, 0, prompt);
    for (uint32_t i = 0; down.scale && i < down.n_row; i++) out[i] = out[i] * down.scale[e];
    r->experts->release(r->experts, &lease);
    return MICA_OK;
}

static mica_status ref_experts(dev *d, const experts_args *a, mica_error *err) {
    ref_dev *r = (ref_dev *)d;
    uint32_t n_embd = a->down.n_row;
    float *out = r->scratch + 2 * (size_t)a->gate.n_row, *sum = out + n_embd;
    if (r->routed) r->routed(r->routed_user, a->layer, a->ids, a->n_row * a->n_used);
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        for (uint32_t i = 0; i < n_embd; i++) sum[i] = 0.0f;
        for (uint32_t k = 0; k < a->n_used; k++) {
            size_t at = (size_t)ir * a->n_used + k;
            TRY(one_expert(r, a, ir, (uint32_t)a->ids[at], out, err));
            for (uint32_t i = 0; i < n_embd; i++) sum[i] = fmaf(a->weights[at], out[i], sum[i]);
        }
        float *y = a->y + (size_t)ir * n_embd;
        for (uint32_t i = 0; i < n_embd; i++) y[i] = a->add ? y[i] + sum[i] : sum[i];
    }
    return MICA_OK;
}

static mica_status ref_softcap(dev *d, const softcap_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint64_t i = 0; i < a->n; i++) a->y[i] = a->cap * exactf_tanh(a->y[i] / a->cap);
    return MICA_OK;
}

static mica_status ref_scale(dev *d, const scale_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint64_t i = 0; i < a->n; i++) a->x[i] = a->x[i] * a->s[0];
    return MICA_OK;
}

static const dev_ops g_ref_ops = {
    .name = "ref",
    .close = ref_close,
    .alloc = host_alloc,
    .release = host_release,
    .bind = host_bind,
    .experts_bind = host_experts_bind,
    .experts_take = host_experts_take,
    .experts_fill = host_experts_fill,
    .experts_move = host_experts_move,
    .experts_moved = host_experts_moved,
    .experts_stats = host_experts_stats,
    .step_begin = host_step_begin,
    .step_end = host_step_end,
    .upload = host_upload,
    .download = host_download,
    .copy = host_copy,
    .zero = host_zero,
    .sync = ref_sync,
    .embed = ref_embed,
    .norm = ref_norm,
    .quantise = ref_quantise_rows,
    .add_norm = ref_add_norm,
    .linear = ref_linear,
    .rope_table = ref_rope_table,
    .rope_kv = ref_rope_kv,
    .attn = ref_attn,
    .glu = ref_glu,
    .router = ref_router,
    .experts = ref_experts,
    .conv = ref_conv,
    .delta = ref_delta,
    .gate_norm = ref_gate_norm,
    .gated_add = ref_gated_add,
    .group_norm = ref_group_norm,
    .silu = ref_silu,
    .spread = ref_spread,
    .hyper_read = ref_hyper_read,
    .hyper_write = ref_hyper_write,
    .add = ref_add,
    .index_keys = ref_index_keys,
    .index_select = ref_index_select,
    .ngram = ref_ngram,
    .ngram_gate = ref_ngram_gate,
    .softcap = ref_softcap,
    .scale = ref_scale,
};

/* One block: floats of the widest call, the hidden row of an expert in its four forms, the panel of prompt
 * products. */
mica_status dev_ref_open(dev **out, const dev_config *cfg, mica_error *err) {
    *out = NULL;
    const dev_limits *m = &cfg->limits;
    uint32_t ld = (m->n_ff_expert + 255u) & ~255u;
    size_t n_wide = m->n_out > m->n_col ? m->n_out : m->n_col;
    size_t n_float = n_wide + 2 * (size_t)m->n_ff_expert + 2 * (size_t)m->n_embd + 2 * (size_t)m->d_head +
                     KV_PAGE + 2 * (size_t)m->n_index_keep +
                     (size_t)m->d_head * m->d_head /* a copy of one head's recurrent state */;
    size_t n_act = (size_t)ld * (sizeof(float) + 1) + ld / 32 * 2 * sizeof(float) + ld / 16 * sizeof(float);
    size_t n_panel = quant_prompt_scratch_bytes(m->n_col);
    n_float = (n_float + 15) & ~(size_t)15;
    n_act = (n_act + 63) & ~(size_t)63;
    ref_dev *r = mem_calloc(1, sizeof *r);
    char *block = mem_alloc_aligned(64, n_float * sizeof(float) + n_act + n_panel);
    if (!r || !block) {
        mem_free(r);
        mem_free(block);
        return fail(err, MICA_E_NOMEM, "device ref: scratch: out of memory");
    }
    r->d.ops = &g_ref_ops;
    r->q = quant_ops_get(CPU_SCALAR);
    r->experts = cfg->experts;
    r->routed = cfg->routed;
    r->routed_user = cfg->routed_user;
    r->scratch = (float *)(void *)block;
    float *f = r->scratch + n_float;
    r->hidden = (quant_act){.x = f, .d = f + ld, .s = f + ld + ld / 32, .s16 = f + ld + ld / 16, .ld = ld};
    r->hidden.q = (int8_t *)(f + ld + ld / 8);
    r->panel = block + n_float * sizeof(float) + n_act;
    snprintf(r->d.what, sizeof r->d.what, "scalar definition, 1 thread");
    *out = &r->d;
    return MICA_OK;
}
