/* Every function of 2 to 8 rows of activations, from what the file that includes this at its end has defined:
 * several_run (a stretch that is unpacked) and two_run (two rows, from the type's own bytes). A kind of
 * weights and a number of rows are constants in each, so that accumulators are registers.
 *
 *     #define SEVERAL_ROWS token_rows_several_NAME     // the entry, by type
 *     #include "quant/several_table.h" */
#define SEVERAL_FN(is_signed, n_sub, n_act)                                                                  \
    static void several_##is_signed##_##n_sub##_##n_act(several *s) {                                        \
        several_run(s, (several_kind){is_signed, n_sub, n_act});                                             \
    }
#define SEVERAL_FNS(is_signed, n_sub)                                                                        \
    SEVERAL_FN(is_signed, n_sub, 3)                                                                          \
    SEVERAL_FN(is_signed, n_sub, 4)                                                                          \
    SEVERAL_FN(is_signed, n_sub, 5)                                                                          \
    SEVERAL_FN(is_signed, n_sub, 6) SEVERAL_FN(is_signed, n_sub, 7) SEVERAL_FN(is_signed, n_sub, 8)
SEVERAL_FNS(0, 1)
SEVERAL_FNS(0, 2)
SEVERAL_FNS(1, 1)
SEVERAL_FNS(1, 2)

#define SEVERAL_ROW(is_signed, n_sub)                                                                        \
    {                                                                                                        \
        several_##is_signed##_##n_sub##_3, several_##is_signed##_##n_sub##_4,                                \
            several_##is_signed##_##n_sub##_5, several_##is_signed##_##n_sub##_6,                            \
            several_##is_signed##_##n_sub##_7, several_##is_signed##_##n_sub##_8                             \
    }
static several_fn *const g_several[2][2][QUANT_TOKEN_ROWS_MAX - 2] = {
    {SEVERAL_ROW(0, 1), SEVERAL_ROW(0, 2)},
    {SEVERAL_ROW(1, 1), SEVERAL_ROW(1, 2)},
};

#define SEVERAL_KERNEL(TYPE, name, n_sub, has_min)                                                           \
    static void rows_##name(const token_job *b) {                                                            \
        several_rows_run(b, unit_##name, two_run,                                                            \
                         g_several[!has_min][n_sub - 1][b->n_act > 2 ? b->n_act - 3 : 0]);                   \
    }
QUANT_TYPES(SEVERAL_KERNEL)

void SEVERAL_ROWS(gguf_type type, const token_job *b) {
#define SEVERAL_CASE(TYPE, name, n_sub, has_min)                                                             \
    case GGUF_##TYPE: rows_##name(b); break;
    switch (type) {
        QUANT_TYPES(SEVERAL_CASE)
    default: break;
    }
}
