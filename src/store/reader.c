/* A queue and some threads in pread: as many reads are in flight as there are threads, which is the queue
 * depth that a disk sees. Pieces are hundreds of kilobytes, so that a wake-up costs nothing beside the read.
 */
#include "store/reader.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct reader {
    const gguf_file *g; // borrowed
    int *fds;           // owned, [n_shard]
    uint32_t n_shard, n_thread;
    pthread_t *threads; // owned
    bool direct;
    uint64_t n_bytes;
    pthread_mutex_t lock; // guards what follows
    pthread_cond_t work, finished;
    reader_job *first, *last;
    bool stop;
};

/* ---- reading ---------------------------------------------------------------------------------- */

static mica_status read_piece(const reader *r, reader_piece *p, mica_error *err) {
    const char *path = gguf_shard_at(r->g, p->shard)->path;
    uint64_t begin = p->off_bytes / READER_ALIGN * READER_ALIGN, end = p->off_bytes + p->n_bytes, at = begin;
    uint64_t stop = (end + READER_ALIGN - 1) / READER_ALIGN * READER_ALIGN;
    while (at < end) {
        ssize_t n = pread(r->fds[p->shard], p->room + (at - begin), stop - at, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return fail(err, MICA_E_IO, "%s: offset %llu: read: %s", path, (unsigned long long)at,
                        strerror(errno));
        uint64_t next = at + (uint64_t)n;
        if (next < end) next = next / READER_ALIGN * READER_ALIGN; // direct reads begin at blocks
        if (next == at)
            return fail(err, MICA_E_IO,
                        "%s: offset %llu: the file ends here, it was longer when it was opened", path,
                        (unsigned long long)at);
        at = next;
    }
    p->at = p->room + (p->off_bytes - begin);
    return MICA_OK;
}

static void *run(void *arg) {
    reader *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->first && !r->stop) pthread_cond_wait(&r->work, &r->lock);
        reader_job *job = r->first;
        if (!job) break;
        r->first = job->next;
        if (!r->first) r->last = NULL;
        pthread_mutex_unlock(&r->lock);
        job->st = MICA_OK;
        for (uint32_t i = 0; i < job->n_piece && job->st == MICA_OK; i++)
            job->st = read_piece(r, &job->piece[i], &job->err);
        pthread_mutex_lock(&r->lock);
        atomic_store_explicit(&job->done, true, memory_order_release);
        pthread_cond_broadcast(&r->finished);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void reader_submit(reader *r, reader_job *job) {
    atomic_store_explicit(&job->done, false, memory_order_relaxed);
    job->next = NULL;
    for (uint32_t i = 0; i < job->n_piece; i++) r->n_bytes += job->piece[i].n_bytes;
    pthread_mutex_lock(&r->lock);
    if (r->last)
        r->last->next = job;
    else
        r->first = job;
    r->last = job;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

mica_status reader_wait(reader *r, reader_job *job, mica_error *err) {
    if (!reader_done(job)) {
        pthread_mutex_lock(&r->lock);
        while (!reader_done(job)) pthread_cond_wait(&r->finished, &r->lock);
        pthread_mutex_unlock(&r->lock);
    }
    if (job->st != MICA_OK && err) *err = job->err;
    return job->st;
}

bool reader_is_direct(const reader *r) {
    return r->direct;
}

uint64_t reader_bytes(const reader *r) {
    return r->n_bytes;
}

/* ---- life ------------------------------------------------------------------------------------- */

/* The same file again by the descriptor that is mapped: a file that was renamed over it is not meant. */
static mica_status open_files(reader *r, mica_error *err) {
    char name[32];
    r->direct = true;
    for (uint32_t i = 0; i < r->n_shard; i++) {
        const gguf_shard *s = gguf_shard_at(r->g, i);
        snprintf(name, sizeof name, "/proc/self/fd/%d", s->fd);
        r->fds[i] = open(name, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (r->fds[i] < 0) {
            r->direct = false;
            r->fds[i] = fcntl(s->fd, F_DUPFD_CLOEXEC, 3);
        }
        if (r->fds[i] < 0) return fail(err, MICA_E_IO, "%s: open again: %s", s->path, strerror(errno));
    }
    return MICA_OK;
}

mica_status reader_open(reader **out, const gguf_file *g, uint32_t n_thread, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    reader *r = mem_calloc(1, sizeof *r);
    if (!r) return fail(err, MICA_E_NOMEM, "reader: out of memory");
    r->g = g;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->finished, NULL);
    r->n_shard = (uint32_t)gguf_shard_count(g);
    r->fds = mem_alloc(r->n_shard * sizeof *r->fds);
    r->threads = mem_calloc(n_thread, sizeof *r->threads);
    if (!r->fds || !r->threads) {
        r->n_shard = 0;
        st = fail(err, MICA_E_NOMEM, "reader: out of memory");
        goto done;
    }
    for (uint32_t i = 0; i < r->n_shard; i++) r->fds[i] = -1;
    TRY_GOTO(open_files(r, err), done);
    for (; r->n_thread < n_thread; r->n_thread++) {
        int rc = pthread_create(&r->threads[r->n_thread], NULL, run, r);
        if (rc == 0) continue;
        st = fail(err, MICA_E_NOMEM, "reader: thread %u: %s", r->n_thread, strerror(rc));
        goto done;
    }
    *out = r;
    r = NULL;
done:
    reader_close(r);
    return st;
}

void reader_close(reader *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->n_thread; i++) pthread_join(r->threads[i], NULL);
    for (uint32_t i = 0; i < r->n_shard; i++)
        if (r->fds[i] >= 0) close(r->fds[i]);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->finished);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->fds);
    mem_free(r->threads);
    mem_free(r);
}
