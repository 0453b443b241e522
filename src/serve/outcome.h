/* What a job brings, gathered from its events, and handed to the shape of an API as it comes (streams) or at
 * the end. One for each request that makes text; owned by its exchange. */
#ifndef MICA_SERVE_OUTCOME_H
#define MICA_SERVE_OUTCOME_H

#include "serve/http.h"
#include "serve/job.h"

typedef struct outcome outcome;

typedef struct tool_call {
    char id[40]; // "call_..." or "toolu_..."
    strbuf name, args;
} tool_call;

typedef struct choice {
    int index;
    strbuf think, text;
    tool_call *calls; // owned, [n_call]
    size_t n_call, cap_call;
    json_t *picks;      // owned; array of the shape's records of tokens, NULL: none yet
    size_t n_pick_told; // of them, in a stream
    bool ended;
    event_end end;
    // A stream's place: which part is open (shapes use it as they like).
    int open, n_part;
} choice;

/* How an API says it. `out` gets bytes of the stream; those without a stream need `whole` alone. */
typedef struct shape {
    const char *id_prefix, *call_prefix;
    void (*begin)(outcome *o, strbuf *out);                            // the prompt is being read
    void (*piece)(outcome *o, choice *c, const event *e, strbuf *out); // already gathered
    void (*close)(outcome *o, choice *c, strbuf *out);                 // c->end holds
    void (*end)(outcome *o, strbuf *out);                              // all choices are closed
    void (*fail)(outcome *o, const problem *p, strbuf *out);
    void (*ping)(outcome *o, strbuf *out);
    json_t *(*pick)(outcome *o, choice *c, const event_pick *top, size_t n); // a token's record
    json_t *(*whole)(outcome *o);
    void (*kept)(outcome *o); // all is there: time to store it; NULL allowed
} shape;

struct outcome {
    const shape *shape;
    job *job; // held
    const mica_model *model;
    char id[48], request_id[48], name[128]; // name: of the model
    dialect dialect;
    int64_t created_s;
    event_begin begin;
    bool begun;
    choice *choices; // owned, [n_choice]
    size_t n_choice;
    problem failed; // http != 0
    json_t *own;    // owned; what the shape wants to remember of the request
    void *server;   // borrowed, the shape's business
    int64_t sequence;
};

/* Hands the answer of x over to an outcome of the job, which is submitted. On failure x is answered. Takes
 * the job's hold and `own`. */
typedef struct outcome_options {
    const shape *shape;
    job *job;
    json_t *own;
    const mica_model *model;
    const char *name;
    void *server;
} outcome_options;
outcome *outcome_new(const exchange *x, const outcome_options *opt); // NULL: out of memory, both are dropped
source outcome_source(outcome *o);
void outcome_free(outcome *o); // NULL allowed

void outcome_new_id(char out[40], const char *prefix);
const char *outcome_finish(const choice *c); // "stop" "length" "tool_calls"
uint64_t outcome_n_made(const outcome *o);   // of all choices
uint64_t outcome_n_thought(const outcome *o);
json_t *outcome_usage(const outcome *o);   // OpenAI's
json_t *outcome_timings(const outcome *o); // llama.cpp's

#endif
