/* A grammar's text, or a schema's: made or refused, never more; and what a mask allows a step takes. The
 * first byte says which of both it is, and seeds the way through it. */
#include "text/grammar.h"
#include "text/vocab_small.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const text_vocab *vocab(void) {
    static small_vocab s;
    static text_vocab *v;
    mica_error err;
    static const char *const piece[] = {"{\"", "\":", "aa", "ab", "abababab", "true", "\xC3\x83\xC2\xA9",
                                        "12"};
    if (v) return v;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    s.d.special[TEXT_EOS] = small_add(&s, "<end>", TEXT_TYPE_CONTROL, 0);
    small_add(&s, "<tool>", TEXT_TYPE_CONTROL, 0);
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) small_text(&s, piece[i]);
    if (text_vocab_build(&v, &s.d, &err) != MICA_OK) abort();
    return v;
}

/* Some steps, each to a token that the mask allows. */
static void go(grammar *g, unsigned seed) {
    uint8_t bits[64];
    mica_error err;
    const int32_t n = text_vocab_n(vocab());
    for (int step = 0; step < 24; step++) {
        if (grammar_mask(g, bits, &err) != MICA_OK) return;
        seed = seed * 1103515245u + 12345u;
        int32_t id = (int32_t)(seed >> 8) % n, looked = 0;
        for (; looked < n && !(bits[id >> 3] >> (id & 7) & 1); looked++) id = (id + 1) % n;
        if (looked == n) abort(); // what began can be finished, and this vocabulary has every byte
        if (grammar_accept(g, id, &err) != MICA_OK) {
            if (strstr(err.text, "may not come")) abort();
            return;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    mica_error err;
    grammar *g;
    if (size < 1) return 0;
    const slice text = {(const char *)data + 1, size - 1};
    mica_status st = data[0] & 1
                         ? grammar_new_schema(&g, vocab(), text, data[0] & 2, (grammar_start){0}, &err)
                         : grammar_new_gbnf(&g, vocab(), text, &err);
    if (st == MICA_OK) go(g, data[0]);
    if (st != MICA_OK && st != MICA_E_ARG) abort();
    grammar_free(g);
    return 0;
}
