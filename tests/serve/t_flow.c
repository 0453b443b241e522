/* Events come out as they went in, the taker is woken exactly when it sleeps, and a leaving client ends it.
 */
#include "serve/flow.h"

#include "check.h"

typedef struct taker {
    int n_sleep, n_wake;
} taker;

static void on_sleep(void *user) {
    ((taker *)user)->n_sleep++;
}
static void on_wake(void *user) {
    ((taker *)user)->n_wake++;
}

static void open_flow(flow *f, taker *t) {
    *t = (taker){0};
    flow_init(f);
    f->sleep = on_sleep;
    f->wake = on_wake;
    f->user = t;
}

static void put(flow *f, event_kind kind, int64_t number, const char *body) {
    flow_put(f, &(event){.kind = kind, .choice = 3, .number = number, .body = slice_of(body)});
}

static void test_events_come_as_they_went(void **state) {
    (void)state;
    flow f;
    taker t;
    strbuf got = {0};
    event e;
    size_t pos = 0;
    open_flow(&f, &t);
    put(&f, EVENT_TEXT, 0, "abc");
    put(&f, EVENT_ARGS, -7, "");
    put(&f, EVENT_TEXT, 0, "12345678");
    CHECK(flow_take(&f, &got) == FLOW_SOME);
    CHECK(flow_next(&got, &pos, &e) && e.kind == EVENT_TEXT && e.choice == 3 && slice_is(e.body, "abc"));
    CHECK(flow_next(&got, &pos, &e) && e.kind == EVENT_ARGS && e.number == -7 && e.body.n == 0);
    CHECK(flow_next(&got, &pos, &e) && slice_is(e.body, "12345678") && !flow_next(&got, &pos, &e));
    CHECK(t.n_sleep == 0 && t.n_wake == 0);
    CHECK(flow_take(&f, &got) == FLOW_SLEEP && t.n_sleep == 1);
    put(&f, EVENT_TEXT, 0, "x");
    put(&f, EVENT_TEXT, 0, "y");
    CHECK(t.n_wake == 1); // once for each sleep
    CHECK(flow_take(&f, &got) == FLOW_SOME);
    flow_end(&f);
    put(&f, EVENT_TEXT, 0, "late");
    CHECK(flow_take(&f, &got) == FLOW_ENDED && flow_is_over(&f));
    strbuf_fini(&got);
    flow_fini(&f);
}

static void test_a_client_that_left(void **state) {
    (void)state;
    flow f;
    taker t;
    strbuf got = {0};
    open_flow(&f, &t);
    CHECK(flow_take(&f, &got) == FLOW_SLEEP);
    flow_leave(&f);
    CHECK(t.n_wake == 1 && flow_is_gone(&f) && flow_is_over(&f));
    put(&f, EVENT_TEXT, 0, "for nobody");
    CHECK(flow_take(&f, &got) == FLOW_GONE && got.n == 0);
    strbuf_fini(&got);
    flow_fini(&f);
}

static void test_full_and_stalled(void **state) {
    (void)state;
    static char block[4096];
    flow f;
    taker t;
    strbuf got = {0};
    open_flow(&f, &t);
    memset(block, 'x', sizeof block - 1);
    CHECK(flow_stalled_s(&f) == 0.0 && !flow_is_full(&f));
    for (int i = 0; i < 70; i++) put(&f, EVENT_TEXT, 0, block); // never refused
    CHECK(flow_is_full(&f) && flow_stalled_s(&f) > 0.0);
    CHECK(flow_take(&f, &got) == FLOW_SOME && got.n > FLOW_FULL_BYTES);
    CHECK(!flow_is_full(&f) && flow_stalled_s(&f) == 0.0);
    strbuf_fini(&got);
    flow_fini(&f);
}

static void test_ping_wakes_only_who_sleeps_long(void **state) {
    (void)state;
    flow f;
    taker t;
    strbuf got = {0};
    open_flow(&f, &t);
    flow_ping(&f, 0);
    CHECK(t.n_wake == 0); // it does not sleep
    CHECK(flow_take(&f, &got) == FLOW_SLEEP);
    flow_ping(&f, UINT64_C(3600000000000));
    CHECK(t.n_wake == 0); // not for so long
    flow_ping(&f, 0);
    CHECK(t.n_wake == 1 && flow_take(&f, &got) == FLOW_PING && flow_take(&f, &got) == FLOW_SLEEP);
    strbuf_fini(&got);
    flow_fini(&f);
}

/* One thread puts, one takes: nothing is lost, nothing comes twice, no wake is missed. */
typedef struct meeting {
    flow f;
    pthread_cond_t wake;
    bool awake;
} meeting;

static void meeting_sleep(void *user) {
    ((meeting *)user)->awake = false;
}
static void meeting_wake(void *user) {
    meeting *m = user;
    m->awake = true;
    pthread_cond_signal(&m->wake);
}

static void *producer(void *arg) {
    meeting *m = arg;
    for (int i = 0; i < 20000; i++) flow_put(&m->f, &(event){.kind = EVENT_PROGRESS, .number = i});
    flow_end(&m->f);
    return NULL;
}

static void test_two_threads(void **state) {
    (void)state;
    meeting m = {.wake = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    strbuf got = {0};
    int64_t next = 0;
    flow_init(&m.f);
    m.f.sleep = meeting_sleep;
    m.f.wake = meeting_wake;
    m.f.user = &m;
    CHECK(pthread_create(&thread, NULL, producer, &m) == 0);
    for (flow_state s = FLOW_SOME; s != FLOW_ENDED;) {
        size_t pos = 0;
        event e;
        s = flow_take(&m.f, &got);
        while (s == FLOW_SOME && flow_next(&got, &pos, &e)) CHECK(e.number == next++);
        pthread_mutex_lock(&m.f.lock);
        while (s == FLOW_SLEEP && !m.awake) pthread_cond_wait(&m.wake, &m.f.lock);
        pthread_mutex_unlock(&m.f.lock);
    }
    CHECK(next == 20000);
    pthread_join(thread, NULL);
    strbuf_fini(&got);
    flow_fini(&m.f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_come_as_they_went),
        cmocka_unit_test(test_a_client_that_left),
        cmocka_unit_test(test_full_and_stalled),
        cmocka_unit_test(test_ping_wakes_only_who_sleeps_long),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
