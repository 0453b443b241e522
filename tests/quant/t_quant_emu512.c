/* The AVX-512 sources over emulated intrinsics (emu512_avx2.h; see the Makefile) against the definition. */
#include "isa_check.h"

static void need_avx2(void) {
    if (cpu_isa_best() < CPU_AVX2) SKIP("this processor has no avx2");
}

static void table(void **st) {
    (void)st;
    tables_are_whole(CPU_AVX512);
}
static void act(void **st) {
    (void)st;
    need_avx2();
    act_all(CPU_AVX512);
}
static void bits(void **st) {
    (void)st;
    need_avx2();
    compare_all(CPU_AVX512);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(table), cmocka_unit_test(act),
                                       cmocka_unit_test(bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
