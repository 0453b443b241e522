/* Small vocabularies for the tests of the tokenizer, whole in a few lines each. */
#ifndef MICA_TESTS_VOCAB_SMALL_H
#define MICA_TESTS_VOCAB_SMALL_H

#include "text/vocab.h"

#include <stdio.h>

enum { SMALL_MAX = 600 };

/* Storage for a description; texts are borrowed from the caller or kept in `spell`. */
typedef struct small_vocab {
    text_vocab_desc d;
    slice token[SMALL_MAX], merge[SMALL_MAX];
    int32_t type[SMALL_MAX];
    float score[SMALL_MAX];
    char spell[256][8];
} small_vocab;

static inline int32_t small_add(small_vocab *s, const char *text, int32_t type, float score) {
    size_t i = s->d.n_token++;
    s->token[i] = slice_of(text);
    s->type[i] = type;
    s->score[i] = score;
    return (int32_t)i;
}
static inline int32_t small_text(small_vocab *s, const char *text) {
    return small_add(s, text, TEXT_TYPE_NORMAL, 0);
}
static inline void small_merge(small_vocab *s, const char *merge) {
    s->merge[s->d.n_merge++] = slice_of(merge);
}

static inline void small_init(small_vocab *s, const char *model, const char *pre) {
    memset(s, 0, sizeof *s);
    s->d.model = slice_of(model);
    s->d.pre = slice_of(pre);
    s->d.token = s->token;
    s->d.type = s->type;
    s->d.score = s->score;
    s->d.merge = s->merge;
    for (int i = 0; i < TEXT_SPECIAL_N; i++) s->d.special[i] = -1;
}

/* Tokens 0..255: the bytes in order, spelled as GPT-2 does. */
static inline void small_bytes(small_vocab *s) {
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        s->spell[b][utf8_put(s->spell[b], printable ? b : next++)] = 0;
        small_text(s, s->spell[b]);
    }
}

/* The next 256 tokens: <0x00> .. <0xFF>. */
static inline void small_byte_tokens(small_vocab *s) {
    for (unsigned b = 0; b < 256; b++) {
        snprintf(s->spell[b], sizeof s->spell[b], "<0x%02X>", b);
        small_add(s, s->spell[b], TEXT_TYPE_BYTE, 0);
    }
}

#endif
