/* The kernels of cpu_row.h and cpu_attn_kern.h in plain C, for processors without AVX2. */
#define DEV_VEC_SCALAR 1
#include "dev/cpu_table.h"

const cpu_fns CPU_FNS(cpu_fns) = CPU_TABLE;
