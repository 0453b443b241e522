/* A request on its way through the queue and the worker: prompt and wishes, read-only once it is submitted,
 * and the flow of what becomes of it. Counted: the exchange holds it, and the queue or the worker once for
 * every choice; the last one to let go frees it. Threads: the counts are atomic, the flow locks itself. */
#ifndef MICA_SERVE_JOB_H
#define MICA_SERVE_JOB_H

#include "mica.h"
#include "serve/ask.h"
#include "serve/flow.h"

#include <stdatomic.h>

typedef enum job_kind { JOB_TEXT, JOB_SLOT_SAVE, JOB_SLOT_RESTORE, JOB_SLOT_ERASE } job_kind;

typedef struct job {
    atomic_int n_hold;
    atomic_int n_open; // choices that have not ended
    flow flow;
    job_kind kind;
    uint64_t client, begun_ns;
    ask ask;
    mica_ids prompt; // the first or only one
    mica_ids *more; // owned, [n_more]; further ones of /v1/completions: the choices of each follow each other
    size_t n_more;
    // How the answer is read (voice.h).
    bool chat;             // thinking and tool calls are looked for
    bool in_think;         // the prompt ended inside a thinking block
    char *tools;           // owned JSON of the request's tools; NULL: no calls
    bool one_call;         // parallel_tool_calls is off: the answer ends after the first
    bool bare_grammar;     // it says nothing of thinking, and holds after it
    mica_grammar *grammar; // owned; what the answer (after its thinking) must follow; each choice has a clone
    // JOB_SLOT_*
    uint32_t slot;
    char file[128];
} job;

job *job_new(job_kind kind);      // held once; NULL: out of memory
size_t job_choices(const job *j); // of all prompts
const mica_ids *job_prompt(const job *j, int choice);
void job_hold(job *j);
void job_drop(job *j); // NULL allowed
/* One choice has ended: the last one ends the flow. */
void job_close(job *j);
/* The whole request failed. */
void job_fail(job *j, mica_status st, const char *text);

#endif
