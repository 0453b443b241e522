/* The command line as one struct.
 *
 * options.c holds one table: every flag's names, value, range, help text and the commands that take it. The
 * parser, the help pages, the manual page and the shell completions are all made from it, so that they cannot
 * disagree.
 *
 *     options o;
 *     TRY(options_parse(&o, argc, argv, err));      // o.command says what to run
 *
 * A flag may stand for different things in different commands (-p is a prompt in run, lengths in bench): then
 * it has several rows with disjoint command sets. Strings are borrowed from argv; the lists are owned,
 * options_fini frees them. */
#ifndef MICA_CLI_OPTIONS_H
#define MICA_CLI_OPTIONS_H

#include "base/status.h"
#include "base/str.h"
#include "mica.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command;

typedef struct text_list {
    const char **p; // owned array of borrowed strings
    size_t n;
} text_list;

typedef struct number_list {
    int64_t *p; // owned
    size_t n;
} number_list;

typedef enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON } bench_format;

enum { OPTION_MAX = 128 }; // rows of the table at most; options.c asserts it

typedef struct options {
    const struct command *command;
    bool help, json;
    // the model and where it runs
    const char *model, *hf, *device, *isa; // model: also the first plain word
    int64_t context, threads, ubatch, parallel, gpu_layers;
    int kv;         // mica_kv_type
    int kv_k, kv_v; // as -ctk and -ctv said it; kv holds what they mean
    uint64_t ram;
    uint64_t vram, vram_reserve;
    bool exact;
    // text in
    const char *prompt, *file, *system, *think, *kwargs, *messages, *tools;
    bool raw, special, bos, no_generation_prompt;
    // text out
    text_list stop;
    int64_t predict, draft;
    double draft_min_p;
    const char *draft_model;
    bool ignore_end;
    // sampling; unless seen, the model's own values hold
    double temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repeat_last_n, seed;
    // bench
    number_list n_prompt, n_gen, depth;
    int64_t repeats;
    bool profile_ops;
    int format; // bench_format
    // eval
    number_list tokens;
    int positions; // 0 last, 1 all
    int64_t top, split_at;
    const char *ref, *tasks, *base, *trace, *profile;
    int experts_ram; // mica_experts_ram
    number_list capacity;
    // serve
    const char *host, *api_key_file, *alias, *state_dir, *web_dir;
    text_list api_key, allow_origin, allow_host;
    int64_t port, queue, receive_s, ping_s, stall_s;
    uint64_t cache_ram, body_bytes;
    bool insecure, reuse_generated;
    // the rest
    bool all, selftest, mtp, dry_run, force, presets, man, list, erase;
    const char *preset, *quant, *output, *vocab;
    text_list set;
    int64_t layers, experts;
    double router_skew;
    text_list args; // what is no flag and not the model, in order
    bool seen[OPTION_MAX];
} options;

/* MICA_E_ARG with one line that names the flag, and the nearest one where it is unknown; MICA_E_DEVICE for a
 * flag that needs hardware this build cannot use. On failure nothing is left to free. */
mica_status options_parse(options *o, int argc, char **argv, mica_error *err);
void options_fini(options *o);
/* Do these words ask for JSON? Also when they are no command line, so that its error can be JSON too. */
bool options_want_json(int argc, char **argv);

/* Was the flag that fills this field given? */
#define OPTION_SEEN(o, field) options_seen((o), offsetof(options, field))
bool options_seen(const options *o, size_t offset);

typedef enum option_group { GROUP_COMMAND, GROUP_MODEL, GROUP_SAMPLING, GROUP_GENERAL, GROUP_N } option_group;

/* One row as the help pages and completions read it. */
typedef struct option_view {
    const char *name, *shorter, *aliases; // "--context", "-c" or NULL, "--ctx-size" (space-separated) or NULL
    const char *value;                    // "N", NULL for a flag without a value
    const char *choices;                  // "f16|f32|int8" when only these are allowed, else NULL
    const char *offers;                   // what completion offers, NULL: nothing is known
    const char *help;
    bool takes_file;
    option_group group;
} option_view;

/* The rows that a command takes, in the order of the table; rows that this build must refuse are left out.
 * false past the last one. */
bool options_view(const struct command *c, size_t i, option_view *out);

#endif
