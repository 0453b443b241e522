/* `mica synth`: a GGUF of random weights with the shape of a real model. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/print.h"
#include "cli/term.h"

#include "base/status.h"
#include "mica_tools.h"

#include <unistd.h>

static void put_summary(const json_t *v) {
    char parameters[16], bytes[16], token[16];
    const char *path = member_text(v, "path");
    printf("%s: %s parameters, %s, %s read for each token\n", path[0] ? path : "dry run",
           print_count(parameters, member_u64(v, "parameters")), print_bytes(bytes, member_u64(v, "bytes")),
           print_bytes(token, member_u64(v, "bytes_per_token")));
}

static mica_status put_result(const char *text, bool json, void (*put)(const json_t *), mica_error *err) {
    json_t *v;
    if (json) {
        print_json_text(text);
        return MICA_OK;
    }
    TRY(print_parse(&v, text, err));
    put(v);
    json_decref(v);
    return MICA_OK;
}

static void put_presets(const json_t *list) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
        printf("%-20s%s\n", member_text(v, "name"), member_text(v, "about"));
}

static mica_status check_flags(const options *o, mica_error *err) {
    if (!o->preset) return fail(err, MICA_E_ARG, "--preset: missing: `mica synth --presets` lists them");
    if (!o->output && !o->dry_run)
        return fail(err, MICA_E_ARG, "-o: missing: name the file to write, or --dry-run");
    if (!o->dry_run && !o->force && access(o->output, F_OK) == 0)
        return fail(err, MICA_E_ARG, "-o: %s: exists: --force writes over it", o->output);
    return MICA_OK;
}

mica_status cmd_synth(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *text = NULL;
    progress bar = {0};
    if (o->presets) {
        TRY(mica_synth_presets(&text, err));
        st = put_result(text, o->json, put_presets, err);
        mica_text_free(text);
        return st;
    }
    TRY(check_flags(o, err));
    const mica_synth_options s = {
        .preset = o->preset,
        .quant = o->quant ? o->quant : "q4_k_m",
        .vocab_path = o->vocab,
        .set = o->set.p,
        .n_set = o->set.n,
        .n_layer = (uint32_t)o->layers,
        .n_expert = (uint32_t)o->experts,
        .seed = o->seed < 0 ? 1 : (uint64_t)o->seed,
        .router_skew = o->router_skew,
        .mtp = o->mtp,
        .dry_run = o->dry_run,
        .cancel = interrupt_flag(),
        .progress = progress_show,
        .progress_user = &bar,
    };
    interrupt_set_mode(INTERRUPT_WINDS_UP); // half a file is removed
    st = mica_synth(&text, o->output ? o->output : "", &s, err);
    progress_end(&bar);
    if (st == MICA_OK) st = put_result(text, o->json, put_summary, err);
    mica_text_free(text);
    return st;
}
