/* The tables this processor can run against the scalar definition (isa_check.h). */
#include "isa_check.h"

static void need(cpu_isa isa) {
    if (cpu_isa_best() < isa) SKIP("this processor has no %s", cpu_isa_name(isa));
}

#define ISA_TESTS(name, isa)                                                                                 \
    static void name##_table(void **st) {                                                                    \
        (void)st;                                                                                            \
        need(isa);                                                                                           \
        tables_are_whole(isa);                                                                               \
    }                                                                                                        \
    static void name##_act(void **st) {                                                                      \
        (void)st;                                                                                            \
        need(isa);                                                                                           \
        act_all(isa);                                                                                        \
    }                                                                                                        \
    static void name##_bits(void **st) {                                                                     \
        (void)st;                                                                                            \
        need(isa);                                                                                           \
        compare_all(isa);                                                                                    \
    }
ISA_TESTS(avx2, CPU_AVX2)
ISA_TESTS(avx512, CPU_AVX512)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2_table),   cmocka_unit_test(avx2_act),   cmocka_unit_test(avx2_bits),
        cmocka_unit_test(avx512_table), cmocka_unit_test(avx512_act), cmocka_unit_test(avx512_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
