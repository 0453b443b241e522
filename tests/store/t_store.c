/* Experts in slots in front of the file: the same bytes as in the mapping whatever the order and however few
 * slots there are, and a file that fails is an error that names it, after which the next lease works. */
#include "check.h"

#include "base/mem.h"
#include "gguf/gguf.h"
#include "store/reader.h"
#include "store/store.h"
#include "temp_dir.h"

#include <unistd.h>

enum { LAYERS = 3, EXPERTS = 8 };
#define MODEL "tests/fixtures/qwen3_moe.q4_k_m.gguf"

static temp_dir dir;
static char path[512];
static mica_error err;

typedef struct rig {
    gguf_file *g;
    store *mapped, *s; // the same experts: from the mapping, from slots
    dev_expert_shape shape[LAYERS];
} rig;

static int set_up(void **state) {
    (void)state;
    static char bytes[1 << 16];
    temp_dir_make(&dir);
    snprintf(path, sizeof path, "%s", temp_dir_at(&dir, "m.gguf"));
    FILE *in = fopen(MODEL, "rb"), *out = fopen(path, "wb");
    CHECK(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;) CHECK(fwrite(bytes, 1, n, out) == n);
    fclose(in);
    CHECK(fclose(out) == 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    temp_dir_drop(&dir);
    return 0;
}

static const gguf_tensor *tensor(const rig *t, uint32_t il, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.weight", il, what);
    const gguf_tensor *x = gguf_tensor_find(t->g, name);
    CHECK(x);
    return x;
}

static void layers_set(const rig *t, store *s) {
    for (uint32_t il = 0; il < LAYERS; il++)
        store_layer_set(s, il, tensor(t, il, "ffn_gate_exps"), tensor(t, il, "ffn_up_exps"),
                        tensor(t, il, "ffn_down_exps"));
}

static off_t cut_at; // the file ends here when its slots are taken; 0: nothing is cut

/* n_slot of each slab. */
static mica_status rig_open(rig *t, uint32_t n_slot, const float *use) {
    plan p = {.n_slab = 0};
    *t = (rig){0};
    CHECK_OK(gguf_open(&t->g, path, &err));
    CHECK_OK(store_new(&t->mapped, t->g, LAYERS, EXPERTS, &err));
    CHECK_OK(store_new(&t->s, t->g, LAYERS, EXPERTS, &err));
    layers_set(t, t->mapped);
    layers_set(t, t->s);
    memset(p.slab_of, PLAN_NO_SLAB, sizeof p.slab_of);
    for (uint32_t il = 0; il < LAYERS; il++) {
        t->shape[il].gate_bytes = tensor(t, il, "ffn_gate_exps")->size_bytes / EXPERTS;
        t->shape[il].up_bytes = tensor(t, il, "ffn_up_exps")->size_bytes / EXPERTS;
        t->shape[il].down_bytes = tensor(t, il, "ffn_down_exps")->size_bytes / EXPERTS;
        uint64_t n = store_blob_room(&t->shape[il]);
        uint32_t is = 0;
        while (is < p.n_slab && p.slab[is].blob_bytes != n) is++;
        if (is == p.n_slab) p.slab[p.n_slab++] = (plan_slab){.blob_bytes = n, .n_slot = n_slot};
        p.slab[is].n_expert += EXPERTS;
        p.slab_of[il] = (uint8_t)is;
    }
    if (cut_at) CHECK(truncate(path, cut_at) == 0);
    return store_slots_take(t->s, &p, use, use ? 100 : 0, &err);
}

static void rig_close(rig *t) {
    store_free(t->s);
    store_free(t->mapped);
    gguf_close(t->g);
}

static void check_bytes(const rig *t, const expert_lease *a, const expert_lease *b) {
    const dev_expert_shape *e = &t->shape[a->layer];
    CHECK(a->layer == b->layer && a->expert == b->expert);
    CHECK(memcmp(a->gate, b->gate, e->gate_bytes) == 0 && memcmp(a->up, b->up, e->up_bytes) == 0);
    CHECK(memcmp(a->down, b->down, e->down_bytes) == 0);
}

/* One call as a device makes it: told what comes, then leases of as many at a time as it likes. */
static void call(const rig *t, uint32_t il, const int32_t *ids, uint32_t n, uint32_t n_held) {
    expert_source *x = store_experts(t->s), *y = store_experts(t->mapped);
    expert_lease held[EXPERTS], other;
    x->will_need(x, il, ids, n);
    for (uint32_t i = 0; i < n;) {
        uint32_t k = 0;
        while (k < n_held && i + k < n) {
            mica_status st = x->acquire(x, il, (uint32_t)ids[i + k], &held[k], &err);
            if (st != MICA_OK) CHECK(k > 0); // short of slots: what there is comes first
            if (st != MICA_OK) break;
            k++;
        }
        CHECK(k > 0);
        for (uint32_t j = 0; j < k; j++) {
            CHECK_OK(y->acquire(y, il, (uint32_t)ids[i + j], &other, &err));
            check_bytes(t, &held[j], &other);
            y->release(y, &other);
            x->release(x, &held[j]);
        }
        i += k;
    }
}

static uint32_t some_ids(int32_t *ids, uint64_t *seed) {
    uint32_t n = 0;
    for (int32_t e = 0; e < EXPERTS; e++)
        if (test_rand(seed) % 3 == 0) ids[n++] = e;
    if (n == 0) ids[n++] = 0;
    return n;
}

static void test_slots_give_the_files_bytes(void **state) {
    (void)state;
    uint64_t seed = 11;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t n_slot = 1; n_slot <= 8; n_slot++) {
        rig t;
        int32_t ids[EXPERTS];
        CHECK_OK(rig_open(&t, n_slot, NULL));
        for (uint32_t i = 0; i < 150; i++) {
            uint32_t n = some_ids(ids, &seed);
            call(&t, i % LAYERS, ids, n, 1 + (uint32_t)(test_rand(&seed) % EXPERTS));
        }
        store_stats s = store_stats_get(t.s);
        CHECK(s.n_slot > 0 && s.ssd_bytes > 0 && s.n_hit <= s.n_use);
        rig_close(&t);
    }
}

static void test_what_is_used_stays_and_known_use_is_there(void **state) {
    (void)state;
    rig t;
    float use[LAYERS * EXPERTS] = {0};
    const int32_t usual[2] = {2, 5};
    for (int il = 0; il < LAYERS; il++) use[il * EXPERTS + 2] = use[il * EXPERTS + 5] = 1;
    CHECK_OK(rig_open(&t, 4, use));
    uint64_t start = store_stats_get(t.s).ssd_bytes;
    for (int i = 0; i < 30; i++)
        for (uint32_t il = 0; il < LAYERS; il++) call(&t, il, usual, 2, 2);
    store_stats s = store_stats_get(t.s);
    CHECK(start > 0 && s.ssd_bytes == start && s.n_hit == s.n_use && s.n_use == 180);
    rig_close(&t);
}

/* Cut while it is read: an error with the file and the place; back in its length, the next lease works. */
static void test_a_file_that_ends_early(void **state) {
    (void)state;
    rig t;
    expert_lease l;
    CHECK_OK(rig_open(&t, 2, NULL));
    expert_source *x = store_experts(t.s);
    const gguf_tensor *down = tensor(&t, 1, "ffn_down_exps");
    uint64_t size = gguf_shard_at(t.g, 0)->size_bytes, at = down->off_bytes + down->size_bytes / EXPERTS * 3;
    static char tail[8 << 20];
    FILE *f = fopen(path, "rb");
    CHECK(f && size - at < sizeof tail && fseek(f, (long)at, SEEK_SET) == 0);
    CHECK(fread(tail, 1, size - at, f) == size - at);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        CHECK(truncate(path, (off_t)(at + 5)) == 0);
        x->will_need(x, 1, (const int32_t[]){3}, 1);
        CHECK(x->acquire(x, 1, 3, &l, &err) == MICA_E_IO);
        CHECK(strstr(err.text, "m.gguf") && strstr(err.text, "offset") && strstr(err.text, "ends here"));
        f = fopen(path, "r+b");
        CHECK(f && fseek(f, (long)at, SEEK_SET) == 0 && fwrite(tail, 1, size - at, f) == size - at);
        CHECK(fclose(f) == 0);
        call(&t, 1, (const int32_t[]){3}, 1, 1);
        call(&t, 1, (const int32_t[]){4, 5}, 2, 2); // and it has to be read again
    }
    rig_close(&t);
}

/* What is read at the start is not read in silence: few reads, or more than are in flight at once. */
static void test_a_start_that_cannot_read(void **state) {
    (void)state;
    float use[LAYERS * EXPERTS];
    static char all[16 << 20];
    FILE *f = fopen(path, "rb");
    CHECK(f);
    size_t size = fread(all, 1, sizeof all, f);
    CHECK(size < sizeof all);
    fclose(f);
    for (int i = 0; i < LAYERS * EXPERTS; i++) use[i] = 1;
    for (uint32_t n_slot = 1; n_slot <= LAYERS * EXPERTS; n_slot *= 3) {
        rig t;
        cut_at = (off_t)(size / 4);
        CHECK(rig_open(&t, n_slot, use) == MICA_E_IO && strstr(err.text, "m.gguf"));
        cut_at = 0;
        rig_close(&t);
        f = fopen(path, "wb");
        CHECK(f && fwrite(all, 1, size, f) == size && fclose(f) == 0);
        CHECK_OK(rig_open(&t, n_slot, use));
        rig_close(&t);
    }
}

static void test_every_failed_allocation_is_told(void **state) {
    (void)state;
    rig t;
    mica_status st = MICA_E_NOMEM;
    for (int n = 1; n < 40 && st != MICA_OK; n++) {
        plan p = {.n_slab = 1};
        CHECK_OK(gguf_open(&t.g, path, &err));
        CHECK_OK(store_new(&t.s, t.g, LAYERS, EXPERTS, &err));
        memset(p.slab_of, PLAN_NO_SLAB, sizeof p.slab_of);
        p.slab_of[0] = 0;
        p.slab[0] = (plan_slab){.blob_bytes = 1 << 20, .n_expert = EXPERTS, .n_slot = 2};
        layers_set(&t, t.s);
        mem_fail_after(n);
        st = store_slots_take(t.s, &p, NULL, 0, &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || st == MICA_E_NOMEM);
        store_free(t.s);
        gguf_close(t.g);
    }
    CHECK(st == MICA_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_give_the_files_bytes),
        cmocka_unit_test(test_what_is_used_stays_and_known_use_is_there),
        cmocka_unit_test(test_a_file_that_ends_early),
        cmocka_unit_test(test_a_start_that_cannot_read),
        cmocka_unit_test(test_every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
