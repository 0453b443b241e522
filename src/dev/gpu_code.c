/* Embedded objects, the compiler at run time, and the cache between them. */
#include "dev/gpu_code.h"

#include "base/clock.h"
#include "base/home.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

/* ---- embedded ---- */

static int number_of(const char *name, const char *prefix, const char *suffix) {
    size_t n = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, n) != 0) return -1;
    long v = strtol(name + n, &end, 10);
    return strcmp(end, suffix) == 0 && v > 0 && v < 10000 ? (int)v : -1;
}

/* How well an object fits an NVIDIA card of number `want`: the number of the object, PTX below all machine
 * code; -1: not at all. */
static int cuda_fit(const char *name, int want) {
    int sm = number_of(name, "sm_", ".cubin.gz"), ptx = number_of(name, "compute_", ".ptx.gz");
    if (sm > 0 && sm <= want && sm / 10 == want / 10) return 10000 + sm;
    return ptx > 0 && ptx <= want ? ptx : -1;
}

const char *gpu_code_find(const kern_file *files, uint64_t n, const gpu_card *card) {
    const char *best = NULL;
    int best_fit = -1;
    char exact[48];
    snprintf(exact, sizeof exact, "%s.co.gz", card->arch);
    for (uint64_t i = 0; i < n; i++) {
        if (card->kind == GPU_HIP && strcmp(files[i].name, exact) == 0) return files[i].name;
        if (card->kind != GPU_CUDA) continue;
        int fit = cuda_fit(files[i].name, atoi(card->arch + 3));
        if (fit <= best_fit) continue;
        best_fit = fit;
        best = files[i].name;
    }
    return best;
}

static const kern_file *file_named(const char *name) {
    for (uint64_t i = 0; i < mica_kern_file_count; i++) {
        if (strcmp(mica_kern_files[i].name, name) == 0) return &mica_kern_files[i];
    }
    return NULL;
}

/* A gzip stream ends with its length. One zero byte more: PTX is text. */
static mica_status unpack(void **out, const kern_file *f, mica_error *err) {
    uint32_t n;
    *out = NULL;
    if (f->n_bytes < 18) return fail(err, MICA_E_INTERNAL, "embedded %s: %d bytes", f->name, (int)f->n_bytes);
    memcpy(&n, (const char *)f->data + f->n_bytes - 4, 4);
    char *p = mem_calloc((size_t)n + 1, 1);
    if (!p) return fail(err, MICA_E_NOMEM, "embedded %s: %u bytes: out of memory", f->name, n);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)f->data,
                  .avail_in = (uInt)f->n_bytes,
                  .next_out = (Bytef *)p,
                  .avail_out = n};
    bool ok = inflateInit2(&z, 15 + 16) == Z_OK; // + 16: the gzip wrapping
    if (ok) {
        ok = inflate(&z, Z_FINISH) == Z_STREAM_END;
        inflateEnd(&z);
    }
    if (!ok) {
        mem_free(p);
        return fail(err, MICA_E_INTERNAL, "embedded %s: damaged", f->name);
    }
    *out = p;
    return MICA_OK;
}

/* ---- the compiler at run time ---- */

enum { HEADERS_MAX = 64, OPTIONS_MAX = 10 };

typedef struct recipe {
    const char *text;
    const char *header_text[HEADERS_MAX], *header_name[HEADERS_MAX];
    char *owned[HEADERS_MAX + 1]; // NUL-terminated copies behind them
    int n_header, n_owned;
    const char *options[OPTIONS_MAX];
    int n_option;
    char arch[64];
} recipe;

static void recipe_fini(recipe *r) {
    for (int i = 0; i < r->n_owned; i++) mem_free(r->owned[i]);
}

static bool is_source(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0);
}

static mica_status recipe_texts(recipe *r, mica_error *err) {
    for (uint64_t i = 0; i < mica_kern_file_count; i++) {
        const kern_file *f = &mica_kern_files[i];
        if (!is_source(f->name)) continue;
        char *copy = r->n_owned <= HEADERS_MAX ? mem_calloc(f->n_bytes + 1, 1) : NULL;
        if (!copy) return fail(err, MICA_E_NOMEM, "kernels: %s: out of memory", f->name);
        memcpy(copy, f->data, f->n_bytes);
        r->owned[r->n_owned++] = copy;
        if (strcmp(f->name, "kern/all.cuh") == 0) {
            r->text = copy;
        } else {
            r->header_text[r->n_header] = copy;
            r->header_name[r->n_header++] = f->name;
        }
    }
    if (!r->text) return fail(err, MICA_E_INTERNAL, "kernels: kern/all.cuh is not in this build");
    return MICA_OK;
}

/* No contraction and no flush to zero anywhere: docs/ARITHMETIC.md rule 9. */
static void recipe_options(recipe *r, const gpu_card *c) {
    static const char *const hip[] = {"-O3", "-std=c++17", "-ffp-contract=off", "-DMICA_DEVICE_SOURCE=1"};
    static const char *const cuda[] = {"--std=c++17",
                                       "--fmad=false",
                                       "--ftz=false",
                                       "--prec-div=true",
                                       "--prec-sqrt=true",
                                       "-DMICA_DEVICE_SOURCE=1",
                                       "--device-as-default-execution-space"};
    bool amd = c->kind == GPU_HIP;
    snprintf(r->arch, sizeof r->arch, amd ? "--offload-arch=%s" : "--gpu-architecture=%s", c->arch);
    r->options[r->n_option++] = r->arch;
    r->options[r->n_option++] = c->wave == 64 ? "-DWAVE=64" : "-DWAVE=32";
    for (size_t i = 0; amd && i < sizeof hip / sizeof *hip; i++) r->options[r->n_option++] = hip[i];
    for (size_t i = 0; !amd && i < sizeof cuda / sizeof *cuda; i++) r->options[r->n_option++] = cuda[i];
}

static mica_status compile_failed(const gpu_drv *v, void *prog, const gpu_card *c, mica_error *err) {
    size_t n = 0;
    char *text = NULL, *line = NULL;
    if (v->rtc_log_size(prog, &n) == 0 && n > 1) text = mem_calloc(n + 1, 1);
    if (text && v->rtc_log(prog, text) == 0) {
        line = strstr(text, "error");
        if (line) line[strcspn(line, "\n")] = 0;
    }
    mica_status st = fail(err, MICA_E_DEVICE, "device %s: kernels for %s: %.300s", c->id, c->arch,
                          line ? line : "do not compile");
    mem_free(text);
    return st;
}

static mica_status compile(void **image, size_t *n_bytes, const recipe *r, const gpu_card *c,
                           mica_error *err) {
    const gpu_drv *v = c->drv;
    void *prog = NULL;
    mica_status st = MICA_OK;
    uint64_t start = clock_ns();
    log_info("device", "%s: compiling the kernels for %s, once", c->id, c->arch);
    if (v->rtc_new(&prog, r->text, "kern/all.cuh", r->n_header, r->header_text, r->header_name) != 0)
        return fail(err, MICA_E_DEVICE, "device %s: the compiler at run time does not start", c->id);
    if (v->rtc_compile(prog, r->n_option, r->options) != 0) {
        st = compile_failed(v, prog, c, err);
        goto done;
    }
    if (v->rtc_code_size(prog, n_bytes) != 0 || *n_bytes == 0) {
        st = fail(err, MICA_E_DEVICE, "device %s: kernels for %s: the compiler gave no code", c->id, c->arch);
        goto done;
    }
    *image = mem_alloc(*n_bytes);
    if (!*image || v->rtc_code(prog, *image) != 0) {
        mem_free(*image);
        *image = NULL;
        st = fail(err, MICA_E_NOMEM, "device %s: kernels: %zu bytes: out of memory", c->id, *n_bytes);
        goto done;
    }
    log_info("device", "%s: kernels ready after %.1f s", c->id, (double)(clock_ns() - start) * 1e-9);
done:
    v->rtc_free(&prog);
    return st;
}

/* ---- the cache ---- */

static const char g_magic[8] = {'M', 'I', 'C', 'A', 'K', 'E', 'R', 'N'};

typedef struct cache_head {
    char magic[8];
    uint64_t hash; // of the code behind it
    uint64_t n_bytes;
} cache_head;

static uint64_t recipe_hash(const recipe *r, const gpu_card *c) {
    XXH3_state_t *h = XXH3_createState();
    int version[2] = {0, 0};
    if (!h) return 0;
    XXH3_64bits_reset(h);
    c->drv->rtc_version(&version[0], &version[1]);
    XXH3_64bits_update(h, version, sizeof version);
    for (int i = 0; i < r->n_option; i++) XXH3_64bits_update(h, r->options[i], strlen(r->options[i]) + 1);
    XXH3_64bits_update(h, r->text, strlen(r->text));
    for (int i = 0; i < r->n_header; i++)
        XXH3_64bits_update(h, r->header_text[i], strlen(r->header_text[i]) + 1);
    uint64_t v = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return v;
}

/* MICA_HOME/kernels/ARCH-HASH; NULL when there is no home: then nothing is kept. */
static char *cache_path(const recipe *r, const gpu_card *c) {
    char *home;
    strbuf b = {0};
    if (home_create(&home, NULL) != MICA_OK) return NULL;
    strbuf_printf(&b, "%s/kernels", home);
    if (!b.failed && mkdir(b.p, 0755) != 0 && errno != EEXIST) b.failed = true;
    strbuf_printf(&b, "/%s-%016llx", c->arch, (unsigned long long)recipe_hash(r, c));
    mem_free(home);
    char *path = strbuf_take(&b);
    if (!path) strbuf_fini(&b);
    return path;
}

static void *cache_read(const char *path) {
    cache_head h;
    FILE *f = path ? fopen(path, "re") : NULL;
    void *p = NULL;
    struct stat st;
    if (!f) return NULL;
    bool ok = fread(&h, sizeof h, 1, f) == 1 && memcmp(h.magic, g_magic, sizeof g_magic) == 0 &&
              fstat(fileno(f), &st) == 0 && (uint64_t)st.st_size == sizeof h + h.n_bytes;
    if (ok) p = mem_alloc(h.n_bytes);
    ok = p && fread(p, 1, h.n_bytes, f) == h.n_bytes && XXH3_64bits(p, h.n_bytes) == h.hash;
    fclose(f);
    if (ok) return p;
    mem_free(p);
    log_warn("device", "%s: damaged, made again", path);
    return NULL;
}

/* Whole or not at all: another process may read it meanwhile. */
static void cache_write(const char *path, const void *code, size_t n) {
    cache_head h = {.hash = XXH3_64bits(code, n), .n_bytes = n};
    strbuf tmp = {0};
    memcpy(h.magic, g_magic, sizeof g_magic);
    strbuf_printf(&tmp, "%s.%d", path, (int)getpid());
    FILE *f = tmp.failed ? NULL : fopen(tmp.p, "we");
    if (!f) {
        log_warn("device", "%s: cannot be kept: %s", path, strerror(errno));
    } else {
        bool ok = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(code, 1, n, f) == n;
        ok = fclose(f) == 0 && ok;
        if (!ok || rename(tmp.p, path) != 0) {
            log_warn("device", "%s: cannot be kept: %s", path, strerror(errno));
            unlink(tmp.p);
        }
    }
    strbuf_fini(&tmp);
}

/* hipRTC before ROCm 6 does not know gfx11 and later, and ends the whole process when asked. */
static bool can_compile(const gpu_card *c) {
    if (!c->drv->rtc) return false;
    return c->kind != GPU_HIP || c->drv->code_version >= 60000000 || strncmp(c->arch, "gfx1", 4) != 0 ||
           strncmp(c->arch, "gfx10", 5) == 0;
}

static mica_status compile_or_load(void **image, const gpu_card *c, mica_error *err) {
    mica_status st = MICA_OK;
    char *path = NULL;
    size_t n = 0;
    recipe *r = mem_calloc(1, sizeof *r);
    if (!r) return fail(err, MICA_E_NOMEM, "kernels: out of memory");
    TRY_GOTO(recipe_texts(r, err), done);
    recipe_options(r, c);
    path = cache_path(r, c);
    *image = cache_read(path);
    if (*image) goto done;
    TRY_GOTO(compile(image, &n, r, c, err), done);
    if (path) cache_write(path, *image, n);
done:
    recipe_fini(r);
    mem_free(r);
    mem_free(path);
    return st;
}

mica_status gpu_code_get(void **image, const gpu_card *card, mica_error *err) {
    *image = NULL;
    if (card->kind == GPU_SIM) return MICA_OK;
    const char *name = gpu_code_find(mica_kern_files, mica_kern_file_count, card);
    if (name) return unpack(image, file_named(name), err);
    if (can_compile(card)) return compile_or_load(image, card, err);
    return fail(err, MICA_E_DEVICE, "device %s: no kernels for %s in this build, and no %s to compile them",
                card->id, card->arch, card->kind == GPU_HIP ? "hiprtc" : "nvrtc");
}
