/* Questions and answers with a loaded model: the messages so far, how to sample, and where an answer's text
 * goes.
 *
 *     talk_init(&t, &model, &options, err);
 *     talk_ask(&t, text, n, &answer, err);    // adds the question and the answer to the messages
 *
 * The session is kept between questions, so that the model reads only what is new. */
#ifndef MICA_CLI_TALK_H
#define MICA_CLI_TALK_H

#include "cli/open.h"
#include "cli/reply.h"

#include <jansson.h>

typedef struct talk {
    opened *model;     // borrowed
    const options *o;  // borrowed
    bool raw;          // no template, and no memory of earlier questions
    const char *think; // borrowed; /think changes it
    char *think_owned;
    json_t *messages; // owned: array of {"role","content"}
    mica_sampling sampling;
    int32_t n_draft;
    bool seed_is_random;
} talk;

/* How an answer went. */
typedef struct answer {
    mica_finish finish;
    mica_stats stats;
    uint64_t n_prompt;
    bool is_full;     // it ended because the context did
    bool is_too_long; // with MICA_E_ARG: what the model would read is longer than the context
    bool is_dropped;  // cancelled before a word of the answer: the question was taken back
} answer;

mica_status talk_init(talk *t, opened *model, const options *o, mica_error *err);
void talk_fini(talk *t);

/* Answers `text` (n bytes) on standard output, thinking on standard error. On failure the messages are as
 * before; a cancelled answer is no failure: what came of it is kept, and finish says so. Without a word of it
 * the messages are as before too. */
mica_status talk_ask(talk *t, const char *text, size_t n, answer *out, mica_error *err);
/* Answers the last question once more, with the next seed. MICA_E_ARG when there is none. */
mica_status talk_again(talk *t, answer *out, mica_error *err);
/* Forgets the last (or the oldest) question with its answer; false when there is none. */
bool talk_undo(talk *t);
bool talk_trim(talk *t);
void talk_clear(talk *t); // forgets everything but the system message
mica_status talk_set_system(talk *t, const char *text, mica_error *err); // "" takes it away
/* MICA_E_ARG for a word that is neither on, off nor an effort. */
mica_status talk_set_think(talk *t, const char *think, mica_error *err);

/* The line of times after an answer: "prompt 15 tokens, 12 ms ...". */
void talk_times(char *out, size_t size_bytes, const answer *a);
#endif
