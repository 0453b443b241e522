/* What this processor can do at most, measured: int8 products and f32 fused multiply-adds from registers
 * alone, and plain reads. Each returns a figure so that the work cannot be dropped. */
#ifndef MICA_BENCH_PEAK_H
#define MICA_BENCH_PEAK_H

#include <stddef.h>
#include <stdint.h>

enum { PEAK_INT8_OPS = 64 * 10, PEAK_F32_OPS = 16 * 10 }; // operations in one turn of the AVX2 loops

uint64_t peak_int8_avx2(uint64_t n_turn); // products of bytes added to 16 bits: PEAK_INT8_OPS a turn
uint64_t peak_f32_avx2(uint64_t n_turn);  // PEAK_F32_OPS a turn
uint64_t peak_read_avx2(const void *p, size_t n_bytes); // n_bytes a multiple of 256
uint64_t peak_int8_avx512(uint64_t n_turn); // products of bytes added to 32 bits: 2 * PEAK_INT8_OPS a turn
uint64_t peak_f32_avx512(uint64_t n_turn);  // 2 * PEAK_F32_OPS a turn
#endif
