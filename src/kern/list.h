/* The kernels by name, each once: the order is the order of tables on the host. A name is the device symbol.
 */
#ifndef MICA_KERN_LIST_H
#define MICA_KERN_LIST_H

/* What exists once a type of weights. */
#define KERN_OF_TYPE(X, name)                                                                                \
    X(embed_##name)                                                                                          \
    X(token_##name##_1) X(token_##name##_4) X(token_##name##_8) X(prompt_##name)
#define KERN_TYPES(X)                                                                                        \
    KERN_OF_TYPE(X, f32)                                                                                     \
    KERN_OF_TYPE(X, f16)                                                                                     \
    KERN_OF_TYPE(X, bf16)                                                                                    \
    KERN_OF_TYPE(X, q4_0)                                                                                    \
    KERN_OF_TYPE(X, q4_1)                                                                                    \
    KERN_OF_TYPE(X, q5_0)                                                                                    \
    KERN_OF_TYPE(X, q5_1)                                                                                    \
    KERN_OF_TYPE(X, q8_0)                                                                                    \
    KERN_OF_TYPE(X, q2_k)                                                                                    \
    KERN_OF_TYPE(X, q3_k)                                                                                    \
    KERN_OF_TYPE(X, q4_k)                                                                                    \
    KERN_OF_TYPE(X, q5_k)                                                                                    \
    KERN_OF_TYPE(X, q6_k)                                                                                    \
    KERN_OF_TYPE(X, iq2_xxs)                                                                                 \
    KERN_OF_TYPE(X, iq2_xs)                                                                                  \
    KERN_OF_TYPE(X, iq3_xxs)                                                                                 \
    KERN_OF_TYPE(X, iq1_s)                                                                                   \
    KERN_OF_TYPE(X, iq4_nl)                                                                                  \
    KERN_OF_TYPE(X, iq3_s)                                                                                   \
    KERN_OF_TYPE(X, iq2_s)                                                                                   \
    KERN_OF_TYPE(X, iq4_xs)                                                                                  \
    KERN_OF_TYPE(X, iq1_m)                                                                                   \
    KERN_OF_TYPE(X, tq1_0)                                                                                   \
    KERN_OF_TYPE(X, tq2_0)                                                                                   \
    KERN_OF_TYPE(X, mxfp4)                                                                                   \
    KERN_OF_TYPE(X, nvfp4)                                                                                   \
    KERN_OF_TYPE(X, q1_0)                                                                                    \
    KERN_OF_TYPE(X, q2_0)

#define GPU_KERNELS(X)                                                                                       \
    KERN_TYPES(X)                                                                                            \
    X(norm_rows)                                                                                             \
    X(add_norm_rows)                                                                                         \
    X(quantise_rows) X(glu_rows) X(gate_norm_rows) X(gated_add_rows) X(softcap_values) X(scale_values)       \
        X(rope_table_rows) X(rope_kv_rows) X(attn_part) X(attn_join) X(attn_rows) X(router_rows)             \
            X(experts_sort) X(experts_sum) X(conv_rows) X(conv_keep) X(delta_prepare) X(delta_runs_4)        \
                X(delta_runs_8) X(delta_runs_16) X(delta_runs_32) X(delta_runs_64) X(argmax_parts)           \
                    X(argmax_rows)

#endif
