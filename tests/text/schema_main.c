/* Schemas in batch for schema_oracle.py, over a vocabulary of single bytes. One JSON object per input line:
 *     {"schema": ..., "lenient": false, "texts": ["{}", ...], "samples": 3, "seed": 1}
 * and one per output line: {"accepted": [true, ...], "samples": ["...", ...]} or {"error": "..."}. Samples
 * are random walks through the grammar that lean towards closing what is open. */
#include "base/mem.h"
#include "text/grammar.h"
#include "vocab_small.h"

#include <stdio.h>
#include <stdlib.h>

static mica_error err;

static uint64_t next_random(uint64_t *s) {
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}

static bool accepts(grammar *g, slice text) {
    grammar_reset(g);
    for (size_t i = 0; i < text.n; i++)
        if (grammar_accept(g, (uint8_t)text.p[i], &err) != MICA_OK) return false;
    return grammar_may_end(g);
}

static bool one_of(const char *set, int c) {
    return c && strchr(set, c);
}

/* A byte that may come: what closes is drawn more often, and ever more so. */
static int draw(const uint8_t *bits, size_t length, uint64_t *seed) {
    int all[256], n = 0, close[256], n_close = 0, plain[256], n_plain = 0;
    for (int b = 0; b < 256; b++) {
        if (!(bits[b >> 3] >> (b & 7) & 1)) continue;
        all[n++] = b;
        if (one_of("\"}]", b)) close[n_close++] = b;
        if (b > ' ' && b < 127 && b != '\\') plain[n_plain++] = b;
    }
    if (!n) return -1;
    const uint64_t dice = next_random(seed) % 100;
    if (n_close && dice < 20 + length / 20) return close[next_random(seed) % (uint64_t)n_close];
    if (n_plain && dice < 90) return plain[next_random(seed) % (uint64_t)n_plain];
    return all[next_random(seed) % (uint64_t)n];
}

static bool sample(grammar *g, uint64_t *seed, strbuf *out) {
    uint8_t bits[64];
    strbuf_clear(out);
    grammar_reset(g);
    while (out->n < 20000) {
        if (grammar_mask(g, bits, &err) != MICA_OK) return false;
        const bool may_end = grammar_may_end(g);
        const int b = may_end && next_random(seed) % 3 == 0 ? -1 : draw(bits, out->n, seed);
        if (b < 0) return may_end;
        if (grammar_accept(g, b, &err) != MICA_OK) return false;
        strbuf_putc(out, (char)b);
    }
    return false;
}

static json_t *answer(const text_vocab *v, const json_t *job) {
    grammar *g;
    char *schema = json_dumps(json_object_get(job, "schema"), JSON_ENCODE_ANY);
    mica_status st = grammar_new_schema(
        &g, v, slice_of(schema), json_is_true(json_object_get(job, "lenient")), (grammar_start){0}, &err);
    free(schema);
    if (st != MICA_OK) return json_pack("{s:s}", "error", err.text);
    json_t *accepted = json_array(), *samples = json_array();
    const json_t *texts = json_object_get(job, "texts");
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *t = json_array_get(texts, i);
        json_array_append_new(accepted,
                              json_boolean(accepts(g, (slice){json_string_value(t), json_string_length(t)})));
    }
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(job, "seed")) * 2 + 1;
    strbuf b = {0};
    for (json_int_t i = 0; i < json_integer_value(json_object_get(job, "samples")); i++) {
        if (sample(g, &seed, &b))
            json_array_append_new(samples, json_stringn(strbuf_cstr(&b), b.n));
        else
            json_array_append_new(samples, json_null());
    }
    strbuf_fini(&b);
    grammar_free(g);
    return json_pack("{s:o, s:o}", "accepted", accepted, "samples", samples);
}

int main(void) {
    static small_vocab s; // large
    text_vocab *v;
    char *line = NULL;
    size_t cap = 0;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    s.d.special[TEXT_EOS] = small_add(&s, "<end>", TEXT_TYPE_CONTROL, 0);
    if (text_vocab_build(&v, &s.d, &err) != MICA_OK) return 1;
    while (getline(&line, &cap, stdin) > 0) {
        json_t *job = json_loads(line, 0, NULL), *a = job ? answer(v, job) : NULL;
        char *text = a ? json_dumps(a, JSON_COMPACT) : NULL;
        puts(text ? text : "null");
        fflush(stdout);
        free(text);
        json_decref(a);
        json_decref(job);
    }
    free(line);
    text_vocab_free(v);
    return 0;
}
