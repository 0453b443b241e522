/* The inside of the chat layer: chat_render.c (templates, rendering), chat_probe.c (abilities),
 * chat_message.c (messages and tools into shape), chat_think.c (thinking and efforts into the template's
 * variables). */
#ifndef MICA_TEXT_CHAT_INT_H
#define MICA_TEXT_CHAT_INT_H

#include "text/chat.h"
#include "text/jinja.h"

/* One template text of a file. */
typedef struct chat_variant {
    jinja_template *t; // NULL: none, or broken
    mica_error broken; // why it did not parse
    bool present;
    chat_abilities can;
    char *source; // owned
    // variables that turn thinking on and off, a bit for each row of the table in chat_think.c
    unsigned switches;
} chat_variant;

struct chat_template {
    chat_variant plain, tool_use;
    json_t *tokens; // bos_token and its like
};

/* Renders with the tokens added to context; context is consumed. */
mica_status chat_variant_render(jinja_output *out, const chat_variant *v, const json_t *tokens,
                                json_t *context, int64_t now_s, mica_error *err);

void chat_probe(chat_variant *v, const json_t *tokens);

/* New references, brought into the shape the template takes. */
mica_status chat_messages_fit(json_t **out, const chat_abilities *can, const json_t *messages,
                              mica_error *err);
mica_status chat_tools_fit(json_t **out, const json_t *tools, mica_error *err); // NULL when none is left

/* Sets the variables that `think` and the efforts in kwargs ask for; context already holds kwargs. */
mica_status chat_think_apply(json_t *context, const chat_variant *v, const char *think, mica_error *err);
/* Finds the variables; used while probing. base: a context with one user message. */
void chat_think_probe(chat_variant *v, const json_t *tokens, const json_t *base);
void chat_think_markers(chat_format *f, const char *source);

#endif
