/* Only the flags that were given count. */
#include "cli/sampling.h"

#include <sys/random.h>

enum { PENALTY_LAST_N_DEFAULT = 64 };

static uint64_t random_seed(void) {
    uint32_t seed = 0; // 32 bits: short enough to type again
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = 1;
    return seed;
}

void sampling_flags(mica_sampling *s, const options *o) {
    if (OPTION_SEEN(o, temp)) s->temperature = (float)o->temp;
    if (OPTION_SEEN(o, top_k)) s->top_k = (int32_t)o->top_k;
    if (OPTION_SEEN(o, top_p)) s->top_p = (float)o->top_p;
    if (OPTION_SEEN(o, min_p)) s->min_p = (float)o->min_p;
    if (OPTION_SEEN(o, repeat_penalty)) s->repeat_penalty = (float)o->repeat_penalty;
    if (OPTION_SEEN(o, presence_penalty)) s->presence_penalty = (float)o->presence_penalty;
    if (OPTION_SEEN(o, frequency_penalty)) s->frequency_penalty = (float)o->frequency_penalty;
    if (OPTION_SEEN(o, repeat_last_n))
        s->penalty_last_n = (int32_t)o->repeat_last_n;
    else if (s->penalty_last_n == 0)
        s->penalty_last_n = PENALTY_LAST_N_DEFAULT; // a penalty that looks nowhere is none
    s->seed = o->seed < 0 ? random_seed() : (uint64_t)o->seed;
}
