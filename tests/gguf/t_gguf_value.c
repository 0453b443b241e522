/* Values: every kind through every accessor, strings by position, and the texts of missing and wrong keys. */
#include "check.h"
#include "gguf_build.h"

#include "gguf/gguf_int.h"

#include <math.h>

/* One file with a key of each kind, its bytes kept in `b`. */
static gguf_file *open_kinds(strbuf *b) {
    gguf_file *g;
    mica_error err;
    put_header(b, 3, 0, 16);
    put_key(b, "u8", GGUF_KIND_U8), put_u8(b, 200);
    put_key(b, "i8", GGUF_KIND_I8), put_u8(b, (uint8_t)-3);
    put_kv_u16(b, "u16", 60000);
    put_key(b, "i16", GGUF_KIND_I16), put_u8(b, 0), put_u8(b, 0x80); // -32768
    put_kv_u32(b, "u32", 4000000000u);
    put_key(b, "i32", GGUF_KIND_I32), put_u32(b, (uint32_t)-70000);
    put_key(b, "f32", GGUF_KIND_F32), put_f32(b, 0.5f);
    put_key(b, "bool", GGUF_KIND_BOOL), put_u8(b, 1);
    put_kv_str(b, "str", "text");
    put_key(b, "u64", GGUF_KIND_U64), put_u64(b, UINT64_MAX);
    put_key(b, "i64", GGUF_KIND_I64), put_u64(b, 1ull << 63);
    put_key(b, "f64", GGUF_KIND_F64), put_f64(b, -1e300);
    put_array(b, "ints", GGUF_KIND_I16, 3), put_u32(b, 0xffff0007u), put_u8(b, 9), put_u8(b, 0); // 7 -1 9
    put_array(b, "bools", GGUF_KIND_BOOL, 2), put_u8(b, 0), put_u8(b, 1);
    put_array(b, "none", GGUF_KIND_STR, 0);
    put_key(b, "nan", GGUF_KIND_F32), put_f32(b, NAN);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b->p, b->n}, 1, &err));
    return g;
}

static void test_kinds_widen(void **state) {
    (void)state;
    static const struct {
        const char *key;
        bool is_u64, is_i64, is_f64, is_bool;
        uint64_t u;
        int64_t i;
        double f;
    } want[] = {
        {"u8", true, true, true, false, 200, 200, 200},
        {"i8", false, true, true, false, 0, -3, -3},
        {"u16", true, true, true, false, 60000, 60000, 60000},
        {"i16", false, true, true, false, 0, -32768, -32768},
        {"u32", true, true, true, false, 4000000000u, 4000000000, 4e9},
        {"i32", false, true, true, false, 0, -70000, -70000},
        {"f32", false, false, true, false, 0, 0, 0.5},
        {"bool", true, true, false, true, 1, 1, 0},
        {"str", false, false, false, false, 0, 0, 0},
        {"u64", true, false, true, false, UINT64_MAX, 0, 18446744073709551616.0},
        {"i64", false, true, true, false, 0, INT64_MIN, -9223372036854775808.0},
        {"f64", false, false, true, false, 0, 0, -1e300},
        {"ints", false, false, false, false, 0, 0, 0},
        {"none", false, false, false, false, 0, 0, 0},
        {"absent", false, false, false, false, 0, 0, 0},
    };
    strbuf b = {0};
    gguf_file *g = open_kinds(&b);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const gguf_value *v = gguf_find(g, want[i].key);
        uint64_t u = 77;
        int64_t s = 77;
        double f = 77;
        bool x = false;
        slice t = SLICE_LIT("77");
        CHECK(gguf_value_u64(v, &u) == want[i].is_u64 && u == (want[i].is_u64 ? want[i].u : 77));
        CHECK(gguf_value_i64(v, &s) == want[i].is_i64 && s == (want[i].is_i64 ? want[i].i : 77));
        CHECK(gguf_value_f64(v, &f) == want[i].is_f64 && f == (want[i].is_f64 ? want[i].f : 77));
        CHECK(gguf_value_bool(v, &x) == want[i].is_bool);
        CHECK(gguf_value_str(v, &t) == (strcmp(want[i].key, "str") == 0));
    }
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_arrays_and_iteration(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g = open_kinds(&b);
    const gguf_value *v = gguf_find(g, "ints");
    int64_t i;
    uint64_t u;
    double f;
    bool x;
    slice s;
    CHECK(gguf_value_kind(v) == GGUF_KIND_ARRAY && gguf_value_elem_kind(v) == GGUF_KIND_I16);
    CHECK(gguf_value_count(v) == 3 && gguf_value_count(NULL) == 0 &&
          gguf_value_count(gguf_find(g, "u8")) == 1);
    CHECK(gguf_value_at_i64(v, 0, &i) && i == 7 && gguf_value_at_i64(v, 1, &i) && i == -1);
    CHECK(gguf_value_at_u64(v, 2, &u) && u == 9 && !gguf_value_at_u64(v, 1, &u) &&
          !gguf_value_at_u64(v, 3, &u));
    CHECK(gguf_value_at_f64(v, 1, &f) && f == -1 && !gguf_value_at_str(v, 0, &s) &&
          !gguf_value_at_bool(v, 2, &x));
    CHECK(gguf_value_at_bool(gguf_find(g, "bools"), 1, &x) && x);
    CHECK(!gguf_value_at_str(gguf_find(g, "none"), 0, &s) && gguf_value_count(gguf_find(g, "none")) == 0);
    CHECK(gguf_value_at_str(gguf_find(g, "str"), 0, &s) && slice_is(s, "text"));
    CHECK(!gguf_value_at_str(gguf_find(g, "str"), 1, &s));
    CHECK(gguf_kv_count(g) == 16 && slice_is(gguf_kv_key(g, 8), "str") &&
          gguf_kv_value(g, 8) == gguf_find(g, "str"));
    CHECK(strcmp(gguf_kind_name(GGUF_KIND_F64), "f64") == 0 && gguf_kind_bytes(GGUF_KIND_U16) == 2);
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_strings_by_position(void **state) {
    (void)state;
    enum { N = 500000 };
    strbuf b = {0};
    gguf_file *g;
    mica_error err;
    char text[64];
    put_header(&b, 3, 0, 1);
    put_array(&b, "tokens", GGUF_KIND_STR, N);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(text, sizeof text, "%.*s%u", (int)(i % 13), "xxxxxxxxxxxxx", i);
        put_bytes(&b, text, i % 7 ? strlen(text) : 0); // some are empty
    }
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    const gguf_value *v = gguf_find(g, "tokens");
    uint64_t seed = 1;
    for (uint32_t k = 0; k < N; k++) {
        uint32_t i = (uint32_t)(test_rand(&seed) % N);
        slice s;
        snprintf(text, sizeof text, "%.*s%u", (int)(i % 13), "xxxxxxxxxxxxx", i);
        CHECK(gguf_value_at_str(v, i, &s));
        CHECK(slice_eq(s, (slice){text, i % 7 ? strlen(text) : 0}));
    }
    // The bytes change under us, as in a mapped file that is rewritten: no length leads out of the array.
    memset(b.p + 24 + 14 + 16, 0xff, b.n - 54);
    slice s;
    for (uint32_t i = 0; i < N; i += 997) CHECK(!gguf_value_at_str(v, i, &s));
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_needed_keys_explain_themselves(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g = open_kinds(&b);
    mica_error err;
    uint64_t u = 5;
    double f = 5;
    bool x = true;
    slice s = SLICE_LIT("dflt");

    CHECK(gguf_need_u64(g, "llama.block_count", 1, 512, &u, &err) == MICA_E_FORMAT && u == 0);
    assert_string_equal(err.text, "memory: key 'llama.block_count': is missing");
    CHECK(gguf_need_u64(g, "u16", 1, 512, &u, &err) == MICA_E_FORMAT);
    assert_string_equal(err.text, "memory: key 'u16': 60000 is outside 1..512");
    CHECK(gguf_need_u64(g, "i32", 0, 512, &u, &err) == MICA_E_FORMAT);
    assert_string_equal(err.text, "memory: key 'i32': -70000 is outside 0..512");
    CHECK(gguf_need_u64(g, "str", 0, 512, &u, &err) == MICA_E_FORMAT);
    assert_string_equal(err.text, "memory: key 'str': is of kind str, must be an integer");
    CHECK(gguf_need_u64(g, "ints", 0, 512, &u, &err) == MICA_E_FORMAT);
    assert_string_equal(err.text, "memory: key 'ints': is an array of 3 i16, must be an integer");
    CHECK_OK(gguf_need_u64(g, "u8", 200, 200, &u, &err));
    CHECK(u == 200);
    CHECK_OK(gguf_get_u64(g, "absent", 1, 2, &u, &err)); // the default is not checked
    CHECK(u == 200 && gguf_get_u64(g, "f32", 0, 9, &u, &err) == MICA_E_FORMAT && u == 200);

    CHECK(gguf_need_f64(g, "nan", -1e9, 1e9, &f, &err) == MICA_E_FORMAT && strstr(err.text, "'nan': "));
    CHECK(gguf_need_f64(g, "f64", 0, 1, &f, &err) == MICA_E_FORMAT &&
          strstr(err.text, "-1e+300 is outside 0..1"));
    CHECK_OK(gguf_need_f64(g, "f32", 0, 1, &f, &err));
    CHECK(f == 0.5);
    CHECK_OK(gguf_get_f64(g, "absent", 0, 0, &f, &err));
    CHECK(f == 0.5 && gguf_get_f64(g, "str", 0, 1, &f, &err) == MICA_E_FORMAT);

    CHECK_OK(gguf_get_str(g, "absent", &s, &err));
    CHECK(slice_is(s, "dflt") && gguf_get_str(g, "u8", &s, &err) == MICA_E_FORMAT && slice_is(s, "dflt"));
    CHECK_OK(gguf_need_str(g, "str", &s, &err));
    CHECK(slice_is(s, "text") && gguf_need_str(g, "absent", &s, &err) == MICA_E_FORMAT && s.n == 0);
    CHECK_OK(gguf_get_bool(g, "absent", &x, &err));
    CHECK(x && gguf_get_bool(g, "u8", &x, &err) == MICA_E_FORMAT && strstr(err.text, "must be a bool"));
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_needed_arrays_have_kind_and_count(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g = open_kinds(&b);
    mica_error err;
    const gguf_value *v;
    CHECK_OK(gguf_need_array(g, "ints", GGUF_OF_INT, 3, &v, &err));
    CHECK(v == gguf_find(g, "ints"));
    CHECK_OK(gguf_need_array(g, "none", GGUF_OF_STR, GGUF_ANY_COUNT, &v, &err));
    CHECK_OK(gguf_get_array(g, "absent", GGUF_OF_STR, 3, &v, &err));
    CHECK(v == NULL);
    CHECK(gguf_need_array(g, "absent", GGUF_OF_STR, 3, &v, &err) == MICA_E_FORMAT &&
          strstr(err.text, "is missing"));
    CHECK(gguf_need_array(g, "ints", GGUF_OF_INT, 4, &v, &err) == MICA_E_FORMAT);
    assert_string_equal(err.text, "memory: key 'ints': has 3 elements, must have 4");
    CHECK(gguf_need_array(g, "ints", GGUF_OF_FLOAT, 3, &v, &err) == MICA_E_FORMAT && v == NULL);
    assert_string_equal(err.text, "memory: key 'ints': is an array of 3 i16, must be an array of floats");
    CHECK(gguf_need_array(g, "bools", GGUF_OF_INT, 2, &v, &err) == MICA_E_FORMAT);
    CHECK(gguf_get_array(g, "str", GGUF_OF_STR, 1, &v, &err) == MICA_E_FORMAT);
    assert_string_equal(err.text, "memory: key 'str': is of kind str, must be an array of strings");
    gguf_close(g);
    strbuf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_widen),
        cmocka_unit_test(test_arrays_and_iteration),
        cmocka_unit_test(test_strings_by_position),
        cmocka_unit_test(test_needed_keys_explain_themselves),
        cmocka_unit_test(test_needed_arrays_have_kind_and_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
