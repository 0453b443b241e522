/* What the worker says to one request, on its way to the socket.
 *
 *     worker            flow_put(f, &event) ...                 never waits
 *     HTTP thread       flow_take(f, &events)                   all there is, or `sleep` is called and then,
 *                                                               when there is more, `wake`
 *
 * Events are packed into a byte buffer that is swapped with the taker's: once both have grown, nothing is
 * allocated. The bound is soft: an event is never refused, but a worker that sees flow_is_full leaves the
 * sequence standing until the client has taken something. Threads: any; `lock` guards everything. */
#ifndef MICA_SERVE_FLOW_H
#define MICA_SERVE_FLOW_H

#include "base/str.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { FLOW_FULL_BYTES = 256 << 10 };

typedef enum event_kind {
    EVENT_BEGIN, // the prompt was read: body is an event_begin
    EVENT_THINK, // body is text
    EVENT_TEXT,  // body is text
    EVENT_CALL,  // a tool call begins: number is its index, body its name
    EVENT_ARGS,  // more of its arguments: number is its index, body is text
    EVENT_PICK,  // a generated token with its probabilities: body is an array of event_pick, the first chosen
    EVENT_PROGRESS, // number of prompt tokens read
    EVENT_END,      // the choice is complete: body is an event_end
    EVENT_RESULT,   // of a request that makes no text: body is its JSON
    EVENT_FAIL      // the request failed: number is the mica_status, body the text; nothing follows
} event_kind;

typedef struct event {
    event_kind kind;
    int choice;
    int64_t number;
    slice body; // borrowed
} event;

typedef struct event_begin {
    uint64_t n_prompt, n_cached;
    double prompt_ms;
} event_begin;

typedef struct event_pick {
    int32_t id;
    float logprob;
} event_pick;

typedef enum finish_kind {
    FINISH_STOP,
    FINISH_STOP_STRING,
    FINISH_LENGTH,
    FINISH_CONTEXT,
    FINISH_CALLS
} finish_kind;

typedef struct event_end {
    finish_kind finish;
    int stop;                                       // index of the stop string that ended it, -1: none
    uint64_t n_prompt, n_cached, n_made, n_thought; // tokens; n_thought of n_made
    uint64_t n_drafted, n_accepted;
    double prompt_ms, decode_ms, wait_ms;
} event_end;

typedef struct flow {
    pthread_mutex_t lock;
    strbuf events;     // packed, not yet taken
    bool asleep;       // the taker was put to sleep and waits for `wake`
    bool ended;        // the last event was put
    bool ping;         // the taker should say that it is alive
    uint64_t taken_ns; // when something was last taken
    uint64_t since_ns; // when the oldest event was put
    atomic_bool gone;  // the client left: what is put is dropped
    // Called with the lock held; set before the flow is shared.
    void (*sleep)(void *user);
    void (*wake)(void *user);
    void *user;
} flow;

void flow_init(flow *f);
void flow_fini(flow *f);

void flow_put(flow *f, const event *e);
void flow_end(flow *f); // nothing follows what was put
bool flow_is_full(flow *f);
bool flow_is_over(flow *f);     // the client left, or the flow was ended
double flow_stalled_s(flow *f); // how long nothing was taken although something waits; 0: nothing waits

void flow_leave(flow *f); // the client is gone; wakes the taker
static inline bool flow_is_gone(flow *f) {
    return atomic_load_explicit(&f->gone, memory_order_relaxed);
}
void flow_ping(flow *f, uint64_t idle_ns); // wakes a sleeping taker when nothing was taken for so long

typedef enum flow_state {
    FLOW_SOME,  // *into holds events
    FLOW_PING,  // nothing, but something should be sent
    FLOW_SLEEP, // nothing; `sleep` was called
    FLOW_ENDED, // nothing, and nothing will come
    FLOW_GONE
} flow_state;
flow_state flow_take(flow *f, strbuf *into); // *into is emptied first, and keeps its memory

/* Walks over taken events: *pos starts at 0; false at the end. */
bool flow_next(const strbuf *events, size_t *pos, event *out);

#endif
