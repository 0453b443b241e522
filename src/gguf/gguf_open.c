/* Files: opening, mapping, finding the other shards, and what the operating system says about them.
 *
 * Files stay open while they are mapped, so that gguf_changed can ask about the file we have and not about
 * whatever has its name by now, and so that a reader can open the same file again through its descriptor. */
#include "gguf/gguf_int.h"

#include "base/mem.h"
#include "base/num.h"

#include <xxhash.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

gguf_file *gguf_new(const char *path) {
    char label[GGUF_LABEL_BYTES];
    gguf_file *g = mem_calloc(1, sizeof *g);
    if (g) g->label = mem_strdup(gguf_path_label(label, path));
    if (g && g->label) return g;
    mem_free(g);
    return NULL;
}

mica_status gguf_shard_push(gguf_file *g, const char *path, mica_error *err) {
    if (g->n_shard == g->cap_shard) {
        uint32_t cap =
            g->cap_shard ? 2 * g->cap_shard : 4; // n_shard <= 65535: shards are files that were opened
        shard_map *grown = mem_realloc(g->shard, cap * sizeof *grown);
        if (!grown) return fail(err, MICA_E_NOMEM, "%s: out of memory", g->label);
        g->shard = grown;
        g->cap_shard = cap;
    }
    char *copy = mem_strdup(path);
    if (!copy) return fail(err, MICA_E_NOMEM, "%s: out of memory", g->label);
    g->shard[g->n_shard++] = (shard_map){.info = {.path = copy, .fd = -1}, .guard = -1};
    return MICA_OK;
}

static void shard_close(shard_map *sh) {
    if (sh->guard >= 0) gguf_guard_remove(sh->guard);
    if (sh->info.fd >= 0) {
        if (sh->base) munmap((void *)(uintptr_t)sh->base, (size_t)sh->info.size_bytes);
        close(sh->info.fd);
    }
    mem_free((void *)(uintptr_t)sh->info.path);
}

/* Back to a file of which nothing was read. */
static void forget(gguf_file *g) {
    for (uint32_t i = 0; i < g->n_shard; i++) shard_close(&g->shard[i]);
    mem_free(g->shard);
    mem_free(g->tensor);
    name_index_fini(&g->tensor_index);
    kv_set_fini(&g->kv);
    *g = (gguf_file){.label = g->label};
}

void gguf_close(gguf_file *g) {
    if (!g) return;
    forget(g);
    mem_free(g->label);
    mem_free(g);
}

static int64_t mtime_ns(const struct stat *sb) {
    return (int64_t)sb->st_mtim.tv_sec * 1000000000 + sb->st_mtim.tv_nsec;
}

static mica_status shard_map_file(shard_map *sh, mica_error *err) {
    char label[GGUF_LABEL_BYTES];
    struct stat sb;
    gguf_path_label(label, sh->info.path);
    // O_NONBLOCK: opening a FIFO without a writer must not hang. It means nothing for a regular file.
    sh->info.fd = open(sh->info.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (sh->info.fd < 0) return fail(err, MICA_E_IO, "%s: open: %s", label, strerror(errno));
    if (fstat(sh->info.fd, &sb) != 0) return fail(err, MICA_E_IO, "%s: stat: %s", label, strerror(errno));
    if (S_ISDIR(sb.st_mode))
        return fail(err, MICA_E_IO, "%s: is a directory: name the .gguf file in it", label);
    if (!S_ISREG(sb.st_mode)) return fail(err, MICA_E_IO, "%s: is not a regular file", label);
    sh->info.size_bytes = (uint64_t)sb.st_size;
    sh->info.dev = (uint64_t)sb.st_dev;
    sh->info.ino = (uint64_t)sb.st_ino;
    sh->info.mtime_ns = mtime_ns(&sb);
    if (sb.st_size == 0) return MICA_OK; // nothing to map; the parser says that it is empty
    void *map = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, sh->info.fd, 0);
    if (map == MAP_FAILED)
        return fail(err, MICA_E_IO, "%s: map %" PRIu64 " bytes: %s", label, sh->info.size_bytes,
                    strerror(errno));
    sh->base = map;
    sh->guard = gguf_guard_add(map, sh->info.size_bytes);
    return MICA_OK;
}

static mica_status shard_add(gguf_file *g, const char *path, mica_error *err) {
    TRY(gguf_shard_push(g, path, err));
    TRY(shard_map_file(&g->shard[g->n_shard - 1], err));
    return gguf_shard_parse(g, err);
}

/* "-00002-of-00003.gguf": where the numbers stand. false when the name is not of that form or is not shard no
 * of n. */
enum { SPLIT_TAIL_BYTES = 20 };
static bool split_name_matches(const char *path, uint64_t no, uint64_t n) {
    char tail[64];
    size_t len = strlen(path);
    snprintf(tail, sizeof tail, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", no + 1, n);
    return strlen(tail) == SPLIT_TAIL_BYTES && len > SPLIT_TAIL_BYTES &&
           strcmp(path + len - SPLIT_TAIL_BYTES, tail) == 0;
}

static mica_status open_sibling(gguf_file *g, const char *path, uint64_t no, uint64_t n, mica_error *err) {
    char *name = mem_strdup(path), label[GGUF_LABEL_BYTES];
    if (!name) return fail(err, MICA_E_NOMEM, "%s: out of memory", g->label);
    snprintf(name + strlen(name) - SPLIT_TAIL_BYTES, SPLIT_TAIL_BYTES + 1, "-%05u-of-%05u.gguf",
             (unsigned)no + 1, (unsigned)n);
    mica_status st;
    if (access(name, F_OK) != 0)
        st = fail(err, MICA_E_IO, "%s: shard %u of %u is missing: put all shards into one folder",
                  gguf_path_label(label, name), (unsigned)no + 1, (unsigned)n);
    else
        st = shard_add(g, name, err);
    mem_free(name);
    return st != MICA_OK ? st : gguf_shard_check(g, no, n, err);
}

/* g holds one shard of several, any of them. Afterwards it holds all, in order. */
static mica_status open_siblings(gguf_file *g, const char *path, mica_error *err) {
    uint64_t n = g->split_count, no = g->split_no;
    if (!split_name_matches(path, no, n))
        return fail(err, MICA_E_FORMAT,
                    "%s: is shard %" PRIu64 " of %" PRIu64 ", so its name must end in "
                    "-%05" PRIu64 "-of-%05" PRIu64 ".gguf for the others to be found",
                    g->label, no + 1, n, no + 1, n);
    if (no != 0) forget(g);
    for (uint64_t i = g->n_shard; i < n; i++) TRY(open_sibling(g, path, i, n, err));
    return MICA_OK;
}

mica_status gguf_open(gguf_file **out, const char *path, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    gguf_file *g = gguf_new(path);
    if (!g) return fail(err, MICA_E_NOMEM, "%s: out of memory", path);
    TRY_GOTO(shard_add(g, path, err), done);
    if (g->split_count > 1) TRY_GOTO(open_siblings(g, path, err), done);
    TRY_GOTO(gguf_finish(g, err), done);
    *out = g;
    g = NULL;
done:
    gguf_close(g);
    return st;
}

/* ---- what was opened ---- */

size_t gguf_tensor_count(const gguf_file *g) {
    return g->n_tensor;
}
const gguf_tensor *gguf_tensor_at(const gguf_file *g, size_t i) {
    return &g->tensor[i].t;
}
size_t gguf_shard_count(const gguf_file *g) {
    return g->n_shard;
}
const gguf_shard *gguf_shard_at(const gguf_file *g, size_t i) {
    return &g->shard[i].info;
}
const char *gguf_name(const gguf_file *g) {
    return g->label;
}
uint32_t gguf_version(const gguf_file *g) {
    return g->version;
}

uint64_t gguf_total_bytes(const gguf_file *g) {
    uint64_t n = 0; // sizes of files that exist: their sum fits
    for (uint32_t i = 0; i < g->n_shard; i++) n += g->shard[i].info.size_bytes;
    return n;
}

uint64_t gguf_fingerprint(const gguf_file *g) {
    uint64_t h = 0;
    for (uint32_t i = 0; i < g->n_shard; i++) {
        const shard_map *sh = &g->shard[i];
        h = XXH3_64bits_withSeed(sh->base, (size_t)sh->info.data_off_bytes, h ^ sh->info.size_bytes);
    }
    return h;
}

bool gguf_changed(const gguf_file *g, mica_error *err) {
    for (uint32_t i = 0; i < g->n_shard; i++) {
        const shard_map *sh = &g->shard[i];
        char label[GGUF_LABEL_BYTES];
        struct stat sb;
        if (sh->info.fd < 0) continue;
        gguf_path_label(label, sh->info.path);
        if (fstat(sh->info.fd, &sb) != 0) {
            fail(err, MICA_E_IO, "%s: stat: %s", label, strerror(errno));
            return true;
        }
        if ((uint64_t)sb.st_size != sh->info.size_bytes) {
            fail(err, MICA_E_IO, "%s: changed while in use: %" PRIu64 " bytes when opened, %" PRIu64 " now",
                 label, sh->info.size_bytes, (uint64_t)sb.st_size);
            return true;
        }
        if (mtime_ns(&sb) != sh->info.mtime_ns || (sh->guard >= 0 && gguf_guard_lost(sh->guard))) {
            fail(err, MICA_E_IO, "%s: changed while in use: %s", label,
                 mtime_ns(&sb) != sh->info.mtime_ns ? "it was written to" : "parts of it could not be read");
            return true;
        }
    }
    return false;
}

void gguf_advise(const gguf_file *g, const void *p, uint64_t n_bytes, gguf_advice advice) {
    static const int madvice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p;
    for (uint32_t i = 0; i < g->n_shard; i++) {
        uintptr_t base = (uintptr_t)g->shard[i].base, size = (uintptr_t)g->shard[i].info.size_bytes;
        if (g->shard[i].info.fd < 0 || from < base || from - base >= size) continue;
        uintptr_t most = size - (from - base), n = n_bytes < most ? (uintptr_t)n_bytes : most;
        uintptr_t start = from & ~(page - 1);
        (void)madvise((void *)start, n + (from - start), madvice[advice]);
    }
}
