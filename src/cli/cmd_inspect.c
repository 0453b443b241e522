/* `mica inspect`: what a GGUF file says about itself. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/print.h"

#include "base/status.h"
#include "mica_tools.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_WIDTH = 100 };

static void put_head(const json_t *v) {
    char bytes[16], parameters[16];
    printf("%s\n", member_text(v, "path"));
    printf("GGUF version %llu, %llu shard%s, %s\n", (unsigned long long)member_u64(v, "version"),
           (unsigned long long)member_u64(v, "shards"), member_u64(v, "shards") == 1 ? "" : "s",
           print_bytes(bytes, member_u64(v, "bytes")));
    printf("%s, %s, %s parameters\n", member_text(v, "arch"), member_text(v, "name"),
           print_count(parameters, member_u64(v, "parameters")));
}

/* One line; text is cut, since templates are pages long (--json has all of it). */
static void put_value(table *t, const json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (!text) {
        table_put(t, "?");
        return;
    }
    size_t n = strlen(text);
    if (n <= VALUE_WIDTH) {
        table_put(t, "%s", text);
    } else {
        n = VALUE_WIDTH - 4;
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--; // not inside a character
        table_put(t, "%.*s ...", (int)n, text);
    }
    free(text);
}

static mica_status put_metadata(const json_t *metadata, mica_error *err) {
    table t = {.n_col = 2};
    const char *key;
    json_t *v;
    printf("\nMetadata (%zu):\n", json_object_size(metadata));
    table_put(&t, "key");
    table_put(&t, "value");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, v) {
        table_put(&t, "%s", key);
        put_value(&t, v);
    }
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

static mica_status put_tensors(const json_t *tensors, bool with_shard, mica_error *err) {
    table t = {.n_col = with_shard ? 6 : 5};
    static const char *const heads[] = {"name", "type", "shape", "size", "offset", "shard"};
    size_t i;
    json_t *v;
    printf("\nTensors (%zu), shapes slowest axis first:\n", json_array_size(tensors));
    for (i = 0; i < t.n_col; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(tensors, i, v) {
        char bytes[16];
        table_put(&t, "%s", member_text(v, "name"));
        table_put(&t, "%s", member_text(v, "type"));
        put_value(&t, json_object_get(v, "shape"));
        table_put(&t, "%s", print_bytes(bytes, member_u64(v, "bytes")));
        table_put(&t, "%llu", (unsigned long long)member_u64(v, "offset"));
        if (with_shard) table_put(&t, "%llu", (unsigned long long)member_u64(v, "shard"));
    }
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

mica_status cmd_inspect(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *path = NULL, *text = NULL;
    json_t *v = NULL;
    TRY_GOTO(open_path(&path, o, err), done);
    TRY_GOTO(mica_inspect(&text, path, o->all, err), done);
    if (o->json) {
        print_json_text(text);
        goto done;
    }
    TRY_GOTO(print_parse(&v, text, err), done);
    put_head(v);
    TRY_GOTO(put_metadata(json_object_get(v, "metadata"), err), done);
    TRY_GOTO(put_tensors(json_object_get(v, "tensors"), member_u64(v, "shards") > 1, err), done);
done:
    json_decref(v);
    mica_text_free(text);
    mica_text_free(path);
    return st;
}
