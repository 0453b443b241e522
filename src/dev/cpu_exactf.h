/* base/exactf.h on the vectors of cpu_vec.h: the same operations in the same order, a value a lane. Where
 * that file selects with ?:, a min, max or select here gives the same value, NaN included. Constants and
 * reasons are there. */
#ifndef MICA_CPU_EXACTF_H
#define MICA_CPU_EXACTF_H

#include "base/exactf.h"
#include "dev/cpu_vec.h"

typedef struct vf_parts {
    vf p, plo, s1, s2;
} vf_parts;

INLINE vf_parts v_exp_parts(vf x, vf xlo) {
    x = v_min(v_set(89.0f), v_max(v_set(-110.0f), x));
    vf t = v_fma(x, v_set(0x1.715476p+0f), v_set(0x1.8p+23f));
    vf n = v_sub(t, v_set(0x1.8p+23f));
    vi ni = vi_sub(v_castf(t), vi_set(0x4B400000));
    vf hi = v_fma(n, v_set(-0x1.62e4p-1f), x);
    vf lo = v_fma(n, v_set(-0x1.7f7d1cp-20f), xlo);
    vf r = v_add(hi, lo);
    vf q = v_set(0x1.6ac6e2p-10f);
    q = v_fma(q, r, v_set(0x1.123de2p-7f));
    q = v_fma(q, r, v_set(0x1.555858p-5f));
    q = v_fma(q, r, v_set(0x1.55548cp-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    q = v_fma(q, v_mul(r, r), lo);
    vi n1 = vi_sra(ni, 1), n2 = vi_sub(ni, n1);
    vf g = v_add(hi, q);
    vf_parts e;
    e.p = v_add(v_set(1.0f), g);
    e.plo = v_sub(g, v_sub(e.p, v_set(1.0f)));
    e.s1 = v_casti(vi_shl(vi_add(n1, vi_set(127)), 23));
    e.s2 = v_casti(vi_shl(vi_add(n2, vi_set(127)), 23));
    return e;
}

INLINE vf v_exp(vf x) {
    vf_parts e = v_exp_parts(x, v_zero());
    return v_mul(v_mul(e.p, e.s1), e.s2);
}

/* v_exp of values <= 0 or NaN, as a softmax has them; a lane above 0 gives something. From -87 on the result
 * is normal: one addition to the exponent of p gives what the two multiplications would. Rarely is one lower.
 */
INLINE vf v_exp_falling(vf x) {
    if (v_bits(v_le(v_set(-87.0f), x)) != (1u << VW) - 1) return v_exp(x);
    vf t = v_fma(x, v_set(0x1.715476p+0f), v_set(0x1.8p+23f));
    vf n = v_sub(t, v_set(0x1.8p+23f));
    vf hi = v_fma(n, v_set(-0x1.62e4p-1f), x);
    vf lo = v_mul(n, v_set(-0x1.7f7d1cp-20f));
    vf r = v_add(hi, lo);
    vf q = v_set(0x1.6ac6e2p-10f);
    q = v_fma(q, r, v_set(0x1.123de2p-7f));
    q = v_fma(q, r, v_set(0x1.555858p-5f));
    q = v_fma(q, r, v_set(0x1.55548cp-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    q = v_fma(q, v_mul(r, r), lo);
    vf p = v_add(v_set(1.0f), v_add(hi, q));
    return v_casti(vi_add(v_castf(p), vi_shl(v_castf(t), 23)));
}

/* x * sigmoid(v + vlo) */
INLINE vf v_gate(vf x, vf v, vf vlo) {
    const vf one = v_set(1.0f);
    vm neg = v_lt(v, v_zero());
    vf_parts e = v_exp_parts(v_sel(neg, v, v_neg(v)), v_sel(neg, vlo, v_neg(vlo)));
    vf num = v_sel(neg, e.p, one), numlo = v_sel(neg, e.plo, v_zero());
    vf s1 = v_sel(neg, e.s1, one), s2 = v_sel(neg, e.s2, one);
    vf ex = v_mul(v_mul(e.p, e.s1), e.s2);
    vf den = v_add(one, ex);
    vf denlo = v_fma(v_mul(e.plo, e.s1), e.s2, v_sub(ex, v_sub(den, one)));
    vf inv = v_div(one, den);
    vf y = v_mul(num, inv);
    vf rest = v_fnma(y, denlo, v_add(v_fnma(y, den, num), numlo));
    y = v_fma(rest, inv, y);
    return v_mul(v_mul(v_mul(x, y), s1), s2);
}

INLINE vf v_sigmoid(vf x) {
    return v_gate(v_set(1.0f), x, v_zero());
}

INLINE vf v_silu(vf x) {
    x = v_max(v_set(-110.0f), x);
    return v_gate(x, x, v_zero());
}

INLINE vf v_gelu(vf x) {
    const vf c1 = v_set(0x1.988454p+0f), c2 = v_set(0x1.2444f2p-4f);
    x = v_max(v_set(-11.0f), x);
    vf y = v_min(v_set(11.0f), x);
    vf sq = v_mul(y, y), sqlo = v_fma(y, y, v_neg(sq));
    vf a = v_mul(c2, sq);
    vf alo = v_fma(c2, sq, v_neg(a));
    alo = v_fma(c2, sqlo, alo);
    alo = v_fma(v_set(0x1.49b16ap-29f), sq, alo);
    vf t = v_add(c1, a);
    vf back = v_sub(t, c1);
    vf tlo = v_add(v_add(v_sub(c1, v_sub(t, back)), v_sub(a, back)), v_sub(alo, v_set(0x1.857936p-25f)));
    vf v = v_mul(y, t);
    vf vlo = v_fma(y, tlo, v_fma(y, t, v_neg(v)));
    return v_gate(x, v, vlo);
}

INLINE vf v_tanh(vf x) {
    vf ax = v_abs(x), z = v_mul(ax, ax);
    vf q = v_set(-0x1.750ce4p-8f);
    q = v_fma(q, z, v_set(0x1.51f8cep-6f));
    q = v_fma(q, z, v_set(-0x1.b835a4p-5f));
    q = v_fma(q, z, v_set(0x1.1106f6p-3f));
    q = v_fma(q, z, v_set(-0x1.555532p-2f));
    vf near = v_fma(v_mul(ax, z), q, ax);
    vf_parts e = v_exp_parts(v_mul(v_set(2.0f), ax), v_zero());
    vf ex = v_mul(v_mul(e.p, e.s1), e.s2);
    vf far = v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(ex, v_set(1.0f))));
    vf y = v_sel(v_lt(ax, v_set(0.625f)), near, far);
    return v_casti(vi_or(v_castf(y), vi_and(v_castf(x), vi_set(INT32_MIN))));
}
#endif
