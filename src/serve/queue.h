/* Who is served next: the requests that wait, in a fair order, and how many may.
 *
 * A place is taken by every choice of every request (n > 1 waits n times). The next one is that of the client
 * who has the fewest running at the moment, among equals the one who came first: somebody with a hundred
 * requests waits for himself, not everybody else for him. Pure: the caller locks, and tells who is running.
 */
#ifndef MICA_SERVE_QUEUE_H
#define MICA_SERVE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct queue_entry {
    void *job; // borrowed
    int choice;
    uint64_t client; // who asked
} queue_entry;

typedef struct queue {
    queue_entry *at; // owned, [cap], in order of arrival
    size_t n, cap;
} queue;

bool queue_init(queue *q, size_t cap); // false: out of memory
void queue_fini(queue *q);
/* All n of them or none: false when there is no room. */
bool queue_put(queue *q, const queue_entry *e, size_t n);
/* The next one; `running` are the clients of what runs now, one for each. false when nothing waits. */
bool queue_take(queue *q, const uint64_t *running, size_t n_running, queue_entry *out);
/* Takes any one entry of which `is` says true. */
bool queue_take_if(queue *q, bool (*is)(const queue_entry *e), queue_entry *out);

/* Seconds after which a refused client may try again, from 1 to 60: the time that so many places take. */
int queue_retry_s(size_t n_waiting, size_t n_slot, double mean_request_s);

#endif
