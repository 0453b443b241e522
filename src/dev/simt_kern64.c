/* Every kernel of src/kern as code of this machine, for waves of 64 lanes. */
#define WAVE 64
#define MICA_SIMT 1
#include "kern/all.cuh"

#include "dev/simt.h"

#define SIMT_ENTRY(name) {#name, name, name##_args, name##_threads},
const simt_kernel simt_kernels_64[] = {GPU_KERNELS(SIMT_ENTRY)};
#undef SIMT_ENTRY
