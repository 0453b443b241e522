/* Responses that were stored, with the conversation each of them ends: SQLite in the state folder, so that
 * `previous_response_id` works after a restart. Threads: any; one connection, its own lock. */
#ifndef MICA_SERVE_ARCHIVE_H
#define MICA_SERVE_ARCHIVE_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct archive archive;

/* The file `responses.sqlite3` of the folder, which is made when it is missing. MICA_E_IO, MICA_E_FORMAT. */
mica_status archive_open(archive **out, const char *state_dir, mica_error *err);
void archive_close(archive *a); // NULL allowed

typedef struct archive_entry {
    char id[64];
    json_t *response; // the object as it was given
    json_t *messages; // the conversation up to its end, OpenAI-style
    json_t *input;    // the items of the request
} archive_entry;

mica_status archive_put(archive *a, const archive_entry *e, mica_error *err); // borrows
/* *found false: there is none. The parts are new references, archive_entry_fini drops them. */
mica_status archive_get(archive *a, const char *id, archive_entry *out, bool *found, mica_error *err);
mica_status archive_delete(archive *a, const char *id, bool *found, mica_error *err);
void archive_entry_fini(archive_entry *e);

#endif
