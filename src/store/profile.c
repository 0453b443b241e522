/* A row holds uses a token of every expert as 32-bit floats and how many tokens they are worth. Saving joins
 * the row that is there now with what this run counted since it last saved, in one transaction, so that runs
 * side by side add up and a run that is killed loses at most what it had not saved. The journal is written
 * ahead (WAL, synchronous NORMAL): a save during a run waits for no disk. */
#include "store/profile.h"

#include "base/home.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const double TOKENS_MAX = 20000;
static const uint64_t SAVE_NS = UINT64_C(60) * 1000000000;
enum { BUSY_MS = 100, APPLICATION = 0x6d696361 /* "mica" */, TOKENS_MIN = 16 };

struct profile {
    profile_key key;
    size_t n;    // experts of all layers
    char *path;  // owned; NULL: nowhere
    sqlite3 *db; // owned; NULL: not kept
    float *use;  // owned, [n]: as found
    double tokens;
    float *joined;     // owned, [n]: for a save
    uint32_t *counts;  // owned, [n]: since the last save
    uint64_t *n_row;   // owned, [n_layer]: likewise
    uint64_t n_new;    // rows of the layer that has most
    uint64_t saved_ns; // 0: no tick yet
    bool told;
};

static void tell(profile *f, const char *why) {
    if (!f->told)
        log_warn("profile", "%s: %s: learned use of experts is not kept", f->path ? f->path : "-", why);
    f->told = true;
}

/* ---- the database ----------------------------------------------------------------------------- */

static int64_t pragma(sqlite3 *db, const char *sql) {
    sqlite3_stmt *q = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW)
        v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return v;
}

/* NULL, or why the file cannot be used. An empty database becomes ours, number and table in one transaction:
 * nothing that ends in between, and no second start at the same time, sees half of it. */
static const char *open_db(profile *f) {
    static const char schema[] =
        "PRAGMA journal_mode = WAL;"
        "BEGIN IMMEDIATE;"
        "PRAGMA application_id = 1835623265;"
        "CREATE TABLE IF NOT EXISTS expert_use(fingerprint INTEGER, n_layer INTEGER, n_expert INTEGER,"
        " tokens REAL NOT NULL, use BLOB NOT NULL, PRIMARY KEY(fingerprint, n_layer, n_expert));"
        "COMMIT";
    _Static_assert(APPLICATION == 1835623265, "as in the schema");
    if (sqlite3_open_v2(f->path, &f->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        return f->db ? sqlite3_errmsg(f->db) : "out of memory";
    sqlite3_busy_timeout(f->db, BUSY_MS);
    sqlite3_exec(f->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
    int64_t n_table = pragma(f->db, "SELECT count(*) FROM sqlite_schema");
    if (n_table < 0) return sqlite3_errmsg(f->db);
    if (n_table > 0)
        return pragma(f->db, "PRAGMA application_id") == APPLICATION ? NULL : "a database of another program";
    return sqlite3_exec(f->db, schema, NULL, NULL, NULL) == SQLITE_OK ? NULL : sqlite3_errmsg(f->db);
}

static void bind_key(sqlite3_stmt *q, const profile_key *key) {
    sqlite3_bind_int64(q, 1, (int64_t)key->fingerprint);
    sqlite3_bind_int64(q, 2, key->n_layer);
    sqlite3_bind_int64(q, 3, key->n_expert);
}

static bool sane(const float *use, size_t n, double tokens, uint32_t n_used) {
    bool ok = tokens >= 0 && tokens <= TOKENS_MAX;
    for (size_t i = 0; ok && i < n; i++) ok = use[i] >= 0 && use[i] <= (float)n_used;
    return ok;
}

/* The model's row into use; *tokens 0 when there is none. False: the database is at fault. */
static bool get_row(profile *f, float *use, double *tokens) {
    sqlite3_stmt *q = NULL;
    *tokens = 0;
    memset(use, 0, f->n * sizeof *use);
    int rc =
        sqlite3_prepare_v2(f->db,
                           "SELECT tokens, use FROM expert_use WHERE fingerprint = ? AND n_layer = ? AND "
                           "n_expert = ?",
                           -1, &q, NULL);
    if (rc == SQLITE_OK) {
        bind_key(q, &f->key);
        rc = sqlite3_step(q);
    }
    if (rc == SQLITE_ROW && sqlite3_column_bytes(q, 1) == (int)(f->n * sizeof *use)) {
        memcpy(use, sqlite3_column_blob(q, 1), f->n * sizeof *use);
        *tokens = sqlite3_column_double(q, 0);
    }
    sqlite3_finalize(q);
    if (!sane(use, f->n, *tokens, f->key.n_used)) { // not worth a word: it is learned again
        memset(use, 0, f->n * sizeof *use);
        *tokens = 0;
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE;
}

static bool put_row(profile *f, const float *use, double tokens) {
    sqlite3_stmt *q = NULL;
    int rc =
        sqlite3_prepare_v2(f->db, "INSERT OR REPLACE INTO expert_use VALUES(?, ?, ?, ?, ?)", -1, &q, NULL);
    if (rc == SQLITE_OK) {
        bind_key(q, &f->key);
        sqlite3_bind_double(q, 4, tokens);
        sqlite3_bind_blob(q, 5, use, (int)(f->n * sizeof *use), SQLITE_STATIC);
        rc = sqlite3_step(q);
    }
    sqlite3_finalize(q);
    return rc == SQLITE_DONE;
}

/* ---- joining ---------------------------------------------------------------------------------- */

/* The row there is, and this run's rows since the last save, by their tokens; returns what it is worth. */
static double join(const profile *f, float *use, double tokens) {
    double now = (double)f->n_new, old = tokens;
    if (old + now > TOKENS_MAX) old = TOKENS_MAX > now ? TOKENS_MAX - now : 0;
    for (size_t i = 0; i < f->n; i++) {
        uint64_t n_row = f->n_row[i / f->key.n_expert];
        double seen = n_row ? (double)f->counts[i] / (double)n_row : (double)use[i];
        use[i] = (float)((old * (double)use[i] + now * seen) / (old + now));
    }
    return old + now < TOKENS_MAX ? old + now : TOKENS_MAX;
}

bool profile_save(profile *f) {
    double tokens;
    if (!f->db || f->n_new == 0) return f->db != NULL;
    bool begun = sqlite3_exec(f->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
    bool ok = begun && get_row(f, f->joined, &tokens);
    if (ok) {
        tokens = join(f, f->joined, tokens);
        ok = put_row(f, f->joined, tokens) && sqlite3_exec(f->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    }
    if (!ok) {
        tell(f, sqlite3_errmsg(f->db));
        if (begun) sqlite3_exec(f->db, "ROLLBACK", NULL, NULL, NULL);
        return false;
    }
    memset(f->counts, 0, f->n * sizeof *f->counts);
    memset(f->n_row, 0, f->key.n_layer * sizeof *f->n_row);
    f->n_new = 0;
    f->told = false;
    return true;
}

void profile_tick(profile *f, uint64_t now_ns) {
    if (f->saved_ns == 0) f->saved_ns = now_ns;
    if (!f->db || f->n_new < TOKENS_MIN || now_ns - f->saved_ns < SAVE_NS) return;
    f->saved_ns = now_ns; // also when it fails: not at every step again
    profile_save(f);
}

void profile_note(profile *f, uint32_t layer, const int32_t *ids, uint32_t n_row) {
    if (layer >= f->key.n_layer) return;
    for (size_t i = 0; i < (size_t)n_row * f->key.n_used; i++)
        if (ids[i] >= 0 && (uint32_t)ids[i] < f->key.n_expert)
            f->counts[(size_t)layer * f->key.n_expert + (uint32_t)ids[i]]++;
    f->n_row[layer] += n_row;
    if (f->n_row[layer] > f->n_new) f->n_new = f->n_row[layer];
}

const float *profile_use(const profile *f) {
    return f->use;
}

double profile_tokens(const profile *f) {
    return f->tokens;
}

/* ---- life ------------------------------------------------------------------------------------- */

static char *default_path(void) {
    mica_error err;
    char *home;
    if (home_create(&home, &err) != MICA_OK) {
        log_warn("profile", "%s", err.text);
        return NULL;
    }
    strbuf b = {0};
    strbuf_printf(&b, "%s/experts.db", home);
    mem_free(home);
    return strbuf_take(&b);
}

profile *profile_open(const char *path, const profile_key *key) {
    profile *f = mem_calloc(1, sizeof *f);
    if (!f) return NULL;
    f->key = *key;
    f->n = (size_t)key->n_layer * key->n_expert;
    f->path = path ? mem_strdup(path) : default_path();
    f->use = mem_calloc(f->n, sizeof *f->use);
    f->joined = mem_calloc(f->n, sizeof *f->joined);
    f->counts = mem_calloc(f->n, sizeof *f->counts);
    f->n_row = mem_calloc(key->n_layer, sizeof *f->n_row);
    if (!f->use || !f->joined || !f->counts || !f->n_row || (path && !f->path)) {
        profile_close(f);
        return NULL;
    }
    if (!f->path) return f;
    const char *why = open_db(f);
    if (!why && !get_row(f, f->use, &f->tokens)) why = sqlite3_errmsg(f->db);
    if (!why) return f;
    tell(f, why);
    sqlite3_close(f->db);
    f->db = NULL;
    return f;
}

void profile_close(profile *f) {
    if (!f) return;
    if (f->counts && f->n_row) profile_save(f);
    sqlite3_close(f->db);
    mem_free(f->path);
    mem_free(f->use);
    mem_free(f->joined);
    mem_free(f->counts);
    mem_free(f->n_row);
    mem_free(f);
}
