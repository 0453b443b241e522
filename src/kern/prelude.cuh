/* What kernels are written in: the one file of device source that knows a vendor, an architecture or inline
 * assembly.
 *
 * Three targets read the same text: CUDA (nvcc, NVRTC), HIP (clang, hipRTC) and plain C17 for the simulated
 * card, where a thread of a block is a fibre (dev/simt.c). Kernels say
 *
 *     KERNEL(name, record, threads) { ... job.x ... }    one struct by value, at most `threads` a block
 *     SHARED(type, name, n);                              first thing in a kernel, not inside a condition
 *     THREAD, BLOCK_X, BLOCK_Y, BLOCK_Z                   blocks are one-dimensional, multiples of 64 threads
 *     block_sync()                                        every thread of the block
 *     lane_*                                              every thread of the wave (WAVE of them)
 *
 * Groups are never wider than 32 lanes, LANE = THREAD % 32: a wave of 64 is two of them, and the bits cannot
 * depend on the width. Nothing is contracted or flushed: division, square root and fmaf round once. */
#ifndef MICA_KERN_PRELUDE_CUH
#define MICA_KERN_PRELUDE_CUH

#if defined(MICA_SIMT) /* ---- the simulated card ---- */

#include "base/exactf.h"
#include "base/half.h"
#include "base/num.h"
#include "kern/simt_lane.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;

#define KERNEL(name, record, threads)                                                                        \
    static void name##_lane(const record job);                                                               \
    static void name(const void *args) {                                                                     \
        name##_lane(*(const record *)args);                                                                  \
    }                                                                                                        \
    enum { name##_args = sizeof(record), name##_threads = threads };                                         \
    static void name##_lane(const record job)
#define SHARED(type, name, n) type *const name = (type *)simt_shared(sizeof(type) * (n))
#define THREAD (simt_me->thread)
#define BLOCK_X (simt_me->block[0])
#define BLOCK_Y (simt_me->block[1])
#define BLOCK_Z (simt_me->block[2])
#define UNROLL
#define UNROLL_BY_2
#define block_sync() simt_barrier(__LINE__)
/* Nothing before it is moved behind it: between loads that shall all be on their way and their use. Every
 * lane of the wave. */
#define lane_join() (void)0
/* A kernel may start while the one before it in the stream still runs, where a card can do that. What that
 * one writes is there after grid_wait, and nothing is written before it. KERNEL does it at the start; a
 * kernel of KERNEL_EARLY must call it itself, as soon as it needs more than its record and constant weights.
 * fit: so many of its blocks must fit a multiprocessor; a compiler that is not told saves registers and
 * brings loads one by one. */
#define grid_wait() (void)0
#define KERNEL_EARLY(name, record, threads, fit) KERNEL(name, record, threads)

DEV float f32_rint(float x) {
    return rintf(x);
}
DEV float f32_sqrt(float x) {
    return sqrtf(x);
}
DEV i32 dot4(u32 a, u32 b, i32 c) {
    for (u32 i = 0; i < 32; i += 8) c += (i32)(i8)(a >> i & 255) * (i32)(i8)(b >> i & 255);
    return c;
}
/* The same address, known to be of the card's own memory: a pointer that was itself loaded could be of shared
 * memory for all that a compiler knows. */
DEV const u8 *global_bytes(const void *p) {
    return (const u8 *)p;
}
/* 8 and 16 aligned bytes. */
DEV void load_8(u32 o[2], const void *p) {
    memcpy(o, p, 8);
}
DEV void load_16(u32 o[4], const void *p) {
    memcpy(o, p, 16);
}
/* The same from the card's own memory, where it stands: a compiler that fears for registers moves loads to
 * where their values are used, and nothing is on its way any more. */
#define fetch_4(o, p) memcpy(o, p, 4)
#define fetch_8 load_8
#define fetch_16 load_16
/* 16 bytes from an even address, in two steps, so that they can be on their way while others are worked on: a
 * card that loads from aligned addresses alone brings the words around them. */
typedef struct any_16 {
    u32 w[4];
} any_16;
DEV void any_16_load(any_16 *o, const void *p) {
    memcpy(o->w, p, 16);
}
DEV void any_16_get(u32 o[4], const any_16 *a) {
    memcpy(o, a->w, 16);
}

/* A wave operation is one exchange: simt_wave gives what every lane brought, four words a lane. */
DEV float lane_xor_f32(float v, u32 mask) {
    return simt_wave(&v, 1, SIMT_XOR)[4 * (simt_me->lane ^ mask)];
}
DEV u32 lane_xor_u32(u32 v, u32 mask) {
    return f32_bits(lane_xor_f32(bits_f32(v), mask));
}
DEV void lane_xor4_f32(float v[4], u32 mask) {
    memcpy(v, simt_wave(v, 4, SIMT_XOR) + 4 * (simt_me->lane ^ mask), 16);
}
DEV float lane_get_f32(float v, u32 from) {
    return simt_wave(&v, 1, SIMT_GET)[4 * ((simt_me->lane & ~31u) + from)];
}
DEV float lane_tree_f32(float v, u32 n) {
    const float *s = simt_wave(&v, 1, SIMT_TREE) + 4 * (simt_me->lane & ~(n - 1));
    float p[32];
    for (u32 i = 0; i < n; i++) p[i] = s[4 * i];
    for (u32 d = 1; d < n; d *= 2) {
        for (u32 i = 0; i < n; i += 2 * d) p[i] = p[i] + p[i + d];
    }
    return p[0];
}
DEV float lane_max_f32(float v, u32 n) {
    const float *s = simt_wave(&v, 1, SIMT_MAX) + 4 * (simt_me->lane & ~(n - 1));
    for (u32 i = 0; i < n; i++) v = s[4 * i] > v ? s[4 * i] : v;
    return v;
}
DEV i32 lane_sum_i32(i32 v, u32 n) {
    float bits = bits_f32((u32)v);
    const float *s = simt_wave(&bits, 1, SIMT_SUM) + 4 * (simt_me->lane & ~(n - 1));
    u32 sum = 0;
    for (u32 i = 0; i < n; i++) sum += f32_bits(s[4 * i]);
    return (i32)sum;
}

/* One width has the matrix unit, so that both ways of a product are tested. */
#define TILE_MMA (WAVE == 32)
/* Adds A B to c as lane_mma_i8 of a card does: what a lane holds stands there. n_word: 4-byte words of a row
 * of A that a lane brings, 1 (16 columns) or 2 (32 columns). */
DEV void lane_mma_words(i32 c[4], const u32 *a, const u32 *b, u32 n_word) {
    const u32 lane = simt_me->lane % 32, base = simt_me->lane - lane;
    u32 rows[4][4], ab[4] = {0};
    memcpy(ab, a, 8 * n_word);
    const float *s = simt_wave((const float *)(const void *)ab, 4, SIMT_MMA);
    for (u32 k = 0; k < 4; k++) memcpy(rows[k], s + 4 * (base + lane / 4 * 4 + k), 16);
    memcpy(ab, b, 4 * n_word);
    s = simt_wave((const float *)(const void *)ab, 4, SIMT_MMA);
    for (u32 i = 0; i < 8 * n_word; i++) { // c[2 h + j]: row 8 h, column j
        const u32 k = i % 4, word = i / 4 % n_word, j = i / (4 * n_word);
        u32 col[4];
        memcpy(col, s + 4 * (base + 4 * (lane % 4 * 2 + j) + k), 16);
        c[j] = dot4(rows[k][2 * word], col[word], c[j]);
        c[2 + j] = dot4(rows[k][2 * word + 1], col[word], c[2 + j]);
    }
}
DEV void lane_mma_i8(i32 c[4], const u32 a[4], const u32 b[2]) {
    lane_mma_words(c, a, b, 2);
}
DEV void lane_mma_i8_half(i32 c[4], const u32 a[2], const u32 b[1]) {
    lane_mma_words(c, a, b, 1);
}

#else /* ---- real cards ---- */

#define MICA_DEVICE_SOURCE 1

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
// The names shared headers use; macros, because a run-time compiler may have them as types already.
#define uint8_t u8
#define int8_t i8
#define uint16_t u16
#define uint32_t u32
#define int32_t i32
#define uint64_t u64
#define int64_t long long
#ifndef __CUDACC_RTC__
#define size_t __SIZE_TYPE__
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) /* ---- CUDA ---- */

#define DEV static __device__ __forceinline__
#define TABLE static __device__ const
#if __CUDA_ARCH__ >= 900
#define grid_wait() asm volatile("griddepcontrol.wait;" ::: "memory")
#define grid_next() asm volatile("griddepcontrol.launch_dependents;")
#else
#define grid_wait() (void)0
#define grid_next() (void)0
#endif
#define KERNEL_OF(name, record, bounds, start)                                                               \
    DEV void name##_body(const record &job);                                                                 \
    extern "C" __global__ void __launch_bounds__ bounds name(const __grid_constant__ record job) {           \
        grid_next();                                                                                         \
        start;                                                                                               \
        name##_body(job);                                                                                    \
    }                                                                                                        \
    DEV void name##_body(const record &job)
#define KERNEL(name, record, threads) KERNEL_OF(name, record, (threads), grid_wait())
#define KERNEL_EARLY(name, record, threads, fit) KERNEL_OF(name, record, (threads, fit), )
#define lane_join() __syncwarp()
#define SHARED(type, name, n) __shared__ __attribute__((aligned(16))) type name[n]
#define THREAD threadIdx.x
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define BLOCK_Z blockIdx.z
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_2 _Pragma("unroll 2")
#define block_sync() __syncthreads()

#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)
#define __builtin_fma(a, b, c) __fma_rn(a, b, c)
#define __builtin_inff() __int_as_float(0x7F800000)
#define __builtin_nanf(s) __int_as_float(0x7FC00000)

DEV float bits_f32(u32 u) {
    return __uint_as_float(u);
}
DEV u32 f32_bits(float f) {
    return __float_as_uint(f);
}
DEV double bits_f64(u64 u) {
    return __longlong_as_double((long long)u);
}
DEV u64 f64_bits(double f) {
    return (u64)__double_as_longlong(f);
}
DEV float f32_rint(float x) {
    return rintf(x);
}
DEV float f32_sqrt(float x) {
    return __fsqrt_rn(x);
}
DEV float f16_to_f32(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
DEV u16 f32_to_f16(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
DEV i32 dot4(u32 a, u32 b, i32 c) {
    return __dp4a((i32)a, (i32)b, c);
}
#if __CUDA_ARCH__ >= 800
#define TILE_MMA 1
/* c += A B over 16 x 8 results and 32 columns of A, exact: a[0] and a[1] are columns 4 (l % 4) .. + 3 of rows
 * l / 4 and l / 4 + 8 of A, a[2] and a[3] the same 16 columns on; b alike of column l / 4 of B; c[0], c[1]
 * are columns 2 (l % 4) and + 1 of row l / 4 of the result, c[2], c[3] of row l / 4 + 8. l is LANE. */
DEV void lane_mma_i8(i32 c[4], const u32 a[4], const u32 b[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The same over 16 columns of A. */
DEV void lane_mma_i8_half(i32 c[4], const u32 a[2], const u32 b[1]) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
#else
#define TILE_MMA 0
#endif
DEV const u8 *global_bytes(const void *p) {
    u64 at;
    asm("cvta.to.global.u64 %0, %1;" : "=l"(at) : "l"(p)); // as seen: a pair of casts is folded away
    return (const u8 *)__cvta_global_to_generic(at);
}
DEV u16 load_u16(const void *p) {
    return *(const u16 *)p; // no format puts 16 bits on an odd address
}
/* Any address: the two words around it, the same one twice when it is aligned, so that nothing beyond the
 * value's own words is read. */
DEV u32 load_u32(const void *p) {
    u64 at = (u64)p;
    u32 low = *(const u32 *)(at & ~(u64)3), high = *(const u32 *)((at + 3) & ~(u64)3);
    return __funnelshift_r(low, high, 8 * (u32)(at & 3));
}
DEV void load_words(u32 *o, const void *p, u32 n, u32 align) {
    if (align % 16 == 0 && n % 4 == 0) {
        UNROLL
        for (u32 i = 0; i < n; i += 4) {
            uint4 v = ((const uint4 *)p)[i / 4];
            o[i] = v.x;
            o[i + 1] = v.y;
            o[i + 2] = v.z;
            o[i + 3] = v.w;
        }
        return;
    }
    const u64 at = (u64)p;
    const u32 *w = (const u32 *)(at & ~(u64)3), shift = align % 4 == 0 ? 0 : 8 * (u32)(at & 3);
    u32 low = w[0];
    UNROLL
    for (u32 i = 0; i < n; i++) {
        const u32 high = w[i + 1 < n || shift ? i + 1 : i]; // nothing beyond the last byte's word is read
        o[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}
DEV void load_16(u32 o[4], const void *p) {
    uint4 v = *(const uint4 *)p;
    o[0] = v.x;
    o[1] = v.y;
    o[2] = v.z;
    o[3] = v.w;
}
DEV void load_8(u32 o[2], const void *p) {
    uint2 v = *(const uint2 *)p;
    o[0] = v.x;
    o[1] = v.y;
}
DEV void fetch_4(u32 o[1], const void *p) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(o[0]) : "l"(p));
}
DEV void fetch_8(u32 o[2], const void *p) {
    asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(o[0]), "=r"(o[1]) : "l"(p));
}
DEV void fetch_16(u32 o[4], const void *p) {
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3])
                 : "l"(p));
}
typedef struct any_16 {
    u32 w[8], off;
} any_16;
/* Up to 15 bytes on either side are read too, in the 16 bytes' own aligned 16. */
DEV void any_16_load(any_16 *o, const void *p) {
    const u64 at = (u64)p;
    o->off = (u32)(at & 15);
    fetch_16(o->w, (const void *)(at & ~(u64)15));
    fetch_16(o->w + 4, (const void *)((at + 15) & ~(u64)15));
}
DEV void any_16_get(u32 o[4], const any_16 *a) {
    u32 w[6], v[5];
    UNROLL
    for (u32 i = 0; i < 6; i++) w[i] = a->off & 8 ? a->w[i + 2] : a->w[i];
    UNROLL
    for (u32 i = 0; i < 5; i++) v[i] = a->off & 4 ? w[i + 1] : w[i];
    UNROLL
    for (u32 i = 0; i < 4; i++) o[i] = __funnelshift_r(v[i], v[i + 1], 8 * (a->off & 3));
}
DEV float lane_xor_f32(float v, u32 mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, v, (int)mask);
}
DEV u32 lane_xor_u32(u32 v, u32 mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, v, (int)mask);
}
DEV float lane_get_f32(float v, u32 from) {
    return __shfl_sync(0xFFFFFFFFu, v, (int)from);
}

#else /* ---- HIP ---- */

#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#define DEV static __device__ inline __attribute__((always_inline))
#define TABLE static __device__ const
#define KERNEL(name, record, threads)                                                                        \
    extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(64, threads)))                     \
    name(const record job)
#define KERNEL_EARLY(name, record, threads, fit) KERNEL(name, record, threads)
#define grid_wait() (void)0
#define lane_join() (void)0
#define SHARED(type, name, n) __shared__ __attribute__((aligned(16))) type name[n]
#define THREAD ((u32)__builtin_amdgcn_workitem_id_x())
#define BLOCK_X ((u32)__builtin_amdgcn_workgroup_id_x())
#define BLOCK_Y ((u32)__builtin_amdgcn_workgroup_id_y())
#define BLOCK_Z ((u32)__builtin_amdgcn_workgroup_id_z())
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_2 _Pragma("unroll 2")

DEV void block_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEV float bits_f32(u32 u) {
    return __builtin_bit_cast(float, u);
}
DEV u32 f32_bits(float f) {
    return __builtin_bit_cast(u32, f);
}
DEV double bits_f64(u64 u) {
    return __builtin_bit_cast(double, u);
}
DEV u64 f64_bits(double f) {
    return __builtin_bit_cast(u64, f);
}
DEV float f32_rint(float x) {
    return __builtin_rintf(x);
}
DEV float f32_sqrt(float x) {
    return __builtin_sqrtf(x);
}
DEV float f16_to_f32(u16 h) {
    return (float)__builtin_bit_cast(_Float16, h);
}
DEV u16 f32_to_f16(float f) {
    return __builtin_bit_cast(u16, (_Float16)f);
}
DEV i32 dot4(u32 a, u32 b, i32 c) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#else
    return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
#endif
}
#define TILE_MMA 0
/* These cards load words from any address. */
typedef u16 any_u16 __attribute__((aligned(1), may_alias));
typedef u32 any_u32 __attribute__((aligned(1), may_alias));
typedef u32 quad_u32 __attribute__((ext_vector_type(4), may_alias));
DEV const u8 *global_bytes(const void *p) {
    return (const u8 *)(const __attribute__((address_space(1))) u8 *)p;
}
DEV u16 load_u16(const void *p) {
    return *(const any_u16 *)p;
}
DEV u32 load_u32(const void *p) {
    return *(const any_u32 *)p;
}
DEV void load_words(u32 *o, const void *p, u32 n, u32 align) {
    __builtin_memcpy(o, align % 16 == 0 ? __builtin_assume_aligned(p, 16) : p, 4 * n);
}
DEV void load_16(u32 o[4], const void *p) {
    quad_u32 v = *(const quad_u32 *)p;
    o[0] = v.x;
    o[1] = v.y;
    o[2] = v.z;
    o[3] = v.w;
}
DEV void load_8(u32 o[2], const void *p) {
    __builtin_memcpy(o, __builtin_assume_aligned(p, 8), 8);
}
#define fetch_4(o, p) __builtin_memcpy(o, __builtin_assume_aligned(p, 4), 4)
#define fetch_8 load_8
#define fetch_16 load_16
typedef struct any_16 {
    u32 w[4];
} any_16;
DEV void any_16_load(any_16 *o, const void *p) {
    __builtin_memcpy(o->w, p, 16);
}
DEV void any_16_get(u32 o[4], const any_16 *a) {
    UNROLL
    for (u32 i = 0; i < 4; i++) o[i] = a->w[i];
}
DEV u32 lane_of_wave() {
#if WAVE == 64
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
    return __builtin_amdgcn_mbcnt_lo(~0u, 0);
#endif
}
DEV u32 lane_xor_u32(u32 v, u32 mask) {
    return (u32)__builtin_amdgcn_ds_bpermute((i32)((lane_of_wave() ^ mask) << 2), (i32)v);
}
DEV float lane_xor_f32(float v, u32 mask) {
    return bits_f32(lane_xor_u32(f32_bits(v), mask));
}
DEV float lane_get_f32(float v, u32 from) {
    u32 at = (lane_of_wave() & ~31u) + from;
    return bits_f32((u32)__builtin_amdgcn_ds_bpermute((i32)(at << 2), (i32)f32_bits(v)));
}

#endif

DEV float bf16_to_f32(u16 h) {
    return bits_f32((u32)h << 16);
}
DEV void lane_xor4_f32(float v[4], u32 mask) {
    UNROLL
    for (u32 i = 0; i < 4; i++) v[i] = lane_xor_f32(v[i], mask);
}
/* The tree of docs/ARITHMETIC.md over n neighbouring lanes, n a power of two: a sum of two does not depend on
 * which comes first, so every lane has the result of the first. */
DEV float lane_tree_f32(float v, u32 n) {
    UNROLL
    for (u32 d = 1; d < n; d *= 2) v = v + lane_xor_f32(v, d);
    return v;
}
DEV float lane_max_f32(float v, u32 n) {
    UNROLL
    for (u32 d = 1; d < n; d *= 2) {
        float o = lane_xor_f32(v, d);
        v = o > v ? o : v;
    }
    return v;
}
DEV i32 lane_sum_i32(i32 v, u32 n) {
    UNROLL
    for (u32 d = 1; d < n; d *= 2) v += (i32)lane_xor_u32((u32)v, d);
    return v;
}

#include "base/exactf.h"

#endif

#define LANE (THREAD % 32u)

DEV float f32_fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
/* Four bytes to an aligned address. */
DEV void store_4(void *p, u32 v) {
#if defined(MICA_SIMT)
    memcpy(p, &v, 4);
#else
    *(u32 *)p = v;
#endif
}
/* Four floats to an address of 16. */
DEV void store_16(float *p, const float v[4]) {
#if defined(MICA_SIMT)
    memcpy(p, v, 16);
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
    *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
#else
    __builtin_memcpy(__builtin_assume_aligned(p, 16), v, 16);
#endif
}
DEV float f32_abs(float x) {
    return bits_f32(f32_bits(x) & 0x7FFFFFFFu);
}
/* Sums of products that begin at DOT_ZERO instead of 0 are, as bits, 1.5 * 2^23 plus the sum: one exact
 * subtraction makes a float of them, where a conversion takes a slower unit. |sum| < 2^22. */
#define DOT_ZERO 0x4B400000
DEV float dot_f32(i32 v) {
    return bits_f32((u32)v) - 12582912.0f;
}
DEV u32 u32_min(u32 a, u32 b) {
    return a < b ? a : b;
}

#endif
