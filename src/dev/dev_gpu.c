/* A graphics card as a device: its memory, the weights on it, scratch, launches, and the check that a step's
 * values were finite. What an operation launches is in gpu_ops*.c; what a driver is, in gpu_drv.h.
 *
 * Everything is enqueued in one stream. Nothing waits but downloads and dev_sync. Weights go through two
 * pinned buffers, so that the copy of one piece over the link overlaps with reading the next from the file.
 */
#include "dev/gpu_tiers.h"

#include "base/log.h"
#include "base/mem.h"
#include "dev/gpu_code.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL_NAME(name) #name,
const char *const gpu_kernel_name[GPU_KERNEL_N] = {GPU_KERNELS(KERNEL_NAME)};
#undef KERNEL_NAME

#define BAD_TEXT(id, text) text,
static const char *const g_bad_text[GPU_BAD_N] = {"", GPU_BAD_LIST(BAD_TEXT)};
#undef BAD_TEXT

/* The current card is a property of the thread; a device may move between threads. */
static _Thread_local uint64_t t_entered;

mica_status gpu_enter(gpu *g, mica_error *err) {
    gpu_own *o = g->own;
    if (t_entered == o->serial) return MICA_OK;
    int rc = o->v->enter(o->ctx, o->card.index);
    if (rc) return gpu_fail(g, rc, err, "card");
    t_entered = o->serial;
    return MICA_OK;
}

mica_status gpu_fail(gpu *g, int rc, mica_error *err, const char *what) {
    const gpu_drv *v = g->own->v;
    return fail(err, v->status_of(rc), "device %s: %s: %s", g->own->card.id, what, v->error_name(rc));
}

/* ---- memory ---- */

mica_status gpu_take(gpu *g, void **out, size_t n, const char *what, mica_error *err) {
    gpu_own *o = g->own;
    *out = NULL;
    if (o->n_taken == o->cap_taken) {
        uint32_t cap = o->cap_taken ? 2 * o->cap_taken : 256;
        void **p = mem_realloc(o->taken, cap * sizeof *p);
        if (!p) return fail(err, MICA_E_NOMEM, "device %s: out of memory", o->card.id);
        o->taken = p;
        o->cap_taken = cap;
    }
    int rc = o->v->mem_alloc(out, n ? n : 1);
    if (rc) {
        size_t n_free = 0, n_total = 0;
        *out = NULL;
        o->v->mem_info(&n_free, &n_total);
        return fail(err, o->v->status_of(rc), "device %s: %s: allocate %zu bytes, %zu of %zu free: %s",
                    o->card.id, what, n, n_free, n_total, o->v->error_name(rc));
    }
    o->taken[o->n_taken++] = *out;
    return MICA_OK;
}

mica_status gpu_alloc(dev *d, void **out, size_t n_bytes, const char *what, mica_error *err) {
    gpu *g = (gpu *)d;
    TRY(gpu_enter(g, err));
    TRY(gpu_take(g, out, n_bytes, what, err));
    int rc = g->own->v->fill(*out, 0, n_bytes ? n_bytes : 1, g->own->stream);
    return rc ? gpu_fail(g, rc, err, what) : MICA_OK;
}

/* The stream may still use it. */
static void release(dev *d, void *p) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    if (!p || gpu_enter(g, NULL) != MICA_OK) return;
    o->v->stream_sync(o->stream);
    for (uint32_t i = o->n_taken; i-- > 0;) {
        if (o->taken[i] != p) continue;
        o->taken[i] = o->taken[--o->n_taken];
        o->v->mem_free(p);
        return;
    }
}

static mica_status upload(dev *d, void *dst, const void *host, size_t n_bytes, mica_error *err) {
    gpu *g = (gpu *)d;
    TRY(gpu_enter(g, err));
    int rc = g->own->v->to_device(dst, host, n_bytes, g->own->stream);
    return rc ? gpu_fail(g, rc, err, "copy to the card") : MICA_OK;
}

static mica_status download(dev *d, void *host, const void *src, size_t n_bytes, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    TRY(gpu_enter(g, err));
    int rc = o->v->to_host(host, src, n_bytes, o->stream);
    if (rc == 0) rc = o->v->stream_sync(o->stream);
    return rc ? gpu_fail(g, rc, err, "copy from the card") : MICA_OK;
}

static mica_status copy(dev *d, void *dst, const void *src, size_t n_bytes, mica_error *err) {
    gpu *g = (gpu *)d;
    TRY(gpu_enter(g, err));
    int rc = g->own->v->on_device(dst, src, n_bytes, g->own->stream);
    return rc ? gpu_fail(g, rc, err, "copy on the card") : MICA_OK;
}

static mica_status zero(dev *d, void *dst, size_t n_bytes, mica_error *err) {
    gpu *g = (gpu *)d;
    TRY(gpu_enter(g, err));
    int rc = g->own->v->fill(dst, 0, n_bytes, g->own->stream);
    return rc ? gpu_fail(g, rc, err, "clearing memory") : MICA_OK;
}

static mica_status sync(dev *d, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    TRY(gpu_enter(g, err));
    int rc = o->v->to_host(o->bad_host, g->bad, sizeof *g->bad, o->stream);
    if (rc == 0) rc = o->v->stream_sync(o->stream);
    if (rc) return gpu_fail(g, rc, err, "step");
    gpu_moves_look(g);
    uint32_t bad = *o->bad_host;
    if (bad == GPU_BAD_NONE) return MICA_OK;
    TRY(zero(d, g->bad, sizeof *g->bad, err));
    return fail(err, MICA_E_DEVICE, "step: %s: a value is not finite",
                bad < GPU_BAD_N ? g_bad_text[bad] : "unknown place");
}

/* ---- weights ---- */

mica_status gpu_put_file_bytes(gpu *g, void *dst, const void *host, size_t n, mica_error *err) {
    gpu_own *o = g->own;
    for (size_t at = 0; at < n;) {
        size_t piece = n - at < GPU_STAGE_BYTES ? n - at : GPU_STAGE_BYTES;
        uint32_t k = o->stage_next ^= 1u;
        int rc = o->v->event_sync(o->staged[k]);
        if (rc == 0) memcpy(o->stage[k], (const char *)host + at, piece);
        if (rc == 0) rc = o->v->to_device((char *)dst + at, o->stage[k], piece, o->stream);
        if (rc == 0) rc = o->v->event_record(o->staged[k], o->stream);
        if (rc) return gpu_fail(g, rc, err, "copy of weights to the card");
        at += piece;
        o->loaded_bytes += piece;
        if (o->loaded) o->loaded(o->loaded_user, o->loaded_bytes);
    }
    return MICA_OK;
}

static mica_status bind(dev *d, const void **out, const void *host, size_t n_bytes, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    for (uint32_t i = 0; i < o->n_bound; i++) { // tied weights are one
        const bound_weight *b = &o->bound[i];
        if ((const char *)host < b->host || (const char *)host + n_bytes > b->host + b->n_bytes) continue;
        *out = b->at + ((const char *)host - b->host);
        return MICA_OK;
    }
    if (o->n_bound == o->cap_bound) {
        uint32_t cap = o->cap_bound ? 2 * o->cap_bound : 256;
        bound_weight *p = mem_realloc(o->bound, cap * sizeof *p);
        if (!p) return fail(err, MICA_E_NOMEM, "device %s: out of memory", o->card.id);
        o->bound = p;
        o->cap_bound = cap;
    }
    void *at;
    TRY(gpu_enter(g, err));
    TRY(gpu_take(g, &at, n_bytes, "weights", err));
    TRY(gpu_put_file_bytes(g, at, host, n_bytes, err));
    o->bound[o->n_bound++] = (bound_weight){.host = host, .at = at, .n_bytes = n_bytes};
    *out = at;
    return MICA_OK;
}

/* ---- launches ---- */

mica_status gpu_launch(gpu *g, const gpu_call *c, mica_error *err) {
    gpu_own *o = g->own;
    gpu_launch_shape s = {.grid = {c->grid.x, c->grid.y, c->grid.z},
                          .block = {c->block.x, c->block.y, c->block.z},
                          .shared_bytes = (uint32_t)c->shared_bytes};
    assert(c->kernel < GPU_KERNEL_N && c->args_bytes <= 4096);
    assert(c->block.x * c->block.y * c->block.z % 64 == 0 && c->grid.x * c->grid.y * c->grid.z > 0);
    TRY(gpu_enter(g, err));
    int rc = 0;
    if (c->shared_bytes > o->shared_allowed[c->kernel]) {
        rc = o->v->shared_allow(o->function[c->kernel], s.shared_bytes);
        if (rc == 0) o->shared_allowed[c->kernel] = s.shared_bytes;
    }
    if (rc == 0) rc = o->v->launch(o->function[c->kernel], &s, o->stream, c->args, c->args_bytes);
    if (rc == 0) return MICA_OK;
    return fail(err, o->v->status_of(rc), "device %s: kernel %s, grid %u x %u x %u, block %u: %s", o->card.id,
                gpu_kernel_name[c->kernel], c->grid.x, c->grid.y, c->grid.z,
                c->block.x * c->block.y * c->block.z, o->v->error_name(rc));
}

/* ---- open and close ---- */

static void close_gpu(dev *d) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    if (o->opened && gpu_enter(g, NULL) == MICA_OK) {
        if (o->stream) o->v->stream_sync(o->stream);
        gpu_graphs_fini(g);
        gpu_tiers_fini(g);
        while (o->n_taken > 0) o->v->mem_free(o->taken[--o->n_taken]);
        for (int k = 0; k < 2; k++) {
            if (o->stage[k]) o->v->pinned_free(o->stage[k]);
            if (o->staged[k]) o->v->event_free(o->staged[k]);
        }
        if (o->bad_host) o->v->pinned_free(o->bad_host);
        if (o->stream) o->v->stream_free(o->stream);
        if (o->module) o->v->module_free(o->module);
    }
    if (o->opened) o->v->card_close(o->ctx, o->card.index);
    t_entered = 0;
    mem_free(o->taken);
    mem_free(o->bound);
    mem_free(o);
    mem_free(g);
}

static mica_status take_module(gpu *g, mica_error *err) {
    gpu_own *o = g->own;
    void *image;
    TRY(gpu_code_get(&image, &o->card, err));
    int rc = o->v->module_load(&o->module, image);
    mem_free(image);
    if (rc) return gpu_fail(g, rc, err, "loading the kernels");
    for (int k = 0; k < GPU_KERNEL_N; k++) {
        rc = o->v->function(&o->function[k], o->module, gpu_kernel_name[k]);
        o->shared_allowed[k] = 48 << 10;
        if (rc) return gpu_fail(g, rc, err, gpu_kernel_name[k]);
    }
    return MICA_OK;
}

static mica_status take_host_side(gpu *g, mica_error *err) {
    gpu_own *o = g->own;
    int rc = o->v->stream_new(&o->stream, GPU_STREAM_APART);
    if (rc) return gpu_fail(g, rc, err, "stream");
    rc = o->v->pinned_alloc((void **)&o->bad_host, 64, 0);
    for (int k = 0; k < 2 && rc == 0; k++) {
        rc = o->v->event_new(&o->staged[k], GPU_EVENT_UNTIMED);
        if (rc == 0) rc = o->v->pinned_alloc(&o->stage[k], GPU_STAGE_BYTES, 0);
        if (rc == 0) rc = o->v->event_record(o->staged[k], o->stream);
    }
    return rc ? gpu_fail(g, rc, err, "pinned memory") : MICA_OK;
}

static mica_status take_device_side(gpu *g, mica_error *err) {
    g->scratch_bytes = gpu_scratch_bytes(&g->limits, &g->caps);
    TRY(gpu_alloc(&g->d, (void **)&g->bad, 64, "flags", err));
    return gpu_alloc(&g->d, &g->scratch, g->scratch_bytes, "scratch of kernels", err);
}

static gpu_caps caps_of(const gpu_card *c) {
    gpu_caps k = {.wave = c->wave, .n_mp = c->n_mp, .shared_bytes = c->shared_bytes};
    snprintf(k.arch, sizeof k.arch, "%s", c->arch);
    k.block_threads = c->block_threads;
    k.dot4 = true; // all that are usable
    k.mma = c->kind == GPU_CUDA ? atoi(c->arch + 3) >= 80
                                : strncmp(c->arch, "gfx11", 5) == 0 || strncmp(c->arch, "gfx12", 5) == 0;
    return k;
}

/* Operations of the one family that runs on the CPU alone; dev_gpu_open has refused it before. */
#define CPU_ALONE(X)                                                                                         \
    X(group_norm)                                                                                            \
    X(silu) X(spread) X(hyper_read) X(hyper_write) X(index_keys) X(index_select) X(ngram) X(ngram_gate) X(add)
#define CPU_ALONE_BODY(op)                                                                                   \
    static mica_status no_##op(dev *d, const op##_args *a, mica_error *err) {                                \
        (void)a;                                                                                             \
        return fail(err, MICA_E_UNSUPPORTED, "device %s: " #op ": on the CPU alone",                         \
                    ((gpu *)d)->own->card.id);                                                               \
    }
CPU_ALONE(CPU_ALONE_BODY)
#undef CPU_ALONE_BODY

static const dev_ops g_gpu_ops = {
    .name = "gpu",
    .close = close_gpu,
    .alloc = gpu_alloc,
    .release = release,
    .bind = bind,
    .experts_bind = gpu_experts_bind,
    .experts_take = gpu_experts_take,
    .experts_fill = gpu_experts_fill,
    .experts_move = gpu_experts_move,
    .experts_moved = gpu_experts_moved,
    .experts_stats = gpu_experts_stats,
    .step_begin = gpu_step_begin,
    .step_end = gpu_step_end,
    .upload = upload,
    .download = download,
    .copy = copy,
    .zero = zero,
    .sync = sync,
    .embed = gpu_op_embed,
    .norm = gpu_op_norm,
    .quantise = gpu_op_quantise,
    .add_norm = gpu_op_add_norm,
    .linear = gpu_op_linear,
    .rope_table = gpu_op_rope_table,
    .rope_kv = gpu_op_rope_kv,
    .attn = gpu_op_attn,
    .glu = gpu_op_glu,
    .router = gpu_op_router,
    .experts = gpu_op_experts,
    .conv = gpu_op_conv,
    .delta = gpu_op_delta,
    .gate_norm = gpu_op_gate_norm,
    .gated_add = gpu_op_gated_add,
#define CPU_ALONE_ENTRY(op) .op = no_##op,
    CPU_ALONE(CPU_ALONE_ENTRY)
#undef CPU_ALONE_ENTRY
        .softcap = gpu_op_softcap,
    .scale = gpu_op_scale,
};

gpu_kind gpu_kind_of(dev_kind kind) {
    return kind == DEV_HIP ? GPU_HIP : kind == DEV_CUDA ? GPU_CUDA : GPU_SIM;
}

mica_status dev_gpu_open(dev **out, const dev_config *cfg, mica_error *err) {
    static uint64_t serial; // worker only
    *out = NULL;
    gpu_card card;
    mica_status st = MICA_OK;
    TRY(gpu_card_get(&card, gpu_kind_of(cfg->kind), cfg->card, err));
    if (cfg->limits.n_index_keep)
        return fail(err, MICA_E_UNSUPPORTED,
                    "device %s: networks with an attention index run on the CPU alone", card.id);
    gpu *g = mem_calloc(1, sizeof *g);
    gpu_own *o = mem_calloc(1, sizeof *o);
    if (!g || !o) {
        mem_free(g);
        mem_free(o);
        return fail(err, MICA_E_NOMEM, "device %s: out of memory", card.id);
    }
    *o = (gpu_own){.v = card.drv, .card = card, .serial = ++serial, .experts = cfg->experts};
    o->loaded = cfg->loaded;
    o->loaded_user = cfg->loaded_user;
    o->routed = cfg->routed;
    o->routed_user = cfg->routed_user;
    o->n_thread = cfg->n_thread;
    g->d.ops = &g_gpu_ops;
    g->own = o;
    g->caps = caps_of(&card);
    g->limits = cfg->limits;
    g->n_kv = KV_PAGE;
    snprintf(g->d.what, sizeof g->d.what, "%s (%s, %s)", card.name, card.id, card.arch);
    int rc = o->v->card_open(&o->ctx, card.index);
    if (rc) {
        st = gpu_fail(g, rc, err, "card");
        goto done;
    }
    o->opened = true;
    t_entered = o->serial;
    log_debug("device", "%s: %s", card.id, card.drv->library);
    TRY_GOTO(take_host_side(g, err), done);
    TRY_GOTO(take_module(g, err), done);
    TRY_GOTO(take_device_side(g, err), done);
    *out = &g->d;
    g = NULL;
done:
    if (g) close_gpu(&g->d);
    return st;
}

size_t dev_gpu_fixed_bytes(const dev_config *cfg, const gpu_card *card) {
    gpu_caps k = caps_of(card);
    return gpu_scratch_bytes(&cfg->limits, &k);
}
