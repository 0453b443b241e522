/* Log-probabilities for whoever asked: of the model's own distribution, the softmax of its logits as they
 * are. Threads: pure. */
#ifndef MICA_LOGPROB_H
#define MICA_LOGPROB_H

#include "mica.h"

/* out[0] is `id`, out[1 .. 1 + n_top) the likeliest tokens, falling, equal ones by id (n_top <= MICA_TOP_MAX,
 * and at most n_vocab of them: the rest have id -1). logits [n_vocab] are finite. */
void logprob_top(mica_logprob *out, uint32_t n_top, int32_t id, const float *logits, uint32_t n_vocab);
#endif
