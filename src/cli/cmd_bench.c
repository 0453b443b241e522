/* `mica bench`: speed of prompts and of generation, with the bound that this machine's memory sets. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/print.h"
#include "cli/term.h"

#include "base/mem.h"
#include "base/status.h"
#include "mica_tools.h"

#include <string.h>

typedef struct lengths {
    uint32_t *p; // owned
    size_t n;
    uint32_t most;
} lengths;

/* The numbers of a flag without its zeros (they switch a kind of test off); `fallback` when it was not given.
 */
static mica_status lengths_of(lengths *out, const number_list *given, uint32_t fallback, mica_error *err) {
    const size_t n = given->n ? given->n : 1;
    *out = (lengths){.p = mem_alloc(n * sizeof *out->p)};
    if (!out->p) return fail(err, MICA_E_NOMEM, "bench: %zu lengths: out of memory", n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t v = given->n ? (uint32_t)given->p[i] : fallback;
        if (v == 0) continue;
        out->p[out->n++] = v;
        if (v > out->most) out->most = v;
    }
    return MICA_OK;
}

/* Depth 0 is a test like any other, so zeros stay. */
static mica_status depths_of(lengths *out, const number_list *given, mica_error *err) {
    *out = (lengths){.p = mem_calloc(given->n + 1, sizeof *out->p), .n = given->n ? given->n : 1};
    if (!out->p) return fail(err, MICA_E_NOMEM, "bench: %zu depths: out of memory", given->n);
    for (size_t i = 0; i < given->n; i++) {
        out->p[i] = (uint32_t)given->p[i];
        if (out->p[i] > out->most) out->most = out->p[i];
    }
    return MICA_OK;
}

/* ---- Tables ---- */

typedef struct bench_row {
    const char *test;
    double median, min, max, gbps, bound, share;
    bool has_bound;
} bench_row;

static bench_row row_of(const json_t *v) {
    const json_t *tps = json_object_get(v, "tps");
    return (bench_row){.test = member_text(v, "test"),
                       .median = member_real(tps, "median"),
                       .min = member_real(tps, "min"),
                       .max = member_real(tps, "max"),
                       .gbps = member_real(v, "gbps"),
                       .bound = member_real(v, "bound_gbps"),
                       .share = member_real(v, "share"),
                       .has_bound = json_is_number(json_object_get(v, "share"))};
}

/* A number of a row, or a dash. */
static void put_cell(const json_t *v, const char *name, const char *form) {
    const json_t *n = json_object_get(v, name);
    if (json_is_number(n))
        printf(form, json_number_value(n));
    else
        printf(" - |");
}

/* Where the time of each test went; the remainder of a step is what lies between its operations. */
static void put_profiles(const json_t *rows) {
    size_t i, j;
    json_t *v, *r;
    json_array_foreach((json_t *)(uintptr_t)rows, i, v) {
        const json_t *p = json_object_get(v, "profile");
        if (!p) continue;
        printf("\n%s, %.1f ms:\n\n", member_text(v, "test"), member_real(p, "step_ms"));
        printf("| operation | calls | ms | share | GB/s | GOP/s |\n| :--- | ---: | ---: | ---: | ---: | ---: "
               "|\n");
        json_array_foreach(json_object_get(p, "operations"), j, r) {
            printf("| %s | %llu | %.2f | %.1f %% |", member_text(r, "what"),
                   (unsigned long long)member_u64(r, "calls"), member_real(r, "ms"),
                   member_real(r, "share") * 100);
            put_cell(r, "gbps", " %.1f |");
            put_cell(r, "gops", " %.0f |");
            printf("\n");
        }
    }
}

static mica_status put_md(const json_t *rows, mica_error *err) {
    (void)err;
    size_t i;
    json_t *v;
    printf("| test | tokens/s | least | most | GB/s | bound | share |\n| :--- | ---: | ---: | ---: | ---: | "
           "---: | ---: |\n");
    json_array_foreach((json_t *)(uintptr_t)rows, i, v) {
        const bench_row r = row_of(v);
        printf("| %s | %.2f | %.2f | %.2f | ", r.test, r.median, r.min, r.max);
        if (r.has_bound)
            printf("%.2f | %.2f | %.0f %% |\n", r.gbps, r.bound, r.share * 100);
        else
            printf("- | - | - |\n");
    }
    put_profiles(rows);
    return MICA_OK;
}

static mica_status put_csv(const json_t *rows, mica_error *err) {
    (void)err;
    size_t i;
    json_t *v;
    printf("test,depth,median_tps,min_tps,max_tps,gbps,bound_gbps,share\n");
    json_array_foreach((json_t *)(uintptr_t)rows, i, v) {
        const bench_row r = row_of(v);
        printf("%s,%llu,%.6g,%.6g,%.6g,", r.test, (unsigned long long)member_u64(v, "depth"), r.median, r.min,
               r.max);
        if (r.has_bound)
            printf("%.6g,%.6g,%.6g\n", r.gbps, r.bound, r.share);
        else
            printf(",,\n"); // not known is not 0
    }
    return MICA_OK;
}

static mica_status put_table(const char *text, int format, mica_error *err) {
    json_t *rows;
    if (format == BENCH_JSON) {
        print_json_text(text);
        return MICA_OK;
    }
    TRY(print_parse(&rows, text, err));
    mica_status st = format == BENCH_CSV ? put_csv(rows, err) : put_md(rows, err);
    json_decref(rows);
    return st;
}

/* ---- The command ---- */

/* Which model, where: above a table that people paste elsewhere. */
static void put_subject(const opened *x) {
    char parameters[16], bytes[16];
    term_note("%s %s, %s parameters, %s; %s", x->info.name ? x->info.name : x->info.arch,
              x->info.file_type ? x->info.file_type : "", print_count(parameters, x->info.n_param),
              print_bytes(bytes, x->info.file_bytes), x->info.device);
}

static mica_status bench(const options *o, const mica_bench_options *b, uint32_t most, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    char *path = NULL, *text = NULL;
    progress bar = {0};
    mica_load_options lo;
    TRY_GOTO(open_path(&path, o, err), done);
    TRY_GOTO(open_load_options(&lo, o, path, err), done);
    if (lo.n_ctx == 0) lo.n_ctx = most; // no KV memory beyond what the tests use
    TRY_GOTO(open_model(&x, o, &lo, err), done);
    put_subject(&x);
    st = mica_bench(&text, x.session, b, progress_show, &bar, err);
    progress_end(&bar);
    if (st == MICA_OK) st = put_table(text, o->json ? BENCH_JSON : o->format, err);
done:
    mica_text_free(text);
    open_close(&x);
    mica_text_free(path);
    return st;
}

mica_status cmd_bench(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    lengths prompt = {0}, gen = {0}, depth = {0};
    TRY_GOTO(lengths_of(&prompt, &o->n_prompt, 512, err), done);
    TRY_GOTO(lengths_of(&gen, &o->n_gen, 128, err), done);
    TRY_GOTO(depths_of(&depth, &o->depth, err), done);
    if (prompt.n + gen.n == 0)
        TRY_GOTO(fail(err, MICA_E_ARG, "-p and -n: both 0: nothing is left to time"), done);
    if (o->profile_ops && o->format == BENCH_CSV)
        TRY_GOTO(fail(err, MICA_E_ARG, "--profile-ops: a table of its own: not with -o csv"), done);
    const uint32_t longest = prompt.most > gen.most ? prompt.most : gen.most;
    if (longest >= INT32_MAX - depth.most)
        TRY_GOTO(fail(err, MICA_E_ARG, "-d: %u: with a test of %u tokens there is no such context",
                      depth.most, longest),
                 done);
    st = bench(o,
               &(mica_bench_options){.n_prompt = prompt.p,
                                     .n_n_prompt = prompt.n,
                                     .n_gen = gen.p,
                                     .n_n_gen = gen.n,
                                     .depth = depth.p,
                                     .n_depth = depth.n,
                                     .repeats = (uint32_t)o->repeats,
                                     .profile = o->profile_ops},
               depth.most + longest + 1, err); // generation starts from a token
done:
    mem_free(prompt.p);
    mem_free(gen.p);
    mem_free(depth.p);
    return st;
}
