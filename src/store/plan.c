/* Budgets. Cache, state and scratch must fit; weights are mapped, so what has no room in RAM stays on the SSD
 * tier. On a card what every token needs comes first (weights but experts, cache, state, scratch), then a
 * ring for prompts, then slots for experts with all that is left. */
#include "store/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const plan_what_name[PLAN_WHAT_N] = {"weights", "kv",    "state", "scratch",
                                                 "experts", "cache", "ring",  "spare"};
const char *const plan_ram_name[] = {"auto", "all", "complement", "mmap"};

enum { MIB = 1 << 20 };
enum { RING_BLOBS_MIN = 16, RING_SHARE = 8, CTX_SHARE = 4 };
static const uint64_t SPARE_BYTES = 64 * MIB;

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

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
    return min_u64((limit - base) / per / PLAN_PAGE * PLAN_PAGE, UINT32_MAX / 2);
}

/* Nobody unasked gets more than the model was made for, or less than this. */
static uint32_t choose_ctx(const plan_request *r, uint64_t most) {
    uint64_t least = min_u64(r->n_ctx_train, PLAN_CTX_MIN);
    if (r->n_ctx) return r->n_ctx;
    return (uint32_t)(most < least ? least : min_u64(most, r->n_ctx_train));
}

/* ---- slots ------------------------------------------------------------------------------------ */

/* More sizes than slabs: the odd ones take slots of the last, which grow to hold them. */
static void slabs_make(plan *p, const plan_request *r) {
    memset(p->slab_of, PLAN_NO_SLAB, sizeof p->slab_of);
    for (uint32_t il = 0; r->blob_bytes && il < r->n_layer && il < PLAN_LAYER_MAX; il++) {
        uint64_t n_bytes = r->blob_bytes[il];
        uint32_t is = 0;
        if (n_bytes == 0) continue;
        while (is < p->n_slab && p->slab[is].blob_bytes != n_bytes) is++;
        if (is == PLAN_SLAB_MAX) is--;
        if (is == p->n_slab) p->slab[p->n_slab++].blob_bytes = n_bytes;
        if (n_bytes > p->slab[is].blob_bytes) p->slab[is].blob_bytes = n_bytes;
        p->slab[is].n_expert += r->n_expert_layer;
        p->slab_of[il] = (uint8_t)is;
    }
}

static uint64_t blobs_bytes(const plan *p) {
    uint64_t n = 0;
    for (uint32_t is = 0; is < p->n_slab; is++) n += p->slab[is].n_expert * p->slab[is].blob_bytes;
    return n;
}

static uint64_t blob_max(const plan *p) {
    uint64_t n = 0;
    for (uint32_t is = 0; is < p->n_slab; is++)
        if (p->slab[is].blob_bytes > n) n = p->slab[is].blob_bytes;
    return n;
}

static uint64_t slots_bytes(const plan *p) {
    uint64_t n = 0;
    for (uint32_t is = 0; is < p->n_slab; is++) n += p->slab[is].n_slot * p->slab[is].blob_bytes;
    return n;
}

/* Room divided so that every slab has slots for the same share of its experts; which layers get them is the
 * policy's. What division leaves goes to whoever still fits. */
static void slots_share(plan *p, uint64_t room) {
    uint64_t all = blobs_bytes(p);
    for (uint32_t is = 0; is < p->n_slab; is++) {
        plan_slab *s = &p->slab[is];
        double share = room >= all ? 1.0 : (double)room / (double)all;
        s->n_slot = (uint32_t)(share * s->n_expert);
    }
    uint64_t left = less(room, slots_bytes(p));
    for (uint32_t is = 0; is < p->n_slab; is++) {
        plan_slab *s = &p->slab[is];
        uint64_t more = min_u64(left / s->blob_bytes, s->n_expert - s->n_slot);
        s->n_slot += (uint32_t)more;
        left -= more * s->blob_bytes;
    }
}

static uint64_t slots_count(const plan *p) {
    uint64_t n = 0;
    for (uint32_t is = 0; is < p->n_slab; is++) n += p->slab[is].n_slot;
    return n;
}

bool plan_all_resident(const plan *p) {
    for (uint32_t is = 0; is < p->n_slab; is++)
        if (p->slab[is].n_slot < p->slab[is].n_expert) return false;
    return true;
}

/* ---- a graphics card -------------------------------------------------------------------------- */

static void card_limit(plan *p, const plan_request *r) {
    uint64_t spared = r->vram_total / 32;
    if (r->display) spared = (uint64_t)(r->desktop ? PLAN_DESKTOP_MIB : PLAN_SCREEN_MIB) * MIB;
    if (r->vram_reserve) spared = r->vram_reserve;
    p->vram_limit = less(r->vram_free, spared);
    if (r->vram_cap && r->vram_cap < p->vram_limit) p->vram_limit = r->vram_cap;
    if (!r->integrated) return;
    p->integrated = true; // one memory: the card's share of it comes out of what RAM has
    p->vram_limit = min_u64(p->vram_limit, less(p->ram_limit, r->cache_bytes));
}

/* All experts on the card, or those that fit beside a ring. Returns what must be there: without slots beyond
 * need. */
static void card_experts(plan *p, const plan_request *r, uint64_t dense) {
    uint64_t all = p->n_slab ? blobs_bytes(p) : r->expert_bytes;
    uint64_t ring_min = min_u64(RING_BLOBS_MIN, r->n_expert / RING_SHARE / 2 + 1) * blob_max(p);
    uint64_t most = longest_ctx(r, p->vram_limit, dense + all);
    uint64_t least = min_u64(r->n_ctx_train, PLAN_CTX_MIN), state = r->state_bytes * r->n_seq;
    bool tiers = r->tiers && p->n_slab && most < (r->n_ctx ? r->n_ctx : least);
    if (!tiers) {
        p->n_ctx = choose_ctx(r, most);
        p->need_bytes = dense + all + kv_bytes(r, p->n_ctx) + state;
        p->near.n_ctx = (uint32_t)most;
        slots_share(p, all);
        return;
    }
    /* Unasked, cache may take a quarter of what experts could have: a position costs as much link time as
     * the slot it displaced saves. */
    uint64_t base = dense + ring_min, room = less(p->vram_limit, base);
    p->n_ctx = choose_ctx(r, longest_ctx(r, base + room / CTX_SHARE, base));
    p->need_bytes = base + kv_bytes(r, p->n_ctx) + state;
    p->near.n_ctx = (uint32_t)longest_ctx(r, p->vram_limit, base);
    room = less(p->vram_limit, p->need_bytes) + ring_min;
    uint64_t layer = 2 * (uint64_t)r->n_expert_layer * blob_max(p); // this one and the next
    p->ring_bytes = min_u64(layer, room / RING_SHARE);
    if (p->ring_bytes < ring_min) p->ring_bytes = ring_min;
    slots_share(p, less(room, p->ring_bytes));
}

/* What RAM holds of the experts, in the first way that fits. */
static void card_ram(plan *p, const plan_request *r) {
    uint64_t all = blobs_bytes(p), here = slots_bytes(p), spare = 0,
             room = less(p->ram_limit, r->cache_bytes);
    p->experts_ram = r->experts_ram;
    p->ram_need = r->cache_bytes;
    if (plan_all_resident(p)) {
        p->experts_ram = PLAN_RAM_MMAP;
        return;
    }
    for (uint32_t is = 0; is < p->n_slab; is++) spare += p->slab[is].blob_bytes; // to exchange through
    const uint64_t bytes[] = {0, all, all - here + spare, 0}, may = min_u64(room, r->pin_limit);
    if (p->integrated) p->experts_ram = PLAN_RAM_MMAP;
    if (p->experts_ram == PLAN_RAM_AUTO)
        p->experts_ram = all <= may                          ? PLAN_RAM_ALL
                         : bytes[PLAN_RAM_COMPLEMENT] <= may ? PLAN_RAM_COMPLEMENT
                                                             : PLAN_RAM_MMAP;
    uint64_t n = bytes[p->experts_ram], n_out = r->n_expert - p->n_expert_vram,
             mean = r->n_expert ? all / r->n_expert : 1;
    bool mapped = p->experts_ram == PLAN_RAM_MMAP;
    p->ram_need += n;
    p->pin_need = n;
    p->pin_limit = r->pin_limit;
    if ((p->ram_need > p->ram_limit || n > r->pin_limit) && n_out <= room / mean)
        p->near.experts_ram = PLAN_RAM_MMAP;
    p->n_expert_ram = mapped ? min_u64(n_out, room / mean) : n_out;
    p->n_expert_ssd = n_out - p->n_expert_ram;
    p->item[PLAN_RAM][PLAN_EXPERTS] = (plan_item){mapped ? p->n_expert_ram * mean : n, p->n_expert_ram};
    p->item[PLAN_SSD][PLAN_EXPERTS] = (plan_item){p->n_expert_ssd * mean, p->n_expert_ssd};
    if (p->n_expert_ssd) p->ram_need += n_out * mean; // a link reaches memory, not the SSD
}

static void card_make(plan *p, const plan_request *r) {
    card_limit(p, r);
    uint64_t weights = r->weight_bytes - r->expert_bytes, spare = weights / 64 + SPARE_BYTES;
    uint64_t scratch = r->scratch_bytes + r->vram_fixed_bytes;
    snprintf(p->card, sizeof p->card, "%s", r->card);
    card_experts(p, r, weights + scratch + spare);
    p->n_expert_vram = p->n_slab ? slots_count(p) : r->n_expert;
    card_ram(p, r);
    p->fits = p->need_bytes <= p->vram_limit && p->ram_need <= p->ram_limit && p->pin_need <= p->pin_limit;
    p->item[PLAN_VRAM][PLAN_WEIGHTS] = (plan_item){weights, 1};
    p->item[PLAN_VRAM][PLAN_EXPERTS] =
        (plan_item){p->n_slab ? slots_bytes(p) : r->expert_bytes, p->n_expert_vram};
    p->item[PLAN_VRAM][PLAN_RING] = (plan_item){p->ring_bytes, p->ring_bytes > 0};
    p->item[PLAN_VRAM][PLAN_KV] = (plan_item){kv_bytes(r, p->n_ctx), r->n_seq};
    p->item[PLAN_VRAM][PLAN_STATE] = (plan_item){r->state_bytes * r->n_seq, r->n_seq};
    p->item[PLAN_VRAM][PLAN_SCRATCH] = (plan_item){scratch, 1};
    p->item[PLAN_VRAM][PLAN_SPARE] = (plan_item){spare, 1};
}

/* ---- the processor ---------------------------------------------------------------------------- */

/* Experts in RAM: all as pages of the file when they fit; else slots in front of it. Too few to hold a
 * token's choice are none: then the system's page cache is as good. */
static void host_experts(plan *p, const plan_request *r, uint64_t room) {
    uint64_t one = r->n_expert ? r->expert_bytes / r->n_expert : 0;
    bool all = r->expert_bytes <= room;
    uint64_t least = r->n_expert_used;
    p->experts_ram = r->experts_ram == PLAN_RAM_MMAP || all ? PLAN_RAM_MMAP : PLAN_RAM_COMPLEMENT;
    if (!all && (r->experts_ram == PLAN_RAM_ALL || r->experts_ram == PLAN_RAM_COMPLEMENT)) {
        p->fits = false;
        p->need_bytes += r->expert_bytes + (p->ram_limit - p->need_bytes - room);
        p->near.experts_ram = PLAN_RAM_MMAP;
    }
    slots_share(p, all ? UINT64_MAX : room);
    for (uint32_t is = 0; is < p->n_slab; is++)
        if (p->slab[is].n_slot < min_u64(least, p->slab[is].n_expert)) p->experts_ram = PLAN_RAM_MMAP;
    if (p->experts_ram == PLAN_RAM_MMAP) p->n_slab = 0;
    p->n_expert_ram = all ? r->n_expert : p->n_slab ? slots_count(p) : one ? room / one : 0;
    p->n_expert_ssd = r->n_expert - p->n_expert_ram;
    uint64_t here = all ? r->expert_bytes : p->n_slab ? slots_bytes(p) : p->n_expert_ram * one;
    p->item[PLAN_RAM][PLAN_EXPERTS] = (plan_item){here, p->n_expert_ram};
    p->item[PLAN_SSD][PLAN_EXPERTS] = (plan_item){p->n_expert_ssd * one, p->n_expert_ssd};
}

static void host_make(plan *p, const plan_request *r) {
    uint64_t fixed = r->scratch_bytes + r->cache_bytes;
    /* Unasked, the context should leave the weights in memory: pages read twice cost more than positions
     * never used. */
    p->n_ctx = choose_ctx(r, longest_ctx(r, p->ram_limit, fixed + r->weight_bytes - r->table_bytes));
    uint64_t kv = kv_bytes(r, p->n_ctx), state = r->state_bytes * r->n_seq;
    p->need_bytes = kv + state + fixed;
    p->fits = p->need_bytes <= p->ram_limit;
    p->near.n_ctx = (uint32_t)longest_ctx(r, p->ram_limit, fixed);
    uint64_t left = less(p->ram_limit, p->need_bytes);
    uint64_t dense = r->weight_bytes - r->expert_bytes - r->table_bytes, dense_ram = min_u64(dense, left);
    if (p->fits) host_experts(p, r, left - dense_ram);
    p->item[PLAN_RAM][PLAN_WEIGHTS] = (plan_item){dense_ram, 1};
    p->item[PLAN_SSD][PLAN_WEIGHTS] = (plan_item){dense - dense_ram + r->table_bytes,
                                                  (dense > dense_ram ? 1u : 0u) + (r->table_bytes ? 1u : 0u)};
    p->item[PLAN_RAM][PLAN_KV] = (plan_item){kv, r->n_seq};
    p->item[PLAN_RAM][PLAN_STATE] = (plan_item){state, r->n_seq};
    p->item[PLAN_RAM][PLAN_SCRATCH] = (plan_item){r->scratch_bytes, 1};
}

void plan_make(plan *p, const plan_request *r) {
    *p = (plan){.ram_total = r->ram_total, .ram_free = r->ram_free, .n_expert = r->n_expert};
    p->vram_total = r->vram_total;
    p->vram_free = r->vram_free;
    p->ram_limit = r->ram_cap ? r->ram_cap : r->ram_free - r->ram_free / 16; // the page cache and all others
    slabs_make(p, r);
    if (r->card)
        card_make(p, r);
    else
        host_make(p, r);
    p->item[PLAN_RAM][PLAN_CACHE] = (plan_item){r->cache_bytes, r->cache_bytes > 0};
    if (p->fits || p->near.n_ctx >= p->n_ctx) p->near.n_ctx = 0;
}

/* ---- refusal ---------------------------------------------------------------------------------- */

/* "9.3 GiB", "512 MiB". */
static const char *size_text(char out[24], uint64_t n_bytes) {
    double mib = (double)n_bytes / MIB;
    snprintf(out, 24, mib >= 1024 ? "%.1f GiB" : "%.0f MiB", mib >= 1024 ? mib / 1024 : mib);
    return out;
}

/* "--context 4096 --kv int8 would fit". */
static void near_text(char *out, size_t n, const plan *p) {
    char ctx[32] = "", kv[24] = "", ubatch[24] = "", ram[32] = "";
    const plan_near *w = &p->near;
    if (w->n_ctx) snprintf(ctx, sizeof ctx, "--context %u ", w->n_ctx);
    if (w->kv) snprintf(kv, sizeof kv, "--kv %s ", w->kv);
    if (w->n_ubatch) snprintf(ubatch, sizeof ubatch, "--ubatch %u ", w->n_ubatch);
    if (w->experts_ram) snprintf(ram, sizeof ram, "--experts-ram %s ", plan_ram_name[w->experts_ram]);
    if (ctx[0] || kv[0] || ubatch[0] || ram[0])
        snprintf(out, n, "%s%s%s%swould fit", ctx, kv, ubatch, ram);
    else
        snprintf(out, n,
                 p->card[0] ? "no context fits: --device cpu runs it from memory" : "no context fits");
}

mica_status plan_check(const plan *p, mica_error *err) {
    char near[128], need[24], have[24];
    if (p->fits) return MICA_OK;
    near_text(near, sizeof near, p);
    if (p->card[0] && p->need_bytes > p->vram_limit)
        return fail(err, MICA_E_FIT, "device %s: %s needed for a context of %u, %s of its memory allowed: %s",
                    p->card, size_text(need, p->need_bytes), p->n_ctx, size_text(have, p->vram_limit), near);
    if (p->card[0] && p->pin_need > p->pin_limit)
        return fail(err, MICA_E_FIT, "memory: %s of it pinned beside the card, the system allows %s: %s",
                    size_text(need, p->pin_need), size_text(have, p->pin_limit), near);
    if (p->card[0])
        return fail(err, MICA_E_FIT, "memory: %s needed beside the card, %s allowed: %s",
                    size_text(need, p->ram_need), size_text(have, p->ram_limit), near);
    return fail(err, MICA_E_FIT, "memory: %s needed for a context of %u, %s allowed: %s",
                size_text(need, p->need_bytes), p->n_ctx, size_text(have, p->ram_limit), near);
}

/* ---- this machine ----------------------------------------------------------------------------- */

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

/* The line "inactive_file N" of a group: pages of files that nobody misses, which it counts as used. */
static uint64_t idle_pages(const char *path) {
    FILE *f = fopen(path, "re");
    unsigned long long v, n = 0;
    if (!f) return 0;
    char line[128];
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "inactive_file %llu", &v) == 1) n = v;
    fclose(f);
    return n;
}

/* A group's limit over what is known so far. Names of its files differ by version. */
static void limit_by(const char *group, const char *max, const char *used, uint64_t *total, uint64_t *spare) {
    char path[640];
    uint64_t limit, n_used = 0;
    snprintf(path, sizeof path, "%s/%s", group, max);
    if (!read_u64(path, &limit) || limit >= *total) return;
    snprintf(path, sizeof path, "%s/%s", group, used);
    read_u64(path, &n_used);
    snprintf(path, sizeof path, "%s/memory.stat", group);
    n_used = less(n_used, idle_pages(path));
    *total = limit;
    *spare = min_u64(*spare, less(limit, n_used));
}

/* The groups this process is in, from its own up: "0::/a/b" in /proc/self/cgroup. Inside a container the
 * path is "/" and its limit lies at the top. */
static void limit_by_groups(uint64_t *ram_total, uint64_t *ram_free) {
    char group[512] = "", path[560];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return;
    char line[600];
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0) snprintf(group, sizeof group, "%.500s", line + 3);
    fclose(f);
    group[strcspn(group, "\n")] = 0;
    for (;;) {
        char *slash = strrchr(group, '/');
        snprintf(path, sizeof path, "/sys/fs/cgroup%s", group);
        limit_by(path, "memory.max", "memory.current", ram_total, ram_free);
        if (!slash) return;
        *slash = 0;
    }
}

void plan_machine(uint64_t *ram_total, uint64_t *ram_free) {
    *ram_total = meminfo("MemTotal");
    *ram_free = meminfo("MemAvailable");
    limit_by_groups(ram_total, ram_free);
    limit_by("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ram_total, ram_free);
}

uint64_t plan_pin_limit(void) {
    uint64_t pages, total = meminfo("MemTotal");
    long page = sysconf(_SC_PAGESIZE);
    if (!read_u64("/sys/module/ttm/parameters/pages_limit", &pages) || page <= 0) return total;
    return min_u64(total, pages * (uint64_t)page);
}

bool plan_desktop(void) {
    static const char *const sockets[] = {"/tmp/.X11-unix/X0", "/tmp/.X11-unix/X1"};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++)
        if (access(sockets[i], F_OK) == 0) return true;
    return false;
}
