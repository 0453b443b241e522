/* Opening drivers and naming cards, with libraries that only look like a vendor's (fakecard_shim.c). A driver
 * is opened once a process, so each case is a process of its own. */
#include "check.h"
#include "temp_dir.h"

#include "dev/gpu_code.h"
#include "dev/gpu_drv.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char g_folder[128], g_shim[512];

static void link_as(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", g_folder, name);
    unlink(path);
    CHECK(symlink(g_shim, path) == 0);
}

static int setup(void **state) {
    (void)state;
    ssize_t n = readlink("/proc/self/exe", g_shim, sizeof g_shim - 32);
    if (n <= 0) return -1;
    g_shim[n] = 0;
    snprintf(strrchr(g_shim, '/') + 1, 24, "fakecard_shim.so");
    snprintf(g_folder, sizeof g_folder, "/tmp/mica-drv-XXXXXX");
    if (!mkdtemp(g_folder)) return -1;
    link_as("libcuda.so.1");
    link_as("libamdhip64.so.6");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/libcuda.so.1", g_folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/libamdhip64.so.6", g_folder);
    unlink(path);
    return rmdir(g_folder);
}

/* Runs `what` in a child with NAME=VALUE pairs set; it exits 0 when all was as it should be. */
static void in_child(const char *const *env, void (*what)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setenv("MICA_LIBRARY_PATH", g_folder, 1);
        for (; *env; env += 2) setenv(env[0], env[1], 1);
        what();
        _exit(0);
    }
    int st;
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

#define EXPECT(x)                                                                                            \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                          \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static bool have_shim(void) {
    return access(g_shim, R_OK) == 0;
}

static void no_card(void) {
    mica_error err;
    gpu_card c;
    const gpu_drv *cuda = gpu_drv_get(GPU_CUDA), *hip = gpu_drv_get(GPU_HIP);
    EXPECT(!cuda->ok && strstr(cuda->why, "no device") && cuda->library[0] == '/');
    EXPECT(!hip->ok && strstr(hip->why, "no device") && hip->library[0] == '/');
    EXPECT(gpu_card_get(&c, GPU_CUDA, 0, &err) == MICA_E_DEVICE && strstr(err.text, "device cuda:0: "));
    EXPECT(gpu_card_get(&c, GPU_HIP, 0, &err) == MICA_E_DEVICE && strstr(err.text, "device hip:0: "));
}

static void two_cards(void) {
    gpu_card c[GPU_CARD_MAX], best;
    mica_error err;
    char why[200];
    EXPECT(gpu_card_list(c, GPU_CARD_MAX) == 4);
    EXPECT(strcmp(c[0].id, "hip:0") == 0 && strcmp(c[0].arch, "gfx1201") == 0 && c[0].wave == 32);
    EXPECT(c[0].integrated && !c[1].integrated && c[1].n_mp == 64 && c[1].vram_free == (uint64_t)20 << 30);
    EXPECT(strcmp(c[2].id, "cuda:0") == 0 && strcmp(c[2].arch, "sm_90") == 0 && c[3].shared_bytes == 232448);
    EXPECT(strcmp(c[3].bus, "0000:fe:01.0") == 0 && !c[3].display && c[3].usable);
    EXPECT(gpu_card_choose(&best, why, sizeof why) && strcmp(best.id, "hip:1") == 0); // a discrete one
    EXPECT(gpu_card_get(&best, GPU_HIP, 7, &err) == MICA_E_DEVICE && strstr(err.text, "there are 2"));
}

static void old_cards(void) {
    gpu_card c;
    mica_error err;
    EXPECT(gpu_card_get(&c, GPU_CUDA, 0, &err) == MICA_E_DEVICE &&
           strstr(err.text, "sm_50: no 4-byte integer"));
    EXPECT(gpu_card_get(&c, GPU_HIP, 0, &err) == MICA_OK && strcmp(c.arch, "gfx906") == 0 && c.wave == 64);
}

static void broken_context(void) {
    gpu_card c;
    mica_error err;
    EXPECT(gpu_card_get(&c, GPU_CUDA, 0, &err) == MICA_E_DEVICE &&
           strstr(err.text, "CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT(gpu_card_get(&c, GPU_HIP, 0, &err) == MICA_E_DEVICE && strstr(err.text, "hipErrorOutOfMemory"));
}

static void test_no_device_is_no_card(void **state) {
    (void)state;
    if (!have_shim()) SKIP("drivers that only look like one: %s is not built", g_shim);
    in_child((const char *const[]){"FAKECARD_INIT", "101", NULL}, no_card);
    in_child((const char *const[]){"FAKECARD_INIT", "100", NULL}, no_card);
    in_child((const char *const[]){"FAKECARD_COUNT", "0", NULL}, no_card);
}

static void test_cards_are_described(void **state) {
    (void)state;
    if (!have_shim()) SKIP("drivers that only look like one: %s is not built", g_shim);
    in_child((const char *const[]){"FAKECARD_COUNT", "2", NULL}, two_cards);
    in_child(
        (const char *const[]){"FAKECARD_COUNT", "1", "FAKECARD_OLD", "1", "FAKECARD_GFX", "gfx906", NULL},
        old_cards);
    in_child((const char *const[]){"FAKECARD_COUNT", "1", "FAKECARD_CONTEXT", "2", NULL}, broken_context);
}

static void test_the_object_that_fits(void **state) {
    (void)state;
    static const kern_file files[] = {{"kern/all.cuh", "", 0},     {"gfx1100.co.gz", "", 0},
                                      {"gfx1101.co.gz", "", 0},    {"sm_80.cubin.gz", "", 0},
                                      {"sm_89.cubin.gz", "", 0},   {"sm_90.cubin.gz", "", 0},
                                      {"compute_75.ptx.gz", "", 0}};
    static const struct {
        gpu_kind kind;
        const char *arch, *want; // NULL: none
    } rows[] = {{GPU_HIP, "gfx1101", "gfx1101.co.gz"},    {GPU_HIP, "gfx1102", NULL},
                {GPU_CUDA, "sm_90", "sm_90.cubin.gz"},    {GPU_CUDA, "sm_86", "sm_80.cubin.gz"},
                {GPU_CUDA, "sm_89", "sm_89.cubin.gz"},    {GPU_CUDA, "sm_120", "compute_75.ptx.gz"},
                {GPU_CUDA, "sm_75", "compute_75.ptx.gz"}, {GPU_CUDA, "sm_61", NULL},
                {GPU_CUDA, "sm_100", "compute_75.ptx.gz"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gpu_card c = {.kind = rows[i].kind};
        snprintf(c.arch, sizeof c.arch, "%s", rows[i].arch);
        const char *got = gpu_code_find(files, sizeof files / sizeof *files, &c);
        if (!got || !rows[i].want)
            CHECK(!got && !rows[i].want);
        else
            CHECK(strcmp(got, rows[i].want) == 0);
    }
}

static void test_this_build_has_its_device_source(void **state) {
    (void)state;
    bool all = false, args = false;
    for (uint64_t i = 0; i < mica_kern_file_count; i++) {
        all |= strcmp(mica_kern_files[i].name, "kern/all.cuh") == 0 && mica_kern_files[i].n_bytes > 100;
        args |= strcmp(mica_kern_files[i].name, "kern/args.h") == 0;
    }
    CHECK(all && args);
}

static void test_a_machine_without_a_bus(void **state) {
    (void)state;
    bool seen;
    char why[200] = "x";
    CHECK(!gpu_node_display("") && !gpu_node_display("ffff:ff:1f.7"));
    gpu_node_check(GPU_SIM, &seen, why, sizeof why);
    CHECK(!seen && why[0] == 0);
}

/* A bus as the system shows it, with a bridge, a sound device of a card, and two cards. */
static void test_cards_on_the_bus(void **state) {
    (void)state;
    static const struct {
        const char *bus, *vendor, *class;
    } rows[] = {{"0000:00:01.0", "0x1022\n", "0x060400\n"},
                {"0000:03:00.1", "0x1002\n", "0x040300\n"},
                {"0000:03:00.0", "0x1002\n", "0x030000\n"},
                {"0000:41:00.0", "0x10de\n", "0x030200\n"},
                {"0000:42:00.0", "", ""}};
    temp_dir d;
    char bus[24];
    temp_dir_make(&d);
    CHECK(!gpu_node_pci(bus, sizeof bus, GPU_HIP, d.path) && bus[0] == 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        mkdir(temp_dir_at(&d, rows[i].bus), 0700);
        snprintf(name, sizeof name, "%s/vendor", rows[i].bus);
        temp_dir_write(&d, name, rows[i].vendor, strlen(rows[i].vendor));
        snprintf(name, sizeof name, "%s/class", rows[i].bus);
        temp_dir_write(&d, name, rows[i].class, strlen(rows[i].class));
    }
    CHECK(gpu_node_pci(bus, sizeof bus, GPU_HIP, d.path) && strcmp(bus, "0000:03:00.0") == 0);
    CHECK(gpu_node_pci(bus, sizeof bus, GPU_CUDA, d.path) && strcmp(bus, "0000:41:00.0") == 0);
    CHECK(!gpu_node_pci(bus, sizeof bus, GPU_SIM, d.path));
    CHECK(!gpu_node_pci(bus, sizeof bus, GPU_HIP, "/nonexistent"));
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_device_is_no_card),
        cmocka_unit_test(test_cards_are_described),
        cmocka_unit_test(test_the_object_that_fits),
        cmocka_unit_test(test_this_build_has_its_device_source),
        cmocka_unit_test(test_a_machine_without_a_bus),
        cmocka_unit_test(test_cards_on_the_bus),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
