/* Packed events: a head, then the body, padded to eight bytes. */
#include "serve/flow.h"

#include "base/clock.h"

typedef struct head {
    int32_t kind, choice;
    int64_t number;
    uint64_t n_body;
} head;

enum { PAD = 8 };

void flow_init(flow *f) {
    *f = (flow){.taken_ns = clock_ns()};
    pthread_mutex_init(&f->lock, NULL);
}

void flow_fini(flow *f) {
    strbuf_fini(&f->events);
    pthread_mutex_destroy(&f->lock);
}

static void wake(flow *f) {
    if (!f->asleep) return;
    f->asleep = false;
    if (f->wake) f->wake(f->user);
}

void flow_put(flow *f, const event *e) {
    static const char zeros[PAD];
    const head h = {(int32_t)e->kind, (int32_t)e->choice, e->number, e->body.n};
    pthread_mutex_lock(&f->lock);
    if (!flow_is_gone(f) && !f->ended) {
        if (f->events.n == 0) f->since_ns = clock_ns();
        strbuf_put(&f->events, &h, sizeof h);
        strbuf_put(&f->events, e->body.p, e->body.n);
        strbuf_put(&f->events, zeros, (PAD - e->body.n % PAD) % PAD);
        wake(f);
    }
    pthread_mutex_unlock(&f->lock);
}

void flow_end(flow *f) {
    pthread_mutex_lock(&f->lock);
    f->ended = true;
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

bool flow_is_full(flow *f) {
    pthread_mutex_lock(&f->lock);
    const bool full = f->events.n >= FLOW_FULL_BYTES;
    pthread_mutex_unlock(&f->lock);
    return full;
}

bool flow_is_over(flow *f) {
    pthread_mutex_lock(&f->lock);
    const bool over = f->ended || flow_is_gone(f);
    pthread_mutex_unlock(&f->lock);
    return over;
}

double flow_stalled_s(flow *f) {
    pthread_mutex_lock(&f->lock);
    const double s = f->events.n > 0 ? clock_ms_since(f->since_ns) / 1000.0 : 0.0;
    pthread_mutex_unlock(&f->lock);
    return s;
}

void flow_leave(flow *f) {
    pthread_mutex_lock(&f->lock);
    atomic_store(&f->gone, true);
    strbuf_clear(&f->events);
    wake(f);
    pthread_mutex_unlock(&f->lock);
}

void flow_ping(flow *f, uint64_t idle_ns) {
    pthread_mutex_lock(&f->lock);
    if (f->asleep && clock_ns() - f->taken_ns >= idle_ns) {
        f->ping = true;
        wake(f);
    }
    pthread_mutex_unlock(&f->lock);
}

static flow_state take(flow *f, strbuf *into) {
    if (flow_is_gone(f)) return FLOW_GONE;
    if (f->events.n > 0) {
        const strbuf swap = *into;
        *into = f->events;
        f->events = swap;
        return into->failed ? FLOW_GONE : FLOW_SOME;
    }
    if (f->ended) return FLOW_ENDED;
    if (f->ping) return FLOW_PING;
    f->asleep = true;
    if (f->sleep) f->sleep(f->user);
    return FLOW_SLEEP;
}

flow_state flow_take(flow *f, strbuf *into) {
    strbuf_clear(into);
    pthread_mutex_lock(&f->lock);
    const flow_state state = take(f, into);
    if (state == FLOW_SOME || state == FLOW_PING) {
        f->taken_ns = clock_ns();
        f->ping = false;
    }
    pthread_mutex_unlock(&f->lock);
    return state;
}

bool flow_next(const strbuf *events, size_t *pos, event *out) {
    head h;
    if (events->n - *pos < sizeof h) return false;
    memcpy(&h, events->p + *pos, sizeof h);
    *pos += sizeof h;
    *out = (event){(event_kind)h.kind, h.choice, h.number, {events->p + *pos, h.n_body}};
    *pos += h.n_body + (PAD - h.n_body % PAD) % PAD;
    return true;
}
