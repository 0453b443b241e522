/* The C side of the Python comparisons in tests/arith and tests/quant: a shared object around libmica.a
 * (whose own symbols are hidden), loaded with ctypes. Operations of the seam take their records of
 * kern/args.h as they are; seam.py mirrors those and checks their sizes with shim_sizeof. */
#include "base/exactf.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "gguf/type.h"
#include "quant/quant.h"
#include "run/sample.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- blocks and products ---- */

typedef struct shim_dims {
    int isa, type;
    uint32_t n_act, n_row, n_col;
} shim_dims;

EXPORT int shim_type_block(int type, int *block, int *bytes);
EXPORT void shim_decode(float *dst, const void *src, int type, size_t n);
EXPORT int shim_act_rows(int isa, const quant_act *a, uint32_t n_row, uint32_t n_col);
EXPORT void shim_token(float *y, const void *w, const quant_act *a, const shim_dims *d);
EXPORT int shim_prompt(float *y, const void *w, const quant_act *a, const shim_dims *d);

int shim_type_block(int type, int *block, int *bytes) {
    const gguf_type_info *t = gguf_type_get((uint32_t)type);
    if (!t || (t->cls != GGUF_CLASS_FLOAT && t->cls != GGUF_CLASS_QUANT)) return 0;
    *block = t->block;
    *bytes = t->bytes;
    return 1;
}

void shim_decode(float *dst, const void *src, int type, size_t n) {
    quant_decode(dst, src, (gguf_type)type, n);
}

int shim_act_rows(int isa, const quant_act *a, uint32_t n_row, uint32_t n_col) {
    return quant_ops_get((cpu_isa)isa)->act_rows(a, 0, n_row, n_col);
}

static size_t row_bytes(const shim_dims *d) {
    return (size_t)gguf_row_bytes(gguf_type_get((uint32_t)d->type), d->n_col);
}

/* y is [n_act, n_row]. */
void shim_token(float *y, const void *w, const quant_act *a, const shim_dims *d) {
    const quant_ops *ops = quant_ops_get((cpu_isa)d->isa);
    ops->token[d->type](y, d->n_row, w, row_bytes(d), a, 0, d->n_act, d->n_row, d->n_col);
}

int shim_prompt(float *y, const void *w, const quant_act *a, const shim_dims *d) {
    const quant_ops *ops = quant_ops_get((cpu_isa)d->isa);
    void *scratch = mem_alloc_aligned(64, quant_prompt_scratch_bytes(d->n_col));
    if (!scratch) return 0;
    ops->prompt[d->type](y, d->n_row, w, row_bytes(d), a, 0, d->n_act, d->n_row, d->n_col, scratch);
    mem_free(scratch);
    return 1;
}

/* ---- elementary functions ---- */

EXPORT void shim_exactf(float *y, const float *x, size_t n, int which);
EXPORT void shim_exactd(double *y, const double *x, size_t n, int which);

/* which: exp log sigmoid silu gelu tanh softplus */
void shim_exactf(float *y, const float *x, size_t n, int which) {
    for (size_t i = 0; i < n; i++) {
        switch (which) {
        case 0: y[i] = exactf_exp(x[i]); break;
        case 1: y[i] = exactf_log(x[i]); break;
        case 2: y[i] = exactf_sigmoid(x[i]); break;
        case 3: y[i] = exactf_silu(x[i]); break;
        case 4: y[i] = exactf_gelu(x[i]); break;
        case 5: y[i] = exactf_tanh(x[i]); break;
        default: y[i] = exactf_softplus(x[i]); break;
        }
    }
}

/* which: exp log sin cos */
void shim_exactd(double *y, const double *x, size_t n, int which) {
    for (size_t i = 0; i < n; i++) {
        switch (which) {
        case 0: y[i] = exactd_exp(x[i]); break;
        case 1: y[i] = exactd_log(x[i]); break;
        case 2: y[i] = exactd_sincos(x[i]).sin; break;
        default: y[i] = exactd_sincos(x[i]).cos; break;
        }
    }
}

/* ---- the seam ---- */

/* Experts that lie in three stacks. */
typedef struct shim_source {
    expert_source s; // first
    const char *gate, *up, *down;
    size_t gate_bytes, up_bytes, down_bytes; // of one expert
} shim_source;

static mica_status acquire(expert_source *s, uint32_t layer, uint32_t expert, expert_lease *out,
                           mica_error *err) {
    (void)err;
    const shim_source *x = (const shim_source *)s;
    *out = (expert_lease){.gate = x->gate + expert * x->gate_bytes,
                          .up = x->up + expert * x->up_bytes,
                          .down = x->down + expert * x->down_bytes,
                          .layer = layer,
                          .expert = expert};
    return MICA_OK;
}

static void release(expert_source *s, expert_lease *lease) {
    (void)s, (void)lease;
}

static void will_need(expert_source *s, uint32_t layer, const int32_t *experts, uint32_t n) {
    (void)s, (void)layer, (void)experts, (void)n;
}

EXPORT dev *shim_open(int kind, const dev_limits *limits, shim_source *source);
EXPORT void shim_close(dev *d);
EXPORT size_t shim_sizeof(const char *record);

dev *shim_open(int kind, const dev_limits *limits, shim_source *source) {
    dev *d;
    dev_config cfg = {.kind = (dev_kind)kind, .isa = cpu_isa_best(), .n_thread = 1, .limits = *limits};
    if (source) {
        source->s = (expert_source){acquire, release, will_need};
        cfg.experts = &source->s;
    }
    return dev_open(&d, &cfg, NULL) == MICA_OK ? d : NULL;
}

void shim_close(dev *d) {
    dev_close(d);
}

#define SHIM_RECORDS(X)                                                                                      \
    X(embed)                                                                                                 \
    X(norm) X(add_norm) X(linear) X(rope_table) X(rope_kv) X(attn) X(glu) X(router) X(experts) X(softcap)    \
        X(scale) X(group_norm) X(silu) X(hyper_read) X(hyper_write) X(add) X(conv) X(index_keys)             \
            X(index_select) X(ngram) X(ngram_gate)

/* 0 when the call and the sync after it went well. */
#define SHIM_CALL(op)                                                                                        \
    EXPORT int shim_##op(dev *d, const op##_args *a);                                                        \
    int shim_##op(dev *d, const op##_args *a) {                                                              \
        return dev_##op(d, a, NULL) != MICA_OK || dev_sync(d, NULL) != MICA_OK;                              \
    }
SHIM_RECORDS(SHIM_CALL)

size_t shim_sizeof(const char *record) {
#define SHIM_SIZE(op)                                                                                        \
    if (strcmp(record, #op) == 0) return sizeof(op##_args);
    SHIM_RECORDS(SHIM_SIZE)
    if (strcmp(record, "limits") == 0) return sizeof(dev_limits);
    if (strcmp(record, "sampling") == 0) return sizeof(mica_sampling);
    if (strcmp(record, "sample") == 0) return sizeof(sample_args);
    return 0;
}

/* ---- sampling ---- */

EXPORT int shim_sample(const sample_args *a, uint32_t n_vocab);
EXPORT float shim_uniform(uint64_t seed, uint64_t pos);

/* The token, or -1. */
int shim_sample(const sample_args *a, uint32_t n_vocab) {
    sampler *s;
    int32_t id = -1;
    if (sampler_new(&s, n_vocab, NULL) != MICA_OK) return -1;
    if (sampler_pick(s, a, &id, NULL) != MICA_OK) id = -1;
    sampler_free(s);
    return id;
}

float shim_uniform(uint64_t seed, uint64_t pos) {
    return sample_uniform(seed, pos);
}
