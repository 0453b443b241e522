/* Errors are values: see mica_status.h. Here are the maker and the two forwarding macros; there are no
 * others.
 *
 *     TRY(gguf_open(&g, path, err));              // nothing held yet
 *     TRY_GOTO(model_bind(&m, g, err), done);     // `st` is in scope and `done:` frees what is still owned
 */
#ifndef MICA_BASE_STATUS_H
#define MICA_BASE_STATUS_H

#include "mica_status.h"

/* Writes "thing: what: why" into err (NULL allowed) and returns st, so that a caller can `return fail(...)`.
 * Control characters in the made text become '?': names from hostile files end up in terminals. */
mica_status fail(mica_error *err, mica_status st, const char *fmt, ...) MICA_PRINTF(3, 4);

/* Puts "prefix: " before the text already in err; for a layer that knows a better noun. Returns st. */
mica_status fail_within(mica_error *err, mica_status st, const char *fmt, ...) MICA_PRINTF(3, 4);

/* The status of a write that failed with this errno: MICA_E_NETWORK for a full disk or a limit on files (the
 * contract's "network or disk"), else MICA_E_IO. */
mica_status write_status(int why);

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        mica_status try_st_ = (call);                                                                        \
        if (try_st_ != MICA_OK) return try_st_;                                                              \
    } while (0)

#define TRY_GOTO(call, label)                                                                                \
    do {                                                                                                     \
        st = (call);                                                                                         \
        if (st != MICA_OK) goto label;                                                                       \
    } while (0)

#endif
