/* What the public model and session are made of. */
#ifndef MICA_API_INT_H
#define MICA_API_INT_H

#include "mica.h"
#include "run/sample.h"
#include "run/session.h"
#include "text/chat.h"
#include "text/vocab.h"

enum { API_MEDIA_MAX = 8 };

struct mica_model {
    gguf_file *g;         // owned
    text_vocab *vocab;    // owned
    chat_template *chat;  // owned; may be unusable: chat_template_check says why
    engine *e;            // owned; NULL for text_only
    sampler *pick;        // owned; NULL for text_only
    mica_session **slots; // owned, [n_seq] who has each, NULL: free
    mica_model_info info;
    int32_t media[API_MEDIA_MAX]; // ids that stand for a piece of an image, a film or a sound
    size_t n_media;
    int n_thread;
    char name[128], file_type[32], arch[32]; // what info points to
};

struct mica_session {
    mica_model *m; // borrowed
    session *s;    // owned
    uint32_t slot;
};

/* MICA_E_UNSUPPORTED for an id that stands for what only an image or audio encoder could put there. */
mica_status api_check_media(const mica_model *m, const int32_t *ids, size_t n, mica_error *err);
mica_status api_needs_weights(const mica_model *m, mica_error *err); // MICA_E_ARG for text_only models

/* The engine's configuration out of load options, the file excepted; MICA_E_ARG names the option. */
mica_status api_engine_config(engine_config *c, const mica_load_options *o, mica_error *err);

#endif
