/* The merge engine against the plain definition: look at every pair, merge the best, start again. */
#include "check.h"
#include "vocab_small.h"

#include "base/mem.h"
#include "text/merge.h"
#include "text/vocab_int.h"

/* One part of a text under the plain definition. */
typedef struct part {
    size_t at, n;
} part;

/* The rank of merging two neighbours, or UINT32_MAX. */
typedef uint32_t rank_of(const small_vocab *s, slice left, slice right);

static uint32_t rank_by_merge(const small_vocab *s, slice left, slice right) {
    for (size_t i = 0; i < s->d.n_merge; i++) {
        const slice *m = &s->merge[i];
        if (m->n != left.n + right.n + 1 || m->p[left.n] != ' ') continue;
        if (memcmp(m->p, left.p, left.n) == 0 && memcmp(m->p + left.n + 1, right.p, right.n) == 0)
            return (uint32_t)i;
    }
    return UINT32_MAX;
}

/* Of all tokens that the two spell together, how many score better. */
static uint32_t rank_by_score(const small_vocab *s, slice left, slice right) {
    slice both = {left.p, left.n + right.n};
    for (size_t i = 0; i < s->d.n_token; i++) {
        if (s->type[i] != TEXT_TYPE_NORMAL || !slice_eq(s->token[i], both)) continue;
        uint32_t better = 0;
        for (size_t k = 0; k < s->d.n_token; k++) better += s->score[k] > s->score[i];
        return better;
    }
    return UINT32_MAX;
}

static size_t merge_plainly(part *p, const small_vocab *s, slice text, rank_of *rank) {
    size_t n = 0;
    for (size_t at = 0; at < text.n; at++) p[n++] = (part){at, 1};
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            slice left = {text.p + p[i].at, p[i].n}, right = {text.p + p[i + 1].at, p[i + 1].n};
            uint32_t r = rank(s, left, right);
            if (r < best) best = r, where = i;
        }
        if (best == UINT32_MAX) return n;
        p[where].n += p[where + 1].n;
        memmove(p + where + 1, p + where + 2, (n - where - 2) * sizeof *p);
        n--;
    }
}

static int32_t token_of(const small_vocab *s, slice text) {
    for (size_t i = 0; i < s->d.n_token; i++)
        if (s->type[i] == TEXT_TYPE_NORMAL && slice_eq(s->token[i], text)) return (int32_t)i;
    return -1;
}

static void check_against_definition(const small_vocab *s, rank_of *rank, uint64_t seed,
                                     const char *letters) {
    mica_error err;
    text_vocab *v;
    text_merge m;
    text_ids ids = {0};
    static part p[4096];
    static char text[4096];
    CHECK_OK(text_vocab_build(&v, &s->d, &err));
    text_merge_init(&m, v);
    for (int k = 0; k < 600; k++) {
        size_t n = k % 100 == 0 ? 300 : 1 + test_rand(&seed) % 12;
        for (size_t i = 0; i < n; i++) text[i] = letters[test_rand(&seed) % strlen(letters)];
        ids.n = 0;
        CHECK_OK(text_merge_piece(&m, (slice){text, n}, &ids, &err));
        size_t n_part = merge_plainly(p, s, (slice){text, n}, rank);
        CHECK(ids.n == n_part);
        for (size_t i = 0; i < n_part; i++) CHECK(ids.id[i] == token_of(s, (slice){text + p[i].at, p[i].n}));
    }
    text_ids_fini(&ids);
    text_merge_fini(&m);
    text_vocab_free(v);
}

/* Random merges over a few letters, each of symbols made before; `spell` keeps the texts. */
static void random_merges(small_vocab *s, char spell[][64], uint64_t *seed, const char *letters, size_t n) {
    char made[64][32];
    size_t n_made = strlen(letters);
    for (size_t i = 0; i < n_made; i++) made[i][0] = letters[i], made[i][1] = 0;
    for (size_t i = 0; i < n && n_made < 64; i++) {
        const char *a = made[test_rand(seed) % n_made], *b = made[test_rand(seed) % n_made];
        if (strlen(a) + strlen(b) >= 30) continue;
        snprintf(spell[2 * i], 64, "%s %s", a, b);
        snprintf(spell[2 * i + 1], 64, "%s%s", a, b);
        if (token_of(s, slice_of(spell[2 * i + 1])) < 0) {
            small_text(s, spell[2 * i + 1]);
            snprintf(made[n_made++], 32, "%s", spell[2 * i + 1]);
        }
        small_merge(s, spell[2 * i]);
    }
}

static void test_ranks_like_the_definition(void **state) {
    (void)state;
    static small_vocab s;
    static char spell[128][64];
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t r = seed;
        small_init(&s, "gpt2", "gpt-2");
        small_bytes(&s);
        random_merges(&s, spell, &r, "abc", 50);
        check_against_definition(&s, rank_by_merge, seed, "abc");
    }
}

static void test_scores_like_the_definition(void **state) {
    (void)state;
    static small_vocab s;
    static char spell[128][64];
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t r = seed * 31;
        small_init(&s, "llama", "");
        small_add(&s, "<unk>", TEXT_TYPE_UNKNOWN, 0);
        for (const char *c = "abc"; *c; c++) {
            spell[120 + (c[0] - 'a')][0] = *c;
            spell[120 + (c[0] - 'a')][1] = 0;
            small_text(&s, spell[120 + (c[0] - 'a')]);
        }
        random_merges(&s, spell, &r, "abc", 50);
        s.d.n_merge = 0;
        for (size_t i = 0; i < s.d.n_token; i++) s.score[i] = (float)(test_rand(&r) % 8); // many ties
        check_against_definition(&s, rank_by_score, seed, "abc");
    }
}

/* What cannot be merged: characters without a token, bytes without one, and the order of the fallbacks. */
static void test_fallbacks(void **state) {
    (void)state;
    static small_vocab s;
    mica_error err;
    text_vocab *v;
    text_merge m;
    text_ids ids = {0};
    small_init(&s, "gemma4", "");
    int32_t unk = small_add(&s, "<unk>", TEXT_TYPE_UNKNOWN, 0), a = small_text(&s, "a");
    small_add(&s, "<0xC3>", TEXT_TYPE_BYTE, 0);
    int32_t a4 = small_add(&s, "<0xA4>", TEXT_TYPE_BYTE, 0);
    small_merge(&s, "x y"); // names no token at all
    s.d.special[TEXT_UNK] = unk;
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    text_merge_init(&m, v);
    CHECK_OK(text_merge_piece(&m, SLICE_LIT("a\xC3\xA4"), &ids, &err));
    CHECK(ids.n == 3 && ids.id[0] == a && ids.id[1] == a4 - 1 && ids.id[2] == a4);
    ids.n = 0;
    CHECK_OK(text_merge_piece(&m, SLICE_LIT("\xC3\xA5xy"), &ids,
                              &err)); // one byte of the two is missing; xy merged
    CHECK(ids.n == 2 && ids.id[0] == unk && ids.id[1] == unk);
    ids.n = 0;
    CHECK_OK(text_merge_piece(&m, SLICE_LIT("\xA4"), &ids, &err)); // a byte of no character
    CHECK(ids.n == 1 && ids.id[0] == a4);
    text_merge_fini(&m);
    text_vocab_free(v);

    s.d.special[TEXT_UNK] = -1;
    s.type[unk] = TEXT_TYPE_UNUSED;
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    text_merge_init(&m, v);
    ids.n = 0;
    CHECK_OK(text_merge_piece(&m, SLICE_LIT("za"), &ids, &err)); // nothing stands for z
    CHECK(ids.n == 1 && ids.id[0] == a);
    text_ids_fini(&ids);
    text_merge_fini(&m);
    text_vocab_free(v);
}

/* A token that its own merges do not build stays unbuilt, the second time too; ignore_merges takes it whole.
 */
static void test_whole_tokens(void **state) {
    (void)state;
    static small_vocab s;
    mica_error err;
    text_ids ids = {0};
    for (int ignore = 0; ignore < 2; ignore++) {
        text_vocab *v;
        text_merge m;
        small_init(&s, "gpt2", ignore ? "llama-bpe" : "dbrx");
        small_bytes(&s);
        int32_t abc = small_text(&s, "abc"), ab = small_text(&s, "ab"), xy = small_text(&s, "xy");
        small_merge(&s, "a b");
        small_merge(&s, "x y");
        CHECK_OK(text_vocab_build(&v, &s.d, &err));
        text_merge_init(&m, v);
        for (int twice = 0; twice < 2; twice++) {
            ids.n = 0;
            CHECK_OK(text_merge_piece(&m, SLICE_LIT("abc"), &ids, &err));
            if (ignore)
                CHECK(ids.n == 1 && ids.id[0] == abc);
            else
                CHECK(ids.n == 2 && ids.id[0] == ab && ids.id[1] == 'c');
            ids.n = 0;
            CHECK_OK(text_merge_piece(&m, SLICE_LIT("xy"), &ids, &err));
            CHECK(ids.n == 1 && ids.id[0] == xy);
        }
        text_merge_fini(&m);
        text_vocab_free(v);
    }
    text_ids_fini(&ids);
}

static void test_out_of_memory_is_an_error(void **state) {
    (void)state;
    static small_vocab s;
    mica_error err;
    text_vocab *v;
    static char text[5000];
    memset(text, 'a', sizeof text);
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    small_text(&s, "aa");
    small_merge(&s, "a a");
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    for (int64_t n = 0;; n++) {
        text_merge m;
        text_ids ids = {0};
        text_merge_init(&m, v);
        mem_fail_after(n);
        mica_status st = text_merge_piece(&m, (slice){text, sizeof text}, &ids, &err);
        mem_fail_after(-1);
        bool done = st == MICA_OK && !ids.failed;
        CHECK(done || st == MICA_E_NOMEM || ids.failed);
        if (done) CHECK(ids.n == sizeof text / 2);
        text_ids_fini(&ids);
        text_merge_fini(&m);
        if (done) break;
        CHECK(n < 100);
    }
    text_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_like_the_definition),
        cmocka_unit_test(test_scores_like_the_definition),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_whole_tokens),
        cmocka_unit_test(test_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
