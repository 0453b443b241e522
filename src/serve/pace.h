/* When and how much of the prompts goes into a step, so that running answers keep at least half of their
 * speed.
 *
 * A step without prompt tokens takes t. What a step with some takes beyond t is time that the answers lost:
 * it is a debt, and no more of a prompt is read until steps without have paid it back. So prompts get at most
 * half of the time, whatever a piece costs; and because a piece has a cost of its own beside its tokens,
 * pieces are as long as PIECE_S allows rather than few tokens in every step (measured on a 5M model, two
 * threads: 8 tokens in every step left an answer 24 of 122 tokens/s). Nobody answers: as much as fits. Worker
 * only. */
#ifndef MICA_SERVE_PACE_H
#define MICA_SERVE_PACE_H

#include <stddef.h>
#include <stdint.h>

enum { PACE_LEAST = 8 }; // prompt tokens of a piece

typedef struct pace {
    double make_s; // of a step without prompt tokens; 0: not seen yet
    double debt_s;
    size_t piece; // prompt tokens of the next one
} pace;

void pace_init(pace *p);
/* A step in which n_making sequences made tokens read n_read prompt tokens and took step_s. */
void pace_learn(pace *p, size_t n_making, uint64_t n_read, double step_s);
/* Prompt tokens for a step in which n_making sequences make tokens; 0: it is the answers' turn. */
size_t pace_prompt_room(const pace *p, size_t n_making, size_t n_ubatch);

#endif
