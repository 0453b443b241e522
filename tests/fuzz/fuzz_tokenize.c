/* Tokenizers on arbitrary text and arbitrary vocabularies.
 *
 *     byte 0   which tokenizer and split, and whether the text's spans alternate in trust
 *     byte 1   where the spans' edges fall
 *     then     lines up to an empty one: "T<type>text" adds a token, "Mleft right" a merge; then the text
 *
 * Besides what sanitizers find: untrusted bytes never become a marker, whatever the vocabulary; decoding
 * gives valid UTF-8; and for byte-level BPE with all bytes the tokens' bytes are the text. */
#include "text/detok.h"
#include "text/tokenize.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TOKENS = 400, MERGES = 64, SPANS = 64 };

typedef struct bench {
    text_vocab_desc d;
    slice token[TOKENS], merge[MERGES];
    int32_t type[TOKENS];
    float score[TOKENS];
    char spell[256][8];
    text_span span[SPANS];
} bench;

static void promise(bool kept) {
    if (!kept) __builtin_trap();
}

static void quiet(void *user, log_level level, const char *line) {
    (void)user;
    (void)level;
    (void)line;
}

static void add_token(bench *b, slice text, int32_t type) {
    if (b->d.n_token == TOKENS) return;
    b->token[b->d.n_token] = text;
    b->score[b->d.n_token] = (float)(text.n % 7) - (float)(b->d.n_token % 5);
    b->type[b->d.n_token++] = type;
}

static void add_bytes(bench *b, bool as_gpt2) {
    unsigned next = 256;
    for (unsigned c = 0; c < 256; c++) {
        bool printable = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
        int len =
            as_gpt2 ? utf8_put(b->spell[c], printable ? c : next++) : snprintf(b->spell[c], 8, "<0x%02X>", c);
        add_token(b, (slice){b->spell[c], (size_t)len}, as_gpt2 ? TEXT_TYPE_NORMAL : TEXT_TYPE_BYTE);
    }
}

/* Reads lines into the vocabulary; the rest is the text. */
static slice read_lines(bench *b, slice in) {
    while (in.n > 0) {
        const char *end = memchr(in.p, '\n', in.n);
        if (!end || end == in.p) return end ? (slice){in.p + 1, in.n - 1} : in;
        slice line = {in.p, (size_t)(end - in.p)};
        in = (slice){end + 1, in.n - line.n - 1};
        if (line.p[0] == 'T' && line.n > 1)
            add_token(b, (slice){line.p + 2, line.n - 2}, line.p[1] % 8);
        else if (line.p[0] == 'M' && b->d.n_merge < MERGES)
            b->merge[b->d.n_merge++] = (slice){line.p + 1, line.n - 1};
    }
    return in;
}

static size_t cut_spans(bench *b, size_t n, size_t step) {
    size_t n_span = 0;
    for (size_t at = 0; at < n; n_span++) {
        size_t end = n_span == SPANS - 1 || n - at <= step ? n : at + step;
        b->span[n_span] = (text_span){at, end, n_span % 2};
        at = end;
    }
    return n_span;
}

static void check_encoding(const text_vocab *v, const text_input *in, bool whole) {
    text_ids ids = {0};
    strbuf raw = {0}, out = {0};
    promise(text_encode(&ids, v, in, NULL) == MICA_OK);
    bool any_trust = in->span || in->flags & TEXT_TRUSTED;
    for (size_t i = 0; i < ids.n; i++) {
        slice bytes = text_vocab_bytes(v, ids.id[i]);
        promise(bytes.p != NULL);
        strbuf_put(&raw, bytes.p, bytes.n);
        bool added = ids.id[i] == text_vocab_special(v, TEXT_UNK) || (in->flags & TEXT_ADD_BOS && i == 0) ||
                     (in->flags & TEXT_ADD_EOS && i + 1 == ids.n);
        promise(any_trust || added || !text_vocab_is_marker(v, ids.id[i]));
    }
    if (whole && !(in->flags & (TEXT_ADD_BOS | TEXT_ADD_EOS)))
        promise(raw.n == in->text.n && (raw.n == 0 || memcmp(raw.p, in->text.p, raw.n) == 0));
    text_decode(&out, v, ids.id, ids.n, TEXT_SHOW_CONTROL);
    promise(utf8_valid(strbuf_cstr(&out), out.n));
    strbuf_fini(&raw);
    strbuf_fini(&out);
    text_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const models[] = {"gpt2", "llama", "gemma4"};
    static const char *const splits[] = {"qwen2", "qwen35",  "smollm", "llama-bpe",
                                         "gpt-2", "default", "tekken", "falcon"};
    if (n < 2) return 0;
    log_set_sink(quiet, NULL);
    bench *b = mem_calloc(1, sizeof *b);
    if (!b) return 0;
    int model = data[0] % 3;
    b->d = (text_vocab_desc){.model = slice_of(models[model]),
                             .pre = slice_of(splits[data[0] / 3 % 8]),
                             .token = b->token,
                             .merge = b->merge,
                             .type = b->type,
                             .score = b->score};
    for (int i = 0; i < TEXT_SPECIAL_N; i++) b->d.special[i] = -1;
    bool bytes = data[1] % 2;
    if (bytes) add_bytes(b, model == 0);
    slice text = read_lines(b, (slice){(const char *)data + 2, n - 2});
    b->d.special[TEXT_BOS] = b->d.special[TEXT_EOS] = (int64_t)b->d.n_token - 1;
    b->d.add_bos = b->d.add_eos = data[1] & 2 ? TEXT_YES : TEXT_NO;
    text_vocab *v = NULL;
    if (text_vocab_build(&v, &b->d, NULL) == MICA_OK) {
        bool whole = model == 0 && bytes;
        // A role may have made a marker of a byte's token, and then no other stands for the byte.
        for (int i = 0; i < 256 && whole; i++) whole = !text_vocab_is_marker(v, i);
        text_input in = {.text = text, .flags = data[1] & 4 ? TEXT_ADD_BOS | TEXT_ADD_EOS : 0};
        check_encoding(v, &in, whole);
        in.flags |= TEXT_TRUSTED;
        check_encoding(v, &in, whole);
        in.span = b->span;
        in.n_span = cut_spans(b, text.n, (size_t)data[1] / 8 + 1);
        check_encoding(v, &in, whole);
    }
    text_vocab_free(v);
    mem_free(b);
    return 0;
}
