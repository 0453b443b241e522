/* Pre-tokenizers on PCRE2: a table of published patterns, compiled once, matched by compiled code where the
 * system allows it (some forbid memory that is writable and executable: the interpreter then does the same,
 * slower). */
#include "text/pretok.h"
#include "base/mem.h"

#include <assert.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define PASS_MAX 6

/* Unicode's White_Space, for use inside a class. */
#define WS                                                                                                   \
    "\\x09-\\x0D\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACES "[" WS "]+(?![^" WS "])"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACES
/* The family of llama-bpe and qwen2: they differ in what a letter is and in how many digits go together. */
#define TAIL(other, after) " ?[^" WS other "]+[" after "]*|[" WS "]*[\\r\\n]+|" SPACES "|[" WS "]+"
#define WORDS(digits) CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "|" TAIL("\\p{L}\\p{N}", "\\r\\n")
/* o200k and tekken cut words at a change from lower to upper case. */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED(end, digits)                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" end "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER        \
    "]*" end "|" digits "|" TAIL("\\p{L}\\p{N}", "\\r\\n/")

typedef struct family {
    const char *name;
    const char *pass[PASS_MAX]; // NULL-terminated unless full
} family;

/* Patterns as published in the models' tokenizer.json; spec names as GGUF files use them. */
static const family families[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2", {GPT2}},
    {"smollm", {"\\p{N}", GPT2}},
    {"llama-bpe", {WORDS("\\p{N}{1,3}")}},
    {"qwen2", {WORDS("\\p{N}")}},
    {"qwen35",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|" TAIL("\\p{L}\\p{M}\\p{N}", "\\r\\n")}},
    {"gemma4", {"[^\\n]+|[\\n]+"}},
    {"tekken", {CASED("", "\\p{N}")}},
    {"gpt-4o", {CASED(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-coder",
     {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+",
      "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"}},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" WS
      "]*[\\r\\n]+|" SPACES "|[" WS "]+"}},
};

enum { IGNORE_MERGES = 1, ADD_BOS = 2 };

static const struct alias {
    const char *name, *family;
    unsigned flags;
} aliases[] = {
    {"default", "default", 0},
    {"gpt-2", "gpt-2", 0},
    {"phi-2", "gpt-2", 0},
    {"mpt", "gpt-2", 0},
    {"olmo", "gpt-2", 0},
    {"jais", "gpt-2", 0},
    {"trillion", "gpt-2", 0},
    {"granite-docling", "gpt-2", 0},
    {"exaone4", "gpt-2", 0},
    {"gigachat", "gpt-2", 0},
    {"a.x-4.0", "gpt-2", 0},
    {"mellum", "gpt-2", 0},
    {"modern-bert", "gpt-2", 0},
    {"smollm", "smollm", 0},
    {"starcoder", "smollm", 0},
    {"refact", "smollm", 0},
    {"command-r", "smollm", 0},
    {"codeshell", "smollm", 0},
    {"exaone", "smollm", 0},
    {"minerva-7b", "smollm", 0},
    {"mellum2", "smollm", 0},
    {"llama-bpe", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"llama3", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"llama-v3", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"Llama-3", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"falcon3", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"falcon-h1", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"pixtral", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"midm-2.0", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"lfm2", "llama-bpe", IGNORE_MERGES | ADD_BOS},
    {"dbrx", "llama-bpe", 0},
    {"smaug-bpe", "llama-bpe", 0},
    {"glm4", "llama-bpe", 0},
    {"chatglm-bpe", "llama-bpe", 0},
    {"qwen2", "qwen2", 0},
    {"deepseek-r1-qwen", "qwen2", 0},
    {"kormo", "qwen2", 0},
    {"f2llmv2", "qwen2", 0},
    {"stablelm2", "qwen2", 0},
    {"hunyuan", "qwen2", 0},
    {"solar-open", "qwen2", 0},
    {"megrez", "qwen2", 0},
    {"grok-2", "qwen2", 0},
    {"qwen35", "qwen35", 0},
    {"gemma4", "gemma4", 0},
    {"tekken", "tekken", IGNORE_MERGES | ADD_BOS},
    {"gpt-4o", "gpt-4o", 0},
    {"llama4", "gpt-4o", 0},
    {"kanana2", "gpt-4o", 0},
    {"talkie", "gpt-4o", 0},
    {"minimax-m2", "gpt-4o", 0},
    {"falcon", "falcon", 0},
    {"deepseek-coder", "deepseek-coder", 0},
    {"deepseek-v3", "deepseek-v3", 0},
    {"hunyuan-dense", "deepseek-v3", 0},
    {"joyai-llm", "deepseek-v3", 0},
};

struct text_pretok {
    int n_pass;
    pcre2_general_context *mem;
    pcre2_code *pass[PASS_MAX];
};

struct text_pretok_run {
    const text_pretok *p; // borrowed
    pcre2_match_context *context;
    pcre2_match_data
        *match[PASS_MAX]; // one a pass: an outer match is still being walked while its pieces are cut
    text_piece_fn *fn;
    void *arg;
};

static void *pcre_alloc(size_t n, void *unused) {
    (void)unused;
    return mem_alloc(n);
}

static void pcre_release(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

static const family *family_of(slice name, text_pretok_info *info) {
    const struct alias *a = NULL;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (slice_is(name, aliases[i].name)) a = &aliases[i];
    *info = (text_pretok_info){.name = a ? a->family : "default", .known = a != NULL};
    if (a) {
        info->ignore_merges = a->flags & IGNORE_MERGES;
        info->add_bos = a->flags & ADD_BOS;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, info->name) == 0) return &families[i];
    return &families[0];
}

static mica_status compile(pcre2_code **out, const text_pretok *p, const char *pattern, mica_error *err) {
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *cc = pcre2_compile_context_create(p->mem);
    if (!cc) return fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C,
                         &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!*out && code == PCRE2_ERROR_HEAP_FAILED)
        return fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
    if (!*out)
        return fail(err, MICA_E_INTERNAL, "text: pre-tokenizer: pattern: PCRE2 error %d at %zu", code, at);
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); // on failure pcre2_match interprets
    return MICA_OK;
}

mica_status text_pretok_new(text_pretok **out, slice name, text_pretok_info *info, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    const family *f = family_of(name, info);
    text_pretok *p = mem_calloc(1, sizeof *p);
    if (!p) return fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
    p->mem = pcre2_general_context_create(pcre_alloc, pcre_release, NULL);
    if (!p->mem) {
        st = fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
        goto done;
    }
    while (p->n_pass < PASS_MAX && f->pass[p->n_pass]) {
        TRY_GOTO(compile(&p->pass[p->n_pass], p, f->pass[p->n_pass], err), done);
        p->n_pass++;
    }
    *out = p;
    p = NULL;
done:
    text_pretok_free(p);
    return st;
}

void text_pretok_free(text_pretok *p) {
    if (!p) return;
    for (int i = 0; i < p->n_pass; i++) pcre2_code_free(p->pass[i]);
    pcre2_general_context_free(p->mem);
    mem_free(p);
}

mica_status text_pretok_run_new(text_pretok_run **out, const text_pretok *p, mica_error *err) {
    *out = NULL;
    text_pretok_run *r = mem_calloc(1, sizeof *r);
    if (!r) return fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
    r->p = p;
    r->context = pcre2_match_context_create(p->mem);
    bool made = r->context != NULL;
    for (int i = 0; i < p->n_pass; i++) {
        r->match[i] = pcre2_match_data_create(1, p->mem); // only the whole match is of interest
        made = made && r->match[i];
    }
    if (!made) {
        text_pretok_run_free(r);
        return fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
    }
    *out = r;
    return MICA_OK;
}

void text_pretok_run_free(text_pretok_run *r) {
    if (!r) return;
    for (int i = 0; i < r->p->n_pass; i++) pcre2_match_data_free(r->match[i]);
    pcre2_match_context_free(r->context);
    mem_free(r);
}

/* The next match of one pass at or after `from`: 1 found, 0 none, < 0 a PCRE2 error. Compiled code has 32 KiB
 * of the machine's stack, more than any pattern here needs for any text: none repeats a group. */
static int match_next(text_pretok_run *r, int ip, slice text, size_t from) {
    PCRE2_SPTR s = (PCRE2_SPTR)text.p;
    int rc = pcre2_match(r->p->pass[ip], s, text.n, from, PCRE2_NO_UTF_CHECK, r->match[ip], r->context);
    return rc >= 0 ? 1 : rc == PCRE2_ERROR_NOMATCH ? 0 : rc;
}

static mica_status split(text_pretok_run *r, int ip, slice text, mica_error *err) {
    if (ip == r->p->n_pass) return r->fn(r->arg, text, err);
    size_t at = 0;
    while (at < text.n) {
        size_t begin = text.n, end = text.n;
        int rc = match_next(r, ip, text, at);
        if (rc == PCRE2_ERROR_NOMEMORY) return fail(err, MICA_E_NOMEM, "text: pre-tokenizer: out of memory");
        if (rc < 0)
            return fail(err, MICA_E_INTERNAL, "text: pre-tokenizer: %zu bytes from byte %zu: PCRE2 error %d",
                        text.n, at, rc);
        if (rc > 0) {
            const PCRE2_SIZE *o = pcre2_get_ovector_pointer(r->match[ip]);
            begin = o[0];
            end = o[1];
        }
        assert(rc == 0 || end > at); // no pattern of the table matches nothing
        if (begin > at) TRY(split(r, ip + 1, (slice){text.p + at, begin - at}, err));
        if (end > begin) TRY(split(r, ip + 1, (slice){text.p + begin, end - begin}, err));
        at = end;
    }
    return MICA_OK;
}

mica_status text_pretok_split(text_pretok_run *r, slice text, text_piece_fn *fn, void *arg, mica_error *err) {
    // Every pattern is linear: a text that needs more than this is our mistake, and ends in an error, not in
    // minutes.
    uint64_t limit = 1000000 + 64 * (uint64_t)text.n;
    pcre2_set_match_limit(r->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    r->fn = fn;
    r->arg = arg;
    return split(r, 0, text, err);
}
