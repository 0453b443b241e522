/* libmica's tools: look at a file, plan, evaluate, measure, synthesise, download.
 *
 * Each gives its result as one JSON text in the shape of docs/CONTRACT.md (the same that the command prints
 * with --json); callers that print for people read it back. Free it with mica_text_free. Threads: as mica.h.
 */
#ifndef MICA_TOOLS_H
#define MICA_TOOLS_H

#include "mica.h"

#ifdef __cplusplus
extern "C" {
#endif

/* {"path","version","alignment","shards","bytes","arch","name","parameters","metadata":{…},
 * "tensors":[{"name","type","shape","bytes","shard","offset"}]}
 * Long arrays of metadata are cut to their first items unless `all`; "tensors" shapes are slowest axis first.
 */
MICA_API mica_status mica_inspect(char **json, const char *path, bool all, mica_error *err);

/* The plan for these options, nothing loaded; see CONTRACT.md `plan --json`. "fits" false is not an error
 * here. */
MICA_API mica_status mica_plan(char **json, const mica_load_options *opt, mica_error *err);

/* Array of devices, `devices --json`; with selftest the kernels are compared with the definition first. */
MICA_API mica_status mica_devices(char **json, bool selftest, mica_error *err);

typedef struct mica_eval_logits_options {
    const int32_t *ids;
    size_t n;
    bool all_positions;
    uint32_t top;      // > 0: only the best so many as [id, logit]
    uint32_t split_at; // > 0: the first so many ids are read in a call of their own
} mica_eval_logits_options;
MICA_API mica_status mica_eval_logits(char **json, mica_session *s, const mica_eval_logits_options *opt,
                                      mica_error *err);

/* Against a reference file (gzipped JSON of docs/FIXTURES.md). *ok false: some check failed; json tells
 * which. */
MICA_API mica_status mica_eval_ref(char **json, bool *ok, mica_session *s, const char *ref_path,
                                   mica_error *err);
MICA_API mica_status mica_eval_tasks(char **json, mica_session *s, const char *tasks_path,
                                     mica_progress_fn *progress, void *user, mica_error *err);
/* Perplexity of a text file over windows of the context; every token but the first of a window is scored. */
MICA_API mica_status mica_eval_ppl(char **json, mica_session *s, const char *text_path,
                                   mica_progress_fn *progress, void *user, mica_error *err);
/* Kullback-Leibler divergence from a base model of the same vocabulary over the same windows. */
MICA_API mica_status mica_eval_kld(char **json, mica_session *s, mica_session *base, const char *text_path,
                                   mica_progress_fn *progress, void *user, mica_error *err);

/* Replays a record of routing (mica_load_options.trace_path) against caches that hold `percent` of the
 * experts: hit rates of the policy, of it with learned use, of LRU, LFU and Belady's bound. No model needed.
 */
MICA_API mica_status mica_eval_cache(char **json, const char *trace_path, const uint32_t *percent,
                                     size_t n_percent, mica_error *err);

typedef struct mica_bench_options {
    const uint32_t *n_prompt; // list of prompt lengths
    size_t n_n_prompt;
    const uint32_t *n_gen;
    size_t n_n_gen;
    const uint32_t *depth; // context lengths before each test; empty: 0
    size_t n_depth;
    uint32_t repeats; // 0: 5
    bool profile; // one more run of each test, its operations timed; devices in host memory only
} mica_bench_options;
MICA_API mica_status mica_bench(char **json, mica_session *s, const mica_bench_options *opt,
                                mica_progress_fn *progress, void *user, mica_error *err);

/* Measures this machine's read bandwidth in GB/s with n_thread threads (bounds of bench). */
MICA_API double mica_measure_read_gbps(int n_thread);

/* What was found best for models of one shape on one processor or card. It changes how long an answer takes,
 * never its bits. */
typedef struct mica_tuned {
    int n_thread;      // 0: not measured
    uint32_t n_ubatch; // 0: not measured
    int32_t n_draft;   // -1: not measured
} mica_tuned;
/* Loads the model several times, measures and keeps the best; `tune --json` in CONTRACT.md. What opt gives
 * itself (n_thread, n_ubatch) is taken and not measured. */
MICA_API mica_status mica_tune(char **json, const mica_load_options *opt, mica_error *err);
/* What was kept for this model on this device; *found false when nothing was. MICA_E_FORMAT: it was, and is
 * damaged. */
MICA_API mica_status mica_tuned_find(mica_tuned *out, bool *found, const mica_load_options *opt,
                                     mica_error *err);
MICA_API mica_status mica_tuned_list(char **json, mica_error *err);
/* Forgets it for one model and device, all of it when opt is NULL. */
MICA_API mica_status mica_tuned_erase(uint32_t *n_erased, const mica_load_options *opt, mica_error *err);

typedef struct mica_synth_options {
    const char *preset, *quant; // mica_synth_presets() lists them
    const char *vocab_path;     // take the vocabulary of this GGUF; NULL: a dummy one
    const char *const *set;     // "KEY=N" overrides
    size_t n_set;
    uint32_t n_layer, n_expert; // 0: the preset's
    uint64_t seed;
    double router_skew; // 0: uniform; Zipf exponent of the router bias
    bool mtp, dry_run;
    mica_cancel_flag *cancel;
    mica_progress_fn *progress;
    void *progress_user;
} mica_synth_options;
/* {"path","parameters","bytes","bytes_per_token"} */
MICA_API mica_status mica_synth(char **json, const char *out_path, const mica_synth_options *opt,
                                mica_error *err);
MICA_API mica_status mica_synth_presets(char **json, mica_error *err);

typedef struct mica_pull_options {
    const char *what; // hf:ORG/REPO[:QUANT], an http(s) URL, or a short name
    mica_cancel_flag *cancel;
    mica_progress_fn *progress;
    void *progress_user;
} mica_pull_options;
/* Downloads (resuming, verified, atomic) into the cache; *path is the first file, also when it was there
 * already. */
MICA_API mica_status mica_pull(char **path, const mica_pull_options *opt, mica_error *err);
/* The file behind a name: an existing path as it is, else a pulled name; MICA_E_IO with a hint when neither.
 */
MICA_API mica_status mica_resolve(char **path, const char *name, mica_error *err);
MICA_API mica_status mica_list(char **json, mica_error *err); // [{"name","path","bytes","complete"}]
MICA_API mica_status mica_remove(const char *name, uint64_t *freed_bytes, mica_error *err);
/* [{"name","meaning","default","value"}] of every environment variable read. */
MICA_API mica_status mica_environment(char **json, mica_error *err);

#ifdef __cplusplus
}
#endif
#endif
