/* One row and one file a piece. `head` of a row is the hash of its first tokens, up to HEAD_TOKENS: a text is
 * asked for with the hashes of its own first 1 .. HEAD_TOKENS, so that thousands of texts below one parent
 * (the empty text above all) are not compared one by one. */
#include "run/prefix_disk.h"

#include "base/log.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { HEAD_TOKENS = 16, PATH_BYTES = 4096, BUSY_MS = 200 };

typedef struct piece_head {
    char magic[8];
    prefix_key key;
    uint64_t n_bytes;
    uint32_t n_tok;
    uint8_t is_state, has_logits, zero[2];
    uint64_t checksum; // of the head before it, and of the bytes after
} piece_head;
_Static_assert(sizeof(piece_head) == 48, "piece_head is a file format");

static const char g_magic[8] = {'M', 'I', 'C', 'A', 'P', 'F', 'X', '1'};

typedef enum statement {
    SQL_PUT,
    SQL_LIST,
    SQL_DROP,
    SQL_TOUCH,
    SQL_OLDEST,
    SQL_SUM,
    SQL_HAS,
    SQL_N
} statement;

static const char *const g_sql[SQL_N] = {
    [SQL_PUT] =
        "INSERT OR REPLACE INTO piece(key, parent, head, is_state, has_logits, tokens, n_bytes, used) "
        "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [SQL_LIST] = "SELECT key, is_state, has_logits, tokens, n_bytes FROM piece WHERE parent = ?1 AND head IN "
                 "(?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    [SQL_DROP] = "DELETE FROM piece WHERE key = ?1",
    [SQL_TOUCH] = "UPDATE piece SET used = ?2 WHERE key = ?1",
    [SQL_OLDEST] = "SELECT key FROM piece ORDER BY used LIMIT 1",
    [SQL_SUM] = "SELECT total(n_bytes), max(used) FROM piece",
    [SQL_HAS] = "SELECT 1 FROM piece WHERE key = ?1",
};

static const char g_schema[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
    "CREATE TABLE IF NOT EXISTS piece(key BLOB PRIMARY KEY, parent BLOB NOT NULL, head INTEGER NOT NULL,"
    " is_state INTEGER NOT NULL, has_logits INTEGER NOT NULL, tokens BLOB NOT NULL, n_bytes INTEGER NOT NULL,"
    " used INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS below ON piece(parent, head);"
    "CREATE INDEX IF NOT EXISTS oldest ON piece(used);";

struct prefix_disk {
    char dir[PATH_BYTES - 256]; // DIR/prefix
    sqlite3 *db;
    sqlite3_stmt *sql[SQL_N];
    uint64_t max_bytes, used_bytes, clock;
    bool told; // the last write failed, and the log says so
};

/* ---- names ---- */

prefix_key prefix_disk_root(const engine *e) {
    const model_shape *s = engine_shape(e);
    const uint64_t what[] = {engine_fingerprint(e),
                             ARITHMETIC_VERSION,
                             (uint64_t)engine_kv_type(e),
                             engine_page_bytes(e, KV_PAGE),
                             engine_state_bytes(e),
                             s->n_vocab,
                             engine_drafts(e),
                             engine_prompt_class(e)};
    XXH128_hash_t h = XXH3_128bits(what, sizeof what);
    return (prefix_key){h.low64, h.high64};
}

prefix_key prefix_key_of(const prefix_key *parent, const int32_t *tokens, uint32_t n_tok, bool is_state) {
    struct {
        prefix_key parent;
        uint64_t kind;
        int32_t tokens[KV_PAGE];
    } text = {.parent = *parent, .kind = is_state};
    memcpy(text.tokens, tokens, n_tok * sizeof *tokens);
    XXH128_hash_t h = XXH3_128bits(&text, offsetof(__typeof__(text), tokens) + n_tok * sizeof *tokens);
    return (prefix_key){h.low64, h.high64};
}

static int64_t head_of(const int32_t *tokens, size_t n) {
    return (int64_t)XXH3_64bits(tokens, (n < HEAD_TOKENS ? n : HEAD_TOKENS) * sizeof *tokens);
}

static void path_of(char out[PATH_BYTES], const prefix_disk *d, const prefix_key *key, const char *ending) {
    snprintf(out, PATH_BYTES, "%s/%016llx%016llx.%s", d->dir, (unsigned long long)key->hi,
             (unsigned long long)key->lo, ending);
}

/* ---- index ---- */

static void bind_key(sqlite3_stmt *q, int at, const prefix_key *key) {
    sqlite3_bind_blob(q, at, key, sizeof *key, SQLITE_TRANSIENT);
}

/* Steps a statement that gives no rows and resets it. False: it failed, and the log says why. */
static bool finish(prefix_disk *d, statement which) {
    int rc = sqlite3_step(d->sql[which]);
    sqlite3_reset(d->sql[which]);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW) return true;
    if (!d->told) log_warn("cache", "%s/index.db: %s", d->dir, sqlite3_errmsg(d->db));
    d->told = true;
    return false;
}

static bool open_index(prefix_disk *d, const char *path) {
    if (sqlite3_open_v2(path, &d->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_NOFOLLOW,
                        NULL) != SQLITE_OK)
        return false;
    sqlite3_busy_timeout(d->db, BUSY_MS);
    if (sqlite3_exec(d->db, g_schema, NULL, NULL, NULL) != SQLITE_OK) return false;
    for (int i = 0; i < SQL_N; i++) {
        if (sqlite3_prepare_v3(d->db, g_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &d->sql[i], NULL) != SQLITE_OK)
            return false;
    }
    if (sqlite3_step(d->sql[SQL_SUM]) != SQLITE_ROW) return false;
    d->used_bytes = (uint64_t)sqlite3_column_double(d->sql[SQL_SUM], 0);
    d->clock = (uint64_t)sqlite3_column_int64(d->sql[SQL_SUM], 1);
    sqlite3_reset(d->sql[SQL_SUM]);
    return true;
}

static void close_index(prefix_disk *d) {
    for (int i = 0; i < SQL_N; i++) sqlite3_finalize(d->sql[i]);
    sqlite3_close(d->db);
    memset(d->sql, 0, sizeof d->sql);
    d->db = NULL;
}

/* What the index says can never be read; one that is locked, or on a disk that fails today, is left alone. */
static bool is_lost(const prefix_disk *d) {
    const int rc = d->db ? sqlite3_errcode(d->db) & 0xff : SQLITE_NOMEM;
    return rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB || rc == SQLITE_ERROR || rc == SQLITE_SCHEMA;
}

static void unlink_index(const char *path) {
    static const char *const endings[] = {"", "-wal", "-shm"};
    char name[PATH_BYTES + 8];
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, endings[i]);
        unlink(name);
    }
}

/* Opens it, or begins anew. False: neither; the log says why. */
static bool take_index(prefix_disk *d, const char *path) {
    if (open_index(d, path)) return true;
    if (is_lost(d)) {
        log_warn("cache", "%s: %s: begun anew", path, sqlite3_errmsg(d->db));
        close_index(d);
        unlink_index(path);
        if (open_index(d, path)) return true;
    }
    log_warn("cache", "%s: %s: prefixes stay in memory", path,
             d->db ? sqlite3_errmsg(d->db) : "cannot be opened");
    return false;
}

static bool has(prefix_disk *d, const prefix_key *key) {
    bind_key(d->sql[SQL_HAS], 1, key);
    bool found = sqlite3_step(d->sql[SQL_HAS]) == SQLITE_ROW;
    sqlite3_reset(d->sql[SQL_HAS]);
    return found;
}

/* Files that no row names: of writes that were cut off, of an index that was lost. */
static void drop_orphans(prefix_disk *d) {
    DIR *dir = opendir(d->dir);
    if (!dir) return;
    for (struct dirent *f; (f = readdir(dir));) {
        unsigned long long hi, lo;
        char ending[8], path[PATH_BYTES];
        if (sscanf(f->d_name, "%16llx%16llx.%7s", &hi, &lo, ending) != 3) continue;
        prefix_key key = {.lo = lo, .hi = hi};
        if (strcmp(ending, "piece") == 0 && has(d, &key)) continue;
        if (strcmp(ending, "piece") != 0 && strcmp(ending, "part") != 0) continue;
        path_of(path, d, &key, ending);
        unlink(path);
    }
    closedir(dir);
}

static bool make_folder(const char *path) {
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return true;
    log_warn("cache", "%s: create: %s: prefixes stay in memory", path, strerror(errno));
    return false;
}

prefix_disk *prefix_disk_open(const char *dir, uint64_t max_bytes) {
    char path[PATH_BYTES];
    prefix_disk *d = mem_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->max_bytes = max_bytes;
    if ((size_t)snprintf(d->dir, sizeof d->dir, "%s/prefix", dir) >= sizeof d->dir) {
        log_warn("cache", "%s: the path is too long: prefixes stay in memory", dir);
        mem_free(d);
        return NULL;
    }
    bool ok = make_folder(dir) && make_folder(d->dir);
    snprintf(path, sizeof path, "%s/index.db", d->dir);
    if (!ok || !take_index(d, path)) {
        prefix_disk_close(d);
        return NULL;
    }
    drop_orphans(d);
    return d;
}

void prefix_disk_close(prefix_disk *d) {
    if (!d) return;
    close_index(d);
    mem_free(d);
}

void prefix_disk_info(const prefix_disk *d, uint64_t *max_bytes, uint64_t *used_bytes) {
    *max_bytes = d ? d->max_bytes : 0;
    *used_bytes = d ? d->used_bytes : 0;
}

/* ---- pieces ---- */

bool prefix_disk_touch(prefix_disk *d, const prefix_key *key) {
    bind_key(d->sql[SQL_TOUCH], 1, key);
    sqlite3_bind_int64(d->sql[SQL_TOUCH], 2, (int64_t)++d->clock);
    return finish(d, SQL_TOUCH) && sqlite3_changes(d->db) > 0;
}

/* What a file takes; 0: there is none. */
static uint64_t file_bytes(const prefix_disk *d, const prefix_key *key) {
    char path[PATH_BYTES];
    struct stat sb;
    path_of(path, d, key, "piece");
    return stat(path, &sb) == 0 && S_ISREG(sb.st_mode) ? (uint64_t)sb.st_size : 0;
}

bool prefix_disk_drop(prefix_disk *d, const prefix_key *key) {
    char path[PATH_BYTES];
    uint64_t n = file_bytes(d, key);
    bind_key(d->sql[SQL_DROP], 1, key);
    if (!finish(d, SQL_DROP)) return false;
    if (sqlite3_changes(d->db) > 0) {
        n = n > sizeof(piece_head) ? n - sizeof(piece_head) : 0;
        d->used_bytes -= n < d->used_bytes ? n : d->used_bytes;
    }
    path_of(path, d, key, "piece");
    unlink(path);
    return true;
}

static bool make_room(prefix_disk *d, uint64_t n_bytes) {
    if (n_bytes > d->max_bytes) return false;
    while (d->used_bytes + n_bytes > d->max_bytes) {
        sqlite3_stmt *q = d->sql[SQL_OLDEST];
        prefix_key key;
        bool found = sqlite3_step(q) == SQLITE_ROW && sqlite3_column_bytes(q, 0) == (int)sizeof key;
        if (found) memcpy(&key, sqlite3_column_blob(q, 0), sizeof key);
        sqlite3_reset(q);
        if (!found) {
            d->used_bytes = 0;
            return true;
        }
        if (!prefix_disk_drop(d, &key)) return false;
    }
    return true;
}

static piece_head head_for(const disk_piece *x) {
    piece_head h = {.key = x->key, .n_bytes = x->n_bytes, .n_tok = x->n_tok};
    memcpy(h.magic, g_magic, sizeof g_magic);
    h.is_state = x->is_state;
    h.has_logits = x->has_logits;
    return h;
}

/* Head and bytes into the file; the checksum is known at the end. */
static bool write_file(FILE *f, const disk_piece *x, slab_pos at) {
    piece_head h = head_for(x);
    XXH3_state_t *sum = XXH3_createState();
    bool ok = sum && fwrite(&h, sizeof h, 1, f) == 1;
    if (sum) XXH3_64bits_reset(sum);
    if (sum) XXH3_64bits_update(sum, &h, offsetof(piece_head, checksum));
    for (uint64_t left = x->n_bytes; ok && left > 0;) {
        void *p;
        size_t k = slab_span(&at, (size_t)left, &p);
        XXH3_64bits_update(sum, p, k);
        ok = fwrite(p, 1, k, f) == k;
        left -= k;
    }
    if (sum) h.checksum = XXH3_64bits_digest(sum);
    XXH3_freeState(sum);
    return ok && fseek(f, 0, SEEK_SET) == 0 && fwrite(&h, sizeof h, 1, f) == 1;
}

static bool put_file(prefix_disk *d, const disk_piece *x, slab_pos at) {
    char part[PATH_BYTES], path[PATH_BYTES];
    path_of(part, d, &x->key, "part");
    path_of(path, d, &x->key, "piece");
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    bool ok = f && write_file(f, x, at);
    if (f && fclose(f) != 0) ok = false;
    if (ok && rename(part, path) == 0) {
        d->told = false;
        return true;
    }
    if (!d->told) log_warn("cache", "%s: write: %s", part, strerror(errno));
    d->told = true;
    unlink(part);
    return false;
}

void prefix_disk_put(prefix_disk *d, const disk_piece *x, const int32_t *tokens, slab_pos at) {
    sqlite3_stmt *q = d->sql[SQL_PUT];
    if (!prefix_disk_drop(d, &x->key) || !make_room(d, x->n_bytes) || !put_file(d, x, at)) return;
    bind_key(q, 1, &x->key);
    bind_key(q, 2, &x->parent);
    sqlite3_bind_int64(q, 3, head_of(tokens, x->n_tok));
    sqlite3_bind_int(q, 4, x->is_state);
    sqlite3_bind_int(q, 5, x->has_logits);
    sqlite3_bind_blob(q, 6, tokens, (int)(x->n_tok * sizeof *tokens), SQLITE_TRANSIENT);
    sqlite3_bind_int64(q, 7, (int64_t)x->n_bytes);
    sqlite3_bind_int64(q, 8, (int64_t)++d->clock);
    if (finish(d, SQL_PUT)) {
        d->used_bytes += x->n_bytes;
    } else {
        char path[PATH_BYTES];
        path_of(path, d, &x->key, "piece");
        unlink(path); // no row names it
    }
}

void prefix_disk_list(prefix_disk *d, const disk_query *a, prefix_disk_fn *fn, void *user) {
    sqlite3_stmt *q = d->sql[SQL_LIST];
    bind_key(q, 1, &a->parent);
    for (size_t k = 1; k <= HEAD_TOKENS; k++)
        sqlite3_bind_int64(q, 1 + (int)k, head_of(a->ids, k < a->n ? k : a->n));
    while (sqlite3_step(q) == SQLITE_ROW) {
        int32_t tokens[KV_PAGE];
        disk_piece x = {.parent = a->parent};
        int n = sqlite3_column_bytes(q, 3);
        if (n <= 0 || n > (int)sizeof tokens || n % (int)sizeof *tokens != 0) continue;
        if (sqlite3_column_bytes(q, 0) != (int)sizeof x.key) continue;
        memcpy(&x.key, sqlite3_column_blob(q, 0), sizeof x.key);
        memcpy(tokens, sqlite3_column_blob(q, 3), (size_t)n);
        x.is_state = sqlite3_column_int(q, 1) != 0;
        x.has_logits = sqlite3_column_int(q, 2) != 0;
        x.n_tok = (uint32_t)n / (uint32_t)sizeof *tokens;
        x.n_bytes = (uint64_t)sqlite3_column_int64(q, 4);
        fn(user, &x, tokens);
    }
    sqlite3_reset(q);
}

static bool read_file(FILE *f, const disk_piece *x, slab_pos at) {
    piece_head h, want = head_for(x);
    struct stat sb;
    if (fstat(fileno(f), &sb) != 0 || !S_ISREG(sb.st_mode) || (uint64_t)sb.st_size != sizeof h + x->n_bytes ||
        fread(&h, sizeof h, 1, f) != 1)
        return false;
    want.checksum = h.checksum;
    if (memcmp(&h, &want, sizeof h) != 0) return false;
    XXH3_state_t *sum = XXH3_createState();
    bool ok = sum != NULL;
    if (ok) XXH3_64bits_reset(sum);
    if (ok) XXH3_64bits_update(sum, &h, offsetof(piece_head, checksum));
    for (uint64_t left = x->n_bytes; ok && left > 0;) {
        void *p;
        size_t k = slab_span(&at, (size_t)left, &p);
        ok = fread(p, 1, k, f) == k;
        if (ok) XXH3_64bits_update(sum, p, k);
        left -= k;
    }
    ok = ok && XXH3_64bits_digest(sum) == h.checksum;
    XXH3_freeState(sum);
    return ok;
}

bool prefix_disk_get(prefix_disk *d, const disk_piece *x, slab_pos at) {
    char path[PATH_BYTES];
    path_of(path, d, &x->key, "piece");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    bool ok = f && read_file(f, x, at);
    if (f) fclose(f);
    if (ok) {
        prefix_disk_touch(d, &x->key);
        return true;
    }
    log_warn("cache", "%s: damaged or gone: its text is read anew", path);
    prefix_disk_drop(d, &x->key);
    return false;
}
