/* Two running means. */
#include "serve/pace.h"

void pace_init(pace *p) {
    *p = (pace){0};
}

static void mean(double *m, double x) {
    *m = *m > 0.0 ? *m + (x - *m) * 0.2 : x;
}

void pace_learn(pace *p, uint64_t n_read, double step_s) {
    if (n_read == 0) {
        mean(&p->make_s, step_s);
        return;
    }
    // What the answers in the step cost is not the prompt's; a step of a few rows says little about either.
    const double own = step_s - p->make_s;
    if (n_read >= PACE_LEAST) mean(&p->read_s, (own > 0.0 ? own : step_s * 0.5) / (double)n_read);
}

size_t pace_prompt_room(const pace *p, size_t n_making, size_t n_ubatch) {
    if (n_making == 0) return n_ubatch;
    if (!(p->make_s > 0.0) || !(p->read_s > 0.0)) return n_ubatch < 32 ? n_ubatch : 32; // nothing learned yet
    const double n = p->make_s / p->read_s;
    if (n >= (double)n_ubatch) return n_ubatch;
    return n < PACE_LEAST ? PACE_LEAST : (size_t)n;
}
