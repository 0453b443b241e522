/* Grammars as their users see them: a place, and the core it shares with its clones. */
#include "text/grammar.h"

#include "base/mem.h"
#include "text/grammar_int.h"
#include "text/vocab_int.h"

/* ---- the core ---- */

static void core_free(gram_core *c) {
    if (!c) return;
    gram_table_fini(&c->table);
    gram_program_fini(&c->program);
    mem_free(c->walker.at);
    mem_free(c->walker.bits);
    mem_free(c->walker.out);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* Trims the table when it is over its bound; under lock. */
static mica_status core_trim(gram_core *c, mica_error *err) {
    uint32_t n = 1, k = 0;
    if (gram_table_bytes(&c->table) <= GRAM_MAX_BYTES) return MICA_OK;
    for (const grammar *g = c->first; g; g = g->behind) n++;
    uint32_t **keep = mem_alloc(n * sizeof *keep);
    if (!keep) return fail(err, MICA_E_NOMEM, "grammar: out of memory");
    keep[k++] = &c->begin;
    for (grammar *g = c->first; g; g = g->behind) keep[k++] = &g->place;
    mica_status st = gram_table_trim(&c->table, keep, n, err);
    mem_free(keep);
    if (st == MICA_OK && gram_table_bytes(&c->table) > GRAM_MAX_BYTES)
        st = fail(err, MICA_E_ARG, "grammar: nested so deep that its tables are over %d MiB",
                  GRAM_MAX_BYTES >> 20);
    return st;
}

/* Why a place could not be made. */
static mica_status core_failure(gram_core *c, mica_error *err) {
    if (c->table.no_memory || c->table.too_many) return gram_table_failure(&c->table, err);
    return fail(err, MICA_E_ARG, "grammar: more than %d readings to look at for one token", GRAM_MAX_WORK);
}

static mica_status core_new(gram_core **out, const text_vocab *v, const token_trie *trie, mica_error *err) {
    gram_core *c = *out = mem_calloc(1, sizeof *c);
    if (!c) return fail(err, MICA_E_NOMEM, "grammar: out of memory");
    pthread_mutex_init(&c->lock, NULL);
    c->vocab = v;
    c->trie = trie;
    c->walker.at = mem_alloc((trie->max_depth + 1u) * sizeof *c->walker.at);
    c->walker.bits = mem_alloc((trie->n_vocab + 7) / 8 + 1u);
    if (c->walker.at && c->walker.bits) return MICA_OK;
    core_free(c);
    *out = NULL;
    return fail(err, MICA_E_NOMEM, "grammar: out of memory");
}

/* ---- making grammars ---- */

static void link_in(grammar *g) {
    gram_core *c = g->core;
    g->before = NULL;
    g->behind = c->first;
    if (c->first) c->first->before = g;
    c->first = g;
    c->n_ref++;
}

mica_status gram_finish(grammar **out, gram *g, uint32_t root, mica_error *err) {
    gram_core *c = NULL;
    grammar *made = mem_calloc(1, sizeof *made);
    mica_status st = made ? MICA_OK : fail(err, MICA_E_NOMEM, "grammar: out of memory");
    *out = NULL;
    if (st == MICA_OK) st = core_new(&c, g->vocab, g->trie, err);
    if (st == MICA_OK && gram_compile(&c->program, g, root) != MICA_OK)
        st = fail(err, g->st, "%s", g->err.text);
    if (st == MICA_OK) st = gram_table_init(&c->table, &c->program, err);
    if (st == MICA_OK) {
        c->begin = gram_place_begin(&c->table);
        if (c->begin == GRAM_NONE) st = core_failure(c, err);
    }
    if (st != MICA_OK) {
        core_free(c);
        mem_free(made);
        return st;
    }
    made->core = c;
    made->place = c->begin;
    link_in(made);
    *out = made;
    return MICA_OK;
}

mica_status grammar_new_gbnf(grammar **out, const text_vocab *v, slice text, mica_error *err) {
    gram g;
    const token_trie *trie;
    uint32_t root;
    *out = NULL;
    TRY(text_vocab_trie(&trie, v, err));
    TRY(gram_init(&g, v, trie, err));
    mica_status st = MICA_OK;
    if (gram_read_gbnf(&g, text, &root) != MICA_OK)
        st = fail(err, g.st, "%s", g.err.text);
    else
        st = gram_finish(out, &g, root, err);
    gram_fini(&g);
    return st;
}

mica_status grammar_clone(grammar **out, const grammar *g, mica_error *err) {
    grammar *made = *out = mem_calloc(1, sizeof *made);
    if (!made) return fail(err, MICA_E_NOMEM, "grammar: out of memory");
    pthread_mutex_lock(&g->core->lock);
    made->core = g->core;
    made->place = g->place;
    made->ended = g->ended;
    link_in(made);
    pthread_mutex_unlock(&made->core->lock);
    return MICA_OK;
}

void grammar_copy(grammar *to, const grammar *from) {
    pthread_mutex_lock(&to->core->lock);
    to->place = from->place;
    to->ended = from->ended;
    pthread_mutex_unlock(&to->core->lock);
}

void grammar_reset(grammar *g) {
    pthread_mutex_lock(&g->core->lock);
    g->place = g->core->begin;
    g->ended = false;
    pthread_mutex_unlock(&g->core->lock);
}

void grammar_free(grammar *g) {
    if (!g) return;
    gram_core *c = g->core;
    pthread_mutex_lock(&c->lock);
    if (g->before)
        g->before->behind = g->behind;
    else
        c->first = g->behind;
    if (g->behind) g->behind->before = g->before;
    const bool last = --c->n_ref == 0;
    pthread_mutex_unlock(&c->lock);
    mem_free(g);
    if (last) core_free(c);
}

/* ---- using them ---- */

static mica_status mask_locked(grammar *g, uint8_t *bits, mica_error *err) {
    gram_core *c = g->core;
    if (g->ended) {
        memset(bits, 0, (c->trie->n_vocab + 7) / 8);
        for (uint32_t i = 0; i < c->trie->n_end; i++)
            bits[c->trie->end[i] >> 3] |= (uint8_t)(1u << (c->trie->end[i] & 7));
        return MICA_OK;
    }
    TRY(core_trim(c, err));
    c->table.effort = 0;
    return gram_mask_place(c, g->place, bits) ? MICA_OK : core_failure(c, err);
}

mica_status grammar_mask(grammar *g, uint8_t *bits, mica_error *err) {
    pthread_mutex_lock(&g->core->lock);
    mica_status st = mask_locked(g, bits, err);
    pthread_mutex_unlock(&g->core->lock);
    return st;
}

/* The place behind the token's bytes; PLACE_DEAD when it is no text. */
static uint32_t after_text(gram_core *c, uint32_t place, int32_t id) {
    const slice s = text_vocab_bytes(c->vocab, id);
    if (text_vocab_is_control(c->vocab, id) || c->vocab->kind[id] == TEXT_KIND_NEVER || !s.n)
        return PLACE_DEAD;
    for (size_t i = 0; i < s.n && place != PLACE_DEAD && place != GRAM_NONE; i++)
        place = gram_place_step(&c->table, place, (uint8_t)s.p[i]);
    return place;
}

static mica_status refuse(int32_t id, mica_error *err) {
    return fail(err, MICA_E_ARG, "grammar: token %d: may not come here", id);
}

static mica_status accept_locked(grammar *g, int32_t id, mica_error *err) {
    gram_core *c = g->core;
    if (id < 0 || (uint32_t)id >= c->trie->n_vocab)
        return fail(err, MICA_E_ARG, "grammar: token %d: the vocabulary has %u", id, c->trie->n_vocab);
    if (text_vocab_ends(c->vocab, id)) {
        if (!g->ended && !(c->table.place[g->place].flags & PLACE_END)) return refuse(id, err);
        g->ended = true;
        return MICA_OK;
    }
    if (g->ended) return refuse(id, err);
    TRY(core_trim(c, err));
    c->table.effort = 0;
    uint32_t p = after_text(c, g->place, id);
    if (p != GRAM_NONE) p = gram_place_token(&c->table, g->place, p, id, text_vocab_is_control(c->vocab, id));
    if (p == GRAM_NONE) return core_failure(c, err);
    if (p == PLACE_DEAD) return refuse(id, err);
    g->place = p;
    return MICA_OK;
}

mica_status grammar_accept(grammar *g, int32_t id, mica_error *err) {
    pthread_mutex_lock(&g->core->lock);
    mica_status st = accept_locked(g, id, err);
    pthread_mutex_unlock(&g->core->lock);
    return st;
}

bool grammar_may_end(const grammar *g) {
    pthread_mutex_lock(&g->core->lock);
    const bool may = g->ended || g->core->table.place[g->place].flags & PLACE_END;
    pthread_mutex_unlock(&g->core->lock);
    return may;
}
