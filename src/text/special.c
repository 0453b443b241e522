/* Which tokens are special, and finding them in text.
 *
 * Files say it three ways that do not always agree: by id (tokenizer.ggml.eos_token_id), by type (token_type)
 * and by spelling. Ids win; a role without an id is looked for by the spellings known for it; a token with a
 * role or that ends generation is a control token whatever its type says, with one exception: a token of type
 * normal is ordinary text (Gemma's `</s>` closes an HTML tag) unless it is spelled like nothing text would be
 * (`<|...|>`). */
#include "base/log.h"
#include "base/mem.h"
#include "text/vocab_int.h"

#include <stdlib.h>

typedef struct spelling {
    const char *text;
    text_special role; // TEXT_SPECIAL_N: none, it only ends generation
    bool ends;
} spelling;

/* The first spelling present takes a role that no id took. */
static const spelling spellings[] = {
    {"<|eot_id|>", TEXT_EOT, true},
    {"<|im_end|>", TEXT_EOT, true},
    {"<|end|>", TEXT_EOT, true},
    {"<end_of_turn>", TEXT_EOT, true},
    {"<|endoftext|>", TEXT_EOT, true},
    {"<|end_of_text|>", TEXT_EOT, true},
    {"<EOT>", TEXT_EOT, true},
    {"_<EOT>", TEXT_EOT, true},
    {"[EOT]", TEXT_EOT, true},
    {"<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     TEXT_EOT, true},
    {"<end_of_utterance>", TEXT_EOT, true},
    {"<|eom_id|>", TEXT_EOM, true},
    {"<|return|>", TEXT_SPECIAL_N, true},
    {"<|call|>", TEXT_SPECIAL_N, true},
    {"<|flush|>", TEXT_SPECIAL_N, true},
    {"<|calls|>", TEXT_SPECIAL_N, true},
    {"[EOS]", TEXT_SPECIAL_N, true},
    {"</s>", TEXT_SPECIAL_N, true},
    {"<eos>", TEXT_SPECIAL_N, true},
    {"<turn|>", TEXT_SPECIAL_N, true},
    {"<|tool_response>", TEXT_SPECIAL_N, true},
    {"[e~[", TEXT_SPECIAL_N, true},
    {"<|fim_prefix|>", TEXT_FIM_PRE, false},
    {"<fim-prefix>", TEXT_FIM_PRE, false},
    {"<fim_prefix>", TEXT_FIM_PRE, false},
    {"<PRE>", TEXT_FIM_PRE, false},
    {"<|code_prefix|>", TEXT_FIM_PRE, false},
    {"<|fim_suffix|>", TEXT_FIM_SUF, false},
    {"<fim-suffix>", TEXT_FIM_SUF, false},
    {"<fim_suffix>", TEXT_FIM_SUF, false},
    {"<SUF>", TEXT_FIM_SUF, false},
    {"<|code_suffix|>", TEXT_FIM_SUF, false},
    {"<|fim_middle|>", TEXT_FIM_MID, false},
    {"<fim-middle>", TEXT_FIM_MID, false},
    {"<fim_middle>", TEXT_FIM_MID, false},
    {"<MID>", TEXT_FIM_MID, false},
    {"<|code_middle|>", TEXT_FIM_MID, false},
    {"<|fim_pad|>", TEXT_FIM_PAD, true},
    {"<fim-pad>", TEXT_FIM_PAD, true},
    {"<fim_pad>", TEXT_FIM_PAD, true},
    {"<PAD>", TEXT_FIM_PAD, true},
    {"[PAD]", TEXT_FIM_PAD, true},
    {"<|fim_repo|>", TEXT_FIM_REP, true},
    {"<|repo_name|>", TEXT_FIM_REP, true},
    {"<fim-repo>", TEXT_FIM_REP, true},
    {"<REPO>", TEXT_FIM_REP, true},
    {"<reponame>", TEXT_FIM_REP, true},
    {"<|file_sep|>", TEXT_FIM_SEP, true},
};
#define N_SPELLING (sizeof spellings / sizeof *spellings)

/* Names of HTML elements that vocabularies hold as user-defined tokens or might. */
static const char html_names[] = " a abbr address article aside audio b bdi bdo big blockquote body br "
                                 "button canvas caption center cite code col "
                                 "colgroup data datalist dd del details dfn dialog div dl dt em embed "
                                 "fieldset figcaption figure font footer form "
                                 "frame frameset h1 h2 h3 h4 h5 h6 head header hr html i iframe img input "
                                 "ins kbd label legend li link main map mark "
                                 "math menu meta meter nav noscript object ol optgroup option output p param "
                                 "picture pre progress q rp rt ruby s samp "
                                 "script section select small source span strike strong style sub summary "
                                 "sup svg table tbody td template textarea "
                                 "tfoot th thead time title tr track tt u ul var video wbr ";

static bool is_html_tag(slice s) {
    if (s.n < 3 || s.p[0] != '<' || s.p[s.n - 1] != '>') return false;
    slice name = {s.p + 1, s.n - 2};
    if (name.p[0] == '/') name = (slice){name.p + 1, name.n - 1};
    char key[16];
    if (name.n == 0 || name.n > sizeof key - 3) return false;
    key[0] = ' ';
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return false;
        key[i + 1] = c;
    }
    key[name.n + 1] = ' ';
    key[name.n + 2] = 0;
    return strstr(html_names, key) != NULL;
}

/* Spaces, tabs, newlines and U+2581. */
static bool is_spacing(slice s) {
    for (size_t i = 0; i < s.n;) {
        if (s.p[i] == ' ' || s.p[i] == '\t' || s.p[i] == '\n' || s.p[i] == '\r')
            i++;
        else if (s.n - i >= 3 && memcmp(s.p + i, "\xE2\x96\x81", 3) == 0)
            i += 3;
        else
            return false;
    }
    return true;
}

static bool is_piped(slice s) {
    return s.n > 4 && memcmp(s.p, "<|", 2) == 0 && memcmp(s.p + s.n - 2, "|>", 2) == 0;
}

/* ---- Roles ---- */

typedef struct roles {
    text_vocab *v;
    const text_vocab_desc *d;
    int32_t spelled[N_SPELLING]; // the token of each spelling, or -1
} roles;

static const char *const id_keys[TEXT_SPECIAL_N] = {
    "bos",  "eos",     "eot",     "eom",     "unknown", "seperator", "padding",
    "mask", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep",   "fim_sep",
};

/* Ids that hold when the file names none; only where such a token looks the part. */
static int64_t default_id(const roles *r, text_special role) {
    int64_t id = -1;
    if (r->v->model == TEXT_MODEL_SPM)
        id = role == TEXT_BOS ? 1 : role == TEXT_EOS ? 2 : role == TEXT_UNK ? 0 : -1;
    if (r->v->model == TEXT_MODEL_BYTES && (role == TEXT_BOS || role == TEXT_EOS)) id = 11;
    if (id < 0 || (uint64_t)id >= r->v->n_token) return -1;
    if (!r->d->type) return r->v->model == TEXT_MODEL_SPM ? id : -1;
    uint8_t type = r->v->type[id];
    return type == TEXT_TYPE_CONTROL || type == TEXT_TYPE_UNKNOWN || type == TEXT_TYPE_USER ? id : -1;
}

static mica_status take_ids(roles *r, mica_error *err) {
    text_vocab *v = r->v;
    for (int role = 0; role < TEXT_SPECIAL_N; role++) {
        int64_t id = r->d->special[role];
        if (id < 0) id = default_id(r, (text_special)role);
        if (id >= (int64_t)v->n_token) {
            bool needed = role == TEXT_BOS || role == TEXT_EOS;
            if (needed)
                return fail(err, MICA_E_FORMAT,
                            "tokenizer.ggml.%s_token_id: %lld: the vocabulary has %u tokens", id_keys[role],
                            (long long)id, v->n_token);
            log_warn("text", "tokenizer.ggml.%s_token_id: %lld: the vocabulary has %u tokens: left out",
                     id_keys[role], (long long)id, v->n_token);
            id = -1;
        }
        v->special[role] = (int32_t)id;
    }
    return MICA_OK;
}

/* A spelling counts when the token's type allows it: see the head of the file. */
static bool spelling_counts(const roles *r, uint32_t id, slice text) {
    if (!r->d->type || is_piped(text)) return true;
    if (slice_is(text, "</s>") &&
        r->v->type[id] == TEXT_TYPE_USER) { // beside <s>, unless that is an HTML tag
        int32_t bos = r->v->special[TEXT_BOS];
        return bos >= 0 && slice_is(r->d->token[bos], "<s>");
    }
    return r->v->type[id] != TEXT_TYPE_NORMAL;
}

static void find_spellings(roles *r) {
    for (size_t i = 0; i < N_SPELLING; i++) r->spelled[i] = -1;
    for (uint32_t id = 0; id < r->v->n_token; id++) {
        slice s = r->d->token[id];
        if (s.n < 3 || s.n > 32 || (s.p[0] != '<' && s.p[0] != '[' && s.p[0] != '_')) continue;
        for (size_t i = 0; i < N_SPELLING; i++)
            if (slice_is(s, spellings[i].text) && spelling_counts(r, id, s)) r->spelled[i] = (int32_t)id;
    }
}

static int32_t spelled(const roles *r, const char *text) {
    for (size_t i = 0; i < N_SPELLING; i++)
        if (strcmp(spellings[i].text, text) == 0) return r->spelled[i];
    return -1;
}

static void make_control(text_vocab *v, int32_t id) {
    if (id >= 0) v->type[id] = TEXT_TYPE_CONTROL;
}

/* Adds id to the ends; it is sorted and cleared of doubles afterwards. */
static void add_end(text_vocab *v, int32_t id) {
    if (id >= 0) v->end[v->n_end++] = id;
}

static int by_value(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static mica_status collect_ends(roles *r, mica_error *err) {
    text_vocab *v = r->v;
    v->end = mem_alloc((N_SPELLING + TEXT_SPECIAL_N) * sizeof *v->end);
    if (!v->end) return fail(err, MICA_E_NOMEM, "vocabulary: out of memory");
    // Two formats use these spellings inside a turn.
    bool harmony = (spelled(r, "<|return|>") >= 0 && spelled(r, "<|call|>") >= 0) ||
                   (spelled(r, "<|flush|>") >= 0 && spelled(r, "<|calls|>") >= 0);
    bool gemma = spelled(r, "<|tool_response>") >= 0;
    for (size_t i = 0; i < N_SPELLING; i++) {
        const spelling *s = &spellings[i];
        if (!s->ends || r->spelled[i] < 0) continue;
        if ((harmony && strcmp(s->text, "<|end|>") == 0) || (gemma && strcmp(s->text, "</s>") == 0)) continue;
        // Of the spellings of a FIM role only the one that has it ends generation.
        if (s->role != TEXT_SPECIAL_N && s->role >= TEXT_FIM_PRE && v->special[s->role] != r->spelled[i])
            continue;
        add_end(v, r->spelled[i]);
    }
    static const text_special ending[] = {TEXT_EOS,     TEXT_EOT,     TEXT_EOM,
                                          TEXT_FIM_PAD, TEXT_FIM_REP, TEXT_FIM_SEP};
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) add_end(v, v->special[ending[i]]);
    qsort(v->end, v->n_end, sizeof *v->end, by_value);
    size_t n = 0;
    for (size_t i = 0; i < v->n_end; i++)
        if (n == 0 || v->end[n - 1] != v->end[i]) v->end[n++] = v->end[i];
    v->n_end = n;
    return MICA_OK;
}

/* ---- Kinds ---- */

static bool in_template(const text_vocab_desc *d, slice s) {
    return s.n > 0 && d->chat_template.n >= s.n &&
           memmem(d->chat_template.p, d->chat_template.n, s.p, s.n) != NULL;
}

static text_kind kind_of(const text_vocab *v, const text_vocab_desc *d, uint32_t id) {
    slice s = d->token[id];
    if (s.n == 0) return TEXT_KIND_NEVER;
    switch ((text_token_type)v->type[id]) {
    case TEXT_TYPE_UNUSED: return TEXT_KIND_NEVER;
    case TEXT_TYPE_UNKNOWN:
    case TEXT_TYPE_CONTROL: return TEXT_KIND_MARKER;
    case TEXT_TYPE_USER:
        return is_spacing(s) || (is_html_tag(s) && !in_template(d, s)) ? TEXT_KIND_PLAIN : TEXT_KIND_MARKER;
    case TEXT_TYPE_NORMAL:
    case TEXT_TYPE_BYTE: return TEXT_KIND_TEXT;
    }
    return TEXT_KIND_TEXT;
}

mica_status text_vocab_classify(text_vocab *v, const text_vocab_desc *d, mica_error *err) {
    roles r = {.v = v, .d = d};
    for (uint32_t id = 0; id < v->n_token; id++) {
        int32_t t = d->type ? d->type[id] : TEXT_TYPE_NORMAL;
        v->type[id] = (uint8_t)(t >= TEXT_TYPE_NORMAL && t <= TEXT_TYPE_BYTE ? t : TEXT_TYPE_NORMAL);
    }
    TRY(take_ids(&r, err));
    find_spellings(&r);
    for (size_t i = 0; i < N_SPELLING; i++) {
        text_special role = spellings[i].role;
        if (role != TEXT_SPECIAL_N && v->special[role] < 0) v->special[role] = r.spelled[i];
    }
    TRY(collect_ends(&r, err));
    for (size_t i = 0; i < v->n_end; i++) make_control(v, v->end[i]);
    for (int role = TEXT_FIM_PRE; role < TEXT_SPECIAL_N; role++) make_control(v, v->special[role]);
    if (!d->type) { // nothing else says that these are no text
        make_control(v, v->special[TEXT_BOS]);
        make_control(v, v->special[TEXT_UNK]);
    }
    for (uint32_t id = 0; id < v->n_token; id++) v->kind[id] = (uint8_t)kind_of(v, d, id);
    for (int role = 0; role < TEXT_SPECIAL_N; role++) {
        int32_t id = v->special[role];
        if (id >= 0 && v->kind[id] == TEXT_KIND_PLAIN)
            v->kind[id] = TEXT_KIND_MARKER; // <s> as BOS is no HTML tag
    }
    return MICA_OK;
}

/* ---- Matching ---- */

/* qsort has no argument for the table. */
typedef struct spelled_id {
    slice text;
    int32_t id;
} spelled_id;

static int by_text(const void *a, const void *b) {
    const spelled_id *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    if (c != 0) return c;
    if (x->text.n != y->text.n) return x->text.n < y->text.n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

mica_status text_vocab_index(text_vocab *v, mica_error *err) {
    size_t n = 0;
    for (uint32_t id = 0; id < v->n_token; id++)
        n += v->kind[id] == TEXT_KIND_MARKER || v->kind[id] == TEXT_KIND_PLAIN;
    spelled_id *s = mem_alloc(n * sizeof *s);
    v->match = mem_alloc(n * sizeof *v->match);
    if (!s || !v->match) {
        mem_free(s);
        return fail(err, MICA_E_NOMEM, "vocabulary: %zu special tokens: out of memory", n);
    }
    for (uint32_t id = 0; id < v->n_token; id++) {
        if (v->kind[id] != TEXT_KIND_MARKER && v->kind[id] != TEXT_KIND_PLAIN) continue;
        s[v->n_match++] = (spelled_id){text_symtab_get(&v->sym, id), (int32_t)id};
        text_byte_put(v->match_first, s[v->n_match - 1].text.p[0]);
    }
    qsort(s, n, sizeof *s, by_text);
    for (size_t i = 0; i < n; i++) v->match[i] = s[i].id;
    mem_free(s);
    return MICA_OK;
}
static slice match_text(const text_vocab *v, size_t i) {
    return text_symtab_get(&v->sym, (uint32_t)v->match[i]);
}

/* In the sorted range [lo, hi), whose texts all begin with the same k bytes: the first whose byte k is >= c.
 * A text of exactly k bytes sorts before all others. */
static size_t first_with(const text_vocab *v, size_t lo, size_t hi, size_t k, int c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        slice s = match_text(v, mid);
        int at = s.n > k ? (unsigned char)s.p[k] : -1;
        if (at < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int32_t text_vocab_match(const text_vocab *v, const char *p, size_t n, size_t n_trusted, size_t *n_bytes) {
    int32_t best = -1;
    size_t lo = 0, hi = v->n_match;
    *n_bytes = 0;
    for (size_t k = 0; k < n && lo < hi; k++) {
        int c = (unsigned char)p[k];
        lo = first_with(v, lo, hi, k, c);
        hi = first_with(v, lo, hi, k, c + 1);
        if (lo == hi || match_text(v, lo).n != k + 1) continue;
        if (v->kind[v->match[lo]] == TEXT_KIND_MARKER && k + 1 > n_trusted) continue;
        best = v->match[lo];
        *n_bytes = k + 1;
    }
    return best;
}

int32_t text_vocab_find(const text_vocab *v, slice text) {
    size_t n;
    int32_t id = text_vocab_match(v, text.p, text.n, text.n, &n);
    return n == text.n && n > 0 ? id : -1;
}
