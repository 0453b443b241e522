/* Budgets. Cache, state and scratch must fit; weights are mapped, so what has no room stays on the SSD tier.
 */
#include "store/plan.h"

#include <stdio.h>
#include <string.h>

const char *const plan_what_name[PLAN_WHAT_N] = {"weights", "kv", "state", "scratch", "experts", "cache"};

static uint64_t round_ctx(uint64_t n) {
    return (n + PLAN_PAGE - 1) / PLAN_PAGE * PLAN_PAGE;
}

static uint64_t kv_bytes(const plan_request *r, uint64_t n_ctx) {
    return (r->kv_token_bytes * round_ctx(n_ctx) + r->kv_fixed_bytes) * r->n_seq;
}

/* The longest context whose cache fits beside `fixed`, in whole pages; 0: none. */
static uint64_t longest_ctx(const plan_request *r, uint64_t limit, uint64_t fixed) {
    uint64_t per = r->kv_token_bytes * r->n_seq,
             base = fixed + (r->kv_fixed_bytes + r->state_bytes) * r->n_seq;
    if (limit < base) return 0;
    if (per == 0) return r->n_ctx_train;
    return (limit - base) / per / PLAN_PAGE * PLAN_PAGE;
}

/* Everything in the card's memory. What allocators round up to, and the driver's own, is a 64th of the
 * weights and 64 MiB. */
static void card_make(plan *p, const plan_request *r) {
    uint64_t spared = r->vram_reserve ? r->vram_reserve : r->vram_total / 32;
    p->vram_limit = r->vram_free > spared ? r->vram_free - spared : 0;
    if (r->vram_cap && r->vram_cap < p->vram_limit) p->vram_limit = r->vram_cap;
    uint64_t slack = r->weight_bytes / 64 + ((uint64_t)64 << 20);
    uint64_t scratch = r->scratch_bytes + r->vram_fixed_bytes + slack, fixed = scratch + r->weight_bytes;
    uint64_t most = longest_ctx(r, p->vram_limit, fixed);
    if (most > r->n_ctx_train) most = r->n_ctx_train;
    uint64_t least = r->n_ctx_train < PLAN_CTX_MIN ? r->n_ctx_train : PLAN_CTX_MIN;
    p->n_ctx = r->n_ctx ? r->n_ctx : (uint32_t)(most < least ? least : most);
    uint64_t kv = kv_bytes(r, p->n_ctx), state = r->state_bytes * r->n_seq;
    p->need_bytes = fixed + kv + state;
    p->fits = p->need_bytes <= p->vram_limit;
    p->nearest_ctx = p->fits ? 0 : (uint32_t)most;
    p->n_expert = r->n_expert;
    snprintf(p->card, sizeof p->card, "%s", r->card);
    p->item[PLAN_VRAM][PLAN_WEIGHTS] = (plan_item){r->weight_bytes - r->expert_bytes, 1};
    p->item[PLAN_VRAM][PLAN_EXPERTS] = (plan_item){r->expert_bytes, r->n_expert};
    p->item[PLAN_VRAM][PLAN_KV] = (plan_item){kv, r->n_seq};
    p->item[PLAN_VRAM][PLAN_STATE] = (plan_item){state, r->n_seq};
    p->item[PLAN_VRAM][PLAN_SCRATCH] = (plan_item){scratch, 1};
    p->item[PLAN_RAM][PLAN_CACHE] = (plan_item){r->cache_bytes, r->cache_bytes > 0};
}

void plan_make(plan *p, const plan_request *r) {
    *p = (plan){.ram_total = r->ram_total, .ram_free = r->ram_free};
    p->vram_total = r->vram_total;
    p->vram_free = r->vram_free;
    if (r->card) {
        card_make(p, r);
        return;
    }
    uint64_t reserve = r->ram_free / 16; // the page cache and everybody else
    p->ram_limit = r->ram_cap ? r->ram_cap : r->ram_free - reserve;
    uint64_t fixed = r->scratch_bytes + r->cache_bytes, most = longest_ctx(r, p->ram_limit, fixed);
    /* Unasked, the context should leave the weights in memory: pages read twice cost more than positions
     * never used. */
    uint64_t kind = longest_ctx(r, p->ram_limit, fixed + r->weight_bytes - r->table_bytes);
    if (kind < PLAN_CTX_MIN) kind = PLAN_CTX_MIN;
    if (kind > r->n_ctx_train) kind = r->n_ctx_train;
    p->n_ctx = r->n_ctx ? r->n_ctx : (uint32_t)kind;
    uint64_t kv = kv_bytes(r, p->n_ctx);
    uint64_t state = r->state_bytes * r->n_seq;
    p->need_bytes = kv + state + fixed;
    p->fits = p->need_bytes <= p->ram_limit;
    p->nearest_ctx = p->fits ? 0 : (uint32_t)(most > r->n_ctx_train ? r->n_ctx_train : most);
    uint64_t left = p->fits ? p->ram_limit - p->need_bytes : 0;
    uint64_t dense = r->weight_bytes - r->expert_bytes - r->table_bytes;
    uint64_t dense_ram = dense < left ? dense : left, expert_room = left - dense_ram;
    uint64_t one = r->n_expert ? r->expert_bytes / r->n_expert : 0;
    p->n_expert = r->n_expert;
    p->n_expert_ram = one == 0 ? 0 : expert_room / one < r->n_expert ? expert_room / one : r->n_expert;
    p->n_expert_ssd = r->n_expert - p->n_expert_ram;
    p->item[PLAN_RAM][PLAN_WEIGHTS] = (plan_item){dense_ram, 1};
    p->item[PLAN_SSD][PLAN_WEIGHTS] = (plan_item){dense - dense_ram + r->table_bytes,
                                                  (dense > dense_ram ? 1u : 0u) + (r->table_bytes ? 1u : 0u)};
    uint64_t ram_experts = p->n_expert_ssd == 0 ? r->expert_bytes : p->n_expert_ram * one;
    p->item[PLAN_RAM][PLAN_EXPERTS] = (plan_item){ram_experts, p->n_expert_ram};
    p->item[PLAN_SSD][PLAN_EXPERTS] = (plan_item){r->expert_bytes - ram_experts, p->n_expert_ssd};
    p->item[PLAN_RAM][PLAN_KV] = (plan_item){kv, r->n_seq};
    p->item[PLAN_RAM][PLAN_STATE] = (plan_item){state, r->n_seq};
    p->item[PLAN_RAM][PLAN_SCRATCH] = (plan_item){r->scratch_bytes, 1};
    p->item[PLAN_RAM][PLAN_CACHE] = (plan_item){r->cache_bytes, r->cache_bytes > 0};
}

mica_status plan_check(const plan *p, mica_error *err) {
    if (p->fits) return MICA_OK;
    const double mib = 1024.0 * 1024.0;
    if (p->card[0] && p->nearest_ctx == 0)
        return fail(
            err, MICA_E_FIT,
            "device %s: %.0f MiB needed, %.0f MiB of its memory allowed: the model does not fit on it; "
            "--device cpu runs it from memory",
            p->card, (double)p->need_bytes / mib, (double)p->vram_limit / mib);
    if (p->card[0])
        return fail(
            err, MICA_E_FIT,
            "device %s: %.0f MiB needed for a context of %u, %.0f MiB of its memory allowed: --context %u "
            "would fit",
            p->card, (double)p->need_bytes / mib, p->n_ctx, (double)p->vram_limit / mib, p->nearest_ctx);
    if (p->nearest_ctx == 0)
        return fail(err, MICA_E_FIT,
                    "memory: %.0f MiB needed for a context of %u, %.0f MiB allowed: no context fits",
                    (double)p->need_bytes / mib, p->n_ctx, (double)p->ram_limit / mib);
    return fail(err, MICA_E_FIT,
                "memory: %.0f MiB needed for a context of %u, %.0f MiB allowed: --context %u would fit",
                (double)p->need_bytes / mib, p->n_ctx, (double)p->ram_limit / mib, p->nearest_ctx);
}

/* "NAME:   1234 kB" lines. */
static uint64_t meminfo(const char *name) {
    FILE *f = fopen("/proc/meminfo", "re");
    uint64_t kb = 0;
    if (!f) return 0;
    char line[128];
    size_t n = strlen(name);
    while (fgets(line, sizeof line, f)) {
        unsigned long long v;
        if (strncmp(line, name, n) == 0 && line[n] == ':' && sscanf(line + n + 1, "%llu", &v) == 1) kb = v;
    }
    fclose(f);
    return kb * 1024;
}

static bool read_u64(const char *path, uint64_t *out) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    unsigned long long v;
    bool ok = fscanf(f, "%llu", &v) == 1;
    fclose(f);
    if (ok) *out = v;
    return ok;
}

void plan_machine(uint64_t *ram_total, uint64_t *ram_free) {
    *ram_total = meminfo("MemTotal");
    *ram_free = meminfo("MemAvailable");
    uint64_t limit, used = 0;
    bool v2 = read_u64("/sys/fs/cgroup/memory.max", &limit);
    if (!v2 && !read_u64("/sys/fs/cgroup/memory/memory.limit_in_bytes", &limit)) return;
    if (limit >= *ram_total) return;
    read_u64(v2 ? "/sys/fs/cgroup/memory.current" : "/sys/fs/cgroup/memory/memory.usage_in_bytes", &used);
    *ram_total = limit;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < *ram_free) *ram_free = left;
}
