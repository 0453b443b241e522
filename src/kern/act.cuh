/* Rule 1 on a card: 32 lanes hold a block of activations, one value each. */
#ifndef MICA_KERN_ACT_CUH
#define MICA_KERN_ACT_CUH

#include "kern/prelude.cuh"
#include "kern/record.h"

/* Whoever writes first is as good as any other: the step has failed. */
DEV void note_bad(const bad_note *n) {
    if (*n->at == 0) *n->at = n->what;
}

DEV bool f32_finite(float x) {
    return x - x == 0.0f;
}

/* The scale of a block (or of a head in an i8 cache) whose largest magnitude is amax, and its inverse. */
typedef struct act_scale {
    float d, inv;
} act_scale;

DEV act_scale act_scale_of(float amax) {
    act_scale s;
    s.d = amax / 127.0f;
    if (s.d < 0x1p-126f) s.d = 0.0f;
    s.inv = s.d > 0.0f ? 1.0f / s.d : 0.0f;
    return s;
}

DEV i32 act_round(float x, float inv) {
    float r = f32_rint(x * inv);
    return (i32)(r > 127.0f ? 127.0f : r < -127.0f ? -127.0f : r);
}

/* Quantises the block that holds column i of `row`, x being the lane's value of it. The 32 lanes of the block
 * come together; a group that has none comes with on = false and takes part in the exchanges alone. */
DEV void act_store(const quant_act *a, u64 row, u32 i, float x, bool on, const bad_note *bad) {
    act_scale s = act_scale_of(lane_max_f32(f32_abs(x), 32));
    i32 q = f32_finite(x) ? act_round(x, s.inv) : 0;
    i32 half = lane_sum_i32(q, 16);
    i32 sum = half + (i32)lane_xor_u32((u32)half, 16);
    if (!on) return;
    if (!f32_finite(x)) note_bad(bad);
    u64 at = row * a->ld + i;
    a->q[at] = (i8)q;
    if (LANE % 16 == 0) a->s16[at / 16] = s.d * (float)half;
    if (LANE != 0) return;
    a->d[at / 32] = s.d;
    a->s[at / 32] = s.d * (float)sum;
}

/* The same with four columns a lane, i .. i + 3: eight lanes have a block. */
DEV void act_store4(const quant_act *a, u64 row, u32 i, const float x[4], bool on, const bad_note *bad) {
    float amax = 0.0f;
    bool finite = true;
    UNROLL
    for (u32 k = 0; k < 4; k++) {
        amax = f32_abs(x[k]) > amax ? f32_abs(x[k]) : amax;
        finite = finite && f32_finite(x[k]);
    }
    const act_scale s = act_scale_of(lane_max_f32(amax, 8));
    u32 q = 0;
    i32 sum = 0;
    UNROLL
    for (u32 k = 0; k < 4; k++) {
        const i32 v = f32_finite(x[k]) ? act_round(x[k], s.inv) : 0;
        q |= ((u32)v & 255) << 8 * k;
        sum += v;
    }
    const i32 half = lane_sum_i32(sum, 4), whole = half + (i32)lane_xor_u32((u32)half, 4);
    if (!on) return;
    if (!finite) note_bad(bad);
    const u64 at = row * a->ld + i;
    store_4(a->q + at, q);
    if (LANE % 4 == 0) a->s16[at / 16] = s.d * (float)half;
    if (LANE % 8 != 0) return;
    a->d[at / 32] = s.d;
    a->s[at / 32] = s.d * (float)whole;
}

#endif
