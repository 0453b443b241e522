/* The inside of a tool call, as each family writes it, to a name and arguments as JSON text.
 *
 * What is JSON already is passed on byte for byte, so that numbers keep their digits; the other spellings are
 * turned into JSON here. A value of the XML style is bare text: it is a string where the tool's schema says
 * so, else JSON if it reads as JSON (or as Python's True, False, None, which templates print), else a string.
 */
#include "text/answer_int.h"

#include "text/json_in.h"

void answer_call_fini(answer_call *c) {
    strbuf_fini(&c->name);
    strbuf_fini(&c->arguments);
}

static bool blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static slice trim(slice s) {
    while (s.n && blank(s.p[0])) s = (slice){s.p + 1, s.n - 1};
    while (s.n && blank(s.p[s.n - 1])) s.n--;
    return s;
}

static slice after(slice s, size_t n) {
    return (slice){s.p + n, s.n - n};
}

static bool find(slice s, const char *word, size_t *at) {
    const char *p = s.n ? memmem(s.p, s.n, word, strlen(word)) : NULL;
    if (p) *at = (size_t)(p - s.p);
    return p != NULL;
}

/* ---- JSON ---- */

static json_t *parse(slice s, json_in_kind kind) {
    json_t *j;
    json_in_parse(&j, s, &(json_in_options){.what = "call", .kind = kind}, NULL);
    return j;
}

static bool is_json(slice s, json_in_kind kind) {
    json_t *j = parse(s, kind);
    json_decref(j);
    return j != NULL;
}

static void put_string(strbuf *b, slice s) {
    static const char hex[] = "0123456789abcdef";
    strbuf_putc(b, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        const char *e = c == '"'    ? "\\\""
                        : c == '\\' ? "\\\\"
                        : c == '\n' ? "\\n"
                        : c == '\t' ? "\\t"
                        : c == '\r' ? "\\r"
                                    : NULL;
        if (e)
            strbuf_puts(b, e);
        else if (c >= 0x20)
            strbuf_putc(b, s.p[i]);
        else
            strbuf_printf(b, "\\u00%c%c", hex[c >> 4], hex[c & 15]);
    }
    strbuf_putc(b, '"');
}

/* The end of the JSON value at the start of s, which is known to be well-formed. */
static size_t value_end(slice s) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            if (!in_string && !depth) return i + 1;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return i; // the end of what is around
            if (--depth == 0) return i + 1;
        } else if (depth == 0 && (c == ',' || blank(c))) {
            return i;
        }
    }
    return s.n;
}

/* The value of a member of the well-formed object s, as it is written; n 0: there is none. */
static slice member(slice s, const char *key) {
    char quoted[32];
    int n = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    s = trim(after(s, 1));
    while (s.n && s.p[0] == '"') {
        size_t k = value_end(s);
        bool hit = k == (size_t)n && memcmp(s.p, quoted, k) == 0;
        s = trim(after(s, k));
        s = trim(after(s, 1)); // the colon
        size_t v = value_end(s);
        if (hit) return (slice){s.p, v};
        s = trim(after(s, v));
        if (s.n && s.p[0] == ',') s = trim(after(s, 1));
    }
    return (slice){NULL, 0};
}

/* Arguments written as an object, or as a string that holds one. */
static bool put_arguments(answer_call *c, slice raw, const json_t *value) {
    if (!value || json_is_null(value)) {
        strbuf_puts(&c->arguments, "{}");
        return true;
    }
    if (json_is_string(value)) raw = (slice){json_string_value(value), json_string_length(value)};
    if (!json_is_object(value) && !is_json(raw, JSON_IN_OBJECT)) return false;
    strbuf_put(&c->arguments, raw.p, raw.n);
    return true;
}

/* {"name": ..., "arguments" or "parameters": ...} */
static bool read_object(answer_call *c, slice body) {
    json_t *j = parse(body, JSON_IN_OBJECT);
    const char *key = json_object_get(j, "arguments") ? "arguments" : "parameters";
    const json_t *name = json_object_get(j, "name");
    bool good = json_string_length(name) > 0;
    if (good) strbuf_put(&c->name, json_string_value(name), json_string_length(name));
    good = good && put_arguments(c, member(trim(body), key), json_object_get(j, key));
    json_decref(j);
    return good;
}

/* A word at the start of *s, with blanks around it, which is then behind them. */
static bool take(slice *s, const char *word) {
    while (s->n && blank(s->p[0])) *s = after(*s, 1);
    if (!slice_starts(*s, slice_of(word))) return false;
    *s = after(*s, strlen(word));
    while (s->n && blank(s->p[0])) *s = after(*s, 1);
    return true;
}

/* A whole string at the start of *s. */
static bool take_string(slice *s, slice *out) {
    if (!s->n || s->p[0] != '"') return false;
    const size_t n = value_end(*s);
    *out = (slice){s->p, n};
    *s = after(*s, n);
    return n > 1 && out->p[n - 1] == '"' && is_json(*out, JSON_IN_ANY);
}

/* {"name": "NAME", "arguments": {"KEY": and the beginning of a value. Other orders are read at their end. */
static bool begun_object(answer_call *c, slice body) {
    slice name, key, s = body;
    if (!take(&s, "{") || !take(&s, "\"name\"") || !take(&s, ":") || !take_string(&s, &name)) return false;
    if (!take(&s, ",") || !take(&s, "\"arguments\"") || !take(&s, ":")) return false;
    const slice value = s;
    if (!take(&s, "{") || !take_string(&s, &key) || !take(&s, ":")) return false;
    if (!s.n || !strchr("\"{[-0123456789tfn", s.p[0]) || !s.p[0]) return false;
    json_t *j = parse(name, JSON_IN_ANY);
    strbuf_put(&c->name, json_string_value(j), json_string_length(j));
    json_decref(j);
    strbuf_put(&c->arguments, value.p, value_end(value));
    return c->name.n > 0;
}

/* ---- <function=NAME><parameter=KEY>VALUE</parameter></function> ---- */

static const json_t *schema_of(const json_t *tools, slice name, slice key) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (!f) f = json_array_get(tools, i);
        const json_t *n = json_object_get(f, "name");
        if (!slice_eq(name, (slice){json_string_value(n), json_string_length(n)})) continue;
        const json_t *all = json_object_get(json_object_get(f, "parameters"), "properties");
        const char *k;
        json_t *schema;
        json_object_foreach((json_t *)all, k, schema) if (slice_is(key, k)) return schema;
        return NULL;
    }
    return NULL;
}

static void put_xml_value(strbuf *b, slice value, const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    slice bare = trim(value);
    bool text = type && strcmp(type, "string") == 0;
    if (!text && slice_is(bare, "True"))
        strbuf_puts(b, "true");
    else if (!text && slice_is(bare, "False"))
        strbuf_puts(b, "false");
    else if (!text && slice_is(bare, "None"))
        strbuf_puts(b, "null");
    else if (!text && bare.n && is_json(bare, JSON_IN_ANY))
        strbuf_put(b, bare.p, bare.n);
    else
        put_string(b, value);
}

/* The end of a value: its closing tag is followed by another parameter or the end of the function. */
static bool xml_value_end(slice s, size_t *at, size_t *next) {
    static const char tag[] = "</parameter>";
    for (size_t from = 0, k; find(after(s, from), tag, &k); from += k + sizeof tag - 1) {
        slice rest = after(s, from + k + sizeof tag - 1);
        while (rest.n && blank(rest.p[0])) rest = after(rest, 1);
        if (!slice_starts(rest, SLICE_LIT("<parameter=")) && !slice_starts(rest, SLICE_LIT("</function>")))
            continue;
        *at = from + k;
        *next = (size_t)(rest.p - s.p);
        return true;
    }
    return false;
}

/* <function=NAME> at the start of *s, which moves behind it. */
static bool xml_name(answer_call *c, slice *s) {
    size_t at;
    if (!slice_starts(*s, SLICE_LIT("<function=")) || !find(*s, ">", &at)) return false;
    const slice name = trim((slice){s->p + 10, at - 10});
    strbuf_put(&c->name, name.p, name.n);
    *s = after(*s, at + 1);
    return name.n > 0;
}

enum { MAX_KEYS = 128 }; // of one call that are told from each other while it is written

static bool among(const slice *keys, size_t n, slice key) {
    while (n > 0 && !slice_eq(keys[n - 1], key)) n--;
    return n > 0;
}

/* Parameters at the start of *s, which moves behind them; the last one may not be whole: *cut. false: one
 * came before. */
static bool xml_parameters(answer_call *c, slice *s, const json_t *tools, bool *cut) {
    slice keys[MAX_KEYS];
    size_t at, end, next, n_key = 0;
    *cut = false;
    strbuf_putc(&c->arguments, '{');
    for (bool comma = false; slice_starts(*s, SLICE_LIT("<parameter=")); comma = true) {
        if (!find(*s, ">", &at)) return *cut = true, true;
        slice key = trim((slice){s->p + 11, at - 11}), rest = after(*s, at + 1);
        if (!xml_value_end(rest, &end, &next)) return *cut = true, true;
        if (among(keys, n_key, key)) return false;
        if (n_key < MAX_KEYS) keys[n_key++] = key;
        slice value = {rest.p, end};
        if (value.n && value.p[0] == '\n') value = after(value, 1);
        if (value.n && value.p[value.n - 1] == '\n') value.n--;
        if (comma) strbuf_puts(&c->arguments, ", ");
        put_string(&c->arguments, key);
        strbuf_puts(&c->arguments, ": ");
        put_xml_value(&c->arguments, value, schema_of(tools, (slice){c->name.p, c->name.n}, key));
        *s = after(rest, next);
    }
    return true;
}

static bool read_xml(answer_call *c, slice body, const json_t *tools) {
    bool cut;
    slice s = trim(body);
    if (!xml_name(c, &s)) return false;
    s = trim(s);
    if (!xml_parameters(c, &s, tools, &cut) || cut) return false;
    strbuf_putc(&c->arguments, '}');
    return slice_is(trim(s), "</function>");
}

/* Known for a call once its first parameter has ended. */
static bool begun_xml(answer_call *c, slice body, const json_t *tools) {
    bool cut;
    slice s = trim(body);
    if (!xml_name(c, &s)) return false;
    s = trim(s);
    xml_parameters(c, &s, tools, &cut);
    return c->arguments.n > 1;
}

/* ---- call:NAME{key:value,...} with strings between <|"|> ---- */

#define QUOTE "<|\"|>"

static bool gemma_value(strbuf *b, slice *s, int depth);

static bool gemma_string(strbuf *b, slice *s) {
    size_t at;
    *s = after(*s, sizeof QUOTE - 1);
    if (!find(*s, QUOTE, &at)) return false;
    put_string(b, (slice){s->p, at});
    *s = after(*s, at + sizeof QUOTE - 1);
    return true;
}

/* Text without quotes, up to one of `ends`. */
static slice gemma_bare(slice *s, const char *ends) {
    size_t n = 0;
    while (n < s->n && !(s->p[n] && strchr(ends, s->p[n]))) n++;
    slice bare = trim((slice){s->p, n});
    *s = after(*s, n);
    return bare;
}

static bool gemma_pair(strbuf *b, slice *s, int depth) {
    if (slice_starts(*s, SLICE_LIT(QUOTE))) {
        if (!gemma_string(b, s)) return false;
    } else {
        put_string(b, gemma_bare(s, ":{}[],"));
    }
    *s = trim(*s);
    if (!s->n || s->p[0] != ':') return false;
    strbuf_puts(b, ": ");
    *s = after(*s, 1);
    return gemma_value(b, s, depth + 1);
}

/* {...} or [...], the opening bracket still in front. */
static bool gemma_group(strbuf *b, slice *s, int depth) {
    char close = s->p[0] == '{' ? '}' : ']';
    strbuf_putc(b, s->p[0]);
    *s = after(*s, 1);
    for (bool comma = false;; comma = true) {
        while (s->n && blank(s->p[0])) *s = after(*s, 1);
        if (s->n && s->p[0] == close) break;
        if (comma) {
            if (!s->n || s->p[0] != ',') return false;
            strbuf_puts(b, ", ");
            *s = after(*s, 1);
            while (s->n && blank(s->p[0])) *s = after(*s, 1);
        }
        if (!s->n || !(close == '}' ? gemma_pair(b, s, depth) : gemma_value(b, s, depth + 1))) return false;
    }
    *s = after(*s, 1);
    strbuf_putc(b, close);
    return true;
}

static bool gemma_value(strbuf *b, slice *s, int depth) {
    while (s->n && blank(s->p[0])) *s = after(*s, 1);
    if (!s->n || depth > JSON_IN_MAX_DEPTH) return false;
    if (slice_starts(*s, SLICE_LIT(QUOTE))) return gemma_string(b, s);
    if (s->p[0] == '{' || s->p[0] == '[') return gemma_group(b, s, depth);
    slice bare = gemma_bare(s, ",}]");
    if (slice_is(bare, "True") || slice_is(bare, "False"))
        strbuf_puts(b, bare.p[0] == 'T' ? "true" : "false");
    else if (slice_is(bare, "None"))
        strbuf_puts(b, "null");
    else if (bare.n && is_json(bare, JSON_IN_ANY))
        strbuf_put(b, bare.p, bare.n);
    else
        put_string(b, bare);
    return true;
}

static bool read_gemma(answer_call *c, slice body) {
    size_t at;
    slice s = trim(body);
    if (!slice_starts(s, SLICE_LIT("call:")) || !find(s, "{", &at)) return false;
    slice name = trim((slice){s.p + 5, at - 5});
    strbuf_put(&c->name, name.p, name.n);
    s = after(s, at);
    return name.n && gemma_group(&c->arguments, &s, 0) && !trim(s).n;
}

/* ---- all ---- */

bool answer_call_begun(answer_call *c, chat_family family, slice body, const json_t *tools) {
    if (family == CHAT_HERMES) return begun_object(c, body);
    return family == CHAT_QWEN_XML && begun_xml(c, body, tools);
}

static bool read_family(answer_call *c, chat_family family, slice body, const json_t *tools) {
    switch (family) {
    case CHAT_HERMES: return read_object(c, body);
    case CHAT_QWEN_XML: return read_xml(c, body, tools);
    case CHAT_GEMMA4: return read_gemma(c, body);
    default: return false;
    }
}

/* What was put together here is judged as strictly as what came as JSON: keys given twice, or with a NUL, are
 * no call. */
bool answer_call_read(answer_call *c, chat_family family, slice body, const json_t *tools) {
    if (!read_family(c, family, body, tools)) return false;
    return family == CHAT_HERMES || c->arguments.failed ||
           is_json((slice){c->arguments.p, c->arguments.n}, JSON_IN_OBJECT);
}

bool answer_call_read_bare(answer_call *c, slice *text) {
    slice s = trim(*text);
    if (!s.n || s.p[0] != '{') return false;
    size_t end = value_end(s);
    if (!read_object(c, (slice){s.p, end})) return false;
    s = trim(after(s, end));
    if (s.n && s.p[0] == ';') s = trim(after(s, 1));
    *text = s;
    return true;
}

bool answer_call_open(chat_family family, slice body) {
    size_t at;
    bool open = false;
    slice end = SLICE_LIT("</function>");
    switch (family) {
    case CHAT_HERMES:
        for (size_t i = 0; i < body.n; i++) {
            if (open && body.p[i] == '\\')
                i++;
            else if (body.p[i] == '"')
                open = !open;
        }
        return open;
    case CHAT_QWEN_XML: // a function that has not ended
        body = trim(body);
        if (!slice_starts(body, SLICE_LIT("<function="))) return false;
        return body.n < end.n || memcmp(body.p + body.n - end.n, end.p, end.n) != 0;
    case CHAT_GEMMA4:
        while (find(body, QUOTE, &at)) {
            body = after(body, at + 1);
            open = !open;
        }
        return open;
    default: return false;
    }
}
