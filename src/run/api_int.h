/* What the public model and session are made of. */
#ifndef MICA_API_INT_H
#define MICA_API_INT_H

#include "mica.h"
#include "run/draft_cost.h"
#include "run/sample.h"
#include "run/session.h"
#include "text/chat.h"
#include "text/vocab.h"

enum { API_MEDIA_MAX = 8 };

/* A session's part in a step. */
typedef struct step_work {
    mica_step_item *it;
    const mica_sampling *sampling;
    session_draft *draft; // slot of mica_model.draft; NULL: reads its prompt, or takes no part
    int32_t window[WINDOW_MAX];
    uint32_t n_draft;
    uint32_t n_row; // 0: takes no part
} step_work;

struct mica_model {
    gguf_file *g;                // owned
    text_vocab *vocab;           // owned
    chat_template *chat;         // owned; may be unusable: chat_template_check says why
    engine *e;                   // owned; NULL for text_only
    sampler *pick;               // owned; NULL for text_only
    mica_session **slots;        // owned, [n_seq] who has each, NULL: free
    prefix *cache;               // owned; NULL: none
    mica_cache_info cache_count; // lookups and hits
    draft_cost draft_cost;       // of steps so far
    uint64_t n_crowd;            // steps of crowds that did not draft
    session **batch;             // owned, [n_seq] of mica_decode_batch
    session_part *parts;         // owned, [n_seq] of a step
    session_draft *draft;        // owned, [n_seq] of a step
    step_work *work;             // owned, [n_seq] of a step: api_step.c
    mica_model_info info;
    int32_t media[API_MEDIA_MAX]; // ids that stand for a piece of an image, a film or a sound
    size_t n_media;
    char *state_dir; // owned; NULL: none
    int n_thread;
    char name[128], file_type[32], arch[32]; // what info points to
};

struct mica_session {
    mica_model *m; // borrowed
    session *s;    // owned
    uint32_t slot;
    int32_t next; // with has_next: the token that was chosen last, given out, and is still to be appended
    bool has_next;
    uint64_t n_made;              // tokens given out since begin
    double draft_hit, draft_miss; // drafts that agreed, windows that ended early: lately
    mica_finish finish;           // of what was begun
};

/* MICA_E_UNSUPPORTED for an id that stands for what only an image or audio encoder could put there. */
mica_status api_check_media(const mica_model *m, const int32_t *ids, size_t n, mica_error *err);
void api_session_restart(mica_session *s);                           // nothing is begun, nothing chosen
mica_status api_needs_weights(const mica_model *m, mica_error *err); // MICA_E_ARG for text_only models

/* The engine's configuration out of load options, the file excepted; MICA_E_ARG names the option. */
mica_status api_engine_config(engine_config *c, const mica_load_options *o, mica_error *err);

#endif
