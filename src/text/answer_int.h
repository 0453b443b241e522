/* The inside of answer.c and answer_call.c. */
#ifndef MICA_TEXT_ANSWER_INT_H
#define MICA_TEXT_ANSWER_INT_H

#include "text/answer.h"

/* A call as read: arguments is JSON text. Both owned. */
typedef struct answer_call {
    strbuf name, arguments;
} answer_call;

void answer_call_fini(answer_call *c);

/* Reads the inside of a call. false: it is none (or memory ran out, which c's buffers remember). tools may be
 * NULL. */
bool answer_call_read(answer_call *c, chat_family family, slice body, const json_t *tools);
/* The same of a call that has not ended: true when it is known for one; c gets its name and as much of its
 * arguments as is certain. Depends on body alone, and what it gives for more of a body begins with what it
 * gave for less. */
bool answer_call_begun(answer_call *c, chat_family family, slice body, const json_t *tools);
/* One call of CHAT_LLAMA3 at the start of *text, which moves behind it and what separates calls. */
bool answer_call_read_bare(answer_call *c, slice *text);
/* Whether the end of `body` lies inside a quoted string or value, so that an end marker there is part of it.
 */
bool answer_call_open(chat_family family, slice body);

#endif
