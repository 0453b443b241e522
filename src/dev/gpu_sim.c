/* A graphics card that is this processor: the third filling of the driver table.
 *
 * Kernels are the text of src/kern compiled for the host (simt.h). What makes it worth having beside the CPU
 * device is everything around kernels:
 *  - Device memory is counted against a limit, filled with garbage, and stands between guard words that are
 *    checked at every sync and free; under ASan the guards are poisoned, so that the first touch is named.
 *  - Nothing runs when it is enqueued. A stream keeps its work and does it when something waits for it, so a
 *    missing wait reads old bytes. A copy from pageable memory takes the bytes at once, one from pinned
 * memory when it runs, as on a real card.
 *  - Capture keeps the work for a graph instead; what a real card refuses in a capture is refused.
 *  - Faults come when the knobs say so (gpu_sim.h), and a lost card stays lost.
 *
 * Threads: a card is its worker's; the current card is the thread's. */
#include "dev/gpu_sim.h"

#include "base/env.h"
#include "base/mem.h"
#include "dev/gpu_drv.h"
#include "dev/gpu_int.h"
#include "dev/simt.h"

#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GUARD_HIDE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define GUARD_SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define GUARD_HIDE(p, n) ((void)(p))
#define GUARD_SHOW(p, n) ((void)(p))
#endif

enum { GUARD_BYTES = 256, GUARD_BYTE = 0xC3, FRESH_BYTE = 0xA5, ALIGN = 256, CARD_MAX = 8, ARGS_MAX = 4096 };

/* As CUDA numbers them where it has the same. */
enum {
    RC_INVALID = 1,
    RC_NO_MEMORY = 2,
    RC_NO_KERNEL = 500,
    RC_NOT_READY = GPU_NOT_READY,
    RC_COPY = 702,
    RC_LOST = 719,
    RC_NO_REGISTER = 801,
    RC_CAPTURE = 900,
    RC_DEADLOCK = 901,
    RC_GUARD = 9001,
    RC_DIVERGED = 9002
};

typedef struct sim_block {
    struct sim_block *next;
    char *base;     // owned: guard, bytes, guard
    size_t n_bytes; // of the bytes, as asked for
} sim_block;

/* Host memory of somebody else that the card may read. */
typedef struct sim_range {
    struct sim_range *next;
    const char *p; // borrowed
    size_t n;
} sim_range;

typedef struct sim_card {
    sim_block *blocks, *pinned;
    sim_range *ranges; // owned
    uint64_t used_bytes;
    uint32_t n_block, n_handle;
    uint64_t n_alloc, n_launch, n_copy;
    int failed; // sticky: a lost card stays lost
} sim_card;

typedef struct sim_queue {
    char *p; // owned
    size_t n, cap;
} sim_queue;

typedef struct sim_stream {
    sim_card *card;
    sim_queue work, captured;
    size_t at; // of work: what is before it was done
    bool capturing, running;
    double us; // simulated time
} sim_stream;

typedef struct sim_event {
    sim_stream *stream;                 // where it was last recorded
    uint64_t n_record, n_done, n_asked; // asked for: a copy is found unfinished once
    double us;
} sim_event;

typedef enum op_kind { OP_COPY, OP_FILL, OP_LAUNCH, OP_RECORD, OP_WAIT } op_kind;

/* One piece of work; its payload (staged bytes, arguments) stands behind it. */
typedef struct sim_op {
    size_t size_bytes; // with the payload, a multiple of 16
    op_kind kind;
    bool link, staged; // a copy over the link; its source is the payload
    void *dst;
    const void *src;
    size_t n;
    unsigned char value;
    simt_call call;
    sim_event *event;
    uint64_t number; // of the event's record
} sim_op;

static sim_knobs g_knobs;
static sim_card g_card[CARD_MAX];
static _Thread_local sim_card *t_card;
static char g_why[200]; // of the last guard or barrier fault

/* ---- memory ---- */

static void guards(const sim_block *b, bool hide) {
    char *after = b->base + GUARD_BYTES + b->n_bytes;
    if (hide) {
        GUARD_HIDE(b->base, GUARD_BYTES);
        GUARD_HIDE(after, GUARD_BYTES);
    } else {
        GUARD_SHOW(b->base, GUARD_BYTES);
        GUARD_SHOW(after, GUARD_BYTES);
    }
}

static bool guards_whole(const sim_block *b) {
    const unsigned char *before = (unsigned char *)b->base, *after = before + GUARD_BYTES + b->n_bytes;
    bool ok = true;
    guards(b, false);
    for (int i = 0; i < GUARD_BYTES; i++) ok &= before[i] == GUARD_BYTE && after[i] == GUARD_BYTE;
    guards(b, true);
    return ok;
}

static int check_block(sim_card *c, const sim_block *b) {
    if (guards_whole(b)) return 0;
    snprintf(g_why, sizeof g_why, "simulated card: a kernel wrote outside a block of %zu bytes", b->n_bytes);
    return c->failed = RC_GUARD;
}

static int check_blocks(sim_card *c) {
    for (const sim_block *b = c->blocks; b && !c->failed; b = b->next) check_block(c, b);
    return c->failed;
}

static sim_block *block_new(sim_block **list, size_t n) {
    sim_block *b = mem_calloc(1, sizeof *b);
    char *base = mem_alloc_aligned(ALIGN, GUARD_BYTES + n + GUARD_BYTES);
    if (!b || !base) {
        mem_free(b);
        mem_free(base);
        return NULL;
    }
    *b = (sim_block){.next = *list, .base = base, .n_bytes = n};
    memset(base, GUARD_BYTE, GUARD_BYTES);
    memset(base + GUARD_BYTES, FRESH_BYTE, n);
    memset(base + GUARD_BYTES + n, GUARD_BYTE, GUARD_BYTES);
    guards(b, true);
    return *list = b;
}

static sim_block **block_at(sim_block **list, const void *p) {
    for (sim_block **b = list; *b; b = &(*b)->next) {
        if ((*b)->base + GUARD_BYTES == (const char *)p) return b;
    }
    return NULL;
}

static void block_drop(sim_block **at) {
    sim_block *b = *at;
    *at = b->next;
    guards(b, false);
    mem_free(b->base);
    mem_free(b);
}

/* The block that holds [p, p + n), or NULL. */
static const sim_block *block_of(const sim_block *list, const void *p, size_t n) {
    for (const sim_block *b = list; b; b = b->next) {
        const char *at = b->base + GUARD_BYTES;
        if ((const char *)p >= at && (const char *)p + n <= at + b->n_bytes) return b;
    }
    return NULL;
}

static int mem_alloc_card(void **p, size_t n) {
    sim_card *c = t_card;
    *p = NULL;
    if (n == 0) return RC_INVALID;
    if (++c->n_alloc == g_knobs.no_memory || n > g_knobs.vram_bytes - c->used_bytes) return RC_NO_MEMORY;
    sim_block *b = block_new(&c->blocks, n);
    if (!b) return RC_NO_MEMORY;
    c->used_bytes += n;
    c->n_block++;
    *p = b->base + GUARD_BYTES;
    return 0;
}

static int mem_info(size_t *n_free, size_t *n_total) {
    *n_total = g_knobs.vram_bytes;
    *n_free = g_knobs.vram_bytes - t_card->used_bytes;
    return 0;
}

static int pinned_alloc(void **p, size_t n, unsigned flags) {
    (void)flags;
    bool refused = ++t_card->n_alloc == g_knobs.no_memory;
    sim_block *b = refused ? NULL : block_new(&t_card->pinned, n);
    *p = b ? b->base + GUARD_BYTES : NULL;
    t_card->n_block += b != NULL;
    return b ? 0 : RC_NO_MEMORY;
}

static int pinned_free(void *p) {
    sim_block **at = block_at(&t_card->pinned, p);
    if (!at) return RC_INVALID;
    block_drop(at);
    t_card->n_block--;
    return 0;
}

static int host_register(void *p, size_t n, unsigned flags) {
    (void)flags;
    if (g_knobs.no_register) return RC_NO_REGISTER;
    for (const sim_range *r = t_card->ranges; r; r = r->next) {
        if ((char *)p < r->p + r->n && r->p < (char *)p + n) return RC_INVALID; // in one already
    }
    sim_range *r = mem_calloc(1, sizeof *r);
    if (!r) return RC_NO_MEMORY;
    *r = (sim_range){t_card->ranges, p, n};
    t_card->ranges = r;
    t_card->n_handle++;
    return 0;
}

static int host_unregister(void *p) {
    for (sim_range **at = &t_card->ranges; *at; at = &(*at)->next) {
        sim_range *r = *at;
        if (r->p != (char *)p) continue;
        *at = r->next;
        mem_free(r);
        t_card->n_handle--;
        return 0;
    }
    return RC_INVALID;
}

static bool in_range(const sim_card *c, const void *p, size_t n) {
    for (const sim_range *r = c->ranges; r; r = r->next) {
        if ((const char *)p >= r->p && (const char *)p + n <= r->p + r->n) return true;
    }
    return false;
}

static int host_pointer(void **card, void *host, unsigned flags) {
    (void)flags;
    *card = host;
    return block_of(t_card->pinned, host, 1) || in_range(t_card, host, 1) ? 0 : RC_INVALID;
}

/* ---- streams ---- */

static sim_op *push(sim_stream *s, const sim_op *op, const void *payload, size_t n) {
    sim_queue *q = s->capturing ? &s->captured : &s->work;
    size_t size = (sizeof *op + n + 15) & ~(size_t)15;
    if (q->n + size > q->cap) {
        size_t cap = (q->n + size) * 2;
        char *p = mem_realloc(q->p, cap);
        if (!p) return NULL;
        q->p = p;
        q->cap = cap;
    }
    sim_op *at = (sim_op *)(void *)(q->p + q->n);
    *at = *op;
    at->size_bytes = size;
    if (n) memcpy(at + 1, payload, n);
    q->n += size;
    return at;
}

static int enqueue(sim_stream *s, const sim_op *op, const void *payload, size_t n) {
    if (s->card->failed) return s->card->failed;
    return push(s, op, payload, n) ? 0 : RC_NO_MEMORY;
}

static void garble(sim_card *c, const void *args) {
    void *dst;
    memcpy(&dst, args, sizeof dst); // destination first, in every record
    const sim_block *b = block_of(c->blocks, dst, 4);
    if (!b) return;
    size_t room = (size_t)(b->base + GUARD_BYTES + b->n_bytes - (char *)dst);
    memset(dst, 0xFF, room < 256 ? room : 256);
}

static int run_launch(sim_stream *s, sim_op *op) {
    sim_card *c = s->card;
    if (++c->n_launch == g_knobs.lost) return RC_LOST;
    op->call.args = op + 1;
    if (!simt_run(g_knobs.wave, &op->call, g_why, sizeof g_why)) return RC_DIVERGED;
    if (c->n_launch == g_knobs.garbage) garble(c, op->call.args);
    s->us += g_knobs.latency_us;
    return 0;
}

static int run_copy(sim_stream *s, const sim_op *op) {
    if (op->link && ++s->card->n_copy == g_knobs.copy_error) return RC_COPY;
    memmove(op->dst, op->staged ? (const void *)(op + 1) : op->src, op->n);
    s->us += g_knobs.latency_us + (double)op->n / (op->link ? g_knobs.link_gbps : g_knobs.memory_gbps) * 1e-3;
    return 0;
}

static int run_until(sim_stream *s, const sim_event *e, uint64_t number);

static int run_op(sim_stream *s, sim_op *op) {
    switch (op->kind) {
    case OP_COPY: return run_copy(s, op);
    case OP_FILL: memset(op->dst, op->value, op->n); return 0;
    case OP_LAUNCH: return run_launch(s, op);
    case OP_RECORD:
        op->event->n_done = op->number;
        op->event->us = s->us;
        return 0;
    case OP_WAIT: break;
    }
    if (op->event->n_done < op->number && op->event->stream != s) {
        int rc = run_until(op->event->stream, op->event, op->number);
        if (rc) return rc;
        if (op->event->n_done < op->number) return RC_DEADLOCK;
    }
    if (op->event->us > s->us) s->us = op->event->us;
    return 0;
}

/* What was enqueued, in order, until the event's record of this number is done (NULL: all of it): streams do
 * not run ahead of what somebody waits for, and never past a wait of their own. */
static int run_until(sim_stream *s, const sim_event *e, uint64_t number) {
    sim_card *c = s->card;
    if (s->running) return 0; // the one that waits is behind what it waits for
    s->running = true;
    while (s->at < s->work.n && !c->failed && !(e && e->n_done >= number)) {
        sim_op *op = (sim_op *)(void *)(s->work.p + s->at);
        s->at += op->size_bytes;
        int rc = run_op(s, op); // nothing is pushed meanwhile: kernels cannot
        if (rc) c->failed = rc;
    }
    s->running = false;
    if (s->at == s->work.n || c->failed) s->at = s->work.n = 0;
    return c->failed;
}

static int run_work(sim_stream *s) {
    return run_until(s, NULL, 0);
}

static int stream_new(void **out, unsigned flags) {
    (void)flags;
    sim_stream *s = mem_calloc(1, sizeof *s);
    if (s) s->card = t_card, t_card->n_handle++;
    *out = s;
    return s ? 0 : RC_NO_MEMORY;
}

static int stream_free(void *stream) {
    sim_stream *s = stream;
    run_work(s);
    s->card->n_handle--;
    mem_free(s->work.p);
    mem_free(s->captured.p);
    mem_free(s);
    return 0;
}

static int stream_sync(void *stream) {
    sim_stream *s = stream;
    if (s->capturing) return RC_CAPTURE;
    run_work(s);
    return check_blocks(s->card);
}

static int mem_free_card(void *p) {
    sim_card *c = t_card;
    sim_block **at = block_at(&c->blocks, p);
    if (!at) return RC_INVALID;
    int rc = check_block(c, *at);
    c->used_bytes -= (*at)->n_bytes;
    c->n_block--;
    block_drop(at);
    return rc;
}

/* ---- copies ---- */

static int to_device(void *dst, const void *src, size_t n, void *stream) {
    sim_stream *s = stream;
    if (!block_of(s->card->blocks, dst, n)) return RC_INVALID;
    sim_op op = {.kind = OP_COPY, .dst = dst, .src = src, .n = n, .link = true};
    if (block_of(s->card->pinned, src, n) || in_range(s->card, src, n)) return enqueue(s, &op, NULL, 0);
    if (s->capturing) return RC_CAPTURE;
    op.staged = true;
    return enqueue(s, &op, src, n);
}

static int to_host(void *dst, const void *src, size_t n, void *stream) {
    sim_stream *s = stream;
    bool pinned = block_of(s->card->pinned, dst, n) != NULL;
    if (!block_of(s->card->blocks, src, n)) return RC_INVALID;
    if (!pinned && s->capturing) return RC_CAPTURE;
    int rc = enqueue(s, &(sim_op){.kind = OP_COPY, .dst = dst, .src = src, .n = n, .link = true}, NULL, 0);
    return rc || pinned ? rc : run_work(s);
}

static int on_device(void *dst, const void *src, size_t n, void *stream) {
    sim_stream *s = stream;
    if (!block_of(s->card->blocks, dst, n) || !block_of(s->card->blocks, src, n)) return RC_INVALID;
    return enqueue(s, &(sim_op){.kind = OP_COPY, .dst = dst, .src = src, .n = n}, NULL, 0);
}

static int fill(void *dst, unsigned char v, size_t n, void *stream) {
    sim_stream *s = stream;
    if (!block_of(s->card->blocks, dst, n)) return RC_INVALID;
    return enqueue(s, &(sim_op){.kind = OP_FILL, .dst = dst, .value = v, .n = n}, NULL, 0);
}

/* ---- events ---- */

static int event_new(void **out, unsigned flags) {
    (void)flags;
    *out = mem_calloc(1, sizeof(sim_event));
    t_card->n_handle += *out != NULL;
    return *out ? 0 : RC_NO_MEMORY;
}

static int event_free(void *e) {
    mem_free(e);
    t_card->n_handle--;
    return 0;
}

static int event_record(void *event, void *stream) {
    sim_event *e = event;
    e->stream = stream;
    return enqueue(stream, &(sim_op){.kind = OP_RECORD, .event = e, .number = ++e->n_record}, NULL, 0);
}

static int stream_wait(void *stream, void *event, unsigned flags) {
    (void)flags;
    sim_event *e = event;
    return enqueue(stream, &(sim_op){.kind = OP_WAIT, .event = e, .number = e->n_record}, NULL, 0);
}

static int event_sync(void *event) {
    sim_event *e = event;
    return e->n_done < e->n_record ? run_until(e->stream, e, e->n_record) : 0;
}

/* Time passes while someone asks: not yet, then done. */
static int event_query(void *event) {
    sim_event *e = event;
    if (e->n_done >= e->n_record) return e->stream ? e->stream->card->failed : 0;
    if (e->n_asked != e->n_record) {
        e->n_asked = e->n_record;
        return RC_NOT_READY;
    }
    return run_until(e->stream, e, e->n_record);
}

static int event_ms(float *ms, void *from, void *to) {
    *ms = (float)((((sim_event *)to)->us - ((sim_event *)from)->us) * 1e-3);
    return 0;
}

/* ---- kernels ---- */

static int module_load(void **m, const void *image) {
    (void)image; // the kernels are in this program
    *m = t_card;
    t_card->n_handle++;
    return 0;
}

static int module_free(void *m) {
    ((sim_card *)m)->n_handle--;
    return 0;
}

static int function(void **f, void *module, const char *name) {
    (void)module;
    for (uintptr_t k = 0; k < GPU_KERNEL_N; k++) {
        if (strcmp(gpu_kernel_name[k], name) != 0) continue;
        *f = (void *)(k + 1);
        return 0;
    }
    return RC_NO_KERNEL;
}

static int launch(void *f, const gpu_launch_shape *s, void *stream, const void *args, size_t n_args) {
    if (n_args > ARGS_MAX || !f || s->block[0] == 0 || s->grid[0] == 0) return RC_INVALID;
    if (s->block[0] % 64 != 0 || s->block[1] != 1 || s->block[2] != 1 || s->shared_bytes) return RC_INVALID;
    simt_call c = {.kernel = (uint32_t)((uintptr_t)f - 1),
                   .grid = {s->grid[0], s->grid[1], s->grid[2]},
                   .n_thread = s->block[0],
                   .n_args = n_args};
    return enqueue(stream, &(sim_op){.kind = OP_LAUNCH, .call = c}, args, n_args);
}

static int shared_allow(void *f, uint32_t n_bytes) {
    (void)f;
    return n_bytes > 65536 ? RC_INVALID : 0;
}

/* ---- graphs: the captured queue itself ---- */

static int capture_begin(void *stream, int mode) {
    (void)mode;
    sim_stream *s = stream;
    if (s->capturing) return RC_CAPTURE;
    s->capturing = true;
    s->captured.n = 0;
    return 0;
}

static int capture_end(void *stream, void **graph) {
    sim_stream *s = stream;
    sim_queue *g = mem_calloc(1, sizeof *g);
    *graph = g;
    if (!s->capturing) return RC_CAPTURE;
    s->capturing = false;
    if (!g) return RC_NO_MEMORY;
    *g = s->captured;
    s->captured = (sim_queue){0};
    s->card->n_handle++;
    return s->card->failed;
}

static int graph_free(void *graph) {
    sim_queue *g = graph;
    mem_free(g->p);
    mem_free(g);
    t_card->n_handle--;
    return 0;
}

static int exec_new(void **exec, void *graph, unsigned long long flags) {
    (void)flags;
    const sim_queue *g = graph;
    sim_queue *e = mem_calloc(1, sizeof *e);
    *exec = e;
    if (e) e->p = mem_alloc(g->n + 1);
    if (!e || !e->p) return RC_NO_MEMORY;
    memcpy(e->p, g->p, g->n);
    e->n = e->cap = g->n;
    t_card->n_handle++;
    return 0;
}

static int exec_launch(void *exec, void *stream) {
    const sim_queue *e = exec;
    for (size_t at = 0; at < e->n;) {
        const sim_op *op = (const sim_op *)(const void *)(e->p + at);
        int rc = enqueue(stream, op, op + 1, op->size_bytes - sizeof *op);
        if (rc) return rc;
        at += op->size_bytes;
    }
    return 0;
}

/* ---- cards ---- */

static int init(unsigned flags) {
    (void)flags;
    return 0;
}
static int version(int *v) {
    *v = 1;
    return 0;
}
static int count(int *n) {
    *n = g_knobs.n_card;
    return 0;
}
static int name(char *s, int n, int card) {
    (void)card;
    snprintf(s, (size_t)n, "simulated card");
    return 0;
}
static int total(size_t *n, int card) {
    (void)card;
    *n = g_knobs.vram_bytes;
    return 0;
}
static int attribute(int *v, int which, int card) {
    (void)which, (void)card;
    *v = 0;
    return RC_INVALID;
}
static int bus_id(char *s, int n, int card) {
    (void)card;
    snprintf(s, (size_t)n, "%s", "");
    return 0;
}

static int card_open(void **ctx, int card) {
    *ctx = t_card = &g_card[card];
    return t_card->failed;
}
static void card_close(void *ctx, int card) {
    (void)ctx, (void)card;
}
static int enter(void *ctx, int card) {
    (void)card;
    t_card = ctx;
    return 0;
}

static const char *error_name(int rc) {
    switch (rc) {
    case RC_INVALID: return "invalid value";
    case RC_NO_MEMORY: return "out of memory";
    case RC_NO_KERNEL: return "no such kernel";
    case RC_NOT_READY: return "not ready";
    case RC_NO_REGISTER: return "memory cannot be registered";
    case RC_COPY: return "a copy did not complete";
    case RC_LOST: return "the card is lost";
    case RC_CAPTURE: return "not allowed while capturing";
    case RC_DEADLOCK: return "streams wait for each other";
    case RC_GUARD:
    case RC_DIVERGED: return g_why;
    default: return "unknown";
    }
}

/* Guards and barriers are our own mistakes, not the card's. */
static mica_status status_of(int rc) {
    if (rc == RC_NO_MEMORY) return MICA_E_NOMEM;
    return rc == RC_GUARD || rc == RC_DIVERGED || rc == RC_DEADLOCK ? MICA_E_INTERNAL : MICA_E_DEVICE;
}

static void describe(gpu_card *c) {
    snprintf(c->arch, sizeof c->arch, "%s", g_knobs.arch);
    c->wave = g_knobs.wave;
    c->n_mp = g_knobs.n_mp;
    c->block_threads = 1024;
    c->shared_bytes = 65536;
}

mica_status gpu_sim_configure(const char *text, mica_error *err) {
    gpu_drv *v = (gpu_drv *)(uintptr_t)gpu_drv_get(GPU_SIM);
    TRY(sim_knobs_parse(&g_knobs, text, err));
    for (int i = 0; i < CARD_MAX; i++) {
        g_card[i].n_alloc = g_card[i].n_launch = g_card[i].n_copy = 0;
        g_card[i].failed = 0;
    }
    v->n_card = g_knobs.n_card;
    return MICA_OK;
}

sim_held gpu_sim_held(int card) {
    const sim_card *c = &g_card[card];
    return (sim_held){c->used_bytes, c->n_block, c->n_handle};
}

static void fill_calls(gpu_drv *v) {
    v->init = init;
    v->version = version;
    v->count = count;
    v->name = name;
    v->total = total;
    v->attribute = attribute;
    v->bus_id = bus_id;
    v->mem_info = mem_info;
    v->mem_alloc = mem_alloc_card;
    v->mem_free = mem_free_card;
    v->pinned_alloc = pinned_alloc;
    v->pinned_free = pinned_free;
    v->to_device = to_device;
    v->to_host = to_host;
    v->on_device = on_device;
    v->fill = fill;
    v->stream_new = stream_new;
    v->stream_free = stream_free;
    v->stream_sync = stream_sync;
    v->stream_wait = stream_wait;
    v->event_new = event_new;
    v->event_free = event_free;
    v->event_record = event_record;
    v->event_sync = event_sync;
    v->event_ms = event_ms;
    v->event_query = event_query;
    v->host_register = host_register;
    v->host_unregister = host_unregister;
    v->host_pointer = host_pointer;
    v->module_load = module_load;
    v->module_free = module_free;
    v->function = function;
    v->capture_begin = capture_begin;
    v->capture_end = capture_end;
    v->graph_free = graph_free;
    v->exec_new = exec_new;
    v->exec_free = graph_free; // the same thing here
    v->exec_launch = exec_launch;
}

void gpu_sim_fill(gpu_drv *v) {
    mica_error err;
    v->id = "sim";
    v->error_name = error_name;
    if (sim_knobs_parse(&g_knobs, env_get("MICA_SIM"), &err) != MICA_OK) {
        snprintf(v->why, sizeof v->why, "%.230s", err.text);
        return;
    }
    fill_calls(v);
    v->card_open = card_open;
    v->card_close = card_close;
    v->enter = enter;
    v->launch = launch;
    v->shared_allow = shared_allow;
    v->status_of = status_of;
    v->describe = describe;
    v->n_card = g_knobs.n_card;
    v->code_version = 1;
    v->ok = true;
}
