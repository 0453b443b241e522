/* Inverse frequencies of rotary embeddings, on the host, in double (docs/ARITHMETIC.md rule 9;
 * docs/MODELS.md, rope). */
#ifndef MICA_MODEL_ROPE_H
#define MICA_MODEL_ROPE_H

#include "model/model_int.h"

typedef struct rope_spec {
    uint32_t n_rot;
    float base;
    float freq_scale;     // 1 / factor of linear scaling, else 1
    const float *factors; // [n_rot / 2] divide the angle, or NULL; borrowed for the call
    float ext_factor;     // > 0: YaRN
    float attn_factor, beta_fast, beta_slow;
    uint32_t n_ctx_orig;
} rope_spec;

/* Reads rope.* keys of the architecture. factors is left NULL. */
mica_status rope_spec_read(const model *m, rope_spec *r, uint32_t n_rot_default, mica_error *err);
/* inv_freq[n_rot / 2]: angle of position p and pair i is p * inv_freq[i]. Returns the factor on cos and sin.
 */
float rope_inv_freq(double *inv_freq, const rope_spec *r);

/* A table on the device and the call that fills cos and sin of a step from it. */
typedef struct rope {
    const double *inv_freq; // [n_rot / 2], device
    float *cs;              // [n_row, n_rot / 2, 2], slot of the step's scratch
    uint32_t n_rot;
    float mscale;
} rope;
mica_status rope_bind(model *m, rope *r, const rope_spec *spec,
                      mica_error *err); // does nothing before the device is known
void rope_carve(rope *r, carver *c, uint32_t n_row);
mica_status rope_step(model *m, rope *r, const model_step *s, mica_error *err);
#endif
