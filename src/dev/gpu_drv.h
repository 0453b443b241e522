/* Drivers of graphics cards: one table of functions, three fillings.
 *
 *     const gpu_drv *v = gpu_drv_get(GPU_HIP);          // opened on first use, once a process
 *     if (!v->ok) ...                                   // v->why: "libamdhip64.so: not found", ...
 *     rc = v->mem_alloc(&p, n);  if (rc) fail(err, gpu_drv_status(v, rc), "...: %s", v->error_name(rc));
 *
 *     hip    libamdhip64, as ROCm 5.2 to 7 or an AMD driver installs it; hiprtc inside or beside it
 *     cuda   libcuda; nvrtc when it is there
 *     sim    the simulated card (gpu_sim.c)
 *
 * Nothing is linked: libraries are opened with dlopen by absolute path, the path is kept and logged. CUDA's
 * driver interface and HIP's module interface have the same shapes, so an entry is the vendor's own function
 * under our name; what differs (properties, contexts, launches) is a small function of the filling. A
 * function returns 0 or the vendor's error number. Handles (contexts, streams, events, modules, functions,
 * graphs) are void *; device memory is void * that the host never follows.
 *
 * Threads: getting a table is safe anywhere; a card's calls belong to its worker. */
#ifndef MICA_GPU_DRV_H
#define MICA_GPU_DRV_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gpu_card gpu_card;

typedef enum gpu_kind { GPU_HIP, GPU_CUDA, GPU_SIM, GPU_KIND_N } gpu_kind;

/* X(field, parameters, CUDA's symbol, HIP's symbol) */
#define GPU_DRV_SYMBOLS(X)                                                                                   \
    X(init, (unsigned flags), "cuInit", "hipInit")                                                           \
    X(version, (int *v), "cuDriverGetVersion", "hipRuntimeGetVersion")                                       \
    X(count, (int *n), "cuDeviceGetCount", "hipGetDeviceCount")                                              \
    X(name, (char *s, int n, int card), "cuDeviceGetName", "hipDeviceGetName")                               \
    X(total, (size_t * n, int card), "cuDeviceTotalMem_v2", "hipDeviceTotalMem")                             \
    X(attribute, (int *v, int which, int card), "cuDeviceGetAttribute", "hipDeviceGetAttribute")             \
    X(bus_id, (char *s, int n, int card), "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId")                     \
    X(mem_info, (size_t * n_free, size_t * n_total), "cuMemGetInfo_v2", "hipMemGetInfo")                     \
    X(mem_alloc, (void **p, size_t n), "cuMemAlloc_v2", "hipMalloc")                                         \
    X(mem_free, (void *p), "cuMemFree_v2", "hipFree")                                                        \
    X(pinned_alloc, (void **p, size_t n, unsigned flags), "cuMemHostAlloc", "hipHostMalloc")                 \
    X(pinned_free, (void *p), "cuMemFreeHost", "hipHostFree")                                                \
    X(host_register, (void *p, size_t n, unsigned flags), "cuMemHostRegister_v2", "hipHostRegister")         \
    X(host_unregister, (void *p), "cuMemHostUnregister", "hipHostUnregister")                                \
    X(host_pointer, (void **card, void *host, unsigned flags), "cuMemHostGetDevicePointer_v2",               \
      "hipHostGetDevicePointer")                                                                             \
    X(to_device, (void *dst, const void *src, size_t n, void *stream), "cuMemcpyHtoDAsync_v2",               \
      "hipMemcpyHtoDAsync")                                                                                  \
    X(to_host, (void *dst, const void *src, size_t n, void *stream), "cuMemcpyDtoHAsync_v2",                 \
      "hipMemcpyDtoHAsync")                                                                                  \
    X(on_device, (void *dst, const void *src, size_t n, void *stream), "cuMemcpyDtoDAsync_v2",               \
      "hipMemcpyDtoDAsync")                                                                                  \
    X(fill, (void *dst, unsigned char v, size_t n, void *stream), "cuMemsetD8Async", "hipMemsetD8Async")     \
    X(stream_new, (void **s, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags")                  \
    X(stream_free, (void *s), "cuStreamDestroy_v2", "hipStreamDestroy")                                      \
    X(stream_sync, (void *s), "cuStreamSynchronize", "hipStreamSynchronize")                                 \
    X(stream_wait, (void *s, void *event, unsigned flags), "cuStreamWaitEvent", "hipStreamWaitEvent")        \
    X(event_new, (void **e, unsigned flags), "cuEventCreate", "hipEventCreateWithFlags")                     \
    X(event_free, (void *e), "cuEventDestroy_v2", "hipEventDestroy")                                         \
    X(event_record, (void *e, void *stream), "cuEventRecord", "hipEventRecord")                              \
    X(event_sync, (void *e), "cuEventSynchronize", "hipEventSynchronize")                                    \
    X(event_query, (void *e), "cuEventQuery", "hipEventQuery")                                               \
    X(event_ms, (float *ms, void *from, void *to), "cuEventElapsedTime", "hipEventElapsedTime")              \
    X(module_load, (void **m, const void *image), "cuModuleLoadData", "hipModuleLoadData")                   \
    X(module_free, (void *m), "cuModuleUnload", "hipModuleUnload")                                           \
    X(function, (void **f, void *module, const char *name), "cuModuleGetFunction", "hipModuleGetFunction")   \
    X(capture_begin, (void *stream, int mode), "cuStreamBeginCapture_v2", "hipStreamBeginCapture")           \
    X(capture_end, (void *stream, void **graph), "cuStreamEndCapture", "hipStreamEndCapture")                \
    X(graph_free, (void *graph), "cuGraphDestroy", "hipGraphDestroy")                                        \
    X(exec_new, (void **exec, void *graph, unsigned long long flags), "cuGraphInstantiateWithFlags",         \
      "hipGraphInstantiateWithFlags")                                                                        \
    X(exec_free, (void *exec), "cuGraphExecDestroy", "hipGraphExecDestroy")                                  \
    X(exec_launch, (void *exec, void *stream), "cuGraphLaunch", "hipGraphLaunch")

/* X(field, parameters, CUDA's symbol, HIP's symbol): the compiler at run time, all there or none */
#define GPU_RTC_SYMBOLS(X)                                                                                   \
    X(rtc_version, (int *major, int *minor), "nvrtcVersion", "hiprtcVersion")                                \
    X(rtc_new,                                                                                               \
      (void **prog, const char *text, const char *name, int n, const char *const *headers,                   \
       const char *const *names),                                                                            \
      "nvrtcCreateProgram", "hiprtcCreateProgram")                                                           \
    X(rtc_compile, (void *prog, int n, const char *const *options), "nvrtcCompileProgram",                   \
      "hiprtcCompileProgram")                                                                                \
    X(rtc_log_size, (void *prog, size_t *n), "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize")            \
    X(rtc_log, (void *prog, char *s), "nvrtcGetProgramLog", "hiprtcGetProgramLog")                           \
    X(rtc_code_size, (void *prog, size_t *n), "nvrtcGetCUBINSize", "hiprtcGetCodeSize")                      \
    X(rtc_code, (void *prog, char *s), "nvrtcGetCUBIN", "hiprtcGetCode")                                     \
    X(rtc_free, (void **prog), "nvrtcDestroyProgram", "hiprtcDestroyProgram")

enum { GPU_STREAM_APART = 1 /* not ordered with the default stream */, GPU_EVENT_UNTIMED = 2 };
enum { GPU_HOST_MAPPED = 2 | 1, GPU_HOST_READ_ONLY = 8 }; // mapped for every context; the card only reads it
enum { GPU_NOT_READY = 600 };                             // event_query: not yet
enum { GPU_CAPTURE_THREAD = 1 }; // capture mode: other threads may allocate meanwhile

typedef struct gpu_launch_shape {
    uint32_t grid[3], block[3], shared_bytes;
} gpu_launch_shape;

typedef struct gpu_drv {
    gpu_kind kind;
    bool ok;           // the library is there and says it has cards
    bool rtc;          // rtc_* are there
    const char *id;    // "hip", "cuda", "sim"
    char why[400];     // when not ok, in the words of an error line
    char library[200]; // absolute path, "" when there is none
    int code_version;  // of the driver, as it counts
    int n_card;
#define GPU_DRV_FIELD(field, params, cuda, hip) int(*field) params;
    GPU_DRV_SYMBOLS(GPU_DRV_FIELD)
    GPU_RTC_SYMBOLS(GPU_DRV_FIELD)
#undef GPU_DRV_FIELD
    /* What the vendors do differently. */
    int (*card_open)(void **ctx, int card); // makes the card current for this thread
    void (*card_close)(void *ctx, int card);
    int (*enter)(void *ctx, int card); // current again, on any thread
    int (*launch)(void *function, const gpu_launch_shape *s, void *stream, const void *args, size_t n_args);
    int (*shared_allow)(void *function, uint32_t n_bytes); // dynamic shared memory beyond 48 KiB
    const char *(*error_name)(int rc);
    mica_status (*status_of)(int rc); // what a caller can do about it
    void (*describe)(gpu_card *c);    // arch, wave, multiprocessors ... of card c->index
} gpu_drv;

/* What a person or a plan wants to know of a card. */
struct gpu_card {
    gpu_kind kind;
    int index;
    char id[16];      // "hip:0"
    char name[96];    // "AMD Radeon RX 9070 XT"
    char arch[32];    // "gfx1201", "sm_90"
    char bus[24];     // "0000:03:00.0"
    char reason[400]; // why it is not usable, or ""
    const gpu_drv *drv;
    uint32_t wave, n_mp, shared_bytes, block_threads;
    uint64_t vram_total, vram_free; // bytes; free as the driver says now
    bool integrated, display, usable;
};

enum { GPU_CARD_MAX = 16 };

const gpu_drv *gpu_drv_get(gpu_kind kind); // never NULL; look at ok
/* Every card of every driver; a driver that has none gives one row with the reason when this machine seems to
 * have such a card. sim is listed when MICA_SIM is set. Returns how many were written. */
size_t gpu_card_list(gpu_card *out, size_t max);
/* One card by "hip:0"; MICA_E_DEVICE with the reason when it cannot be used. */
mica_status gpu_card_get(gpu_card *out, gpu_kind kind, int index, mica_error *err);
/* The best card for "auto", discrete before integrated; false with the reason (maybe "": this machine has no
 * card at all). */
bool gpu_card_choose(gpu_card *out, char *why, size_t n_why);

/* ---- for the fillings ---- */

typedef struct gpu_lib {
    void *handle; // of dlopen, kept for the life of the process
    char path[200];
} gpu_lib;

/* Tries each name in each folder (GPU libraries' usual places and MICA_LIBRARY_PATH), then by name alone. */
bool gpu_lib_open(gpu_lib *out, const char *const *names, const char *const *folders);
void gpu_hip_fill(gpu_drv *v);
void gpu_cuda_fill(gpu_drv *v);
void gpu_sim_fill(gpu_drv *v);
/* Sets all symbols of one column (0 CUDA, 1 HIP); the name of a missing one, or NULL. */
const char *gpu_drv_bind(gpu_drv *v, void *lib, int column);
bool gpu_drv_bind_rtc(gpu_drv *v, void *lib, int column);

/* Why a card's device node cannot be opened: "no permission on /dev/kfd (group render)", what to install when
 * there is a card and no node, or "". seen: there is such hardware. */
void gpu_node_check(gpu_kind kind, bool *seen, char *why, size_t n_why);
/* The first card of this maker on the PCI bus, in the folder of the system's files on it
 * ("/sys/bus/pci/devices"). */
bool gpu_node_pci(char *bus, size_t n_bus, gpu_kind kind, const char *folder);
bool gpu_node_display(const char *bus); // a connector of the card is connected (sysfs)

#endif
