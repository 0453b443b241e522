/* An answer on its way from tokens to text: whole UTF-8, thinking told apart from the answer (mica_answer),
 * stop strings held back.
 *
 *     reply_init(r, &opt, &err);
 *     reply_put(r, id) ...  reply_end(r);    // the sink gets pieces; false from reply_put: a stop string
 * came
 *
 * Pieces come in order and joined are the generated text: thinking's marks and the white space around them
 * are pieces of their own, so that a caller may leave them out. Nothing of a matched stop string is ever
 * given; text that could still become one is kept until it cannot. Stop strings are looked for in the answer
 * alone: a "\n\n" meant to end the answer must not end it inside the thinking that came before. Threads: one
 * owner. */
#ifndef MICA_CLI_REPLY_H
#define MICA_CLI_REPLY_H

#include "base/stops.h"
#include "mica.h"

typedef enum reply_part {
    PART_ANSWER,
    PART_THINKING,
    PART_MARK, // the marks around thinking, and white space around them
} reply_part;

typedef void reply_sink(void *user, reply_part part, const char *text, size_t n);

typedef struct reply {
    mica_text_stream *text; // owned
    mica_answer *answer;    // owned; NULL: raw text, thinking is not told apart
    stops stops;
    size_t n_held; // bytes put and not given yet, those for the stop strings included
    bool stopped;
    bool failed; // out of memory
    reply_sink *sink;
    void *user;
} reply;

typedef struct reply_options {
    const mica_model *model; // borrowed
    bool raw;
    bool in_think;            // the prompt opened the thinking
    const char *const *stops; // borrowed
    size_t n_stop;
    reply_sink *sink;
    void *user;
} reply_options;

/* The reply must stay where it is: pieces are sent to it. */
mica_status reply_init(reply *r, const reply_options *opt, mica_error *err);
void reply_fini(reply *r);

bool reply_put(reply *r, int32_t id);
void reply_end(reply *r);
bool reply_put_text(reply *r, const char *text, size_t n); // the same two below the tokens, on whole UTF-8
void reply_flush(reply *r);
bool reply_holds_text(const reply *r); // is anything kept back between tokens?
#endif
