/* Requests of Anthropic's Messages API in the form that templates know. Pure. */
#ifndef MICA_SERVE_ANTHROPIC_IN_H
#define MICA_SERVE_ANTHROPIC_IN_H

#include "serve/prompt.h"

/* New references, all dropped by anthropic_in_fini. */
typedef struct anthropic_in {
    json_t *messages, *tools; // OpenAI-style; tools NULL: none
    chat_ask chat;            // borrows the two and the body
    int64_t n_think;          // budget; -1: none
} anthropic_in;

/* On failure `in` is empty. */
mica_status anthropic_in_parse(anthropic_in *in, const json_t *body, const char *think, problem *p);
void anthropic_in_fini(anthropic_in *in);

#endif
