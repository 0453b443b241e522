/* A chat on libmica, in C or C++: cc chat.c $(pkg-config --cflags --libs mica) -o chat && ./chat model.gguf
 */
#include <mica.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mica_error g_err;

static void check(mica_status st) {
    if (st == MICA_OK) return;
    fprintf(stderr, "chat: %s\n", g_err.text);
    exit(1);
}

/* The messages so far as JSON text, and the stream that makes text of tokens. */
typedef struct chat {
    char *json;
    size_t n, cap;
    mica_text_stream *text;
} chat;

/* Appends n bytes, escaped when they stand inside a JSON string. */
static void append(chat *c, const char *p, size_t n, bool escape) {
    if (c->n + 6 * n + 1 > c->cap) c->json = (char *)realloc(c->json, c->cap = 2 * (c->n + 6 * n + 1));
    for (size_t i = 0; i < n; i++) {
        const bool special = (unsigned char)p[i] < 0x20 || p[i] == '"' || p[i] == '\\';
        c->n += (size_t)sprintf(c->json + c->n, escape && special ? "\\u%04x" : "%c", p[i]);
    }
    c->json[c->n] = 0;
}

static void append_raw(chat *c, const char *text) {
    append(c, text, strlen(text), false);
}

static bool on_token(void *user, int32_t id) {
    chat *c = (chat *)user;
    size_t n;
    const char *text = mica_text_stream_put(c->text, id, &n);
    fwrite(text, 1, n, stdout);
    fflush(stdout);
    append(c, text, n, true);
    return true;
}

int main(int argc, char **argv) {
    mica_model *model;
    mica_session *session;
    static mica_load_options load; // zeroed: the defaults, in C and in C++
    static mica_generate_options to_the_end;
    static chat c;
    char line[4096];
    if (argc != 2) return fprintf(stderr, "usage: chat model.gguf\n"), 2;
    load.path = argv[1];
    to_the_end.n_predict = -1;
    check(mica_model_load(&model, &load, &g_err));
    check(mica_session_new(&session, model, &g_err));
    check(mica_text_stream_new(&c.text, model, false, &g_err));
    for (append_raw(&c, "["); printf("> "), fflush(stdout), fgets(line, sizeof line, stdin);) {
        mica_ids prompt = {NULL, 0};
        append_raw(&c, "{\"role\":\"user\",\"content\":\"");
        append(&c, line, strcspn(line, "\n"), true);
        append_raw(&c, "\"}]");
        check(mica_encode_chat(model, c.json, NULL, &prompt, NULL, &g_err));
        c.n--; // the bracket: the answer follows
        append_raw(&c, ",{\"role\":\"assistant\",\"content\":\"");
        check(mica_generate(session, prompt.ids, prompt.n, &to_the_end, on_token, &c, NULL, NULL, &g_err));
        append_raw(&c, "\"},");
        mica_ids_free(&prompt);
        puts("");
    }
    mica_text_stream_free(c.text);
    mica_session_free(session);
    mica_model_free(model);
    free(c.json);
    return 0;
}
