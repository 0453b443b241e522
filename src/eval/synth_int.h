/* Inside the synthesiser: preset (synth_preset.c) -> shape -> list of tensors (synth_plan.c) and metadata
 * (synth_meta.c) -> bytes (synth_block.c), driven by synth.c. */
#ifndef MICA_EVAL_SYNTH_INT_H
#define MICA_EVAL_SYNTH_INT_H

#include "eval/synth.h"
#include "gguf/writer.h"

#include <math.h>

typedef enum synth_arch {
    SYNTH_LLAMA,
    SYNTH_QWEN3,
    SYNTH_QWEN3MOE,
    SYNTH_QWEN35,
    SYNTH_QWEN35MOE,
    SYNTH_QWEN4EXP,
    SYNTH_GEMMA3,
    SYNTH_GEMMA4
} synth_arch;

/* A model in numbers; 0 where a family has no such part. The u32 fields can be set by name (synth_preset.c
 * lists them). */
typedef struct synth_shape {
    synth_arch arch;
    uint32_t layers, embd, heads, kv, hd, ff, vocab, ctx;
    uint32_t tied;                            // 1: no output.weight
    uint32_t experts, used, ff_exp, ff_shexp; // n_expert, n_expert_used, their width, the shared expert's
    uint32_t mtp;                             // next-token-prediction blocks behind the layers
    uint32_t rope_factor;                     // llama 3's long-context factors; 0: no rope_freqs
    // gated delta-net hybrids: every full_every-th layer has attention, the others state x (kh key, vh value
    // heads)
    uint32_t full_every, rope_dim, conv, state, kh, vh;
    // hyper-connections, sparse attention, n-gram table (qwen4exp)
    uint32_t hc, hc_rank, idx_heads, idx_dim, idx_top, idx_ratio;
    uint32_t ple_layer, ple_ngram, ple_heads, ple_conv, ple_rows;
    // gemma: every swa_every-th layer is global, with kv_full heads of hd; the others slide, kv heads of
    // hd_swa
    uint32_t swa_every, window, hd_swa, kv_full;
    uint32_t k_eq_v; // 1: global layers have no attn_v
    uint32_t ple, shared_kv,
        ff_wide; // per-layer embedding width; last layers without K and V, and their ffn width
    double eps, theta, theta_swa, softcap;
} synth_shape;

const char *synth_arch_name(synth_arch arch);
bool synth_shape_is_full(const synth_shape *s, uint32_t il); // attention (hybrids), global attention (gemma)
uint32_t synth_shape_ff(const synth_shape *s, uint32_t il);  // width of the dense ffn of layer il
uint32_t synth_shape_n_table(const synth_shape *s);          // n-gram heads: (ple_ngram - 1) * ple_heads
/* Row counts of the n-gram heads: consecutive primes from ple_rows on. Returns their sum. */
uint64_t synth_shape_table(const synth_shape *s, uint64_t *size);
enum { SYNTH_TABLE_MAX = 64 }; // n-gram heads

/* The preset with the options' overrides, checked. */
mica_status synth_shape_make(synth_shape *s, const mica_synth_options *o, mica_error *err);

/* A mixture: which type each role of matrix gets. */
typedef struct synth_quant {
    const char *name;
    gguf_type main, wide, head, embd; // wide: value and down projections of some layers
    int file_type;                    // general.file_type, -1: none known
} synth_quant;
const synth_quant *synth_quant_find(const char *name);

/* ---- random numbers and blocks ---- */

typedef struct synth_rng {
    uint64_t s;
} synth_rng;

synth_rng synth_rng_of(uint64_t seed,
                       const char *name);             // the same for the same pair, different for any other
static inline uint64_t synth_rng_next(synth_rng *r) { // splitmix64
    uint64_t z = r->s += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static inline double synth_rng_unit(synth_rng *r) {
    return (double)(synth_rng_next(r) >> 11) * 0x1p-53;
} // [0, 1)
double synth_rng_gauss(synth_rng *r); // mean 0, deviation 1, within 6

/* n_block random blocks of a weight type, with a mean of about 0 and a deviation of about scale *
 * synth_block_rms(type). NVFP4 ignores the scale: there it lives in a tensor of its own. */
void synth_blocks(void *dst, gguf_type type, uint64_t n_block, double scale, synth_rng *r);
double synth_block_rms(gguf_type type); // measured on a thousand blocks: synth_plan_rms remembers it

/* ---- the plan ---- */

typedef enum synth_fill {
    SYNTH_FILL_WEIGHT,  // random blocks of deviation a
    SYNTH_FILL_GAUSS,   // f32: mean a, deviation b
    SYNTH_FILL_UNIFORM, // f32: a .. b
    SYNTH_FILL_LLAMA3,  // rope_freqs of llama 3
    SYNTH_FILL_GEMMA4,  // rope_freqs of gemma 4: a quarter rotates
    SYNTH_FILL_ROUTER   // f32 of deviation a; column 0 holds each expert's skew
} synth_fill;

typedef struct synth_tensor {
    char name[GGUF_NAME_MAX + 1];
    gguf_type type;
    int n_dim;
    uint64_t shape[4]; // slowest first
    uint64_t size_bytes;
    synth_fill fill;
    double a, b;
    double
        first; // with has_first: element 0 of every run of n_embd, the channel that carries the router's skew
    bool has_first;
    bool flip;          // half of the values change sign
    double token_share; // of its bytes that one decoded token reads
} synth_tensor;

typedef struct synth_plan {
    const synth_shape *s;
    const synth_quant *q;
    double skew;
    uint32_t il; // of the block being planned
    bool in_block, in_mtp;
    synth_tensor *t; // owned
    size_t n, cap;
    double rms[GGUF_TYPE_N]; // of blocks of scale 1; 0: not measured yet
    bool failed;             // out of memory
    synth_tensor sink;       // where fields go when there is none: written, never read
} synth_plan;

mica_status synth_plan_make(synth_plan *p, mica_error *err); // s, q and skew are set
void synth_plan_fini(synth_plan *p);
double synth_plan_rms(synth_plan *p, gguf_type type); // synth_block_rms, measured once

/* ---- metadata ---- */

/* All keys. vocab: another file to take tokenizer.* from, or NULL. The plan's vocab is already that of the
 * tokenizer. */
mica_status synth_meta_write(gguf_writer *w, const synth_plan *p, const mica_synth_options *o,
                             const gguf_file *vocab, mica_error *err);

/* The channel that carries the skew (channel 0 of the residual stream) is this large in every embedding row,
 * so that after the norm it is sqrt(n_embd) whatever the layers add. */
static inline double synth_skew_channel(const synth_shape *s) {
    return s->arch == SYNTH_GEMMA4 ? 16 : 16 * sqrt(s->embd); // gemma multiplies embeddings by sqrt(n_embd)
}
#endif
