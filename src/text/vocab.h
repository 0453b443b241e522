/* A vocabulary: the tokens of one model file, which of them are markers, and how text is cut into them.
 *
 *     text_vocab_new(&v, g, &err);                     // tokens, merges, scores, special ids out of a GGUF's
 * metadata text_encode(&ids, v, &(text_input){...}, &err);  // tokenize.h text_stream_put(&s, id, &out); //
 * detok.h text_vocab_free(v);
 *
 * Three kinds of tokenizer: byte-level BPE (`gpt2`), SentencePiece-style (`llama`: the best score merges
 * first, bytes as fallback) and BPE over characters (`gemma4`). Any other is MICA_E_UNSUPPORTED.
 *
 * Four kinds of token, by how text may become them:
 *   text     normal and byte tokens: what ordinary text is made of.
 *   plain    user-defined tokens that are nothing but spacing or an HTML tag the chat template does not use
 * (Gemma's runs of newlines, `<table>`): recognised in any text, since for these models they are ordinary
 * text. marker   control tokens and all other user-defined ones (`<|im_end|>`, `<think>`, `<tool_call>`):
 * recognised in trusted text only. never    unused and empty tokens. Merging can never build a marker out of
 * its characters, whatever the file's merges say.
 *
 * No Unicode normalisation is done for any model (tokenizer.json files of Qwen ask for NFC): text that is not
 * NFC keeps its own bytes, so that decoding gives back what was encoded.
 *
 * Ownership: a vocabulary copies what it needs; the GGUF may be closed. Threads: read-only after creation,
 * safe for any number of threads (one byte per token remembers, atomically, what every thread would compute
 * alike). */
#ifndef MICA_TEXT_VOCAB_H
#define MICA_TEXT_VOCAB_H

#include "base/str.h"
#include "mica_status.h"

#include <stdint.h>

typedef struct text_vocab text_vocab;
typedef struct gguf_file gguf_file;

typedef enum text_special {
    TEXT_BOS,
    TEXT_EOS,
    TEXT_EOT, // end of turn
    TEXT_EOM, // end of message: a tool's answer is expected
    TEXT_UNK,
    TEXT_SEP,
    TEXT_PAD,
    TEXT_MASK,
    TEXT_FIM_PRE,
    TEXT_FIM_SUF,
    TEXT_FIM_MID,
    TEXT_FIM_PAD,
    TEXT_FIM_REP,
    TEXT_FIM_SEP,
    TEXT_SPECIAL_N
} text_special;

/* The values of tokenizer.ggml.token_type; anything else counts as normal. */
typedef enum text_token_type {
    TEXT_TYPE_NORMAL = 1,
    TEXT_TYPE_UNKNOWN = 2,
    TEXT_TYPE_CONTROL = 3,
    TEXT_TYPE_USER = 4,
    TEXT_TYPE_UNUSED = 5,
    TEXT_TYPE_BYTE = 6,
} text_token_type;

typedef enum text_tri { TEXT_UNSET = 0, TEXT_NO, TEXT_YES } text_tri;

/* What a vocabulary is made of; everything is borrowed for the call of text_vocab_build. Zeroed members are
 * absent, special ids excepted: -1 is absent there. */
typedef struct text_vocab_desc {
    slice model, pre; // tokenizer.ggml.model, .pre
    slice chat_template;
    size_t n_token;
    const slice *token;  // [n_token], as in the file
    const int32_t *type; // [n_token] text_token_type, or NULL: all normal
    const float *score;  // [n_token], or NULL: all 0
    size_t n_merge;
    const slice *merge;              // [n_merge] "left right", best first
    int64_t special[TEXT_SPECIAL_N]; // as in the file; checked by text_vocab_build
    text_tri add_bos, add_eos, add_space_prefix;
    size_t n_suppress;
    const int32_t *suppress; // [n_suppress]; ids outside the vocabulary are dropped
} text_vocab_desc;

/* From a file's metadata. MICA_E_FORMAT: a key is missing, of the wrong kind or length, or a bos or eos id is
 * outside the vocabulary (other ids are then dropped with a warning). MICA_E_UNSUPPORTED: an unknown
 * tokenizer model. */
mica_status text_vocab_new(text_vocab **out, const gguf_file *g, mica_error *err);
/* The same from parts. */
mica_status text_vocab_build(text_vocab **out, const text_vocab_desc *d, mica_error *err);
void text_vocab_free(text_vocab *v); // NULL allowed

int32_t text_vocab_n(const text_vocab *v);                           // ids are 0 .. n-1
int32_t text_vocab_special(const text_vocab *v, text_special which); // -1: none
bool text_vocab_adds_bos(const text_vocab *v); // the file asks for BOS before text (and has one)
bool text_vocab_adds_eos(const text_vocab *v);
const char *text_vocab_pre(const text_vocab *v); // name of the split in use, e.g. "qwen2"; "" for none

/* Of one id; all are false, and the bytes {NULL, 0}, for an id outside the vocabulary. */
bool text_vocab_ends(const text_vocab *v, int32_t id);       // generation stops at it
bool text_vocab_is_marker(const text_vocab *v, int32_t id);  // recognised in trusted text only
bool text_vocab_is_control(const text_vocab *v, int32_t id); // prints nothing unless asked
/* The bytes a token stands for, maybe a part of a character; a control token's are its name. Borrowed from v.
 */
slice text_vocab_bytes(const text_vocab *v, int32_t id);

/* The marker or plain token spelled exactly `text` ("<think>"), or -1. */
int32_t text_vocab_find(const text_vocab *v, slice text);
/* Ids that end generation; ids never to be generated (gemma4's suppress_tokens). Ascending, borrowed from v.
 */
const int32_t *text_vocab_ends_all(const text_vocab *v, size_t *n);
const int32_t *text_vocab_suppressed(const text_vocab *v, size_t *n);

#endif
