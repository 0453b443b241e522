/* Fibres for the threads of a block.
 *
 * A block's fibres stand in a row. Going from one to the next is a switch of stacks (six registers; ucontext
 * where there is no assembly for it), straight from fibre to fibre: the last one of a wave goes back to the
 * block's loop, which looks where everyone stopped and decides. Stacks are taken once a host thread and stay.
 * Each begins at another offset in its page, else all would meet in the same lines of the cache.
 *
 * Wave operations keep two sets of slots a wave and use them in turns: nobody can be two operations ahead, so
 * what a lane brought stays until everyone has read it. */
#include "dev/simt.h"

#include "base/mem.h"
#include "kern/simt_lane.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

enum { STACK_BYTES = 96 * 1024, WAVE_MAX = 64, N_WAVE_MAX = SIMT_THREADS_MAX / 32, SLOT = 4 };

typedef enum stop { STOP_NEW, STOP_WAVE, STOP_BLOCK, STOP_DONE } stop;

#if defined(__x86_64__)

typedef void *context;

/* Saves the callee's registers on this stack, goes to the other. */
void simt_switch(void **save, void *to);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch, @function\n"
        "simt_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size simt_switch, . - simt_switch\n");

static void context_switch(context *from, context *to) {
    simt_switch(from, *to);
}
/* A stack that looks as if it had been left at the entry of `run`: seven words down, at a call's alignment.
 */
static void context_new(context *c, char *stack, size_t n_bytes, void (*run)(void)) {
    uintptr_t *top = (uintptr_t *)(void *)(stack + (n_bytes & ~(size_t)15));
    *--top = 0;
    *--top = (uintptr_t)run;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    *c = top;
}

#else

#include <ucontext.h>

typedef ucontext_t context;

static void context_switch(context *from, context *to) {
    swapcontext(from, to);
}
static void context_new(context *c, char *stack, size_t n_bytes, void (*run)(void)) {
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = n_bytes;
    c->uc_link = NULL;
    makecontext(c, run, 0);
}

#endif

typedef struct fibre {
    simt_lane lane; // what the kernel sees
    context at;
    struct fibre *next;              // runs after this one within the wave; NULL: back to the loop
    float (*slots)[WAVE_MAX * SLOT]; // of its wave, two sets
    stop stop;
    int where;          // operation or line it stopped at
    uint32_t n_wave_op; // done so far
    size_t shared;      // bytes taken
} fibre;

/* One host thread's processor. */
typedef struct processor {
    fibre fibres[SIMT_THREADS_MAX];
    float slots[N_WAVE_MAX][2][WAVE_MAX * SLOT];
    _Alignas(64) char shared[SIMT_SHARED_MAX];
    size_t shared_used; // by the largest block so far of this call
    char *stacks;
    context loop;
    fibre *now;
    const simt_kernel *kernel;
    const void *args;
    uint32_t n_thread, wave;
    bool shared_over;
} processor;

_Thread_local const simt_lane *simt_me __attribute__((tls_model("initial-exec")));
static _Thread_local processor *g_proc __attribute__((tls_model("initial-exec")));

/* ---- what lanes call ---- */

/* Stops the running lane and goes to the next of the wave. */
static void stop_at(stop s, int where) {
    processor *p = g_proc;
    fibre *f = p->now, *next = f->next;
    f->stop = s;
    f->where = where;
    p->now = next;
    if (next) simt_me = &next->lane;
    context_switch(&f->at, next ? &next->at : &p->loop);
}

void simt_barrier(int line) {
    stop_at(STOP_BLOCK, line);
}

const float *simt_wave(const float *v, uint32_t n, int op) {
    fibre *f = g_proc->now;
    float *slots = f->slots[f->n_wave_op++ & 1];
    memcpy(slots + (size_t)f->lane.lane * SLOT, v, n * sizeof(float));
    stop_at(STOP_WAVE, op);
    return slots;
}

void *simt_shared(size_t n_bytes) {
    processor *p = g_proc;
    fibre *f = p->now;
    size_t at = f->shared, end = at + ((n_bytes + 15) & ~(size_t)15);
    if (end > SIMT_SHARED_MAX) { // told after the block; until then they share the beginning
        p->shared_over = true;
        return p->shared;
    }
    f->shared = end;
    if (end > p->shared_used) p->shared_used = end;
    return p->shared + at;
}

static void run_lane(void) {
    for (;;) {
        g_proc->kernel->lane(g_proc->args);
        stop_at(STOP_DONE, 0);
    }
}

/* ---- the loop ---- */

static char *stack_of(processor *p, uint32_t i) {
    return p->stacks + (size_t)i * STACK_BYTES;
}

static processor *processor_get(void) {
    if (g_proc) return g_proc;
    processor *p = mem_alloc_aligned(64, sizeof *p);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->stacks = mmap(NULL, (size_t)STACK_BYTES * SIMT_THREADS_MAX, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->stacks == MAP_FAILED) {
        mem_free(p);
        return NULL;
    }
    g_proc = p;
    return p;
}

/* What lanes left on their stacks when a block was given up. */
static void stacks_forget(processor *p) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(p->stacks, (size_t)STACK_BYTES * SIMT_THREADS_MAX);
#else
    (void)p;
#endif
}

static void block_begin(processor *p, const uint32_t at[3]) {
    memset(p->shared, 0xFF, p->shared_used);
    memset(p->slots, 0xFF, (p->n_thread + p->wave - 1) / p->wave * sizeof p->slots[0]);
    for (uint32_t i = 0; i < p->n_thread; i++) {
        fibre *f = &p->fibres[i];
        f->lane = (simt_lane){i, i % p->wave, {at[0], at[1], at[2]}};
        f->slots = p->slots[i / p->wave];
        f->stop = STOP_NEW;
        f->n_wave_op = 0;
        f->shared = 0;
        context_new(&f->at, stack_of(p, i), STACK_BYTES - (i * 320u) % 4096u, run_lane);
    }
}

/* Runs the lanes [first, first + wave) that are not done, forwards or backwards, until each has stopped. */
static void wave_run(processor *p, uint32_t first, bool backwards) {
    fibre *head = NULL;
    for (uint32_t k = 0; k < p->wave; k++) {
        fibre *f = &p->fibres[first + (backwards ? k : p->wave - 1 - k)];
        if (f->stop == STOP_DONE) continue;
        f->next = head;
        head = f;
    }
    if (!head) return;
    p->now = head;
    simt_me = &head->lane;
    context_switch(&p->loop, &head->at);
}

/* Words of lanes that are done read as NaN. */
static void wave_mark_done(processor *p, uint32_t first) {
    for (uint32_t i = first; i < first + p->wave; i++) {
        const fibre *f = &p->fibres[i];
        if (f->stop != STOP_DONE) continue;
        for (int k = 0; k < 2; k++)
            memset(f->slots[k] + (size_t)f->lane.lane * SLOT, 0xFF, SLOT * sizeof(float));
    }
}

/* The first lane of [first, first + n) that did not stop where the others did, or NULL. */
static const fibre *odd_one(const processor *p, uint32_t first, uint32_t n, const fibre **other) {
    const fibre *one = NULL;
    for (uint32_t i = first; i < first + n; i++) {
        const fibre *f = &p->fibres[i];
        if (f->stop == STOP_DONE) continue;
        *other = one;
        if (one && (f->stop != one->stop || f->where != one->where || f->n_wave_op != one->n_wave_op))
            return f;
        one = f;
    }
    return NULL;
}

static bool parted(const processor *p, const fibre *f, const fibre *o, char *why, size_t n_why) {
    static const char *const names[] = {"start", "wave operation", "barrier of line", "end"};
    snprintf(why, n_why, "%s: block %u %u %u: thread %u is at %s %d, thread %u at %s %d", p->kernel->name,
             f->lane.block[0], f->lane.block[1], f->lane.block[2], o->lane.thread, names[o->stop], o->where,
             f->lane.thread, names[f->stop], f->where);
    return false;
}

/* One wave up to its next barrier or its end. */
static bool wave_to_barrier(processor *p, uint32_t first, bool backwards, char *why, size_t n_why) {
    for (;;) {
        wave_run(p, first, backwards);
        wave_mark_done(p, first);
        const fibre *other = NULL, *odd = odd_one(p, first, p->wave, &other);
        if (odd) return parted(p, odd, other, why, n_why);
        bool waits = false;
        for (uint32_t i = first; i < first + p->wave; i++) waits |= p->fibres[i].stop == STOP_WAVE;
        if (!waits) return true;
    }
}

static bool block_run(processor *p, const uint32_t at[3], char *why, size_t n_why) {
    bool backwards = (at[0] + at[1] + at[2]) & 1, left = true;
    block_begin(p, at);
    while (left) {
        left = false;
        for (uint32_t k = 0; k < p->n_thread; k += p->wave) {
            uint32_t first = backwards ? p->n_thread - p->wave - k : k;
            if (!wave_to_barrier(p, first, backwards, why, n_why)) return false;
        }
        const fibre *other = NULL;
        uint32_t line = 0;
        for (uint32_t i = 0; i < p->n_thread; i++) {
            const fibre *f = &p->fibres[i];
            if (f->stop == STOP_DONE) continue;
            if (left && (uint32_t)f->where != line) return parted(p, f, other, why, n_why);
            other = f;
            line = (uint32_t)f->where;
            left = true;
        }
    }
    if (!p->shared_over) return true;
    snprintf(why, n_why, "%s: more than %d bytes of shared memory", p->kernel->name, SIMT_SHARED_MAX);
    return false;
}

static bool call_ok(const simt_kernel *k, uint32_t wave, const simt_call *c, char *why, size_t n_why) {
    const char *what = NULL;
    if (c->n_thread == 0 || c->n_thread % 64 != 0 || c->n_thread > k->n_thread)
        what = "threads of a block";
    else if (c->n_args != k->n_args)
        what = "bytes of the record";
    else if (wave != 32 && wave != 64)
        what = "wave";
    if (what) snprintf(why, n_why, "%s: launch: %s: wrong", k->name, what);
    return !what;
}

bool simt_run(uint32_t wave, const simt_call *c, char *why, size_t n_why) {
    const simt_kernel *k = &(wave == 64 ? simt_kernels_64 : simt_kernels_32)[c->kernel];
    return simt_run_kernel(wave, k, c, why, n_why);
}

bool simt_run_kernel(uint32_t wave, const simt_kernel *k, const simt_call *c, char *why, size_t n_why) {
    processor *p = processor_get();
    if (!call_ok(k, wave, c, why, n_why)) return false;
    if (!p) {
        snprintf(why, n_why, "%s: stacks: out of memory", k->name);
        return false;
    }
    p->kernel = k;
    p->args = c->args;
    p->n_thread = c->n_thread;
    p->wave = wave;
    p->shared_over = false;
    p->shared_used = SIMT_SHARED_MAX; // the first block's fill is whole
    uint64_t n_block = (uint64_t)c->grid[0] * c->grid[1] * c->grid[2];
    for (uint64_t i = 0; i < n_block; i++) {
        const uint32_t at[3] = {(uint32_t)(i % c->grid[0]), (uint32_t)(i / c->grid[0] % c->grid[1]),
                                (uint32_t)(i / c->grid[0] / c->grid[1])};
        if (block_run(p, at, why, n_why)) continue;
        stacks_forget(p);
        return false;
    }
    return true;
}
