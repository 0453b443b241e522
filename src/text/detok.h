/* Token ids to text, whole UTF-8 only.
 *
 *     text_stream s;
 *     text_stream_init(&s, v, 0);
 *     text_stream_put(&s, id, &out);   // appends what became complete, maybe nothing
 *     text_stream_end(&s, &out);       // a character that never became complete is one U+FFFD
 *
 * A token may be a part of a character: up to three bytes wait for the rest. Bytes that can no longer become
 * a character are one U+FFFD for each maximal start of one (Unicode 15 section 3.9, what browsers and Python
 * do). A token that prints nothing still ends a character. The text of a sequence is the same however it is
 * cut into calls.
 *
 * Threads: a stream belongs to one caller and may be copied; it allocates nothing (the buffer given to it
 * does). */
#ifndef MICA_TEXT_DETOK_H
#define MICA_TEXT_DETOK_H

#include "text/vocab.h"

enum {
    TEXT_SHOW_CONTROL = 1, // control tokens print their names
    TEXT_FROM_START = 2,   // the ids begin a text: the space SentencePiece put there is left out again
};

typedef struct text_stream {
    const text_vocab *v; // borrowed
    unsigned flags;
    bool at_start; // the next printed byte is the first and TEXT_FROM_START applies to it
    unsigned char n_held;
    char held[4]; // bytes of a character not yet complete
} text_stream;

void text_stream_init(text_stream *s, const text_vocab *v, unsigned flags);
/* An id outside the vocabulary prints nothing. Out of memory is remembered by out. */
void text_stream_put(text_stream *s, int32_t id, strbuf *out);
void text_stream_end(text_stream *s, strbuf *out); // the stream is then as after init

/* The text of a whole sequence: put for each, then end. */
void text_decode(strbuf *out, const text_vocab *v, const int32_t *id, size_t n, unsigned flags);

#endif
