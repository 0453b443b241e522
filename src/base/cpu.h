/* What this processor can do and which of its cores are ours. Filled once; read-only after. */
#ifndef MICA_BASE_CPU_H
#define MICA_BASE_CPU_H

#include <stdbool.h>

typedef enum cpu_isa {
    CPU_SCALAR,
    CPU_AVX2,   // AVX2, FMA, F16C, BMI2
    CPU_AVX512, // AVX-512 F, BW, DQ, VL, VNNI
    CPU_ISA_N
} cpu_isa;

/* The best instruction set both this processor and its operating system support. */
cpu_isa cpu_isa_best(void);
const char *cpu_isa_name(cpu_isa isa);              // "scalar" "avx2" "avx512"
bool cpu_isa_parse(cpu_isa *out, const char *name); // false when unknown
bool cpu_has_avxvnni(void);                         // the VEX-coded dot product of processors without AVX-512

typedef struct cpu_topology {
    int n_logical;     // logical processors in our affinity mask
    int n_physical;    // physical cores among them
    int n_performance; // physical cores of the fastest kind among those (all of them when there is one kind)
    int n_quota;       // the cgroup's processor-time limit, rounded up; 0 when there is none
    int n_default;     // threads to use when the user says nothing: min(n_performance, n_quota), at least 1
    char model[128];   // the processor's name, or "unknown"
} cpu_topology;

/* hwloc for cores and kinds, the affinity mask and cgroup v1/v2 files for limits. Never fails: falls back to
 * one core. */
void cpu_topology_get(cpu_topology *out);
#endif
