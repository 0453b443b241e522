/* One choice of an answer on its way from tokens to events: whole UTF-8, thinking and tool calls told from
 * text, stop strings, probabilities. Worker only. */
#ifndef MICA_SERVE_VOICE_H
#define MICA_SERVE_VOICE_H

#include "serve/job.h"
#include "base/stops.h"

typedef struct voice {
    job *j; // borrowed
    int choice;
    const mica_model *model; // borrowed
    mica_text_stream *text;  // owned
    mica_answer *answer;     // owned; NULL: all is text
    stops stop;
    bool thinking;   // it goes on
    slice think_end; // its mark, n 0: none
    uint64_t n_made, n_thought;
    int n_call;
    int stopped; // index of the stop string that matched, -1
    bool over;   // nothing more is wanted
    // Probabilities whose text has not gone out yet: records, and the bytes of their tokens.
    strbuf picks, pick_bytes;
} voice;

mica_status voice_init(voice *v, job *j, int choice, const mica_model *m, mica_error *err);
void voice_fini(voice *v);
/* A token was made. top: [1 + n_top of the job's ask], the token itself first; NULL: not wanted. Sets `over`
 * when a stop string matched or the one call that was wanted is complete. */
mica_status voice_put(voice *v, int32_t id, const mica_logprob *top, mica_error *err);
/* No more tokens: what was held back goes out, unless a stop string ended it. */
mica_status voice_end(voice *v, mica_error *err);

#endif
