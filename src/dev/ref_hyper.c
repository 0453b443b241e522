/* Hyper-connections, defined: docs/ARITHMETIC.md rule 13. */
#include "dev/dev_ref.h"
#include "dev/ref_math.h"

#include <string.h>

mica_status ref_group_norm(dev *d, const group_norm_args *a, mica_error *err) {
    (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        const float *x = a->x + (size_t)(a->row_of ? (uint32_t)a->row_of[r] : r) * a->ld_x;
        for (uint32_t g = 0; g < a->n_group; g++) {
            size_t at = (size_t)g * a->n_col;
            ref_rms(act_x(&a->y, r) + (size_t)g * a->ld_group, x + at, a->w + at, a->n_col, a->eps);
        }
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->y, a->n_row, a->n_group * a->n_col, "norm");
    return MICA_OK;
}

mica_status ref_silu(dev *d, const silu_args *a, mica_error *err) {
    (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        const float *x = a->x + (size_t)r * a->n_col;
        float *h = act_x(&a->h, r);
        for (uint32_t i = 0; i < a->n_col; i++) h[i] = exactf_silu(x[i] / a->div);
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->h, a->n_row, a->n_col, "silu");
    return MICA_OK;
}

mica_status ref_spread(dev *d, const spread_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        const float *y = a->y + (size_t)(a->row_of ? (uint32_t)a->row_of[r] : r) * a->ld_y;
        for (uint32_t g = 0; g < a->n_group; g++)
            memcpy(a->x + ((size_t)r * a->n_group + g) * a->ld_x, y, a->n_col * sizeof(float));
    }
    return MICA_OK;
}

mica_status ref_hyper_read(dev *d, const hyper_read_args *a, mica_error *err) {
    (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        const float *xn = a->xn + (size_t)r * a->ld_xn, *gate = a->gate + (size_t)r * a->n_stream * a->n_col;
        float *m = act_x(&a->m, r);
        for (uint32_t i = 0; i < a->n_col; i++) {
            float sum = 0.0f;
            for (uint32_t s = 0; s < a->n_stream; s++) {
                size_t at = (size_t)s * a->n_col + i;
                sum = fmaf(exactf_sigmoid(gate[at]), xn[at], sum);
            }
            m[i] = sum / (float)a->n_stream;
        }
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->m, a->n_row, a->n_col, "streams");
    return MICA_OK;
}

mica_status ref_hyper_write(dev *d, const hyper_write_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        const float *y = a->y + (size_t)r * a->n_col;
        for (uint32_t s = 0; s < a->n_stream; s++) {
            float *x = a->x + ((size_t)r * a->n_stream + s) * a->n_col;
            float b = 2.0f * exactf_sigmoid(a->inject[(size_t)r * a->n_stream + s] / (float)a->n_stream);
            for (uint32_t i = 0; i < a->n_col; i++) x[i] = fmaf(b, y[i], x[i]);
        }
    }
    return MICA_OK;
}

mica_status ref_add(dev *d, const add_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint64_t i = 0; i < a->n; i++) a->x[i] = a->x[i] + (a->a[i] + a->b[i]);
    return MICA_OK;
}
