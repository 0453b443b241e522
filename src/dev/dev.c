/* Opening a device by kind, and the memory operations of devices that live in host memory. */
#include "dev/dev_int.h"

#include "base/mem.h"
#include "dev/gpu_own.h"

#include <stdio.h>
#include <string.h>

mica_status dev_open(dev **out, const dev_config *cfg, mica_error *err) {
    *out = NULL;
    if (cfg->kind == DEV_CPU) return dev_cpu_open(out, cfg, err);
    if (cfg->kind == DEV_REF) return dev_ref_open(out, cfg, err);
    return dev_gpu_open(out, cfg, err);
}

mica_status dev_memory_get(dev_memory *out, const dev_config *cfg, mica_error *err) {
    gpu_card c;
    *out = (dev_memory){0};
    TRY(gpu_card_get(&c, gpu_kind_of(cfg->kind), cfg->card, err));
    snprintf(out->id, sizeof out->id, "%s", c.id);
    out->total_bytes = c.vram_total;
    out->free_bytes = c.vram_free;
    out->fixed_bytes = dev_gpu_fixed_bytes(cfg, &c);
    out->display = c.display;
    out->integrated = c.integrated;
    return MICA_OK;
}

void dev_choose(dev_kind *kind, int *card, char *why, size_t n_why) {
    gpu_card c;
    *kind = DEV_CPU;
    *card = 0;
    if (!gpu_card_choose(&c, why, n_why)) return;
    *kind = c.kind == GPU_HIP ? DEV_HIP : DEV_CUDA;
    *card = c.index;
}

void dev_close(dev *d) {
    if (d) d->ops->close(d);
}

mica_status host_alloc(dev *d, void **out, size_t n_bytes, const char *what, mica_error *err) {
    (void)d;
    *out = mem_pages_alloc(n_bytes);
    if (!*out) return fail(err, MICA_E_NOMEM, "%s: allocate %zu bytes: out of memory", what, n_bytes);
    return MICA_OK;
}

void host_release(dev *d, void *p) {
    (void)d;
    mem_pages_free(p);
}

mica_status host_bind(dev *d, const void **out, const void *host, size_t n_bytes, mica_error *err) {
    (void)d, (void)n_bytes, (void)err;
    *out = host;
    return MICA_OK;
}

mica_status host_experts_bind(dev *d, const dev_expert_shape *s, mica_error *err) {
    (void)d, (void)s, (void)err;
    return MICA_OK;
}

mica_status host_experts_take(dev *d, dev_expert_slabs *s, mica_error *err) {
    (void)d, (void)s, (void)err;
    return MICA_OK;
}

mica_status host_experts_fill(dev *d, const dev_expert_move *m, uint32_t n, mica_error *err) {
    (void)d, (void)m, (void)n, (void)err;
    return MICA_OK;
}

uint32_t host_experts_move(dev *d, const dev_expert_move *m, uint32_t n) {
    (void)d, (void)m, (void)n;
    return 0;
}

uint32_t host_experts_moved(dev *d, dev_expert_move *out, uint32_t max) {
    (void)d, (void)out, (void)max;
    return 0;
}

void host_experts_stats(dev *d, dev_expert_stats *out) {
    (void)d;
    *out = (dev_expert_stats){0};
}

mica_status host_step_begin(dev *d, const dev_step *s, bool *done, mica_error *err) {
    (void)d, (void)s, (void)err;
    *done = false;
    return MICA_OK;
}

mica_status host_step_end(dev *d, bool ok, mica_error *err) {
    (void)d, (void)ok, (void)err;
    return MICA_OK;
}

mica_status host_upload(dev *d, void *dst, const void *host, size_t n_bytes, mica_error *err) {
    (void)d, (void)err;
    memcpy(dst, host, n_bytes);
    return MICA_OK;
}

mica_status host_download(dev *d, void *host, const void *src, size_t n_bytes, mica_error *err) {
    (void)d, (void)err;
    memcpy(host, src, n_bytes);
    return MICA_OK;
}

mica_status host_zero(dev *d, void *dst, size_t n_bytes, mica_error *err) {
    (void)d, (void)err;
    memset(dst, 0, n_bytes);
    return MICA_OK;
}

mica_status host_copy(dev *d, void *dst, const void *src, size_t n_bytes, mica_error *err) {
    return host_upload(d, dst, src, n_bytes, err);
}
