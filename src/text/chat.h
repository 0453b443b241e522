/* Conversations to prompts: the chat template of a model, what it can do, and messages brought into its
 * shape.
 *
 *     chat_template_new(&t, g, vocab, &err);                  // parses and probes; never fails for a bad
 * template chat_render(&p, t, &(chat_request){.messages = m}, &err); text_encode(&ids, vocab,
 * &(text_input){.text = {p.text, p.n}, .span = p.span, .n_span = p.n_span, .flags = TEXT_ADD_BOS}, &err);
 *     chat_prompt_fini(&p);
 *
 * Templates differ in what they accept, and clients send everything. So a template is tried once, at load,
 * with a few small conversations whose outcome says what it takes (chat_abilities); messages are then
 * rewritten to fit: null content, parts, `developer`, late or several system messages, arguments as text or
 * object, efforts it does not know. What cannot be fitted is MICA_E_ARG with the field's or the template's
 * own words.
 *
 * All text of a request is untrusted in the prompt's spans (span.h); roles the layer knows, the text of
 * special tokens from the file and everything the template writes are trusted.
 *
 * Ownership: a template copies what it needs; the file and the vocabulary may be closed. Threads: read-only
 * after creation, safe for any number of threads. */
#ifndef MICA_TEXT_CHAT_H
#define MICA_TEXT_CHAT_H

#include "base/status.h"
#include "base/str.h"
#include "text/span.h"

#include <jansson.h>
#include <stdint.h>

typedef struct chat_template chat_template;
typedef struct gguf_file gguf_file;
typedef struct text_vocab text_vocab;

/* How models of a template write a tool call; answer.h reads them. */
typedef enum chat_family {
    CHAT_PLAIN,    // none known
    CHAT_HERMES,   // <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>
    CHAT_QWEN_XML, // <tool_call>\n<function=NAME>\n<parameter=K>\nV\n</parameter>\n</function>\n</tool_call>
    CHAT_GEMMA4,   // <|tool_call>call:NAME{key:<|"|>value<|"|>}<tool_call|>
    CHAT_LLAMA3    // the whole answer is {"name": ..., "parameters": {...}}
} chat_family;

typedef struct chat_format {
    chat_family family;
    const char *think_begin, *think_end; // "<think>" "</think>"; NULL: no thinking; static
} chat_format;

/* Where an answer stands towards thinking when it begins. */
typedef enum chat_thinking {
    CHAT_THINK_OVER,  // none will come: the template knows none, or the prompt closed it
    CHAT_THINK_MAY,   // it may begin with it
    CHAT_THINK_INSIDE // the prompt opened it
} chat_thinking;
/* By the end of the prompt's text. */
chat_thinking chat_think_after(const chat_format *f, slice prompt);

/* Efforts from least to most; "none" is thinking off. */
typedef enum chat_effort {
    CHAT_MINIMAL,
    CHAT_LOW,
    CHAT_MEDIUM,
    CHAT_HIGH,
    CHAT_XHIGH,
    CHAT_MAX,
    CHAT_EFFORT_N
} chat_effort;
const char *chat_effort_name(chat_effort e);

/* What probing found. When the template failed even for one user message, all is set as for an ordinary
 * template. */
typedef struct chat_abilities {
    chat_format format;
    bool strings, parts;     // content may be a string; a user's an array of text parts
    bool system_parts;       // a system message's too
    bool system;             // shows a system message in front
    bool more_system;        // several of them, and later ones
    bool developer;          // knows and shows that role
    bool tools;              // shows the tools it is given
    bool object_args;        // arguments of a call in history as an object (else as JSON text)
    bool string_args;        // ... takes JSON text as well
    bool broken_args;        // ... and text that is no JSON
    bool no_content;         // a call without content
    bool empty_answer;       // an assistant's message with nothing in it
    bool short_ids;          // call ids must be nine letters or digits
    bool switches_thinking;  // thinking can be turned on and off
    const char *effort_name; // the variable that takes an effort, static; NULL: none
    bool effort[CHAT_EFFORT_N];
} chat_abilities;

/* From a file's metadata. A missing or broken template is no failure here: a model may be used without one.
 */
mica_status chat_template_new(chat_template **out, const gguf_file *g, const text_vocab *v, mica_error *err);

typedef struct chat_source {
    slice source, tool_source; // the template; the one named tool_use; n 0: none
    slice bos, eos, pad, unk;  // texts of special tokens; n 0: none
    bool chatml;               // without a template, plain ChatML may stand in
} chat_source;
mica_status chat_template_build(chat_template **out, const chat_source *s, mica_error *err);
void chat_template_free(chat_template *t); // NULL allowed

/* Why the template cannot be used (none in the file, a syntax error), or MICA_OK. */
mica_status chat_template_check(const chat_template *t, mica_error *err);
const chat_abilities *chat_template_abilities(const chat_template *t, bool with_tools);

typedef struct chat_request {
    const json_t *messages; // array of OpenAI-style messages
    const json_t *tools;    // array of tools, or NULL
    const json_t *kwargs;   // object: variables for the template (chat_template_kwargs), or NULL
    const char *think;      // "on" "off" "none" or an effort; NULL: as kwargs or the template like
    bool no_generation_prompt;
    int64_t now_s; // what strftime_now shows; 0: the clock
} chat_request;

typedef struct chat_prompt {
    char *text; // owned, NUL-terminated
    size_t n;
    text_span *span; // owned
    size_t n_span;
    chat_format format;
    bool in_think; // the prompt ends inside an opened thinking block
} chat_prompt;

/* *out is empty on failure. Everything a caller can get wrong is MICA_E_ARG. */
mica_status chat_render(chat_prompt *out, const chat_template *t, const chat_request *req, mica_error *err);
void chat_prompt_fini(chat_prompt *p);

#endif
