/* Chat templates: an interpreter for the Jinja that model files carry.
 *
 *     jinja_parse(&t, source, &err);                 // once; t never changes afterwards
 *     jinja_render(&out, t, context, &opt, &err);    // context: {"messages": [...], "tools": [...], ...}
 *     ... out.text, out.span ...; jinja_output_fini(&out); jinja_free(t);
 *
 * The language is what templates are written against: jinja2's sandboxed immutable environment with
 * trim_blocks and lstrip_blocks, the loop-control extension, `generation` blocks (their text is kept, the tag
 * does nothing), raise_exception, strftime_now, and a tojson that prints as Python's
 * json.dumps(ensure_ascii=False). `from_json` is known beyond that, because published templates use it. What
 * jinja2 has and this interpreter lacks (inheritance, imports, a few filters of web pages) is
 * MICA_E_UNSUPPORTED and named; everything else that jinja2 would raise is MICA_E_ARG with jinja2's or the
 * template's own words and a line number.
 *
 * Where text came from is kept: every byte that stems from `context` is untrusted through slicing, joining,
 * replacing and printing, every byte written in the template is trusted (span.h), so that a user who types
 * `<|im_end|>` gets those characters and not the control token. See jinja_options for the exceptions.
 *
 * A template is hostile code from a stranger's file: source size, nesting, steps, memory, output and
 * recursion are bounded (the numbers are below), it cannot reach anything but its context and the date, and
 * cannot loop for ever.
 *
 * Threads: a jinja_template is read-only after jinja_parse; any number of threads may render it at once. A
 * render at its deepest needs about 1 MiB of stack (measured over four ways to recurse, gcc -O2). */
#ifndef MICA_TEXT_JINJA_H
#define MICA_TEXT_JINJA_H

#include "base/status.h"
#include "base/str.h"
#include "text/span.h"

#include <jansson.h>
#include <stdint.h>

enum {
    JINJA_MAX_SOURCE = 1 << 20, // bytes of a template
    JINJA_MAX_NESTING = 200,    // of brackets, blocks and prefix operators in the source
    JINJA_MAX_CALLS = 200,      // macros inside macros
    JINJA_MAX_STEPS =
        10 * 1000 * 1000,         // nodes visited, plus one for every 64 bytes or items a builtin walks over
    JINJA_MAX_OUTPUT = 64 << 20,  // bytes
    JINJA_MAX_MEMORY = 512 << 20, // bytes taken by one render
    JINJA_MAX_RANGE = 100000      // items of a range(); jinja2's sandbox has the same limit
};

typedef struct jinja_template jinja_template;

/* source is copied. Syntax errors, unknown filters, unknown tags and misplaced break are found here. */
mica_status jinja_parse(jinja_template **out, slice source, mica_error *err);
void jinja_free(jinja_template *t); // accepts NULL

/* Whether the template names a variable like this anywhere (not whether it comes to use it). */
bool jinja_names(const jinja_template *t, const char *name);

typedef struct jinja_options {
    /* Variables at the top of the context whose text is trusted: "bos_token" and its like, from the model
     * file. */
    const char *const *trusted; // borrowed for the call
    size_t n_trusted;
    /* Members called `role` are trusted when their value is one of these words: templates paste roles into
     * markers. */
    const char *const *role; // borrowed for the call
    size_t n_role;
    int64_t now_s; // seconds since 1970 that strftime_now shows (in local time); 0: the clock
    // smaller bounds than JINJA_MAX_STEPS and JINJA_MAX_MEMORY; 0: those
    uint64_t max_steps;
    size_t max_memory_bytes;
} jinja_options;

typedef struct jinja_output {
    char *text;      // owned, NUL-terminated, UTF-8
    size_t n;        // bytes without the NUL
    text_span *span; // owned; see span.h
    size_t n_span;
} jinja_output;

/* context is a JSON object, borrowed for the call and not changed; the order of its members is the order
 * templates see. opt may be NULL. *out is empty on failure. */
mica_status jinja_render(jinja_output *out, const jinja_template *t, const json_t *context,
                         const jinja_options *opt, mica_error *err);
void jinja_output_fini(jinja_output *o); // accepts an empty one; leaves it empty

#endif
