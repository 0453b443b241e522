/* Encoding: special tokens, then pieces, then merging. */
#include "text/tokenize.h"
#include "base/mem.h"
#include "text/merge.h"
#include "text/vocab_int.h"

void text_ids_put(text_ids *ids, int32_t id) {
    if (ids->failed) return;
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *p = mem_realloc(ids->id, cap * sizeof *p);
        if (!p) {
            ids->failed = true;
            return;
        }
        ids->id = p;
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
}

void text_ids_fini(text_ids *ids) {
    mem_free(ids->id);
    *ids = (text_ids){0};
}

typedef struct encoder {
    const text_vocab *v;
    const text_input *in;
    text_ids *out;
    text_merge merge;
    text_pretok_run *run; // owned; NULL for SPM
    strbuf scratch;       // a stretch rewritten for SentencePiece
    size_t i_span;        // the span that holds the current position
    bool after_special;   // nothing, or a special token, is right before the current stretch
} encoder;

/* How many bytes from `at` on are trusted without a gap. Positions must not go back. */
static size_t trusted_from(encoder *e, size_t at) {
    const text_input *in = e->in;
    if (!in->span) return in->flags & TEXT_TRUSTED ? in->text.n - at : 0;
    while (e->i_span < in->n_span && in->span[e->i_span].end <= at) e->i_span++;
    size_t end = at;
    for (size_t i = e->i_span; i < in->n_span && in->span[i].trusted && in->span[i].begin <= end; i++)
        end = in->span[i].end;
    return (end < in->text.n ? end : in->text.n) - at;
}

/* No merge crosses from a byte to a space that no symbol holds side by side. For SentencePiece's vocabularies
 * these are nearly all starts of words, and words are short and often known whole: ten times faster than a
 * text in one piece. */
static mica_status merge_words(encoder *e, slice text, mica_error *err) {
    size_t from = 0;
    for (size_t at = 1; at < text.n; at++) {
        if (text.p[at] != ' ' || text_byte_in(e->v->before_space, text.p[at - 1])) continue;
        TRY(text_merge_piece(&e->merge, (slice){text.p + from, at - from}, e->out, err));
        from = at;
    }
    return text_merge_piece(&e->merge, (slice){text.p + from, text.n - from}, e->out, err);
}

static mica_status merge_piece(void *arg, slice piece, mica_error *err) {
    encoder *e = arg;
    if (e->v->model != TEXT_MODEL_BYTES) return merge_words(e, piece, err);
    return text_merge_piece(&e->merge, piece, e->out, err);
}

/* Well-formed stretches go through the pre-tokenizer; stretches of other bytes are pieces. */
static mica_status encode_bpe(encoder *e, slice text, mica_error *err) {
    for (size_t at = 0; at < text.n;) {
        size_t end = at;
        int n;
        while (end < text.n && (n = utf8_len(text.p + end, text.n - end)) > 0) end += (size_t)n;
        if (end > at) TRY(text_pretok_split(e->run, (slice){text.p + at, end - at}, merge_piece, e, err));
        at = end;
        while (end < text.n && utf8_len(text.p + end, text.n - end) <= 0) end++;
        if (end > at) TRY(merge_piece(e, (slice){text.p + at, end - at}, err));
        at = end;
    }
    return MICA_OK;
}

/* U+2581 in text is a space for these vocabularies; SentencePiece puts one before the text and after special
 * tokens. */
static mica_status respace(encoder *e, slice *text, mica_error *err) {
    bool prefix = e->v->model == TEXT_MODEL_SPM && e->v->add_space_prefix && e->after_special;
    const char *next = memmem(text->p, text->n, "\xE2\x96\x81", 3);
    if (!prefix && !next) return MICA_OK;
    strbuf_clear(&e->scratch);
    if (prefix) strbuf_putc(&e->scratch, ' ');
    const char *p = text->p, *end = text->p + text->n;
    for (; next; next = memmem(p, (size_t)(end - p), "\xE2\x96\x81", 3)) {
        strbuf_put(&e->scratch, p, (size_t)(next - p));
        strbuf_putc(&e->scratch, ' ');
        p = next + 3;
    }
    strbuf_put(&e->scratch, p, (size_t)(end - p));
    if (e->scratch.failed) return fail(err, MICA_E_NOMEM, "text: %zu bytes: out of memory", text->n);
    *text = (slice){e->scratch.p, e->scratch.n};
    return MICA_OK;
}

/* Text without special tokens. */
static mica_status encode_stretch(encoder *e, slice text, mica_error *err) {
    if (text.n == 0) return MICA_OK;
    if (e->v->model != TEXT_MODEL_BYTES) TRY(respace(e, &text, err));
    e->after_special = false;
    return e->v->model == TEXT_MODEL_SPM ? merge_piece(e, text, err) : encode_bpe(e, text, err);
}

static mica_status encode_all(encoder *e, mica_error *err) {
    const text_vocab *v = e->v;
    slice text = e->in->text;
    size_t from = 0;
    for (size_t at = 0; at < text.n;) {
        size_t n = 0;
        int32_t id = -1;
        if (text_byte_in(v->match_first, text.p[at]))
            id = text_vocab_match(v, text.p + at, text.n - at, trusted_from(e, at), &n);
        if (id < 0) {
            at++;
            continue;
        }
        TRY(encode_stretch(e, (slice){text.p + from, at - from}, err));
        text_ids_put(e->out, id);
        e->after_special = true;
        at += n;
        from = at;
    }
    return encode_stretch(e, (slice){text.p + from, text.n - from}, err);
}

/* BOS was put at `first` before the text was read: if the text brought its own, one is enough. */
static void add_ends(encoder *e, size_t first) {
    const text_vocab *v = e->v;
    text_ids *out = e->out;
    int32_t bos = v->special[TEXT_BOS], eos = v->special[TEXT_EOS];
    bool has_bos = out->n > first + 1 && out->id[first + 1] == bos && text_vocab_is_marker(v, bos);
    if (e->in->flags & TEXT_ADD_BOS && text_vocab_adds_bos(v) && has_bos) {
        memmove(out->id + first, out->id + first + 1, (out->n - first - 1) * sizeof *out->id);
        out->n--;
    }
    bool has_eos = out->n > first && out->id[out->n - 1] == eos && text_vocab_is_marker(v, eos);
    if (e->in->flags & TEXT_ADD_EOS && text_vocab_adds_eos(v) && !has_eos) text_ids_put(out, eos);
}

mica_status text_encode(text_ids *ids, const text_vocab *v, const text_input *in, mica_error *err) {
    mica_status st = MICA_OK;
    size_t first = ids->n;
    if (in->text.n > TEXT_BYTES_MAX)
        return fail(err, MICA_E_ARG, "text: %zu bytes: at most %u can be tokenized at once", in->text.n,
                    TEXT_BYTES_MAX);
    encoder e = {.v = v, .in = in, .out = ids, .after_special = true};
    text_merge_init(&e.merge, v);
    if (v->pretok) TRY_GOTO(text_pretok_run_new(&e.run, v->pretok, err), done);
    if (in->flags & TEXT_ADD_BOS && text_vocab_adds_bos(v)) text_ids_put(ids, v->special[TEXT_BOS]);
    TRY_GOTO(encode_all(&e, err), done);
    if (!ids->failed) add_ends(&e, first);
    if (ids->failed) st = fail(err, MICA_E_NOMEM, "text: %zu tokens: out of memory", ids->n);
done:
    if (st != MICA_OK) ids->n = first;
    strbuf_fini(&e.scratch);
    text_pretok_run_free(e.run);
    text_merge_fini(&e.merge);
    return st;
}
