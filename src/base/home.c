/* The cache folder: three variables in order, then the password file. */
#include "base/home.h"

#include "base/env.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

/* The home folder, or NULL: daemons and containers may run without HOME, and under a user id that nobody
 * named. */
static const char *user_home(void) {
    const char *home = env_get("HOME");
    if (home) return home;
    const struct passwd *pw = getpwuid(getuid());
    return pw && pw->pw_dir && pw->pw_dir[0] ? pw->pw_dir : NULL;
}

mica_status home_find(char **out, mica_error *err) {
    *out = NULL;
    strbuf path = {0};
    const char *own = env_get("MICA_HOME"), *cache = env_get("XDG_CACHE_HOME"), *home = NULL;
    char cwd[PATH_MAX];
    if (own) {
        // A relative MICA_HOME means the folder it names now: later changes of the working folder must not
        // move it.
        if (own[0] != '/' && getcwd(cwd, sizeof cwd)) strbuf_printf(&path, "%s/", cwd);
        strbuf_puts(&path, own);
    } else if (cache && cache[0] == '/') { // the XDG specification: relative values are ignored
        strbuf_printf(&path, "%s/mica", cache);
    } else if ((home = user_home())) {
        strbuf_printf(&path, "%s/.cache/mica", home);
    } else {
        return fail(err, MICA_E_IO,
                    "cache folder: neither MICA_HOME nor HOME is set: set MICA_HOME to a folder of yours");
    }
    while (path.n > 1 && path.p[path.n - 1] == '/') path.p[--path.n] = 0;
    *out = strbuf_take(&path);
    return *out ? MICA_OK : fail(err, MICA_E_NOMEM, "cache folder: path: out of memory");
}

/* mkdir -p. */
static mica_status make_folders(char *path, mica_error *err) {
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != 0) continue;
        const char kept = *p;
        *p = 0;
        const int rc = mkdir(path, 0755);
        const int why = errno;
        struct stat sb;
        const int is_dir = rc == 0 || (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode));
        if (!is_dir) return fail(err, MICA_E_IO, "%s: make folder: %s", path, strerror(why));
        *p = kept;
        if (!kept) return MICA_OK;
    }
}

mica_status home_create(char **out, mica_error *err) {
    TRY(home_find(out, err));
    mica_status st = make_folders(*out, err);
    if (st != MICA_OK) {
        mem_free(*out);
        *out = NULL;
    }
    return st;
}
