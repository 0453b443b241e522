/* Reads stretches of a model's files past the page cache, many at a time.
 *
 *     reader *r;  TRY(reader_open(&r, g, n_thread, err));
 *     job.piece[0] = (reader_piece){shard, off, n, room};  job.n_piece = 1;
 *     reader_submit(r, &job);                    // the job and its rooms are the reader's now
 *     TRY(reader_wait(r, &job, err));            // and the caller's again; job.piece[0].at has the bytes
 *
 * Direct reads begin and end at multiples of READER_ALIGN, so that a piece's room is larger than it
 * (reader_room) and its bytes begin somewhere in the first block. A file system that has no direct reads is
 * read through the page cache.
 * Threads: submit, done and wait belong to one thread; n_thread readers own the rooms of jobs they were
 * given. */
#ifndef MICA_READER_H
#define MICA_READER_H

#include "gguf/gguf.h"

#include <stdatomic.h>

enum { READER_ALIGN = 4096, READER_PIECES = 3 };

typedef struct reader_piece {
    uint32_t shard;
    uint64_t off_bytes, n_bytes; // in its file
    char *room;                  // borrowed, of reader_room(n_bytes), aligned to READER_ALIGN
    const char *at;              // set: the first byte, inside the room
} reader_piece;

typedef struct reader_job {
    reader_piece piece[READER_PIECES];
    uint32_t n_piece;
    atomic_bool done;        // set by the reader, last
    mica_status st;          // readable once done
    mica_error err;          // likewise
    struct reader_job *next; // the reader's
} reader_job;

typedef struct reader reader;

static inline uint64_t reader_room(uint64_t n_bytes) {
    return (n_bytes + 2 * READER_ALIGN - 1) / READER_ALIGN * READER_ALIGN;
}

mica_status reader_open(reader **out, const gguf_file *g, uint32_t n_thread, mica_error *err);
void reader_close(reader *r); // after all jobs are done, or with none submitted; accepts NULL
void reader_submit(reader *r, reader_job *job);
static inline bool reader_done(const reader_job *job) {
    return atomic_load_explicit(&job->done, memory_order_acquire);
}
/* MICA_E_IO names the file and the offset. */
mica_status reader_wait(reader *r, reader_job *job, mica_error *err);
bool reader_is_direct(const reader *r);
uint64_t reader_bytes(const reader *r); // asked for so far
#endif
