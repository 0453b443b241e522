/* Instruction sets from CPUID (and XCR0: the system must save the registers), cores from hwloc, limits from
 * cgroups. */
#include "base/cpu.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const g_isa_name[CPU_ISA_N] = {"scalar", "avx2", "avx512"};

const char *cpu_isa_name(cpu_isa isa) {
    return g_isa_name[isa];
}

bool cpu_isa_parse(cpu_isa *out, const char *name) {
    for (int i = 0; i < CPU_ISA_N; i++) {
        if (strcmp(name, g_isa_name[i]) == 0) {
            *out = (cpu_isa)i;
            return true;
        }
    }
    return false;
}

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned long long xcr0(void) {
    unsigned a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (unsigned long long)d << 32 | a;
}

cpu_isa cpu_isa_best(void) {
    unsigned a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return CPU_SCALAR;
    bool osxsave = c >> 27 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return CPU_SCALAR;
    unsigned long long x = xcr0();
    bool avx2 = b7 >> 5 & 1, bmi2 = b7 >> 8 & 1;
    if ((x & 6) != 6 || !avx2 || !bmi2 || !fma || !f16c) return CPU_SCALAR;
    bool f = b7 >> 16 & 1, dq = b7 >> 17 & 1, bw = b7 >> 30 & 1, vl = b7 >> 31 & 1, vnni = c7 >> 11 & 1;
    if ((x & 0xE6) != 0xE6 || !f || !dq || !bw || !vl || !vnni) return CPU_AVX2;
    return CPU_AVX512;
}

bool cpu_has_avxvnni(void) {
    unsigned a, b, c, d;
    if (cpu_isa_best() == CPU_SCALAR || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return false;
    return a >> 4 & 1;
}
#else
cpu_isa cpu_isa_best(void) {
    return CPU_SCALAR;
}
bool cpu_has_avxvnni(void) {
    return false;
}
#endif

/* The processor-time limit of our cgroup, rounded up to whole processors; 0 when there is none. */
static int cgroup_quota(void) {
    double quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        char word[32] = "";
        if (fscanf(f, "%31s %lf", word, &period) == 2 && strcmp(word, "max") != 0) quota = atof(word);
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"))) {
        if (fscanf(f, "%lf", &quota) != 1) quota = -1;
        fclose(f);
        f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re");
        if (f) {
            if (fscanf(f, "%lf", &period) != 1) period = 0;
            fclose(f);
        }
    }
    if (quota <= 0 || period <= 0) return 0;
    int n = (int)(quota / period);
    return n < quota / period ? n + 1 : n;
}

static void model_name(cpu_topology *t) {
    snprintf(t->model, sizeof t->model, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(t->model, sizeof t->model, "%.120s", colon + 2);
        break;
    }
    fclose(f);
}

static bool allowed(hwloc_const_bitmap_t core, const cpu_set_t *mask) {
    for (int p = hwloc_bitmap_first(core); p >= 0; p = hwloc_bitmap_next(core, p)) {
        if (p < CPU_SETSIZE && CPU_ISSET((size_t)p, mask)) return true;
    }
    return false;
}

/* Cores of `top` that our mask allows; hwloc ranks kinds by efficiency, the last is the fastest. */
static void count_cores(cpu_topology *t, hwloc_topology_t top, const cpu_set_t *mask) {
    int n_kind = hwloc_cpukinds_get_nr(top, 0);
    for (hwloc_obj_t c = NULL; (c = hwloc_get_next_obj_by_type(top, HWLOC_OBJ_CORE, c));) {
        if (!allowed(c->cpuset, mask)) continue;
        t->n_physical++;
        if (n_kind < 2 || hwloc_cpukinds_get_by_cpuset(top, c->cpuset, 0) == n_kind - 1) t->n_performance++;
    }
    if (t->n_performance == 0) t->n_performance = t->n_physical; // our mask holds slow cores only
}

void cpu_topology_get(cpu_topology *t) {
    *t = (cpu_topology){0};
    model_name(t);
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) CPU_SET(0u, &mask);
    t->n_logical = CPU_COUNT(&mask);
    hwloc_topology_t top;
    if (hwloc_topology_init(&top) == 0) {
        if (hwloc_topology_load(top) == 0) count_cores(t, top, &mask);
        hwloc_topology_destroy(top);
    }
    if (t->n_physical == 0) t->n_physical = t->n_performance = t->n_logical > 0 ? t->n_logical : 1;
    t->n_quota = cgroup_quota();
    t->n_default = t->n_performance;
    if (t->n_quota > 0 && t->n_quota < t->n_default) t->n_default = t->n_quota;
    if (t->n_default < 1) t->n_default = 1;
}
