/* `mica serve`: the port first, then the model, then requests until a signal. What is going on is said in
 * plain words on standard error. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/open.h"
#include "cli/print.h"
#include "cli/sampling.h"
#include "cli/term.h"

#include "base/mem.h"
#include "mica_server.h"

#include <string.h>

enum { PARALLEL_DEFAULT = 4 };
#define CACHE_RAM_DEFAULT (UINT64_C(256) << 20)

/* ---- Keys ---- */

/* The keys of the flags and the file. The file's text is `text`, which the list borrows. */
static mica_status take_keys(text_list *keys, strbuf *text, const options *o, mica_error *err) {
    if (o->api_key_file) TRY(input_read(text, o->api_key_file, err));
    size_t n = o->api_key.n + 1;
    for (size_t i = 0; i < text->n; i++) n += text->p[i] == '\n';
    keys->p = mem_calloc(n, sizeof *keys->p);
    if (!keys->p) return fail(err, MICA_E_NOMEM, "--api-key-file: %zu keys: out of memory", n);
    for (size_t i = 0; i < o->api_key.n; i++) keys->p[keys->n++] = o->api_key.p[i];
    char *rest = NULL;
    for (char *line = text->p ? strtok_r(text->p, "\r\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, " \t");
        if (*line && *line != '#') keys->p[keys->n++] = line;
    }
    if (o->api_key_file && keys->n == o->api_key.n)
        return fail(err, MICA_E_ARG, "--api-key-file: %s: no key in it", o->api_key_file);
    return MICA_OK;
}

static mica_status open_server(mica_server **s, const options *o, mica_error *err) {
    text_list keys = {0};
    strbuf text = {0};
    mica_status st = take_keys(&keys, &text, o, err);
    const mica_server_options opt = {
        .host = o->host,
        .port = (int)o->port,
        .api_keys = keys.p,
        .n_api_key = keys.n,
        .allow_origins = o->allow_origin.p,
        .n_allow_origin = o->allow_origin.n,
        .allow_hosts = o->allow_host.p,
        .n_allow_host = o->allow_host.n,
        .alias = o->alias,
        .state_dir = o->state_dir,
        .web_dir = o->web_dir,
        .insecure = o->insecure,
        .reuse_generated = o->reuse_generated,
        .n_queue = (uint32_t)o->queue,
        .body_bytes = o->body_bytes,
        .receive_s = (uint32_t)o->receive_s,
        .ping_s = (uint32_t)o->ping_s,
        .stall_s = (uint32_t)o->stall_s,
    };
    if (st == MICA_OK) st = mica_server_open(s, &opt, err);
    mem_free(keys.p);
    strbuf_fini(&text);
    return st;
}

/* ---- The model ---- */

static mica_status load(opened *model, const options *o, mica_error *err) {
    char *path = NULL, bytes[16], kv[16];
    mica_load_options lo;
    mica_status st = open_path(&path, o, err);
    if (st == MICA_OK) st = open_load_options(&lo, o, path, err);
    if (st == MICA_OK) {
        if (lo.n_seq == 0) lo.n_seq = PARALLEL_DEFAULT;
        lo.cache_bytes = o->cache_ram ? o->cache_ram : CACHE_RAM_DEFAULT;
        lo.state_dir = o->state_dir;
        term_note("loading %s; requests are answered with \"Loading model\" until it is there", path);
        st = open_model(model, o, &lo, err);
    }
    mica_text_free(path);
    if (st != MICA_OK) return st;
    const mica_model_info *i = &model->info;
    term_note("%s: %s, %s of weights, on %s, loaded in %.1f s", i->name && *i->name ? i->name : i->arch,
              i->file_type, print_bytes(bytes, i->weights_bytes), i->device, model->load_ms / 1000.0);
    term_note("%u conversations at the same time, each up to %u tokens (%s for their context)", i->n_seq,
              i->n_ctx, print_bytes(kv, i->kv_bytes));
    if (!i->has_template) term_note("the model has no chat template: /v1/completions works, chat does not");
    return MICA_OK;
}

static mica_status serve(mica_server *s, opened *model, const options *o, mica_error *err) {
    mica_sampling sampling = model->info.sampling;
    sampling_flags(&sampling, o);
    const mica_server_defaults d = {
        .sampling = &sampling,
        .think = o->think,
        .n_draft = OPTION_SEEN(o, draft)    ? (int32_t)o->draft
                   : !model->info.has_draft ? 0
                   : model->n_draft >= 0    ? model->n_draft
                                            : MICA_DRAFT_DEFAULT,
        .draft_min_p = (float)o->draft_min_p,
    };
    mica_session_free(model->session); // the server has its own
    model->session = NULL;
    term_note("ready: %s (page), %s/v1 (API); Ctrl-C ends it", mica_server_url(s), mica_server_url(s));
    interrupt_set_mode(INTERRUPT_DRAINS);
    TRY(mica_server_run(s, model->model, &d, interrupt_flag(), err));
    return interrupt_signal() ? fail(err, MICA_E_CANCELLED, "server: ended") : MICA_OK;
}

mica_status cmd_serve(const options *o, mica_error *err) {
    mica_server *s = NULL;
    opened model = {0};
    mica_status st = MICA_OK;
    if (!o->model && !o->hf) return fail(err, MICA_E_ARG, "-m: missing: name a GGUF file or a pulled model");
    TRY_GOTO(open_server(&s, o, err), done);
    term_note("listening on %s", mica_server_url(s));
    TRY_GOTO(load(&model, o, err), done);
    st = serve(s, &model, o, err);
done:
    mica_server_free(s);
    open_close(&model);
    return st;
}
