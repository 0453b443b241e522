/* The text of the counters: valid lines, and never NaN. */
#include "serve/metrics.h"

#include "check.h"

static const char *value_of(const char *text, const char *name) {
    static char out[64];
    char key[128];
    snprintf(key, sizeof key, "\n%s ", name);
    const char *at = strstr(text, key);
    if (!at) return "(none)";
    snprintf(out, sizeof out, "%.*s", (int)strcspn(at + strlen(key), "\n"), at + strlen(key));
    return out;
}

/* Each line is a comment or "name[{labels}] number". */
static void check_lines(const char *text) {
    CHECK(!strstr(text, "nan") && !strstr(text, "inf "));
    for (const char *p = text; *p; p += strcspn(p, "\n") + 1) {
        char line[200], *end;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        if (strncmp(line, "# HELP ", 7) == 0 || strncmp(line, "# TYPE ", 7) == 0) continue;
        const char *number = strrchr(line, ' ');
        if (!number) check_failed(__FILE__, __LINE__, line, "no value");
        strtod(number, &end);
        if (*end) check_failed(__FILE__, __LINE__, line, "not a number");
    }
}

static void test_before_anything(void **state) {
    (void)state;
    metrics m;
    strbuf out = {0};
    metrics_init(&m);
    strbuf_putc(&out, '\n');
    metrics_text(&m, &(metrics_gauges){0}, &out);
    check_lines(out.p + 1);
    CHECK(strcmp(value_of(out.p, "llamacpp:predicted_tokens_seconds"), "0") == 0);
    CHECK(strcmp(value_of(out.p, "mica_ready"), "0") == 0);
    strbuf_fini(&out);
    metrics_fini(&m);
}

static void test_counts(void **state) {
    (void)state;
    metrics m;
    strbuf out = {0};
    metrics_init(&m);
    metrics_step(&m, 2, 2, 0.02);
    metrics_step(&m, 4, 4, 0.04);
    metrics_first(&m, 0.3);
    metrics_draft(&m, 4, 3);
    metrics_end(&m,
                &(event_end){.finish = FINISH_STOP_STRING,
                             .n_prompt = 10,
                             .n_cached = 4,
                             .n_made = 5,
                             .prompt_ms = 2000,
                             .decode_ms = 500},
                2.5);
    metrics_end(&m, NULL, 0);
    strbuf_putc(&out, '\n');
    metrics_text(&m, &(metrics_gauges){.n_running = 1, .n_token = 5, .n_token_max = 20}, &out);
    check_lines(out.p + 1);
    CHECK(strcmp(value_of(out.p, "llamacpp:prompt_tokens_total"), "6") == 0);
    CHECK(strcmp(value_of(out.p, "llamacpp:prompt_tokens_seconds"), "3") == 0);
    CHECK(strcmp(value_of(out.p, "llamacpp:n_busy_slots_per_decode"), "3") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:prefix_cache_hits_total"), "4") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:kv_cache_usage_perc"), "0.25") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:request_success_total{finished_reason=\"stop\"}"), "1") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:request_success_total{finished_reason=\"abort\"}"), "1") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:time_to_first_token_seconds_bucket{le=\"0.25\"}"), "0") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:time_to_first_token_seconds_bucket{le=\"0.5\"}"), "1") == 0);
    CHECK(strcmp(value_of(out.p, "vllm:inter_token_latency_seconds_count"), "6") == 0);
    strbuf_fini(&out);
    metrics_fini(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_anything),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
