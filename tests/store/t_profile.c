/* Learned use survives, joins, fades and never harms: full disks, files of others, locks, kill -9. */
#include "check.h"

#include "base/log.h"
#include "base/mem.h"
#include "store/profile.h"
#include "temp_dir.h"

#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 2, EXPERTS = 4 };
static const profile_key key = {.fingerprint = UINT64_C(0xfedcba9876543210), LAYERS, EXPERTS, 1};
static temp_dir dir;
static int n_warning;

static void count_warnings(void *user, log_level level, const char *line) {
    (void)user, (void)line;
    n_warning += level <= LOG_WARN;
}

static int set_up(void **state) {
    (void)state;
    temp_dir_make(&dir);
    n_warning = 0;
    log_set_sink(count_warnings, NULL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    log_set_sink(NULL, NULL);
    temp_dir_drop(&dir);
    return 0;
}

static profile *begin(const char *path) {
    profile *f = profile_open(path, &key);
    CHECK(f);
    return f;
}

static void use(profile *f, uint32_t layer, int32_t expert, int times) {
    for (int i = 0; i < times; i++) profile_note(f, layer, &expert, 1);
}

static bool near_f(float a, double b) {
    return fabs((double)a - b) < 1e-3;
}

static void test_runs_join(void **state) {
    (void)state;
    const char *path = temp_dir_at(&dir, "p.db");
    profile *f = begin(path);
    CHECK(profile_tokens(f) == 0 && profile_use(f)[0] == 0);
    use(f, 0, 1, 300);
    use(f, 0, 2, 100);
    use(f, 1, 3, 400);
    profile_close(f);
    f = begin(path);
    const float *u = profile_use(f);
    CHECK(profile_tokens(f) == 400 && near_f(u[1], 0.75) && near_f(u[2], 0.25) && near_f(u[EXPERTS + 3], 1));
    use(f, 0, 2, 400); // layer 1 saw nothing: it keeps what it knew
    CHECK(profile_save(f));
    use(f, 0, 2, 400); // only what is new since the save counts again
    profile_close(f);
    f = begin(path);
    u = profile_use(f);
    CHECK(profile_tokens(f) == 1200 && near_f(u[1], 0.25) && near_f(u[2], 0.75) && near_f(u[EXPERTS + 3], 1));
    profile_close(f);
    CHECK(n_warning == 0);
}

static void test_two_at_once_add_up(void **state) {
    (void)state;
    const char *path = temp_dir_at(&dir, "p.db");
    profile *a = begin(path), *b = begin(path);
    use(a, 0, 0, 100);
    use(b, 0, 1, 100);
    profile_close(a);
    profile_close(b);
    a = begin(path);
    CHECK(profile_tokens(a) == 200 && near_f(profile_use(a)[0], 0.5) && near_f(profile_use(a)[1], 0.5));
    profile_close(a);
    CHECK(n_warning == 0);
}

static void test_models_are_apart_and_old_habits_fade(void **state) {
    (void)state;
    const char *path = temp_dir_at(&dir, "p.db");
    profile_key other = key;
    other.fingerprint++;
    profile *f = begin(path);
    use(f, 0, 0, 30000);
    profile_close(f);
    f = profile_open(path, &other);
    CHECK(f && profile_tokens(f) == 0);
    profile_close(f);
    f = begin(path);
    CHECK(profile_tokens(f) == 20000);
    use(f, 0, 1, 15000);
    profile_close(f);
    f = begin(path);
    CHECK(profile_tokens(f) == 20000 && near_f(profile_use(f)[1], 0.75));
    profile_close(f);
}

static void test_saved_once_a_minute(void **state) {
    (void)state;
    const uint64_t second = 1000000000;
    const char *path = temp_dir_at(&dir, "p.db");
    profile *f = begin(path), *g;
    static const struct {
        uint64_t at_s;
        double saved;
    } t[] = {{5, 0}, {64, 0}, {66, 300}, {100, 300}, {125, 300}, {127, 600}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        use(f, 0, 1, 100);
        profile_tick(f, t[i].at_s * second);
        g = begin(path);
        CHECK(profile_tokens(g) == t[i].saved);
        profile_close(g);
    }
    profile_close(f);
}

/* What is no database of ours is left as it is: one warning, and counting goes on. */
static void test_files_of_others(void **state) {
    (void)state;
    char junk[8192];
    sqlite3 *db;
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = (char)(i * 7);
    const char *path = temp_dir_write(&dir, "junk", junk, sizeof junk);
    const char *other = temp_dir_at(&dir, "other.db");
    CHECK(sqlite3_open(other, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "CREATE TABLE t(x); INSERT INTO t VALUES(5)", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    const char *paths[] = {path, other, dir.path, "/nowhere/at/all.db"};
    for (int i = 0; i < 4; i++) {
        profile *f = begin(paths[i]);
        CHECK(n_warning == i + 1 && profile_tokens(f) == 0);
        use(f, 0, 1, 100);
        CHECK(!profile_save(f));
        profile_close(f);
        CHECK(n_warning == i + 1);
    }
    char back[sizeof junk];
    FILE *in = fopen(path, "rb");
    CHECK(in && fread(back, 1, sizeof back, in) == sizeof back && memcmp(back, junk, sizeof junk) == 0);
    fclose(in);
}

static void test_damage_anywhere(void **state) {
    (void)state;
    char data[65536];
    uint64_t seed = 3;
    const char *path = temp_dir_at(&dir, "p.db");
    profile *f = begin(path);
    use(f, 0, 1, 100);
    profile_close(f);
    FILE *in = fopen(path, "rb");
    CHECK(in);
    size_t n = fread(data, 1, sizeof data, in);
    fclose(in);
    for (int i = 0; i < 60; i++) {
        char bad[sizeof data], name[32];
        memcpy(bad, data, n);
        size_t keep = i % 3 ? n : test_rand(&seed) % n;
        for (int k = 0; k < 1 + i % 40; k++) bad[test_rand(&seed) % n] = (char)test_rand(&seed);
        snprintf(name, sizeof name, "bad%d.db", i);
        f = begin(temp_dir_write(&dir, name, bad, keep));
        n_warning = 0;
        for (size_t k = 0; k < LAYERS * EXPERTS; k++) CHECK(profile_use(f)[k] >= 0 && profile_use(f)[k] <= 1);
        use(f, 0, 1, 100);
        profile_close(f);
        CHECK(n_warning <= 1);
    }
}

/* A full disk while it runs, and room again before the end: nothing is lost. */
static void test_full_disk(void **state) {
    (void)state;
    const char *path = temp_dir_at(&dir, "p.db");
    struct rlimit all, small = {.rlim_cur = 4096};
    profile *f = begin(path);
    use(f, 0, 1, 100);
    CHECK(profile_save(f));
    CHECK(getrlimit(RLIMIT_FSIZE, &all) == 0);
    small.rlim_max = all.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    use(f, 0, 2, 100);
    bool saved = profile_save(f) || profile_save(f);
    setrlimit(RLIMIT_FSIZE, &all);
    CHECK(!saved && n_warning == 1);
    profile_close(f);
    f = begin(path);
    CHECK(profile_tokens(f) == 200 && near_f(profile_use(f)[1], 0.5) && near_f(profile_use(f)[2], 0.5));
    profile_close(f);
}

/* Killed at any moment while it saves: the next run finds a whole row of some save. */
static void test_killed_while_saving(void **state) {
    (void)state;
    const char *path = temp_dir_at(&dir, "p.db");
    double before = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            profile *f = profile_open(path, &key);
            for (;;) {
                use(f, 0, 1, 1);
                use(f, 1, 2, 1);
                profile_save(f);
            }
        }
        usleep(3000 + 2000 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        profile *f = begin(path);
        CHECK(profile_tokens(f) >= before);
        if (profile_tokens(f) > 0)
            CHECK(near_f(profile_use(f)[1], 1) && near_f(profile_use(f)[EXPERTS + 2], 1));
        before = profile_tokens(f);
        profile_close(f);
    }
    CHECK(before > 0 && n_warning == 0);
}

static void test_out_of_memory(void **state) {
    (void)state;
    const char *path = temp_dir_at(&dir, "p.db");
    profile *f = NULL;
    for (int n = 1; n < 20 && !f; n++) {
        mem_fail_after(n);
        f = profile_open(path, &key);
        mem_fail_after(-1);
    }
    CHECK(f);
    profile_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs_join, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_at_once_add_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_models_are_apart_and_old_habits_fade, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_saved_once_a_minute, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_of_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_anywhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_while_saving, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_out_of_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
