/* One thread that looks after every open connection, because the HTTP library does not look at a socket whose
 * request waits for the model, and knows no deadline for one that sends a byte now and then:
 *
 *   idle      between two requests: the first byte of the next begins it
 *   coming    a request has to be complete by its deadline, else it gets 408 and the socket is closed
 *   waiting   the socket is polled for the other side's leaving (also of its half: such a client cannot be
 *             told from one that went), the request is told at once; a stream that is silent for ping_s is
 *             told to say something
 *
 * Sockets are the keys: an entry lives from accept to close. Threads: any; its own lock, taken before that of
 * a flow. */
#ifndef MICA_SERVE_WATCH_H
#define MICA_SERVE_WATCH_H

#include "base/status.h"
#include "serve/flow.h"

typedef struct watch watch;

mica_status watch_new(watch **out, unsigned receive_s, unsigned ping_s, mica_error *err); // starts the thread
void watch_free(watch *w); // ends it; NULL allowed

void watch_opened(watch *w, int fd); // accepted; a request is to come
void watch_closed(watch *w, int fd);
void watch_begun(watch *w, int fd); // its head is there: the deadline runs, if it did not yet
/* The request is complete: no deadline any more. false when its 408 has been sent already. */
bool watch_received(watch *w, int fd);
void watch_flow(watch *w, int fd, flow *f); // it waits for this; borrowed until watch_answered
void watch_answered(watch *w, int fd);      // the next request is to come
size_t watch_count(watch *w);               // open connections

#endif
