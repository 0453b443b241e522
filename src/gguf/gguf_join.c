/* Two files as one: what a model keeps beside its own file. The second file's shards, tensors that the first
 * lacks, and a few of its keys become the first's; everything that looks through shards (advice, changes,
 * fingerprint) then sees both. */
#include "gguf/gguf_int.h"

#include "base/mem.h"

static slice key_name(const void *items, uint32_t i) {
    return ((const gguf_value *)items)[i].key;
}

/* Room for what is to come, so that nothing can fail once something has moved. */
static mica_status make_room(gguf_file *g, const gguf_file *more, size_t n_key, mica_error *err) {
    shard_map *shard = mem_realloc(g->shard, (g->n_shard + more->n_shard) * sizeof *shard);
    if (shard) g->shard = shard;
    tensor_slot *tensor = mem_realloc(g->tensor, (g->n_tensor + more->n_tensor) * sizeof *tensor);
    if (tensor) g->tensor = tensor;
    gguf_value *kv = mem_realloc(g->kv.v, (g->kv.n + n_key) * sizeof *kv);
    if (kv) g->kv.v = kv;
    for (uint32_t i = 0; tensor && i < g->n_tensor; i++) g->tensor[i].t.name = g->tensor[i].name;
    if (!shard || !tensor || !kv) return fail(err, MICA_E_NOMEM, "%s: out of memory", more->label);
    g->cap_shard = g->n_shard + more->n_shard;
    return MICA_OK;
}

static mica_status check_twins(const gguf_file *g, const gguf_file *more, mica_error *err) {
    for (uint32_t i = 0; i < more->n_tensor; i++) {
        const gguf_tensor *t = &more->tensor[i].t, *mine = gguf_tensor_find(g, t->name);
        if (mine && memcmp(mine->shape, t->shape, sizeof t->shape) != 0)
            return fail(err, MICA_E_FORMAT, "%s: tensor %s: another shape than in %s", more->label, t->name,
                        g->label);
    }
    return MICA_OK;
}

/* A key of `more` in place of g's, or as a new one. */
static void put_key(gguf_file *g, const gguf_value *v) {
    for (uint32_t i = 0; i < g->kv.n; i++) {
        if (!slice_eq(g->kv.v[i].key, v->key)) continue;
        mem_free(g->kv.v[i].step);
        g->kv.v[i] = *v;
        return;
    }
    g->kv.v[g->kv.n++] = *v;
}

mica_status gguf_join(gguf_file *g, gguf_file *more, const char *const *keys, size_t n_key, mica_error *err) {
    TRY(check_twins(g, more, err));
    TRY(make_room(g, more, n_key, err));
    for (uint32_t i = 0; i < more->n_tensor; i++) {
        if (gguf_tensor_find(g, more->tensor[i].name)) continue;
        tensor_slot *s = &g->tensor[g->n_tensor++];
        *s = more->tensor[i];
        s->t.shard += (int)g->n_shard;
    }
    memcpy(g->shard + g->n_shard, more->shard, more->n_shard * sizeof *more->shard);
    g->n_shard += more->n_shard;
    more->n_shard = 0; // g closes them
    g->split_tensors = g->n_tensor;
    for (size_t i = 0; i < n_key; i++) {
        const gguf_value *v = gguf_find(more, keys[i]);
        if (v && !v->step) put_key(g, v);
    }
    name_index_fini(&g->kv.index);
    name_index_fini(&g->tensor_index);
    if (!name_index_init(&g->kv.index, g->kv.n))
        return fail(err, MICA_E_NOMEM, "%s: out of memory", g->label);
    for (uint32_t i = 0; i < g->kv.n; i++) name_index_put(&g->kv.index, g->kv.v, key_name, i);
    return gguf_finish(g, err);
}
