/* Saving and loading of timelines. */
#include "run/state_file.h"

#include "base/mem.h"
#include "base/num.h"
#include "run/session_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char g_magic[8] = {'M', 'I', 'C', 'A', 'S', 'E', 'S', '2'};

typedef struct state_head {
    char magic[8];
    uint32_t arithmetic, kv_type;
    uint64_t fingerprint; // of the model file
    uint64_t n, n_prompt; // tokens; of these, the leading ones of the prompt role
    uint32_t n_vocab, has_logits;
    engine_log log;
    uint32_t ring_slots; // of the sliding window's cache: its pages lie by them
    uint64_t payload_bytes;
    uint64_t checksum;
} state_head;
_Static_assert(sizeof(state_head) == 80, "state_head is a file format");

enum { CHUNK = 1 << 20 };

/* One pass over what a file holds, in either direction. */
typedef struct transfer {
    session *s;
    FILE *f;
    const char *path;
    bool writing;
    char *bounce;      // [CHUNK]
    XXH3_state_t *sum; // while writing, or while checking
} transfer;

static mica_status put_bytes(transfer *t, const void *p, size_t n, mica_error *err) {
    XXH3_64bits_update(t->sum, p, n);
    if (n && fwrite(p, 1, n, t->f) != n)
        return fail(err, MICA_E_IO, "%s: write %zu bytes: %s", t->path, n, strerror(errno));
    return MICA_OK;
}

static mica_status get_bytes(transfer *t, void *p, size_t n, mica_error *err) {
    if (n && fread(p, 1, n, t->f) != n) return fail(err, MICA_E_FORMAT, "%s: ends too early", t->path);
    return MICA_OK;
}

static mica_status move_host(transfer *t, void *p, size_t n, mica_error *err) {
    return t->writing ? put_bytes(t, p, n, err) : get_bytes(t, p, n, err);
}

/* A stretch of device memory, in pieces through the bounce buffer. */
static mica_status move_device(void *user, void *at, size_t n, mica_error *err) {
    transfer *t = user;
    for (size_t done = 0; done < n;) {
        size_t k = n - done < CHUNK ? n - done : CHUNK;
        char *p = (char *)at + done;
        if (t->writing) TRY(engine_read(t->s->e, t->bounce, p, k, err));
        TRY(move_host(t, t->bounce, k, err));
        if (!t->writing) TRY(engine_write(t->s->e, p, t->bounce, k, err));
        done += k;
    }
    return MICA_OK;
}

static mica_status move_all(transfer *t, const state_head *h, mica_error *err) {
    TRY(move_host(t, t->s->ids, h->n * sizeof(int32_t), err));
    if (h->has_logits) TRY(move_host(t, t->s->logits, h->n_vocab * sizeof(float), err));
    return engine_regions(t->s->e, t->s->slot, h->n, move_device, t, err);
}

static mica_status count_region(void *user, void *at, size_t n, mica_error *err) {
    (void)at, (void)err;
    *(uint64_t *)user += n;
    return MICA_OK;
}

static uint64_t payload_of(const session *s, const state_head *h) {
    uint64_t n = h->n * sizeof(int32_t) + (h->has_logits ? h->n_vocab * sizeof(float) : 0);
    engine_regions(s->e, s->slot, h->n, count_region, &n, NULL);
    return n;
}

static state_head head_of(const session *s) {
    state_head h = {.arithmetic = ARITHMETIC_VERSION,
                    .kv_type = (uint32_t)engine_kv_type(s->e),
                    .fingerprint = engine_fingerprint(s->e),
                    .n = s->n,
                    .n_prompt = s->n_prompt,
                    .n_vocab = engine_shape(s->e)->n_vocab,
                    .has_logits = s->has_logits,
                    .log = engine_log_get(s->e, s->slot),
                    .ring_slots = engine_ring_slots(s->e)};
    memcpy(h.magic, g_magic, sizeof g_magic);
    h.payload_bytes = payload_of(s, &h);
    return h;
}

static uint64_t checksum_of(transfer *t, const state_head *h) {
    XXH3_64bits_update(t->sum, h, offsetof(state_head, checksum));
    return XXH3_64bits_digest(t->sum);
}

static mica_status open_transfer(transfer *t, session *s, const char *path, mica_error *err) {
    *t = (transfer){.s = s, .path = path, .bounce = mem_alloc(CHUNK), .sum = XXH3_createState()};
    if (!t->bounce || !t->sum) return fail(err, MICA_E_NOMEM, "%s: out of memory", path);
    XXH3_64bits_reset(t->sum);
    return MICA_OK;
}

static void close_transfer(transfer *t) {
    if (t->f) fclose(t->f);
    mem_free(t->bounce);
    XXH3_freeState(t->sum);
}

mica_status session_save(session *s, const char *path, mica_error *err) {
    transfer t;
    mica_status st = MICA_OK;
    char temp[4096];
    if ((size_t)snprintf(temp, sizeof temp, "%s.part", path) >= sizeof temp)
        return fail(err, MICA_E_ARG, "%s: the path is too long", path);
    if (s->n == 0) return fail(err, MICA_E_ARG, "%s: the session has no token to save", path);
    TRY_GOTO(open_transfer(&t, s, path, err), done);
    t.writing = true;
    state_head h = head_of(s);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    t.f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!t.f) {
        st = fail(err, MICA_E_IO, "%s: create: %s", temp, strerror(errno));
        goto done;
    }
    if (fseek(t.f, sizeof h, SEEK_SET) != 0) st = fail(err, MICA_E_IO, "%s: seek: %s", temp, strerror(errno));
    if (st == MICA_OK) st = move_all(&t, &h, err);
    h.checksum = checksum_of(&t, &h);
    if (st == MICA_OK && (fseek(t.f, 0, SEEK_SET) != 0 || fwrite(&h, sizeof h, 1, t.f) != 1 ||
                          fflush(t.f) != 0 || fsync(fileno(t.f)) != 0 || rename(temp, path) != 0))
        st = fail(err, MICA_E_IO, "%s: write: %s", path, strerror(errno));
    if (st != MICA_OK) unlink(temp);
done:
    close_transfer(&t);
    return st;
}

/* Reads the head; *fits tells whether the file is for this session's model, arithmetic and cache. */
static mica_status read_head(transfer *t, state_head *h, bool *fits, mica_error *err) {
    state_head mine = head_of(t->s);
    struct stat sb;
    *fits = false;
    if (fstat(fileno(t->f), &sb) != 0 || !S_ISREG(sb.st_mode) || fread(h, sizeof *h, 1, t->f) != 1 ||
        memcmp(h->magic, g_magic, sizeof g_magic) != 0)
        return fail(err, MICA_E_FORMAT, "%s: not a saved session", t->path);
    if (h->arithmetic != mine.arithmetic || h->kv_type != mine.kv_type ||
        h->fingerprint != mine.fingerprint || h->n_vocab != mine.n_vocab ||
        h->ring_slots != mine.ring_slots || h->n > engine_plan_of(t->s->e)->n_ctx)
        return MICA_OK;
    if (h->n == 0 || h->n_prompt > h->n || h->has_logits > 1 || h->log.n_commit > WINDOW_MAX ||
        h->log.bank > 1 || h->log.n_seen < h->n || h->payload_bytes != payload_of(t->s, h) ||
        (uint64_t)sb.st_size != sizeof *h + h->payload_bytes)
        return fail(err, MICA_E_FORMAT, "%s: %lld bytes for %llu tokens: damaged", t->path,
                    (long long)sb.st_size, (unsigned long long)h->n);
    *fits = true;
    return MICA_OK;
}

static mica_status verify(transfer *t, const state_head *h, mica_error *err) {
    for (uint64_t left = h->payload_bytes; left > 0;) {
        size_t k = left < CHUNK ? (size_t)left : CHUNK;
        TRY(get_bytes(t, t->bounce, k, err));
        XXH3_64bits_update(t->sum, t->bounce, k);
        left -= k;
    }
    if (checksum_of(t, h) != h->checksum)
        return fail(err, MICA_E_FORMAT, "%s: checksum differs: damaged", t->path);
    for (uint64_t i = 0; i < h->n; i++) { // a valid checksum is no proof of a valid id
        int32_t id;
        if (fseek(t->f, (long)(sizeof *h + i * sizeof id), SEEK_SET) != 0 ||
            fread(&id, sizeof id, 1, t->f) != 1 || id < 0 || (uint32_t)id >= h->n_vocab)
            return fail(err, MICA_E_FORMAT, "%s: token %llu: no id of this vocabulary", t->path,
                        (unsigned long long)i);
    }
    return MICA_OK;
}

mica_status session_load(session *s, const char *path, bool *found, mica_error *err) {
    transfer t;
    state_head h;
    mica_status st = MICA_OK;
    *found = false;
    TRY_GOTO(open_transfer(&t, s, path, err), done);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    t.f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!t.f) {
        if (errno != ENOENT) st = fail(err, MICA_E_IO, "%s: open: %s", path, strerror(errno));
        goto done;
    }
    bool fits;
    TRY_GOTO(read_head(&t, &h, &fits, err), done);
    if (!fits) goto done;
    TRY_GOTO(verify(&t, &h, err), done);
    if (fseek(t.f, sizeof h, SEEK_SET) != 0) {
        st = fail(err, MICA_E_IO, "%s: seek: %s", path, strerror(errno));
        goto done;
    }
    session_clear(s);
    TRY_GOTO(engine_state_load(s->e, s->slot, NULL, err), done);
    TRY_GOTO(move_all(&t, &h, err), done);
    engine_log_set(s->e, s->slot, &h.log);
    s->n = s->n_state = (size_t)h.n;
    s->n_prompt = (size_t)h.n_prompt;
    s->has_logits = h.has_logits;
    *found = true;
done:
    close_transfer(&t);
    return st;
}
