/* Learned use of experts, kept between runs: a row of a small database for each model file.
 *
 *     profile *f = profile_open(path, &key);        // path NULL: experts.db in the cache folder
 *     policy_seed(p, profile_use(f), profile_tokens(f));
 *     profile_note(f, il, ids, n_row);              // beside policy_note
 *     profile_tick(f, clock_ns());                  // after a step: saves now and then
 *     profile_close(f);                             // and at the end
 *
 * It never fails a run: a full disk, a damaged file, a file that is another program's or a lock that stays is
 * one warning, and the run goes on with what it has. Such files are left as they are. What two runs of a
 * model learn at the same time is joined. What was learned weighs at most some ten thousand tokens, so that a
 * new habit is learned in a day. Threads: worker only. */
#ifndef MICA_PROFILE_H
#define MICA_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct profile_key {
    uint64_t fingerprint; // of the model's file
    uint32_t n_layer, n_expert, n_used;
} profile_key;

typedef struct profile profile;

profile *profile_open(const char *path, const profile_key *key); // NULL only when out of memory
void profile_close(profile *f);                                  // saves; accepts NULL

const float *profile_use(const profile *f); // [n_layer, n_expert] uses a token, as found; borrowed
double profile_tokens(const profile *f);    // that these are worth; 0: nothing is known
void profile_note(profile *f, uint32_t layer, const int32_t *ids, uint32_t n_row);
/* Saves when a minute has gone and there is something new. now_ns: any clock that does not go back. */
void profile_tick(profile *f, uint64_t now_ns);
bool profile_save(profile *f); // now; false: it could not (one warning)
#endif
