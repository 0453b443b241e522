/* The logits of a run, row after row, for tests that compare one device's with another's. */
#ifndef MICA_LOGIT_TRACE_H
#define MICA_LOGIT_TRACE_H

#include "check.h"

#include "run/engine.h"

typedef struct trace {
    float *logits; // owned, [n, n_vocab]
    size_t n, n_vocab;
} trace;

static void keep(trace *t, const float *logits) {
    t->logits = realloc(t->logits, (t->n + 1) * t->n_vocab * sizeof(float));
    memcpy(t->logits + t->n++ * t->n_vocab, logits, t->n_vocab * sizeof(float));
}

/* A chain of two drafts behind the window before it. */
static void draft(trace *t, engine *e, int32_t pos) {
    mica_error err;
    draft_row row = {.tok = 77, .seq = 0, .pos = pos, .h_row = DRAFT_KEPT, .want = true};
    CHECK_OK(engine_draft(e, &row, 1, false, &err));
    keep(t, engine_logits(e, 0));
    row = (draft_row){.tok = 78, .seq = 0, .pos = pos + 1, .h_row = 0, .want = true};
    CHECK_OK(engine_draft(e, &row, 1, true, &err));
    keep(t, engine_logits(e, 0));
}
#endif
