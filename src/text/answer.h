/* Reading what a model writes: its thinking, its text and its tool calls, while it writes them.
 *
 *     answer_new(&a, &(answer_options){.format = prompt.format, .in_think = prompt.in_think, .tools = tools,
 *                                      .fn = on_piece, .user = me}, &err);
 *     answer_put(a, text, &err);      // for every piece of text the model gives
 *     answer_end(a, &err);            // what was held back
 *     answer_free(a);
 *
 * The text must show the markers of the family (`<think>`, `<tool_call>`, `<|"|>`), whether the vocabulary
 * calls them control tokens or not; end-of-turn tokens are not part of it.
 *
 * What is given out, joined, is the same however the text was cut. Text is held back only while it may be the
 * beginning of a marker, or blanks that a marker would swallow. A call is given as soon as it is known for
 * one: its name when the first argument has begun (in the XML style: has ended), then its arguments as they
 * come. What is not known for a call when it ends comes out as the text it is, so nothing is lost; one that
 * was known and then breaks ends where it broke, its arguments then no whole JSON. Gemma's and Llama's calls
 * come whole. Without tools nothing is taken for a call. Threads: an answer belongs to its owner. */
#ifndef MICA_TEXT_ANSWER_H
#define MICA_TEXT_ANSWER_H

#include "text/chat.h"

typedef struct answer answer;

typedef enum answer_kind {
    ANSWER_THINK,
    ANSWER_TEXT,
    ANSWER_CALL, // a call begins: its name
    ANSWER_ARGS, // more of its arguments; joined they are a JSON object as text
    ANSWER_CALL_END,
    ANSWER_MARK // what stands around thinking: its marks and the blanks beside them; only when asked for
} answer_kind;

/* Borrowed for the call of answer_fn. */
typedef struct answer_piece {
    answer_kind kind;
    slice text; // never empty, but where a call begins and ends
    slice name; // where a call begins
    int index;  // of a call, from 0
} answer_piece;

typedef void (*answer_fn)(void *user, const answer_piece *piece);

typedef struct answer_options {
    chat_format format;
    bool in_think;       // the prompt ended inside a thinking block
    bool marks;          // ANSWER_MARK too: without calls, all pieces joined are then the whole text
    const json_t *tools; // the request's tools; NULL or empty: no calls are looked for. Kept by reference
    answer_fn fn;
    void *user;
} answer_options;

mica_status answer_new(answer **out, const answer_options *opt, mica_error *err);
/* Fail with MICA_E_NOMEM only; the answer is then of no use any more. */
mica_status answer_put(answer *a, slice text, mica_error *err);
mica_status answer_end(answer *a, mica_error *err);
void answer_free(answer *a); // NULL allowed

#endif
