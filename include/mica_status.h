/* How every fallible call of libmica reports failure.
 *
 * A call returns a mica_status and takes a mica_error last, which may be NULL. On failure the error holds one
 * line, "thing: what: why", made at the lowest point that knew the noun. The statuses are few and say what
 * the caller can do. Threads: a mica_error belongs to its caller. */
#ifndef MICA_STATUS_H
#define MICA_STATUS_H

#if defined(__GNUC__)
#define MICA_API __attribute__((visibility("default")))
#define MICA_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define MICA_API
#define MICA_PRINTF(f, a)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_status {
    MICA_OK = 0,
    MICA_E_ARG, // a value the caller gave cannot be used (usage, a prompt over the context, a template error)
    MICA_E_IO,  // a file is missing or cannot be read or written
    MICA_E_FORMAT,      // a file is malformed
    MICA_E_UNSUPPORTED, // well-formed, but an architecture, type or feature this build does not run
    MICA_E_FIT,         // does not fit in the memory allowed
    MICA_E_NOMEM,       // an allocation failed
    MICA_E_DEVICE,      // no usable device, or the device or its driver failed
    MICA_E_NETWORK,     // a transfer failed, or the disk it writes to is full
    MICA_E_BUSY,        // a port or a lock is taken
    MICA_E_CANCELLED,   // the caller asked to stop
    MICA_E_INTERNAL     // a promise of ours was broken
} mica_status;

typedef struct mica_error {
    mica_status status;
    char text[600]; // one line, UTF-8, NUL-terminated
} mica_error;

/* The name of a status, e.g. "malformed". Never NULL. */
MICA_API const char *mica_status_name(mica_status status);

#ifdef __cplusplus
}
#endif
#endif
