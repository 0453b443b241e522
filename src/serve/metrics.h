/* Counters of a server and their text for Prometheus (exposition format 0.0.4), under the names of llama.cpp
 * and vLLM where the meaning is the same. Nothing is ever NaN: a mean of nothing is 0. Threads: any; its own
 * lock. */
#ifndef MICA_SERVE_METRICS_H
#define MICA_SERVE_METRICS_H

#include "base/str.h"
#include "mica.h"
#include "serve/flow.h"

enum { METRICS_N_BUCKET = 14, METRICS_N_FINISH = 6 };

typedef struct histogram {
    uint64_t bucket[METRICS_N_BUCKET + 1]; // the last: above all bounds
    uint64_t n;
    double sum;
} histogram;

typedef struct metrics {
    pthread_mutex_t lock;
    uint64_t n_prompt, n_cached, n_made, n_step, n_busy, n_drafted, n_accepted, n_draft_window, n_max;
    double prompt_s, decode_s;
    uint64_t finished[METRICS_N_FINISH]; // by finish_kind, the last: given up
    histogram first_token, between_tokens, whole_request;
    double mean_request_s; // running, of what has ended lately
} metrics;

void metrics_init(metrics *m);
void metrics_fini(metrics *m);

void metrics_step(metrics *m, size_t n_busy, uint64_t n_made, double step_s); // n_made tokens of n_busy slots
void metrics_first(metrics *m, double first_s);
void metrics_draft(metrics *m, uint64_t n_drafted, uint64_t n_accepted);
void metrics_end(metrics *m, const event_end *e, double whole_s); // e NULL: given up
double metrics_mean_request_s(metrics *m);

typedef struct metrics_gauges {
    size_t n_running, n_waiting, n_slot, n_connection;
    uint64_t n_token, n_token_max; // in all sessions, and what they can hold
    const mica_model *model;       // NULL: loading
    const char *name;              // of the model
} metrics_gauges;
void metrics_text(metrics *m, const metrics_gauges *g, strbuf *out);

#endif
