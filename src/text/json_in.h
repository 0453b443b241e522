/* JSON from outside: request bodies, message files, arguments on the command line.
 *
 * jansson does the reading, strictly: UTF-8 only, no duplicate keys, no comments, "\u0000" allowed in values.
 * What it does not bound is bounded here: size, and nesting before it recurses. Errors are one line with a
 * position. Members keep their order. Pure functions; any thread. */
#ifndef MICA_TEXT_JSON_IN_H
#define MICA_TEXT_JSON_IN_H

#include "base/status.h"
#include "base/str.h"

#include <jansson.h>

enum {
    JSON_IN_MAX_DEPTH = 200,      // arrays and objects in each other
    JSON_IN_MAX_BYTES = 256 << 20 // unless the caller says less
};

typedef enum json_in_kind { JSON_IN_ANY, JSON_IN_OBJECT, JSON_IN_ARRAY } json_in_kind;

typedef struct json_in_options {
    const char *what; // the noun of an error: "request body", "--kwargs"
    json_in_kind kind;
    size_t max_bytes; // 0: JSON_IN_MAX_BYTES
} json_in_options;

/* *out is a new reference, NULL on failure. All failures are MICA_E_ARG, but for MICA_E_NOMEM. */
mica_status json_in_parse(json_t **out, slice text, const json_in_options *opt, mica_error *err);

#endif
