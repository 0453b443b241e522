/* Whether drafts pay in a crowd: pure functions of what steps have cost so far. They decide how fast tokens
 * come, never which (docs/ARITHMETIC.md rule 11).
 *
 * A step's time is a + b * rows, fitted over the steps of late; a call of the draft block has a mean of its
 * own. With n answers and k drafts each, at a chance p that a draft agrees, a step gains
 * n (1 + p + ... + p^k) tokens in a + b n (1 + k) + k d. Alone, rows are nearly free, as the weights are read
 * once whatever their number; in a crowd each row counts. */
#ifndef MICA_DRAFT_COST_H
#define MICA_DRAFT_COST_H

#include <stdint.h>

typedef struct draft_cost { // zeroed: nothing is known, rows cost nothing
    double w, x, y, xx, xy; // fading sums over steps: 1, rows, ms, rows^2, rows * ms
    double draft_w, draft_ms;
} draft_cost;

void draft_cost_add_step(draft_cost *c, uint32_t n_row, double ms); // a step of token rows alone
void draft_cost_add_call(draft_cost *c, double ms);                 // one call of the draft block
double draft_cost_of_step(const draft_cost *c, uint32_t n_row);     // ms; 0: nothing is known
/* Drafts a window, at most k_max, that give most tokens a second; the fewer of equal ones. */
uint32_t draft_cost_choose(const draft_cost *c, uint32_t n_item, double p, uint32_t k_max);
/* Adds a window of n drafts, the first n_agreed of which agreed, to fading counts. */
void draft_cost_seen(double *hit, double *miss, uint32_t n, uint32_t n_agreed);
#endif
