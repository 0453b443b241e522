/* What the public model and session are made of. */
#ifndef MICA_API_INT_H
#define MICA_API_INT_H

#include "mica.h"
#include "run/sample.h"
#include "run/session.h"
#include "text/chat.h"
#include "text/vocab.h"

struct mica_model {
    gguf_file *g;         // owned
    text_vocab *vocab;    // owned
    chat_template *chat;  // owned; may be unusable: chat_template_check says why
    engine *e;            // owned; NULL for text_only
    sampler *pick;        // owned; NULL for text_only
    mica_session **slots; // owned, [n_seq] who has each, NULL: free
    mica_model_info info;
    int n_thread;
    char name[128], file_type[32], arch[32]; // what info points to
};

struct mica_session {
    mica_model *m; // borrowed
    session *s;    // owned
    uint32_t slot;
};

mica_status api_needs_weights(const mica_model *m, mica_error *err); // MICA_E_ARG for text_only models

/* The engine's configuration out of load options, the file excepted; MICA_E_ARG names the option. */
mica_status api_engine_config(engine_config *c, const mica_load_options *o, mica_error *err);

#endif
