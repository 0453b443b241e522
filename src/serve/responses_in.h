/* Requests of OpenAI's Responses API in the form that templates know. Pure. */
#ifndef MICA_SERVE_RESPONSES_IN_H
#define MICA_SERVE_RESPONSES_IN_H

#include "serve/prompt.h"

typedef struct responses_in {
    json_t *messages;    // gets OpenAI-style messages
    json_t *items;       // gets the input as items
    const json_t *names; // of tools in namespaces (responses_tools.h); NULL: none
} responses_in;

/* The input: text, or items. */
mica_status responses_in_items(const responses_in *in, const json_t *input, problem *p);

/* What a finished answer adds to the conversation, from the response's output items. */
void responses_in_output(const responses_in *in, const json_t *output);

/* text.format and reasoning.effort. */
mica_status responses_in_form(chat_ask *c, const json_t *body, const char *think, problem *p);

#endif
