/* Building a vocabulary: tokens become byte strings, merges become pairs of symbols, everything is checked
 * once.
 *
 * Byte-level BPE writes bytes as printable characters in its file (GPT-2's table: 33..126, 161..172 and
 * 174..255 are themselves, the other 68 bytes are U+0100, U+0101, ... in order). SentencePiece writes a space
 * as U+2581. Both are undone at load, so that encoding and decoding work on the text's own bytes. */
#include "text/vocab_int.h"

#include "base/log.h"
#include "base/mem.h"
#include "text/token_trie.h"

#include <math.h>
#include <stdlib.h>

#define TOKENS_MAX (1u << 22) // sixteen times the largest vocabulary known
#define MERGES_MAX (1u << 24)

/* U+2581, SentencePiece's visible space. */
static const char spm_space[3] = "\xE2\x96\x81";

typedef struct builder {
    text_vocab *v;
    const text_vocab_desc *d;
    int16_t byte_of[324]; // GPT-2's table undone: byte of a code point, or -1
    strbuf scratch;
} builder;

static void fill_byte_table(int16_t byte_of[324]) {
    for (int i = 0; i < 324; i++) byte_of[i] = -1;
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        byte_of[printable ? b : next++] = (int16_t)b;
    }
}

/* Appends the bytes that s stands for in GPT-2's alphabet; false when a character is not of it. */
static bool put_bytes(builder *b, slice s) {
    for (size_t i = 0; i < s.n;) {
        int n = utf8_len(s.p + i, s.n - i);
        unsigned cp = n > 0 ? utf8_get(s.p + i, n) : 324;
        if (cp >= 324 || b->byte_of[cp] < 0) return false;
        strbuf_putc(&b->scratch, (char)b->byte_of[cp]);
        i += (size_t)n;
    }
    return true;
}

static void put_unescaped(strbuf *out, slice s) {
    for (size_t i = 0; i < s.n; i++) {
        if (s.n - i >= 3 && memcmp(s.p + i, spm_space, 3) == 0) {
            strbuf_putc(out, ' ');
            i += 2;
        } else
            strbuf_putc(out, s.p[i]);
    }
}

/* "<0x0A>" is byte 10. */
static int byte_token_value(slice s) {
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = s.p[i];
        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + c - 'A' + 10;
        else
            return -1;
    }
    return value;
}

static slice scratch_slice(const builder *b) {
    return (slice){strbuf_cstr(&b->scratch), b->scratch.n};
}

/* Puts into the scratch what a text token or half a merge stands for; false: no text can spell it. */
static bool put_text(builder *b, slice s) {
    if (b->v->model == TEXT_MODEL_BYTES) return put_bytes(b, s);
    if (s.n > 0 && memchr(s.p, ' ', s.n)) return false; // text's own spaces are U+2581 in the file
    put_unescaped(&b->scratch, s);
    return true;
}

/* Markers and plain tokens are literal, byte tokens are their byte, text tokens are undone from the file's
 * alphabet. */
static mica_status add_token(builder *b, uint32_t id, mica_error *err) {
    text_vocab *v = b->v;
    slice s = b->d->token[id];
    uint32_t sym;
    bool findable = v->kind[id] == TEXT_KIND_TEXT;
    bool plain = v->kind[id] == TEXT_KIND_PLAIN && v->model != TEXT_MODEL_BYTES;
    int byte = v->model == TEXT_MODEL_BYTES ? -1 : byte_token_value(s);
    if (byte >= 0 && (v->type[id] == TEXT_TYPE_BYTE || v->type[id] == TEXT_TYPE_NORMAL)) {
        if (v->byte_id[byte] < 0) v->byte_id[byte] = (int32_t)id;
        char c = (char)byte;
        return text_symtab_add(&v->sym, (slice){&c, 1}, &(bool){false}, &sym, err);
    }
    if (findable) {
        strbuf_clear(&b->scratch);
        findable = put_text(b, s);
        if (b->scratch.failed) return fail(err, MICA_E_NOMEM, "vocabulary: token %u: out of memory", id);
        if (findable) s = scratch_slice(b);
        if (findable && s.n == 1 && v->model == TEXT_MODEL_BYTES)
            v->byte_id[(unsigned char)s.p[0]] = (int32_t)id;
    }
    if (plain) { // some writers leave U+2581 in user-defined runs of spaces
        strbuf_clear(&b->scratch);
        put_unescaped(&b->scratch, s);
        if (b->scratch.failed) return fail(err, MICA_E_NOMEM, "vocabulary: token %u: out of memory", id);
        s = scratch_slice(b);
    }
    TRY(text_symtab_add(&v->sym, s, &findable, &sym, err));
    if (!findable && v->kind[id] == TEXT_KIND_TEXT)
        v->kind[id] = TEXT_KIND_NEVER; // unspellable, or there already
    return MICA_OK;
}

static mica_status add_tokens(builder *b, mica_error *err) {
    text_vocab *v = b->v;
    size_t n_text = 0;
    for (uint32_t id = 0; id < v->n_token; id++) {
        if (b->d->token[id].n > 0x7FFFFFFF)
            return fail(err, MICA_E_FORMAT, "tokenizer.ggml.tokens: token %u: %zu bytes", id,
                        b->d->token[id].n);
        n_text += b->d->token[id].n;
    }
    TRY(text_symtab_init(&v->sym, v->n_token + v->n_token / 8, n_text + n_text / 8, err));
    for (uint32_t id = 0; id < v->n_token; id++) TRY(add_token(b, id, err));
    if (v->sym.n_used == 0)
        return fail(err, MICA_E_FORMAT, "tokenizer.ggml.tokens: %u tokens: none that text could become",
                    v->n_token);
    return MICA_OK;
}

/* `guess` is tried before the table: merges usually make tokens in the order of their ids, and memory read in
 * order costs a tenth of a lookup. */
static mica_status symbol_of(text_vocab *v, slice s, uint32_t guess, uint32_t *sym, mica_error *err) {
    bool hit = guess < v->n_token && v->kind[guess] == TEXT_KIND_TEXT && text_symtab_is(&v->sym, guess, s);
    if (hit)
        *sym = guess;
    else
        *sym = text_symtab_find(&v->sym, s.p, s.n);
    return *sym != TEXT_SYM_NONE ? MICA_OK : text_symtab_add(&v->sym, s, &(bool){true}, sym, err);
}

/* Merges are read in batches, each in three rounds, because the tables of a large vocabulary lie outside
 * every cache: a round asks for the memory that the next one reads (docs/MEASURED.md, loading a vocabulary).
 */
enum { MERGE_BATCH = 64 };

typedef struct merge_batch {
    size_t first, n;
    struct merge_text {
        size_t off, n_left, n_right; // in the builder's scratch; n_left 0: the merge cannot be read
    } text[MERGE_BATCH];
    text_pair pair[MERGE_BATCH];
    uint32_t last; // the symbol the merge before made
} merge_batch;

/* "left right": cut at the first space that is not the first byte. false: it names nothing that can be
 * merged. */
static bool merge_read(builder *b, slice m, struct merge_text *t) {
    *t = (struct merge_text){.off = b->scratch.n};
    const char *space = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
    if (!space) return false;
    slice left = {m.p, (size_t)(space - m.p)}, right = {space + 1, m.n - left.n - 1};
    if (right.n == 0 || !put_text(b, left)) return false;
    size_t n_left = b->scratch.n - t->off;
    if (!put_text(b, right) || b->scratch.failed) return false;
    t->n_left = n_left;
    t->n_right = b->scratch.n - t->off - n_left;
    text_symtab_prefetch(&b->v->sym, b->scratch.p + t->off, t->n_left);
    text_symtab_prefetch(&b->v->sym, b->scratch.p + t->off + n_left, t->n_right);
    return true;
}

static mica_status merge_resolve(builder *b, merge_batch *m, size_t i, mica_error *err) {
    text_vocab *v = b->v;
    const struct merge_text *t = &m->text[i];
    text_pair *p = &m->pair[i];
    *p = (text_pair){.left = TEXT_SYM_NONE, .rank = (uint32_t)(m->first + i)};
    if (t->n_left == 0) return MICA_OK;
    const char *text = b->scratch.p + t->off;
    slice both = {text, t->n_left + t->n_right};
    TRY(symbol_of(v, (slice){text, t->n_left}, TEXT_SYM_NONE, &p->left, err));
    TRY(symbol_of(v, (slice){text + t->n_left, t->n_right}, TEXT_SYM_NONE, &p->right, err));
    TRY(symbol_of(v, both, text_symtab_is(&v->sym, m->last, both) ? m->last : m->last + 1, &p->result, err));
    m->last = p->result;
    text_pairtab_prefetch(&v->pair, p->left, p->right);
    return MICA_OK;
}

/* A merge may name strings that are no tokens: they get symbols of their own and end as bytes if nothing
 * takes them. */
static mica_status add_merges(builder *b, mica_error *err) {
    text_vocab *v = b->v;
    size_t n_bad = 0, n_merge = b->d->n_merge;
    merge_batch m = {0};
    TRY(text_pairtab_init(&v->pair, n_merge, err));
    for (; m.first < n_merge; m.first += m.n) {
        m.n = n_merge - m.first < MERGE_BATCH ? n_merge - m.first : MERGE_BATCH;
        strbuf_clear(&b->scratch);
        for (size_t i = 0; i < m.n; i++) n_bad += !merge_read(b, b->d->merge[m.first + i], &m.text[i]);
        if (b->scratch.failed)
            return fail(err, MICA_E_NOMEM, "tokenizer.ggml.merges: merge %zu: out of memory", m.first);
        for (size_t i = 0; i < m.n; i++) TRY(merge_resolve(b, &m, i, err));
        for (size_t i = 0; i < m.n; i++)
            if (m.pair[i].left != TEXT_SYM_NONE) text_pairtab_put(&v->pair, m.pair[i]);
    }
    if (n_bad > 0) log_warn("text", "tokenizer.ggml.merges: %zu of %zu cannot be read", n_bad, n_merge);
    for (int i = 0; i < 256; i++) v->byte_sym[i] = text_symtab_find(&v->sym, &(char){(char)i}, 1);
    return MICA_OK;
}

/* See merge_words in tokenize.c. */
static void note_spaces(text_vocab *v) {
    for (uint32_t sym = 0; sym < v->sym.n_sym; sym++) {
        if (sym < v->n_token && v->kind[sym] != TEXT_KIND_TEXT) continue;
        slice s = text_symtab_get(&v->sym, sym);
        for (size_t i = 1; i < s.n; i++)
            if (s.p[i] == ' ') text_byte_put(v->before_space, s.p[i - 1]);
    }
}

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int by_score_down(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

/* Scores only order tokens: their places are integers that the merge engine compares like ranks. */
static mica_status order_tokens(builder *b, mica_error *err) {
    text_vocab *v = b->v;
    scored *s = mem_alloc(v->n_token * sizeof *s);
    v->order = mem_alloc(v->n_token * sizeof *v->order);
    if (!s || !v->order) {
        mem_free(s);
        return fail(err, MICA_E_NOMEM, "vocabulary: %u scores: out of memory", v->n_token);
    }
    for (uint32_t id = 0; id < v->n_token; id++) {
        float f = b->d->score ? b->d->score[id] : 0.0f;
        s[id] = (scored){isnan(f) ? -INFINITY : f, id}; // not a number: last
    }
    qsort(s, v->n_token, sizeof *s, by_score_down);
    for (uint32_t i = 0, place = 0; i < v->n_token; i++) {
        if (i > 0 && s[i].score < s[i - 1].score) place = i;
        v->order[s[i].id] = place;
    }
    mem_free(s);
    return MICA_OK;
}

static mica_status choose_model(builder *b, mica_error *err) {
    text_vocab *v = b->v;
    const text_vocab_desc *d = b->d;
    slice pre = d->pre;
    if (slice_is(d->model, "gpt2"))
        v->model = TEXT_MODEL_BYTES;
    else if (slice_is(d->model, "llama"))
        v->model = TEXT_MODEL_SPM;
    else if (slice_is(d->model, "gemma4"))
        v->model = TEXT_MODEL_CHARS;
    else
        return fail(err, MICA_E_UNSUPPORTED, "tokenizer.ggml.model: '%.*s': known are gpt2, llama and gemma4",
                    (int)(d->model.n < 64 ? d->model.n : 64), d->model.p ? d->model.p : "");
    if (v->model == TEXT_MODEL_SPM) {
        v->add_bos = true;
        v->add_space_prefix = true;
    } else {
        if (v->model == TEXT_MODEL_CHARS) pre = SLICE_LIT("gemma4");
        TRY(text_pretok_new(&v->pretok, pre, &v->pretok_info, err));
        if (!v->pretok_info.known)
            log_warn("text",
                     "tokenizer.ggml.pre: '%.*s' is not known: the default split is used, tokens may differ",
                     (int)(pre.n < 64 ? pre.n : 64), pre.p ? pre.p : "");
        v->ignore_merges = v->pretok_info.ignore_merges;
        v->add_bos = v->pretok_info.add_bos;
    }
    if (d->add_bos != TEXT_UNSET) v->add_bos = d->add_bos == TEXT_YES;
    if (d->add_eos != TEXT_UNSET) v->add_eos = d->add_eos == TEXT_YES;
    if (d->add_space_prefix != TEXT_UNSET && v->model == TEXT_MODEL_SPM)
        v->add_space_prefix = d->add_space_prefix == TEXT_YES;
    if (v->model == TEXT_MODEL_CHARS) v->add_bos = true; // files of gemma4 are known to say false by mistake
    return MICA_OK;
}

static int by_value(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static mica_status copy_suppressed(builder *b, mica_error *err) {
    text_vocab *v = b->v;
    if (b->d->n_suppress == 0) return MICA_OK;
    v->suppress = mem_alloc(b->d->n_suppress * sizeof *v->suppress);
    if (!v->suppress) return fail(err, MICA_E_NOMEM, "tokenizer.ggml.suppress_tokens: out of memory");
    for (size_t i = 0; i < b->d->n_suppress; i++) {
        int32_t id = b->d->suppress[i];
        if (id >= 0 && (uint32_t)id < v->n_token) v->suppress[v->n_suppress++] = id;
    }
    qsort(v->suppress, v->n_suppress, sizeof *v->suppress, by_value);
    return MICA_OK;
}

/* The parts a vocabulary needs before its tokens can be read. */
static mica_status allocate(text_vocab *v, mica_error *err) {
    size_t n = v->n_token;
    v->type = mem_alloc(n);
    v->kind = mem_alloc(n);
    v->whole = mem_calloc(n, sizeof *v->whole);
    if (!v->type || !v->kind || !v->whole)
        return fail(err, MICA_E_NOMEM, "vocabulary: %zu tokens: out of memory", n);
    for (int i = 0; i < 256; i++) v->byte_id[i] = -1;
    for (int i = 0; i < TEXT_SPECIAL_N; i++) v->special[i] = -1;
    return MICA_OK;
}

mica_status text_vocab_build(text_vocab **out, const text_vocab_desc *d, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    if (d->n_token == 0 || d->n_token > TOKENS_MAX)
        return fail(err, MICA_E_FORMAT, "tokenizer.ggml.tokens: %zu tokens: 1 to %u are read", d->n_token,
                    TOKENS_MAX);
    if (d->n_merge > MERGES_MAX)
        return fail(err, MICA_E_FORMAT, "tokenizer.ggml.merges: %zu merges: at most %u are read", d->n_merge,
                    MERGES_MAX);
    text_vocab *v = mem_calloc(1, sizeof *v);
    if (!v) return fail(err, MICA_E_NOMEM, "vocabulary: out of memory");
    v->n_token = (uint32_t)d->n_token;
    builder b = {.v = v, .d = d};
    fill_byte_table(b.byte_of);
    TRY_GOTO(allocate(v, err), done);
    TRY_GOTO(choose_model(&b, err), done);
    TRY_GOTO(text_vocab_classify(v, d, err), done);
    TRY_GOTO(add_tokens(&b, err), done);
    TRY_GOTO(text_vocab_index(v, err), done);
    if (v->model == TEXT_MODEL_SPM)
        TRY_GOTO(order_tokens(&b, err), done);
    else
        TRY_GOTO(add_merges(&b, err), done);
    note_spaces(v);
    TRY_GOTO(copy_suppressed(&b, err), done);
    *out = v;
    v = NULL;
done:
    strbuf_fini(&b.scratch);
    text_vocab_free(v);
    return st;
}

void text_vocab_free(text_vocab *v) {
    if (!v) return;
    text_symtab_fini(&v->sym);
    text_pairtab_fini(&v->pair);
    text_pretok_free(v->pretok);
    mem_free(v->order);
    mem_free(v->type);
    mem_free(v->kind);
    mem_free((void *)v->whole);
    mem_free(v->end);
    mem_free(v->suppress);
    mem_free(v->match);
    token_trie_free(atomic_load(&v->trie));
    mem_free(v);
}

static bool known(const text_vocab *v, int32_t id) {
    return id >= 0 && (uint32_t)id < v->n_token;
}

int32_t text_vocab_n(const text_vocab *v) {
    return (int32_t)v->n_token;
}

int32_t text_vocab_special(const text_vocab *v, text_special which) {
    return v->special[which];
}

bool text_vocab_adds_bos(const text_vocab *v) {
    return v->add_bos && v->special[TEXT_BOS] >= 0;
}

bool text_vocab_adds_eos(const text_vocab *v) {
    return v->add_eos && v->special[TEXT_EOS] >= 0;
}

const char *text_vocab_pre(const text_vocab *v) {
    return v->pretok ? v->pretok_info.name : "";
}

bool text_vocab_ends(const text_vocab *v, int32_t id) {
    size_t lo = 0, hi = v->n_end;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (v->end[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < v->n_end && v->end[lo] == id;
}

bool text_vocab_is_marker(const text_vocab *v, int32_t id) {
    return known(v, id) && v->kind[id] == TEXT_KIND_MARKER;
}

bool text_vocab_is_control(const text_vocab *v, int32_t id) {
    return known(v, id) && (v->type[id] == TEXT_TYPE_CONTROL || v->type[id] == TEXT_TYPE_UNKNOWN);
}

slice text_vocab_bytes(const text_vocab *v, int32_t id) {
    return known(v, id) ? text_symtab_get(&v->sym, (uint32_t)id) : (slice){NULL, 0};
}

const int32_t *text_vocab_ends_all(const text_vocab *v, size_t *n) {
    *n = v->n_end;
    return v->end;
}

const int32_t *text_vocab_suppressed(const text_vocab *v, size_t *n) {
    *n = v->n_suppress;
    return v->suppress;
}
