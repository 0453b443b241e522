/* A copy of a model file with one thing changed: another architecture, a tensor less, a tensor more. */
#ifndef MICA_TESTS_GGUF_EDIT_H
#define MICA_TESTS_GGUF_EDIT_H

#include "check.h"

#include "gguf/writer.h"

typedef struct gguf_edit {
    const char *arch; // NULL: as it is
    const char *drop; // name of a tensor, NULL: none
    const char *add;  // name of a vector of 32 ones, NULL: none
} gguf_edit;

static inline void gguf_edit_tensors(gguf_writer *w, const gguf_file *g, const gguf_edit *e, bool data) {
    mica_error err;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (e->drop && strcmp(t->name, e->drop) == 0) continue;
        if (data)
            CHECK_OK(gguf_writer_data(w, t->data, t->size_bytes, &err));
        else
            CHECK_OK(gguf_writer_tensor(w, t, &err));
    }
    static float one[32];
    for (int i = 0; i < 32; i++) one[i] = 1.0f;
    gguf_tensor more = {.name = e->add, .type = GGUF_F32, .n_dim = 1, .shape = {1, 1, 1, 32}};
    if (e->add && data)
        CHECK_OK(gguf_writer_data(w, one, sizeof one, &err));
    else if (e->add)
        CHECK_OK(gguf_writer_tensor(w, &more, &err));
}

static inline void gguf_edit_write(const gguf_file *g, const char *path, const gguf_edit *e) {
    mica_error err;
    gguf_writer *w;
    CHECK_OK(gguf_writer_open(&w, path, 32, &err));
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        slice key = gguf_kv_key(g, i);
        if (e->arch && slice_is(key, "general.architecture"))
            gguf_writer_str(w, "general.architecture", slice_of(e->arch));
        else
            gguf_writer_copy(w, key, gguf_kv_value(g, i));
    }
    gguf_edit_tensors(w, g, e, false);
    gguf_edit_tensors(w, g, e, true);
    CHECK_OK(gguf_writer_finish(w, &err));
    gguf_writer_close(w);
}

#endif
