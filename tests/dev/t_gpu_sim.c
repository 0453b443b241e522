/* The simulated card as a driver: what a real one would do with the same calls. */
#include "check.h"

#include "dev/gpu_drv.h"
#include "dev/gpu_int.h"
#include "dev/gpu_sim.h"

enum { N = 1000, N_BYTES = N * sizeof(float), THREADS = 256 };

static const gpu_drv *v;
static void *g_ctx, *g_stream, *g_scale;

static void open_card(const char *knobs, int card) {
    mica_error err;
    void *module;
    v = gpu_drv_get(GPU_SIM);
    CHECK(v->ok);
    CHECK_OK(gpu_sim_configure(knobs, &err));
    CHECK(v->card_open(&g_ctx, card) == 0);
    CHECK(v->stream_new(&g_stream, GPU_STREAM_APART) == 0);
    CHECK(v->module_load(&module, NULL) == 0);
    CHECK(v->function(&g_scale, module, "scale_values") == 0);
    CHECK(v->module_free(module) == 0);
}

/* Every test ends with a card that holds nothing. */
static void close_card(int card) {
    CHECK(v->stream_free(g_stream) == 0);
    sim_held h = gpu_sim_held(card);
    CHECK(h.vram_bytes == 0 && h.n_block == 0 && h.n_handle == 0);
    v->card_close(g_ctx, card);
}

static float *take(size_t n_bytes) {
    void *p;
    CHECK(v->mem_alloc(&p, n_bytes) == 0);
    return p;
}

static int scale(float *x, const float *s, uint64_t n) {
    scale_args a = {.x = x, .s = s, .n = n};
    gpu_launch_shape shape = {{(uint32_t)((n + THREADS - 1) / THREADS), 1, 1}, {THREADS, 1, 1}, 0};
    return v->launch(g_scale, &shape, g_stream, &a, sizeof a);
}

static void fill_host(float *h, float first) {
    for (int i = 0; i < N; i++) h[i] = first + (float)i;
}

static void test_work_runs_in_order_and_only_when_waited_for(void **state) {
    (void)state;
    float host[N], two = 2.0f;
    void *pinned;
    open_card("vram=1M", 0);
    CHECK(v->pinned_alloc(&pinned, N_BYTES, 0) == 0);
    float *x = take(N_BYTES), *s = take(sizeof two), *p = pinned;
    fill_host(host, 1.0f);
    CHECK(v->to_device(x, host, N_BYTES, g_stream) == 0);
    fill_host(host, -9.0f); // taken at once: pageable
    CHECK(v->to_device(s, &two, sizeof two, g_stream) == 0);
    CHECK(scale(x, s, N) == 0);
    CHECK(scale(x, s, N) == 0);
    memset(p, 0, N_BYTES);
    CHECK(v->to_host(p, x, N_BYTES, g_stream) == 0);
    CHECK(p[5] == 0.0f); // not yet
    CHECK(v->stream_sync(g_stream) == 0);
    for (int i = 0; i < N; i++) CHECK(p[i] == 4.0f * (float)(i + 1));
    CHECK(v->pinned_free(pinned) == 0);
    CHECK(v->mem_free(x) == 0 && v->mem_free(s) == 0);
    close_card(0);
}

/* Overwriting a pinned buffer before its copy ran is a bug that shows here as on a card. */
static void test_a_pinned_source_is_read_late(void **state) {
    (void)state;
    float back[N];
    void *pinned;
    open_card("", 0);
    CHECK(v->pinned_alloc(&pinned, N_BYTES, 0) == 0);
    float *x = take(N_BYTES), *p = pinned;
    fill_host(p, 1.0f);
    CHECK(v->to_device(x, p, N_BYTES, g_stream) == 0);
    fill_host(p, 500.0f);
    CHECK(v->to_host(back, x, N_BYTES, g_stream) == 0); // pageable: waits
    CHECK(back[0] == 500.0f);
    CHECK(v->pinned_free(pinned) == 0 && v->mem_free(x) == 0);
    close_card(0);
}

static void test_memory_ends_at_the_limit(void **state) {
    (void)state;
    void *p, *q;
    size_t n_free, n_total;
    open_card("vram=64K", 0);
    CHECK(v->mem_alloc(&p, 60 << 10) == 0);
    int rc = v->mem_alloc(&q, 5 << 10);
    CHECK(rc != 0 && q == NULL && v->status_of(rc) == MICA_E_NOMEM);
    CHECK(v->mem_info(&n_free, &n_total) == 0 && n_total == 64 << 10 && n_free == 4 << 10);
    CHECK(((unsigned char *)p)[7] == 0xA5); // fresh memory is not zero
    CHECK(v->mem_free(p) == 0);
    CHECK(v->mem_free(p) != 0); // once
    close_card(0);
}

static void test_ranges_outside_a_block_are_refused(void **state) {
    (void)state;
    float host[N] = {0};
    open_card("", 0);
    float *x = take(N_BYTES);
    CHECK(v->to_device(x, host, N_BYTES + 1, g_stream) != 0);
    CHECK(v->to_host(host, x + 1, N_BYTES, g_stream) != 0);
    CHECK(v->fill(x - 1, 0, 8, g_stream) != 0);
    CHECK(v->on_device(x, host, 4, g_stream) != 0);
    CHECK(v->mem_free(x) == 0);
    close_card(0);
}

#if !defined(__SANITIZE_ADDRESS__) // under ASan the write itself is named
static void test_a_write_past_the_end_is_found(void **state) {
    (void)state;
    float one = 1.5f;
    open_card("", 0);
    float *x = take(N_BYTES), *s = take(sizeof one);
    CHECK(v->to_device(s, &one, sizeof one, g_stream) == 0);
    CHECK(scale(x, s, N + 3) == 0);
    int rc = v->stream_sync(g_stream);
    CHECK(rc != 0 && v->status_of(rc) == MICA_E_INTERNAL);
    CHECK(strstr(v->error_name(rc), "outside a block of 4000 bytes") != NULL);
    CHECK(v->mem_free(x) != 0 && v->mem_free(s) == 0);
    close_card(0);
}
#endif

static void test_a_graph_replays_what_was_captured(void **state) {
    (void)state;
    float host[N], back[N], two = 2.0f;
    void *graph, *exec;
    open_card("", 0);
    float *x = take(N_BYTES), *s = take(sizeof two);
    fill_host(host, 0.0f);
    CHECK(v->to_device(s, &two, sizeof two, g_stream) == 0);
    CHECK(v->to_device(x, host, N_BYTES, g_stream) == 0);
    CHECK(v->capture_begin(g_stream, GPU_CAPTURE_THREAD) == 0);
    CHECK(scale(x, s, N) == 0);
    CHECK(v->to_device(x, host, N_BYTES, g_stream) != 0); // pageable memory in a capture
    CHECK(v->stream_sync(g_stream) != 0);
    CHECK(v->capture_end(g_stream, &graph) == 0);
    CHECK(v->exec_new(&exec, graph, 0) == 0 && v->graph_free(graph) == 0);
    CHECK(v->to_host(back, x, N_BYTES, g_stream) == 0);
    CHECK(back[3] == 3.0f); // capturing runs nothing
    for (int i = 0; i < 3; i++) CHECK(v->exec_launch(exec, g_stream) == 0);
    CHECK(v->to_host(back, x, N_BYTES, g_stream) == 0);
    CHECK(back[3] == 24.0f);
    CHECK(v->exec_free(exec) == 0 && v->mem_free(x) == 0 && v->mem_free(s) == 0);
    close_card(0);
}

static void test_a_stream_waits_for_another(void **state) {
    (void)state;
    float host[N], back[N], two = 2.0f;
    void *other, *event = NULL, *first = NULL, *last = NULL, *pinned;
    float ms = 0;
    open_card("latency=100", 0);
    CHECK(v->pinned_alloc(&pinned, N_BYTES, 0) == 0);
    CHECK(v->stream_new(&other, GPU_STREAM_APART) == 0 && v->event_new(&event, 0) == 0);
    CHECK(v->event_new(&first, 0) == 0 && v->event_new(&last, 0) == 0);
    float *x = take(N_BYTES), *s = take(sizeof two);
    fill_host(host, 1.0f);
    memcpy(pinned, host, N_BYTES);
    CHECK(v->to_device(s, &two, sizeof two, g_stream) == 0);
    CHECK(v->event_record(first, g_stream) == 0);
    CHECK(v->to_device(x, pinned, N_BYTES, other) == 0);
    CHECK(v->event_record(event, other) == 0);
    CHECK(v->stream_wait(g_stream, event, 0) == 0);
    CHECK(scale(x, s, N) == 0);
    CHECK(v->event_record(last, g_stream) == 0);
    CHECK(v->to_host(back, x, N_BYTES, g_stream) == 0);
    CHECK(back[0] == 2.0f && back[N - 1] == 2.0f * N);
    CHECK(v->event_sync(last) == 0 && v->event_ms(&ms, first, last) == 0);
    CHECK(ms >= 0.1f && ms < 1.0f); // simulated time: one launch of 100 us after the copies
    CHECK(v->event_free(event) == 0 && v->event_free(first) == 0 && v->event_free(last) == 0);
    CHECK(v->stream_free(other) == 0 && v->pinned_free(pinned) == 0);
    CHECK(v->mem_free(x) == 0 && v->mem_free(s) == 0);
    close_card(0);
}

static void test_faults_come_once_and_a_lost_card_stays_lost(void **state) {
    (void)state;
    float host[N], back[N], one = 1.0f;
    void *p;
    open_card("no_memory=2,garbage=1", 0);
    float *x = take(N_BYTES);
    CHECK(v->mem_alloc(&p, 16) != 0);
    float *s = take(sizeof one);
    fill_host(host, 1.0f);
    CHECK(v->to_device(s, &one, sizeof one, g_stream) == 0 && v->to_device(x, host, N_BYTES, g_stream) == 0);
    CHECK(scale(x, s, N) == 0 && v->to_host(back, x, N_BYTES, g_stream) == 0);
    CHECK(back[0] != back[0] && back[N - 1] == (float)N);
    CHECK(v->mem_free(x) == 0 && v->mem_free(s) == 0);
    close_card(0);
    open_card("lost=2", 0);
    x = take(N_BYTES), s = take(sizeof one);
    CHECK(scale(x, s, N) == 0 && v->stream_sync(g_stream) == 0);
    CHECK(scale(x, s, N) == 0);
    int rc = v->stream_sync(g_stream);
    CHECK(rc != 0 && v->status_of(rc) == MICA_E_DEVICE && strcmp(v->error_name(rc), "the card is lost") == 0);
    CHECK(scale(x, s, N) == rc && v->stream_sync(g_stream) == rc);
    CHECK(v->mem_free(x) == 0 && v->mem_free(s) == 0);
    close_card(0);
    open_card("copy_error=1", 0);
    x = take(N_BYTES);
    CHECK(v->to_device(x, host, N_BYTES, g_stream) == 0 && v->stream_sync(g_stream) != 0);
    CHECK(v->mem_free(x) == 0);
    close_card(0);
}

static void test_two_cards_have_memory_of_their_own(void **state) {
    (void)state;
    size_t n_free, n_total;
    gpu_card c;
    mica_error err;
    open_card("cards=2,vram=1M,arch=gfx906", 1);
    CHECK(v->n_card == 2);
    float *x = take(1 << 19);
    CHECK_OK(gpu_card_get(&c, GPU_SIM, 0, &err));
    CHECK(c.vram_free == 1 << 20 && c.wave == 64 && strcmp(c.arch, "gfx906") == 0 &&
          strcmp(c.id, "sim:0") == 0);
    CHECK(v->enter(g_ctx, 1) == 0 && v->mem_info(&n_free, &n_total) == 0 && n_free == 1 << 19);
    CHECK(gpu_card_get(&c, GPU_SIM, 2, &err) == MICA_E_DEVICE && strstr(err.text, "there are 2") != NULL);
    CHECK(v->mem_free(x) == 0);
    close_card(1);
}

static void test_knobs_are_read_or_named(void **state) {
    (void)state;
    mica_error err;
    sim_knobs k;
    CHECK_OK(sim_knobs_parse(&k, NULL, &err));
    CHECK(k.n_card == 1 && k.wave == 32 && k.vram_bytes == (uint64_t)16 << 30 && k.no_memory == 0);
    CHECK_OK(sim_knobs_parse(&k, "cards=3,arch=gfx1201,vram=2G,link=32.5,latency=7,memory=900,mp=12", &err));
    CHECK(k.n_card == 3 && k.wave == 32 && k.vram_bytes == (uint64_t)2 << 30 && k.n_mp == 12);
    CHECK(k.link_gbps == 32.5 && k.latency_us == 7.0 && k.memory_gbps == 900.0);
    CHECK_OK(sim_knobs_parse(&k, "arch=gfx906", &err));
    CHECK(k.wave == 64);
    CHECK_OK(sim_knobs_parse(&k, "wave=64", &err));
    CHECK(k.wave == 64);
    static const char *const bad[] = {"cards=0",    "cards=9", "vram=2T",          "wave=16",
                                      "colour=red", "arch=",   "link=-1",          "vram=-1G",
                                      "latency=x",  "cards",   "vram=99999999999G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(sim_knobs_parse(&k, bad[i], &err) == MICA_E_ARG);
        CHECK(strstr(err.text, "MICA_SIM") != NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_runs_in_order_and_only_when_waited_for),
        cmocka_unit_test(test_a_pinned_source_is_read_late),
        cmocka_unit_test(test_memory_ends_at_the_limit),
        cmocka_unit_test(test_ranges_outside_a_block_are_refused),
#if !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(test_a_write_past_the_end_is_found),
#endif
        cmocka_unit_test(test_a_graph_replays_what_was_captured),
        cmocka_unit_test(test_a_stream_waits_for_another),
        cmocka_unit_test(test_faults_come_once_and_a_lost_card_stays_lost),
        cmocka_unit_test(test_two_cards_have_memory_of_their_own),
        cmocka_unit_test(test_knobs_are_read_or_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
