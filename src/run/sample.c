/* Sampling. Candidates are sorted by (logit descending, id ascending), so that ties have one answer
 * everywhere.
 *
 * With top-k the k best are kept in a heap (one comparison for nearly every token); without it all are sorted
 * by radix: a stable sort of ids in ascending order keeps equal logits in id order for free. */
#include "run/sample.h"

#include "base/exactf.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { SUM_BLOCK = 1024, RADIX_BITS = 11, RADIX_N = 1 << RADIX_BITS };

struct sampler {
    uint32_t n_vocab;
    float *logit;            // owned, [n_vocab], after bias and penalties
    uint32_t *order;         // owned, [n_vocab], candidates
    uint32_t *spare;         // owned, [n_vocab]
    float *p;                // owned, [n_vocab], of the candidates
    uint16_t *count;         // owned, [n_vocab], all zero between calls
    uint8_t *allowed;        // owned, a bit for each id: what a grammar allows
    const int32_t *suppress; // borrowed, [n_suppress]
    size_t n_suppress;
};

mica_status sampler_new(sampler **out, uint32_t n_vocab, mica_error *err) {
    *out = NULL;
    sampler *s = mem_calloc(1, sizeof *s);
    if (s) {
        s->n_vocab = n_vocab;
        s->logit = mem_alloc(n_vocab * sizeof *s->logit);
        s->order = mem_alloc(n_vocab * sizeof *s->order);
        s->spare = mem_alloc(n_vocab * sizeof *s->spare);
        s->p = mem_alloc(n_vocab * sizeof *s->p);
        s->count = mem_calloc(n_vocab, sizeof *s->count);
        s->allowed = mem_calloc(n_vocab / 8 + 1, 1);
    }
    if (!s || !s->logit || !s->order || !s->spare || !s->p || !s->count || !s->allowed) {
        sampler_free(s);
        return fail(err, MICA_E_NOMEM, "sampler: vocabulary of %u: out of memory", n_vocab);
    }
    *out = s;
    return MICA_OK;
}

void sampler_free(sampler *s) {
    if (!s) return;
    mem_free(s->logit);
    mem_free(s->order);
    mem_free(s->spare);
    mem_free(s->p);
    mem_free(s->count);
    mem_free(s->allowed);
    mem_free(s);
}

void sampler_suppress(sampler *s, const int32_t *ids, size_t n) {
    s->suppress = ids;
    s->n_suppress = n;
}

mica_status sampling_check(const mica_sampling *p, uint32_t n_vocab, mica_error *err) {
    if (!(p->temperature >= 0.0f) || isinf(p->temperature))
        return fail(err, MICA_E_ARG, "temperature: %g: must be 0 or more", (double)p->temperature);
    if (!(p->repeat_penalty > 0.0f) || isinf(p->repeat_penalty))
        return fail(err, MICA_E_ARG, "repeat_penalty: %g: must be above 0 (1 is off)",
                    (double)p->repeat_penalty);
    if (isnan(p->top_p) || isnan(p->min_p)) return fail(err, MICA_E_ARG, "top_p, min_p: not a number");
    if (!isfinite(p->presence_penalty) || !isfinite(p->frequency_penalty))
        return fail(err, MICA_E_ARG, "presence_penalty, frequency_penalty: not finite");
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= n_vocab)
            return fail(err, MICA_E_ARG, "logit_bias: id %d: the vocabulary has %u", p->bias[i].id, n_vocab);
        if (isnan(p->bias[i].bias) || p->bias[i].bias == INFINITY)
            return fail(err, MICA_E_ARG, "logit_bias: id %d: %g is no bias", p->bias[i].id,
                        (double)p->bias[i].bias);
    }
    return MICA_OK;
}

int32_t sample_argmax(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* Ten rounds; constants of the paper's table 2. */
float sample_uniform(uint64_t seed, uint64_t pos) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)pos, c1 = (uint32_t)(pos >> 32), c2 = 0, c3 = 0;
    for (int r = 0; r < 10; r++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (float)(c0 >> 8) * 0x1p-24f;
}

/* Each token of the window counts; the first time it is met again its count is taken and the logit changed
 * once. */
static void penalise(sampler *s, const sample_args *a) {
    const mica_sampling *p = a->p;
    if (p->repeat_penalty == 1.0f && p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f) return;
    size_t n = p->penalty_last_n < 0 ? a->n_history : (size_t)p->penalty_last_n;
    if (n > a->n_history) n = a->n_history;
    const int32_t *h = a->history + (a->n_history - n);
    for (size_t i = 0; i < n; i++) {
        if (s->count[h[i]] < UINT16_MAX) s->count[h[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        float c = (float)s->count[h[i]], l = s->logit[h[i]];
        if (c == 0.0f) continue;
        s->count[h[i]] = 0;
        l = l > 0.0f ? l / p->repeat_penalty : l * p->repeat_penalty;
        s->logit[h[i]] = l - fmaf(c, p->frequency_penalty, p->presence_penalty);
    }
}

/* Copies the logits, with bias, penalties and constraint; banned tokens are -infinity. */
static mica_status prepare(sampler *s, const sample_args *a, mica_error *err) {
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        float l = a->logits[i];
        if (!(l < INFINITY))
            return fail(err, MICA_E_INTERNAL, "logits: token %u: not finite: the model's state is broken", i);
        s->logit[i] = l;
    }
    for (size_t i = 0; i < a->p->n_bias; i++) s->logit[a->p->bias[i].id] += a->p->bias[i].bias;
    penalise(s, a);
    const uint8_t *allowed = a->allowed;
    if (!allowed && a->p->grammar) {
        TRY(mica_grammar_mask(a->p->grammar, s->allowed, err));
        allowed = s->allowed;
    }
    for (uint32_t i = 0; allowed && i < s->n_vocab; i++) {
        if (!(allowed[i / 8] >> (i % 8) & 1)) s->logit[i] = -INFINITY;
    }
    for (size_t i = 0; i < s->n_suppress; i++) s->logit[s->suppress[i]] = -INFINITY;
    return MICA_OK;
}

/* True when candidate x comes before y. */
static bool before(const sampler *s, uint32_t x, uint32_t y) {
    return s->logit[x] > s->logit[y] || (s->logit[x] == s->logit[y] && x < y);
}

static void sift_down(const sampler *s, uint32_t *heap, uint32_t n, uint32_t i) {
    for (;;) {
        uint32_t last = i;
        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < n; c++) {
            if (before(s, heap[last], heap[c])) last = c;
        }
        if (last == i) return;
        uint32_t t = heap[i];
        heap[i] = heap[last];
        heap[last] = t;
        i = last;
    }
}

static void make_heap(const sampler *s, uint32_t *heap, uint32_t n) {
    for (uint32_t j = n / 2; j-- > 0;) sift_down(s, heap, n, j);
}

/* order[0..k) = the k best, sorted. The heap's root is the one that would leave first. */
static uint32_t keep_best(sampler *s, uint32_t k) {
    uint32_t *h = s->order, n = 0, i = 0;
    for (; i < s->n_vocab && n < k; i++) {
        if (s->logit[i] != -INFINITY) h[n++] = i;
    }
    make_heap(s, h, n);
    for (; i < s->n_vocab; i++) {
        if (s->logit[i] == -INFINITY || !before(s, i, h[0])) continue;
        h[0] = i;
        sift_down(s, h, n, 0);
    }
    for (uint32_t m = n; m > 1;) {
        uint32_t t = h[0];
        h[0] = h[--m];
        h[m] = t;
        sift_down(s, h, m, 0);
    }
    return n;
}

/* Rises as the float falls: flips all bits of positive numbers but the sign, none of negative ones. */
static uint32_t falling_key(float x) {
    uint32_t u = f32_bits(x == 0.0f ? 0.0f : x); // -0 and 0 are equal
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

static uint32_t sort_all(sampler *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        if (s->logit[i] != -INFINITY) s->order[n++] = i;
    }
    for (int shift = 0; shift < 32; shift += RADIX_BITS) {
        uint32_t at[RADIX_N] = {0}, sum = 0;
        for (uint32_t i = 0; i < n; i++) at[falling_key(s->logit[s->order[i]]) >> shift & (RADIX_N - 1)]++;
        for (int d = 0; d < RADIX_N; d++) {
            uint32_t c = at[d];
            at[d] = sum;
            sum += c;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t id = s->order[i];
            s->spare[at[falling_key(s->logit[id]) >> shift & (RADIX_N - 1)]++] = id;
        }
        uint32_t *t = s->order;
        s->order = s->spare;
        s->spare = t;
    }
    return n;
}

/* Walks the running sum over p[0..n), kept in blocks of SUM_BLOCK, until it passes `goal`; n when it never
 * does. *total gets the sum so far. */
static uint32_t walk_sum(const float *p, uint32_t n, float goal, bool or_equal, float *total) {
    float done = 0.0f, block = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        if (i % SUM_BLOCK == 0) {
            done = done + block;
            block = 0.0f;
        }
        block = block + p[i];
        float sum = done + block;
        *total = sum;
        if (sum > goal || (or_equal && sum >= goal)) return i;
    }
    return n;
}

mica_status sampler_pick(sampler *s, const sample_args *a, int32_t *id, mica_error *err) {
    const mica_sampling *o = a->p;
    *id = -1;
    TRY(prepare(s, a, err));
    int32_t best = sample_argmax(s->logit, s->n_vocab);
    if (s->logit[best] == -INFINITY)
        return fail(err, MICA_E_ARG, "sampling: bias and constraints leave no token");
    if (o->temperature == 0.0f) {
        *id = best;
        return MICA_OK;
    }
    bool cut = o->top_k > 0 && (uint32_t)o->top_k < s->n_vocab;
    uint32_t n = cut ? keep_best(s, (uint32_t)o->top_k) : sort_all(s);
    for (uint32_t i = 0; i < n; i++)
        s->p[i] = exactf_exp((s->logit[s->order[i]] - s->logit[best]) / o->temperature);
    float total = 0.0f;
    if (o->top_p < 1.0f) {
        walk_sum(s->p, n, INFINITY, false, &total);
        uint32_t last = walk_sum(s->p, n, o->top_p * total, true, &total);
        n = last < n ? last + 1 : n;
    }
    while (n > 1 && s->p[n - 1] < o->min_p) n--;
    walk_sum(s->p, n, INFINITY, false, &total);
    uint32_t pick = walk_sum(s->p, n, sample_uniform(o->seed, a->pos) * total, false, &total);
    *id = (int32_t)s->order[pick < n ? pick : n - 1];
    return MICA_OK;
}
