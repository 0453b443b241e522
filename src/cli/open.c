/* Opening models and reading input. */
#include "cli/open.h"

#include "base/clock.h"
#include "cli/exit.h"
#include "cli/print.h"
#include "cli/term.h"
#include "mica_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

mica_status open_path(char **path, const options *o, mica_error *err) {
    *path = NULL;
    if (o->model && o->hf) return fail(err, MICA_E_ARG, "-hf: given beside -m: one of them says which model");
    if (o->model) return mica_resolve(path, o->model, err);
    if (!o->hf)
        return fail(err, MICA_E_ARG,
                    "-m: missing: name a GGUF file or a pulled model: `mica list` shows them");
    strbuf what = {0};
    progress bar = {0};
    if (strncmp(o->hf, "hf:", 3) != 0) strbuf_puts(&what, "hf:");
    strbuf_puts(&what, o->hf);
    interrupt_set_mode(INTERRUPT_WINDS_UP); // the part that came is kept in order
    mica_status st = mica_pull(path,
                               &(mica_pull_options){.what = strbuf_cstr(&what),
                                                    .cancel = interrupt_flag(),
                                                    .progress = progress_show,
                                                    .progress_user = &bar},
                               err);
    interrupt_set_mode(INTERRUPT_ENDS);
    progress_end(&bar);
    strbuf_fini(&what);
    return st;
}

/* ---- llama.cpp's -ngl ---- */

/* The layers of the file, from its header alone; 0 when it does not say. */
static mica_status count_layers(uint64_t *out, const char *path, mica_error *err) {
    char *text = NULL, key[80];
    json_t *v = NULL;
    mica_status st = MICA_OK;
    *out = 0;
    TRY_GOTO(mica_inspect(&text, path, false, err), done);
    TRY_GOTO(print_parse(&v, text, err), done);
    snprintf(key, sizeof key, "%.60s.block_count", member_text(v, "arch"));
    *out = member_u64(json_object_get(v, "metadata"), key);
done:
    json_decref(v);
    mica_text_free(text);
    return st;
}

/* The first card that can be used, or MICA_E_DEVICE. A simulated one is taken only by its name. */
static mica_status first_card(char *out, size_t size_bytes, const options *o, mica_error *err) {
    char *text = NULL;
    json_t *list = NULL, *d;
    size_t i;
    mica_status st = MICA_OK;
    out[0] = 0;
    TRY_GOTO(mica_devices(&text, false, err), done);
    TRY_GOTO(print_parse(&list, text, err), done);
    json_array_foreach(list, i, d) {
        const char *id = member_text(d, "id");
        const bool is_card = strncmp(id, "hip:", 4) == 0 || strncmp(id, "cuda:", 5) == 0;
        if (!out[0] && is_card && member_true(d, "usable")) snprintf(out, size_bytes, "%s", id);
    }
    if (!out[0])
        st = fail(err, MICA_E_DEVICE, "-ngl: %lld: no card can be used: `mica devices` lists what there is",
                  (long long)o->gpu_layers);
done:
    json_decref(list);
    mica_text_free(text);
    return st;
}

static bool names_a_card(const char *device) {
    return device && strchr(device, ':');
}

/* 0 keeps everything on the CPU, which is a device here; all layers are the whole model on a card. */
static mica_status device_of_layers(const char **device, const options *o, const char *path,
                                    mica_error *err) {
    static char card[16]; // outlives the load options that borrow it
    uint64_t n_layer;
    if (o->gpu_layers == 0 && names_a_card(o->device))
        return fail(err, MICA_E_ARG, "-ngl: 0: no layer on the card, and --device %s: one of them",
                    o->device);
    if (o->gpu_layers == 0) {
        if (!o->device) *device = "cpu";
        return MICA_OK;
    }
    if (o->device && !names_a_card(o->device) && strcmp(o->device, "auto") != 0)
        return fail(err, MICA_E_ARG, "-ngl: %lld: layers on a card, and --device %s: one of them",
                    (long long)o->gpu_layers, o->device);
    if (!names_a_card(o->device)) {
        TRY(first_card(card, sizeof card, o, err));
        *device = card;
    }
    TRY(count_layers(&n_layer, path, err));
    if ((uint64_t)o->gpu_layers >= n_layer) return MICA_OK;
    return fail(
        err, MICA_E_ARG,
        "-ngl: %lld: the model has %llu layers, which are not split here: all of them on the card (-ngl "
        "all) or none (-ngl 0)",
        (long long)o->gpu_layers, (unsigned long long)n_layer);
}

static mica_status device_of(const char **device, const options *o, const char *path, mica_error *err) {
    *device = o->device;
    if (o->device && strncasecmp(o->device, "rocm", 4) == 0)
        return fail(err, MICA_E_DEVICE,
                    "--device: %s: AMD cards are hip:0, hip:1 ...: `mica devices` lists them", o->device);
    return o->gpu_layers < 0 ? MICA_OK : device_of_layers(device, o, path, err);
}

mica_status open_flags(mica_load_options *lo, const options *o, const char *path, mica_error *err) {
    *lo = (mica_load_options){
        .path = path,
        .isa = o->isa,
        .n_thread = (int)o->threads,
        .n_ctx = (uint32_t)o->context,
        .n_seq = (uint32_t)o->parallel,
        .n_ubatch = (uint32_t)o->ubatch,
        .kv = (mica_kv_type)o->kv,
        .ram_bytes = o->ram,
        .draft_path = o->draft_model,
        .no_draft = OPTION_SEEN(o, draft) && o->draft == 0,
        .exact = o->exact,
        .vram_bytes = o->vram,
        .vram_reserve = o->vram_reserve,
        .trace_path = o->trace,
        .profile_path = o->profile,
        .experts_ram = (mica_experts_ram)o->experts_ram,
        .cancel = interrupt_flag(),
    };
    return device_of(&lo->device, o, path, err);
}

/* ---- What `mica tune` found ---- */

/* Zero members when nothing is known. A record that is damaged costs a line, not the start. */
static mica_tuned find_tuned(const mica_load_options *lo) {
    mica_error why = {0};
    mica_tuned t;
    bool found;
    if (mica_tuned_find(&t, &found, lo, &why) == MICA_OK) return t;
    if (why.status == MICA_E_FORMAT && strstr(why.text, "mica tune"))
        term_note("%s: not used: `mica tune --erase` removes it", why.text);
    return (mica_tuned){.n_draft = -1};
}

/* For what no flag says. */
static void take_tuned(mica_load_options *lo, const options *o) {
    char threads[40] = "", chunk[48] = "";
    if (o->threads && o->ubatch) return;
    const mica_tuned t = find_tuned(lo);
    if (!o->threads && t.n_thread) {
        lo->n_thread = t.n_thread;
        snprintf(threads, sizeof threads, " -t %d", t.n_thread);
    }
    if (!o->ubatch && t.n_ubatch) {
        lo->n_ubatch = t.n_ubatch;
        snprintf(chunk, sizeof chunk, " -ub %u", t.n_ubatch);
    }
    if (threads[0] || chunk[0])
        term_note("tuned for this machine:%s%s; `mica tune --erase` forgets it", threads, chunk);
}

mica_status open_load_options(mica_load_options *lo, const options *o, const char *path, mica_error *err) {
    TRY(open_flags(lo, o, path, err));
    take_tuned(lo, o);
    return MICA_OK;
}

static mica_status load(opened *out, mica_load_options *lo, mica_error *err) {
    progress bar = {0};
    lo->progress = progress_show;
    lo->progress_user = &bar;
    const uint64_t start = clock_ns();
    mica_status st = mica_model_load(&out->model, lo, err);
    out->load_ms = clock_ms_since(start);
    progress_end(&bar);
    if (st == MICA_OK) mica_model_get_info(out->model, &out->info);
    return st;
}

mica_status open_model(opened *out, const options *o, const mica_load_options *wanted, mica_error *err) {
    mica_status st = MICA_OK;
    char *path = NULL;
    mica_load_options lo;
    *out = (opened){0};
    if (wanted) {
        lo = *wanted;
    } else {
        TRY_GOTO(open_path(&path, o, err), done);
        TRY_GOTO(open_load_options(&lo, o, path, err), done);
    }
    TRY_GOTO(load(out, &lo, err), done);
    out->n_draft = out->info.has_draft ? find_tuned(&lo).n_draft : -1;
    TRY_GOTO(mica_session_new(&out->session, out->model, err), done);
done:
    mica_text_free(path);
    if (st != MICA_OK) open_close(out);
    return st;
}

mica_status open_text(opened *out, const options *o, mica_error *err) {
    char *path;
    *out = (opened){0};
    TRY(open_path(&path, o, err));
    mica_load_options lo = {.path = path, .text_only = true, .cancel = interrupt_flag()};
    mica_status st = load(out, &lo, err);
    mica_text_free(path);
    return st;
}

void open_close(opened *x) {
    mica_session_free(x->session);
    mica_model_free(x->model);
    *x = (opened){0};
}

/* ---- Input ---- */

enum { INPUT_MAX_BYTES = 256 << 20 };

mica_status input_read(strbuf *out, const char *path, mica_error *err) {
    mica_status st = MICA_OK;
    const bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    char block[1 << 15];
    const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(err, MICA_E_IO, "%s: open: %s", name, strerror(errno));
    for (;;) {
        const ssize_t n = read(fd, block, sizeof block);
        if (n == 0) break;
        if (interrupt_signal()) {
            st = fail(err, MICA_E_CANCELLED, "%s: read: interrupted", name);
            break;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            st = fail(err, MICA_E_IO, "%s: read: %s", name, strerror(errno));
            break;
        }
        strbuf_put(out, block, (size_t)n);
        if (out->n > INPUT_MAX_BYTES) {
            st = fail(err, MICA_E_ARG, "%s: over 256 MiB: no context holds so much", name);
            break;
        }
    }
    if (!is_stdin) close(fd);
    if (st == MICA_OK && out->failed)
        st = fail(err, MICA_E_NOMEM, "%s: %zu bytes: out of memory", name, out->n);
    return st;
}
