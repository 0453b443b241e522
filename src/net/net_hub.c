/* Which files hf:ORG/REPO[:QUANT] means.
 *
 * The hub's tree listing gives names, sizes and, for large files, the SHA-256 under which they are stored.
 * Candidates are the .gguf files that are models (no projectors, no importance matrices); shards form one
 * candidate. QUANT is a file name or a type that stands in the name as a whole word: Q4_K is not Q4_K_M.
 * Without QUANT it is Q4_K_M, else the first file, as users of other programs expect. Of several files with
 * the type, the shortest name is the plain one. */
#include "net/net_int.h"

#include "base/mem.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define DEFAULT_QUANT "Q4_K_M"

enum { MAX_PAGES = 64, MAX_LISTING = 64 << 20 };

bool net_shard_parse(const char *name, uint32_t *index, uint32_t *count, size_t *n_stem) {
    // STEM-00001-of-00003.gguf
    const size_t n = strlen(name), n_tail = sizeof "-00001-of-00003.gguf" - 1;
    if (n <= n_tail) return false;
    const char *tail = name + n - n_tail;
    for (size_t i = 0; i < n_tail; i++) // the form, with 0 for every digit
        if ((isdigit((unsigned char)tail[i]) ? '0' : tail[i]) != "-00000-of-00000.gguf"[i]) return false;
    const unsigned long a = strtoul(tail + 1, NULL, 10), b = strtoul(tail + 10, NULL, 10);
    if (a == 0 || a > b) return false;
    *index = (uint32_t)a;
    *count = (uint32_t)b;
    *n_stem = n - n_tail;
    return true;
}

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcasecmp(s + n - k, end) == 0;
}

/* The word stands in text, ignoring case, with no letter, digit or underscore at either side. */
static bool has_word(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = text; (p = strcasestr(p, word)); p++) {
        const char before = p == text ? ' ' : p[-1], after = p[n];
        if (!isalnum((unsigned char)before) && before != '_' && !isalnum((unsigned char)after) &&
            after != '_')
            return true;
    }
    return false;
}

/* A quant that stands in the file's own name counts; a folder's name counts too, as some repositories sort by
 * folders: the URL has both. */
static bool matches(const net_file *f, const char *quant) {
    const char *path = f->url ? strstr(f->url, "/resolve/main/") : NULL;
    return strcasecmp(f->name, quant) == 0 || has_word(path ? path : f->name, quant);
}

static bool is_model(const char *name) {
    return ends_with(name, ".gguf") && !strcasestr(name, "mmproj") && !strcasestr(name, "imatrix");
}

/* Plain before decorated, then by name; so shards stay in order too. */
static int by_name(const void *a, const void *b) {
    const net_file *x = a, *y = b;
    const size_t nx = strlen(x->name), ny = strlen(y->name);
    if (nx != ny) return nx < ny ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Index of the first model that has the quant (NULL: any), n when there is none. */
static size_t find_first(const net_files *fs, const char *quant) {
    size_t i = 0;
    while (i < fs->n && (!is_model(fs->p[i].name) || (quant && !matches(&fs->p[i], quant)))) i++;
    return i;
}

/* The names there are, for the message: first shards only. */
static void list_names(const net_files *fs, char *out, size_t n_out) {
    size_t n = 0, n_more = 0;
    uint32_t index, count;
    size_t stem;
    out[0] = 0;
    for (size_t i = 0; i < fs->n; i++) {
        const char *name = fs->p[i].name;
        if (!is_model(name) || (net_shard_parse(name, &index, &count, &stem) && index > 1)) continue;
        if (n + strlen(name) + 3 > n_out)
            n_more++;
        else
            n += (size_t)snprintf(out + n, n_out - n, "%s%s", n ? ", " : "", name);
    }
    if (n_more && n + 16 < n_out) snprintf(out + n, n_out - n, " and %zu more", n_more);
}

/* Both files lie in the same folder of the repository: the same shard names may occur in several. */
static bool same_folder(const net_file *a, const net_file *b) {
    const char *x = a->url ? a->url : "", *y = b->url ? b->url : "";
    const char *sx = strrchr(x, '/'), *sy = strrchr(y, '/');
    const size_t nx = sx ? (size_t)(sx - x) : 0, ny = sy ? (size_t)(sy - y) : 0;
    return nx == ny && memcmp(x, y, nx) == 0;
}

/* Keeps the chosen file, or all shards of its set in order: they move to the front, the others go. */
static mica_status keep_set(net_files *fs, size_t chosen, const char *repo, mica_error *err) {
    const net_file first = fs->p[chosen];
    uint32_t index = 1, count = 1;
    size_t n_stem = 0;
    if (!net_shard_parse(first.name, &index, &count, &n_stem)) count = 1;
    for (uint32_t want = 1; want <= count; want++) {
        char name[256];
        if (count == 1)
            snprintf(name, sizeof name, "%s", first.name);
        else
            snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", (int)n_stem, first.name, want, count);
        size_t i = want - 1;
        while (i < fs->n && (strcmp(fs->p[i].name, name) != 0 || !same_folder(&fs->p[i], &first))) i++;
        if (i == fs->n)
            return fail(err, MICA_E_NETWORK, "hf:%s: %s is missing from the repository", repo, name);
        const net_file kept = fs->p[i];
        fs->p[i] = fs->p[want - 1];
        fs->p[want - 1] = kept;
    }
    for (size_t i = count; i < fs->n; i++) {
        mem_free(fs->p[i].name);
        mem_free(fs->p[i].url);
    }
    fs->n = count;
    return MICA_OK;
}

mica_status net_hub_choose(net_files *fs, const char *repo, const char *quant, mica_error *err) {
    if (fs->n) qsort(fs->p, fs->n, sizeof *fs->p, by_name);
    size_t i = find_first(fs, quant ? quant : DEFAULT_QUANT);
    if (i == fs->n && !quant) i = find_first(fs, NULL);
    if (i < fs->n) return keep_set(fs, i, repo, err);
    char names[400];
    list_names(fs, names, sizeof names);
    if (!names[0]) return fail(err, MICA_E_ARG, "hf:%s: no GGUF model in this repository", repo);
    return fail(err, MICA_E_ARG, "hf:%s: no file of type %s: there are %s", repo,
                quant ? quant : DEFAULT_QUANT, names);
}

typedef struct page {
    strbuf text;
} page;

static mica_status on_page(void *user, const net_reply *r, const void *p, size_t n, mica_error *err) {
    page *pg = user;
    (void)r;
    strbuf_put(&pg->text, p, n);
    return pg->text.failed ? fail(err, MICA_E_NETWORK, "listing: larger than %d bytes", MAX_LISTING)
                           : MICA_OK;
}

/* Percent-encodes a path but for its slashes. */
static void put_path(strbuf *b, const char *path) {
    for (const char *c = path; *c; c++) {
        if (isalnum((unsigned char)*c) || strchr("-._~/", *c))
            strbuf_putc(b, *c);
        else
            strbuf_printf(b, "%%%02X", (unsigned char)*c);
    }
}

static bool path_is_safe(const char *path) {
    char part[256];
    for (const char *p = path;;) {
        const size_t n = strcspn(p, "/");
        if (n >= sizeof part) return false;
        memcpy(part, p, n);
        part[n] = 0;
        if (!net_name_is_safe(part)) return false;
        if (!p[n]) return true;
        p += n + 1;
    }
}

/* One entry of the listing: {"type":"file","path":…,"size":N,"lfs":{"oid":SHA-256,"size":N}}. */
static mica_status add_entry(net_files *fs, const json_t *e, const char *repo, mica_error *err) {
    const char *type = json_string_value(json_object_get(e, "type")),
               *path = json_string_value(json_object_get(e, "path"));
    const json_t *lfs = json_object_get(e, "lfs");
    if (!type || !path || strcmp(type, "file") != 0 || !ends_with(path, ".gguf")) return MICA_OK;
    if (!path_is_safe(path))
        return fail(err, MICA_E_NETWORK, "hf:%s: %s: not a path that may become a file here", repo, path);
    json_int_t size = json_integer_value(json_object_get(lfs ? lfs : e, "size"));
    const char *slash = strrchr(path, '/'), *oid = json_string_value(json_object_get(lfs, "oid"));
    char hub[600];
    strbuf url = {0};
    net_hub_endpoint(hub, sizeof hub);
    strbuf_printf(&url, "%s/%s/resolve/main/", hub, repo);
    put_path(&url, path);
    mica_status st =
        url.failed ? fail(err, MICA_E_NOMEM, "hf:%s: listing: out of memory", repo)
                   : net_files_add(fs, slash ? slash + 1 : path, url.p, size > 0 ? (uint64_t)size : 0, err);
    strbuf_fini(&url);
    if (st == MICA_OK && oid && strlen(oid) == NET_SHA256_HEX)
        snprintf(fs->p[fs->n - 1].sha256, sizeof fs->p->sha256, "%s", oid);
    return st;
}

/* One page of the listing; *next gets the URL of the page after it or NULL. */
static mica_status read_page(net_files *fs, const char *url, char **next, const char *repo,
                             mica_cancel_flag *cancel, mica_error *err) {
    page pg = {.text = {.limit = MAX_LISTING}};
    net_reply r;
    json_t *root = NULL;
    json_error_t je;
    const net_request rq = {.url = url, .body = on_page, .user = &pg, .cancel = cancel};
    *next = NULL;
    mica_status st = net_http_get(&r, &rq, err);
    if (st == MICA_OK && r.code != 200) {
        const bool hidden = r.code == 401 || r.code == 403 || r.code == 404;
        st = fail(err, MICA_E_NETWORK, "hf:%s: the server answers %ld%s", repo, r.code,
                  hidden ? ": no such repository, or a private or gated one: set HF_TOKEN" : "");
    }
    if (st == MICA_OK && !(root = json_loadb(strbuf_cstr(&pg.text), pg.text.n, JSON_REJECT_DUPLICATES, &je)))
        st = fail(err, MICA_E_NETWORK, "hf:%s: listing: %s", repo, je.text);
    if (st == MICA_OK && !json_is_array(root))
        st = fail(err, MICA_E_NETWORK, "hf:%s: listing: not an array", repo);
    for (size_t i = 0; st == MICA_OK && i < json_array_size(root); i++)
        st = add_entry(fs, json_array_get(root, i), repo, err);
    if (st == MICA_OK && r.next[0] && !(*next = mem_strdup(r.next)))
        st = fail(err, MICA_E_NOMEM, "hf:%s: listing: out of memory", repo);
    json_decref(root);
    strbuf_fini(&pg.text);
    return st;
}

const char *net_hub_label(const net_files *fs, const char *quant) {
    if (quant) return quant;
    return has_word(fs->p[0].name, DEFAULT_QUANT) ? DEFAULT_QUANT : fs->p[0].name;
}

mica_status net_hub_files(net_files *out, const char *repo, const char *quant, mica_cancel_flag *cancel,
                          mica_error *err) {
    char hub[600];
    strbuf first = {0};
    *out = (net_files){0};
    net_hub_endpoint(hub, sizeof hub);
    strbuf_printf(&first, "%s/api/models/%s/tree/main?recursive=true", hub, repo);
    char *url = strbuf_take(&first), *next = NULL;
    mica_status st = url ? MICA_OK : fail(err, MICA_E_NOMEM, "hf:%s: URL: out of memory", repo);
    for (int i = 0; st == MICA_OK && url && i < MAX_PAGES; i++) {
        st = read_page(out, url, &next, repo, cancel, err);
        mem_free(url);
        url = next;
    }
    mem_free(url);
    if (st == MICA_OK) st = net_hub_choose(out, repo, quant, err);
    if (st != MICA_OK) net_files_fini(out);
    return st;
}
