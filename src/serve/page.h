/* The files of the page, in the program (the build puts web/ there) or in a folder. */
#ifndef MICA_SERVE_PAGE_H
#define MICA_SERVE_PAGE_H

#include "base/str.h"

typedef struct page_file {
    const char *name; // "index.html"; NULL ends the table
    const char *data;
    size_t n;
} page_file;

/* A file of the program; NULL: there is none of this name. */
const page_file *page_find(const char *name);
const char *page_type(const char *name); // "text/html; charset=utf-8"
/* Letters, digits, '.', '_', '-', no '.' in front: nothing that leaves the folder. */
bool page_name_is_safe(const char *name);

#endif
