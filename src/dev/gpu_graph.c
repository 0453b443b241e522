/* Decode as one graph: the launches of a step are captured once for each shape and replayed. What changes
 * from step to step (tokens, positions, runs, tables) is in device memory; what launch geometry depends on is
 * the graph's key. Steps with prompt rows are launched as they are: their shapes hardly come twice. */
#include "dev/gpu_tiers.h"

#include <string.h>

static uint32_t pow2_at_least(uint32_t n) {
    uint32_t p = KV_PAGE;
    while (p < n && p < 1u << 31) p *= 2;
    return p;
}

static bool same_key(const dev_step *a, const dev_step *b) {
    return a->n_row == b->n_row && a->n_out == b->n_out && a->n_run == b->n_run && a->n_kv == b->n_kv &&
           a->part == b->part; // no prompt rows in either
}

/* The slot of this key, or the one unused longest. */
static step_graph *slot_of(gpu_own *o, const dev_step *key) {
    step_graph *oldest = &o->graph[0];
    for (int i = 0; i < GPU_GRAPH_MAX; i++) {
        step_graph *s = &o->graph[i];
        if (s->last && same_key(&s->key, key)) return s;
        if (s->last < oldest->last) oldest = s;
    }
    if (oldest->exec) o->v->exec_free(oldest->exec);
    *oldest = (step_graph){.key = *key};
    return oldest;
}

mica_status gpu_step_begin(dev *d, const dev_step *s, bool *done, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    dev_step key = *s;
    key.n_kv = g->n_kv = pow2_at_least(s->n_kv);
    *done = false;
    o->capturing = NULL;
    TRY(gpu_enter(g, err));
    TRY(gpu_moves_turn(g, s, err));
    if (s->n_prompt > 0) return MICA_OK;
    step_graph *slot = slot_of(o, &key);
    bool seen = slot->last > 0;
    slot->last = ++o->n_step;
    int rc = 0;
    if (slot->exec) {
        rc = o->v->exec_launch(slot->exec, o->stream);
        *done = rc == 0;
    } else if (seen) {
        rc = o->v->capture_begin(o->stream, GPU_CAPTURE_THREAD);
        if (rc == 0) o->capturing = slot;
    }
    return rc ? gpu_fail(g, rc, err, "step") : MICA_OK;
}

mica_status gpu_step_end(dev *d, bool ok, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_own *o = g->own;
    step_graph *slot = o->capturing;
    void *graph = NULL;
    if (!slot) return MICA_OK;
    o->capturing = NULL;
    int rc = o->v->capture_end(o->stream, &graph);
    if (rc == 0 && ok) rc = o->v->exec_new(&slot->exec, graph, 0);
    if (graph) o->v->graph_free(graph);
    if (!ok) return MICA_OK; // the call that failed has been told
    if (rc) {
        slot->exec = NULL;
        return gpu_fail(g, rc, err, "capturing a step");
    }
    rc = o->v->exec_launch(slot->exec, o->stream);
    return rc ? gpu_fail(g, rc, err, "step") : MICA_OK;
}

void gpu_graphs_fini(gpu *g) {
    gpu_own *o = g->own;
    for (int i = 0; i < GPU_GRAPH_MAX; i++) {
        if (o->graph[i].exec) o->v->exec_free(o->graph[i].exec);
        o->graph[i] = (step_graph){0};
    }
}
