/* The cache folder without a network: entries, names, and every allocation failing once. Transfers are in
 * net_test.py. */
#include "check.h"

#include "base/mem.h"
#include "net/net_int.h"

#include <unistd.h>

static char g_home[] = "/tmp/t_net_cache_XXXXXX";

static int make_home(void **state) {
    (void)state;
    if (!mkdtemp(g_home)) return -1;
    return setenv("MICA_HOME", g_home, 1);
}

static int remove_home(void **state) {
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", g_home);
    return system(command);
}

/* An entry with one file of 8 bytes. */
static void make_entry(const char *name, const char *file) {
    net_entry e;
    mica_error err;
    CHECK_OK(net_entry_create(&e, name, &err));
    net_files_fini(&e.files);
    CHECK_OK(net_files_add(&e.files, file, NULL, 8, &err));
    CHECK_OK(net_entry_save(&e, &err));
    CHECK(!net_entry_is_complete(&e));
    char *path = net_entry_path(&e, 0);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite("GGUF1234", 1, 8, f) == 8 && fclose(f) == 0);
    CHECK(net_entry_is_complete(&e));
    mem_free(path);
    net_entry_fini(&e);
}

static bool is_found(const char *name) {
    net_entry e;
    bool found;
    mica_error err;
    CHECK_OK(net_entry_find(&e, &found, name, &err));
    net_entry_fini(&e);
    return found;
}

static void test_names_find_their_entry_and_no_other(void **state) {
    (void)state;
    make_entry("hf:Org/Repo:Q4_K_M", "a.gguf");
    make_entry("https://host/x/b.gguf?y=1", "b.gguf");
    CHECK(is_found("hf:Org/Repo:Q4_K_M") && is_found("HF:org/repo:q4_k_m") && is_found("hf:org/repo"));
    CHECK(!is_found("hf:org/rep") && !is_found("hf:org/repo:q4_k") && !is_found("hf:org"));
    CHECK(is_found("https://host/x/b.gguf?y=1"));
    CHECK(!is_found("https://host/x/b.gguf") && !is_found("https://host/z/b.gguf?y=1"));
    CHECK(!is_found("..") && !is_found(".") && !is_found("") && !is_found("../models"));
    char name[700];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    make_entry(name, "c.gguf");
    CHECK(is_found(name));
    name[600] = 'm'; // differs only where the folder's name is cut
    CHECK(!is_found(name));
}

static void test_a_file_is_a_name(void **state) {
    (void)state;
    net_entry e;
    bool found;
    mica_error err;
    make_entry("https://host/y/Big-Q4_K_M-00001-of-00003.gguf", "Big-Q4_K_M-00001-of-00003.gguf");
    CHECK(is_found("b.gguf") && is_found("B") && is_found("big-q4_k_m"));
    CHECK(!is_found("b.ggu") && !is_found("b.gguf.partial") && !is_found("big"));
    make_entry("https://other/b.gguf", "b.gguf");
    CHECK(net_entry_find(&e, &found, "b", &err) == MICA_E_ARG && !found && !e.name);
    CHECK(strstr(err.text, "https://host/x/b.gguf") && strstr(err.text, "https://other/b.gguf"));
}

static void test_every_failed_allocation_is_told(void **state) {
    (void)state;
    make_entry("hf:Org/Repo:Q8_0", "a.gguf");
    int n_failed = 0, n_done = 0;
    for (int64_t n = 1; n < 200 && n_done < 3; n++) {
        char *text[2] = {0};
        mica_error err = {0};
        mem_fail_after(n);
        const mica_status listed = mica_list(&text[0], &err);
        mem_fail_after(n);
        const mica_status resolved = mica_resolve(&text[1], "hf:org/repo:q8_0", &err);
        mem_fail_after(-1);
        CHECK(listed == MICA_OK ? text[0] != NULL : text[0] == NULL && listed == MICA_E_NOMEM);
        if (resolved != MICA_OK && resolved != MICA_E_NOMEM)
            print_error("n %d: %d %s\n", (int)n, resolved, err.text);
        CHECK(resolved == MICA_OK ? text[1] != NULL : text[1] == NULL && resolved == MICA_E_NOMEM);
        n_failed += listed == MICA_E_NOMEM;
        n_done += listed == MICA_OK && resolved == MICA_OK;
        mem_free(text[0]);
        mem_free(text[1]);
    }
    CHECK(n_failed > 5 && n_done > 0);
}

static void test_lock_holds_between_openings(void **state) {
    (void)state;
    net_lock a, b;
    mica_error err;
    CHECK_OK(net_lock_acquire(&a, "x", false, NULL, &err));
    CHECK(net_lock_acquire(&b, "x", false, NULL, &err) == MICA_E_BUSY && b.fd < 0 && !b.path);
    CHECK_OK(net_lock_acquire(&b, "y", false, NULL, &err));
    CHECK(access(b.path, F_OK) == 0);
    char *path = mem_strdup(b.path);
    net_lock_release(&b);
    CHECK(path && access(path, F_OK) != 0); // nothing is left of it
    mem_free(path);
    net_lock_release(&b); // of none
    mica_cancel_flag stop = {.set = 1};
    CHECK(net_lock_acquire(&b, "x", true, &stop, &err) == MICA_E_CANCELLED && !b.path);
    net_lock_release(&a);
    CHECK_OK(net_lock_acquire(&b, "x", false, NULL, &err));
    net_lock_release(&b);
}

static void test_remove_frees_what_was_there(void **state) {
    (void)state;
    uint64_t freed = 0;
    mica_error err;
    make_entry("gone", "a.gguf");
    CHECK_OK(mica_remove("gone", &freed, &err));
    CHECK(freed >= 8 && !is_found("gone"));
    CHECK(mica_remove("gone", &freed, &err) == MICA_E_IO && freed == 0);
    CHECK(mica_remove("../..", &freed, &err) == MICA_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_find_their_entry_and_no_other),
        cmocka_unit_test(test_a_file_is_a_name),
        cmocka_unit_test(test_every_failed_allocation_is_told),
        cmocka_unit_test(test_lock_holds_between_openings),
        cmocka_unit_test(test_remove_frees_what_was_there),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
