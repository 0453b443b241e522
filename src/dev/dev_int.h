/* Inside the room: the tables of the devices, what every device in host memory shares, and row helpers. */
#ifndef MICA_DEV_INT_H
#define MICA_DEV_INT_H

#include "dev/dev.h"
#include "quant/quant.h"

mica_status dev_ref_open(dev **out, const dev_config *cfg, mica_error *err);
mica_status dev_cpu_open(dev **out, const dev_config *cfg, mica_error *err);
mica_status dev_gpu_open(dev **out, const dev_config *cfg, mica_error *err);

/* Memory operations of a device whose memory is the host's. */
mica_status host_alloc(dev *d, void **out, size_t n_bytes, const char *what, mica_error *err);
void host_release(dev *d, void *p);
mica_status host_bind(dev *d, const void **out, const void *host, size_t n_bytes, mica_error *err);
mica_status host_experts_bind(dev *d, const dev_expert_shape *s, mica_error *err);
mica_status host_experts_take(dev *d, dev_expert_slabs *s, mica_error *err);
mica_status host_experts_fill(dev *d, const dev_expert_move *m, uint32_t n, mica_error *err);
uint32_t host_experts_move(dev *d, const dev_expert_move *m, uint32_t n);
uint32_t host_experts_moved(dev *d, dev_expert_move *out, uint32_t max);
void host_experts_stats(dev *d, dev_expert_stats *out);
mica_status host_step_begin(dev *d, const dev_step *s, bool *done, mica_error *err);
mica_status host_step_end(dev *d, bool ok, mica_error *err);
mica_status host_upload(dev *d, void *dst, const void *host, size_t n_bytes, mica_error *err);
mica_status host_download(dev *d, void *host, const void *src, size_t n_bytes, mica_error *err);
mica_status host_zero(dev *d, void *dst, size_t n_bytes, mica_error *err);
mica_status host_copy(dev *d, void *dst, const void *src, size_t n_bytes, mica_error *err);

static inline float *act_x(const quant_act *a, uint32_t row) {
    return a->x + (size_t)row * a->ld;
}

static inline int32_t kv_page_of(const kv_pages *t, int32_t seq, int32_t pos) {
    return t->table[(size_t)seq * t->n_slot + (uint32_t)(pos / KV_PAGE) % t->n_slot];
}

/* Index of the first value of (page, head, position in page) in a cache whose rows have d values. */
static inline size_t kv_at(int32_t page, uint32_t n_head_kv, uint32_t head, uint32_t in_page, uint32_t d) {
    return (((size_t)(uint32_t)page * n_head_kv + head) * KV_PAGE + in_page) * d;
}

/* Index of the key of a block of `ratio` positions among the blocks of kv_layer.index. */
static inline size_t index_at(const kv_pages *t, int32_t seq, uint32_t block, uint32_t ratio) {
    uint32_t n = KV_PAGE / ratio, slot = block / n % t->n_slot;
    return (size_t)(uint32_t)t->table[(size_t)(uint32_t)seq * t->n_slot + slot] * n + block % n;
}

/* Rows up to this position have no more blocks than are kept. */
static inline bool index_sees_all(const index_select_args *a, int32_t pos) {
    return (uint32_t)pos + 1 <= (a->n_keep + 1) * a->ratio - 1;
}

static inline size_t weight_row_bytes(const weight_ref *w) {
    return (size_t)gguf_row_bytes(gguf_type_get(w->type), w->n_col);
}

#endif
