/* From options to a file: shape, plan, report, then tensor after tensor in chunks of whole rows. */
#include "eval/synth.h"

#include "base/mem.h"
#include "base/num.h"
#include "eval/synth_int.h"
#include "quant/quant.h"

#include <inttypes.h>

enum { CHUNK_BYTES = 1 << 20 };

typedef struct job {
    const mica_synth_options *o;
    synth_plan *p;
    gguf_writer *w;
    uint8_t *buf; // owned; whole rows of at least one tensor
    uint64_t done_bytes, total_bytes;
} job;

/* ---- values that are not blocks ---- */

/* Wavelengths beyond the old context turn slower by the factor, those well within it keep their speed. */
static double llama3_factor(const synth_shape *s, uint64_t i) {
    const double old = 8192, low = 1, high = 4, factor = s->rope_factor;
    double wave = 6.283185307179586 * pow(s->theta, 2.0 * (double)i / s->hd);
    if (wave < old / high) return 1;
    if (wave > old / low) return factor;
    double smooth = (old / wave - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
}

static void fill_floats(const job *j, const synth_tensor *t, float *y, synth_rng *r) {
    for (uint64_t i = 0; i < t->shape[3]; i++) {
        double x = 0;
        switch (t->fill) {
        case SYNTH_FILL_GAUSS: x = t->a + t->b * synth_rng_gauss(r); break;
        case SYNTH_FILL_UNIFORM: x = t->a + (t->b - t->a) * synth_rng_unit(r); break;
        case SYNTH_FILL_LLAMA3: x = llama3_factor(j->p->s, i); break;
        case SYNTH_FILL_GEMMA4: x = i < t->shape[3] / 4 ? 1 : 1e30; break;
        case SYNTH_FILL_ROUTER: x = t->a * synth_rng_gauss(r); break;
        case SYNTH_FILL_WEIGHT: break;
        }
        if (t->flip && synth_rng_next(r) & 1) x = -x;
        if (t->has_first && i % j->p->s->embd == 0) x = t->first;
        y[i] = (float)x;
    }
}

/* Column 0: each expert's preference, -skew ln(1 + rank) less the mean, the ranks dealt out at random.
 * Through the softmax this is Zipf's law. */
static void skew_router(const job *j, const synth_tensor *t, float *y, synth_rng *r) {
    uint64_t n = t->shape[2], n_col = t->shape[3];
    double mean = 0;
    for (uint64_t e = 0; e < n; e++) {
        double x = -j->p->skew * log(1.0 + (double)e);
        y[e * n_col] = (float)x;
        mean += x / (double)n;
    }
    for (uint64_t e = n - 1; e > 0; e--) {
        uint64_t k = synth_rng_next(r) % (e + 1);
        float swap = y[e * n_col];
        y[e * n_col] = y[k * n_col];
        y[k * n_col] = swap;
    }
    for (uint64_t e = 0; e < n; e++) y[e * n_col] -= (float)mean;
}

/* ---- rows ---- */

/* Channel 0 of each row becomes the constant; the rest of its block keeps its values as far as the type can.
 */
static mica_status set_first(const synth_tensor *t, uint8_t *row, uint64_t n_row, size_t row_bytes,
                             mica_error *err) {
    const gguf_type_info *type = gguf_type_get((uint32_t)t->type);
    size_t n = type->block > 32 ? type->block : 32;
    float x[256];
    for (uint64_t i = 0; i < n_row; i++, row += row_bytes) {
        quant_decode(x, row, t->type, n);
        memset(x, 0, 32 * sizeof *x);
        x[0] = (float)t->first;
        if (!quant_encode(row, x, t->type, n))
            return fail(err, MICA_E_UNSUPPORTED, "synth: router skew: embeddings of type %s cannot carry it",
                        type->name);
    }
    return MICA_OK;
}

static mica_status write_tensor(job *j, const synth_tensor *t, mica_error *err) {
    const gguf_type_info *type = gguf_type_get((uint32_t)t->type);
    uint64_t row_bytes = gguf_row_bytes(type, t->shape[3]), n_row = t->shape[1] * t->shape[2];
    uint64_t step = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes : 1;
    synth_rng r = synth_rng_of(j->o->seed, t->name);
    double scale = t->fill == SYNTH_FILL_WEIGHT ? t->a / synth_plan_rms(j->p, t->type) : 0;
    if (t->fill == SYNTH_FILL_ROUTER) step = n_row; // its column 0 is one permutation; buffer_bytes made room
    for (uint64_t ir = 0; ir < n_row; ir += step) {
        uint64_t n = n_row - ir < step ? n_row - ir : step;
        if (t->fill == SYNTH_FILL_WEIGHT) {
            synth_blocks(j->buf, t->type, n * (t->shape[3] / type->block), scale, &r);
            if (t->has_first) TRY(set_first(t, j->buf, n, (size_t)row_bytes, err));
        } else {
            for (uint64_t i = 0; i < n; i++) fill_floats(j, t, (float *)(void *)(j->buf + i * row_bytes), &r);
        }
        if (t->fill == SYNTH_FILL_ROUTER && j->p->skew > 0) skew_router(j, t, (float *)(void *)j->buf, &r);
        TRY(gguf_writer_data(j->w, j->buf, n * row_bytes, err));
        j->done_bytes += n * row_bytes;
        if (j->o->progress) j->o->progress(j->o->progress_user, "write", j->done_bytes, j->total_bytes);
        if (j->o->cancel && j->o->cancel->set) return fail(err, MICA_E_CANCELLED, "synth: write: cancelled");
    }
    return MICA_OK;
}

static uint64_t buffer_bytes(const synth_plan *p) {
    uint64_t n = CHUNK_BYTES;
    for (size_t i = 0; i < p->n; i++) {
        const synth_tensor *t = &p->t[i];
        uint64_t need = gguf_row_bytes(gguf_type_get((uint32_t)t->type), t->shape[3]);
        if (t->fill == SYNTH_FILL_ROUTER) need = t->size_bytes;
        if (need > n) n = need;
    }
    return n;
}

/* ---- all ---- */

static void make_report(const synth_plan *p, synth_report *out) {
    double token = 0;
    for (size_t i = 0; i < p->n; i++) {
        const synth_tensor *t = &p->t[i];
        out->n_param += t->shape[1] * t->shape[2] * t->shape[3];
        out->data_bytes += t->size_bytes;
        out->type_bytes[t->type] += t->size_bytes;
        token += t->token_share * (double)t->size_bytes;
    }
    out->n_tensor = p->n;
    out->token_bytes = (uint64_t)llround(token);
}

static mica_status write_model(job *j, const char *path, const gguf_file *vocab, synth_report *out,
                               mica_error *err) {
    mica_status st = MICA_OK;
    TRY(gguf_writer_open(&j->w, path, 32, err));
    TRY_GOTO(synth_meta_write(j->w, j->p, j->o, vocab, err), done);
    for (size_t i = 0; i < j->p->n; i++) {
        const synth_tensor *t = &j->p->t[i];
        gguf_tensor entry = {.name = t->name, .type = t->type, .n_dim = t->n_dim};
        memcpy(entry.shape, t->shape, sizeof entry.shape);
        TRY_GOTO(gguf_writer_tensor(j->w, &entry, err), done);
    }
    uint64_t n_buf = buffer_bytes(j->p);
    j->buf = mem_alloc((size_t)n_buf);
    if (!j->buf) {
        st = fail(err, MICA_E_NOMEM, "synth: buffer of %" PRIu64 " bytes: out of memory", n_buf);
        goto done;
    }
    for (size_t i = 0; i < j->p->n; i++) TRY_GOTO(write_tensor(j, &j->p->t[i], err), done);
    out->file_bytes = gguf_writer_total_bytes(j->w);
    TRY_GOTO(gguf_writer_finish(j->w, err), done);
done:
    gguf_writer_close(j->w);
    mem_free(j->buf);
    return st;
}

/* The file's tokenizer decides how many tokens the model has. */
static mica_status open_vocab(gguf_file **out, synth_shape *s, const char *path, mica_error *err) {
    const gguf_value *tokens;
    TRY(gguf_open(out, path, err));
    TRY(gguf_need_array(*out, "tokenizer.ggml.tokens", GGUF_OF_STR, GGUF_ANY_COUNT, &tokens, err));
    if (gguf_value_count(tokens) == 0 || gguf_value_count(tokens) > 1 << 28)
        return fail(err, MICA_E_FORMAT, "%s: key 'tokenizer.ggml.tokens': has %" PRIu64 " elements",
                    gguf_name(*out), gguf_value_count(tokens));
    s->vocab = (uint32_t)gguf_value_count(tokens);
    return MICA_OK;
}

mica_status synth_write(const mica_synth_options *o, const char *path, synth_report *out, mica_error *err) {
    mica_status st = MICA_OK;
    gguf_file *vocab = NULL;
    synth_shape s;
    synth_plan p = {.s = &s, .q = synth_quant_find(o->quant), .skew = o->router_skew};
    synth_report report = {0};
    if (out) *out = report;
    TRY(synth_shape_make(&s, o, err));
    if (!p.q)
        return fail(err, MICA_E_ARG, "synth %s: no mixture of types '%s'", o->preset,
                    o->quant ? o->quant : "");
    if (o->vocab_path) TRY_GOTO(open_vocab(&vocab, &s, o->vocab_path, err), done);
    TRY_GOTO(synth_plan_make(&p, err), done);
    make_report(&p, &report);
    job j = {.o = o, .p = &p, .total_bytes = report.data_bytes};
    if (!o->dry_run) TRY_GOTO(write_model(&j, path, vocab, &report, err), done);
    if (out) *out = report;
done:
    synth_plan_fini(&p);
    gguf_close(vocab);
    return st;
}
