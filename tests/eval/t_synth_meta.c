/* The made-up vocabulary is a byte-level BPE that holds together; another file's is taken over as it stands.
 */
#include "check.h"
#include "temp_dir.h"

#include "base/mem.h"
#include "eval/synth.h"
#include "gguf/gguf_int.h"

static mica_error err;

static slice text_of(const void *items, uint32_t i) {
    return ((const slice *)items)[i];
}

static void check_vocab(uint32_t n_vocab) {
    temp_dir d;
    gguf_file *g;
    char set[32];
    const char *sets = set;
    snprintf(set, sizeof set, "vocab=%u", n_vocab);
    mica_synth_options o = {.preset = "tiny-llama", .quant = "q4_0", .set = &sets, .n_set = 1};
    temp_dir_make(&d);
    CHECK_OK(synth_write(&o, temp_dir_at(&d, "m.gguf"), NULL, &err));
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, "m.gguf"), &err));

    const gguf_value *tokens, *kinds, *merges;
    CHECK_OK(gguf_need_array(g, "tokenizer.ggml.tokens", GGUF_OF_STR, n_vocab, &tokens, &err));
    CHECK_OK(gguf_need_array(g, "tokenizer.ggml.token_type", GGUF_OF_INT, n_vocab, &kinds, &err));
    CHECK_OK(gguf_need_array(g, "tokenizer.ggml.merges", GGUF_OF_STR, GGUF_ANY_COUNT, &merges, &err));
    slice *s = mem_alloc(n_vocab * sizeof *s);
    name_index ix;
    CHECK(name_index_init(&ix, n_vocab));
    for (uint32_t i = 0; i < n_vocab; i++) {
        CHECK(gguf_value_at_str(tokens, i, &s[i]) && s[i].n > 0 && utf8_valid(s[i].p, s[i].n));
        CHECK(name_index_put(&ix, s, text_of, i) == NAME_NONE);     // no token twice
        CHECK(i >= 256 || utf8_len(s[i].p, s[i].n) == (int)s[i].n); // one character for each byte
    }
    for (uint64_t i = 0; i < gguf_value_count(merges);
         i++) { // both parts and the result are tokens, in rank order
        slice m;
        char whole[16];
        CHECK(gguf_value_at_str(merges, i, &m));
        const char *space = memchr(m.p + 1, ' ', m.n - 1);
        slice left = {m.p, (size_t)(space - m.p)}, right = {space + 1, m.n - left.n - 1};
        memcpy(whole, left.p, left.n);
        memcpy(whole + left.n, right.p, right.n);
        CHECK(name_index_find(&ix, s, text_of, left) < 256 && name_index_find(&ix, s, text_of, right) < 256);
        CHECK(name_index_find(&ix, s, text_of, (slice){whole, left.n + right.n}) == 256 + i);
    }
    uint64_t eos = 0, bos = 0, kind;
    CHECK_OK(gguf_need_u64(g, "tokenizer.ggml.eos_token_id", 256, n_vocab - 1, &eos, &err));
    CHECK_OK(gguf_need_u64(g, "tokenizer.ggml.bos_token_id", 256, n_vocab - 1, &bos, &err));
    CHECK(slice_is(s[eos], "<|im_end|>") && slice_is(s[bos], "<|endoftext|>"));
    CHECK(gguf_value_at_u64(kinds, eos, &kind) && kind == 3 && gguf_value_at_u64(kinds, 0, &kind) &&
          kind == 1);
    CHECK(eos == n_vocab - 1 || (gguf_value_at_u64(kinds, eos + 1, &kind) && kind == 5));
    CHECK_OK(gguf_need_u64(g, "llama.vocab_size", n_vocab, n_vocab, &kind, &err));
    CHECK(gguf_tensor_find(g, "token_embd.weight")->shape[2] == n_vocab);
    name_index_fini(&ix);
    mem_free(s);
    gguf_close(g);
    temp_dir_drop(&d);
}

static void test_dummy_vocabularies(void **state) {
    (void)state;
    check_vocab(300); // few pairs, no filler
    check_vocab(961); // exactly all pairs
    check_vocab(962);
    check_vocab(50000);
}

static void test_vocabulary_of_another_file(void **state) {
    (void)state;
    const char *from = "tests/fixtures/qwen3_5_moe.q4_k_m.gguf";
    temp_dir d;
    gguf_file *f, *g;
    if (access(from, R_OK) != 0) SKIP("no %s here", from);
    mica_synth_options o = {.preset = "tiny-flash-next", .quant = "q4_0", .vocab_path = from};
    temp_dir_make(&d);
    CHECK_OK(synth_write(&o, temp_dir_at(&d, "m.gguf"), NULL, &err));
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, "m.gguf"), &err));
    CHECK_OK(gguf_open(&f, from, &err));
    size_t n = 0, n_own = 0;
    for (size_t i = 0; i < gguf_kv_count(f); i++) {
        slice key = gguf_kv_key(f, i);
        if (!slice_starts(key, SLICE_LIT("tokenizer."))) continue;
        const gguf_value *a = gguf_kv_value(f, i), *b = kv_set_find(&g->kv, key);
        CHECK(b && a->kind == b->kind && a->n == b->n && a->end - a->p == b->end - b->p);
        CHECK(memcmp(a->p, b->p, (size_t)(a->end - a->p)) == 0);
        n++;
    }
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        n_own += slice_starts(gguf_kv_key(g, i), SLICE_LIT("tokenizer."));
    CHECK(n >= 8 && n == n_own);
    uint64_t x;
    CHECK_OK(gguf_need_u64(g, "qwen4exp.ple.eos_token_id", 4077, 4077, &x, &err)); // its <|endoftext|>
    CHECK(gguf_tensor_find(g, "token_embd.weight")->shape[2] == 4096);
    gguf_close(f);
    gguf_close(g);
    o.vocab_path = temp_dir_at(&d, "absent.gguf");
    CHECK(synth_write(&o, temp_dir_at(&d, "m2.gguf"), NULL, &err) == MICA_E_IO &&
          strstr(err.text, "absent.gguf"));
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dummy_vocabularies),
        cmocka_unit_test(test_vocabulary_of_another_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
