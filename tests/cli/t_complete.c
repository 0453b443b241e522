/* What Tab adds, and how a written file name is read. */
#include "cli/complete.h"

#include "check.h"

#include <stdlib.h>
#include <unistd.h>

static const char *const g_commands[] = {"/help", "/read", "/regen", "/system"};

static void check_tab(const char *text, const char *insert, const char *list) {
    strbuf i = {0}, l = {0};
    const bool here = complete_line(text, g_commands, 4, &i, &l);
    if (!here || strcmp(strbuf_cstr(&i), insert) != 0 || strcmp(strbuf_cstr(&l), list) != 0)
        check_failed(__FILE__, __LINE__, text, here ? strbuf_cstr(&i) : "(no place)");
    strbuf_fini(&i);
    strbuf_fini(&l);
}

static void test_commands(void **state) {
    (void)state;
    check_tab("/h", "elp ", "");
    check_tab("/RE", "", "/read  /regen");
    check_tab("/rea", "d ", "");
    check_tab("/x", "", "");
    check_tab("/", "", "/help  /read  /regen  /system");
    strbuf i = {0}, l = {0};
    CHECK(!complete_line("words", g_commands, 4, &i, &l) && !complete_line("", g_commands, 4, &i, &l));
    CHECK(!complete_line("/system be", g_commands, 4, &i, &l) && i.n == 0 && l.n == 0);
}

static void make(const char *folder, const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fclose(f) == 0);
}

static void test_files(void **state) {
    (void)state;
    char folder[] = "/tmp/t_complete_XXXXXX", text[300], command[100];
    CHECK(mkdtemp(folder));
    make(folder, "only one.txt");
    make(folder, "\xC3\xA4x");
    make(folder, "\xC3\xA5x"); // the same first byte is no common character
    make(folder, ".hidden");
    snprintf(text, sizeof text, "/read %s/on", folder);
    check_tab(text, "ly one.txt", "");
    snprintf(text, sizeof text, "/read \"%s/on", folder);
    check_tab(text, "ly one.txt\"", "");
    snprintf(text, sizeof text, "/read %s/.h", folder);
    check_tab(text, "idden", "");
    snprintf(text, sizeof text, "/read %s/nothing", folder);
    check_tab(text, "", "");
    snprintf(text, sizeof text, "/read %s", folder);
    check_tab(text, "/", "");
    strbuf i = {0}, l = {0};
    snprintf(text, sizeof text, "/read %s/", folder);
    CHECK(complete_line(text, g_commands, 4, &i, &l) && i.n == 0 && !strstr(strbuf_cstr(&l), "hidden"));
    strbuf_fini(&i);
    strbuf_fini(&l);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

static void check_path(const char *written, const char *want) {
    strbuf out = {0};
    complete_path(written, &out);
    if (strcmp(strbuf_cstr(&out), want) != 0) check_failed(__FILE__, __LINE__, written, strbuf_cstr(&out));
    strbuf_fini(&out);
}

static void test_paths(void **state) {
    (void)state;
    setenv("HOME", "/h/me", 1);
    check_path("  a b.txt \t", "a b.txt");
    check_path("\"a b \"", "a b ");
    check_path("'~/x'", "~/x");
    check_path("~/x", "/h/me/x");
    check_path("~", "/h/me");
    check_path("~other/x", "~other/x");
    check_path("\"", "\"");
    check_path("", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
