/* Writes the first inputs of fuzz_gguf into a folder: right files of every form.   seed_gguf DIR */
#include "gguf_build.h"

#include <stdio.h>

static int g_failed;

static void write_seed(const char *dir, const char *name, const strbuf *b) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->p, 1, b->n, f) != b->n) g_failed = 1;
    if (f && fclose(f) != 0) g_failed = 1;
}

static void kinds(strbuf *b) {
    put_header(b, 2, 0, GGUF_KIND_N + 2);
    for (uint32_t kind = 0; kind < GGUF_KIND_N; kind++) {
        if (kind == GGUF_KIND_ARRAY) {
            put_array(b, "array", GGUF_KIND_BOOL, 3);
            put_zeros(b, 3);
        } else if (kind == GGUF_KIND_STR)
            put_kv_str(b, "general.architecture", "qwen3");
        else {
            put_key(b, gguf_kind_name((gguf_kind)kind), kind);
            put_zeros(b, gguf_kind_bytes((gguf_kind)kind));
        }
    }
    put_kv_u32(b, "general.alignment", 64);
    put_array(b, "tokenizer.ggml.tokens", GGUF_KIND_STR, 20);
    for (int i = 0; i < 20; i++) put_bytes(b, "xxxxxxxxxxxxxxxxxxxx", (size_t)i);
}

static void types(strbuf *b) {
    uint64_t n = 0, at = 0;
    for (uint32_t id = 0; id < GGUF_TYPE_N; id++) n += gguf_type_get(id) != NULL;
    put_header(b, 3, n, 0);
    for (uint32_t id = 0; id < GGUF_TYPE_N; id++) {
        const gguf_type_info *t = gguf_type_get(id);
        if (!t) continue;
        put_tensor(b, t->name, 1 + id % 4, (uint64_t[]){t->block, 1, 1, 1}, id, at);
        at += (t->bytes + 31u) / 32 * 32;
    }
    put_pad(b, 32);
    put_zeros(b, at);
}

static void pair(strbuf *b) {
    strbuf first = {0}, second = {0};
    put_shard(&first, 0, 2, 3, "a", 1);
    put_shard(&second, 1, 2, 3, "b", 2);
    put_u8(b, (uint8_t)first.n);
    put_u8(b, (uint8_t)(first.n >> 8));
    strbuf_put(b, first.p, first.n);
    strbuf_put(b, second.p, second.n);
    strbuf_fini(&first);
    strbuf_fini(&second);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*build)(strbuf *b);
    } seed[] = {{"small", put_small_model}, {"kinds", kinds}, {"types", types}, {"pair", pair}};
    if (argc != 2) return 2;
    for (size_t i = 0; i < sizeof seed / sizeof *seed; i++) {
        strbuf b = {0};
        seed[i].build(&b);
        if (b.failed)
            g_failed = 1;
        else
            write_seed(argv[1], seed[i].name, &b);
        strbuf_fini(&b);
    }
    return g_failed;
}
