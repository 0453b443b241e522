/* Plain, linearly scaled, factor-scaled (Llama 3.1, proportional) and YaRN frequencies.
 * YaRN: arXiv:2309.00071 section 3.2; the ramp and its clamps as docs/MODELS.md states them. */
#include "model/rope.h"

#include "base/exactf.h"

#include <math.h>
#include <stdio.h>

mica_status rope_spec_read(const model *m, rope_spec *r, uint32_t n_rot_default, mica_error *err) {
    *r = (rope_spec){.n_rot = n_rot_default, .base = 10000.0f, .freq_scale = 1.0f, .attn_factor = 1.0f};
    r->beta_fast = 32.0f;
    r->beta_slow = 1.0f;
    r->n_ctx_orig = m->shape.n_ctx_train;
    float factor = 0.0f;
    char key[96];
    slice type = SLICE_LIT("linear");
    TRY(model_key_u32_or(m, "rope.dimension_count", 4096, &r->n_rot, err));
    TRY(model_key_f32_or(m, "rope.freq_base", &r->base, err));
    TRY(model_key_f32_or(m, "rope.scale_linear", &factor, err));
    TRY(model_key_f32_or(m, "rope.scaling.factor", &factor, err));
    TRY(model_key_f32_or(m, "rope.scaling.attn_factor", &r->attn_factor, err));
    TRY(model_key_f32_or(m, "rope.scaling.yarn_beta_fast", &r->beta_fast, err));
    TRY(model_key_f32_or(m, "rope.scaling.yarn_beta_slow", &r->beta_slow, err));
    TRY(model_key_u32_or(m, "rope.scaling.original_context_length", 1u << 30, &r->n_ctx_orig, err));
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->shape.arch);
    TRY(gguf_get_str(m->file, key, &type, err));
    if (r->n_rot % 2 != 0 || r->n_rot == 0 || !(r->base > 0.0f))
        return fail(err, MICA_E_FORMAT, "%s: rope: %u rotary dimensions, base %g", gguf_name(m->file),
                    r->n_rot, (double)r->base);
    if (slice_is(type, "none") || factor == 0.0f) return MICA_OK;
    r->freq_scale = 1.0f / factor;
    if (slice_is(type, "yarn"))
        r->ext_factor = 1.0f;
    else if (!slice_is(type, "linear"))
        return fail(err, MICA_E_UNSUPPORTED, "%s: key %s: %.*s: not none, linear or yarn", gguf_name(m->file),
                    key, (int)(type.n < 40 ? type.n : 40), type.p);
    return MICA_OK;
}

/* The dimension whose wavelength turns `turns` times within the original context. */
static double yarn_dim(const rope_spec *r, double turns) {
    const double pi = 3.14159265358979323846;
    return r->n_rot * exactd_log(r->n_ctx_orig / (turns * 2.0 * pi)) / (2.0 * exactd_log(r->base));
}

float rope_inv_freq(double *inv_freq, const rope_spec *r) {
    double low = 0, high = 0;
    if (r->ext_factor > 0.0f) {
        low = floor(yarn_dim(r, r->beta_fast));
        high = ceil(yarn_dim(r, r->beta_slow));
        if (low < 0) low = 0;
        if (high > r->n_rot - 1) high = r->n_rot - 1;
    }
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        double plain = exactd_pow(r->base, -2.0 * i / r->n_rot);
        if (r->factors) plain = plain / r->factors[i];
        double scaled = plain * r->freq_scale;
        double width = high - low > 0.001 ? high - low : 0.001, t = (i - low) / width;
        double keep = r->ext_factor > 0.0f ? (1.0 - (t < 0 ? 0 : t > 1 ? 1 : t)) * r->ext_factor : 0.0;
        inv_freq[i] = scaled * (1.0 - keep) + plain * keep;
    }
    if (r->ext_factor <= 0.0f) return r->attn_factor;
    return r->attn_factor * (float)(1.0 + 0.1 * exactd_log(1.0 / r->freq_scale));
}

mica_status rope_bind(model *m, rope *r, const rope_spec *spec, mica_error *err) {
    r->n_rot = spec->n_rot;
    if (!m->d) return MICA_OK;
    double inv_freq[2048];
    r->mscale = rope_inv_freq(inv_freq, spec);
    void *p;
    size_t n_bytes = spec->n_rot / 2 * sizeof(double);
    TRY(dev_alloc(m->d, &p, n_bytes, "rope frequencies", err));
    m->owned[m->n_owned++] = p;
    r->inv_freq = p;
    return dev_upload(m->d, p, inv_freq, n_bytes, err);
}

void rope_carve(rope *r, carver *c, uint32_t n_row) {
    r->cs = carve_f32(c, (size_t)n_row * r->n_rot);
}

mica_status rope_step(model *m, rope *r, const model_step *s, mica_error *err) {
    return dev_rope_table(m->d,
                          &(rope_table_args){.cs = r->cs,
                                             .inv_freq = r->inv_freq,
                                             .rows = s->rows,
                                             .n_row = s->n_row,
                                             .n_pair = r->n_rot / 2,
                                             .mscale = r->mscale},
                          err);
}
