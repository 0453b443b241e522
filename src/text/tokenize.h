/* Text to token ids.
 *
 *     text_ids ids = {0};
 *     text_encode(&ids, v, &(text_input){.text = prompt, .span = spans, .n_span = n, .flags = TEXT_ADD_BOS},
 * &err);
 *     ... ids.id[0 .. ids.n-1] ...
 *     text_ids_fini(&ids);
 *
 * Special tokens are found first, leftmost and then longest; what lies between them is cut by the
 * pre-tokenizer and merged. A marker (vocab.h) is found only where all its bytes are trusted. Trust changes
 * nothing else: text on both sides of a span's edge is one text, so a prompt has the tokens its plain
 * concatenation has, markers apart.
 *
 * Bytes that are no UTF-8 are kept: each stretch of them is a piece of its own and becomes byte tokens, so
 * decoding gives the same bytes back.
 *
 * Cost: n log n for n bytes whatever they are; memory about 50 bytes a byte of the longest piece.
 * Threads: any, each with its own ids; the vocabulary is shared. */
#ifndef MICA_TEXT_TOKENIZE_H
#define MICA_TEXT_TOKENIZE_H

#include "text/span.h"
#include "text/vocab.h"

#define TEXT_BYTES_MAX (256u << 20) // longer texts are MICA_E_ARG

/* A growing array of ids. It remembers an out-of-memory like a strbuf does. */
typedef struct text_ids {
    int32_t *id; // owned
    size_t n, cap;
    bool failed;
} text_ids;

void text_ids_put(text_ids *ids, int32_t id);
void text_ids_fini(text_ids *ids);

enum {
    TEXT_ADD_BOS =
        1, // begin with BOS if the vocabulary asks for it, unless the text does so itself (as a marker)
    TEXT_ADD_EOS = 2, // the same at the end
    TEXT_TRUSTED = 4, // without spans: the whole text is trusted
};

typedef struct text_input {
    slice text;            // borrowed
    const text_span *span; // [n_span] over text, see span.h; NULL: one span, trusted if TEXT_TRUSTED
    size_t n_span;
    unsigned flags;
} text_input;

/* Appends to ids (init {0}). On failure ids->n is what it was. */
mica_status text_encode(text_ids *ids, const text_vocab *v, const text_input *in, mica_error *err);

#endif
