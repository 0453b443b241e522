/* epoll for those that leave, a walk over the table once a second for those that take too long. */
#include "serve/watch.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(1000000000)

typedef enum phase { PHASE_NONE, PHASE_IDLE, PHASE_COMING, PHASE_AT_WORK } phase;

typedef struct entry {
    phase phase;
    uint64_t deadline_ns; // of a coming request
    flow *f;              // borrowed; NULL: nothing to tell
    bool left;            // the other side sends no more
    uint32_t generation;  // of the request; 0: no socket. What epoll tells of an earlier one is old
} entry;

struct watch {
    pthread_mutex_t lock;
    entry *at; // owned, indexed by socket
    size_t n;
    size_t n_open;
    uint32_t generation; // the last one given
    int epoll, stop;     // owned
    uint64_t receive_ns, ping_ns;
    pthread_t thread;
    bool running;
};

static const char g_timeout[] = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: "
                                "application/json\r\nContent-Length: 99\r\n\r\n"
                                "{\"error\":{\"message\":\"the request came too "
                                "slowly\",\"type\":\"timeout_error\",\"param\":null,\"code\":null}}";

/* Level-triggered and once: armed again, it tells at once what was so before. Called with the lock held. */
static void arm(watch *w, int fd) {
    if ((size_t)fd >= w->n) return; // out of memory
    const entry *e = &w->at[fd];
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = (uint64_t)e->generation << 32 | (uint32_t)fd};
    if (e->phase == PHASE_IDLE) ev.events |= EPOLLIN;
    if (epoll_ctl(w->epoll, EPOLL_CTL_MOD, fd, &ev) != 0 && errno == ENOENT)
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev);
}

static void begin_request(watch *w, entry *e) {
    e->phase = PHASE_COMING;
    e->deadline_ns = clock_ns() + w->receive_ns;
}

/* The other side left, or begins a request. */
static void take_event(watch *w, const struct epoll_event *ev) {
    const int fd = (int)(uint32_t)ev->data.u64;
    pthread_mutex_lock(&w->lock);
    entry *e = (size_t)fd < w->n ? &w->at[fd] : NULL;
    if (e && e->generation == (uint32_t)(ev->data.u64 >> 32)) {
        if (e->phase == PHASE_IDLE) begin_request(w, e);
        if (ev->events & ~(uint32_t)EPOLLIN) {
            e->left = true;
            if (e->f) flow_leave(e->f);
        } else {
            arm(w, fd);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

/* Nothing of an answer has been written yet on a socket whose request is still coming, so this is whole. */
static void give_up(int fd) {
    const ssize_t n = send(fd, g_timeout, sizeof g_timeout - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)n;
    shutdown(fd, SHUT_RDWR);
}

static void look_round(watch *w) {
    const uint64_t now = clock_ns();
    pthread_mutex_lock(&w->lock);
    for (size_t fd = 0; fd < w->n; fd++) {
        entry *e = &w->at[fd];
        if (e->phase == PHASE_COMING && now >= e->deadline_ns) {
            give_up((int)fd);
            e->phase = PHASE_NONE;
        }
        // The HTTP library misses an end that comes together with a part of a request.
        if (e->phase == PHASE_COMING && e->left && now >= e->deadline_ns - w->receive_ns + GRACE_NS)
            shutdown((int)fd, SHUT_RDWR);
        if (e->f) flow_ping(e->f, w->ping_ns);
    }
    pthread_mutex_unlock(&w->lock);
}

static void *watch_loop(void *arg) {
    watch *w = arg;
    struct epoll_event events[64];
    uint64_t looked = clock_ns();
    for (;;) {
        const int n = epoll_wait(w->epoll, events, 64, 1000);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == (uint32_t)w->stop) return NULL;
            take_event(w, &events[i]);
        }
        if (clock_ms_since(looked) < 900.0) continue;
        looked = clock_ns();
        look_round(w);
    }
}

static mica_status start(watch *w, mica_error *err) {
    struct epoll_event e = {.events = EPOLLIN};
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC);
    if (w->epoll < 0 || w->stop < 0) return fail(err, MICA_E_IO, "watch: epoll: %s", strerror(errno));
    e.data.u64 = (uint32_t)w->stop;
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->stop, &e) != 0)
        return fail(err, MICA_E_IO, "watch: epoll: %s", strerror(errno));
    const int rc = pthread_create(&w->thread, NULL, watch_loop, w);
    if (rc != 0) return fail(err, MICA_E_NOMEM, "watch: thread: %s", strerror(rc));
    w->running = true;
    return MICA_OK;
}

mica_status watch_new(watch **out, unsigned receive_s, unsigned ping_s, mica_error *err) {
    *out = NULL;
    watch *w = mem_calloc(1, sizeof *w);
    if (!w) return fail(err, MICA_E_NOMEM, "watch: out of memory");
    pthread_mutex_init(&w->lock, NULL);
    w->epoll = w->stop = -1;
    w->receive_ns = receive_s * UINT64_C(1000000000);
    w->ping_ns = ping_s * UINT64_C(1000000000);
    const mica_status st = start(w, err);
    if (st != MICA_OK)
        watch_free(w);
    else
        *out = w;
    return st;
}

void watch_free(watch *w) {
    if (!w) return;
    const uint64_t one = 1;
    if (w->running && write(w->stop, &one, sizeof one) == sizeof one) pthread_join(w->thread, NULL);
    if (w->epoll >= 0) close(w->epoll);
    if (w->stop >= 0) close(w->stop);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->at);
    mem_free(w);
}

/* The entry of a socket; NULL when out of memory. Called with the lock held. */
static entry *entry_of(watch *w, int fd) {
    if ((size_t)fd < w->n) return &w->at[fd];
    const size_t n = ((size_t)fd + 64) / 64 * 64;
    entry *at = mem_realloc(w->at, n * sizeof *at);
    if (!at) return NULL;
    memset(at + w->n, 0, (n - w->n) * sizeof *at);
    w->at = at;
    w->n = n;
    return &w->at[fd];
}

static void await_request(watch *w, int fd) {
    entry *e = entry_of(w, fd);
    if (++w->generation == 0) w->generation = 1;
    if (e) *e = (entry){.phase = PHASE_IDLE, .generation = w->generation};
}

void watch_opened(watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    w->n_open++;
    await_request(w, fd);
    if ((size_t)fd < w->n) begin_request(w, &w->at[fd]); // who connects has something to say
    arm(w, fd);
    pthread_mutex_unlock(&w->lock);
}

void watch_closed(watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
    w->n_open--;
    if ((size_t)fd < w->n) w->at[fd] = (entry){0};
    pthread_mutex_unlock(&w->lock);
}

void watch_begun(watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    entry *e = entry_of(w, fd);
    if (e && e->phase == PHASE_IDLE) begin_request(w, e);
    pthread_mutex_unlock(&w->lock);
}

bool watch_received(watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    entry *e = entry_of(w, fd);
    const bool in_time = !e || e->phase == PHASE_COMING || e->phase == PHASE_IDLE;
    if (e && in_time) e->phase = PHASE_AT_WORK;
    pthread_mutex_unlock(&w->lock);
    return in_time;
}

void watch_flow(watch *w, int fd, flow *f) {
    pthread_mutex_lock(&w->lock);
    entry *e = entry_of(w, fd);
    if (e) e->f = f;
    arm(w, fd);
    pthread_mutex_unlock(&w->lock);
}

void watch_answered(watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    await_request(w, fd);
    arm(w, fd);
    pthread_mutex_unlock(&w->lock);
}

size_t watch_count(watch *w) {
    pthread_mutex_lock(&w->lock);
    const size_t n = w->n_open;
    pthread_mutex_unlock(&w->lock);
    return n;
}
