/* What a grammar costs while it is sampled: masks and steps along a JSON text, on a real vocabulary.
 *
 *     grammar_bench VOCABULARY.gguf [MILLISECONDS-OF-A-DECODED-TOKEN]
 *
 * The file needs a tokenizer, no weights. For each case: the cost of making the grammar, then of mask and
 * accept for every token of the text; once with nothing learned and once again with all. The vocabulary's
 * tree is made once a model and timed apart. With the second argument the shares of decoding are printed too.
 */
#include "base/mem.h"
#include "gguf/gguf.h"
#include "text/grammar.h"
#include "text/token_trie.h"
#include "text/tokenize.h"
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static mica_error err;

static const char ANY[] = "{\"type\": \"object\"}";
static const char PEOPLE[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"city\":{\"type\":\"string\","
    "\"maxLength\":"
    "100},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"new\",\"old\",\"odd\"]}},\"born\":{\"type\":"
    "\"string\",\"format\":\"date\"},\"note\":{\"type\":[\"string\",\"null\"]}},\"required\":[\"name\","
    "\"age\"]"
    "}}";
static const char TEXT[] =
    "[{\"name\": \"Ada Lovelace of Ockham Park\", \"age\": 36, \"city\": \"London, Marylebone\", \"tags\": "
    "[\"old\", \"odd\"], \"born\": \"1815-12-10\", \"note\": \"She wrote the first program for a machine "
    "that was "
    "never built; \\\"notes\\\" by the translator, three times as long as the text.\"}, {\"name\": "
    "\"Fran\xC3\xA7"
    "ois Vi\xC3\xA8te\", \"age\": 63, \"city\": \"Fontenay-le-Comte\", \"tags\": [], \"born\": "
    "\"1540-01-01\", "
    "\"note\": null}]";
static const char OBJECT[] = "{\"title\": \"A report on grammars\", \"pages\": [1, 2, 3.5, -4e3], \"draft\": "
                             "true, \"by\": {\"first\": "
                             "\"Ada\", \"last\": \"Lovelace\", \"mail\": null}, \"text\": \"Every state of a "
                             "string allows nearly all of the "
                             "vocabulary, and every state between strings nearly nothing.\\nThat is what "
                             "makes the two cases differ.\"}";

typedef struct times {
    double us[4096];
    size_t n;
} times;

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(const char *what, times *t, double decode_ms) {
    double sum = 0;
    qsort(t->us, t->n, sizeof *t->us, by_value);
    for (size_t i = 0; i < t->n; i++) sum += t->us[i];
    printf("  %-22s mean %8.1f us  median %8.1f  p95 %8.1f  max %8.1f", what, sum / (double)t->n,
           t->us[t->n / 2], t->us[t->n * 95 / 100], t->us[t->n - 1]);
    if (decode_ms > 0) printf("  %5.2f %% of decoding", sum / (double)t->n / decode_ms / 10);
    printf("\n");
}

/* Of this thread alone: what else the machine does is not counted. */
static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static bool pass(grammar *g, const text_ids *ids, uint8_t *bits, times *t) {
    t->n = 0;
    grammar_reset(g);
    for (size_t i = 0; i < ids->n && t->n < 4096; i++) {
        const double begin = now_us();
        if (grammar_mask(g, bits, &err) != MICA_OK) return false;
        if (!(bits[ids->id[i] >> 3] >> (ids->id[i] & 7) & 1))
            return fail(&err, MICA_E_INTERNAL, "token %zu is not allowed", i), false;
        if (grammar_accept(g, ids->id[i], &err) != MICA_OK) return false;
        t->us[t->n++] = now_us() - begin;
    }
    return grammar_may_end(g) || (fail(&err, MICA_E_INTERNAL, "the text is not whole"), false);
}

static bool run(const text_vocab *v, const char *name, const char *schema, const char *text,
                double decode_ms) {
    static times t;
    text_ids ids = {0};
    grammar *g = NULL;
    uint8_t *bits = mem_alloc((size_t)text_vocab_n(v) / 8 + 1);
    bool good = bits && text_encode(&ids, v, &(text_input){.text = slice_of(text)}, &err) == MICA_OK;
    const double begin = now_us();
    good = good && grammar_new_schema(&g, v, slice_of(schema), false, (grammar_start){0}, &err) == MICA_OK;
    const double made = now_us() - begin;
    if (good) {
        printf("%s: %zu tokens, grammar made in %.0f us\n", name, ids.n, made);
        good = pass(g, &ids, bits, &t);
        if (good) report("nothing learned", &t, decode_ms);
        good = good && pass(g, &ids, bits, &t);
        if (good) report("the same again", &t, decode_ms);
    }
    grammar_free(g);
    text_ids_fini(&ids);
    mem_free(bits);
    return good;
}

int main(int argc, char **argv) {
    gguf_file *file = NULL;
    text_vocab *v = NULL;
    const token_trie *trie;
    const double decode_ms = argc > 2 ? strtod(argv[2], NULL) : 0;
    if (argc < 2) return fputs("usage: grammar_bench VOCABULARY.gguf [MS]\n", stderr), 2;
    bool good = gguf_open(&file, argv[1], &err) == MICA_OK && text_vocab_new(&v, file, &err) == MICA_OK;
    const double begin = now_us();
    good = good && text_vocab_trie(&trie, v, &err) == MICA_OK;
    if (good) {
        printf("%d tokens, tree of %u nodes (%.1f MB) made in %.0f ms\n", text_vocab_n(v), trie->n_node,
               (double)trie->n_node * sizeof *trie->node / 1e6, (now_us() - begin) / 1000);
        good =
            run(v, "any object", ANY, OBJECT, decode_ms) && run(v, "list of people", PEOPLE, TEXT, decode_ms);
    }
    if (!good) fprintf(stderr, "grammar_bench: %s\n", err.text);
    text_vocab_free(v);
    gguf_close(file);
    return good ? 0 : 1;
}
