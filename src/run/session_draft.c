/* Drafts: by the model's own block, for several sessions at once, or by looking into the text. */
#include "run/session_int.h"

/* The pairs that became known with `next`: for every row of the last step that happened, or only the last
 * when the engine has made another step since. */
static uint32_t known_pairs(const session *s, int32_t next, draft_row *rows) {
    bool fresh = s->step == engine_step_count(s->e) && s->n_accepted > 1;
    uint32_t n = fresh ? s->n_accepted : 1;
    for (uint32_t i = 0; i < n; i++) {
        size_t pos = s->n - n + i;
        rows[i] = (draft_row){.tok = i + 1 < n ? s->ids[pos + 1] : next, .seq = s->slot, .pos = (int32_t)pos};
        rows[i].h_row = i + 1 < n ? engine_row_of(s->e, s->slot) + (int32_t)i : DRAFT_KEPT;
        rows[i].want = i + 1 == n;
    }
    return n;
}

/* The first call of the block: what became known of every session, then the wanted rows continue. */
static uint32_t first_rows(session_draft *d, size_t n, draft_row *rows) {
    uint32_t n_row = 0;
    for (size_t i = 0; i < n; i++) {
        d[i].n = 0;
        d[i].live = d[i].n_max > 0 && d[i].s->n > 0;
        if (d[i].live) n_row += known_pairs(d[i].s, d[i].next, rows + n_row);
    }
    return n_row;
}

/* Takes a draft of each live session from the block's last call, and makes the rows of the next. */
static uint32_t next_rows(session_draft *d, size_t n, draft_row *rows) {
    const engine *e = d[0].s->e;
    uint32_t n_row = 0, out = 0;
    for (size_t i = 0; i < n; i++) {
        session_draft *x = &d[i];
        if (!x->live) continue;
        uint64_t pos = x->s->n + 1 + x->n;
        uint32_t mine = out++;
        x->live = x->pick(x->user, engine_logits(e, mine), pos, &x->ids[x->n]) && ++x->n < x->n_max;
        if (!x->live) continue;
        rows[n_row++] = (draft_row){.tok = x->ids[x->n - 1],
                                    .seq = x->s->slot,
                                    .pos = (int32_t)pos - 1,
                                    .h_row = (int32_t)mine,
                                    .want = true};
    }
    return n_row;
}

mica_status session_draft_run(session_draft *d, size_t n, mica_error *err) {
    for (size_t i = 0; i < n; i++) d[i].n = 0;
    if (n == 0 || !engine_drafts(d[0].s->e)) return MICA_OK;
    draft_row *rows = d[0].s->pairs;
    uint32_t n_row = first_rows(d, n, rows);
    for (bool chain = false; n_row > 0; chain = true) {
        TRY(engine_draft(d[0].s->e, rows, n_row, chain, err));
        n_row = next_rows(d, n, rows);
    }
    return MICA_OK;
}

enum { LOOKUP_GRAM = 3, LOOKUP_REACH = 8192 }; // tokens that must agree; how far back is looked

uint32_t session_lookup(const session *s, int32_t next, uint32_t n_max, int32_t *drafts) {
    if (s->n < LOOKUP_GRAM) return 0;
    size_t first = s->n > LOOKUP_REACH ? s->n - LOOKUP_REACH : 0;
    for (size_t at = s->n; at-- > first + LOOKUP_GRAM - 1;) { // at: where `next` stood before
        if (s->ids[at] != next) continue;
        size_t k = 1;
        while (k < LOOKUP_GRAM && s->ids[at - k] == s->ids[s->n - k]) k++;
        if (k < LOOKUP_GRAM) continue;
        uint32_t n = 0;
        while (n < n_max && at + 1 + n < s->n) {
            drafts[n] = s->ids[at + 1 + n];
            n++;
        }
        return n;
    }
    return 0;
}
