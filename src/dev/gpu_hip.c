/* The driver table filled from libamdhip64 (ROCm 5.2 and later). Its module interface has CUDA's shapes;
 * cards are chosen by number instead of by context, and the name of the instruction set is in a struct whose
 * layout changed with ROCm 6, so it is looked for in the bytes. */
#include "dev/gpu_drv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* hipDeviceAttribute_t, the same numbers from ROCm 4.3 on */
enum { INTEGRATED = 16, MAX_THREADS = 56, N_MP = 63, SHARED_BLOCK = 74 };
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101 };
enum { PROPS_BYTES = 8192, PROPS_NAME = 256 }; // far beyond any version's struct; its first field is the name

static struct {
    int (*set_device)(int card);
    int (*properties)(void *out, int card);
    int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **params, void **extra);
    const char *(*error_name)(int rc);
    gpu_drv *table;
} g;

static int card_open(void **ctx, int card) {
    *ctx = NULL;
    return g.set_device(card);
}

static void card_close(void *ctx, int card) {
    (void)ctx, (void)card;
}

static int enter(void *ctx, int card) {
    (void)ctx;
    return g.set_device(card);
}

static int launch(void *f, const gpu_launch_shape *s, void *stream, const void *args, size_t n_args) {
    (void)n_args;
    void *params[1] = {(void *)(uintptr_t)args}; // read, not written
    return g.launch(f, s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2],
                    s->shared_bytes, stream, params, NULL);
}

static int shared_allow(void *f, uint32_t n_bytes) {
    (void)f, (void)n_bytes; // all of a compute unit's memory is there without asking
    return 0;
}

static const char *error_name(int rc) {
    const char *s = g.error_name ? g.error_name(rc) : NULL;
    return s ? s : "unknown HIP error";
}

static mica_status status_of(int rc) {
    return rc == OUT_OF_MEMORY ? MICA_E_NOMEM : MICA_E_DEVICE;
}

static int attribute(int which, int card, int fallback) {
    int v = 0;
    return g.table->attribute(&v, which, card) == 0 && v > 0 ? v : fallback;
}

/* "gfx1201" out of "gfx1201:sramecc-:xnack-" somewhere behind the name. */
static void find_arch(gpu_card *c) {
    static const char digits[] = "0123456789abcdef";
    char props[PROPS_BYTES] = {0};
    if (g.properties(props, c->index) != 0) return;
    for (size_t i = PROPS_NAME; i + 16 < sizeof props; i++) {
        if (memcmp(props + i, "gfx", 3) != 0) continue;
        size_t n = strspn(props + i + 3, digits);
        if (n < 3 || n > 5) continue;
        snprintf(c->arch, sizeof c->arch, "%.*s", (int)(n + 3), props + i);
        return;
    }
}

/* gfx9 and older run waves of 64, all later ones can run 32, which kernels ask for. */
static void describe(gpu_card *c) {
    find_arch(c);
    unsigned long gfx = strtoul(c->arch[0] ? c->arch + 3 : "0", NULL, 16);
    c->wave = gfx >= 0x1000 ? 32 : 64;
    c->n_mp = (uint32_t)attribute(N_MP, c->index, 1);
    c->block_threads = (uint32_t)attribute(MAX_THREADS, c->index, 1024);
    c->shared_bytes = (uint32_t)attribute(SHARED_BLOCK, c->index, 65536);
    c->integrated = attribute(INTEGRATED, c->index, 0) != 0;
    if (!c->arch[0]) snprintf(c->reason, sizeof c->reason, "the driver does not name its instruction set");
}

static void open_rtc(gpu_drv *v, void *own) {
    static const char *const names[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so",
                                        NULL};
    static const char *const folders[] = {"/opt/rocm/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", NULL};
    gpu_lib lib;
    v->rtc = gpu_drv_bind_rtc(v, own, 1) ||
             (gpu_lib_open(&lib, names, folders) && gpu_drv_bind_rtc(v, lib.handle, 1));
}

void gpu_hip_fill(gpu_drv *v) {
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                        "libamdhip64.so", NULL};
    static const char *const folders[] = {"/opt/rocm/lib",
                                          "/opt/rocm/hip/lib",
                                          "/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib",
                                          "/opt/amdgpu/lib/x86_64-linux-gnu",
                                          NULL};
    gpu_lib lib;
    v->id = "hip";
    v->error_name = error_name;
    if (!gpu_lib_open(&lib, names, folders)) {
        snprintf(v->why, sizeof v->why,
                 "libamdhip64.so: not found: apt install libamdhip64-5 (Debian, Ubuntu), or hip-runtime-amd "
                 "of AMD's "
                 "own packages");
        return;
    }
    snprintf(v->library, sizeof v->library, "%s", lib.path);
    const char *missing = gpu_drv_bind(v, lib.handle, 1);
    *(void **)&g.set_device = dlsym(lib.handle, "hipSetDevice");
    *(void **)&g.launch = dlsym(lib.handle, "hipModuleLaunchKernel");
    *(void **)&g.error_name = dlsym(lib.handle, "hipGetErrorName");
    *(void **)&g.properties = dlsym(lib.handle, "hipGetDevicePropertiesR0600");
    if (!g.properties) *(void **)&g.properties = dlsym(lib.handle, "hipGetDeviceProperties");
    if (!missing && !(g.set_device && g.launch && g.error_name && g.properties)) missing = "hipSetDevice";
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
    if (rc == NO_DEVICE || rc == INVALID_DEVICE) {
        snprintf(v->why, sizeof v->why, "%s: no device", lib.path);
        return;
    }
    if (rc) {
        snprintf(v->why, sizeof v->why, "%s: %s", lib.path, error_name(rc));
        return;
    }
    v->version(&v->code_version);
    v->ok = true;
    open_rtc(v, lib.handle);
}
