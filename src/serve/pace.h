/* How much of the prompts goes into one step, so that running answers keep at least half of their speed.
 *
 * A step that only makes tokens takes t seconds, and a prompt token adds p: with t / p prompt tokens a step
 * takes twice as long as without. Both are learned from the steps themselves. Nobody answers: as much as
 * fits. Pure, but for what it has learned; worker only. */
#ifndef MICA_SERVE_PACE_H
#define MICA_SERVE_PACE_H

#include <stddef.h>
#include <stdint.h>

enum { PACE_LEAST = 8 }; // prompt tokens of a step: a prompt always goes on

typedef struct pace {
    double make_s; // of a step without prompt tokens; 0: not seen yet
    double read_s; // of a prompt token
} pace;

void pace_init(pace *p);
/* A step read n_read prompt tokens and took step_s. */
void pace_learn(pace *p, uint64_t n_read, double step_s);
/* Prompt tokens for a step in which n_making sequences make tokens. */
size_t pace_prompt_room(const pace *p, size_t n_making, size_t n_ubatch);

#endif
