/* Sessions by name in the state directory, and the prefix cache as the public header shows it. */
#include "run/api_int.h"
#include "run/state_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_MAX_BYTES = 100, PATH_BYTES = 4000 };

static bool name_is_plain(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES || name[0] == '.') return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c > 127 || !(isalnum(c) || strchr("._-", c))) return false;
    }
    return true;
}

static mica_status make_folder(const char *path, mica_error *err) {
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return MICA_OK;
    return fail(err, MICA_E_IO, "%s: create: %s", path, strerror(errno));
}

/* The file of a saved session; its folder is there on return. */
static mica_status path_of(char *out, const mica_model *m, const char *name, mica_error *err) {
    if (!m->state_dir)
        return fail(err, MICA_E_ARG, "session: no state directory to keep it in (--state-dir)");
    if (!name_is_plain(name))
        return fail(err, MICA_E_ARG,
                    "session: name: 1 to %d letters, digits, '.', '_' or '-', and no '.' first",
                    NAME_MAX_BYTES);
    int n = snprintf(out, PATH_BYTES, "%s/sessions", m->state_dir);
    if (n < 0 || n + NAME_MAX_BYTES + 2 > PATH_BYTES)
        return fail(err, MICA_E_ARG, "%s: the path is too long", m->state_dir);
    TRY(make_folder(m->state_dir, err));
    TRY(make_folder(out, err));
    snprintf(out + n, (size_t)(PATH_BYTES - n), "/%s", name);
    return MICA_OK;
}

static void tell(const mica_session *s, const char *path, size_t *n_token, uint64_t *n_bytes) {
    struct stat sb;
    if (n_token) *n_token = session_length(s->s);
    if (n_bytes && stat(path, &sb) == 0) *n_bytes = (uint64_t)sb.st_size;
}

mica_status mica_session_save(mica_session *s, const char *name, size_t *n_token, uint64_t *n_bytes,
                              mica_error *err) {
    char path[PATH_BYTES];
    if (n_token) *n_token = 0;
    if (n_bytes) *n_bytes = 0;
    TRY(path_of(path, s->m, name, err));
    TRY(session_save(s->s, path, err));
    tell(s, path, n_token, n_bytes);
    return MICA_OK;
}

mica_status mica_session_restore(mica_session *s, const char *name, size_t *n_token, uint64_t *n_bytes,
                                 mica_error *err) {
    char path[PATH_BYTES];
    bool found;
    if (n_token) *n_token = 0;
    if (n_bytes) *n_bytes = 0;
    TRY(path_of(path, s->m, name, err));
    TRY(session_load(s->s, path, &found, err));
    if (!found) return fail(err, MICA_E_ARG, "session: %s: there is none of this name for this model", name);
    api_session_restart(s);
    tell(s, path, n_token, n_bytes);
    return MICA_OK;
}

void mica_session_erase(mica_session *s) {
    api_session_restart(s);
    session_clear(s->s);
}

bool mica_model_idle(mica_model *m) {
    return m->cache && prefix_idle(m->cache);
}

void mica_model_cache_info(const mica_model *m, mica_cache_info *out) {
    *out = m->cache_count;
    if (m->cache) prefix_info(m->cache, out);
}
