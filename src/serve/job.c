/* Counting and ends of requests. */
#include "serve/job.h"

#include "base/clock.h"
#include "base/mem.h"

job *job_new(job_kind kind) {
    job *j = mem_calloc(1, sizeof *j);
    if (!j) return NULL;
    atomic_init(&j->n_hold, 1);
    atomic_init(&j->n_open, 1);
    flow_init(&j->flow);
    j->kind = kind;
    j->begun_ns = clock_ns();
    return j;
}

size_t job_choices(const job *j) {
    return j->kind == JOB_TEXT ? (size_t)j->ask.n_choice * (1 + j->n_more) : 1;
}

const mica_ids *job_prompt(const job *j, int choice) {
    const size_t i = (size_t)choice / (size_t)(j->ask.n_choice > 0 ? j->ask.n_choice : 1);
    return i == 0 || i > j->n_more ? &j->prompt : &j->more[i - 1];
}

void job_hold(job *j) {
    atomic_fetch_add(&j->n_hold, 1);
}

void job_drop(job *j) {
    if (!j || atomic_fetch_sub(&j->n_hold, 1) > 1) return;
    flow_fini(&j->flow);
    ask_fini(&j->ask);
    mica_ids_free(&j->prompt);
    for (size_t i = 0; i < j->n_more; i++) mica_ids_free(&j->more[i]);
    mem_free(j->more);
    mica_grammar_free(j->grammar);
    mica_text_free(j->tools);
    mem_free(j);
}

void job_close(job *j) {
    if (atomic_fetch_sub(&j->n_open, 1) == 1) flow_end(&j->flow);
}

void job_fail(job *j, mica_status st, const char *text) {
    flow_put(&j->flow, &(event){.kind = EVENT_FAIL, .number = st, .body = slice_of(text)});
    flow_end(&j->flow);
}
