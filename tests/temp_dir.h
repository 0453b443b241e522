/* A folder for a test's files, removed with all that is in it. */
#ifndef MICA_TESTS_TEMP_DIR_H
#define MICA_TESTS_TEMP_DIR_H

#include "check.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct temp_dir {
    char path[256];
} temp_dir;

static inline void temp_dir_make(temp_dir *d) {
    snprintf(d->path, sizeof d->path, "%s/mica-test-XXXXXX", P_tmpdir);
    CHECK(mkdtemp(d->path) != NULL);
}

static inline int temp_dir_unlink(const char *path, const struct stat *sb, int flag, struct FTW *ftw) {
    (void)sb, (void)flag, (void)ftw;
    return remove(path);
}

static inline void temp_dir_drop(temp_dir *d) {
    chmod(d->path, 0700);
    nftw(d->path, temp_dir_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a file in it; valid until the eighth call after this one. */
static inline const char *temp_dir_at(const temp_dir *d, const char *name) {
    static char path[8][1024];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", d->path, name);
    return p;
}

static inline const char *temp_dir_write(const temp_dir *d, const char *name, const void *bytes, size_t n) {
    const char *path = temp_dir_at(d, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    return path;
}

#endif
