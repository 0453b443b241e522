/* One file, from a URL to its final name.
 *
 * Bytes go to NAME.partial. A partial file is gone on with when the server honours the range and its answer
 * is of the same file: servers that do not know If-Range send the rest of whatever they have now, so length
 * and validator of the answer are compared with those the first bytes came with. Else, and when the server
 * answers with the whole file (200 instead of 206), the file starts again; it is never appended to. The
 * SHA-256 is taken while bytes arrive; what a former run left is read once for it. Only a file whose length,
 * digest and first bytes are right gets its final name, by rename. A try that got no further than an earlier
 * one counts against RETRIES; one that did, does not. */
#include "net/net_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <openssl/evp.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { RETRIES = 4, READ_BYTES = 1 << 20, REPORT_MS = 100 };

typedef struct sink {
    net_file *f;
    const char *folder;
    char *partial; // owned: folder/name.partial
    int fd;
    uint64_t n_have;      // bytes in the partial file
    uint64_t n_best;      // the most any try had
    EVP_MD_CTX *digest;   // over those bytes
    bool first_of_answer; // nothing of this answer was written yet
    bool resumed;         // some bytes came from an earlier try or run
    bool other_file;      // the answer at hand was of another file: the next try starts from nothing
    net_file announced;   // what was known of the file before any answer; its strings are not used
    unsigned char magic[4];
    const net_progress *pg;
    uint64_t reported_ns;
} sink;

bool net_name_is_safe(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > 200 || name[0] == '.' || !utf8_valid(name, n)) return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '/' || *c == '\\') return false;
    return true;
}

mica_status net_files_add(net_files *fs, const char *name, const char *url, uint64_t n_bytes,
                          mica_error *err) {
    if (!net_name_is_safe(name))
        return fail(err, MICA_E_NETWORK, "%s: not a name that may become a file here", name);
    if (fs->n == fs->cap) {
        const size_t cap = fs->cap ? 2 * fs->cap : 8;
        net_file *p = mem_realloc(fs->p, cap * sizeof *p);
        if (!p) return fail(err, MICA_E_NOMEM, "%s: list of files: out of memory", name);
        fs->p = p;
        fs->cap = cap;
    }
    net_file f = {.name = mem_strdup(name), .url = url ? mem_strdup(url) : NULL, .n_bytes = n_bytes};
    if (!f.name || (url && !f.url)) {
        mem_free(f.name);
        mem_free(f.url);
        return fail(err, MICA_E_NOMEM, "%s: list of files: out of memory", name);
    }
    fs->p[fs->n++] = f;
    return MICA_OK;
}

void net_files_fini(net_files *fs) {
    for (size_t i = 0; i < fs->n; i++) {
        mem_free(fs->p[i].name);
        mem_free(fs->p[i].url);
    }
    mem_free(fs->p);
    *fs = (net_files){0};
}

mica_status net_disk_check(const char *folder, uint64_t n_bytes, mica_error *err) {
    struct statvfs v;
    if (statvfs(folder, &v) != 0) return MICA_OK; // no answer is no obstacle: the write will tell
    const uint64_t n_free = (uint64_t)v.f_bavail * v.f_frsize;
    if (n_free >= n_bytes) return MICA_OK;
    return fail(err, MICA_E_NETWORK,
                "%s: disk: %.1f MiB are needed, %.1f MiB are free: make room or set MICA_HOME", folder,
                (double)n_bytes / (1 << 20), (double)n_free / (1 << 20));
}

uint64_t net_partial_bytes(const char *folder, const net_file *f) {
    strbuf path = {0};
    struct stat sb;
    strbuf_printf(&path, "%s/%s.partial", folder, f->name);
    const bool is_there = !path.failed && stat(path.p, &sb) == 0 && sb.st_size > 0;
    strbuf_fini(&path);
    const uint64_t n = is_there ? (uint64_t)sb.st_size : 0;
    return n < f->n_bytes ? n : f->n_bytes;
}

static void report(sink *s, const char *what, bool now) {
    if (!s->pg || !s->pg->fn) return;
    if (!now && clock_ms_since(s->reported_ns) < REPORT_MS) return;
    s->reported_ns = clock_ns();
    const uint64_t total = s->pg->total_bytes ? s->pg->total_bytes : s->pg->base_bytes + s->f->n_bytes;
    s->pg->fn(s->pg->user, what, s->pg->base_bytes + s->n_have, total);
}

static mica_status disk_failed(const sink *s, const char *what, int why, mica_error *err) {
    const mica_status st = write_status(why);
    return fail(err, st, "%s: %s after %llu bytes: %s%s", s->partial, what, (unsigned long long)s->n_have,
                strerror(why), st == MICA_E_NETWORK ? ": make room and pull again" : "");
}

static mica_status write_all(sink *s, const char *p, size_t n, mica_error *err) {
    while (n > 0) {
        const ssize_t k = write(s->fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return disk_failed(s, "write", errno, err);
        EVP_DigestUpdate(s->digest, p, (size_t)k);
        for (size_t i = 0; i < (size_t)k && s->n_have + i < sizeof s->magic; i++)
            s->magic[s->n_have + i] = (unsigned char)p[i];
        s->n_have += (uint64_t)k;
        p += k;
        n -= (size_t)k;
    }
    if (s->n_have > s->n_best) s->n_best = s->n_have;
    return MICA_OK;
}

static mica_status start_again(sink *s, mica_error *err) {
    if (ftruncate(s->fd, 0) != 0 || lseek(s->fd, 0, SEEK_SET) != 0)
        return disk_failed(s, "truncate", errno, err);
    s->n_have = 0;
    s->resumed = false;
    // What an answer told may have been of another file than the next one.
    s->f->n_bytes = s->announced.n_bytes;
    s->f->partial_of_bytes = 0;
    s->f->validator[0] = 0;
    memcpy(s->f->sha256, s->announced.sha256, sizeof s->f->sha256);
    EVP_DigestInit_ex(s->digest, EVP_sha256(), NULL);
    return MICA_OK;
}

/* Is the answer of the file whose first bytes are here? Where either side tells less than the other, only a
 * digest that will be checked at the end makes it one. */
static bool is_same_file(const sink *s, const net_reply *r, int64_t total) {
    const net_file *f = s->f;
    if (total >= 0 && f->partial_of_bytes && (uint64_t)total != f->partial_of_bytes) return false;
    if (r->sha256[0] && f->sha256[0]) return strcmp(r->sha256, f->sha256) == 0;
    if (strcmp(f->validator, r->validator) == 0) return true;
    return f->sha256[0] && (!f->validator[0] || !r->validator[0]);
}

static mica_status begin_anew(sink *s, mica_error *err) {
    log_info("net", "%s: another file than the first %llu bytes came from: starting over", s->f->name,
             (unsigned long long)s->n_have);
    s->other_file = true;
    TRY(start_again(s, err));
    return fail(err, MICA_E_NETWORK, "%s: download: the file changes on the server while it is fetched",
                s->f->name);
}

/* What the headers of an answer mean for the bytes at hand, before its first byte is kept. */
static mica_status begin_answer(sink *s, const net_reply *r, mica_error *err) {
    if (r->code == 200 && s->n_have > 0) {
        log_info("net", "%s: the server sends the whole file again: starting over", s->f->name);
        TRY(start_again(s, err));
    }
    if (r->code == 206 && r->from_bytes != (int64_t)s->n_have)
        return fail(err, MICA_E_NETWORK, "%s: the server sent a range from %lld, asked was %llu", s->f->name,
                    (long long)r->from_bytes, (unsigned long long)s->n_have);
    int64_t total = r->code == 206 ? r->total_bytes : r->n_body;
    if (total < 0 && r->code == 206 && r->n_body >= 0) total = (int64_t)s->n_have + r->n_body;
    if (r->code == 206 && !is_same_file(s, r, total)) return begin_anew(s, err);
    if (total >= 0 && s->f->n_bytes && (uint64_t)total != s->f->n_bytes)
        return fail(err, MICA_E_NETWORK, "%s: wrong length: the server has %lld bytes, %llu were announced",
                    s->f->name, (long long)total, (unsigned long long)s->f->n_bytes);
    if (total >= 0) s->f->n_bytes = (uint64_t)total;
    if (r->code == 206) s->resumed = true;
    if (r->sha256[0] && !s->f->sha256[0]) memcpy(s->f->sha256, r->sha256, sizeof r->sha256);
    if (r->code == 200) {
        memcpy(s->f->validator, r->validator, sizeof r->validator);
        s->f->partial_of_bytes = total >= 0 ? (uint64_t)total : 0;
        if (s->pg && s->pg->learned) TRY(s->pg->learned(s->pg->learned_user, err));
    }
    return s->f->n_bytes > s->n_have ? net_disk_check(s->folder, s->f->n_bytes - s->n_have, err) : MICA_OK;
}

static bool is_gguf(const sink *s) {
    return s->n_have < sizeof s->magic || memcmp(s->magic, "GGUF", 4) == 0;
}

static mica_status on_body(void *user, const net_reply *r, const void *p, size_t n, mica_error *err) {
    sink *s = user;
    if (s->first_of_answer) TRY(begin_answer(s, r, err));
    s->first_of_answer = false;
    if (s->f->n_bytes && n > s->f->n_bytes - s->n_have)
        return fail(err, MICA_E_NETWORK, "%s: wrong length: more than the announced %llu bytes", s->f->name,
                    (unsigned long long)s->f->n_bytes);
    TRY(write_all(s, p, n, err));
    if (!is_gguf(s))
        return fail(err, MICA_E_NETWORK, "%s: not a GGUF file: it begins with %02x %02x %02x %02x",
                    s->f->name, s->magic[0], s->magic[1], s->magic[2], s->magic[3]);
    report(s, "download", false);
    return MICA_OK;
}

/* Takes what is in the partial file into the digest. */
static mica_status read_partial(sink *s, const mica_cancel_flag *cancel, mica_error *err) {
    char *buf = mem_alloc(READ_BYTES);
    mica_status st = buf ? MICA_OK : fail(err, MICA_E_NOMEM, "%s: read: out of memory", s->partial);
    while (st == MICA_OK) {
        const ssize_t k = read(s->fd, buf, READ_BYTES);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0)
            st = disk_failed(s, "read", errno, err);
        else if (cancel && cancel->set)
            st = fail(err, MICA_E_CANCELLED, "%s: download: stopped", s->f->name);
        if (k <= 0 || st != MICA_OK) break;
        for (size_t i = 0; i < (size_t)k && s->n_have + i < sizeof s->magic; i++)
            s->magic[s->n_have + i] = (unsigned char)buf[i];
        EVP_DigestUpdate(s->digest, buf, (size_t)k);
        s->n_have += (uint64_t)k;
        report(s, "verify", false);
    }
    mem_free(buf);
    s->n_best = s->n_have;
    s->resumed = s->n_have > 0;
    return st;
}

static void sink_close(sink *s) {
    if (s->fd >= 0) close(s->fd);
    EVP_MD_CTX_free(s->digest);
    mem_free(s->partial);
}

static mica_status sink_open(sink *s, const char *folder, net_file *f, const net_progress *pg,
                             mica_error *err) {
    *s = (sink){.f = f, .folder = folder, .fd = -1, .pg = pg, .digest = EVP_MD_CTX_new(), .announced = *f};
    strbuf path = {0};
    strbuf_printf(&path, "%s/%s.partial", folder, f->name);
    s->partial = strbuf_take(&path);
    if (!s->partial || !s->digest || !EVP_DigestInit_ex(s->digest, EVP_sha256(), NULL))
        return fail(err, MICA_E_NOMEM, "%s: download: out of memory", f->name);
    s->fd = open(s->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (s->fd < 0) return fail(err, MICA_E_IO, "%s: open: %s", s->partial, strerror(errno));
    return MICA_OK;
}

/* The digest so far, as text; the digest goes on. */
static bool sink_sha256(const sink *s, char out[NET_SHA256_HEX + 1]) {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    const bool good =
        copy && EVP_MD_CTX_copy_ex(copy, s->digest) && EVP_DigestFinal_ex(copy, bytes, &n) && n == 32;
    EVP_MD_CTX_free(copy);
    for (unsigned i = 0; good && i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return good;
}

/* Length, digest and magic are right, or why not. */
static mica_status check_content(sink *s, mica_error *err) {
    char sha256[NET_SHA256_HEX + 1] = "";
    if (s->f->n_bytes && s->n_have != s->f->n_bytes)
        return fail(err, MICA_E_NETWORK, "%s: wrong length: %llu bytes, %llu were announced", s->f->name,
                    (unsigned long long)s->n_have, (unsigned long long)s->f->n_bytes);
    if (s->n_have < 4 || memcmp(s->magic, "GGUF", 4) != 0)
        return fail(err, MICA_E_NETWORK, "%s: not a GGUF file (%llu bytes)", s->f->name,
                    (unsigned long long)s->n_have);
    if (!sink_sha256(s, sha256)) return fail(err, MICA_E_NOMEM, "%s: SHA-256: out of memory", s->f->name);
    if (s->f->sha256[0] && strcmp(s->f->sha256, sha256) != 0)
        return fail(err, MICA_E_NETWORK, "%s: SHA-256 is %s, announced was %s", s->f->name, sha256,
                    s->f->sha256);
    memcpy(s->f->sha256, sha256, sizeof sha256);
    s->f->n_bytes = s->n_have;
    return MICA_OK;
}

/* A checked partial file gets its name. The folder is synced too, so that the rename outlives a power cut. */
static mica_status give_name(sink *s, mica_error *err) {
    strbuf path = {0};
    mica_status st = MICA_OK;
    strbuf_printf(&path, "%s/%s", s->folder, s->f->name);
    if (path.failed)
        st = fail(err, MICA_E_NOMEM, "%s: path: out of memory", s->f->name);
    else if (fsync(s->fd) != 0)
        st = disk_failed(s, "sync", errno, err);
    else if (rename(s->partial, path.p) != 0)
        st = disk_failed(s, "rename", errno, err);
    const int dir = st == MICA_OK ? open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir >= 0) {
        fsync(dir);
        close(dir);
    }
    strbuf_fini(&path);
    return st;
}

mica_status net_partial_finish(const char *folder, net_file *f, const net_progress *pg,
                               mica_cancel_flag *cancel, mica_error *err) {
    sink s;
    mica_status st;
    TRY_GOTO(sink_open(&s, folder, f, pg, err), done);
    TRY_GOTO(read_partial(&s, cancel, err), done);
    st = check_content(&s, err);
    if (st == MICA_OK)
        st = give_name(&s, err);
    else
        unlink(s.partial);
done:
    sink_close(&s);
    return st;
}

/* What an answer without 200 or 206 means. */
static mica_status refused(const sink *s, const net_reply *r, mica_error *err) {
    char show[400];
    net_url_show(show, sizeof show, s->f->url);
    const char *hint = "";
    const bool is_hub = net_is_hub(s->f->url); // where a token may help
    if (r->code == 401 || r->code == 403)
        hint = is_hub ? ": private, gated or a wrong token: set HF_TOKEN"
                      : ": this server does not give the file to everybody";
    if (r->code == 404 || r->code == 410)
        hint = is_hub ? ": no such file, or a private repository: set HF_TOKEN" : ": no such file there";
    return fail(err, MICA_E_NETWORK, "%s: the server answers %ld%s", show, r->code, hint);
}

/* Waits before the next try; false when cancelled. */
static bool wait_for(uint64_t ms, const mica_cancel_flag *cancel) {
    const uint64_t start = clock_ns();
    while (clock_ms_since(start) < (double)ms) {
        if (cancel && cancel->set) return false;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    return true;
}

/* One answer into the partial file. *again: another try may help. */
static mica_status one_try(sink *s, mica_cancel_flag *cancel, bool *again, uint32_t *wait_s,
                           mica_error *err) {
    net_reply r;
    const net_request rq = {.url = s->f->url,
                            .from_bytes = s->n_have,
                            .if_range = s->f->validator,
                            .body = on_body,
                            .user = s,
                            .cancel = cancel};
    s->first_of_answer = true;
    s->other_file = false;
    const mica_status st = net_http_get(&r, &rq, err);
    *again = r.may_retry || s->other_file;
    *wait_s = r.retry_after_s;
    if (st != MICA_OK) return st;
    if (r.code == 416 && s->n_have > 0) { // the partial file is as long as the server's, or longer
        const bool is_as_long = (uint64_t)r.total_bytes == s->n_have;
        if (is_as_long && (s->f->partial_of_bytes == s->n_have || is_same_file(s, &r, r.total_bytes)))
            return MICA_OK;
        *again = true;
        TRY(start_again(s, err));
    }
    if (r.code != 200 && r.code != 206) return refused(s, &r, err);
    if (!s->first_of_answer) return MICA_OK;
    const mica_status begun = begin_answer(s, &r, err); // an empty body is an answer too
    *again |= s->other_file;
    return begun;
}

/* Tries until the whole answer is there or no try gets further. */
static mica_status fetch_all(sink *s, mica_cancel_flag *cancel, mica_error *err) {
    for (int n_vain = 0;;) {
        const uint64_t best_before = s->n_best;
        bool again = false;
        uint32_t wait_s = 0;
        const mica_status st = one_try(s, cancel, &again, &wait_s, err);
        if (st == MICA_OK) return MICA_OK;
        n_vain = s->n_best > best_before ? 0 : n_vain + 1;
        if (!again || n_vain > RETRIES) return st;
        log_info("net", "%s: trying again at %llu bytes: %s", s->f->name, (unsigned long long)s->n_have,
                 err ? err->text : "");
        const uint64_t pause_ms = wait_s ? 1000u * wait_s : 100u << n_vain;
        if (!wait_for(pause_ms, cancel))
            return fail(err, MICA_E_CANCELLED, "%s: download: stopped", s->f->name);
    }
}

mica_status net_fetch_file(const char *folder, net_file *f, const net_progress *pg, mica_cancel_flag *cancel,
                           mica_error *err) {
    sink s;
    mica_status st;
    mica_error own; // retries read the text even when the caller wants none
    if (!err) err = &own;
    TRY_GOTO(sink_open(&s, folder, f, pg, err), done);
    TRY_GOTO(read_partial(&s, cancel, err), done);
    const bool is_known = f->sha256[0] || f->validator[0]; // else old and new bytes cannot be told apart
    if (!is_known || !is_gguf(&s) || (f->n_bytes && s.n_have > f->n_bytes))
        TRY_GOTO(start_again(&s, err), done);
    for (int round = 0; round < 2; round++) {
        if (!f->n_bytes || s.n_have < f->n_bytes) TRY_GOTO(fetch_all(&s, cancel, err), done);
        st = check_content(&s, err);
        if (st == MICA_OK || !s.resumed) break;
        // Old and new bytes do not make the file: it may have changed in between. Once more from nothing.
        log_info("net", "%s: starting over: %s", f->name, err->text);
        TRY_GOTO(start_again(&s, err), done);
    }
    if (st == MICA_OK) {
        report(&s, "download", true);
        st = give_name(&s, err);
    } else {
        unlink(s.partial); // its bytes are known to be wrong
    }
done:
    if (!is_gguf(&s)) unlink(s.partial);
    sink_close(&s);
    return st;
}
