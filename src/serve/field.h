/* Fields of a request, read by type and range. A field that is missing or null leaves *out as it was; one of
 * another type or out of range is a 400 that names it. Pure. */
#ifndef MICA_SERVE_FIELD_H
#define MICA_SERVE_FIELD_H

#include "base/str.h"
#include "serve/problem.h"

enum {
    FIELD_MAX_DEPTH = 200 // arrays and objects in each other
};

/* A body, strictly: UTF-8, no duplicate names, no more than FIELD_MAX_DEPTH deep, an object. *out is a new
 * reference, NULL on failure. */
mica_status field_body(json_t **out, slice body, problem *p);

typedef struct field_range {
    double lo, hi;
} field_range;

mica_status field_int(int64_t *out, const json_t *o, const char *name, field_range r, problem *p);
mica_status field_real(double *out, const json_t *o, const char *name, field_range r, problem *p);
mica_status field_bool(bool *out, const json_t *o, const char *name, problem *p);
mica_status field_text(const char **out, const json_t *o, const char *name,
                       problem *p); // borrowed, no NUL in it
mica_status field_object(json_t **out, const json_t *o, const char *name, problem *p); // borrowed
mica_status field_array(json_t **out, const json_t *o, const char *name, problem *p);  // borrowed
/* The index of the field's text among `words` (ended by NULL). */
mica_status field_word(int *out, const json_t *o, const char *name, const char *const *words, problem *p);
/* Text where there is some, NULL for anything else: for members that no error is owed. Borrowed. */
static inline const char *field_peek(const json_t *o, const char *name) {
    return json_string_value(json_object_get(o, name));
}
/* "a string", "an object", ... */
const char *field_kind(const json_t *v);

#endif
