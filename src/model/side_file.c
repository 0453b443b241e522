/* Draft blocks that come as a file of their own: ends of the network, which the trunk has, and the blocks
 * after the trunk's last. */
#include "model/model.h"

#include <stdio.h>

static mica_status count_of(const gguf_file *g, slice arch, const char *name, uint64_t *n, mica_error *err) {
    char key[96];
    snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.p, name);
    return gguf_get_u64(g, key, 0, MODEL_LAYER_MAX, n, err);
}

static mica_status check_fits(const gguf_file *g, const gguf_file *side, slice arch, mica_error *err) {
    slice other;
    uint64_t n_block = 0, n_draft = 0, n_side = 0, n_side_draft = 0;
    TRY(gguf_need_model(side, &other, err));
    TRY(count_of(g, arch, "block_count", &n_block, err));
    TRY(count_of(g, arch, "nextn_predict_layers", &n_draft, err));
    TRY(count_of(side, arch, "block_count", &n_side, err));
    TRY(count_of(side, arch, "nextn_predict_layers", &n_side_draft, err));
    if (!slice_eq(arch, other))
        return fail(err, MICA_E_ARG, "%s: architecture %.*s, the model's is %.*s", gguf_name(side),
                    (int)(other.n < 64 ? other.n : 64), other.p, (int)(arch.n < 64 ? arch.n : 64), arch.p);
    if (n_draft > 0) return fail(err, MICA_E_ARG, "%s: has a draft block of its own", gguf_name(g));
    if (n_side_draft == 0 || n_side - n_side_draft != n_block)
        return fail(err, MICA_E_ARG, "%s: %llu draft blocks among %llu blocks, the model has %llu",
                    gguf_name(side), (unsigned long long)n_side_draft, (unsigned long long)n_side,
                    (unsigned long long)n_block);
    return MICA_OK;
}

mica_status model_draft_join(gguf_file *g, const char *path, mica_error *err) {
    gguf_file *side = NULL;
    slice arch;
    char key[2][96];
    const char *keys[2] = {key[0], key[1]};
    mica_status st = MICA_OK;
    TRY(gguf_need_model(g, &arch, err));
    TRY_GOTO(gguf_open(&side, path, err), done);
    TRY_GOTO(check_fits(g, side, arch, err), done);
    snprintf(key[0], sizeof key[0], "%.*s.block_count", (int)arch.n, arch.p);
    snprintf(key[1], sizeof key[1], "%.*s.nextn_predict_layers", (int)arch.n, arch.p);
    TRY_GOTO(gguf_join(g, side, keys, 2, err), done);
done:
    gguf_close(side);
    return st;
}
