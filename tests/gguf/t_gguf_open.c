/* Files and shards on disk: paths of every sort, missing and inconsistent siblings, files that change under
 * us. */
#include "check.h"
#include "gguf_build.h"
#include "temp_dir.h"

#include "gguf/gguf.h"

#include <errno.h>
#include <time.h>

static mica_error err;

static void write_small(const temp_dir *d, const char *name) {
    strbuf b = {0};
    put_small_model(&b);
    temp_dir_write(d, name, b.p, b.n);
    strbuf_fini(&b);
}

static void test_paths(void **state) {
    (void)state;
    temp_dir d;
    gguf_file *g;
    temp_dir_make(&d);
    static const char *const folder = "Željko Ünï 模型 🙂";
    char name[300];
    CHECK(mkdir(temp_dir_at(&d, folder), 0700) == 0);
    snprintf(name, sizeof name, "%s/a b%%20'c\".gguf", folder);
    write_small(&d, name);
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, name), &err));
    CHECK(strstr(gguf_name(g), "a b%20'c\".gguf") && strstr(gguf_name(g), folder));
    gguf_close(g);
    snprintf(name, sizeof name, "%s/trailing space ", folder);
    write_small(&d, name);
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, name), &err));
    gguf_close(g);
    CHECK(symlink(temp_dir_at(&d, name), temp_dir_at(&d, "link")) == 0);
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, "link"), &err));
    gguf_close(g);
    // Nothing is written beside the model: a folder without write permission does.
    CHECK(chmod(temp_dir_at(&d, folder), 0500) == 0);
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, name), &err));
    gguf_close(g);
    CHECK(chmod(temp_dir_at(&d, folder), 0700) == 0);
    // A path too long for a message keeps its end, where the file's name is, and its reason.
    memset(name, 'x', sizeof name);
    name[255] = 0;
    write_small(&d, name);
    CHECK_OK(gguf_open(&g, temp_dir_at(&d, name), &err));
    gguf_close(g);
    strcpy(name + 240, "absent.gguf");
    CHECK(gguf_open(&g, temp_dir_at(&d, name), &err) == MICA_E_IO);
    CHECK(strstr(err.text, "xabsent.gguf: open: No such file") && strncmp(err.text, "...x", 4) == 0);
    memset(name, 'x', sizeof name);
    name[299] = 0;
    CHECK(gguf_open(&g, temp_dir_at(&d, name), &err) == MICA_E_IO && strstr(err.text, "too long"));
    temp_dir_drop(&d);
}

static void test_what_is_no_file(void **state) {
    (void)state;
    temp_dir d;
    gguf_file *g = (gguf_file *)&d;
    temp_dir_make(&d);
    CHECK(gguf_open(&g, temp_dir_at(&d, "none.gguf"), &err) == MICA_E_IO && g == NULL);
    CHECK(strstr(err.text, "none.gguf: open: No such file"));
    CHECK(gguf_open(&g, d.path, &err) == MICA_E_IO && strstr(err.text, "is a directory"));
    CHECK(gguf_open(&g, "/dev/null", &err) == MICA_E_IO && strstr(err.text, "not a regular file"));
    CHECK(gguf_open(&g, "", &err) == MICA_E_IO);
    CHECK(mkfifo(temp_dir_at(&d, "pipe"), 0600) == 0);
    CHECK(gguf_open(&g, temp_dir_at(&d, "pipe"), &err) == MICA_E_IO &&
          strstr(err.text, "not a regular file"));
    CHECK(symlink("nowhere", temp_dir_at(&d, "dangling")) == 0);
    CHECK(gguf_open(&g, temp_dir_at(&d, "dangling"), &err) == MICA_E_IO);
    write_small(&d, "locked.gguf");
    CHECK(chmod(temp_dir_at(&d, "locked.gguf"), 0) == 0);
    if (geteuid() != 0) // root reads everything
        CHECK(gguf_open(&g, temp_dir_at(&d, "locked.gguf"), &err) == MICA_E_IO &&
              strstr(err.text, "ermission"));
    gguf_close(NULL);
    temp_dir_drop(&d);
}

/* ---- shards ---- */

typedef struct shard_spec {
    int no, count, total; // as the shard's keys say
    const char *prefix;   // of its tensors' names
    int n;                // tensors
} shard_spec;

static void write_shard(const temp_dir *d, const char *name, shard_spec s) {
    strbuf b = {0};
    put_shard(&b, (uint16_t)s.no, (uint16_t)s.count, (uint32_t)s.total, s.prefix, (uint32_t)s.n);
    temp_dir_write(d, name, b.p, b.n);
    strbuf_fini(&b);
}

#define S1 "模 m-00001-of-00003.gguf"
#define S2 "模 m-00002-of-00003.gguf"
#define S3 "模 m-00003-of-00003.gguf"

/* Three shards, the first of them empty; the tensors of block 0 lie in the second and third. */
static void write_three(const temp_dir *d) {
    write_shard(d, S1, (shard_spec){0, 3, 5, "none", 0});
    write_shard(d, S2, (shard_spec){1, 3, 5, "blk.0.a", 2});
    write_shard(d, S3, (shard_spec){2, 3, 5, "blk.0.b", 3});
}

static void test_any_shard_opens_all(void **state) {
    (void)state;
    static const char *const name[] = {S1, S2, S3};
    temp_dir d;
    temp_dir_make(&d);
    write_three(&d);
    uint64_t print = 0;
    for (int i = 0; i < 3; i++) {
        gguf_file *g;
        slice arch;
        CHECK_OK(gguf_open(&g, temp_dir_at(&d, name[i]), &err));
        CHECK(gguf_shard_count(g) == 3 && gguf_tensor_count(g) == 5);
        CHECK_OK(gguf_need_model(g, &arch, &err));
        CHECK(slice_is(arch, "llama"));
        const gguf_tensor *t = gguf_tensor_find(g, "blk.0.b.2");
        CHECK(t && t->shard == 2 && *(const float *)t->data == 2.0f && t == gguf_tensor_at(g, 4));
        t = gguf_tensor_find(g, "blk.0.a.0");
        CHECK(t && t->shard == 1 && *(const float *)t->data == 1.0f && t == gguf_tensor_at(g, 0));
        uint64_t total = 0;
        for (size_t k = 0; k < 3; k++) {
            const gguf_shard *s = gguf_shard_at(g, k);
            struct stat sb;
            CHECK(strstr(s->path, name[k]) && s->fd >= 0 && s->n_tensor == (k ? k + 1 : 0));
            CHECK(fstat(s->fd, &sb) == 0 && (uint64_t)sb.st_size == s->size_bytes && sb.st_ino == s->ino);
            total += s->size_bytes;
        }
        CHECK(gguf_total_bytes(g) == total && !gguf_changed(g, &err));
        CHECK(print == 0 || print == gguf_fingerprint(g));
        print = gguf_fingerprint(g);
        gguf_close(g);
    }
    temp_dir_drop(&d);
}

static void test_shards_that_do_not_fit_together(void **state) {
    (void)state;
    temp_dir d;
    gguf_file *g;
    temp_dir_make(&d);
    write_three(&d);
    const char *first = temp_dir_at(&d, S1), *second = temp_dir_at(&d, S2);

    CHECK(unlink(temp_dir_at(&d, S3)) == 0);
    CHECK(gguf_open(&g, first, &err) == MICA_E_IO && g == NULL);
    CHECK(strstr(err.text, S3 ": shard 3 of 3 is missing"));
    CHECK(gguf_open(&g, second, &err) == MICA_E_IO && strstr(err.text, S3 ": shard 3 of 3 is missing"));

    write_shard(&d, S3, (shard_spec){2, 4, 5, "blk.0.b", 3}); // another count
    CHECK(gguf_open(&g, first, &err) == MICA_E_FORMAT);
    CHECK(strstr(err.text, S3 ": is shard 3 of 4, expected 3 of 3"));
    write_shard(&d, S3, (shard_spec){1, 3, 5, "blk.0.b", 3}); // the second shard again
    CHECK(gguf_open(&g, first, &err) == MICA_E_FORMAT &&
          strstr(err.text, "is shard 2 of 3, expected 3 of 3"));
    write_small(&d, S3); // not a shard at all
    CHECK(gguf_open(&g, first, &err) == MICA_E_FORMAT &&
          strstr(err.text, "is shard 1 of 1, expected 3 of 3"));
    write_shard(&d, S3, (shard_spec){2, 3, 5, "blk.0.b", 2}); // a tensor less than promised
    CHECK(gguf_open(&g, second, &err) == MICA_E_FORMAT);
    CHECK(strstr(err.text, "split.tensors.count is 5, the 3 shards hold 4 tensors"));
    write_shard(&d, S3, (shard_spec){2, 3, 5, "blk.0.a", 3}); // names of the second
    CHECK(gguf_open(&g, first, &err) == MICA_E_FORMAT);
    CHECK(strstr(err.text, "'blk.0.a.0': the name stands twice, first as tensor 0"));

    write_three(&d);
    CHECK(rename(second, temp_dir_at(&d, "renamed.gguf")) == 0);
    CHECK(gguf_open(&g, temp_dir_at(&d, "renamed.gguf"), &err) == MICA_E_FORMAT);
    CHECK(strstr(err.text, "must end in -00002-of-00003.gguf"));
    CHECK(rename(temp_dir_at(&d, "renamed.gguf"), temp_dir_at(&d, "m-00001-of-00003.gguf")) == 0);
    CHECK(gguf_open(&g, temp_dir_at(&d, "m-00001-of-00003.gguf"), &err) == MICA_E_FORMAT);
    temp_dir_drop(&d);
}

static void test_a_count_of_0_or_1_is_one_file(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    for (int count = 0; count <= 1; count++) { // merged files keep the keys with a count of 0
        gguf_file *g;
        write_shard(&d, "merged.gguf", (shard_spec){0, count, 2, "t", 2});
        CHECK_OK(gguf_open(&g, temp_dir_at(&d, "merged.gguf"), &err));
        CHECK(gguf_shard_count(g) == 1 && gguf_tensor_count(g) == 2);
        gguf_close(g);
    }
    temp_dir_drop(&d);
}

/* ---- big, changing ---- */

static void test_a_file_bigger_than_memory(void **state) {
    (void)state;
    temp_dir d;
    strbuf b = {0};
    gguf_file *g;
    const uint64_t n = 1ull << 40; // one i8 tensor of a terabyte, all hole, then one float
    temp_dir_make(&d);
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "hole", 2, (uint64_t[]){1ull << 20, 1ull << 20}, GGUF_I8, 0);
    put_vector(&b, "end", 1, n);
    put_pad(&b, 32);
    const char *path = temp_dir_write(&d, "big.gguf", b.p, b.n);
    if (truncate(path, (off_t)(b.n + n)) != 0) {
        temp_dir_drop(&d);
        SKIP("this file system has no sparse files of a terabyte: %s", strerror(errno));
    }
    FILE *f = fopen(path, "ab");
    float x = 4.25f;
    CHECK(f && fwrite(&x, sizeof x, 1, f) == 1 && fclose(f) == 0);
    CHECK_OK(gguf_open(&g, path, &err));
    const gguf_tensor *hole = gguf_tensor_find(g, "hole");
    CHECK(*(const float *)gguf_tensor_find(g, "end")->data == 4.25f && hole->size_bytes == n);
    for (int a = GGUF_ADVISE_NORMAL; a <= GGUF_ADVISE_DONTNEED; a++)
        gguf_advise(g, (const char *)hole->data + 1000, 12345, (gguf_advice)a);
    gguf_advise(g, hole->data, UINT64_MAX, GGUF_ADVISE_RANDOM); // more than there is is cut
    gguf_advise(g, &x, 4, GGUF_ADVISE_DONTNEED);                // not ours: nothing happens
    CHECK(x == 4.25f && ((const uint8_t *)hole->data)[n / 2] == 0);
    gguf_close(g);
    strbuf_fini(&b);
    temp_dir_drop(&d);
}

static void test_changes_while_in_use(void **state) {
    (void)state;
    temp_dir d;
    gguf_file *g;
    temp_dir_make(&d);
    write_small(&d, "m.gguf");
    write_small(&d, "other.gguf");
    const char *path = temp_dir_at(&d, "m.gguf");
    CHECK_OK(gguf_open(&g, path, &err));
    CHECK(!gguf_changed(g, &err));
    CHECK(rename(temp_dir_at(&d, "other.gguf"), path) == 0); // replaced by name: ours lives on
    CHECK(!gguf_changed(g, &err) && *(const uint8_t *)gguf_tensor_find(g, "norm")->data == 96);
    gguf_close(g);

    CHECK_OK(gguf_open(&g, path, &err));
    CHECK(unlink(path) == 0 && !gguf_changed(g, &err));
    gguf_close(g);

    write_small(&d, "m.gguf");
    CHECK_OK(gguf_open(&g, path, &err));
    int fd = open(
        path, O_WRONLY); // one byte rewritten in place; the time set apart, clocks of file systems are coarse
    struct timespec later[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = gguf_shard_at(g, 0)->mtime_ns / 1000000000 + 2}};
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 300) == 1 && futimens(fd, later) == 0);
    CHECK(gguf_changed(g, &err) && err.status == MICA_E_IO &&
          strstr(err.text, "m.gguf: changed while in use: it was"));
    CHECK(ftruncate(fd, 100) == 0 && close(fd) == 0);
    CHECK(gguf_changed(g, &err) && strstr(err.text, " bytes when opened, 100 now"));
    gguf_close(g);
    temp_dir_drop(&d);
}

static void test_fingerprints_tell_headers_and_sizes_apart(void **state) {
    (void)state;
    temp_dir d;
    gguf_file *g;
    uint64_t print[3];
    temp_dir_make(&d);
    for (int i = 0; i < 3; i++) {
        strbuf b = {0};
        put_small_model(&b);
        if (i == 1) b.p[b.n - 1] ^= 1; // data: not part of it
        if (i == 2) b.p[64] = 'b';     // the architecture is now "blama"
        CHECK_OK(gguf_open(&g, temp_dir_write(&d, "f.gguf", b.p, b.n), &err));
        print[i] = gguf_fingerprint(g);
        gguf_close(g);
        strbuf_fini(&b);
    }
    CHECK(print[0] == print[1] && print[0] != print[2]);
    strbuf b = {0};
    put_small_model(&b);
    put_u8(&b, 0); // a byte longer
    CHECK_OK(gguf_open(&g, temp_dir_write(&d, "f.gguf", b.p, b.n), &err));
    CHECK(gguf_fingerprint(g) != print[0]);
    gguf_close(g);
    strbuf_fini(&b);
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_any_shard_opens_all),
        cmocka_unit_test(test_shards_that_do_not_fit_together),
        cmocka_unit_test(test_a_count_of_0_or_1_is_one_file),
        cmocka_unit_test(test_a_file_bigger_than_memory),
        cmocka_unit_test(test_changes_while_in_use),
        cmocka_unit_test(test_fingerprints_tell_headers_and_sizes_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
