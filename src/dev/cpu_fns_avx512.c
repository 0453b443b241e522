/* The kernels of cpu_row.h and cpu_attn_kern.h for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#include "dev/cpu_table.h"

const cpu_fns CPU_FNS(cpu_fns) = CPU_TABLE;
#else
typedef int no_x86; // an ISO C unit may not be empty
#endif
