/* The promise of one arithmetic: the raw logits of a fixture are the same bits on the definition and on the
 * fast device, for any instruction set, chunk, thread count, neighbours in the batch, and prefix reuse. */
#include "check.h"

#include "run/session.h"

enum { N_PROMPT = 75, N_PROMPT_INDEX = 90, N_GEN = 5, N_SEQ = 8 };

static const char *const g_fixture[] = {"llama",       "qwen3",  "qwen3_moe",  "qwen3_5",
                                        "qwen3_5_moe", "gemma4", "gemma4_moe", "qwen4_exp"};

typedef struct setup {
    const char *path;
    dev_kind dev;
    cpu_isa isa;
    int n_thread;
    uint32_t n_ubatch;
    kv_type kv;
    size_t n_prompt; // attention with an index: beyond what it can attend to
    bool crowd;      // the timeline is one of eight that decode together
} setup;

static int32_t token_at(int seq, size_t i) {
    return (int32_t)((i * 2654435761u + (size_t)seq * 977u + i / 7) % 4000);
}

/* Logits after the prompt and after each of N_GEN tokens, [1 + N_GEN, n_vocab]; returns n_vocab. */
static uint32_t run(const setup *u, float **out) {
    mica_error err;
    gguf_file *g;
    engine *e;
    session *s[N_SEQ];
    int n_seq = u->crowd ? N_SEQ : 1;
    CHECK_OK(gguf_open(&g, u->path, &err));
    engine_config c = {
        .g = g, .dev = u->dev, .isa = u->isa, .n_thread = u->n_thread, .n_ctx = 512, .kv = u->kv};
    c.n_seq = (uint32_t)n_seq;
    c.n_ubatch = u->n_ubatch;
    CHECK_OK(engine_open(&e, &c, &err));
    uint32_t n_vocab = engine_shape(e)->n_vocab;
    *out = malloc((size_t)(1 + N_GEN) * n_vocab * sizeof(float));
    int mine = n_seq / 2;
    for (int q = 0; q < n_seq; q++) {
        int32_t ids[N_PROMPT_INDEX];
        size_t n = q == mine ? u->n_prompt : (size_t)(3 + 2 * q);
        for (size_t i = 0; i < n; i++) ids[i] = token_at(q == mine ? 0 : q + 1, i);
        CHECK_OK(session_new(&s[q], e, (uint32_t)q, &err));
        CHECK_OK(session_sync(s[q], &(session_sync_args){.ids = ids, .n = n}, NULL, &err));
    }
    memcpy(*out, session_logits(s[mine]), n_vocab * sizeof(float));
    for (int k = 0; k < N_GEN; k++) {
        int32_t ids[N_SEQ];
        for (int q = 0; q < n_seq; q++) ids[q] = token_at(q == mine ? 0 : q + 1, 1000u + (size_t)k);
        CHECK_OK(session_append_batch(s, ids, (size_t)n_seq, &err));
        memcpy(*out + (size_t)(k + 1) * n_vocab, session_logits(s[mine]), n_vocab * sizeof(float));
    }
    for (int q = 0; q < n_seq; q++) session_free(s[q]);
    engine_close(e);
    gguf_close(g);
    return n_vocab;
}

static void expect_equal(const setup *u, const float *want, uint32_t n_vocab) {
    float *got;
    CHECK(run(u, &got) == n_vocab);
    for (size_t i = 0; i < (size_t)(1 + N_GEN) * n_vocab; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) == 0) continue;
        print_error("%s dev %d isa %s threads %d ubatch %u kv %d crowd %d: step %zu logit %zu: %.9g, "
                    "definition %.9g\n",
                    u->path, (int)u->dev, cpu_isa_name(u->isa), u->n_thread, u->n_ubatch, (int)u->kv,
                    u->crowd, i / n_vocab, i % n_vocab, (double)got[i], (double)want[i]);
        _fail(__FILE__, __LINE__);
    }
    free(got);
}

static void check_fixture(const char *name, kv_type kv) {
    char path[256];
    float *want;
    snprintf(path, sizeof path, "tests/fixtures/%s.q4_k_m.gguf", name);
    setup ref = {.path = path, .dev = DEV_REF, .isa = CPU_SCALAR, .n_thread = 1, .n_ubatch = 64, .kv = kv};
    ref.n_prompt = strcmp(name, "qwen4_exp") == 0 ? N_PROMPT_INDEX : N_PROMPT;
    uint32_t n_vocab = run(&ref, &want);
    if (strcmp(name, "qwen3_5") == 0) { // the definition's own chunks, where state goes from one to the next
        setup whole = ref;
        whole.n_ubatch = 512;
        expect_equal(&whole, want, n_vocab);
    }
    for (int isa = CPU_SCALAR; isa <= (int)cpu_isa_best(); isa++) {
        static const uint32_t chunk[4] = {1, 7, 64, 512};
        for (int k = 0; k < 4; k++) {
            setup u = {.path = path,
                       .dev = DEV_CPU,
                       .isa = (cpu_isa)isa,
                       .n_thread = 1 + k % 3,
                       .n_ubatch = chunk[k],
                       .kv = kv,
                       .n_prompt = ref.n_prompt};
            u.crowd = k == 3 || k == 1;
            if (isa == CPU_SCALAR && k < 3) continue; // slow, and chunks are the same code
            expect_equal(&u, want, n_vocab);
        }
    }
    free(want);
}

static void test_bits_kv_f16(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof g_fixture / sizeof g_fixture[0]; i++) check_fixture(g_fixture[i], KV_F16);
}

static void test_bits_kv_i8_and_f32(void **state) {
    (void)state;
    check_fixture("llama", KV_I8);
    check_fixture("qwen3_moe", KV_I8);
    check_fixture("qwen3", KV_F32);
    check_fixture("qwen4_exp", KV_I8);
}

static void test_bits_avx512(void **state) {
    (void)state;
    if (cpu_isa_best() < CPU_AVX512)
        SKIP("AVX-512 against the definition: this processor has %s", cpu_isa_name(cpu_isa_best()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_kv_f16),
        cmocka_unit_test(test_bits_kv_i8_and_f32),
        cmocka_unit_test(test_bits_avx512),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
