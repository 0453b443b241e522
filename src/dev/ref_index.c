/* Attention with an index, defined: docs/ARITHMETIC.md rule 14. */
#include "dev/dev_ref.h"
#include "dev/ref_math.h"

/* Index key of position p of the run's sequence: from the batch when the run holds it, else from the ring. */
static const float *key_at(const index_keys_args *a, const row_run *run, int32_t p) {
    int32_t first = a->rows[run->row0].pos;
    if (p >= first) return a->k + ((size_t)run->row0 + (uint32_t)(p - first)) * a->d;
    return a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq + (size_t)((uint32_t)p % CONV_RING) * a->d;
}

static bool finite_row(const float *x, uint32_t n) {
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) ok &= x[i] - x[i] == 0.0f;
    return ok;
}

/* The key of the block whose last position is row r's. */
static void block_key(const index_keys_args *a, const row_run *run, uint32_t r, float *key) {
    int32_t first = a->rows[r].pos - (int32_t)a->ratio + 1;
    for (uint32_t i = 0; i < a->d; i++) {
        float sum = key_at(a, run, first)[i];
        for (uint32_t j = 1; j < a->ratio; j++) sum = sum + key_at(a, run, first + (int32_t)j)[i];
        key[i] = sum / (float)a->ratio;
    }
    ref_rms(key, key, a->w, a->d, a->eps);
    for (uint32_t i = 0; i < a->n_rot / 2; i++) {
        exactd_sc t = exactd_sincos((double)first * a->inv_freq[i]);
        float c = (float)t.cos * a->mscale, s = (float)t.sin * a->mscale, x = key[i],
              y = key[i + a->n_rot / 2];
        key[i] = fmaf(x, c, -(y * s));
        key[i + a->n_rot / 2] = fmaf(x, s, y * c);
    }
}

mica_status ref_index_keys(dev *d, const index_keys_args *a, mica_error *err) {
    (void)err;
    for (uint32_t i = 0; i < a->n_run; i++) {
        const row_run *run = &a->runs[i];
        for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) {
            uint32_t n_seen = (uint32_t)a->rows[r].pos + 1;
            if (n_seen % a->ratio != 0) continue;
            float *key = a->index + index_at(&a->pages, run->seq, n_seen / a->ratio - 1, a->ratio) * a->d;
            block_key(a, run, r, key);
            if (!finite_row(key, a->d)) ((ref_dev *)d)->not_finite = "index key";
        }
        for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) {
            float *slot = a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq +
                          (size_t)((uint32_t)a->rows[r].pos % CONV_RING) * a->d;
            for (uint32_t c = 0; c < a->d; c++) slot[c] = a->k[(size_t)r * a->d + c];
        }
    }
    return MICA_OK;
}

static float block_score(const index_select_args *a, uint32_t r, uint32_t block) {
    const float *key = a->index + index_at(&a->pages, a->rows[r].seq, block, a->ratio) * a->d;
    float score = 0.0f;
    for (uint32_t ih = 0; ih < a->n_head; ih++) {
        float t = ref_dot(a->q + ((size_t)r * a->n_head + ih) * a->d, key, a->d);
        score = score + (t > 0.0f ? t : 0.0f);
    }
    return score;
}

/* The best blocks of row r, best first, in block[0, n_keep): a block stands before the first that is worse.
 */
static void best_blocks(const index_select_args *a, uint32_t r, uint32_t n_block, uint32_t *block,
                        float *score) {
    uint32_t n = 0;
    for (uint32_t b = 0; b < n_block; b++) {
        float s = block_score(a, r, b);
        uint32_t at = n;
        while (at > 0 && s > score[at - 1]) at--;
        if (at == a->n_keep) continue;
        if (n < a->n_keep) n++;
        for (uint32_t i = n - 1; i > at; i--) block[i] = block[i - 1], score[i] = score[i - 1];
        block[at] = b;
        score[at] = s;
    }
}

/* The positions of n chosen blocks, then those after the last whole block up to pos. */
static void list_positions(int32_t *sel, const index_select_args *a, const uint32_t *block, uint32_t n_block,
                           int32_t pos) {
    int32_t n = 0;
    for (uint32_t b = 0; b < n_block; b++) {
        bool chosen = false;
        for (uint32_t i = 0; i < a->n_keep; i++) chosen |= block[i] == b;
        for (uint32_t j = 0; chosen && j < a->ratio; j++) sel[1 + n++] = (int32_t)(b * a->ratio + j);
    }
    for (int32_t p = (int32_t)(n_block * a->ratio); p <= pos; p++) sel[1 + n++] = p;
    sel[0] = n;
}

mica_status ref_index_select(dev *d, const index_select_args *a, mica_error *err) {
    (void)err;
    float *score = ((ref_dev *)d)->scratch;
    uint32_t *block = (uint32_t *)(void *)(score + a->n_keep);
    for (uint32_t r = 0; r < a->n_row; r++) {
        int32_t *sel = a->sel + (size_t)r * a->ld_sel, pos = a->rows[r].pos;
        sel[0] = -1;
        if (index_sees_all(a, pos)) continue;
        uint32_t n_block = ((uint32_t)pos + 1) / a->ratio;
        best_blocks(a, r, n_block, block, score);
        list_positions(sel, a, block, n_block, pos);
    }
    return MICA_OK;
}
