/* Memory of a test that exists twice: on the host, where the definition works on it, and on a device.
 *
 *     float *x = mir_floats(n);  ...build a record of host pointers...
 *     mir_freeze();                               // this is what both begin with
 *     CHECK_OK(dev_norm(ref, &a, &err));
 *     mir_place(d);  b = a;  MIR(b.x); ...        // the same record for the device
 *     CHECK_OK(dev_norm(d, &b, &err));
 *     mir_compare(d, "norm");                     // every byte of every buffer, guard words too
 *     mir_done();                                 // frees them all
 *
 * So a kernel may change nothing but what the definition changes, and that to the same bits. */
#ifndef MICA_TESTS_MIRROR_H
#define MICA_TESTS_MIRROR_H

#include "check.h"

#include "dev/dev.h"

enum { MIR_GUARD = 64, MIR_MAX = 64 };

typedef struct mir_buf {
    char *host, *begin, *got; // owned: guard, bytes, guard
    void *dev;
    size_t n;     // bytes without guards
    bool scratch; // what is left in it is nobody's business
} mir_buf;

static mir_buf g_mir[MIR_MAX];
static int n_mir;

static size_t mir_whole(const mir_buf *b) {
    return (b->n + 2 * MIR_GUARD + 63) / 64 * 64;
}

/* Pages of its own, as a mapped file has them: a driver may register those that hold experts, and refuses
 * copies of memory that is registered in part. */
static void *mir_pages(size_t n) {
    return aligned_alloc(4096, (n + 4095) / 4096 * 4096);
}

static void *mir(size_t n_bytes) {
    CHECK(n_mir < MIR_MAX);
    mir_buf *b = &g_mir[n_mir++];
    *b = (mir_buf){.n = n_bytes};
    b->host = mir_pages(mir_whole(b));
    b->begin = mir_pages(mir_whole(b));
    b->got = mir_pages(mir_whole(b));
    CHECK(b->host && b->begin && b->got);
    memset(b->host, 0xA5, mir_whole(b));
    memset(b->host + MIR_GUARD, 0, n_bytes);
    return b->host + MIR_GUARD;
}

static float *mir_floats(size_t n) {
    return mir(n * sizeof(float));
}

static mir_buf *mir_of(const void *p) {
    const char *at = p;
    for (int i = 0; i < n_mir; i++) {
        if (at >= g_mir[i].host && at < g_mir[i].host + mir_whole(&g_mir[i])) return &g_mir[i];
    }
    CHECK(false);
    return NULL;
}

static void mir_scratch(const void *p) {
    if (p) mir_of(p)->scratch = true;
}

static void mir_freeze(void) {
    for (int i = 0; i < n_mir; i++) memcpy(g_mir[i].begin, g_mir[i].host, mir_whole(&g_mir[i]));
}

/* The device's copy of what was frozen. */
static void mir_place(dev *d) {
    mica_error err;
    for (int i = 0; i < n_mir; i++) {
        mir_buf *b = &g_mir[i];
        CHECK_OK(dev_alloc(d, &b->dev, mir_whole(b), "test", &err));
        CHECK_OK(dev_upload(d, b->dev, b->begin, mir_whole(b), &err));
    }
}

static void *mir_on(const void *p) {
    if (!p) return NULL;
    const mir_buf *b = mir_of(p);
    return (char *)b->dev + ((const char *)p - b->host);
}
#define MIR(p) ((p) = mir_on(p))

static quant_act mir_act(quant_act a) {
    MIR(a.x), MIR(a.q), MIR(a.d), MIR(a.s), MIR(a.s16);
    return a;
}
static weight_ref mir_weight(weight_ref w) {
    MIR(w.w), MIR(w.bias), MIR(w.scale);
    return w;
}

/* The first word that differs, in words from the buffer's beginning. */
static void mir_tell(const mir_buf *b, int i, const char *what, const char *who) {
    size_t k = 0, n = mir_whole(b) / 4;
    while (k < n && memcmp(b->host + 4 * k, b->got + 4 * k, 4) == 0) k++;
    float want, got;
    memcpy(&want, b->host + 4 * k, 4);
    memcpy(&got, b->got + 4 * k, 4);
    print_error("%s: %s: buffer %d: word %zu of %zu: %a, should be %a\n", who, what, i, k - MIR_GUARD / 4,
                b->n / 4, (double)got, (double)want);
}

/* Waits, compares, and takes the device's copy away. */
static void mir_compare(dev *d, const char *what) {
    mica_error err;
    bool ok = true;
    CHECK_OK(dev_sync(d, &err));
    for (int i = 0; i < n_mir; i++) {
        mir_buf *b = &g_mir[i];
        CHECK_OK(dev_download(d, b->got, b->dev, mir_whole(b), &err));
        dev_release(d, b->dev);
        if (b->scratch) memcpy(b->got + MIR_GUARD, b->host + MIR_GUARD, b->n);
        if (memcmp(b->got, b->host, mir_whole(b)) == 0) continue;
        if (ok) mir_tell(b, i, what, d->what);
        ok = false;
    }
    CHECK(ok);
}

static void mir_done(void) {
    for (int i = 0; i < n_mir; i++) {
        free(g_mir[i].host);
        free(g_mir[i].begin);
        free(g_mir[i].got);
    }
    n_mir = 0;
}

#endif
