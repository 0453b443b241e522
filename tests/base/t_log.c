/* Log lines: their form, the level that holds them back, and the sink. */
#include "check.h"

#include "base/log.h"

static char g_line[2000];
static log_level g_level;
static int g_n_line;

static void keep(void *user, log_level level, const char *line) {
    CHECK(user == g_line);
    snprintf(g_line, sizeof g_line, "%s", line);
    g_level = level;
    g_n_line++;
}

static int with_sink(void **state) {
    (void)state;
    g_n_line = 0;
    log_set_level(LOG_INFO);
    log_set_sink(keep, g_line);
    return 0;
}

static int without_sink(void **state) {
    (void)state;
    log_set_sink(NULL, NULL);
    log_set_level(LOG_INFO);
    return 0;
}

static void test_line_names_program_and_room(void **state) {
    (void)state;
    log_info("net", "got %d bytes", 7);
    assert_string_equal(g_line, "mica: net: got 7 bytes");
    CHECK(g_level == LOG_INFO);
    log_info("", "no room");
    assert_string_equal(g_line, "mica: no room");
    log_warn("net", "x");
    assert_string_equal(g_line, "mica: warning: net: x");
    CHECK(g_level == LOG_WARN);
}

static void test_level_holds_back(void **state) {
    (void)state;
    log_debug("net", "quiet");
    CHECK(g_n_line == 0);
    log_set_level(LOG_DEBUG);
    log_debug("net", "loud");
    CHECK(g_n_line == 1);
    log_set_level(LOG_ERROR);
    log_warn("net", "quiet");
    log_info("net", "quiet");
    CHECK(g_n_line == 1);
}

static void test_long_text_is_cut_not_overrun(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    log_info("net", "%s", text);
    CHECK(g_n_line == 1);
    CHECK(strlen(g_line) >= 800 && strlen(g_line) < 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_line_names_program_and_room, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(test_level_holds_back, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(test_long_text_is_cut_not_overrun, with_sink, without_sink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
