/* From -m to a loaded model, the same way for every command that needs one; and files and pipes to text. */
#ifndef MICA_CLI_OPEN_H
#define MICA_CLI_OPEN_H

#include "cli/options.h"

/* A loaded model and what loading it told. Zeroed is empty. */
typedef struct opened {
    mica_model *model;     // owned
    mica_session *session; // owned; NULL after open_text
    mica_model_info info;
    double load_ms;
    int32_t n_draft; // that `mica tune` found best, -1: not known
} opened;

/* Takes the path from -m or -hf (pulling it when needed); mica_text_free frees it. */
mica_status open_path(char **path, const options *o, mica_error *err);
/* The load options that the flags ask for; `path` is borrowed by them. */
mica_status open_flags(mica_load_options *lo, const options *o, const char *path, mica_error *err);
/* The same, and what `mica tune` found for what no flag says; tells so on standard error. */
mica_status open_load_options(mica_load_options *lo, const options *o, const char *path, mica_error *err);

/* Loads with progress on standard error and makes a session; Ctrl-C ends it with MICA_E_CANCELLED. `lo` may
 * be NULL: then it is open_load_options of the path. */
mica_status open_model(opened *out, const options *o, const mica_load_options *lo, mica_error *err);
mica_status open_text(opened *out, const options *o, mica_error *err); // tokenizer and template alone
void open_close(opened *x);

/* All of a file, "-" being standard input, onto the end of `out`. At most 256 MiB: the longest context is far
 * below. */
mica_status input_read(strbuf *out, const char *path, mica_error *err);
#endif
