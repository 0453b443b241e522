/* One timed run, shared by mica_bench and mica_tune. Threads: the model's worker. */
#ifndef MICA_EVAL_BENCH_H
#define MICA_EVAL_BENCH_H

#include "dev/dev_profile.h"
#include "run/api_int.h"

typedef struct bench_case {
    uint32_t n, depth; // tokens that are timed; tokens in the context before them
    bool prompt;       // read in one piece, else appended one by one
} bench_case;

typedef struct bench_rig {
    mica_session *s;      // borrowed
    int32_t *ids;         // [n_ctx], borrowed
    uint64_t seed;        // of the ids; moves on
    dev_profile *profile; // borrowed: cleared when the timed part begins; NULL: none
} bench_rig;

/* *tps gets the tokens a second of random ids that no run before shares a prefix with. MICA_E_ARG: the
 * context does not hold them. */
mica_status bench_run_once(bench_rig *r, const bench_case *c, double *tps, mica_error *err);
#endif
