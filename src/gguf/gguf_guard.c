/* The SIGBUS guard: lost pages of a mapped model read as zeros and are remembered.
 *
 * Why not only check the size before each step: the file can be cut in the middle of one. Why zeros and not a
 * jump out: any thread may be in the middle of anything, with locks held. The step's result is worthless, but
 * the process lives, sees gguf_changed, and ends the request with a message.
 *
 * The handler may only touch lock-free atomics and raw system calls, hence a fixed table. A model beyond the
 * table's end is simply not guarded. Mappings are entered always, the handler is installed only on request.
 */
#include "gguf/gguf_int.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_SLOT = 1024 };

typedef struct guard_slot {
    _Atomic uintptr_t base; // 0: free; 1: being filled
    _Atomic uintptr_t end;
    _Atomic bool lost;
} guard_slot;

static guard_slot g_slot[N_SLOT];
static struct sigaction g_before;
static uintptr_t g_page; // bytes; set before the handler is installed
static _Atomic bool g_installed;

int gguf_guard_add(const void *base, uint64_t size_bytes) {
    for (int i = 0; i < N_SLOT; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&g_slot[i].base, &none, 1)) continue;
        atomic_store(&g_slot[i].lost, false);
        atomic_store(&g_slot[i].end, (uintptr_t)base + (uintptr_t)size_bytes);
        atomic_store(&g_slot[i].base, (uintptr_t)base);
        return i;
    }
    return -1;
}

void gguf_guard_remove(int slot) {
    atomic_store(&g_slot[slot].end, 0);
    atomic_store(&g_slot[slot].base, 0);
}

bool gguf_guard_lost(int slot) {
    return atomic_load(&g_slot[slot].lost);
}

/* Everything from the lost page to the end of the mapping becomes zeros in one go: a cut file has lost all of
 * it, and a fault for each page of a large model would take seconds. */
static bool replace_lost_pages(uintptr_t at) {
    for (int i = 0; i < N_SLOT; i++) {
        uintptr_t base = atomic_load(&g_slot[i].base), end = atomic_load(&g_slot[i].end);
        if (base < 2 || at < base || at >= ((end + g_page - 1) & ~(g_page - 1))) continue;
        uintptr_t from = at & ~(g_page - 1);
        void *p = mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED) return false;
        atomic_store(&g_slot[i].lost, true);
        return true;
    }
    return false;
}

static void on_sigbus(int sig, siginfo_t *si, void *context) {
    (void)context;
    int saved = errno;
    // Not ours: put back what was there; the faulting instruction runs again and faults into it.
    if (si->si_code != BUS_ADRERR || !replace_lost_pages((uintptr_t)si->si_addr))
        sigaction(sig, &g_before, NULL);
    errno = saved;
}

mica_status gguf_guard_install(mica_error *err) {
    if (atomic_exchange(&g_installed, true)) return MICA_OK;
    g_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGBUS, &sa, &g_before) == 0) return MICA_OK;
    atomic_store(&g_installed, false);
    return fail(err, MICA_E_INTERNAL, "guard: sigaction: %s", strerror(errno));
}
