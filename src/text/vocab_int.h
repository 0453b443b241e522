/* The inside of a vocabulary, for the tokenizer's own files. */
#ifndef MICA_TEXT_VOCAB_INT_H
#define MICA_TEXT_VOCAB_INT_H

#include "text/pretok.h"
#include "text/symtab.h"
#include "text/vocab.h"

#include <stdatomic.h>

/* A merged token is looked up by its bytes for SentencePiece; longer ones are never built, so that a lookup
 * is cheap. The longest tokens of known vocabularies have under 300 bytes. */
#define TEXT_SPM_TOKEN_MAX 1024

typedef enum text_model {
    TEXT_MODEL_BYTES, // gpt2: BPE over bytes
    TEXT_MODEL_SPM,   // llama: best score first
    TEXT_MODEL_CHARS, // gemma4: BPE over characters, bytes as fallback
} text_model;

/* How a text may become a token: vocab.h. */
typedef enum text_kind { TEXT_KIND_TEXT, TEXT_KIND_PLAIN, TEXT_KIND_MARKER, TEXT_KIND_NEVER } text_kind;

/* What merging a whole token's bytes gives; learned at first use. Every thread computes the same. */
enum { TEXT_WHOLE_UNKNOWN = 0, TEXT_WHOLE_YES, TEXT_WHOLE_NO };

struct text_vocab {
    text_model model;
    uint32_t n_token;
    text_symtab sym;   // symbols 0 .. n_token-1 are the tokens; their pieces are the bytes they stand for
    text_pairtab pair; // BPE models
    uint32_t *order;   // owned, [n_token] SPM: place by descending score, equal scores share one
    uint8_t *type;     // owned, [n_token] text_token_type
    uint8_t *kind;     // owned, [n_token] text_kind
    _Atomic uint8_t *whole; // owned, [n_token] TEXT_WHOLE_*
    int32_t special[TEXT_SPECIAL_N];
    int32_t *end; // owned, ascending
    size_t n_end;
    int32_t *suppress; // owned, ascending
    size_t n_suppress;
    int32_t *match; // owned: markers and plain tokens, ascending by their bytes
    size_t n_match;
    uint64_t match_first[4];  // bit b: a matchable token begins with byte b
    int32_t byte_id[256];     // the token of a byte that nothing else covers, or -1
    uint32_t byte_sym[256];   // TEXT_MODEL_BYTES: the symbol of a byte
    uint64_t before_space[4]; // bit b: a symbol has byte b with a space after it
    bool add_bos, add_eos, add_space_prefix, ignore_merges;
    text_pretok *pretok; // owned; NULL for SPM
    text_pretok_info pretok_info;
    _Atomic(struct token_trie *) trie; // owned; made at first use
};

/* special.c. Classify fills special, type, kind and end from the description; index, once the tokens are in
 * the symbol table, match and match_first. */
mica_status text_vocab_classify(text_vocab *v, const text_vocab_desc *d, mica_error *err);
mica_status text_vocab_index(text_vocab *v, mica_error *err);

/* The longest matchable token at p (n bytes left) that the text may become: markers only within the first
 * n_trusted bytes. -1: none; *n_bytes gets its length. */
int32_t text_vocab_match(const text_vocab *v, const char *p, size_t n, size_t n_trusted, size_t *n_bytes);

static inline bool text_byte_in(const uint64_t set[4], char c) {
    return set[(unsigned char)c / 64] >> (unsigned char)c % 64 & 1;
}
static inline void text_byte_put(uint64_t set[4], char c) {
    set[(unsigned char)c / 64] |= 1ull << (unsigned char)c % 64;
}

#endif
