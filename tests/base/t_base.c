/* status, num, mem, str, pool. */
#include "check.h"

#include "base/cpu.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/str.h"

static void test_error_text_is_one_printable_line(void **state) {
    (void)state;
    mica_error err;
    CHECK(fail(&err, MICA_E_IO, "a\nb\x1b[31m%s", "c") == MICA_E_IO);
    assert_string_equal(err.text, "a?b?[31mc");
    fail_within(&err, MICA_E_FORMAT, "file %d", 3);
    assert_string_equal(err.text, "file 3: a?b?[31mc");
    CHECK(err.status == MICA_E_FORMAT);
    CHECK(fail(NULL, MICA_E_ARG, "x") == MICA_E_ARG);
    char big[2000];
    memset(big, 'x', sizeof big);
    memcpy(big + 598, "\xe6\xa8\xa1", 3);
    big[sizeof big - 1] = 0;
    fail(&err, MICA_E_ARG, "%s", big);
    CHECK(utf8_valid(err.text, strlen(err.text)));
}

static void test_checked_sizes_refuse_overflow(void **state) {
    (void)state;
    uint64_t r = 7;
    CHECK(!num_add_u64(&r, UINT64_MAX, 1) && r == 7);
    CHECK(!num_mul_u64(&r, 1ull << 33, 1ull << 33) && r == 7);
    CHECK(!num_align_u64(&r, UINT64_MAX - 3, 32) && r == 7);
    CHECK(num_align_u64(&r, 33, 32) && r == 64);
    CHECK(num_ceil_div(UINT64_MAX, 2) == 1ull << 63);
}

static void test_allocation_can_be_made_to_fail(void **state) {
    (void)state;
    uint64_t before = mem_count();
    mem_fail_after(1);
    void *a = mem_alloc(8), *b = mem_alloc(8);
    mem_fail_after(-1);
    CHECK(a && !b && mem_count() == before + 2);
    mem_free(a);
    mica_error err;
    arena ar;
    CHECK_OK(arena_init(&ar, 100, "test", &err));
    char *p = arena_take(&ar, 60, 16), *q = arena_take(&ar, 60, 16);
    CHECK(p && !q && ((uintptr_t)p & 15) == 0);
    arena_fini(&ar);
}

static void test_utf8_classes(void **state) {
    (void)state;
    CHECK(utf8_len("a", 1) == 1);
    CHECK(utf8_len("\xC3\xA9", 2) == 2);
    CHECK(utf8_len("\xC3", 1) == 0);           // cut
    CHECK(utf8_len("\xF0\x9F\x98", 3) == 0);   // cut
    CHECK(utf8_len("\xC0\xAF", 2) == -1);      // overlong
    CHECK(utf8_len("\xED\xA0\x80", 3) == -1);  // surrogate
    CHECK(utf8_len("\xF4\x90\x80\x80", 4) == -1);
    for (unsigned cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        char s[4];
        int n = utf8_put(s, cp);
        CHECK(utf8_len(s, (size_t)n) == n && utf8_get(s, n) == cp);
    }
}

static void test_strbuf_remembers_failure_and_limit(void **state) {
    (void)state;
    strbuf b = {.limit = 10};
    strbuf_printf(&b, "%s-%d", "abc", 42);
    assert_string_equal(strbuf_cstr(&b), "abc-42");
    strbuf_puts(&b, "123456");
    CHECK(b.failed && b.n == 6);
    CHECK(strbuf_take(&b) == NULL);
}

typedef struct job {
    int64_t n;
    uint8_t *hit;
} job;

static void touch(void *arg, int ith, int n_thread) {
    job *j = arg;
    int64_t a, b;
    pool_split(j->n, 7, ith, n_thread, &a, &b);
    for (int64_t i = a; i < b; i++) j->hit[i]++;
}

static void test_pool_runs_every_part_once(void **state) {
    (void)state;
    mica_error err;
    for (int nt = 1; nt <= 5; nt++) {
        pool *p;
        CHECK_OK(pool_new(&p, nt, &err));
        uint8_t hit[1000];
        for (int64_t n = 0; n < 1000; n += 37) {
            memset(hit, 0, sizeof hit);
            pool_run(p, touch, &(job){n, hit});
            for (int64_t i = 0; i < 1000; i++) CHECK(hit[i] == (i < n));
        }
        pool_free(p);
    }
    pool *bad;
    CHECK(pool_new(&bad, 0, &err) == MICA_E_ARG && !bad);
}

static void test_topology_is_sane(void **state) {
    (void)state;
    cpu_topology t;
    cpu_topology_get(&t);
    CHECK(t.n_default >= 1 && t.n_physical >= t.n_performance && t.n_logical >= 1);
}

/* Each part writes its cell, passes a barrier and sums all cells, 50 times in one call: a part
 * that ran ahead sums too little
 * or too much. */
typedef struct barrier_job {
    pool *p;
    _Atomic uint32_t cell[8];
    uint32_t n_wrong[8];
} barrier_job;

static void meet(void *arg, int ith, int n_thread) {
    barrier_job *j = arg;
    for (uint32_t round = 1; round <= 50; round++) {
        j->cell[ith] = round;
        pool_barrier(j->p);
        uint32_t sum = 0;
        for (int i = 0; i < n_thread; i++) sum += j->cell[i];
        if (sum != round * (uint32_t)n_thread) j->n_wrong[ith]++;
        pool_barrier(j->p);
    }
}

static void test_pool_barrier_holds_every_part(void **state) {
    (void)state;
    mica_error err;
    for (int nt = 1; nt <= 8; nt = nt == 3 ? 8 : nt + 1) {
        barrier_job j = {0};
        CHECK_OK(pool_new(&j.p, nt, &err));
        pool_run(j.p, meet, &j);
        pool_run(j.p, meet, &j);
        for (int i = 0; i < nt; i++) CHECK(j.n_wrong[i] == 0);
        pool_free(j.p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_text_is_one_printable_line),
        cmocka_unit_test(test_checked_sizes_refuse_overflow),
        cmocka_unit_test(test_allocation_can_be_made_to_fail),
        cmocka_unit_test(test_utf8_classes),
        cmocka_unit_test(test_strbuf_remembers_failure_and_limit),
        cmocka_unit_test(test_pool_runs_every_part_once),
        cmocka_unit_test(test_pool_barrier_holds_every_part),
        cmocka_unit_test(test_topology_is_sane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
