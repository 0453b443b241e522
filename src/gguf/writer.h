/* Writes a GGUF file (version 3): for synthetic models and for tests.
 *
 *     TRY(gguf_writer_open(&w, path, 32, err));
 *     gguf_writer_str(w, "general.architecture", SLICE_LIT("llama"));      // metadata, in any order
 *     TRY_GOTO(gguf_writer_tensor(w, &(gguf_tensor){...}, err), done);     // then the directory
 *     TRY_GOTO(gguf_writer_data(w, bytes, n, err), done);                  // then data, in that order, in
 * any pieces TRY_GOTO(gguf_writer_finish(w, err), done);                          // only now the file has
 * its name done: gguf_writer_close(w);
 *
 * The file grows beside its place as PATH.PID.part and is renamed by finish, so that a reader never sees half
 * a model; close without finish removes it. Space for all of it is asked for before the first byte of data,
 * so that a full disk is found at the start where the file system can tell. MICA_E_IO names the path and the
 * system's reason. Threads: a writer belongs to one thread. */
#ifndef MICA_GGUF_WRITER_H
#define MICA_GGUF_WRITER_H

#include "gguf/gguf.h"

typedef struct gguf_writer gguf_writer;

/* align: a power of two from 8 to 65536; anything but 32 is recorded as general.alignment. A path that exists
 * and is no regular file is MICA_E_ARG. */
mica_status gguf_writer_open(gguf_writer **out, const char *path, uint32_t align, mica_error *err);
void gguf_writer_close(gguf_writer *w); // accepts NULL

/* Metadata. These cannot fail: running out of memory is reported by the next call that can. Keys are the
 * caller's to keep unique. */
void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t x);
void gguf_writer_f32(gguf_writer *w, const char *key, float x);
void gguf_writer_bool(gguf_writer *w, const char *key, bool x);
void gguf_writer_str(gguf_writer *w, const char *key, slice s);
/* elem: any kind but str and array; packed: n elements back to back. */
void gguf_writer_array(gguf_writer *w, const char *key, gguf_kind elem, const void *packed, uint64_t n);
void gguf_writer_strings(gguf_writer *w, const char *key, const slice *s, uint64_t n);
void gguf_writer_copy(gguf_writer *w, slice key, const gguf_value *v); // as it stands in another file

/* The next entry of the directory: name, type, n_dim and shape count, as gguf_open would return them (the
 * product of the leading 4 - n_dim axes is 1). MICA_E_ARG: a name of 0 or more than 64 bytes, an axis of 0,
 * rows that are not whole blocks. */
mica_status gguf_writer_tensor(gguf_writer *w, const gguf_tensor *t, mica_error *err);
uint64_t gguf_writer_total_bytes(const gguf_writer *w); // of the finished file, by what was declared so far

/* The next n bytes of tensor data: through all tensors in order, without the padding between them, which is
 * added. The first call ends metadata and directory. More bytes than declared are MICA_E_ARG. */
mica_status gguf_writer_data(gguf_writer *w, const void *bytes, uint64_t n, mica_error *err);
/* All data has come (else MICA_E_ARG): the file is complete and takes its name. */
mica_status gguf_writer_finish(gguf_writer *w, mica_error *err);
#endif
