/* One table. The oldest responses leave when there are too many: a store that only grows is a full disk one
 * day. */
#include "serve/archive.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 10000 }; // responses kept

struct archive {
    pthread_mutex_t lock;
    sqlite3 *db; // owned
};

static const char g_schema[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                               "CREATE TABLE IF NOT EXISTS response (id TEXT PRIMARY KEY, made_s INTEGER NOT "
                               "NULL, response TEXT NOT NULL,"
                               " messages TEXT NOT NULL, input TEXT NOT NULL);"
                               "CREATE INDEX IF NOT EXISTS response_made ON response (made_s);";

static mica_status fail_db(archive *a, const char *what, mica_error *err) {
    const int rc = sqlite3_errcode(a->db);
    return fail(err, rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT ? MICA_E_FORMAT : MICA_E_IO,
                "stored responses: %s: %s", what, sqlite3_errmsg(a->db));
}

/* The files that SQLite puts beside it get the rights of this one, so it has them before SQLite comes. */
static mica_status make_file(const char *path, mica_error *err) {
    const int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool ok = fd >= 0 && fchmod(fd, 0600) == 0;
    const int why = errno;
    if (fd >= 0) close(fd);
    return ok ? MICA_OK : fail(err, MICA_E_IO, "stored responses: %s: %s", path, strerror(why));
}

mica_status archive_open(archive **out, const char *state_dir, mica_error *err) {
    strbuf path = {0};
    *out = NULL;
    archive *a = mem_calloc(1, sizeof *a);
    if (!a) return fail(err, MICA_E_NOMEM, "stored responses: out of memory");
    pthread_mutex_init(&a->lock, NULL);
    mkdir(state_dir, 0700); // conversations are nobody else's; that it is there already is said by opening it
    strbuf_printf(&path, "%s/responses.sqlite3", state_dir);
    mica_status st = make_file(strbuf_cstr(&path), err);
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    if (st == MICA_OK && (sqlite3_open_v2(strbuf_cstr(&path), &a->db, flags, NULL) != SQLITE_OK ||
                          sqlite3_busy_timeout(a->db, 2000) != SQLITE_OK ||
                          sqlite3_exec(a->db, g_schema, NULL, NULL, NULL) != SQLITE_OK))
        st = fail_db(a, strbuf_cstr(&path), err);
    strbuf_fini(&path);
    if (st != MICA_OK)
        archive_close(a);
    else
        *out = a;
    return st;
}

void archive_close(archive *a) {
    if (!a) return;
    sqlite3_close(a->db);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

static void bind_json(sqlite3_stmt *q, int at, const json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    sqlite3_bind_text(q, at, text ? text : "null", -1, SQLITE_TRANSIENT);
    free(text); // jansson's
}

static mica_status put(archive *a, const archive_entry *e, mica_error *err) {
    sqlite3_stmt *q = NULL;
    if (sqlite3_prepare_v2(a->db, "INSERT OR REPLACE INTO response VALUES (?, ?, ?, ?, ?)", -1, &q, NULL) !=
        SQLITE_OK)
        return fail_db(a, "put", err);
    sqlite3_bind_text(q, 1, e->id, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(q, 2, (sqlite3_int64)time(NULL));
    bind_json(q, 3, e->response);
    bind_json(q, 4, e->messages);
    bind_json(q, 5, e->input);
    const int rc = sqlite3_step(q);
    sqlite3_finalize(q);
    if (rc != SQLITE_DONE) return fail_db(a, "put", err);
    char trim[160];
    snprintf(
        trim, sizeof trim,
        "DELETE FROM response WHERE rowid IN (SELECT rowid FROM response ORDER BY made_s DESC, rowid DESC "
        "LIMIT -1 OFFSET %d)",
        MOST);
    return sqlite3_exec(a->db, trim, NULL, NULL, NULL) == SQLITE_OK ? MICA_OK : fail_db(a, "trim", err);
}

mica_status archive_put(archive *a, const archive_entry *e, mica_error *err) {
    pthread_mutex_lock(&a->lock);
    const mica_status st = put(a, e, err);
    pthread_mutex_unlock(&a->lock);
    return st;
}

static json_t *column_json(sqlite3_stmt *q, int at) {
    const char *text = (const char *)sqlite3_column_text(q, at);
    return text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
}

static mica_status get(archive *a, const char *id, archive_entry *out, bool *found, mica_error *err) {
    sqlite3_stmt *q = NULL;
    if (sqlite3_prepare_v2(a->db, "SELECT response, messages, input FROM response WHERE id = ?", -1, &q,
                           NULL) != SQLITE_OK)
        return fail_db(a, "get", err);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_TRANSIENT);
    const int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        *found = true;
        snprintf(out->id, sizeof out->id, "%s", id);
        out->response = column_json(q, 0);
        out->messages = column_json(q, 1);
        out->input = column_json(q, 2);
    }
    sqlite3_finalize(q);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) return fail_db(a, "get", err);
    if (*found && (!out->response || !json_is_array(out->messages) || !json_is_array(out->input))) {
        archive_entry_fini(out);
        return fail(err, MICA_E_FORMAT, "stored responses: %.60s: damaged", id);
    }
    return MICA_OK;
}

mica_status archive_get(archive *a, const char *id, archive_entry *out, bool *found, mica_error *err) {
    *out = (archive_entry){0};
    *found = false;
    pthread_mutex_lock(&a->lock);
    const mica_status st = get(a, id, out, found, err);
    pthread_mutex_unlock(&a->lock);
    return st;
}

mica_status archive_delete(archive *a, const char *id, bool *found, mica_error *err) {
    sqlite3_stmt *q = NULL;
    mica_status st = MICA_OK;
    pthread_mutex_lock(&a->lock);
    if (sqlite3_prepare_v2(a->db, "DELETE FROM response WHERE id = ?", -1, &q, NULL) != SQLITE_OK) {
        st = fail_db(a, "delete", err);
    } else {
        sqlite3_bind_text(q, 1, id, -1, SQLITE_TRANSIENT);
        if (sqlite3_step(q) != SQLITE_DONE) st = fail_db(a, "delete", err);
        *found = sqlite3_changes(a->db) > 0;
        sqlite3_finalize(q);
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

void archive_entry_fini(archive_entry *e) {
    json_decref(e->response);
    json_decref(e->messages);
    json_decref(e->input);
    *e = (archive_entry){0};
}
