/* Shapes by name, overrides of their numbers, and mixtures of types.
 *
 * Presets named after a model have its published numbers (docs/MODELS.md); the tiny-* ones are made up so
 * that a test runs in milliseconds while every part of the family is there. */
#include "eval/synth_int.h"

#include <stddef.h>
#include <strings.h>

const char *synth_arch_name(synth_arch arch) {
    static const char *const name[] = {
        [SYNTH_LLAMA] = "llama",   [SYNTH_QWEN3] = "qwen3",         [SYNTH_QWEN3MOE] = "qwen3moe",
        [SYNTH_QWEN35] = "qwen35", [SYNTH_QWEN35MOE] = "qwen35moe", [SYNTH_QWEN4EXP] = "qwen4exp",
        [SYNTH_GEMMA3] = "gemma3", [SYNTH_GEMMA4] = "gemma4",
    };
    return name[arch];
}

/* ---- presets ---- */

typedef struct preset_entry {
    const char *name, *about;
    synth_shape s;
} preset_entry;

#define LLAMA3 .arch = SYNTH_LLAMA, .vocab = 128256, .eps = 1e-5, .theta = 5e5, .ctx = 131072
#define QWEN3 .eps = 1e-6, .theta = 1e6, .ctx = 40960
#define HYBRID .eps = 1e-6, .theta = 1e7, .ctx = 262144, .full_every = 4, .conv = 4
#define QWEN35 HYBRID, .vocab = 248320, .hd = 256, .rope_dim = 64, .state = 128, .kh = 16
#define GEMMA .eps = 1e-6, .theta = 1e6, .theta_swa = 1e4, .tied = 1
#define GEMMA4 GEMMA, .arch = SYNTH_GEMMA4, .softcap = 30
#define TINY_HYBRID                                                                                          \
    HYBRID, .vocab = 512, .embd = 256, .layers = 4, .heads = 4, .kv = 2, .hd = 64, .rope_dim = 16,           \
            .state = 64, .kh = 2, .vh = 4
#define TINY_GEMMA4 GEMMA4, .vocab = 512, .embd = 256, .ctx = 2048, .window = 64, .hd = 128, .hd_swa = 64

static const preset_entry g_preset[] = {
    {"smollm2-135m",
     "SmolLM2-135M",
     {.arch = SYNTH_LLAMA,
      .layers = 30,
      .embd = 576,
      .heads = 9,
      .kv = 3,
      .hd = 64,
      .ff = 1536,
      .vocab = 49152,
      .ctx = 8192,
      .eps = 1e-5,
      .theta = 1e5,
      .tied = 1}},
    {"llama-1b",
     "Llama-3.2-1B",
     {LLAMA3, .layers = 16, .embd = 2048, .heads = 32, .kv = 8, .hd = 64, .ff = 8192, .tied = 1,
      .rope_factor = 32}},
    {"llama-8b",
     "Llama-3.1-8B",
     {LLAMA3, .layers = 32, .embd = 4096, .heads = 32, .kv = 8, .hd = 128, .ff = 14336, .rope_factor = 8}},
    {"qwen3-0.6b",
     "Qwen3-0.6B",
     {.arch = SYNTH_QWEN3,
      QWEN3,
      .layers = 28,
      .embd = 1024,
      .heads = 16,
      .kv = 8,
      .hd = 128,
      .ff = 3072,
      .vocab = 151936,
      .tied = 1}},
    {"qwen3-8b",
     "Qwen3-8B",
     {.arch = SYNTH_QWEN3,
      QWEN3,
      .layers = 36,
      .embd = 4096,
      .heads = 32,
      .kv = 8,
      .hd = 128,
      .ff = 12288,
      .vocab = 151936}},
    {"qwen3moe-30b-a3b",
     "Qwen3-30B-A3B",
     {.arch = SYNTH_QWEN3MOE,
      QWEN3,
      .layers = 48,
      .embd = 2048,
      .heads = 32,
      .kv = 4,
      .hd = 128,
      .ff = 6144,
      .ff_exp = 768,
      .experts = 128,
      .used = 8,
      .vocab = 151936}},
    {"qwen35-0.8b",
     "Qwen3.5-0.8B",
     {.arch = SYNTH_QWEN35,
      QWEN35,
      .layers = 24,
      .embd = 1024,
      .heads = 8,
      .kv = 2,
      .ff = 3584,
      .vh = 16,
      .tied = 1}},
    {"qwen35-4b",
     "Qwen3.5-4B (widths partly guessed)",
     {.arch = SYNTH_QWEN35,
      QWEN35,
      .layers = 32,
      .embd = 2560,
      .heads = 16,
      .kv = 4,
      .ff = 9216,
      .vh = 32,
      .tied = 1}},
    {"qwen35-9b",
     "Qwen3.5-9B",
     {.arch = SYNTH_QWEN35, QWEN35, .layers = 32, .embd = 4096, .heads = 16, .kv = 4, .ff = 12288, .vh = 32}},
    {"qwen35-27b",
     "Qwen3.5/3.6/3.8-27B",
     {.arch = SYNTH_QWEN35, QWEN35, .layers = 64, .embd = 5120, .heads = 24, .kv = 4, .ff = 17408, .vh = 48}},
    {"qwen35moe-35b-a3b",
     "Qwen3.5/3.6-35B-A3B",
     {.arch = SYNTH_QWEN35MOE,
      QWEN35,
      .layers = 40,
      .embd = 2048,
      .heads = 16,
      .kv = 2,
      .vh = 32,
      .experts = 256,
      .used = 8,
      .ff_exp = 512,
      .ff_shexp = 512}},
    {"flash-next",
     "Qwen3.8-Flash-Next: 125 B parameters and an n-gram table of 51 B",
     {.arch = SYNTH_QWEN4EXP,
      QWEN35,
      .layers = 48,
      .embd = 2560,
      .heads = 24,
      .kv = 2,
      .vh = 48,
      .experts = 512,
      .used = 10,
      .ff_exp = 640,
      .ff_shexp = 640,
      .hc = 4,
      .hc_rank = 320,
      .idx_heads = 4,
      .idx_dim = 128,
      .idx_top = 2048,
      .idx_ratio = 4,
      .ple_layer = 1,
      .ple_ngram = 3,
      .ple_heads = 8,
      .ple_conv = 4,
      .ple_rows = 20000000}},
    {"gemma3-270m",
     "Gemma-3-270M",
     {GEMMA, .arch = SYNTH_GEMMA3, .layers = 18, .embd = 640, .heads = 4, .kv = 1, .kv_full = 1, .hd = 256,
      .hd_swa = 256, .ff = 2048, .vocab = 262144, .ctx = 32768, .window = 512, .swa_every = 6}},
    {"gemma4-31b",
     "Gemma-4-31B",
     {GEMMA4, .layers = 60, .embd = 5376, .heads = 32, .kv = 16, .kv_full = 4, .hd = 512, .hd_swa = 256,
      .ff = 21504, .vocab = 262144, .ctx = 262144, .window = 1024, .swa_every = 6, .k_eq_v = 1}},
    {"gemma4-26b-a4b",
     "Gemma-4-26B-A4B",
     {GEMMA4, .layers = 30, .embd = 2816, .heads = 16, .kv = 8, .kv_full = 2, .hd = 512, .hd_swa = 256,
      .ff = 2112, .experts = 128, .used = 8, .ff_exp = 704, .vocab = 262144, .ctx = 262144, .window = 1024,
      .swa_every = 6, .k_eq_v = 1}},
    {"gemma4-e2b",
     "Gemma-4-E2B (widths partly guessed)",
     {GEMMA4, .layers = 35, .embd = 1536, .heads = 8, .kv = 1, .kv_full = 1, .hd = 512, .hd_swa = 256,
      .ff = 6144, .ff_wide = 12288, .shared_kv = 20, .ple = 256, .vocab = 262144, .ctx = 131072,
      .window = 512, .swa_every = 5}},

    {"tiny-llama",
     "made up, for tests",
     {.arch = SYNTH_LLAMA,
      .layers = 2,
      .embd = 256,
      .heads = 4,
      .kv = 2,
      .hd = 64,
      .ff = 512,
      .vocab = 512,
      .ctx = 2048,
      .eps = 1e-5,
      .theta = 1e4,
      .tied = 1}},
    {"tiny-llama-moe",
     "made up, for tests: Mixtral's parts",
     {.arch = SYNTH_LLAMA,
      .layers = 2,
      .embd = 256,
      .heads = 4,
      .kv = 2,
      .hd = 64,
      .ff = 256,
      .vocab = 512,
      .ctx = 2048,
      .eps = 1e-5,
      .theta = 1e6,
      .experts = 8,
      .used = 2,
      .ff_exp = 256}},
    {"tiny-qwen3",
     "made up, for tests",
     {.arch = SYNTH_QWEN3,
      QWEN3,
      .layers = 2,
      .embd = 256,
      .heads = 4,
      .kv = 2,
      .hd = 64,
      .ff = 512,
      .vocab = 512,
      .tied = 1}},
    {"tiny-qwen3moe",
     "made up, for tests",
     {.arch = SYNTH_QWEN3MOE,
      QWEN3,
      .layers = 2,
      .embd = 256,
      .heads = 4,
      .kv = 2,
      .hd = 64,
      .ff = 512,
      .ff_exp = 256,
      .experts = 8,
      .used = 2,
      .vocab = 512}},
    {"tiny-qwen35", "made up, for tests", {.arch = SYNTH_QWEN35, TINY_HYBRID, .ff = 512, .tied = 1}},
    {"tiny-qwen35moe",
     "made up, for tests",
     {.arch = SYNTH_QWEN35MOE, TINY_HYBRID, .ff_exp = 256, .ff_shexp = 256, .experts = 8, .used = 2}},
    {"tiny-flash-next",
     "made up, for tests",
     {.arch = SYNTH_QWEN4EXP,
      TINY_HYBRID,
      .ff_exp = 256,
      .ff_shexp = 256,
      .experts = 8,
      .used = 2,
      .hc = 4,
      .hc_rank = 32,
      .idx_heads = 2,
      .idx_dim = 64,
      .idx_top = 64,
      .idx_ratio = 4,
      .ple_layer = 1,
      .ple_ngram = 3,
      .ple_heads = 2,
      .ple_conv = 4,
      .ple_rows = 500}},
    {"tiny-gemma3",
     "made up, for tests",
     {GEMMA, .arch = SYNTH_GEMMA3, .layers = 6, .embd = 256, .heads = 4, .kv = 1, .kv_full = 1, .hd = 64,
      .hd_swa = 64, .ff = 512, .vocab = 512, .ctx = 2048, .window = 64, .swa_every = 6}},
    {"tiny-gemma4",
     "made up, for tests: dense, as 31B",
     {TINY_GEMMA4, .layers = 6, .heads = 4, .kv = 2, .kv_full = 1, .ff = 512, .swa_every = 3, .k_eq_v = 1}},
    {"tiny-gemma4-moe",
     "made up, for tests: as 26B-A4B",
     {TINY_GEMMA4, .layers = 6, .heads = 4, .kv = 2, .kv_full = 1, .ff = 512, .swa_every = 3, .k_eq_v = 1,
      .experts = 8, .used = 2, .ff_exp = 256}},
    {"tiny-gemma4-e",
     "made up, for tests: as E2B",
     {TINY_GEMMA4, .layers = 10, .heads = 2, .kv = 1, .kv_full = 1, .ff = 512, .ff_wide = 1024,
      .shared_kv = 5, .ple = 256, .swa_every = 5}},
};
enum { N_PRESET = sizeof g_preset / sizeof *g_preset };

const char *synth_preset_name(size_t i) {
    return i < N_PRESET ? g_preset[i].name : NULL;
}
const char *synth_preset_about(size_t i) {
    return i < N_PRESET ? g_preset[i].about : NULL;
}

/* ---- mixtures ---- */

#define PLAIN(n, t, file)                                                                                    \
    { n, GGUF_##t, GGUF_##t, GGUF_##t, GGUF_##t, file }
#define HEAD6(n, t, file)                                                                                    \
    { n, GGUF_##t, GGUF_##t, GGUF_Q6_K, GGUF_##t, file }
#define LOW(n, t, file)                                                                                      \
    { n, GGUF_##t, GGUF_##t, GGUF_Q6_K, GGUF_Q4_K, file } // too few bits for embeddings

static const synth_quant g_quant[] = {
    PLAIN("f32", F32, 0),
    PLAIN("f16", F16, 1),
    PLAIN("bf16", BF16, 32),
    PLAIN("q8_0", Q8_0, 7),
    HEAD6("q4_0", Q4_0, 2),
    HEAD6("q4_1", Q4_1, 3),
    HEAD6("q5_0", Q5_0, 8),
    HEAD6("q5_1", Q5_1, 9),
    HEAD6("q2_k", Q2_K, 10),
    HEAD6("q3_k", Q3_K, 11),
    HEAD6("q4_k", Q4_K, 14),
    HEAD6("q5_k", Q5_K, 16),
    HEAD6("q6_k", Q6_K, 18),
    {"q4_k_m", GGUF_Q4_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q4_K, 15},
    {"q5_k_m", GGUF_Q5_K, GGUF_Q6_K, GGUF_Q6_K, GGUF_Q5_K, 17},
    HEAD6("iq4_nl", IQ4_NL, 25),
    HEAD6("iq4_xs", IQ4_XS, 30),
    LOW("iq3_s", IQ3_S, 26),
    LOW("iq3_xxs", IQ3_XXS, 23),
    LOW("iq2_s", IQ2_S, 28),
    LOW("iq2_xs", IQ2_XS, 20),
    LOW("iq2_xxs", IQ2_XXS, 19),
    LOW("iq1_m", IQ1_M, 31),
    LOW("iq1_s", IQ1_S, 24),
    LOW("tq1_0", TQ1_0, 36),
    LOW("tq2_0", TQ2_0, 37),
    LOW("mxfp4", MXFP4, -1),
    LOW("nvfp4", NVFP4, -1),
    LOW("q1_0", Q1_0, -1),
    LOW("q2_0", Q2_0, -1),
};
enum { N_QUANT = sizeof g_quant / sizeof *g_quant };

const char *synth_quant_name(size_t i) {
    return i < N_QUANT ? g_quant[i].name : NULL;
}

const synth_quant *synth_quant_find(const char *name) {
    for (size_t i = 0; name && i < N_QUANT; i++)
        if (strcasecmp(name, g_quant[i].name) == 0) return &g_quant[i];
    return NULL;
}

/* ---- numbers by name ---- */

#define KEY(field)                                                                                           \
    { #field, offsetof(synth_shape, field) }
static const struct {
    const char *name;
    size_t at;
} g_key[] = {
    KEY(layers),   KEY(embd),     KEY(heads),       KEY(kv),         KEY(hd),        KEY(ff),
    KEY(vocab),    KEY(ctx),      KEY(tied),        KEY(experts),    KEY(used),      KEY(ff_exp),
    KEY(ff_shexp), KEY(mtp),      KEY(rope_factor), KEY(full_every), KEY(rope_dim),  KEY(conv),
    KEY(state),    KEY(kh),       KEY(vh),          KEY(hc),         KEY(hc_rank),   KEY(idx_heads),
    KEY(idx_dim),  KEY(idx_top),  KEY(idx_ratio),   KEY(ple_layer),  KEY(ple_ngram), KEY(ple_heads),
    KEY(ple_conv), KEY(ple_rows), KEY(swa_every),   KEY(window),     KEY(hd_swa),    KEY(kv_full),
    KEY(k_eq_v),   KEY(ple),      KEY(shared_kv),   KEY(ff_wide),
};
enum { N_KEY = sizeof g_key / sizeof *g_key, NUMBER_MAX = 1 << 28 };

const char *synth_key_name(size_t i) {
    return i < N_KEY ? g_key[i].name : NULL;
}

static uint32_t *number_of(synth_shape *s, const char *name, size_t n) {
    for (size_t i = 0; i < N_KEY; i++)
        if (strlen(g_key[i].name) == n && memcmp(g_key[i].name, name, n) == 0)
            return (uint32_t *)(void *)((char *)s + g_key[i].at);
    return NULL;
}

static mica_status set_number(synth_shape *s, const char *text, mica_error *err) {
    const char *eq = strchr(text, '=');
    uint32_t *number = eq ? number_of(s, text, (size_t)(eq - text)) : NULL;
    if (!number) return fail(err, MICA_E_ARG, "--set %s: must be KEY=N with a KEY that synth lists", text);
    uint64_t n = 0;
    const char *p = eq + 1;
    for (; *p >= '0' && *p <= '9' && n <= NUMBER_MAX; p++) n = 10 * n + (uint64_t)(*p - '0');
    if (p == eq + 1 || *p || n > NUMBER_MAX)
        return fail(err, MICA_E_ARG, "--set %s: N must be a number from 0 to %d", text, NUMBER_MAX);
    *number = (uint32_t)n;
    return MICA_OK;
}

/* ---- from preset to shape ---- */

bool synth_shape_is_full(const synth_shape *s, uint32_t il) {
    if (s->arch == SYNTH_GEMMA3 || s->arch == SYNTH_GEMMA4) return (il + 1) % s->swa_every == 0;
    return !s->full_every || il >= s->layers || (il + 1) % s->full_every == 0;
}

uint32_t synth_shape_ff(const synth_shape *s, uint32_t il) {
    return s->ff_wide && il >= s->layers - s->shared_kv ? s->ff_wide : s->ff;
}

uint32_t synth_shape_n_table(const synth_shape *s) {
    return s->ple_ngram ? (s->ple_ngram - 1) * s->ple_heads : 0;
}

static bool is_prime(uint64_t n) {
    if (n < 4) return n > 1;
    if (n % 2 == 0) return false;
    for (uint64_t d = 3; d * d <= n; d += 2)
        if (n % d == 0) return false;
    return true;
}

uint64_t synth_shape_table(const synth_shape *s, uint64_t *size) {
    uint64_t sum = 0, next = s->ple_rows;
    for (uint32_t h = 0; h < synth_shape_n_table(s); h++) {
        while (!is_prime(next)) next++;
        size[h] = next++;
        sum += size[h];
    }
    return sum;
}

/* What a shape must satisfy: true, or the sentence that is broken. */
typedef struct rule {
    bool holds;
    const char *text;
} rule;

static mica_status check_rules(const rule *r, size_t n, const char *preset, mica_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!r[i].holds) return fail(err, MICA_E_ARG, "synth %s: %s", preset, r[i].text);
    return MICA_OK;
}

static bool divides(uint32_t d, uint32_t n) {
    return d && n % d == 0;
}

static mica_status check_shape(const synth_shape *s, const char *preset, mica_error *err) {
    bool flash = s->arch == SYNTH_QWEN4EXP;
    bool hybrid = flash || s->arch == SYNTH_QWEN35 || s->arch == SYNTH_QWEN35MOE;
    bool gemma = s->arch == SYNTH_GEMMA3 || s->arch == SYNTH_GEMMA4;
    const rule r[] = {
        {s->layers && s->embd && s->heads && s->kv && s->hd && s->ctx,
         "layers, embd, heads, kv, hd and ctx are at least 1"},
        {s->vocab >= 300, "vocab is at least 300"},
        {divides(s->kv, s->heads), "kv divides heads"},
        {s->hd % 2 == 0 && s->embd % 32 == 0, "hd is even and embd a multiple of 32"},
        {s->experts ? s->used && s->used <= s->experts && s->ff_exp : s->ff,
         "used is from 1 to experts; ff_exp or ff is set"},
        {!s->mtp || hybrid, "mtp is for the qwen35, qwen35moe and qwen4exp families"},
        {hybrid == (s->full_every != 0),
         "full_every is set for the qwen35, qwen35moe and qwen4exp families alone"},
        {!hybrid || (s->conv && s->state && s->vh && divides(s->kh, s->vh)),
         "conv, state, vh are set and kh divides vh"},
        {!hybrid || (s->rope_dim % 2 == 0 && s->rope_dim && s->rope_dim <= s->hd),
         "rope_dim is even and at most hd"},
        {!flash || (s->hc > 1 && s->hc_rank && s->idx_heads && s->idx_ratio),
         "hc > 1; hc_rank, idx_heads, idx_ratio are set"},
        {!flash || (s->idx_dim >= s->rope_dim && s->idx_top >= s->idx_ratio),
         "idx_dim >= rope_dim and idx_top >= idx_ratio"},
        {!flash || (s->ple_ngram > 1 && s->ple_ngram < 9 && s->ple_heads && s->ple_conv && s->ple_rows),
         "ple_ngram is 2 to 8; ple_heads, ple_conv and ple_rows are set"},
        {!flash || (synth_shape_n_table(s) <= SYNTH_TABLE_MAX && divides(synth_shape_n_table(s), s->embd)),
         "(ple_ngram - 1) * ple_heads is at most 64 and divides embd"},
        {!flash || (s->ple_layer < s->layers && !synth_shape_is_full(s, s->ple_layer)),
         "ple_layer is one of the layers and not one with attention"},
        {!gemma || (s->swa_every && s->window && s->hd_swa && s->hd_swa % 2 == 0),
         "swa_every, window, hd_swa are set"},
        {!gemma || divides(s->kv_full, s->heads), "kv_full divides heads"},
        {!gemma || s->shared_kv < s->layers, "shared_kv is below layers"},
        {!s->shared_kv || s->layers - s->shared_kv >= s->swa_every,
         "one layer of each kind keeps its own K and V"},
    };
    return check_rules(r, sizeof r / sizeof *r, preset, err);
}

mica_status synth_shape_make(synth_shape *s, const mica_synth_options *o, mica_error *err) {
    const char *name = o->preset ? o->preset : "";
    size_t i = 0;
    while (i < N_PRESET && strcasecmp(g_preset[i].name, name) != 0) i++;
    if (i == N_PRESET) return fail(err, MICA_E_ARG, "synth: no preset '%s'", name);
    *s = g_preset[i].s;
    if (o->n_layer) {
        // Fewer layers keep about the preset's share without K and V of their own, and one layer of each kind
        // that has.
        uint32_t share = (uint32_t)((uint64_t)s->shared_kv * o->n_layer / s->layers);
        uint32_t most = o->n_layer > s->swa_every ? o->n_layer - s->swa_every : 0;
        s->shared_kv = share < most ? share : most;
        s->layers = o->n_layer;
    }
    if (o->n_expert && !s->experts)
        return fail(err, MICA_E_ARG, "synth %s: has no experts to set the number of", name);
    if (o->n_expert) s->experts = o->n_expert;
    if (o->mtp && !s->mtp) s->mtp = 1;
    for (size_t k = 0; k < o->n_set; k++) TRY(set_number(s, o->set[k], err));
    if (!(o->router_skew >= 0 && o->router_skew <= 100))
        return fail(err, MICA_E_ARG, "synth %s: router skew %g: must be from 0 to 100", name, o->router_skew);
    if (o->router_skew > 0 && !s->experts)
        return fail(err, MICA_E_ARG, "synth %s: has no router to skew", name);
    return check_shape(s, name, err);
}
