/* A session on disk: tokens, cache, recurrent state and last logits of a timeline, to go on with after a
 * restart.
 *
 * Layout, little-endian: state_head, ids [n] i32, logits [n_vocab] f32 when has_logits, recurrent state, then
 * for each layer with a cache its pages of keys, values and (i8) scales. The checksum (XXH3, 64 bits) covers
 * all that follows the head and the head's own fields before it.
 *
 * A file belongs to one model (its fingerprint), one version of the arithmetic, one cache type and, with
 * sliding windows, one size of their ring: any other is a miss, not an error. A damaged file is MICA_E_FORMAT
 * and nothing of it is used: it is checked whole before a byte reaches the device. Threads: worker only. */
#ifndef MICA_STATE_FILE_H
#define MICA_STATE_FILE_H

#include "run/session.h"

/* Written beside `path` and renamed, so that a full disk or a kill leaves the old file. MICA_E_IO. */
mica_status session_save(session *s, const char *path, mica_error *err);
/* *found false: there is no such file, or it is of another model or arithmetic; the session is then as
 * before. On success the session is the saved one. */
mica_status session_load(session *s, const char *path, bool *found, mica_error *err);
#endif
