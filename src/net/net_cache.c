/* The folder of pulled models.
 *
 *     $MICA_HOME/models/smollm2-135m/{pull.json, FILE.gguf, FILE.gguf.partial}
 *                      /hf--org--repo--q4_k_m/…      hf:Org/Repo:Q4_K_M
 *                      /url--host--file--HASH/…      https://host/…/file
 *                      /.lock-FOLDER                 held (flock) by who writes there, gone afterwards
 *
 * A folder's name follows from the pulled name, in lower case, so that names are found whatever their case.
 * pull.json says what belongs there. Reading needs no lock and no write permission. */
#include "net/net_int.h"

#include "base/home.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/near.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define MANIFEST "pull.json"

static mica_status out_of_memory(const char *what, mica_error *err) {
    return fail(err, MICA_E_NOMEM, "%s: cache folder: out of memory", what);
}

/* What keeps the cache folder from being written, and the way out. */
static mica_status fail_to_write(const char *path, const char *what, int why, mica_error *err) {
    const bool elsewhere = why == EACCES || why == EROFS || why == EPERM || why == ENOTDIR;
    return fail(err, write_status(why), "%s: %s: %s%s", path, what,
                strerror(why), elsewhere ? ": MICA_HOME names another folder for models" : "");
}

mica_status net_cache_status(mica_status st, mica_error *err) {
    if (st != MICA_E_IO) return st;
    if (err) err->status = MICA_E_NETWORK;
    return MICA_E_NETWORK;
}

/* Appends text in lower case with what may stand in a file name; '/' and ':' become "--". */
static void put_slug(strbuf *b, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '/' || c == ':')
            strbuf_puts(b, "--");
        else
            strbuf_putc(b, isalnum(c) || strchr("._-", c) ? (char)tolower(c) : '_');
    }
}

/* The folder name of a pulled name; never starts with a dot. */
static void put_folder_name(strbuf *b, const char *name) {
    const bool is_url = strstr(name, "://") != NULL;
    const size_t start = b->n;
    if (is_url) {
        const char *host = strstr(name, "://") + 3, *last = strrchr(name, '/') + 1;
        strbuf_puts(b, "url--");
        put_slug(b, host, strcspn(host, ":/?#"));
        strbuf_puts(b, "--");
        put_slug(b, last, strcspn(last, "?#"));
    } else {
        if (name[0] == '.') strbuf_putc(b, '_');
        put_slug(b, name, strlen(name));
    }
    const bool is_long = b->n - start > 180;
    if (is_long) strbuf_cut(b, start + 160);
    if (is_url || is_long) strbuf_printf(b, "--%016llx", (unsigned long long)XXH3_64bits(name, strlen(name)));
}

/* $MICA_HOME/models, with a slash at the end. */
static mica_status models_folder(strbuf *b, bool create, mica_error *err) {
    char *home;
    TRY(create ? home_create(&home, err) : home_find(&home, err));
    strbuf_printf(b, "%s/models", home);
    mem_free(home);
    if (b->failed) return out_of_memory("models", err);
    if (create && mkdir(b->p, 0755) != 0 && errno != EEXIST)
        return fail_to_write(b->p, "make folder", errno, err);
    strbuf_putc(b, '/');
    return b->failed ? out_of_memory("models", err) : MICA_OK;
}

void net_entry_fini(net_entry *e) {
    mem_free(e->name);
    mem_free(e->folder);
    net_files_fini(&e->files);
    *e = (net_entry){0};
}

char *net_entry_path(const net_entry *e, size_t i) {
    strbuf b = {0};
    strbuf_printf(&b, "%s/%s", e->folder, e->files.p[i].name);
    return strbuf_take(&b);
}

/* Bytes of folder/name+suffix, -1 when it is no regular file. */
static int64_t file_bytes(const char *folder, const char *name, const char *suffix) {
    char path[PATH_MAX]; // no allocation: running out of memory must not make a file seem missing
    struct stat sb;
    const int n = snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    const bool is_file = n > 0 && n < (int)sizeof path && stat(path, &sb) == 0 && S_ISREG(sb.st_mode);
    return is_file ? (int64_t)sb.st_size : -1;
}

bool net_entry_is_complete(const net_entry *e) {
    for (size_t i = 0; i < e->files.n; i++) {
        const net_file *f = &e->files.p[i];
        if (!f->n_bytes || file_bytes(e->folder, f->name, "") != (int64_t)f->n_bytes) return false;
    }
    return e->files.n > 0;
}

static void copy_text(char *out, size_t n_out, const json_t *o, const char *key) {
    const char *v = json_string_value(json_object_get(o, key));
    snprintf(out, n_out, "%s", v && strlen(v) < n_out ? v : "");
}

/* Reads folder/pull.json into e; *found false when it is missing or no manifest (a file of ours that a crash
 * cut short is like one that was never written). */
static mica_status read_manifest(net_entry *e, bool *found, mica_error *err) {
    strbuf path = {0};
    strbuf_printf(&path, "%s/" MANIFEST, e->folder);
    if (path.failed) return out_of_memory(MANIFEST, err);
    json_t *root = json_load_file(path.p, JSON_REJECT_DUPLICATES, NULL);
    strbuf_fini(&path);
    const char *name = json_string_value(json_object_get(root, "name"));
    const json_t *files = json_object_get(root, "files");
    mica_status st = MICA_OK;
    *found = name != NULL;
    if (name && !(e->name = mem_strdup(name))) st = out_of_memory(name, err);
    for (size_t i = 0; name && st == MICA_OK && i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i);
        const char *file = json_string_value(json_object_get(f, "name"));
        const json_int_t n_bytes = json_integer_value(json_object_get(f, "bytes"));
        if (!file || !net_name_is_safe(file)) continue;
        st = net_files_add(&e->files, file, NULL, n_bytes > 0 ? (uint64_t)n_bytes : 0, err);
        if (st != MICA_OK) break;
        net_file *last = &e->files.p[e->files.n - 1];
        copy_text(last->sha256, sizeof last->sha256, f, "sha256");
        copy_text(last->validator, sizeof last->validator, f, "validator");
    }
    json_decref(root);
    return st;
}

static int on_dump(const char *p, size_t n, void *user) {
    strbuf_put(user, p, n);
    return 0;
}

static json_t *manifest_json(const net_entry *e) {
    json_t *files = json_array();
    for (size_t i = 0; i < e->files.n; i++) {
        const net_file *f = &e->files.p[i];
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:s}", "name", f->name, "bytes",
                                               (json_int_t)f->n_bytes, "sha256", f->sha256, "validator",
                                               f->validator));
    }
    return json_pack("{s:s, s:o}", "name", e->name, "files", files);
}

mica_status net_entry_save(const net_entry *e, mica_error *err) {
    strbuf path = {0}, tmp = {0}, text = {0};
    json_t *root = manifest_json(e);
    if (root) json_dump_callback(root, on_dump, &text, JSON_INDENT(2));
    json_decref(root);
    strbuf_putc(&text, '\n');
    strbuf_printf(&path, "%s/" MANIFEST, e->folder);
    strbuf_printf(&tmp, "%s/." MANIFEST, e->folder);
    mica_status st = MICA_OK;
    if (!root || text.failed || path.failed || tmp.failed) {
        st = out_of_memory(MANIFEST, err);
    } else {
        FILE *f = fopen(tmp.p, "we");
        const bool good =
            f && fwrite(text.p, 1, text.n, f) == text.n && fflush(f) == 0 && fsync(fileno(f)) == 0;
        const int why = errno;
        if (f) fclose(f);
        if (!good)
            st = fail_to_write(tmp.p, "write", why, err);
        else if (rename(tmp.p, path.p) != 0)
            st = fail(err, MICA_E_IO, "%s: rename: %s", path.p, strerror(errno));
    }
    strbuf_fini(&path);
    strbuf_fini(&tmp);
    strbuf_fini(&text);
    return st;
}

/* Takes folder NAME of models/ as an entry, when it has a manifest. */
static mica_status open_entry(net_entry *out, bool *found, const char *folder, mica_error *err) {
    *out = (net_entry){.folder = mem_strdup(folder)};
    *found = false;
    mica_status st = out->folder ? read_manifest(out, found, err) : out_of_memory(folder, err);
    if (st != MICA_OK || !*found) net_entry_fini(out);
    return st;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct folders {
    char **p; // owned, sorted
    size_t n, cap;
} folders;

static void folders_fini(folders *fs) {
    for (size_t i = 0; i < fs->n; i++) mem_free(fs->p[i]);
    mem_free(fs->p);
    *fs = (folders){0};
}

static bool folders_add(folders *fs, const char *name) {
    if (fs->n == fs->cap) {
        char **p = mem_realloc(fs->p, (fs->cap ? 2 * fs->cap : 16) * sizeof *p);
        if (!p) return false;
        fs->p = p;
        fs->cap = fs->cap ? 2 * fs->cap : 16;
    }
    return (fs->p[fs->n] = mem_strdup(name)) != NULL && ++fs->n;
}

/* Full paths of the folders in models/ whose names start with `prefix`. No models/ folder: none. */
static mica_status list_folders(folders *out, const char *prefix, mica_error *err) {
    strbuf base = {0};
    *out = (folders){0};
    mica_status st = models_folder(&base, false, err);
    DIR *d = st == MICA_OK ? opendir(base.p) : NULL;
    for (struct dirent *e; st == MICA_OK && d && (e = readdir(d));) {
        if (e->d_name[0] == '.' || strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        const size_t n = base.n;
        strbuf_puts(&base, e->d_name);
        if (base.failed || !folders_add(out, base.p))
            st = out_of_memory("models", err);
        else
            strbuf_cut(&base, n);
    }
    if (d) closedir(d);
    strbuf_fini(&base);
    if (st == MICA_OK && out->n) qsort(out->p, out->n, sizeof *out->p, by_text);
    if (st != MICA_OK) folders_fini(out);
    return st;
}

/* hf:ORG/REPO without a quant: the one that is there; of several, a complete one, and among those Q4_K_M. */
static mica_status find_any_quant(net_entry *out, bool *found, const char *name, mica_error *err) {
    strbuf prefix = {0};
    folders fs = {0};
    int best = -1;
    put_folder_name(&prefix, name);
    strbuf_puts(&prefix, "--");
    mica_status st = prefix.failed ? out_of_memory(name, err) : list_folders(&fs, prefix.p, err);
    for (size_t i = 0; st == MICA_OK && i < fs.n; i++) {
        net_entry e;
        bool is_entry;
        st = open_entry(&e, &is_entry, fs.p[i], err);
        if (st != MICA_OK || !is_entry) continue;
        const int rank =
            2 * net_entry_is_complete(&e) + (strcmp(fs.p[i] + strlen(fs.p[i]) - 6, "q4_k_m") == 0);
        if (rank > best) {
            net_entry_fini(out);
            *out = e;
            best = rank;
        } else {
            net_entry_fini(&e);
        }
    }
    *found = best >= 0;
    if (st != MICA_OK) net_entry_fini(out);
    folders_fini(&fs);
    strbuf_fini(&prefix);
    return st;
}

/* "M.gguf" and "M" are names of M.gguf, and "M" of M-00001-of-00005.gguf. */
static bool is_file_name(const char *name, const char *file) {
    const size_t n = strlen(name), n_file = strlen(file);
    uint32_t index, count;
    size_t n_stem = n_file > 5 && strcasecmp(file + n_file - 5, ".gguf") == 0 ? n_file - 5 : n_file;
    if (n == n_file && strcasecmp(name, file) == 0) return true;
    if (n == n_stem && strncasecmp(name, file, n) == 0) return true;
    return net_shard_parse(file, &index, &count, &n_stem) && n == n_stem && strncasecmp(name, file, n) == 0;
}

/* The pulled model whose first file has this name. */
static mica_status find_by_file(net_entry *out, bool *found, const char *name, mica_error *err) {
    folders fs;
    TRY(list_folders(&fs, "", err));
    mica_status st = MICA_OK;
    for (size_t i = 0; st == MICA_OK && i < fs.n; i++) {
        net_entry e;
        bool is_entry;
        st = open_entry(&e, &is_entry, fs.p[i], err);
        if (st != MICA_OK || !is_entry) continue;
        const bool is_it = e.files.n > 0 && is_file_name(name, e.files.p[0].name);
        if (is_it && *found)
            st = fail(err, MICA_E_ARG, "%s: the file's name of two pulled models: %s and %s", name, out->name,
                      e.name);
        if (!is_it || *found) {
            net_entry_fini(&e);
            continue;
        }
        *out = e;
        *found = true;
    }
    folders_fini(&fs);
    if (st != MICA_OK) {
        net_entry_fini(out);
        *found = false;
    }
    return st;
}

mica_status net_entry_find(net_entry *out, bool *found, const char *name, mica_error *err) {
    strbuf path = {0};
    *out = (net_entry){0};
    *found = false;
    mica_status st = models_folder(&path, false, err);
    if (st == MICA_OK) {
        put_folder_name(&path, name);
        st = path.failed ? out_of_memory(name, err) : open_entry(out, found, path.p, err);
    }
    strbuf_fini(&path);
    const bool has_no_quant = strncasecmp(name, "hf:", 3) == 0 && strchr(name, '/') && !strchr(name + 3, ':');
    if (st != MICA_OK || *found) return st;
    if (has_no_quant) return find_any_quant(out, found, name, err);
    return strpbrk(name, ":/") ? MICA_OK : find_by_file(out, found, name, err);
}

mica_status net_entry_create(net_entry *out, const char *name, mica_error *err) {
    strbuf path = {0};
    bool found = false;
    *out = (net_entry){0};
    mica_status st = models_folder(&path, true, err);
    if (st == MICA_OK) put_folder_name(&path, name);
    if (st == MICA_OK && path.failed) st = out_of_memory(name, err);
    if (st == MICA_OK && mkdir(path.p, 0755) != 0 && errno != EEXIST)
        st = fail_to_write(path.p, "make folder", errno, err);
    if (st == MICA_OK) st = open_entry(out, &found, path.p, err);
    if (st == MICA_OK && !found) {
        *out = (net_entry){.name = mem_strdup(name), .folder = strbuf_take(&path)};
        if (!out->name || !out->folder) {
            net_entry_fini(out);
            st = out_of_memory(name, err);
        }
    }
    strbuf_fini(&path);
    return st;
}

/* Opens the lock's file and takes the lock without waiting: 1 when it is held, 0 when another holds it, -1 on
 * a failure. The holder removes the file before it lets go, so one that is held and no longer stands under
 * its name is nobody's. */
static int try_lock(net_lock *l, mica_error *err) {
    struct stat here, named;
    for (;;) {
        l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (l->fd < 0) {
            fail_to_write(l->path, "open", errno, err);
            return -1;
        }
        int rc;
        while ((rc = flock(l->fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
        }
        if (rc == 0 && fstat(l->fd, &here) == 0 && stat(l->path, &named) == 0 &&
            here.st_ino == named.st_ino && here.st_dev == named.st_dev)
            return 1;
        const int why = errno;
        if (rc != 0 && why != EWOULDBLOCK) { // no locks here: two pulls at once are then the user's care
            log_warn("net", "%s: lock: %s", l->path, strerror(why));
            return 1;
        }
        close(l->fd);
        l->fd = -1;
        if (rc != 0) return 0;
    }
}

mica_status net_lock_acquire(net_lock *l, const char *name, bool wait, mica_cancel_flag *cancel,
                             mica_error *err) {
    strbuf path = {0};
    *l = (net_lock){.fd = -1};
    mica_status st = models_folder(&path, true, err);
    if (st == MICA_OK) {
        strbuf_puts(&path, ".lock-");
        put_folder_name(&path, name);
        if (!(l->path = strbuf_take(&path))) st = out_of_memory(name, err);
    }
    for (bool told = false; st == MICA_OK;) {
        const int got = try_lock(l, err);
        if (got > 0) break;
        if (got < 0)
            st = MICA_E_IO;
        else if (!wait)
            st = fail(err, MICA_E_BUSY, "%s: in use by another program", name);
        else if (cancel && cancel->set)
            st = fail(err, MICA_E_CANCELLED, "%s: download: stopped", name);
        else if (!told)
            log_info("net", "%s: another program is pulling it: waiting", name);
        told = true;
        if (st == MICA_OK) nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    }
    strbuf_fini(&path);
    if (st != MICA_OK) {
        mem_free(l->path);
        *l = (net_lock){.fd = -1};
    }
    return st;
}

void net_lock_release(net_lock *l) {
    if (l->path) {
        unlink(l->path);
        close(l->fd);
        mem_free(l->path);
    }
    *l = (net_lock){.fd = -1};
}

/* One row of mica_list. */
static json_t *entry_json(const net_entry *e) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < e->files.n; i++) {
        int64_t n = file_bytes(e->folder, e->files.p[i].name, "");
        if (n < 0) n = file_bytes(e->folder, e->files.p[i].name, ".partial");
        if (n > 0) n_bytes += (uint64_t)n;
    }
    char *path = e->files.n ? net_entry_path(e, 0) : mem_strdup(e->folder);
    json_t *o = json_pack("{s:s, s:s, s:I, s:b}", "name", e->name, "path", path ? path : "", "bytes",
                          (json_int_t)n_bytes, "complete", (int)net_entry_is_complete(e));
    mem_free(path);
    return o;
}

mica_status mica_list(char **json, mica_error *err) {
    folders fs;
    strbuf text = {0};
    *json = NULL;
    TRY(list_folders(&fs, "", err));
    json_t *rows = json_array();
    mica_status st = rows ? MICA_OK : out_of_memory("list", err);
    for (size_t i = 0; st == MICA_OK && i < fs.n; i++) {
        net_entry e;
        bool is_entry;
        st = open_entry(&e, &is_entry, fs.p[i], err);
        if (st != MICA_OK || !is_entry) continue;
        if (json_array_append_new(rows, entry_json(&e)) != 0) st = out_of_memory("list", err);
        net_entry_fini(&e);
    }
    if (st == MICA_OK) {
        json_dump_callback(rows, on_dump, &text, JSON_COMPACT);
        if (!(*json = strbuf_take(&text))) st = out_of_memory("list", err);
    }
    json_decref(rows);
    folders_fini(&fs);
    return st;
}

static void add_name(const char **names, size_t *n, size_t cap, const char *name) {
    if (*n < cap) names[(*n)++] = name;
}

static void cut_suffix(char *name) {
    const size_t n = strlen(name);
    if (n > 5 && strcasecmp(name + n - 5, ".gguf") == 0) name[n - 5] = 0;
}

/* The pulled or known name that was probably meant, copied into out; "" when there is none. */
static void nearest_name(char *out, size_t n_out, const char *name) {
    enum { MOST = 200 };
    const char *names[MOST];
    char trimmed[300];
    net_entry *e = mem_calloc(MOST, sizeof *e);
    folders fs = {0};
    size_t n_name = 0, n_entry = 0;
    out[0] = 0;
    if (!e || list_folders(&fs, "", NULL) != MICA_OK) fs = (folders){0};
    name += strspn(name, " ");
    snprintf(trimmed, sizeof trimmed, "%s", name);
    for (size_t n = strlen(trimmed); n > 0 && trimmed[n - 1] == ' '; n--) trimmed[n - 1] = 0;
    cut_suffix(trimmed);
    for (size_t i = 0; e && i < fs.n && n_entry < MOST; i++) {
        bool is_entry = false;
        if (open_entry(&e[n_entry], &is_entry, fs.p[i], NULL) != MICA_OK || !is_entry) continue;
        add_name(names, &n_name, MOST, e[n_entry].name);
        if (e[n_entry].files.n) {
            cut_suffix(e[n_entry].files.p[0].name);
            add_name(names, &n_name, MOST, e[n_entry].files.p[0].name);
        }
        n_entry++;
    }
    for (size_t i = 0; net_known_at(i); i++) add_name(names, &n_name, MOST, net_known_at(i)->name);
    const char *near = near_word(trimmed, names, n_name);
    if (near) snprintf(out, n_out, "%s", near);
    for (size_t i = 0; i < n_entry; i++) net_entry_fini(&e[i]);
    folders_fini(&fs);
    mem_free(e);
}

static mica_status fail_unknown_name(const char *name, mica_error *err) {
    char near[300];
    const bool can_pull = net_known_find(name) || strncasecmp(name, "hf:", 3) == 0 || strstr(name, "://");
    if (can_pull) return fail(err, MICA_E_IO, "%s: not downloaded yet: `mica pull %s` does it", name, name);
    nearest_name(near, sizeof near, name);
    if (near[0])
        return fail(err, MICA_E_IO,
                    "\"%s\": no such file, and no pulled model of this name: did you mean %s?", name, near);
    return fail(err, MICA_E_IO, "%s: no such file, and no pulled model of this name: see `mica list`", name);
}

/* A path was meant by whoever wrote a slash. */
static void tell_of_shadow(const char *name) {
    net_entry e;
    bool found = false;
    if (strchr(name, '/') || net_entry_find(&e, &found, name, NULL) != MICA_OK || !found) return;
    if (net_entry_is_complete(&e))
        log_info("", "%s: the file of this name in this folder is used, not the pulled model %s", name,
                 e.name);
    net_entry_fini(&e);
}

mica_status mica_resolve(char **path, const char *name, mica_error *err) {
    struct stat sb;
    if (!name[0])
        return fail(err, MICA_E_ARG, "model: the name is empty: name a GGUF file or a pulled model");
    const bool exists = stat(name, &sb) == 0;
    net_entry e = {0};
    bool found = false;
    *path = NULL;
    // A folder gives way to a pulled model of its name: it could not be loaded anyway.
    if (!exists || S_ISDIR(sb.st_mode)) {
        const mica_status st = net_entry_find(&e, &found, name, err);
        if (st != MICA_OK && st != MICA_E_IO) return st; // without a cache folder nothing was pulled
    }
    const bool complete = found && net_entry_is_complete(&e);
    if (complete)
        *path = net_entry_path(&e, 0);
    else if (exists)
        *path = mem_strdup(name);
    if (*path && !complete && S_ISREG(sb.st_mode)) tell_of_shadow(name);
    net_entry_fini(&e);
    if (*path) return MICA_OK;
    if (complete || exists) return out_of_memory(name, err);
    if (found)
        return fail(err, MICA_E_IO, "%s: only partly downloaded: go on with `mica pull %s`", name, name);
    return fail_unknown_name(name, err);
}

/* Empties and removes a folder of ours; it has no folders but the one of a killed package download. */
static mica_status remove_files(const char *folder, uint64_t *freed_bytes, mica_error *err) {
    DIR *d = opendir(folder);
    if (!d) return fail(err, MICA_E_IO, "%s: open folder: %s", folder, strerror(errno));
    mica_status st = MICA_OK;
    for (struct dirent *e; st == MICA_OK && (e = readdir(d));) {
        struct stat sb;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (fstatat(dirfd(d), e->d_name, &sb, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (S_ISDIR(sb.st_mode)) {
            strbuf inner = {0};
            strbuf_printf(&inner, "%s/%s", folder, e->d_name);
            st = inner.failed ? out_of_memory(folder, err) : remove_files(inner.p, freed_bytes, err);
            strbuf_fini(&inner);
        } else if (unlinkat(dirfd(d), e->d_name, 0) != 0) {
            st = fail(err, MICA_E_IO, "%s/%s: remove: %s", folder, e->d_name, strerror(errno));
        } else {
            *freed_bytes += (uint64_t)sb.st_size;
        }
    }
    closedir(d);
    if (st == MICA_OK && rmdir(folder) != 0)
        st = fail(err, MICA_E_IO, "%s: remove: %s", folder, strerror(errno));
    return st;
}

void net_entry_drop_if_empty(const net_entry *e) {
    uint64_t freed;
    for (size_t i = 0; i < e->files.n; i++) {
        const char *name = e->files.p[i].name;
        if (file_bytes(e->folder, name, "") > 0 || file_bytes(e->folder, name, ".partial") > 0) return;
    }
    remove_files(e->folder, &freed, NULL);
}

mica_status mica_remove(const char *name, uint64_t *freed_bytes, mica_error *err) {
    net_entry e;
    bool found;
    net_lock lock;
    *freed_bytes = 0;
    TRY(net_entry_find(&e, &found, name, err));
    if (!found) return fail(err, MICA_E_IO, "%s: no pulled model of this name: see `mica list`", name);
    mica_status st = net_lock_acquire(&lock, e.name, false, NULL, err);
    if (st == MICA_OK) st = remove_files(e.folder, freed_bytes, err);
    net_lock_release(&lock);
    net_entry_fini(&e);
    return net_cache_status(st, err);
}
