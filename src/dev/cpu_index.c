/* Attention with an index over threads: the definition is ref_index.c, the kernel of scores cpu_hyper_kern.h.
 *
 * A row's blocks are cut into parts when there are few rows. Each part scores its blocks, a page's keys at a
 * time, and keeps the best in a heap; then the parts of a row are joined, and its blocks leave another heap
 * in rising order. A block is one number, its score's bits above its index turned round, so that "better" is
 * "greater" and no two are equal: scores are never negative, and the bits of such floats rise with them. */
#include "dev/cpu_int.h"

#include "base/exactf.h"

#include <string.h>

/* ---- keys of blocks ------------------------------------------------------------------------------ */

static const float *key_at(const index_keys_args *a, const row_run *run, int32_t p) {
    int32_t first = a->rows[run->row0].pos;
    if (p >= first) return a->k + ((size_t)run->row0 + (uint32_t)(p - first)) * a->d;
    return a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq + (size_t)((uint32_t)p % CONV_RING) * a->d;
}

static void block_key(cpu_dev *c, const index_keys_args *a, const row_run *run, int32_t first, float *cs) {
    uint32_t block = (uint32_t)first / a->ratio;
    float *key = a->index + index_at(&a->pages, run->seq, block, a->ratio) * a->d;
    memcpy(key, key_at(a, run, first), a->d * sizeof(float));
    for (uint32_t j = 1; j < a->ratio; j++) {
        const float *k = key_at(a, run, first + (int32_t)j);
        for (uint32_t i = 0; i < a->d; i++) key[i] = key[i] + k[i];
    }
    for (uint32_t i = 0; i < a->d; i++) key[i] = key[i] / (float)a->ratio;
    c->f->rms(key, key, a->w, a->d, a->eps);
    c->f->sincos(cs, (double)first, a->inv_freq, a->n_rot / 2, a->mscale);
    c->f->rotate(key, cs, a->n_rot, ROPE_NEOX);
    if (!c->f->finite(key, a->d)) cpu_not_finite(c, "index key");
}

typedef struct keys_job {
    const index_keys_args *a;
    uint32_t n_unit;
} keys_job;

static void keys_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const keys_job *j = job;
    const index_keys_args *a = j->a;
    uint32_t b, e, first, last;
    cpu_range(&b, &e, a->n_row, iu, j->n_unit);
    for (uint32_t i = 0; i < a->n_run; i++) {
        if (!cpu_run_rows(&first, &last, &a->runs[i], b, e)) continue;
        for (uint32_t r = first; r < last; r++) {
            int32_t n_seen = a->rows[r].pos + 1;
            if ((uint32_t)n_seen % a->ratio == 0)
                block_key(c, a, &a->runs[i], n_seen - (int32_t)a->ratio, s->tile);
        }
    }
}

/* After all blocks have read the ring. */
static void remember_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t i) {
    (void)c, (void)s;
    const index_keys_args *a = ((const keys_job *)job)->a;
    const row_run *run = &a->runs[i];
    float *ring = a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq;
    uint32_t skip = run->n_row > CONV_RING ? run->n_row - CONV_RING : 0; // overwritten by later rows
    for (uint32_t r = run->row0 + skip; r < run->row0 + run->n_row; r++) {
        size_t slot = (uint32_t)a->rows[r].pos % CONV_RING;
        memcpy(ring + slot * a->d, a->k + (size_t)r * a->d, a->d * sizeof(float));
    }
}

mica_status cpu_index_keys(dev *d, const index_keys_args *a, mica_error *err) {
    cpu_dev *c = (cpu_dev *)d;
    if (a->n_rot > CPU_TILE)
        return fail(err, MICA_E_UNSUPPORTED, "index keys: %u rotary dimensions: at most %d", a->n_rot,
                    CPU_TILE);
    uint32_t most = CPU_UNITS * c->n_thread;
    keys_job j = {a, a->n_row < most ? a->n_row : most};
    cpu_phase ph[2] = {{keys_unit, j.n_unit}, {remember_unit, a->n_run}};
    cpu_run(c, &j, ph, 2, a->n_row < 16);
    return MICA_OK;
}

/* ---- the best blocks ----------------------------------------------------------------------------- */

/* Heaps with the least at the root. */
static void sift_down(uint64_t *h, uint32_t n, uint32_t i) {
    uint64_t x = h[i];
    for (uint32_t k = 2 * i + 1; k < n; k = 2 * i + 1) {
        if (k + 1 < n && h[k + 1] < h[k]) k++;
        if (x <= h[k]) break;
        h[i] = h[k];
        i = k;
    }
    h[i] = x;
}

/* Keeps x if it is among the n_keep greatest so far; *n of them are in h. */
static void keep(uint64_t *h, uint32_t *n, uint32_t n_keep, uint64_t x) {
    if (*n == n_keep) {
        if (x <= h[0]) return;
        h[0] = x;
        sift_down(h, n_keep, 0);
        return;
    }
    uint32_t i = (*n)++;
    for (; i > 0 && x < h[(i - 1) / 2]; i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
    h[i] = x;
}

typedef struct select_job {
    const index_select_args *a;
    uint32_t n_part; // of a row's blocks
} select_job;

static uint32_t whole_blocks(const index_select_args *a, uint32_t r) {
    int32_t pos = a->rows[r].pos;
    return index_sees_all(a, pos) ? 0 : ((uint32_t)pos + 1) / a->ratio;
}

static void score_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const select_job *j = job;
    const index_select_args *a = j->a;
    uint32_t r = iu / j->n_part, n_page = KV_PAGE / a->ratio, b, e, n = 0;
    uint64_t *best = c->index.best + (size_t)iu * a->n_keep;
    cpu_range(&b, &e, whole_blocks(a, r), iu % j->n_part, j->n_part);
    while (b < e) {
        uint32_t left = n_page - b % n_page, m = e - b < left ? e - b : left;
        const float *keys = a->index + index_at(&a->pages, a->rows[r].seq, b, a->ratio) * a->d;
        c->f->index_scores(s->tile, a->q + (size_t)r * a->n_head * a->d, keys, m, a->n_head, a->d);
        for (uint32_t i = 0; i < m; i++)
            keep(best, &n, a->n_keep, (uint64_t)f32_bits(s->tile[i]) << 32 | (UINT32_MAX - (b + i)));
        b += m;
    }
    c->index.n[iu] = n;
}

static void list_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t r) {
    (void)s;
    const select_job *j = job;
    const index_select_args *a = j->a;
    int32_t *sel = a->sel + (size_t)r * a->ld_sel, pos = a->rows[r].pos, n_sel = 0;
    sel[0] = -1;
    if (index_sees_all(a, pos)) return;
    uint64_t *best = c->index.best + (size_t)r * j->n_part * a->n_keep;
    uint32_t n = c->index.n[r * j->n_part];
    for (uint32_t ip = 1; ip < j->n_part; ip++) {
        const uint64_t *more = best + (size_t)ip * a->n_keep;
        for (uint32_t i = 0; i < c->index.n[r * j->n_part + ip]; i++) keep(best, &n, a->n_keep, more[i]);
    }
    for (uint32_t i = 0; i < n; i++) best[i] = UINT32_MAX - (uint32_t)best[i]; // the block alone
    for (uint32_t i = n / 2; i-- > 0;) sift_down(best, n, i);
    while (n > 0) {
        int32_t first = (int32_t)(best[0] * a->ratio);
        for (uint32_t i = 0; i < a->ratio; i++) sel[1 + n_sel++] = first + (int32_t)i;
        best[0] = best[--n];
        sift_down(best, n, 0);
    }
    for (int32_t p = (int32_t)(whole_blocks(a, r) * a->ratio); p <= pos; p++) sel[1 + n_sel++] = p;
    sel[0] = n_sel;
}

enum { ALONE_MACS = 64 * 1024 }; // multiply-adds that one thread does in less time than two meet in

mica_status cpu_index_select(dev *d, const index_select_args *a, mica_error *err) {
    cpu_dev *c = (cpu_dev *)d;
    if (a->n_keep > c->limits.n_index_keep || a->n_row > c->limits.n_row)
        return fail(err, MICA_E_INTERNAL, "index: %u rows keep %u blocks: the device has room for %u and %u",
                    a->n_row, a->n_keep, c->limits.n_row, c->limits.n_index_keep);
    uint32_t few = CPU_UNITS * c->n_thread;
    uint64_t n_mac = 0;
    for (uint32_t r = 0; r < a->n_row; r++) n_mac += (uint64_t)whole_blocks(a, r) * a->n_head * a->d;
    select_job j = {a, a->n_row >= few || n_mac <= ALONE_MACS ? 1 : few / (a->n_row ? a->n_row : 1)};
    cpu_phase ph[2] = {{score_unit, a->n_row * j.n_part}, {list_unit, a->n_row}};
    cpu_run(c, &j, ph, 2, n_mac <= ALONE_MACS);
    return MICA_OK;
}
