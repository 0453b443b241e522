/* Every product kernel of this processor against the scalar definition, bit for bit, and its speed. */
#ifndef MICA_SELFTEST_H
#define MICA_SELFTEST_H

#include "base/status.h"

#include <jansson.h>

/* *rows: [{"kernel","cases","mismatches","gbps"}]; a mismatch is not an error here. */
mica_status selftest_run(json_t **rows, mica_error *err);
#endif
