/* One pass for the maximum and the best, one for the sum: exp by exactf, added in double left to right, so
 * that the figure is the same on every machine. */
#include "run/logprob.h"

#include "base/exactf.h"

#include <string.h>

/* Puts (id, logit) into the falling list best[0..n), which holds at most n_max; equal logits keep the lower
 * id first, as ids come in ascending order. */
static uint32_t insert(mica_logprob *best, uint32_t n, uint32_t n_max, int32_t id, float logit) {
    uint32_t at = n;
    while (at > 0 && best[at - 1].logprob < logit) at--;
    if (at == n_max) return n;
    uint32_t n_move = (n < n_max ? n : n_max - 1) - at;
    memmove(&best[at + 1], &best[at], n_move * sizeof *best);
    best[at] = (mica_logprob){.id = id, .logprob = logit};
    return n < n_max ? n + 1 : n_max;
}

void logprob_top(mica_logprob *out, uint32_t n_top, int32_t id, const float *logits, uint32_t n_vocab) {
    mica_logprob *best = out + 1;
    uint32_t n = 0;
    float max = logits[0];
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (logits[i] > max) max = logits[i];
        if (n_top > 0 && (n < n_top || logits[i] > best[n - 1].logprob))
            n = insert(best, n, n_top, (int32_t)i, logits[i]);
    }
    double sum = 0.0;
    for (uint32_t i = 0; i < n_vocab; i++) sum += (double)exactf_exp(logits[i] - max);
    float log_sum = exactf_log((float)sum);
    for (uint32_t i = 0; i < n; i++) best[i].logprob = (best[i].logprob - max) - log_sum;
    for (uint32_t i = n; i < n_top; i++) best[i] = (mica_logprob){.id = -1};
    out[0] = (mica_logprob){.id = id, .logprob = (logits[id] - max) - log_sum};
}
