/* Chunk lengths that follow the clock: full on a fast machine, short on a slow one, never nothing. */
#include "run/chunk.h"

#include "check.h"

/* Reads n rows at row_ms each; the number of chunks and the longest in ms. */
static uint32_t read_all(chunk_pace *p, size_t n, double row_ms, uint32_t most, double *longest) {
    uint32_t n_chunk = 0;
    *longest = 0;
    while (n > 0) {
        const uint32_t rows = chunk_rows(p, n, most);
        CHECK(rows >= 1 && rows <= most && rows <= n);
        const double ms = rows * row_ms;
        chunk_took(p, rows, ms);
        if (ms > *longest) *longest = ms;
        n -= rows;
        n_chunk++;
    }
    return n_chunk;
}

static void test_a_fast_machine_reads_full_chunks(void **state) {
    (void)state;
    chunk_pace p = {0};
    double longest;
    CHECK(chunk_rows(&p, 2048, 512) == CHUNK_ROWS); // to find out
    CHECK(read_all(&p, 32 + 2048, 0.5, 512, &longest) == 5);
    CHECK(read_all(&p, 2048, 0.5, 512, &longest) == 4); // known from then on
    CHECK(read_all(&p, 600, 0.5, 512, &longest) == 2);
    CHECK(chunk_rows(&p, 512, 512) == 512 && chunk_rows(&p, 1, 512) == 1);
}

static void test_a_slow_machine_looks_up_every_second(void **state) {
    (void)state;
    chunk_pace p = {0};
    double longest;
    read_all(&p, 5000, 4, 512, &longest);
    CHECK(longest <= 1.5 * CHUNK_MS);
    p = (chunk_pace){0};
    read_all(&p, 5000, 20, 512, &longest);
    CHECK(longest <= 1.5 * CHUNK_ROWS * 20); // the floor
}

static void test_every_length_is_read(void **state) {
    (void)state;
    for (uint32_t most = 1; most <= 70; most++) {
        for (size_t n = 1; n < 200; n += 7) {
            chunk_pace p = {0};
            double longest;
            read_all(&p, n, 1e-6, most, &longest);
            read_all(&p, n, 1e6, most, &longest);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fast_machine_reads_full_chunks),
        cmocka_unit_test(test_a_slow_machine_looks_up_every_second),
        cmocka_unit_test(test_every_length_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
