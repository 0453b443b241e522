/* What the files of this room share, and the entry by which tests and fuzzers parse memory instead of files.
 *
 * Life of a gguf_file: gguf_new, then per shard gguf_shard_parse (gguf_parse.c), then gguf_finish checks what
 * no shard can know alone. Mapping, names of siblings and order are gguf_open.c's. */
#ifndef MICA_GGUF_INT_H
#define MICA_GGUF_INT_H

#include "gguf/gguf.h"

enum { GGUF_HEADER_BYTES = 24, GGUF_ALIGN_MIN = 8, GGUF_ALIGN_MAX = 65536, GGUF_ALIGN_DEFAULT = 32 };

/* Our own limits, far above any real file (the largest seen: 48,000 tensors, 400 keys, 0.8 M strings), so
 * that a hostile file costs little memory before it is refused. Beyond them: MICA_E_UNSUPPORTED. */
enum {
    GGUF_TENSORS_MAX = 1 << 17,
    GGUF_KEYS_MAX = 1 << 16,
    GGUF_STRINGS_MAX = 1 << 24, // in all string arrays of one file
    GGUF_KEY_BYTES_MAX = 65535,
    GGUF_STEP = 8 // a string array remembers where every 8th string starts
};

struct gguf_value {
    slice key;            // borrowed from the mapping
    gguf_kind kind, elem; // elem: of an array's elements, else the same as kind
    uint64_t n;           // elements
    const uint8_t *p;     // first element, packed, unaligned
    const uint8_t *end;   // one past the last
    uint64_t *step;       // owned; string arrays: offset from p of strings 0, 8, 16, ...; else NULL
};

/* Open addressing over positions in an array of the user's. Seeded, so that names cannot be chosen to
 * collide. */
typedef struct name_index {
    uint32_t *slot; // owned; position + 1, 0 is free; NULL: nothing is found
    uint32_t mask;
    uint64_t seed;
} name_index;

#define NAME_NONE UINT32_MAX
typedef slice name_of(const void *items, uint32_t i);

bool name_index_init(name_index *ix, uint32_t n); // room for n names; false when out of memory
void name_index_fini(name_index *ix);
/* Adds item i. Returns NAME_NONE, or the position of an item of the same name, and then adds nothing. */
uint32_t name_index_put(name_index *ix, const void *items, name_of *of, uint32_t i);
uint32_t name_index_find(const name_index *ix, const void *items, name_of *of,
                         slice name); // NAME_NONE: absent

typedef struct kv_set {
    gguf_value *v; // owned
    uint32_t n;
    name_index index;
} kv_set;

typedef struct tensor_slot {
    gguf_tensor t;  // t.name and t.data are set once slots no longer move
    uint64_t entry; // byte of the offset field in the shard's directory, for messages
    char name[GGUF_NAME_MAX + 1];
} tensor_slot;

typedef struct shard_map {
    gguf_shard info;     // info.path owned
    const uint8_t *base; // mapped, or borrowed when info.fd < 0
    int guard;           // slot of the SIGBUS guard, -1 for none
} shard_map;

struct gguf_file {
    char *label;      // owned; for messages
    shard_map *shard; // owned
    uint32_t n_shard, cap_shard;
    kv_set kv;           // of the first shard
    tensor_slot *tensor; // owned
    uint32_t n_tensor;
    name_index tensor_index;
    uint32_t version;
    // What the shard parsed last says of itself; count <= 1: it stands alone.
    uint64_t split_no, split_count;
    uint64_t split_tensors; // of the first shard
};

gguf_file *gguf_new(const char *path); // NULL when out of memory
mica_status gguf_shard_push(gguf_file *g, const char *path,
                            mica_error *err);                // a new last shard: path set, fd -1, no bytes
mica_status gguf_shard_parse(gguf_file *g, mica_error *err); // the last shard; its bytes are there
/* The last shard says that it is number `no` (from 0) of n. */
mica_status gguf_shard_check(const gguf_file *g, uint64_t no, uint64_t n, mica_error *err);
mica_status gguf_finish(gguf_file *g, mica_error *err); // totals, names, index

/* Parses shards that lie in memory, in order; they are borrowed and must outlive *out. */
mica_status gguf_parse_memory(gguf_file **out, const slice *shards, size_t n_shard, mica_error *err);

void kv_set_fini(kv_set *kv);
const gguf_value *kv_set_find(const kv_set *kv, slice key);

/* For messages, always UTF-8: a name from a file keeps its head, a path its tail. They return buf. */
enum { GGUF_QUOTE_BYTES = 100, GGUF_LABEL_BYTES = 200 };
const char *gguf_quote(char buf[GGUF_QUOTE_BYTES], slice name);
const char *gguf_path_label(char buf[GGUF_LABEL_BYTES], const char *path);

/* gguf_guard.c */
int gguf_guard_add(const void *base, uint64_t size_bytes); // the slot, -1 when all are taken
void gguf_guard_remove(int slot);
bool gguf_guard_lost(int slot);
#endif
