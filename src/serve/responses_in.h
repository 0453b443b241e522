/* Requests of OpenAI's Responses API in the form that templates know. Pure. */
#ifndef MICA_SERVE_RESPONSES_IN_H
#define MICA_SERVE_RESPONSES_IN_H

#include "serve/prompt.h"

/* The input (text, or items) as OpenAI-style messages onto `messages`, and as items onto `items`. */
mica_status responses_in_items(json_t *messages, json_t *items, const json_t *input, problem *p);

/* What a finished answer adds to the conversation, from the response's output items. */
void responses_in_output(json_t *messages, const json_t *output);

/* text.format and reasoning.effort. */
mica_status responses_in_form(chat_ask *c, const json_t *body, const char *think, problem *p);

#endif
