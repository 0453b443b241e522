/* `mica tokenize` and `mica detokenize`: text to ids and back, on the tokenizer alone. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/print.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static mica_status take_text(strbuf *text, const options *o, mica_error *err) {
    if (o->args.n > 0 && o->file)
        return fail(err, MICA_E_ARG, "-f: given beside a text: one of them is the text");
    if (o->args.n == 0) return input_read(text, o->file ? o->file : "-", err);
    strbuf_puts(text, o->args.p[0]);
    return text->failed ? fail(err, MICA_E_NOMEM, "text: out of memory") : MICA_OK;
}

/* {"ids":[...],"pieces":["..."]}; a piece that is a part of a character shows U+FFFD. */
static mica_status tokens_json(json_t **out, const mica_model *m, const mica_ids *ids, mica_error *err) {
    json_t *numbers = json_array(), *pieces = json_array();
    mica_status st = MICA_OK;
    for (size_t i = 0; i < ids->n && st == MICA_OK; i++) {
        char *piece;
        st = mica_detokenize(m, &ids->ids[i], 1, true, &piece, err);
        if (st != MICA_OK) break;
        json_array_append_new(numbers, json_integer(ids->ids[i]));
        json_array_append_new(pieces, json_string(piece));
        mica_text_free(piece);
    }
    *out = json_pack("{s:o, s:o}", "ids", numbers, "pieces", pieces);
    if (st == MICA_OK && !*out) st = fail(err, MICA_E_NOMEM, "ids: %zu: out of memory", ids->n);
    return st;
}

/* One token a line: its id and its text as a JSON string, in which blanks and control characters can be seen.
 */
static void put_tokens(const json_t *tokens) {
    const json_t *ids = json_object_get(tokens, "ids"), *pieces = json_object_get(tokens, "pieces");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        printf("%8lld  ", (long long)json_integer_value(json_array_get(ids, i)));
        print_json(json_array_get(pieces, i));
    }
}

mica_status cmd_tokenize(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    strbuf text = {0};
    mica_ids ids = {0};
    json_t *tokens = NULL;
    TRY_GOTO(take_text(&text, o, err), done);
    TRY_GOTO(open_text(&x, o, err), done);
    TRY_GOTO(mica_tokenize(x.model, strbuf_cstr(&text), text.n, o->special, o->bos, &ids, err), done);
    TRY_GOTO(tokens_json(&tokens, x.model, &ids, err), done);
    if (o->json)
        print_json(tokens);
    else
        put_tokens(tokens);
done:
    json_decref(tokens);
    mica_ids_free(&ids);
    strbuf_fini(&text);
    open_close(&x);
    return st;
}

/* ---- Back ---- */

typedef struct id_list {
    int32_t *p; // owned
    size_t n, cap;
} id_list;

/* Ids separated by blanks, commas, newlines and the brackets of a JSON array. */
static mica_status read_ids(id_list *l, const char *text, mica_error *err) {
    static const char between[] = " ,\t\r\n[]";
    for (const char *p = text + strspn(text, between); *p; p += strspn(p, between)) {
        char *end;
        const long id = strtol(p, &end, 10);
        if (end == p || !(*end == 0 || strchr(between, *end)) || id < 0 || id > INT32_MAX)
            return fail(err, MICA_E_ARG, "%.*s: not a token id", (int)strcspn(p, between), p);
        if (l->n == l->cap) {
            const size_t cap = l->cap ? l->cap * 2 : 64;
            int32_t *grown = mem_realloc(l->p, cap * sizeof *grown);
            if (!grown) return fail(err, MICA_E_NOMEM, "ids: %zu: out of memory", cap);
            l->p = grown;
            l->cap = cap;
        }
        l->p[l->n++] = (int32_t)id;
        p = end;
    }
    return MICA_OK;
}

static mica_status take_ids(id_list *l, const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    strbuf text = {0};
    if (o->args.n == 0) st = input_read(&text, "-", err);
    if (st == MICA_OK && o->args.n == 0) st = read_ids(l, strbuf_cstr(&text), err);
    for (size_t i = 0; i < o->args.n && st == MICA_OK; i++) st = read_ids(l, o->args.p[i], err);
    strbuf_fini(&text);
    return st;
}

mica_status cmd_detokenize(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    id_list ids = {0};
    char *text = NULL;
    TRY_GOTO(take_ids(&ids, o, err), done);
    TRY_GOTO(open_text(&x, o, err), done);
    TRY_GOTO(mica_detokenize(x.model, ids.p, ids.n, o->special, &text, err), done);
    if (o->json) {
        json_t *v = json_pack("{s:s}", "text", text);
        print_json(v);
        json_decref(v);
    } else {
        puts(text);
    }
done:
    mica_text_free(text);
    mem_free(ids.p);
    open_close(&x);
    return st;
}
