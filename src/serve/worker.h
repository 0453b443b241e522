/* The one thread that steps the model: takes requests from the queue into free slots, and lets all of them go
 * on together.
 *
 *     HTTP thread   worker_submit        queue, or 429 with the time to wait
 *     worker        queue -> slot        the fairest next (queue.h), into the slot that shares most with it
 *                   mica_step            one batch: a token or more for each that answers, and so much of the
 *                                        prompts that answers keep at least half of their speed
 *                   slot -> flow         voice.h
 *
 * A request whose client left is out of the next step. A client that takes nothing holds its slot standing
 * until stall_s, then it is left. Sessions belong to the worker; what others may know is in worker_look. */
#ifndef MICA_SERVE_WORKER_H
#define MICA_SERVE_WORKER_H

#include "serve/job.h"
#include "serve/metrics.h"

typedef struct worker worker;

typedef struct worker_options {
    size_t n_queue;
    uint32_t stall_s;
    bool reuse_generated;
    metrics *metrics; // borrowed
} worker_options;

mica_status worker_new(worker **out, const worker_options *opt, mica_error *err);
void worker_free(worker *w); // NULL allowed

/* Any thread. Takes one hold of the job for each choice. Fails with 429 when the queue is full and with 503
 * when the server is about to end. */
mica_status worker_submit(worker *w, job *j, problem *p);

typedef struct worker_run_options {
    int32_t n_draft;
    float draft_min_p;
    const mica_cancel_flag *stop;
} worker_run_options;

/* Steps until `stop` is set and nothing is at work. The calling thread is the worker. */
mica_status worker_run(worker *w, mica_model *m, const worker_run_options *opt, mica_error *err);

typedef struct slot_look {
    bool busy, reading;
    uint64_t n_prompt, n_cached, n_read, n_made, n_token; // n_token: in the session
    int64_t n_predict;
} slot_look;

/* What the worker does at the moment: slots into out[max], how many there are is returned. */
size_t worker_look(worker *w, slot_look *out, size_t max, size_t *n_waiting);

bool worker_is_ending(worker *w); // it takes nothing more; any thread

#endif
