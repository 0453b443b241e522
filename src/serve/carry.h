/* Text that a client carries for us from one request to the next without a look at it: the thinking of a
 * turn, in the form that agents ask for (`reasoning.encrypted_content`). They may read it anyway, as
 * `content` beside it, so it is wrapped and not encrypted: a prefix and base64. What comes back counts as
 * what the client says. Pure. */
#ifndef MICA_SERVE_CARRY_H
#define MICA_SERVE_CARRY_H

#include "base/str.h"

/* Onto out. Text of more than CARRY_MAX bytes becomes nothing. */
enum { CARRY_MAX = 16 << 20 };
void carry_wrap(strbuf *out, slice text);
/* Onto out; false (out as it was): none of ours, damaged, or no UTF-8. */
bool carry_unwrap(strbuf *out, slice wrapped);

#endif
