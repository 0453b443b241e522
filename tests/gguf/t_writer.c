/* What the writer writes, gguf_open reads; and a write that fails leaves nothing behind. */
#include "check.h"
#include "gguf_build.h"
#include "temp_dir.h"

#include "base/mem.h"
#include "gguf/writer.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static mica_error err;

static size_t n_file(const char *dir) {
    size_t n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void write_meta(gguf_writer *w) {
    gguf_writer_str(w, "general.architecture", SLICE_LIT("llama"));
    gguf_writer_u32(w, "u", 7);
    gguf_writer_f32(w, "f", 0.25f);
    gguf_writer_bool(w, "b", true);
    gguf_writer_array(w, "ints", GGUF_KIND_I32, (int32_t[]){-1, 2, 3}, 3);
    gguf_writer_strings(w, "texts", (slice[]){SLICE_LIT("a"), SLICE_LIT(""), SLICE_LIT("c\0d")}, 3);
}

static void check_meta(const gguf_file *g) {
    uint64_t u;
    double f;
    bool b;
    int64_t i;
    slice s;
    CHECK(gguf_value_str(gguf_find(g, "general.architecture"), &s) && slice_is(s, "llama"));
    CHECK(gguf_value_u64(gguf_find(g, "u"), &u) && u == 7 && gguf_value_f64(gguf_find(g, "f"), &f) &&
          f == 0.25);
    CHECK(gguf_value_bool(gguf_find(g, "b"), &b) && b && gguf_value_at_i64(gguf_find(g, "ints"), 0, &i) &&
          i == -1);
    CHECK(gguf_value_at_str(gguf_find(g, "texts"), 2, &s) && slice_eq(s, SLICE_LIT("c\0d")));
}

static const gguf_tensor g_tensor[] = {
    {.name = "vec", .type = GGUF_F32, .n_dim = 1, .shape = {1, 1, 1, 5}},
    {.name = "mat", .type = GGUF_Q8_0, .n_dim = 2, .shape = {1, 1, 3, 64}},
    {.name = "exps", .type = GGUF_Q4_K, .n_dim = 3, .shape = {1, 4, 40, 8192}}, // more than the buffer
    {.name = "four", .type = GGUF_BF16, .n_dim = 4, .shape = {2, 3, 1, 7}},
};
enum { N_TENSOR = sizeof g_tensor / sizeof *g_tensor };
static const uint64_t g_size[N_TENSOR] = {20, 204, 4 * 40 * 32 * 144, 84};

static void test_round_trip_in_pieces(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    uint64_t n = 0, seed = 5;
    for (int i = 0; i < N_TENSOR; i++) n += g_size[i];
    uint8_t *data = mem_alloc(n);
    for (uint64_t i = 0; i < n; i++) data[i] = (uint8_t)test_rand(&seed);
    static const uint64_t piece[] = {1, 3, 4096, 1 << 20, (1 << 20) + 1, UINT64_MAX};
    static const uint32_t align[] = {32, 8, 64, 65536, 32, 4096};
    for (size_t k = 0; k < sizeof piece / sizeof *piece; k++) {
        gguf_writer *w;
        gguf_file *g;
        const char *path = temp_dir_at(&d, "ü w.gguf");
        CHECK_OK(gguf_writer_open(&w, path, align[k], &err));
        write_meta(w);
        for (int i = 0; i < N_TENSOR; i++) CHECK_OK(gguf_writer_tensor(w, &g_tensor[i], &err));
        for (uint64_t at = 0, m; at < n; at += m) {
            m = n - at < piece[k] ? n - at : piece[k];
            CHECK_OK(gguf_writer_data(w, data + at, m, &err));
        }
        uint64_t total = gguf_writer_total_bytes(w);
        CHECK_OK(gguf_writer_finish(w, &err));
        gguf_writer_close(w);
        CHECK_OK(gguf_open(&g, path, &err));
        CHECK(gguf_total_bytes(g) == total && gguf_tensor_count(g) == N_TENSOR);
        CHECK(gguf_kv_count(g) == (align[k] == 32 ? 6 : 7));
        check_meta(g);
        const uint8_t *p = data;
        for (size_t i = 0; i < N_TENSOR; i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            CHECK(strcmp(t->name, g_tensor[i].name) == 0 && t->type == g_tensor[i].type);
            CHECK(t->n_dim == g_tensor[i].n_dim && memcmp(t->shape, g_tensor[i].shape, sizeof t->shape) == 0);
            CHECK(t->size_bytes == g_size[i] && t->off_bytes % align[k] == 0 &&
                  memcmp(t->data, p, g_size[i]) == 0);
            p += g_size[i];
        }
        gguf_close(g);
    }
    CHECK(n_file(d.path) == 1);
    mem_free(data);
    temp_dir_drop(&d);
}

static void test_copied_values(void **state) {
    (void)state;
    temp_dir d;
    gguf_writer *w;
    gguf_file *g, *h;
    temp_dir_make(&d);
    CHECK_OK(gguf_writer_open(&w, temp_dir_at(&d, "a"), 32, &err));
    write_meta(w);
    CHECK_OK(gguf_writer_finish(w, &err)); // no tensors: metadata alone
    gguf_writer_close(w);
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, "a"), &err));
    CHECK_OK(gguf_writer_open(&w, temp_dir_at(&d, "b"), 32, &err));
    for (size_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy(w, gguf_kv_key(g, i), gguf_kv_value(g, i));
    CHECK_OK(gguf_writer_finish(w, &err));
    gguf_writer_close(w);
    CHECK_OK(gguf_open(&h, temp_dir_at(&d, "b"), &err));
    check_meta(h);
    CHECK(gguf_fingerprint(g) == gguf_fingerprint(h));
    gguf_close(g);
    gguf_close(h);
    temp_dir_drop(&d);
}

static void test_misuse_is_refused(void **state) {
    (void)state;
    temp_dir d;
    gguf_writer *w;
    temp_dir_make(&d);
    const char *path = temp_dir_at(&d, "m");
    CHECK(gguf_writer_open(&w, path, 48, &err) == MICA_E_ARG && w == NULL);
    CHECK(gguf_writer_open(&w, d.path, 32, &err) == MICA_E_ARG && strstr(err.text, "not a regular file"));
    CHECK(gguf_writer_open(&w, "/dev/null", 32, &err) == MICA_E_ARG);
    CHECK(gguf_writer_open(&w, temp_dir_at(&d, "none/m"), 32, &err) == MICA_E_IO &&
          strstr(err.text, "none/m: create"));
    CHECK_OK(gguf_writer_open(&w, path, 32, &err));
    gguf_tensor t = g_tensor[1];
    t.shape[3] = 63;
    CHECK(gguf_writer_tensor(w, &t, &err) == MICA_E_ARG && strstr(err.text, "rows of 63 weights"));
    t = g_tensor[1], t.shape[2] = 0;
    CHECK(gguf_writer_tensor(w, &t, &err) == MICA_E_ARG);
    t = g_tensor[1], t.shape[0] = 2; // an axis before the declared two
    CHECK(gguf_writer_tensor(w, &t, &err) == MICA_E_ARG);
    t = g_tensor[1], t.name = "";
    CHECK(gguf_writer_tensor(w, &t, &err) == MICA_E_ARG);
    t = g_tensor[3], t.shape[0] = 1ull << 40, t.shape[1] = 1ull << 40;
    CHECK(gguf_writer_tensor(w, &t, &err) == MICA_E_ARG && strstr(err.text, "overflows"));
    t = g_tensor[0], t.type = (gguf_type)5;
    CHECK(gguf_writer_tensor(w, &t, &err) == MICA_E_ARG);
    CHECK_OK(gguf_writer_tensor(w, &g_tensor[0], &err));
    CHECK(gguf_writer_data(w, "01234567890123456789x", 21, &err) == MICA_E_ARG &&
          strstr(err.text, "1 bytes more"));
    CHECK(gguf_writer_tensor(w, &g_tensor[1], &err) == MICA_E_ARG && strstr(err.text, "comes after data"));
    gguf_writer_close(w);
    CHECK_OK(gguf_writer_open(&w, path, 32, &err));
    CHECK_OK(gguf_writer_tensor(w, &g_tensor[0], &err));
    CHECK_OK(gguf_writer_data(w, "0123456789", 10, &err));
    CHECK(gguf_writer_finish(w, &err) == MICA_E_ARG && strstr(err.text, "data ends in tensor 0 of 1"));
    CHECK(n_file(d.path) == 1); // the .part
    gguf_writer_close(w);
    CHECK(n_file(d.path) == 0);
    gguf_writer_close(NULL);
    temp_dir_drop(&d);
}

/* A limit on the size of files stands for the full disk: the same call fails at the same place. */
static void write_with_limit(const char *path, bool declared) {
    struct rlimit rl = {65536, 65536};
    gguf_writer *w;
    signal(SIGXFSZ, SIG_IGN);
    if (gguf_writer_open(&w, path, 32, &err) != MICA_OK) _exit(1);
    gguf_writer_str(w, "general.architecture", SLICE_LIT("llama"));
    if (gguf_writer_tensor(w, &g_tensor[declared ? 2 : 0], &err) != MICA_OK) _exit(2);
    if (declared) setrlimit(RLIMIT_FSIZE, &rl);
    static uint8_t data[1 << 20];
    mica_status st = gguf_writer_data(w, data, declared ? sizeof data : 20, &err);
    if (!declared) {
        rl.rlim_cur = rl.rlim_max = 16; // found when the buffer goes out
        setrlimit(RLIMIT_FSIZE, &rl);
        st = gguf_writer_finish(w, &err);
    }
    bool good = st == MICA_E_NETWORK && strstr(err.text, "full.gguf: write ");
    gguf_writer_close(w);
    _exit(good ? 0 : 3);
}

static void test_a_full_disk_is_named(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    const char *path = temp_dir_write(&d, "full.gguf", "old", 3); // what was there before stays
    for (int declared = 0; declared <= 1; declared++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) write_with_limit(path, declared != 0);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        struct stat sb;
        CHECK(n_file(d.path) == 1 && stat(path, &sb) == 0 && sb.st_size == 3);
    }
    temp_dir_drop(&d);
}

static void test_out_of_memory(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    for (int n = 0;; n++) {
        gguf_writer *w;
        mem_fail_after(n);
        mica_status st = gguf_writer_open(&w, temp_dir_at(&d, "m"), 32, &err);
        if (st == MICA_OK) write_meta(w);
        if (st == MICA_OK) st = gguf_writer_tensor(w, &g_tensor[0], &err);
        if (st == MICA_OK) st = gguf_writer_data(w, "01234567890123456789", 20, &err);
        if (st == MICA_OK) st = gguf_writer_finish(w, &err);
        mem_fail_after(-1);
        gguf_writer_close(w);
        CHECK(n_file(d.path) == (st == MICA_OK ? 1 : 0));
        if (st == MICA_OK) break;
        CHECK(st == MICA_E_NOMEM);
    }
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_in_pieces), cmocka_unit_test(test_copied_values),
        cmocka_unit_test(test_misuse_is_refused),    cmocka_unit_test(test_a_full_disk_is_named),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
