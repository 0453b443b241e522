/* A mapped file that is cut under us: zeros and a message instead of SIGBUS; a SIGBUS elsewhere goes where it
 * went. */
#include "check.h"
#include "gguf_build.h"
#include "temp_dir.h"

#include "gguf/gguf.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void test_a_cut_file_reads_as_zeros(void **state) {
    (void)state;
    temp_dir d;
    strbuf b = {0};
    gguf_file *g, *other;
    mica_error err;
    temp_dir_make(&d);
    put_header(&b, 3, 1, 0);
    put_vector(&b, "w", 65536, 0);
    put_pad(&b, 32);
    for (int i = 0; i < 65536; i++) put_f32(&b, 1.0f);
    const char *path = temp_dir_write(&d, "m.gguf", b.p, b.n);
    temp_dir_write(&d, "other.gguf", b.p, b.n);
    CHECK_OK(gguf_guard_install(&err));
    CHECK_OK(gguf_guard_install(&err)); // twice is once
    CHECK_OK(gguf_open(&g, path, &err));
    CHECK_OK(gguf_open(&other, temp_dir_at(&d, "other.gguf"), &err));
    const volatile float *w = gguf_tensor_find(g, "w")->data;
    const volatile float *v = gguf_tensor_find(other, "w")->data;
    CHECK(w[0] == 1.0f && w[65535] == 1.0f && !gguf_changed(g, &err));
    CHECK(truncate(path, 8192) == 0);
    CHECK(w[1000] == 1.0f && w[65535] == 0.0f && w[40000] == 0.0f);
    CHECK(gguf_changed(g, &err) && strstr(err.text, "m.gguf: changed while in use: "));
    CHECK(truncate(path, (off_t)b.n) == 0); // the size is back, but what we read was not the model
    CHECK(gguf_changed(g, &err));
    CHECK(v[65535] == 1.0f && !gguf_changed(other, &err));
    gguf_close(g);
    gguf_close(other);
    strbuf_fini(&b);
    temp_dir_drop(&d);
}

static void test_a_strange_fault_is_left_alone(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    const char *path = temp_dir_write(&d, "not-ours", "x", 1);
    CHECK(fflush(NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL); // what a sanitizer may have put there
        mica_error err;
        int fd = open(path, O_RDONLY);
        const volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        if (gguf_guard_install(&err) != MICA_OK || truncate(path, 0) != 0) _exit(1);
        _exit(2 + p[0]);
    }
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_strange_fault_is_left_alone), // first: its child installs the guard afresh
        cmocka_unit_test(test_a_cut_file_reads_as_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
