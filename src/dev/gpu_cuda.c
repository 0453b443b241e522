/* The driver table filled from libcuda (CUDA's driver interface, 11.4 and later) and, when it is there,
 * nvrtc. */
#include "dev/gpu_drv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* CUdevice_attribute */
enum {
    MAX_THREADS = 1,
    SHARED_BLOCK = 8,
    N_MP = 16,
    INTEGRATED = 18,
    CC_MAJOR = 75,
    CC_MINOR = 76,
    SHARED_OPTIN = 97
};
enum { FUNC_SHARED_MAX = 8 }; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100 };

/* CUlaunchAttribute and CUlaunchConfig, as cuda.h lays them out. */
enum { EARLY_START = 6 };                    // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
enum { EARLY_CC = 9, EARLY_DRIVER = 12030 }; // since when kernels wait by themselves; and within graphs
typedef struct launch_attribute {
    uint32_t id, pad;
    union {
        char bytes[64];
        int allowed;
    } value;
} launch_attribute;
typedef struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    launch_attribute *attributes;
    unsigned n_attribute;
} launch_config;

static struct {
    int (*ctx_retain)(void **ctx, int card);
    int (*ctx_release)(int card);
    int (*ctx_set)(void *ctx);
    int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **params, void **extra);
    /* With attributes; NULL when a card that is open is too old for EARLY_START. */
    int (*launch_ex)(const launch_config *c, void *f, void **params, void **extra);
    int (*func_set)(void *f, int attribute, int v);
    int (*error_name)(int rc, const char **name);
    gpu_drv *table;
} g;

static void card_close(void *ctx, int card) {
    (void)ctx;
    g.ctx_release(card);
}

static int enter(void *ctx, int card) {
    (void)card;
    return g.ctx_set(ctx);
}

/* A kernel may start while the one before it runs: it waits for it by itself (grid_wait of kern/prelude.cuh).
 */
static int launch(void *f, const gpu_launch_shape *s, void *stream, const void *args, size_t n_args) {
    (void)n_args;
    void *params[1] = {(void *)(uintptr_t)args}; // read, not written
    if (!g.launch_ex)
        return g.launch(f, s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2],
                        s->shared_bytes, stream, params, NULL);
    launch_attribute early = {.id = EARLY_START, .value.allowed = 1};
    launch_config c = {{s->grid[0], s->grid[1], s->grid[2]},
                       {s->block[0], s->block[1], s->block[2]},
                       s->shared_bytes,
                       stream,
                       &early,
                       1};
    return g.launch_ex(&c, f, params, NULL);
}

static int shared_allow(void *f, uint32_t n_bytes) {
    return g.func_set(f, FUNC_SHARED_MAX, (int)n_bytes);
}

static const char *error_name(int rc) {
    const char *s = NULL;
    return g.error_name(rc, &s) == 0 && s ? s : "unknown CUDA error";
}

static mica_status status_of(int rc) {
    return rc == OUT_OF_MEMORY ? MICA_E_NOMEM : MICA_E_DEVICE;
}

static int attribute(int which, int card) {
    int v = 0;
    return g.table->attribute(&v, which, card) == 0 ? v : 0;
}

static int card_open(void **ctx, int card) {
    if (attribute(CC_MAJOR, card) < EARLY_CC || g.table->code_version < EARLY_DRIVER) g.launch_ex = NULL;
    int rc = g.ctx_retain(ctx, card);
    return rc ? rc : g.ctx_set(*ctx);
}

static void describe(gpu_card *c) {
    snprintf(c->arch, sizeof c->arch, "sm_%d%d", attribute(CC_MAJOR, c->index),
             attribute(CC_MINOR, c->index));
    c->wave = 32;
    c->n_mp = (uint32_t)attribute(N_MP, c->index);
    c->block_threads = (uint32_t)attribute(MAX_THREADS, c->index);
    c->shared_bytes = (uint32_t)attribute(SHARED_OPTIN, c->index);
    if (c->shared_bytes == 0) c->shared_bytes = (uint32_t)attribute(SHARED_BLOCK, c->index);
    c->integrated = attribute(INTEGRATED, c->index) != 0;
    if (attribute(CC_MAJOR, c->index) * 10 + attribute(CC_MINOR, c->index) < 61)
        snprintf(c->reason, sizeof c->reason, "%s: no 4-byte integer dot product, sm_61 or later is needed",
                 c->arch);
}

static void open_rtc(gpu_drv *v) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
                                        NULL};
    static const char *const folders[] = {"/usr/local/cuda/lib64",
                                          "/usr/local/cuda/targets/x86_64-linux/lib",
                                          "/opt/cuda/lib64",
                                          "/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib64",
                                          NULL};
    gpu_lib lib;
    v->rtc = gpu_lib_open(&lib, names, folders) && gpu_drv_bind_rtc(v, lib.handle, 0);
}

void gpu_cuda_fill(gpu_drv *v) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64",       "/usr/lib",
                                          "/usr/local/nvidia/lib64",   "/usr/lib/wsl/lib", NULL};
    gpu_lib lib;
    v->id = "cuda";
    v->error_name = error_name;
    if (!gpu_lib_open(&lib, names, folders)) {
        snprintf(v->why, sizeof v->why,
                 "libcuda.so.1: not found: apt install libcuda1 (Debian, non-free), ubuntu-drivers install "
                 "(Ubuntu)");
        return;
    }
    snprintf(v->library, sizeof v->library, "%s", lib.path);
    const char *missing = gpu_drv_bind(v, lib.handle, 0);
    *(void **)&g.ctx_retain = dlsym(lib.handle, "cuDevicePrimaryCtxRetain");
    *(void **)&g.ctx_release = dlsym(lib.handle, "cuDevicePrimaryCtxRelease_v2");
    *(void **)&g.ctx_set = dlsym(lib.handle, "cuCtxSetCurrent");
    *(void **)&g.launch = dlsym(lib.handle, "cuLaunchKernel");
    *(void **)&g.launch_ex = dlsym(lib.handle, "cuLaunchKernelEx");
    *(void **)&g.func_set = dlsym(lib.handle, "cuFuncSetAttribute");
    *(void **)&g.error_name = dlsym(lib.handle, "cuGetErrorName");
    if (!missing && !(g.ctx_retain && g.ctx_release && g.ctx_set && g.launch && g.func_set && g.error_name))
        missing = "a context function";
    if (missing) {
        snprintf(v->why, sizeof v->why, "%s: too old: %s is missing", lib.path, missing);
        return;
    }
    g.table = v;
    v->card_open = card_open;
    v->card_close = card_close;
    v->enter = enter;
    v->launch = launch;
    v->shared_allow = shared_allow;
    v->status_of = status_of;
    v->describe = describe;
    int rc = v->init(0);
    if (rc == 0) rc = v->count(&v->n_card);
    if (rc == 0 && v->n_card == 0) rc = NO_DEVICE;
    if (rc) {
        snprintf(v->why, sizeof v->why, "%s: no device (%s)", lib.path, error_name(rc));
        return;
    }
    v->version(&v->code_version);
    v->ok = true;
    open_rtc(v);
}
