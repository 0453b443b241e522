/* A GGUF file (version 2 or 3), or the shards it was split into, as header, metadata and tensor directory.
 *
 *     TRY(gguf_open(&g, "m-00001-of-00003.gguf", err));        // any shard will do; all of them are mapped
 *     TRY_GOTO(gguf_need_u64(g, "llama.block_count", 1, 512, &n_layer, err), done);
 *     const gguf_tensor *t = gguf_tensor_find(g, "blk.0.attn_q.weight");
 *
 * Everything is checked against the size of the file before it is used or allocated, so what this header
 * returns needs no further checking: a tensor's bytes lie inside the mapping and its rows are whole blocks.
 * Malformed files are MICA_E_FORMAT, tensor types we do not know MICA_E_UNSUPPORTED, and the text names file,
 * thing, number and byte.
 *
 * The file is mapped read-only and never written, nor is anything beside it. Names, values and tensor data
 * are borrowed from the gguf_file and live until gguf_close. Threads: open and close belong to one thread; in
 * between any number of threads may read. Source of the format: docs/gguf.md of the ggml project; facts in
 * docs/MODELS.md.
 *
 * Not here: what the numbers mean (model), how blocks decode (quant), reading past the mapping
 * (store/reader). */
#ifndef MICA_GGUF_H
#define MICA_GGUF_H

#include "base/status.h"
#include "base/str.h"
#include "gguf/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_file gguf_file;

/* Opens path and, when the file says that it is one of several shards, its siblings by their names
 * (PREFIX-00001-of-0000N.gguf). MICA_E_IO: missing, unreadable, not a regular file, or a shard is missing. */
mica_status gguf_open(gguf_file **out, const char *path, mica_error *err);
void gguf_close(gguf_file *g); // accepts NULL

/* Makes g hold `more` too: its shards, the tensors that g lacks, and those of `keys` that it has (no arrays
 * of strings). Tensors that both have stay g's; MICA_E_FORMAT when their shapes differ. `more` is then only
 * fit to be closed; after an error both are. Pointers into g's directory that were taken before are void. */
mica_status gguf_join(gguf_file *g, gguf_file *more, const char *const *keys, size_t n_key, mica_error *err);

/* ---- tensors: shards in order, within one in the order of its directory ---- */

enum { GGUF_NAME_MAX = 64 }; // bytes of a tensor name, without the NUL

typedef struct gguf_tensor {
    const char *name; // UTF-8, NUL-terminated, 1..GGUF_NAME_MAX bytes
    uint32_t index;   // its place: gguf_tensor_at(g, index)
    gguf_type type;
    int n_dim;         // 1..4, as stored
    uint64_t shape[4]; // slowest first, missing axes are leading 1s: [.., n_expert, n_row, n_col]; shape[3]
                       // is contiguous
    uint64_t size_bytes;
    const void *data;   // mapped, borrowed; any alignment down to 1 inside, the start at the file's alignment
    int shard;          // index for gguf_shard_at
    uint64_t off_bytes; // of the data in that shard's file
} gguf_tensor;

size_t gguf_tensor_count(const gguf_file *g);
const gguf_tensor *gguf_tensor_at(const gguf_file *g, size_t i);           // i < count
const gguf_tensor *gguf_tensor_find(const gguf_file *g, const char *name); // hashed; NULL when absent

/* ---- metadata ---- */

typedef enum gguf_kind { // as stored
    GGUF_KIND_U8,
    GGUF_KIND_I8,
    GGUF_KIND_U16,
    GGUF_KIND_I16,
    GGUF_KIND_U32,
    GGUF_KIND_I32,
    GGUF_KIND_F32,
    GGUF_KIND_BOOL,
    GGUF_KIND_STR,
    GGUF_KIND_ARRAY,
    GGUF_KIND_U64,
    GGUF_KIND_I64,
    GGUF_KIND_F64,
    GGUF_KIND_N
} gguf_kind;

const char *gguf_kind_name(gguf_kind kind); // "u32", "str", ...
size_t gguf_kind_bytes(gguf_kind kind);     // of one scalar; 0 for str and array

typedef struct gguf_value gguf_value;

const gguf_value *gguf_find(const gguf_file *g, const char *key); // hashed; NULL when absent
size_t gguf_kv_count(const gguf_file *g);
slice gguf_kv_key(const gguf_file *g, size_t i); // i < count; in the file's order; UTF-8 without NUL
const gguf_value *gguf_kv_value(const gguf_file *g, size_t i); // i < count

/* All accessors take NULL for v and then say false or 0, so that gguf_value_u64(gguf_find(g, key), &n) needs
 * no test. They widen, because producers differ in widths: u64, i64  from every integer kind and bool; false
 * when the value does not fit f64       from f32, f64 and every integer kind bool      from bool, and from an
 * integer that is 0 or 1 str       from str alone; bytes as stored, not checked to be UTF-8 *out is written
 * only on success. */
gguf_kind gguf_value_kind(const gguf_value *v); // v not NULL
gguf_kind
gguf_value_elem_kind(const gguf_value *v); // of an array's elements; of a scalar its own kind; v not NULL
uint64_t gguf_value_count(const gguf_value *v); // elements of an array, 1 for a scalar, 0 for NULL

bool gguf_value_u64(const gguf_value *v, uint64_t *out); // scalars only: false for an array
bool gguf_value_i64(const gguf_value *v, int64_t *out);
bool gguf_value_f64(const gguf_value *v, double *out);
bool gguf_value_bool(const gguf_value *v, bool *out);
bool gguf_value_str(const gguf_value *v, slice *out);

/* Element i of an array (a scalar is its own element 0); false when i >= count. Constant time, also for
 * strings. */
bool gguf_value_at_u64(const gguf_value *v, uint64_t i, uint64_t *out);
bool gguf_value_at_i64(const gguf_value *v, uint64_t i, int64_t *out);
bool gguf_value_at_f64(const gguf_value *v, uint64_t i, double *out);
bool gguf_value_at_bool(const gguf_value *v, uint64_t i, bool *out);
bool gguf_value_at_str(const gguf_value *v, uint64_t i, slice *out);

/* Required keys. MICA_E_FORMAT with file, key and number when absent, of the wrong kind, or outside min..max.
 * A float that is NaN or infinite is always outside. */
mica_status gguf_need_u64(const gguf_file *g, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                          mica_error *err);
mica_status gguf_need_f64(const gguf_file *g, const char *key, double min, double max, double *out,
                          mica_error *err);
mica_status gguf_need_str(const gguf_file *g, const char *key, slice *out, mica_error *err);

/* Optional keys: *inout holds the default and keeps it when the key is absent; present but wrong is
 * MICA_E_FORMAT. */
mica_status gguf_get_u64(const gguf_file *g, const char *key, uint64_t min, uint64_t max, uint64_t *inout,
                         mica_error *err);
mica_status gguf_get_f64(const gguf_file *g, const char *key, double min, double max, double *inout,
                         mica_error *err);
mica_status gguf_get_str(const gguf_file *g, const char *key, slice *inout, mica_error *err);
mica_status gguf_get_bool(const gguf_file *g, const char *key, bool *inout, mica_error *err);

/* Arrays: every element is of the class (so that the matching gguf_value_at_* cannot fail for its kind) and
 * there are exactly n of them. GGUF_ANY_COUNT takes any number. need: absent is an error; get: absent gives
 * *out = NULL. */
typedef enum gguf_class { GGUF_OF_INT, GGUF_OF_FLOAT, GGUF_OF_BOOL, GGUF_OF_STR } gguf_class;
#define GGUF_ANY_COUNT UINT64_MAX
mica_status gguf_need_array(const gguf_file *g, const char *key, gguf_class of, uint64_t n,
                            const gguf_value **out, mica_error *err);
mica_status gguf_get_array(const gguf_file *g, const char *key, gguf_class of, uint64_t n,
                           const gguf_value **out, mica_error *err);

/* A model at all? Its architecture's name, when the file has general.architecture and at least one tensor. */
mica_status gguf_need_model(const gguf_file *g, slice *arch, mica_error *err);

/* ---- the files behind it ---- */

typedef struct gguf_shard {
    const char *path;        // as opened; borrowed
    int fd;                  // open read-only while the gguf_file is; borrowed; -1 when parsed from memory
    uint64_t size_bytes;     // when opened
    uint64_t data_off_bytes; // where tensor data starts
    uint64_t n_tensor;
    uint64_t dev, ino;
    int64_t mtime_ns;
} gguf_shard;

size_t gguf_shard_count(const gguf_file *g);
const gguf_shard *gguf_shard_at(const gguf_file *g, size_t i); // i < count
const char *gguf_name(const gguf_file *g);     // the path given to gguf_open, shortened, for messages
uint32_t gguf_version(const gguf_file *g);     // 2 or 3, of the first shard
uint64_t gguf_total_bytes(const gguf_file *g); // of all shards
uint64_t
gguf_fingerprint(const gguf_file *g); // XXH3 over header, metadata and directory of each shard, and sizes

/* A mapped file that is cut or rewritten under us. Deleting it or renaming another over it is harmless: the
 * mapping keeps the old file alive. Rewriting in place shows as a changed size or time: true with a text in
 * err (MICA_E_IO). A few system calls a shard: for step boundaries now and then, not for inner loops. */
bool gguf_changed(const gguf_file *g, mica_error *err);

/* Cutting a mapped file turns its lost pages into SIGBUS. Once a program has called this (a library must not
 * on its own account), such a page of any gguf_file reads as zeros instead and gguf_changed says so, so that
 * whoever computes can finish the step, throw it away and report. A SIGBUS elsewhere goes to the handler that
 * was there before. May be called again; process-wide. */
mica_status gguf_guard_install(mica_error *err);

/* Advice to the page cache for n bytes of mapped tensor data from p. Never fails: it is only advice. */
typedef enum gguf_advice {
    GGUF_ADVISE_NORMAL,
    GGUF_ADVISE_RANDOM,
    GGUF_ADVISE_SEQUENTIAL,
    GGUF_ADVISE_WILLNEED,
    GGUF_ADVISE_DONTNEED
} gguf_advice;
void gguf_advise(const gguf_file *g, const void *p, uint64_t n_bytes, gguf_advice advice);
#endif
