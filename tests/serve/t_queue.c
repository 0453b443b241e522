/* Fairness and limits of the queue. */
#include "serve/queue.h"

#include "check.h"

static queue_entry entry(uintptr_t job, uint64_t client) {
    return (queue_entry){(void *)job, 0, client};
}

static uintptr_t take(queue *q, const uint64_t *running, size_t n) {
    queue_entry e;
    return queue_take(q, running, n, &e) ? (uintptr_t)e.job : 0;
}

static void test_who_has_fewest_running_is_next(void **state) {
    (void)state;
    queue q;
    CHECK(queue_init(&q, 8));
    for (uintptr_t i = 1; i <= 4; i++) CHECK(queue_put(&q, &(queue_entry){(void *)i, 0, 100}, 1));
    const queue_entry other = entry(5, 200);
    CHECK(queue_put(&q, &other, 1));
    const uint64_t running[] = {100, 100};
    CHECK(take(&q, NULL, 0) == 1);    // nobody runs: who came first
    CHECK(take(&q, running, 2) == 5); // one client has two at work: the other is next, though last
    CHECK(take(&q, running, 2) == 2 && take(&q, running, 2) == 3 && take(&q, running, 2) == 4);
    CHECK(take(&q, running, 2) == 0);
    queue_fini(&q);
}

static void test_all_of_a_request_or_nothing(void **state) {
    (void)state;
    queue q;
    queue_entry e[3] = {entry(1, 1), entry(1, 1), entry(1, 1)};
    CHECK(queue_init(&q, 4));
    CHECK(queue_put(&q, e, 3) && !queue_put(&q, e, 2) && q.n == 3);
    CHECK(queue_put(&q, e, 1) && !queue_put(&q, e, 1));
    queue_fini(&q);
}

static bool is_two(const queue_entry *e) {
    return (uintptr_t)e->job == 2;
}

static void test_one_can_be_picked_out(void **state) {
    (void)state;
    queue q;
    queue_entry e[3] = {entry(1, 1), entry(2, 1), entry(3, 1)}, out;
    CHECK(queue_init(&q, 4) && queue_put(&q, e, 3));
    CHECK(queue_take_if(&q, is_two, &out) && (uintptr_t)out.job == 2 && !queue_take_if(&q, is_two, &out));
    CHECK(take(&q, NULL, 0) == 1 && take(&q, NULL, 0) == 3);
    queue_fini(&q);
}

static void test_time_to_wait_is_bounded(void **state) {
    (void)state;
    CHECK(queue_retry_s(0, 4, 1.0) == 1);
    CHECK(queue_retry_s(8, 4, 2.0) == 4);
    CHECK(queue_retry_s(1000, 1, 100.0) == 60);
    CHECK(queue_retry_s(3, 0, 0.0) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_has_fewest_running_is_next),
        cmocka_unit_test(test_all_of_a_request_or_nothing),
        cmocka_unit_test(test_one_can_be_picked_out),
        cmocka_unit_test(test_time_to_wait_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
