/* Whole synthetic files: every family opens, equal options give equal bytes, a stop leaves nothing behind,
 * and a skewed router prefers some experts as strongly as was asked for. */
#include "check.h"
#include "temp_dir.h"

#include "base/mem.h"
#include "eval/synth_int.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#include <xxhash.h>

static mica_error err;

static uint64_t hash_of(const gguf_file *g) {
    const gguf_tensor *t = gguf_tensor_at(g, 0);
    const char *base = (const char *)t->data - t->off_bytes;
    return XXH3_64bits(base, (size_t)gguf_total_bytes(g));
}

static uint64_t write_hash(const temp_dir *d, mica_synth_options o) {
    gguf_file *g;
    synth_report r;
    slice arch;
    const char *path = temp_dir_at(d, "m.gguf");
    CHECK_OK(synth_write(&o, path, &r, &err));
    CHECK_OK(gguf_open(&g, path, &err));
    CHECK_OK(gguf_need_model(g, &arch, &err));
    CHECK(gguf_tensor_count(g) == r.n_tensor && gguf_total_bytes(g) == r.file_bytes);
    uint64_t data = 0, params = 0, by_type = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        data += t->size_bytes;
        params += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    }
    for (int i = 0; i < GGUF_TYPE_N; i++) by_type += r.type_bytes[i];
    CHECK(data == r.data_bytes && params == r.n_param && by_type == data);
    uint64_t h = hash_of(g);
    gguf_close(g);
    return h;
}

static void test_every_family_and_type_opens(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    for (size_t i = 0; synth_preset_name(i); i++)
        if (strncmp(synth_preset_name(i), "tiny-", 5) == 0)
            write_hash(&d, (mica_synth_options){.preset = synth_preset_name(i), .quant = "q4_k_m"});
    for (size_t k = 0; synth_quant_name(k); k++)
        write_hash(&d, (mica_synth_options){.preset = "tiny-qwen3moe", .quant = synth_quant_name(k)});
    temp_dir_drop(&d);
}

static void test_equal_options_give_equal_bytes(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    mica_synth_options o = {
        .preset = "tiny-qwen35moe", .quant = "q5_k_m", .seed = 3, .router_skew = 1, .mtp = true};
    uint64_t h = write_hash(&d, o);
    CHECK(h == write_hash(&d, o));
    o.seed = 4;
    CHECK(h != write_hash(&d, o));
    o.seed = 3, o.router_skew = 1.5;
    CHECK(h != write_hash(&d, o));
    temp_dir_drop(&d);
}

typedef struct watch {
    uint64_t n_call, last, total;
    mica_cancel_flag *cancel;
} watch;

static void on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    watch *w = user;
    CHECK(strcmp(what, "write") == 0 && done > w->last && done <= total);
    w->last = done;
    w->total = total;
    w->n_call++;
    if (w->cancel && w->n_call == 10) mica_cancel(w->cancel);
}

static void test_progress_cancel_and_dry_run(void **state) {
    (void)state;
    temp_dir d;
    watch w = {0};
    mica_cancel_flag cancel = {0};
    synth_report r;
    temp_dir_make(&d);
    const char *path = temp_dir_at(&d, "m.gguf");
    mica_synth_options o = {
        .preset = "tiny-qwen3", .quant = "f16", .progress = on_progress, .progress_user = &w};
    CHECK_OK(synth_write(&o, path, &r, &err));
    CHECK(w.last == w.total && w.total == r.data_bytes && access(path, F_OK) == 0);

    CHECK(unlink(path) == 0);
    w = (watch){.cancel = &cancel};
    o.cancel = &cancel;
    CHECK(synth_write(&o, path, &r, &err) == MICA_E_CANCELLED && w.n_call == 10);
    CHECK(rmdir(d.path) == 0); // nothing is left in it
    CHECK(mkdir(d.path, 0700) == 0);

    o.cancel = NULL;
    o.dry_run = true;
    CHECK_OK(synth_write(&o, temp_dir_at(&d, "none/none.gguf"), &r, &err));
    CHECK(r.n_param > 1000000);
    o.dry_run = false;
    CHECK(synth_write(&o, temp_dir_at(&d, "none/none.gguf"), &r, &err) == MICA_E_IO && r.n_param == 0);
    temp_dir_drop(&d);
}

static void test_out_of_memory_at_any_allocation(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    mica_synth_options o = {.preset = "tiny-gemma4-moe", .quant = "nvfp4"};
    int n = 0;
    for (mica_status st = MICA_E_NOMEM; st != MICA_OK; n++) {
        mem_fail_after(n);
        st = synth_write(&o, temp_dir_at(&d, "m.gguf"), NULL, &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || st == MICA_E_NOMEM);
    }
    CHECK(n > 10);
    temp_dir_drop(&d);
}

/* How often each of n_expert is among the n_used best over n_tok tokens, most popular first: what the network
 * computes in front of its experts, with the layers' contribution to the stream drawn at random. */
static void route(const gguf_file *g, uint32_t il, uint32_t n_tok, double *share, uint32_t n_expert) {
    char name[64];
    const gguf_tensor *embd = gguf_tensor_find(g, "token_embd.weight");
    uint64_t n = embd->shape[3], seed = 9;
    float *x = mem_alloc(n * sizeof *x);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", il);
    const float *norm = gguf_tensor_find(g, name)->data;
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", il);
    const float *router = gguf_tensor_find(g, name)->data;
    for (uint32_t e = 0; e < n_expert; e++) share[e] = 0;
    for (uint32_t it = 0; it < n_tok; it++) {
        double square = 0, best[2] = {-1e9, -1e9};
        uint32_t at[2] = {0, 0};
        size_t row_bytes = (size_t)(embd->size_bytes / embd->shape[2]);
        quant_decode(x, (const char *)embd->data + (it % embd->shape[2]) * row_bytes, embd->type, n);
        for (uint64_t i = 0; i < n; i++) {
            x[i] += test_randf(&seed) * sqrtf(3 * 0.5f * (float)il / 4);
            square += (double)x[i] * (double)x[i];
        }
        for (uint32_t e = 0; e < n_expert; e++) {
            double y = 0;
            for (uint64_t i = 0; i < n; i++) y += (double)x[i] * (double)norm[i] * (double)router[e * n + i];
            y /= sqrt(square / (double)n);
            if (y > best[0])
                best[1] = best[0], at[1] = at[0], best[0] = y, at[0] = e;
            else if (y > best[1])
                best[1] = y, at[1] = e;
        }
        share[at[0]] += 1.0 / n_tok;
        share[at[1]] += 1.0 / n_tok;
    }
    for (uint32_t a = 0; a < n_expert; a++)
        for (uint32_t b = a + 1; b < n_expert; b++)
            if (share[b] > share[a]) {
                double swap = share[a];
                share[a] = share[b];
                share[b] = swap;
            }
    mem_free(x);
}

static void test_skew_gives_experts_a_rank(void **state) {
    (void)state;
    enum { N_EXPERT = 32 };
    static const char *const quant[] = {"q4_k_m", "f16", "iq2_xs"};
    temp_dir d;
    temp_dir_make(&d);
    double share[N_EXPERT];
    for (size_t k = 0; k < 3; k++) {
        double top[3], last[3];
        for (int skew = 0; skew <= 2; skew++) {
            mica_synth_options o = {.preset = "tiny-qwen3moe",
                                    .quant = quant[k],
                                    .n_expert = N_EXPERT,
                                    .n_layer = 4,
                                    .router_skew = skew};
            gguf_file *g;
            CHECK_OK(synth_write(&o, temp_dir_at(&d, "m.gguf"), NULL, &err));
            CHECK_OK(gguf_open(&g, temp_dir_at(&d, "m.gguf"), &err));
            for (uint32_t il = 0; il < 4; il += 3) {
                route(g, il, 1000, share, N_EXPERT);
                top[skew] = share[0] + share[1] + share[2] + share[3];
                last[skew] = share[N_EXPERT - 1] + share[N_EXPERT - 2];
                print_message("%s skew %d layer %u: best four of 32 take %.2f of 2, last two %.3f\n",
                              quant[k], skew, il, top[skew], last[skew]);
            }
            gguf_close(g);
        }
        // Without: 4 of 32 are 0.25 of the 2 places, and a little more for being the luckiest. With: as by
        // Zipf's law.
        CHECK(top[0] < 0.6 && top[1] > 0.75 && top[1] < 1.2 && top[2] > 1.4 && top[2] < 1.95);
        CHECK(last[1] > 0 && last[1] < last[0]); // rare, not impossible
    }
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_and_type_opens),
        cmocka_unit_test(test_equal_options_give_equal_bytes),
        cmocka_unit_test(test_progress_cancel_and_dry_run),
        cmocka_unit_test(test_out_of_memory_at_any_allocation),
        cmocka_unit_test(test_skew_gives_experts_a_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
