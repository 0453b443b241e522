/* How a request wants its text made: what all generating endpoints have in common. Pure. */
#ifndef MICA_SERVE_ASK_H
#define MICA_SERVE_ASK_H

#include "mica.h"
#include "serve/field.h"
#include "base/stops.h"

enum {
    ASK_MAX_CHOICES = 16,
    ASK_MAX_BIAS = 1024,
    ASK_MAX_TOP = 20, // likeliest tokens beside a chosen one
};

/* Zeroed is empty. */
typedef struct ask {
    mica_sampling sampling; // its bias is `bias`
    mica_bias *bias;        // owned
    char **stop;            // owned strings
    size_t n_stop;
    int64_t n_predict; // -1: until the end of the turn or the context
    int64_t n_choice;
    int64_t n_think; // most tokens of thinking; -1: no bound
    int n_top;       // -1: no probabilities wanted
    bool stream, include_usage, ignore_end, no_cache, fit, progress;
} ask;

typedef struct ask_rules {
    const mica_model *model;
    const mica_sampling *defaults;
    const char *const
        *max_names;        // names of the field that bounds the answer, the first one counts; ends in NULL
    const char *stop_name; // "stop", "stop_sequences"
} ask_rules;

/* On failure a is empty. */
mica_status ask_parse(ask *a, const json_t *body, const ask_rules *rules, problem *p);
void ask_fini(ask *a);

/* Holds the prompt and the answer against the context; an answer without a bound gets what is left. `fit`
 * bounds an answer that was asked to be longer instead of refusing it. */
mica_status ask_check_room(const ask *a, size_t n_prompt, uint32_t n_ctx, problem *p);

#endif
