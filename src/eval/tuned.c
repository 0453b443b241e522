/* The folder of kept measurements. A start with nothing kept costs one look at a folder: the model's header
 * is read only when there is something that could be for it. */
#include "eval/tuned.h"

#include "base/cpu.h"
#include "base/home.h"
#include "base/mem.h"
#include "base/str.h"
#include "dev/gpu_drv.h"
#include "eval/report.h"
#include "gguf/gguf.h"
#include "run/api_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { TUNED_VERSION = 1, FILE_MAX_BYTES = 64 << 10 };

/* ---- The pair ---- */

static uint64_t header_u64(const gguf_file *g, const char *arch, const char *name) {
    char key[120];
    uint64_t v = 0;
    snprintf(key, sizeof key, "%.60s.%s", arch, name);
    gguf_value_u64(gguf_find(g, key), &v);
    return v;
}

/* Fine-tuned models of one shape and one type share what was found for one of them. */
static void describe_model(tuned_key *k, const gguf_file *g) {
    slice s = SLICE_LIT("");
    char arch[64];
    uint64_t n_param = 0, n_bytes = 0;
    gguf_value_str(gguf_find(g, "general.architecture"), &s);
    snprintf(arch, sizeof arch, "%.*s", (int)(s.n < 60 ? s.n : 60), s.n ? s.p : "");
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        n_param += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
        n_bytes += t->size_bytes;
    }
    k->n_layer = header_u64(g, arch, "block_count");
    k->n_ctx_train = header_u64(g, arch, "context_length");
    snprintf(k->model, sizeof k->model, "%s, %llu layers of %llu, %llu parameters in %llu bytes", arch,
             (unsigned long long)k->n_layer, (unsigned long long)header_u64(g, arch, "embedding_length"),
             (unsigned long long)n_param, (unsigned long long)n_bytes);
}

static mica_status describe_machine(tuned_key *k, const mica_load_options *opt, mica_error *err) {
    engine_config c;
    gpu_card card;
    cpu_topology topo;
    TRY(api_engine_config(&c, opt, err));
    k->on_cpu = c.dev == DEV_CPU || c.dev == DEV_REF;
    if (k->on_cpu) {
        cpu_topology_get(&topo);
        snprintf(k->machine, sizeof k->machine, "%s, %s, %d cores, %d processors", topo.model,
                 c.dev == DEV_REF ? "ref" : cpu_isa_name(c.isa), topo.n_physical, topo.n_logical);
        return MICA_OK;
    }
    const gpu_kind kind = c.dev == DEV_HIP ? GPU_HIP : c.dev == DEV_CUDA ? GPU_CUDA : GPU_SIM;
    TRY(gpu_card_get(&card, kind, c.card, err));
    snprintf(k->machine, sizeof k->machine, "%s, %s, %s", card.id, card.name, card.arch);
    return MICA_OK;
}

mica_status tuned_key_make(tuned_key *out, const mica_load_options *opt, mica_error *err) {
    gguf_file *g;
    *out = (tuned_key){.on_cpu = true};
    TRY(gguf_open(&g, opt->path, err));
    describe_model(out, g);
    gguf_close(g);
    return describe_machine(out, opt, err);
}

/* ---- The folder ---- */

static mica_status out_of_memory(mica_error *err) {
    return fail(err, MICA_E_NOMEM, "tune: out of memory");
}

static mica_status put_folder(strbuf *path, bool create, mica_error *err) {
    char *home;
    TRY(create ? home_create(&home, err) : home_find(&home, err));
    strbuf_printf(path, "%s/tune", home);
    mem_free(home);
    if (path->failed) return out_of_memory(err);
    if (create && mkdir(path->p, 0755) != 0 && errno != EEXIST)
        return fail(err, MICA_E_IO, "%s: create: %s", path->p, strerror(errno));
    return MICA_OK;
}

static mica_status put_file(strbuf *path, const tuned_key *k, bool create, mica_error *err) {
    char both[sizeof k->model + sizeof k->machine + 1];
    const int n = snprintf(both, sizeof both, "%s\n%s", k->model, k->machine);
    TRY(put_folder(path, create, err));
    strbuf_printf(path, "/%016llx.json", (unsigned long long)XXH3_64bits(both, (size_t)n));
    return path->failed ? out_of_memory(err) : MICA_OK;
}

static bool is_record_name(const char *name) {
    return strlen(name) == 21 && strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, ".json") == 0;
}

/* Calls fn with the path of each record, until it fails. A folder that is missing holds none. */
static mica_status each_record(mica_status (*fn)(void *user, const char *path, mica_error *err), void *user,
                               mica_error *err) {
    strbuf folder = {0}, path = {0};
    mica_status st = put_folder(&folder, false, err);
    DIR *d = st == MICA_OK ? opendir(folder.p) : NULL;
    for (struct dirent *e; d && st == MICA_OK && (e = readdir(d));) {
        if (!is_record_name(e->d_name)) continue;
        strbuf_clear(&path);
        strbuf_printf(&path, "%s/%s", folder.p, e->d_name);
        st = path.failed ? out_of_memory(err) : fn(user, path.p, err);
    }
    if (d) closedir(d);
    strbuf_fini(&folder);
    strbuf_fini(&path);
    return st;
}

/* ---- Records ---- */

/* A number of "best" in its range, `missing` when it is null or not there; false when it is anything else. */
static bool best_number(const json_t *best, const char *name, json_int_t hi, json_int_t missing,
                        json_int_t *out) {
    const json_t *v = json_object_get(best, name);
    *out = missing;
    if (!v || json_is_null(v)) return true;
    *out = json_integer_value(v);
    const json_int_t lo = missing < 0 ? 0 : 1;
    return json_is_integer(v) && *out >= lo && *out <= hi;
}

static mica_status read_record(json_t **out, mica_tuned *best, const char *path, mica_error *err) {
    struct stat sb;
    json_error_t why;
    json_int_t threads, ubatch, draft;
    *out = NULL;
    if (stat(path, &sb) != 0) return fail(err, MICA_E_IO, "%s: open: %s", path, strerror(errno));
    if (sb.st_size > FILE_MAX_BYTES || !S_ISREG(sb.st_mode))
        return fail(err, MICA_E_FORMAT, "%s: no record of mica tune", path);
    json_t *v = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    const json_t *b = json_object_get(v, "best");
    const char *wrong = !v                                                                   ? why.text
                        : json_integer_value(json_object_get(v, "version")) != TUNED_VERSION ? "version"
                        : !json_is_string(json_object_get(v, "model"))                       ? "model"
                        : !json_is_string(json_object_get(v, "machine"))                     ? "machine"
                        : !json_is_object(b)                                                 ? "best"
                        : !best_number(b, "threads", 1024, 0, &threads)                      ? "threads"
                        : !best_number(b, "ubatch", 65536, 0, &ubatch)                       ? "ubatch"
                        : !best_number(b, "draft", MICA_DRAFT_MAX, -1, &draft)               ? "draft"
                                                                                             : NULL;
    if (wrong) {
        json_decref(v);
        return fail(err, MICA_E_FORMAT, "%s: no record of mica tune: %s", path, wrong);
    }
    if (best)
        *best =
            (mica_tuned){.n_thread = (int)threads, .n_ubatch = (uint32_t)ubatch, .n_draft = (int32_t)draft};
    *out = v;
    return MICA_OK;
}

mica_status tuned_save(char **path, const tuned_key *key, json_t *result, mica_error *err) {
    strbuf to = {0}, part = {0};
    mica_status st = MICA_OK;
    *path = NULL;
    json_object_set_new(result, "version", json_integer(TUNED_VERSION));
    json_object_set_new(result, "model", json_string(key->model));
    json_object_set_new(result, "machine", json_string(key->machine));
    TRY_GOTO(put_file(&to, key, true, err), done);
    strbuf_printf(&part, "%s.%ld.part", to.p, (long)getpid());
    if (part.failed) TRY_GOTO(out_of_memory(err), done);
    if (json_dump_file(result, part.p, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0 ||
        rename(part.p, to.p) != 0) {
        const int why = errno;
        unlink(part.p);
        TRY_GOTO(fail(err, write_status(why), "%s: write: %s", to.p, strerror(why)), done);
    }
    *path = strbuf_take(&to);
done:
    strbuf_fini(&to);
    strbuf_fini(&part);
    return st;
}

static mica_status note_one(void *user, const char *path, mica_error *err) {
    (void)path, (void)err;
    *(bool *)user = true;
    return MICA_OK;
}

mica_status mica_tuned_find(mica_tuned *out, bool *found, const mica_load_options *opt, mica_error *err) {
    tuned_key key;
    strbuf path = {0};
    json_t *v = NULL;
    bool any = false;
    *out = (mica_tuned){.n_draft = -1};
    *found = false;
    // Without a home nothing was kept.
    if (each_record(note_one, &any, NULL) != MICA_OK || !any) return MICA_OK;
    mica_status st = tuned_key_make(&key, opt, err);
    if (st == MICA_OK) st = put_file(&path, &key, false, err);
    if (st == MICA_OK && access(path.p, F_OK) == 0) st = read_record(&v, out, path.p, err);
    if (v) { // a hash is no proof
        *found = strcmp(json_string_value(json_object_get(v, "model")), key.model) == 0 &&
                 strcmp(json_string_value(json_object_get(v, "machine")), key.machine) == 0;
        if (!*found) *out = (mica_tuned){.n_draft = -1};
    }
    json_decref(v);
    strbuf_fini(&path);
    return st;
}

static mica_status list_one(void *user, const char *path, mica_error *err) {
    json_t *v;
    if (read_record(&v, NULL, path, NULL) != MICA_OK) return MICA_OK; // never used either
    json_object_set_new(v, "path", json_string(path));
    return json_array_append_new(user, v) == 0 ? MICA_OK : out_of_memory(err);
}

mica_status mica_tuned_list(char **json, mica_error *err) {
    json_t *list = json_array();
    *json = NULL;
    mica_status st = each_record(list_one, list, err);
    if (st == MICA_OK) return report_text(json, list, err);
    json_decref(list);
    return st;
}

static mica_status erase_one(void *user, const char *path, mica_error *err) {
    if (unlink(path) != 0) return fail(err, MICA_E_IO, "%s: remove: %s", path, strerror(errno));
    ++*(uint32_t *)user;
    return MICA_OK;
}

mica_status mica_tuned_erase(uint32_t *n_erased, const mica_load_options *opt, mica_error *err) {
    tuned_key key;
    strbuf path = {0};
    *n_erased = 0;
    if (!opt) return each_record(erase_one, n_erased, err);
    mica_status st = tuned_key_make(&key, opt, err);
    if (st == MICA_OK) st = put_file(&path, &key, false, err);
    if (st == MICA_OK && access(path.p, F_OK) == 0) st = erase_one(n_erased, path.p, err);
    strbuf_fini(&path);
    return st;
}
