/* Where models and caches live: the order of the variables, and folders made on the way. */
#include "base/home.h"

#include "base/mem.h"
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

static void set(const char *home, const char *cache, const char *own) {
    const char *names[3] = {"HOME", "XDG_CACHE_HOME", "MICA_HOME"}, *values[3] = {home, cache, own};
    for (int i = 0; i < 3; i++) {
        if (values[i]) setenv(names[i], values[i], 1);
        else unsetenv(names[i]);
    }
}

static void expect_home(const char *want) {
    mica_error err;
    char *got;
    CHECK_OK(home_find(&got, &err));
    if (strcmp(got, want) != 0) check_failed(__FILE__, __LINE__, want, got);
    mem_free(got);
}

static void test_variables_in_order(void **state) {
    (void)state;
    set("/h", NULL, NULL);
    expect_home("/h/.cache/mica");
    set("/h", "/c", NULL);
    expect_home("/c/mica");
    set("/h", "relative", NULL); // ignored, says the XDG specification
    expect_home("/h/.cache/mica");
    set("/h", "/c", "/own//");
    expect_home("/own");
    char cwd[4096], want[5000];
    CHECK(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/here", cwd);
    set("/h", NULL, "here");
    expect_home(want);
}

static void test_folders_are_made_or_the_obstacle_named(void **state) {
    (void)state;
    char base[] = "/tmp/t_home_XXXXXX", own[200], file[200];
    CHECK(mkdtemp(base));
    snprintf(own, sizeof own, "%s/a/b c/d", base);
    set(NULL, NULL, own);
    mica_error err;
    char *got;
    struct stat sb;
    for (int twice = 0; twice < 2; twice++) {
        CHECK_OK(home_create(&got, &err));
        CHECK(strcmp(got, own) == 0 && stat(own, &sb) == 0 && S_ISDIR(sb.st_mode));
        mem_free(got);
    }
    snprintf(file, sizeof file, "%s/file", base);
    FILE *f = fopen(file, "w");
    CHECK(f);
    fclose(f);
    snprintf(own, sizeof own, "%s/file/sub", base);
    set(NULL, NULL, own);
    CHECK(home_create(&got, &err) == MICA_E_IO && !got);
    CHECK(strstr(err.text, "file"));
    char command[300];
    snprintf(command, sizeof command, "rm -r '%s'", base);
    CHECK(system(command) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_in_order),
        cmocka_unit_test(test_folders_are_made_or_the_obstacle_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
