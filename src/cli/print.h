/* Results for people: sizes, counts and aligned tables on standard output. */
#ifndef MICA_CLI_PRINT_H
#define MICA_CLI_PRINT_H

#include "base/str.h"
#include "mica.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* "1.21 GiB", "512 B"; "4.59 M", "600". Into out, which they return; 16 bytes are enough. */
char *print_bytes(char out[16], uint64_t n_bytes);
char *print_count(char out[16], uint64_t n);

/* Rows of cells; widths are found when it is printed. Columns whose cells are numbers stand right. */
typedef struct table {
    size_t n_col;
    strbuf cells; // each cell ends in a NUL
    size_t n_cell;
} table;
void table_put(table *t, const char *fmt, ...) MICA_PRINTF(2, 3); // the next cell, row by row
mica_status table_print(FILE *to, table *t, mica_error *err);     // and empties it
void table_fini(table *t);

/* The library's JSON as it is, and a newline. */
void print_json_text(const char *json);
/* The same read back, for people. MICA_E_INTERNAL when it is no JSON: the library broke its word. */
mica_status print_parse(json_t **out, const char *json, mica_error *err);

/* Members, with a default where one is missing or null. Borrowed. */
const char *member_text(const json_t *o, const char *key); // "" by default
uint64_t member_u64(const json_t *o, const char *key);     // 0
double member_real(const json_t *o, const char *key);      // 0; whole numbers too
bool member_true(const json_t *o, const char *key);

/* One value and a newline, compact, reals with nine significant digits. */
void print_json(const json_t *value);
bool print_json_began(void); // has any of these printed?
/* {"type":"error","exit_code":N,"message":"thing: what: why"}: the value in place of a result. */
void print_json_error(int exit_code, const char *message);
#endif
