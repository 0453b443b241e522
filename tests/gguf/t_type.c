/* The type table against the facts of the format. */
#include "check.h"

#include "gguf/type.h"

static void test_ids_names_and_sizes(void **state) {
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
        int block, bytes;
    } want[] = {
        {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
        {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},      {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},
        {10, "q2_k", 256, 84},    {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},   {13, "q5_k", 256, 176},
        {14, "q6_k", 256, 210},   {15, "q8_k", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
        {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},
        {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
        {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
        {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
        {40, "nvfp4", 64, 36},    {41, "q1_0", 128, 18},    {42, "q2_0", 64, 18},
    };
    size_t n = sizeof want / sizeof *want, n_known = 0;
    for (size_t i = 0; i < n; i++) {
        const gguf_type_info *t = gguf_type_get(want[i].id);
        gguf_type id;
        CHECK(t && strcmp(t->name, want[i].name) == 0 && t->block == want[i].block &&
              t->bytes == want[i].bytes);
        CHECK(gguf_type_parse(&id, want[i].name) && id == (gguf_type)want[i].id);
        CHECK(gguf_row_bytes(t, 3ull * t->block) == 3ull * t->bytes);
    }
    for (uint32_t id = 0; id < 1000; id++) n_known += gguf_type_get(id) != NULL;
    CHECK(n_known == n && !gguf_type_get(UINT32_MAX));
}

static void test_names_are_parsed_in_either_case(void **state) {
    (void)state;
    gguf_type id = GGUF_F32;
    CHECK(gguf_type_parse(&id, "Q4_K") && id == GGUF_Q4_K);
    CHECK(!gguf_type_parse(&id, "q4_k_m") && !gguf_type_parse(&id, "") && !gguf_type_parse(&id, "q4_2") &&
          id == GGUF_Q4_K);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_names_and_sizes),
        cmocka_unit_test(test_names_are_parsed_in_either_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
