/* The table behind type.h. */
#include "gguf/type.h"

#include <stddef.h>
#include <strings.h>

static const gguf_type_info g_type[GGUF_TYPE_N] = {
    [GGUF_F32] = {"f32", 1, 4, GGUF_CLASS_FLOAT},
    [GGUF_F16] = {"f16", 1, 2, GGUF_CLASS_FLOAT},
    [GGUF_Q4_0] = {"q4_0", 32, 18, GGUF_CLASS_QUANT},
    [GGUF_Q4_1] = {"q4_1", 32, 20, GGUF_CLASS_QUANT},
    [GGUF_Q5_0] = {"q5_0", 32, 22, GGUF_CLASS_QUANT},
    [GGUF_Q5_1] = {"q5_1", 32, 24, GGUF_CLASS_QUANT},
    [GGUF_Q8_0] = {"q8_0", 32, 34, GGUF_CLASS_QUANT},
    [GGUF_Q8_1] = {"q8_1", 32, 36, GGUF_CLASS_ACTIVATION},
    [GGUF_Q2_K] = {"q2_k", 256, 84, GGUF_CLASS_QUANT},
    [GGUF_Q3_K] = {"q3_k", 256, 110, GGUF_CLASS_QUANT},
    [GGUF_Q4_K] = {"q4_k", 256, 144, GGUF_CLASS_QUANT},
    [GGUF_Q5_K] = {"q5_k", 256, 176, GGUF_CLASS_QUANT},
    [GGUF_Q6_K] = {"q6_k", 256, 210, GGUF_CLASS_QUANT},
    [GGUF_Q8_K] = {"q8_k", 256, 292, GGUF_CLASS_ACTIVATION},
    [GGUF_IQ2_XXS] = {"iq2_xxs", 256, 66, GGUF_CLASS_QUANT},
    [GGUF_IQ2_XS] = {"iq2_xs", 256, 74, GGUF_CLASS_QUANT},
    [GGUF_IQ3_XXS] = {"iq3_xxs", 256, 98, GGUF_CLASS_QUANT},
    [GGUF_IQ1_S] = {"iq1_s", 256, 50, GGUF_CLASS_QUANT},
    [GGUF_IQ4_NL] = {"iq4_nl", 32, 18, GGUF_CLASS_QUANT},
    [GGUF_IQ3_S] = {"iq3_s", 256, 110, GGUF_CLASS_QUANT},
    [GGUF_IQ2_S] = {"iq2_s", 256, 82, GGUF_CLASS_QUANT},
    [GGUF_IQ4_XS] = {"iq4_xs", 256, 136, GGUF_CLASS_QUANT},
    [GGUF_I8] = {"i8", 1, 1, GGUF_CLASS_OTHER},
    [GGUF_I16] = {"i16", 1, 2, GGUF_CLASS_OTHER},
    [GGUF_I32] = {"i32", 1, 4, GGUF_CLASS_OTHER},
    [GGUF_I64] = {"i64", 1, 8, GGUF_CLASS_OTHER},
    [GGUF_F64] = {"f64", 1, 8, GGUF_CLASS_OTHER},
    [GGUF_IQ1_M] = {"iq1_m", 256, 56, GGUF_CLASS_QUANT},
    [GGUF_BF16] = {"bf16", 1, 2, GGUF_CLASS_FLOAT},
    [GGUF_TQ1_0] = {"tq1_0", 256, 54, GGUF_CLASS_QUANT},
    [GGUF_TQ2_0] = {"tq2_0", 256, 66, GGUF_CLASS_QUANT},
    [GGUF_MXFP4] = {"mxfp4", 32, 17, GGUF_CLASS_QUANT},
    [GGUF_NVFP4] = {"nvfp4", 64, 36, GGUF_CLASS_QUANT},
    [GGUF_Q1_0] = {"q1_0", 128, 18, GGUF_CLASS_QUANT},
    [GGUF_Q2_0] = {"q2_0", 64, 18, GGUF_CLASS_QUANT},
};

const gguf_type_info *gguf_type_get(uint32_t id) {
    return id < GGUF_TYPE_N && g_type[id].name ? &g_type[id] : NULL;
}

bool gguf_type_parse(gguf_type *out, const char *name) {
    for (int i = 0; i < GGUF_TYPE_N; i++) {
        if (g_type[i].name && strcasecmp(name, g_type[i].name) == 0) {
            *out = (gguf_type)i;
            return true;
        }
    }
    return false;
}
