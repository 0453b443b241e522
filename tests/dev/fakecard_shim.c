/* Libraries that look like vendors' drivers and have no card, or cards of a kind, as the environment of the
 * test says: what mica makes of a driver's answers is tested without one. Built once, linked under the
 * vendors' names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static int number(const char *name) {
    const char *v = getenv(name);
    return v ? atoi(v) : 0;
}

/* Everything that is never called by looking at cards. */
#define NEVER(name)                                                                                          \
    API int name(void);                                                                                      \
    API int name(void) {                                                                                     \
        return 999;                                                                                          \
    }
#define BOTH(a, b) NEVER(a) NEVER(b)
BOTH(cuMemAlloc_v2, hipMalloc)
BOTH(cuMemFree_v2, hipFree)
BOTH(cuMemHostAlloc, hipHostMalloc)
BOTH(cuMemFreeHost, hipHostFree)
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)
BOTH(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)
BOTH(cuMemsetD8Async, hipMemsetD8Async)
BOTH(cuStreamCreate, hipStreamCreateWithFlags)
BOTH(cuStreamDestroy_v2, hipStreamDestroy)
BOTH(cuStreamSynchronize, hipStreamSynchronize)
BOTH(cuStreamWaitEvent, hipStreamWaitEvent)
BOTH(cuEventCreate, hipEventCreateWithFlags)
BOTH(cuEventDestroy_v2, hipEventDestroy)
BOTH(cuEventRecord, hipEventRecord)
BOTH(cuEventQuery, hipEventQuery)
BOTH(cuMemHostRegister_v2, hipHostRegister)
BOTH(cuMemHostUnregister, hipHostUnregister)
BOTH(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer)
BOTH(cuEventSynchronize, hipEventSynchronize)
BOTH(cuEventElapsedTime, hipEventElapsedTime)
BOTH(cuModuleLoadData, hipModuleLoadData)
BOTH(cuModuleUnload, hipModuleUnload)
BOTH(cuModuleGetFunction, hipModuleGetFunction)
BOTH(cuStreamBeginCapture_v2, hipStreamBeginCapture)
BOTH(cuStreamEndCapture, hipStreamEndCapture)
BOTH(cuGraphDestroy, hipGraphDestroy)
BOTH(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)
BOTH(cuGraphExecDestroy, hipGraphExecDestroy)
BOTH(cuGraphLaunch, hipGraphLaunch)
BOTH(cuLaunchKernel, hipModuleLaunchKernel)
NEVER(cuFuncSetAttribute)

#define FAKE(name, ...)                                                                                      \
    API int name(__VA_ARGS__);                                                                               \
    API int name(__VA_ARGS__)

static int init_rc(void) {
    return number("FAKECARD_INIT");
}
static int count_cards(int *n) {
    *n = number("FAKECARD_COUNT");
    return *n > 0 ? 0 : 100;
}
static int card_memory(size_t *n_free, size_t *n_total) {
    *n_total = (size_t)24 << 30;
    *n_free = (size_t)20 << 30;
    return 0;
}

FAKE(cuInit, unsigned f) {
    (void)f;
    return init_rc();
}
FAKE(hipInit, unsigned f) {
    (void)f;
    return init_rc();
}
FAKE(cuDriverGetVersion, int *v) {
    *v = 13000;
    return 0;
}
FAKE(hipRuntimeGetVersion, int *v) {
    *v = 60443484;
    return 0;
}
FAKE(cuDeviceGetCount, int *n) {
    return count_cards(n);
}
FAKE(hipGetDeviceCount, int *n) {
    return count_cards(n);
}
FAKE(cuDeviceGetName, char *s, int n, int card) {
    snprintf(s, (size_t)n, "fake card %d", card);
    return 0;
}
FAKE(hipDeviceGetName, char *s, int n, int card) {
    snprintf(s, (size_t)n, "fake card %d", card);
    return 0;
}
FAKE(cuDeviceTotalMem_v2, size_t *n, int card) {
    (void)card;
    return card_memory(&(size_t){0}, n);
}
FAKE(hipDeviceTotalMem, size_t *n, int card) {
    (void)card;
    return card_memory(&(size_t){0}, n);
}
FAKE(cuMemGetInfo_v2, size_t *n_free, size_t *n_total) {
    return card_memory(n_free, n_total);
}
FAKE(hipMemGetInfo, size_t *n_free, size_t *n_total) {
    return card_memory(n_free, n_total);
}
FAKE(cuDeviceGetPCIBusId, char *s, int n, int card) {
    snprintf(s, (size_t)n, "0000:FE:%02X.0", card);
    return 0;
}
FAKE(hipDeviceGetPCIBusId, char *s, int n, int card) {
    snprintf(s, (size_t)n, "0000:fe:%02x.0", card);
    return 0;
}
/* Of several cards, 0 is the integrated one. */
FAKE(cuDeviceGetAttribute, int *v, int which, int card) {
    static const int of[101] = {[1] = 1024, [8] = 49152, [16] = 132, [75] = 9, [97] = 232448};
    int integrated = card == 0 && number("FAKECARD_COUNT") > 1;
    *v = which == 18 ? integrated : which == 75 && number("FAKECARD_OLD") ? 5 : which < 101 ? of[which] : 0;
    return 0;
}
FAKE(hipDeviceGetAttribute, int *v, int which, int card) {
    int integrated = card == 0 && number("FAKECARD_COUNT") > 1;
    *v = which == 16 ? integrated : which == 63 ? 64 : which == 56 ? 1024 : which == 74 ? 65536 : 0;
    return 0;
}
FAKE(hipGetDevicePropertiesR0600, char *p, int card) {
    (void)card;
    snprintf(p, 64, "gfx000 is only a name");
    snprintf(p + 1160, 64, "%s:sramecc-:xnack-", getenv("FAKECARD_GFX") ? getenv("FAKECARD_GFX") : "gfx1201");
    return 0;
}
FAKE(cuDevicePrimaryCtxRetain, void **c, int card) {
    *c = (void *)(size_t)(card + 1);
    return number("FAKECARD_CONTEXT");
}
FAKE(cuDevicePrimaryCtxRelease_v2, int card) {
    (void)card;
    return 0;
}
FAKE(cuCtxSetCurrent, void *c) {
    (void)c;
    return 0;
}
FAKE(hipSetDevice, int card) {
    (void)card;
    return number("FAKECARD_CONTEXT");
}
FAKE(cuGetErrorName, int rc, const char **s) {
    *s = rc == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : rc == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
API const char *hipGetErrorName(int rc);
API const char *hipGetErrorName(int rc) {
    return rc == 2 ? "hipErrorOutOfMemory" : "hipErrorUnknown";
}
