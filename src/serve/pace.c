/* A running mean, and a debt. */
#include "serve/pace.h"

static const double PIECE_S = 0.05; // what a piece may add to a step: a pause that is hardly seen

void pace_init(pace *p) {
    *p = (pace){.piece = 32};
}

/* The next piece is nearer to the length that takes as long as it may; at most twice as long as this one. */
static void fit_piece(pace *p, uint64_t n_read, double own_s) {
    const double most = PIECE_S > 2 * p->make_s ? PIECE_S : 2 * p->make_s;
    double n = own_s > 0.0 ? (double)n_read * most / own_s : (double)n_read * 2;
    if (n > (double)n_read * 2) n = (double)n_read * 2;
    p->piece = n < PACE_LEAST ? PACE_LEAST : (size_t)n;
}

void pace_learn(pace *p, size_t n_making, uint64_t n_read, double step_s) {
    if (n_making == 0) {
        p->debt_s = 0.0;
        return;
    }
    if (n_read == 0) {
        p->make_s += (step_s - p->make_s) * (p->make_s > 0.0 ? 0.2 : 1.0);
        p->debt_s = p->debt_s > step_s ? p->debt_s - step_s : 0.0;
        return;
    }
    const double own_s = step_s > p->make_s ? step_s - p->make_s : 0.0;
    p->debt_s += own_s;
    if (n_read >= p->piece / 2) fit_piece(p, n_read, own_s); // the last piece of a prompt says little
}

size_t pace_prompt_room(const pace *p, size_t n_making, size_t n_ubatch) {
    if (n_making == 0) return n_ubatch;
    if (p->debt_s > 0.0) return 0;
    return p->piece < n_ubatch ? p->piece : n_ubatch;
}
