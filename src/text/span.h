/* Which bytes of a prompt may become control tokens.
 *
 * A rendered prompt is one text buffer and an array of spans over it. A trusted span was written by the chat
 * template or by the model file itself: its `<|im_end|>` is the control token. An untrusted span came from
 * whoever sent the request: the same characters there stay plain text, whatever they spell (and a marker that
 * is only complete across a span's edge is no marker).
 *
 * Invariants: spans are consecutive and cover the buffer (the first begins at 0, each begins where the last
 * ended, the last ends at the buffer's end), none is empty, neighbours differ in `trusted`. An empty buffer
 * has no spans. An edge never falls inside a UTF-8 sequence of well-formed text. */
#ifndef MICA_TEXT_SPAN_H
#define MICA_TEXT_SPAN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct text_span {
    size_t begin, end; // bytes of the buffer, half-open
    bool trusted;
} text_span;

#endif
