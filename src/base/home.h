/* The folder of downloaded models, caches and the line-editing history: $MICA_HOME, else
 * $XDG_CACHE_HOME/mica, else
 * ~/.cache/mica, where ~ is $HOME or the user's entry in the password file. Nothing is created by asking.
 * Threads: safe, as long as nobody changes the environment. */
#ifndef MICA_BASE_HOME_H
#define MICA_BASE_HOME_H

#include "base/status.h"

/* *out is the absolute path without a trailing slash, to be given back to mem_free. MICA_E_IO when there is
 * no home at all; the message says which variable to set. */
mica_status home_find(char **out, mica_error *err);

/* As home_find, and the folder exists afterwards (made with mode 0755 where a part was missing). */
mica_status home_create(char **out, mica_error *err);
#endif
