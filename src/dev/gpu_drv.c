/* Opening drivers and listing cards. */
#include "dev/gpu_drv.h"

#include "base/env.h"
#include "base/log.h"

#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- libraries ---- */

static bool open_path(gpu_lib *out, const char *path) {
    out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!out->handle) return false;
    struct link_map *map;
    const char *where =
        dlinfo(out->handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] ? map->l_name : path;
    snprintf(out->path, sizeof out->path, "%s", where);
    log_debug("device", "opened %s", out->path);
    return true;
}

static bool open_in(gpu_lib *out, const char *folder, size_t n, const char *name) {
    char path[512];
    if (n == 0 || folder[0] != '/') return false; // never the current folder
    if ((size_t)snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, name) >= sizeof path) return false;
    return open_path(out, path);
}

bool gpu_lib_open(gpu_lib *out, const char *const *names, const char *const *folders) {
    const char *own = env_get("MICA_LIBRARY_PATH");
    for (const char *p = own; p && *p;) {
        size_t n = strcspn(p, ":");
        for (size_t i = 0; names[i]; i++) {
            if (open_in(out, p, n, names[i])) return true;
        }
        p += n + (p[n] == ':');
    }
    for (size_t i = 0; names[i]; i++) {
        for (size_t k = 0; folders[k]; k++) {
            if (open_in(out, folders[k], strlen(folders[k]), names[i])) return true;
        }
    }
    for (size_t i = 0; names[i]; i++) { // the loader's own cache and path
        if (open_path(out, names[i])) return true;
    }
    return false;
}

typedef struct symbol {
    const char *name[2]; // CUDA, HIP
    size_t at;           // of the field in gpu_drv
} symbol;

#define SYMBOL_ROW(field, params, cuda, hip) {{cuda, hip}, offsetof(gpu_drv, field)},
static const symbol g_symbols[] = {GPU_DRV_SYMBOLS(SYMBOL_ROW)};
static const symbol g_rtc_symbols[] = {GPU_RTC_SYMBOLS(SYMBOL_ROW)};
#undef SYMBOL_ROW

static const char *bind_all(gpu_drv *v, void *lib, int column, const symbol *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(lib, s[i].name[column]);
        if (!p) return s[i].name[column];
        memcpy((char *)v + s[i].at, &p, sizeof p);
    }
    return NULL;
}

const char *gpu_drv_bind(gpu_drv *v, void *lib, int column) {
    return bind_all(v, lib, column, g_symbols, sizeof g_symbols / sizeof *g_symbols);
}

bool gpu_drv_bind_rtc(gpu_drv *v, void *lib, int column) {
    return !bind_all(v, lib, column, g_rtc_symbols, sizeof g_rtc_symbols / sizeof *g_rtc_symbols);
}

/* ---- drivers ---- */

static gpu_drv g_drv[GPU_KIND_N] = {{.kind = GPU_HIP}, {.kind = GPU_CUDA}, {.kind = GPU_SIM}};
static pthread_once_t g_once[GPU_KIND_N] = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT};

static void fill_hip(void) {
    gpu_hip_fill(&g_drv[GPU_HIP]);
}
static void fill_cuda(void) {
    gpu_cuda_fill(&g_drv[GPU_CUDA]);
}
static void fill_sim(void) {
    gpu_sim_fill(&g_drv[GPU_SIM]);
}

const gpu_drv *gpu_drv_get(gpu_kind kind) {
    static void (*const fill[GPU_KIND_N])(void) = {fill_hip, fill_cuda, fill_sim};
    pthread_once(&g_once[kind], fill[kind]);
    return &g_drv[kind];
}

/* ---- cards ---- */

/* Free memory is known of the current card alone, so the card is entered and left again. */
static void read_memory(gpu_card *c) {
    void *ctx = NULL;
    size_t n_free = 0, n_total = 0;
    const gpu_drv *v = c->drv;
    int rc = v->card_open(&ctx, c->index);
    if (rc == 0) {
        rc = v->mem_info(&n_free, &n_total);
        v->card_close(ctx, c->index);
    }
    if (rc) {
        snprintf(c->reason, sizeof c->reason, "%s", v->error_name(rc));
        return;
    }
    c->vram_free = n_free;
    c->vram_total = n_total;
}

static void read_card(gpu_card *c, const gpu_drv *v, int index) {
    *c = (gpu_card){.kind = v->kind, .index = index, .drv = v};
    snprintf(c->id, sizeof c->id, "%s:%d", v->id, index);
    if (v->name(c->name, sizeof c->name, index) != 0) snprintf(c->name, sizeof c->name, "unnamed");
    if (v->bus_id(c->bus, sizeof c->bus, index) != 0) c->bus[0] = 0;
    for (char *p = c->bus; *p; p++) *p = (char)tolower((unsigned char)*p);
    c->display = gpu_node_display(c->bus);
    v->describe(c);
    if (!c->reason[0]) read_memory(c);
    c->usable = !c->reason[0];
}

/* A card that this machine seems to have and this process cannot use. */
static bool missing_card(gpu_card *c, const gpu_drv *v) {
    bool seen = false;
    char why[300];
    gpu_node_check(v->kind, &seen, why, sizeof why);
    if (!seen) return false;
    *c = (gpu_card){.kind = v->kind, .drv = v};
    snprintf(c->id, sizeof c->id, "%s:0", v->id);
    snprintf(c->name, sizeof c->name, "unknown");
    snprintf(c->reason, sizeof c->reason, "%s", why[0] ? why : v->why);
    return true;
}

size_t gpu_card_list(gpu_card *out, size_t max) {
    size_t n = 0;
    for (int k = 0; k < GPU_KIND_N; k++) {
        if (k == GPU_SIM && !env_get("MICA_SIM")) continue;
        const gpu_drv *v = gpu_drv_get((gpu_kind)k);
        if (!v->ok && n < max) n += missing_card(&out[n], v);
        for (int i = 0; v->ok && i < v->n_card && n < max; i++) read_card(&out[n++], v, i);
    }
    return n;
}

mica_status gpu_card_get(gpu_card *out, gpu_kind kind, int index, mica_error *err) {
    const gpu_drv *v = gpu_drv_get(kind);
    *out = (gpu_card){.kind = kind, .index = index};
    if (!v->ok) {
        bool seen;
        char why[300];
        gpu_node_check(kind, &seen, why, sizeof why);
        return fail(err, MICA_E_DEVICE, "device %s:%d: %s", v->id, index, why[0] ? why : v->why);
    }
    if (index >= v->n_card)
        return fail(err, MICA_E_DEVICE, "device %s:%d: there are %d", v->id, index, v->n_card);
    read_card(out, v, index);
    if (!out->usable) return fail(err, MICA_E_DEVICE, "device %s: %s", out->id, out->reason);
    return MICA_OK;
}

bool gpu_card_choose(gpu_card *out, char *why, size_t n_why) {
    gpu_card list[GPU_CARD_MAX];
    size_t n = gpu_card_list(list, GPU_CARD_MAX), best = n;
    why[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const gpu_card *c = &list[i];
        if (c->kind == GPU_SIM) continue; // only when it is named
        if (!c->usable) {
            if (!why[0]) snprintf(why, n_why, "%s: %s", c->id, c->reason);
            continue;
        }
        bool better = best == n || (list[best].integrated && !c->integrated) ||
                      (list[best].integrated == c->integrated && c->vram_free > list[best].vram_free);
        if (better) best = i;
    }
    if (best == n) return false;
    *out = list[best];
    return true;
}
