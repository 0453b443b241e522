/* What every tool does with its result: one JSON text. Threads: any. */
#ifndef MICA_REPORT_H
#define MICA_REPORT_H

#include "base/status.h"

#include <jansson.h>

/* The text of v with floats of nine significant digits, so that equal bits print equal text. Takes v, also on
 * failure (v NULL: out of memory while it was made). *out is freed with mica_text_free. */
mica_status report_text(char **out, json_t *v, mica_error *err);
/* A number, or null for NaN and the infinities, which JSON has not. */
json_t *report_real(double x);
/* A whole gzipped (or plain) JSON file, at most 512 MiB unpacked. MICA_E_IO, MICA_E_FORMAT. Free with
 * json_decref. */
mica_status report_read_gz(json_t **out, const char *path, mica_error *err);
#endif
