/* Argument records of the device seam, shared by host C and device source. Destination first; every pointer
 * says its shape, slowest axis first. "Device pointer" means memory of the device that runs the call (plain
 * memory on the CPU): host code passes it on and never looks inside, except on the CPU.
 *
 * A batch is n_row rows of (sequence, position, token, role). Rows of the prompt role come first: rows [0,
 * n_prompt) use the prompt order of docs/ARITHMETIC.md, rows [n_prompt, n_row) the token order. Only products
 * with weights differ. */
#ifndef MICA_KERN_ARGS_H
#define MICA_KERN_ARGS_H

#include "quant/act.h"

#ifndef DEV // device source brings its own
#define DEV static inline
#endif

enum { KV_PAGE = 256 }; // positions in a page: a page is one block of rule 6

/* One row of a batch. */
typedef struct row_info {
    int32_t tok; // token id
    int32_t seq; // sequence slot
    int32_t pos; // absolute position in the sequence
    int32_t out; // index of this row's logits, or -1
} row_info;

enum { WINDOW_MAX = 8 }; // rows of one sequence in a draft window

/* A run: the rows of one sequence in a batch, consecutive in it and in position. Networks with recurrent
 * state read it.
 *
 * A window of drafts may be taken back, so its rows do not advance the state: they are logged, and the next
 * run of the sequence first applies the logged rows that were accepted (the same operations on the same
 * values: the same bits). */
typedef struct row_run {
    uint32_t row0, n_row;
    int32_t seq;
    uint32_t n_commit; // rows of the previous window's log to apply first, <= WINDOW_MAX
    uint32_t window; // 1: log these rows (n_row <= WINDOW_MAX) and leave the state before them; 0: advance it
    uint32_t bank;   // log half that these rows are written to; n_commit rows are read from the other
} row_run;

/* A matrix with its optional companions. */
typedef struct weight_ref {
    const void *w;         // [n_row, n_col] of `type`, or NULL when the file has none
    const float *bias;     // [n_row] or NULL
    const float *scale;    // [1] multiplies the product ([n_expert] for a stack), or NULL
    uint32_t type;         // gguf_type
    uint32_t n_row, n_col; // outputs, inputs (of one expert for a stack)
} weight_ref;

/* x[r] = decode(table[tok of row r]) * scale */
typedef struct embed_args {
    float *x;             // [n_row, table.n_col] f32, overwritten
    weight_ref table;     // [n_vocab, n_embd]
    const row_info *rows; // [n_row]
    uint32_t n_row;
    float scale;
} embed_args;

/* y = RMS(x) * w for every group of n_col values (rule 8), then quantised when want_q. */
typedef struct norm_args {
    quant_act y;           // rows of n_col; y.x overwritten, the int8 form too when want_q
    const float *x;        // [.., ld_x] f32
    const float *w;        // [n_col], or NULL: no weight
    const int32_t *row_of; // [n_row] which row of x feeds row r, or NULL: row r
    uint32_t ld_x, n_row, n_col;
    float eps;
    uint32_t want_q;
} norm_args;

/* The int8 form of rows whose f32 form was written in parts. */
typedef struct quantise_args {
    quant_act a; // [n_row, n_col]
    uint32_t n_row, n_col;
} quantise_args;

/* x += RMS(y) * w : the residual add of families that norm a sub-layer's output. */
typedef struct add_norm_args {
    float *x;       // [n_row, n_col] f32, added to
    const float *y; // [n_row, n_col] f32
    const float *w; // [n_col]
    uint32_t n_row, n_col;
    float eps;
} add_norm_args;

typedef struct linear_out {
    float *y;     // [n_row, ld_y] f32
    weight_ref w; // w.n_col = columns of the input
    uint32_t ld_y;
    uint32_t add; // 0: y = W a ; 1: y += W a
} linear_out;

enum { LINEAR_OUT_MAX = 6 };

/* Several products that share one input: y_k = W_k a (* scale) (+ bias), added to y_k when `add`. */
typedef struct linear_args {
    linear_out out[LINEAR_OUT_MAX];
    quant_act a; // [n_row, n_col], int8 form filled when any weight is quantised
    uint32_t n_out, n_row, n_prompt;
} linear_args;

/* cos and sin of pos * inv_freq (rule 9), once a step for each kind of rope. */
typedef struct rope_table_args {
    float *cs;              // [n_row, n_pair, 2] f32: cos, sin
    const double *inv_freq; // [n_pair], from model/rope.c
    const row_info *rows;
    uint32_t n_row, n_pair;
    float mscale; // multiplies both (YaRN), else 1
} rope_table_args;

typedef enum kv_type { KV_F16, KV_F32, KV_I8 } kv_type;

/* A layer's cache: pages of KV_PAGE positions, shared by all sequences through the page table. */
typedef struct kv_layer {
    void *k;        // [n_page, n_head_kv, KV_PAGE, d_k] of `type`
    void *v;        // [n_page, n_head_kv, KV_PAGE, d_v]
    float *k_scale; // [n_page, n_head_kv, KV_PAGE], KV_I8 only
    float *v_scale;
    float *index; // [n_page, KV_PAGE / ratio, d_index] keys of blocks (rule 14), or NULL
    kv_type type;
} kv_layer;

/* The page of position p of sequence s: table[s * n_slot + (p / KV_PAGE) % n_slot]. A ring when n_slot is
 * small. */
typedef struct kv_pages {
    const int32_t *table; // [n_seq, n_slot]
    uint32_t n_slot;
} kv_pages;

typedef enum rope_kind {
    ROPE_NORM, // pairs (2i, 2i + 1)
    ROPE_NEOX  // pairs (i, i + n_rot / 2)
} rope_kind;

/* Per head: optional RMS norm of q, k (and weightless of v), rope on q and k, then k and v go to the cache.
 */
typedef struct rope_kv_args {
    float *q; // [n_row, ld_q] f32, in place; head h begins at h * head_ld_q
    float *k,
        *v; // [n_row, ld_kv] f32, used as scratch; k NULL: queries only (the layer reads another's cache)
    kv_layer kv;
    kv_pages pages;
    const row_info *rows;
    const float *q_norm; // [d_k] or NULL
    const float *k_norm; // [d_k] or NULL
    const float *cs;     // [n_row, n_rot / 2, 2], rope_table_args
    uint32_t ld_q, head_ld_q, ld_kv;
    uint32_t n_row, n_head, n_head_kv, d_k, d_v, n_rot;
    rope_kind rope;
    uint32_t v_norm; // 1: v = RMS(v) without weight
    float eps;
} rope_kv_args;

/* o = softmax(scale q k + mask) v over the visible positions of each row's own sequence (rule 6). */
typedef struct attn_args {
    quant_act o;       // [n_row, n_head * d_v], quantised when want_q
    const float *q;    // [n_row, ld_q] f32; head h at h * head_ld_q
    const float *gate; // laid out as q: o *= sigmoid(gate), or NULL
    kv_layer kv;
    kv_pages pages;
    const row_info *rows;
    const int32_t
        *sel; // [n_row, ld_sel]: a count, then that many positions, ascending; NULL or count < 0: all visible
    uint32_t ld_q, head_ld_q, ld_sel;
    uint32_t n_row, n_head, n_head_kv, d_k, d_v;
    uint32_t window; // visible: pos - window < p <= pos; 0: no window
    float scale;
    uint32_t want_q;
} attn_args;

typedef enum glu_kind { GLU_SILU, GLU_GELU } glu_kind;

/* h = act(gate) * up */
typedef struct glu_args {
    quant_act h;            // [n_row, n_col]
    const float *gate, *up; // [n_row, ld]
    uint32_t ld, n_row, n_col;
    glu_kind kind;
    uint32_t want_q;
} glu_args;

/* Top-k experts by logit (rule 10) and their softmax weights among the chosen, in falling order of logit. */
typedef struct router_args {
    int32_t *ids;        // [n_row, n_used]
    float *weights;      // [n_row, n_used]
    const float *logits; // [n_row, n_expert]
    uint32_t n_row, n_expert, n_used;
    float scale; // multiplies the weights; 0 or 1: not
} router_args;

/* y = sum over the chosen experts, in router order, of weight * down(act(gate a) * up a). */
typedef struct experts_args {
    float *y;             // [n_row, n_embd] f32, overwritten, or added to when `add`
    quant_act a;          // [n_row, n_embd]
    const int32_t *ids;   // [n_row, n_used]
    const float *weights; // [n_row, n_used]
    weight_ref gate, up,
        down;       // types, shapes, scales of one expert; w is NULL: the bytes come through a lease
    uint32_t layer; // of the expert source
    uint32_t n_row, n_prompt, n_expert, n_used;
    glu_kind kind;
    uint32_t add;
} experts_args;

enum { CONV_RING = 16 }; // positions of inputs kept: the kernel's reach plus a window, a power of two

/* y[t] = silu(sum over j of w[j] * u[t - (n_tap - 1 - j) * step]) per channel (rule 7); u before position 0
 * is 0. The ring holds the inputs of the last CONV_RING positions, position p in slot p % CONV_RING: going
 * back needs no copy. (n_tap - 1) * step + WINDOW_MAX - 1 <= CONV_RING. */
typedef struct conv_args {
    float *y;        // [n_row, n_col] f32, overwritten; may not be u
    const float *u;  // [n_row, n_col]
    const float *w;  // [n_col, n_tap], oldest tap first
    float *ring;     // sequence q at q * ld_seq: [CONV_RING, n_col]
    uint64_t ld_seq; // floats
    const row_run *runs;
    const row_info *rows;
    uint32_t n_run, n_row, n_col, n_tap;
    uint32_t step; // positions from tap to tap, >= 1
} conv_args;

/* The gated delta rule (rule 7). Row layout of qkv: q [n_k, d_k], k [n_k, d_k], v [n_v, d_v]; value head h
 * reads key head h % n_k. State of a sequence: S [n_v, d_k, d_v], then two log banks of WINDOW_MAX rows of k
 * [n_k, d_k], g [n_v], delta [n_v, d_v]. */
typedef struct delta_args {
    float *o;             // [n_row, n_v * d_v] f32, overwritten
    float *qkv;           // [n_row, 2 n_k d_k + n_v d_v]; q and k are normalised in place
    const float *alpha;   // [n_row, n_v]
    const float *beta;    // [n_row, n_v]
    const float *a;       // [n_v], -exp(A)
    const float *dt_bias; // [n_v]
    float *state;         // sequence q at q * ld_seq
    uint64_t ld_seq;      // floats
    const row_run *runs;
    uint32_t n_run, n_row, n_k, n_v, d_k, d_v;
} delta_args;

DEV uint64_t delta_log_row(uint32_t n_k, uint32_t n_v, uint32_t d_k, uint32_t d_v) {
    return (uint64_t)n_k * d_k + n_v + (uint64_t)n_v * d_v;
}
DEV uint64_t delta_state_floats(uint32_t n_k, uint32_t n_v, uint32_t d_k, uint32_t d_v) {
    return (uint64_t)n_v * d_k * d_v + 2u * WINDOW_MAX * delta_log_row(n_k, n_v, d_k, d_v);
}

/* y = RMS(o) * w for each group of n_col, then * silu(z) or * sigmoid(z): the output norm of the delta rule.
 */
typedef struct gate_norm_args {
    quant_act y;    // [n_row, n_group * n_col]
    const float *o; // [n_row, n_group * n_col]
    const float *z; // [n_row, n_group * n_col]
    const float *w; // [n_col]
    uint32_t n_row, n_group, n_col;
    float eps;
    uint32_t sigmoid; // 1: sigmoid(z), 0: silu(z)
    uint32_t want_q;
} gate_norm_args;

/* y[r] += sigmoid(g[r]) * x[r] : a shared expert with its scalar gate. */
typedef struct gated_add_args {
    float *y;       // [n_row, n_col]
    const float *x; // [n_row, n_col]
    const float *g; // [n_row]
    uint32_t n_row, n_col;
} gated_add_args;

/* y = RMS(x) * w for each of n_group groups of n_col values, every group with its own weights (rule 8). */
typedef struct group_norm_args {
    quant_act y;           // [n_row, n_group * n_col]; group g of a row at g * ld_group
    const float *x;        // [.., ld_x] f32
    const float *w;        // [n_group, n_col]
    const int32_t *row_of; // [n_row] which row of x feeds row r, or NULL: row r
    uint32_t ld_x, ld_group, n_row, n_group, n_col;
    float eps;
    uint32_t want_q; // with ld_group = n_col only
} group_norm_args;

/* h = silu(x / div) */
typedef struct silu_args {
    quant_act h;    // [n_row, n_col], quantised when want_q
    const float *x; // [n_row, n_col]
    uint32_t n_row, n_col;
    float div;
    uint32_t want_q;
} silu_args;

/* Every group of row r of x is row row_of[r] of y. */
typedef struct spread_args {
    float *x;              // [n_row, n_group], groups ld_x apart
    const float *y;        // [.., ld_y]
    const int32_t *row_of; // [n_row], or NULL: row r
    uint32_t ld_x, ld_y, n_row, n_group, n_col;
} spread_args;

/* m = sum over streams of sigmoid(gate) * xn, over n_stream (rule 13). */
typedef struct hyper_read_args {
    quant_act m;       // [n_row, n_col], quantised when want_q
    const float *xn;   // [n_row, ld_xn]: n_stream streams of n_col
    const float *gate; // [n_row, n_stream * n_col]
    uint32_t ld_xn, n_row, n_stream, n_col;
    uint32_t want_q;
} hyper_read_args;

/* Stream s of x += 2 sigmoid(inject[s] / n_stream) * y (rule 13). */
typedef struct hyper_write_args {
    float *x;            // [n_row, n_stream, n_col]
    const float *y;      // [n_row, n_col]
    const float *inject; // [n_row, n_stream]
    uint32_t n_row, n_stream, n_col;
} hyper_write_args;

enum { INDEX_RATIO_MAX = 8 }; // positions of a block: what the ring below keeps beside a window

/* Keys of the blocks that rows complete (rule 14). The ring holds the index keys of the last CONV_RING
 * positions as conv_args does, so going back needs no copy; a block that was taken back is written again. */
typedef struct index_keys_args {
    float *index;           // kv_layer.index
    const float *k;         // [n_row, d]
    const float *w;         // [d] norm of a block's mean
    float *ring;            // sequence q at q * ld_seq: [CONV_RING, d]
    uint64_t ld_seq;        // floats
    const double *inv_freq; // [n_rot / 2], from model/rope.c
    kv_pages pages;
    const row_run *runs;
    const row_info *rows;
    uint32_t n_run, n_row, d, n_rot;
    uint32_t ratio; // positions of a block: a power of two, <= INDEX_RATIO_MAX
    float eps, mscale;
} index_keys_args;

/* The positions that each row's attention reads (rule 14): attn_args.sel. */
typedef struct index_select_args {
    int32_t *sel;       // [n_row, ld_sel] a count, then positions, ascending; count -1: all
    const float *q;     // [n_row, n_head, d] normed and rotated
    const float *index; // kv_layer.index
    kv_pages pages;
    const row_info *rows;
    uint32_t ld_sel, n_row, n_head, d, ratio;
    uint32_t n_keep; // blocks kept: budget / ratio; ld_sel > (n_keep + 1) * ratio - 1
} index_select_args;

enum { NGRAM_MAX = 8 }; // tokens of an n-gram: the ring of ids reaches back one less

/* e = rows of a table that the last n_gram tokens name, side by side (rule 15). The table stays where the
 * file is mapped: a row of a batch reads n_head rows of it. */
typedef struct ngram_args {
    quant_act e;           // [n_row, n_head * table.n_col], quantised when want_q
    weight_ref table;      // host memory
    const uint64_t *mult;  // [n_gram]
    const uint64_t *n_of;  // [n_head] rows of a head
    const uint64_t *first; // [n_head] its first row
    int32_t *ring;         // sequence q at q * ld_seq: [CONV_RING] ids, position p in slot p % CONV_RING
    uint64_t ld_seq;       // in int32_t
    const row_run *runs;
    const row_info *rows;
    uint32_t n_run, n_row, n_gram;
    uint32_t n_head; // of all n-grams: a multiple of n_gram - 1
    int32_t end;     // the id that stands where there is no token
    uint32_t want_q;
} ngram_args;

/* gv = sigmoid(a signed root of key . query / sqrt(n_col)) * v for each stream (rule 15). */
typedef struct ngram_gate_args {
    float *gv;                // [n_row, n_stream, n_col] overwritten
    const float *key, *query; // [n_row, ld], streams side by side
    const float *v;           // [n_row, n_col]
    uint32_t ld, n_row, n_stream, n_col;
} ngram_gate_args;

/* x += a + b */
typedef struct add_args {
    float *x;           // [n]
    const float *a, *b; // [n]
    uint64_t n;
} add_args;

/* y = cap * tanh(y / cap), in place. */
typedef struct softcap_args {
    float *y; // [n]
    uint64_t n;
    float cap;
} softcap_args;

/* x *= s[0] */
typedef struct scale_args {
    float *x;       // [n]
    const float *s; // [1]
    uint64_t n;
} scale_args;

#endif
