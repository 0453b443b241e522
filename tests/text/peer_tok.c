/* Token ids from llama.cpp's library, for vocab_oracle.py, which builds this against the headers and the
 * library it finds in npm packages.
 *
 *     peer_tok VOCAB.gguf SPECIAL    records of "u32 n, n bytes" on stdin; "u32 n, n i32" on stdout
 *     peer_tok VOCAB.gguf ends       the ids that end generation, one a line */
#include "llama.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

static int print_ends(const struct llama_vocab *v) {
    for (int i = 0; i < llama_vocab_n_tokens(v); i++)
        if (llama_vocab_is_eog(v, i)) printf("%d\n", i);
    return 0;
}

static int tokenize_all(const struct llama_vocab *v, int special) {
    char *text = NULL;
    int32_t *ids = NULL;
    uint32_t n;
    while (fread(&n, 4, 1, stdin) == 1) {
        text = realloc(text, n + 1);
        ids = realloc(ids, (n + 16) * sizeof *ids);
        if (!text || !ids || (n && fread(text, n, 1, stdin) != 1)) return 1;
        int k = llama_tokenize(v, text, (int32_t)n, ids, (int32_t)n + 16, false, special);
        if (k < 0) return 1;
        uint32_t count = (uint32_t)k;
        fwrite(&count, 4, 1, stdout);
        fwrite(ids, 4, count, stdout);
    }
    free(text);
    free(ids);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params p = llama_model_default_params();
    p.vocab_only = true;
    struct llama_model *m = llama_model_load_from_file(argv[1], p);
    if (!m) return 1;
    const struct llama_vocab *v = llama_model_get_vocab(m);
    return strcmp(argv[2], "ends") == 0 ? print_ends(v) : tokenize_all(v, atoi(argv[2]));
}
