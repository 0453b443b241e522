/* Least squares over fading sums: what was measured FADE^n steps ago counts so much less. */
#include "run/draft_cost.h"

static const double g_fade = 0.98, g_fade_seen = 0.95;

void draft_cost_add_step(draft_cost *c, uint32_t n_row, double ms) {
    double r = n_row;
    c->w = c->w * g_fade + 1.0;
    c->x = c->x * g_fade + r;
    c->y = c->y * g_fade + ms;
    c->xx = c->xx * g_fade + r * r;
    c->xy = c->xy * g_fade + r * ms;
}

void draft_cost_add_call(draft_cost *c, double ms) {
    c->draft_w = c->draft_w * g_fade + 1.0;
    c->draft_ms = c->draft_ms * g_fade + ms;
}

double draft_cost_of_step(const draft_cost *c, uint32_t n_row) {
    if (c->w == 0.0) return 0.0;
    double mean_x = c->x / c->w, mean_y = c->y / c->w, spread = c->xx / c->w - mean_x * mean_x;
    if (spread < 1e-3) return mean_y; // steps of one size tell no slope
    double b = (c->xy / c->w - mean_x * mean_y) / spread;
    if (b < 0.0) return mean_y;
    double ms = mean_y + b * (n_row - mean_x), least = mean_y * 0.05;
    return ms > least ? ms : least;
}

uint32_t draft_cost_choose(const draft_cost *c, uint32_t n_item, double p, uint32_t k_max) {
    double call = c->draft_w > 0.0 ? c->draft_ms / c->draft_w : 0.0, best_rate = 0.0, gain = 0.0,
           chance = 1.0;
    uint32_t best = 0;
    if (c->w == 0.0) return k_max;
    for (uint32_t k = 0; k <= k_max; k++, chance *= p) {
        gain += chance;
        double ms = draft_cost_of_step(c, n_item * (1 + k)) + k * call, rate = n_item * gain / ms;
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = k;
    }
    return best;
}

void draft_cost_seen(double *hit, double *miss, uint32_t n, uint32_t n_agreed) {
    *hit = *hit * g_fade_seen + n_agreed;
    *miss = *miss * g_fade_seen + (n_agreed < n ? 1.0 : 0.0);
}
