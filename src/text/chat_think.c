/* Thinking: which variables of a template turn it on and off or take an effort, and how a caller's wish
 * becomes values of them.
 *
 * Efforts are a ladder (minimal low medium high xhigh max). Templates know some of its rungs and may raise on
 * the others, so each rung is tried once; a wish goes to the nearest rung that works, upwards when two are as
 * near. A template that prints whatever it is given is taken to know low, medium, high and what its text
 * names. */
#include "text/chat_int.h"

static const struct {
    const char *name;
    const char *on, *off; // NULL: the booleans
} SWITCH[] = {
    {"enable_thinking", NULL, NULL}, {"thinking", NULL, NULL}, {"thinking_mode", "enabled", "disabled"}};

enum { N_SWITCH = sizeof SWITCH / sizeof *SWITCH };

static const char *const EFFORT_VARIABLE[] = {"reasoning_effort", "thinking_effort"};
static const char *const EFFORT[CHAT_EFFORT_N] = {"minimal", "low", "medium", "high", "xhigh", "max"};

const char *chat_effort_name(chat_effort e) {
    return EFFORT[e];
}

void chat_think_markers(chat_format *f, const char *source) {
    static const struct {
        const char *in_source, *begin, *end;
    } pair[] = {{"<|channel>", "<|channel>thought\n", "<channel|>"},
                {"</think>", "<think>", "</think>"},
                {"[/THINK]", "[THINK]", "[/THINK]"},
                {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
                {"</seed:think>", "<seed:think>", "</seed:think>"},
                {"<|inner_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        if (!strstr(source, pair[i].in_source)) continue;
        f->think_begin = pair[i].begin;
        f->think_end = pair[i].end;
        return;
    }
}

static slice trimmed(slice s) {
    while (s.n && strchr(" \t\r\n", s.p[s.n - 1])) s.n--;
    return s;
}

static bool ends_with(slice s, slice end) {
    return s.n >= end.n && memcmp(s.p + s.n - end.n, end.p, end.n) == 0;
}

chat_thinking chat_think_after(const chat_format *f, slice prompt) {
    if (!f->think_begin || !f->think_end) return CHAT_THINK_OVER;
    prompt = trimmed(prompt);
    if (ends_with(prompt, trimmed(slice_of(f->think_begin)))) return CHAT_THINK_INSIDE;
    return ends_with(prompt, trimmed(slice_of(f->think_end))) ? CHAT_THINK_OVER : CHAT_THINK_MAY;
}

static bool set_switch(json_t *context, size_t i, bool on) {
    const char *word = on ? SWITCH[i].on : SWITCH[i].off;
    return json_object_set_new(context, SWITCH[i].name, word ? json_string(word) : json_boolean(on)) == 0;
}

/* ---- probing ---- */

/* base with one variable more; value is consumed. text NULL: raised. */
static jinja_output render_with(const chat_variant *v, const json_t *tokens, const json_t *base,
                                const char *name, json_t *value) {
    jinja_output out = {0};
    json_t *context = json_copy((json_t *)base);
    if (context && json_object_set_new(context, name, value) == 0)
        chat_variant_render(&out, v, tokens, context, 0, NULL);
    else
        json_decref(context);
    return out;
}

static bool same_text(const jinja_output *a, const jinja_output *b) {
    return a->n == b->n && memcmp(a->text, b->text, a->n) == 0;
}

static bool switch_works(const chat_variant *v, const json_t *tokens, const json_t *base, size_t i) {
    const char *on_word = SWITCH[i].on, *off_word = SWITCH[i].off;
    if (!jinja_names(v->t, SWITCH[i].name)) return false;
    jinja_output on =
        render_with(v, tokens, base, SWITCH[i].name, on_word ? json_string(on_word) : json_true());
    jinja_output off =
        render_with(v, tokens, base, SWITCH[i].name, off_word ? json_string(off_word) : json_false());
    bool works = on.text && off.text && !same_text(&on, &off);
    jinja_output_fini(&on);
    jinja_output_fini(&off);
    return works;
}

static bool source_names(const char *source, const char *word) {
    char quoted[2][16];
    snprintf(quoted[0], sizeof quoted[0], "'%s'", word);
    snprintf(quoted[1], sizeof quoted[1], "\"%s\"", word);
    return strstr(source, quoted[0]) || strstr(source, quoted[1]);
}

static void probe_efforts(chat_variant *v, const json_t *tokens, const json_t *base, const char *name) {
    jinja_output out[CHAT_EFFORT_N];
    int n_good = 0;
    bool echoes = true;
    for (int e = 0; e < CHAT_EFFORT_N; e++) {
        out[e] = render_with(v, tokens, base, name, json_string(EFFORT[e]));
        v->can.effort[e] = out[e].text != NULL;
        n_good += out[e].text != NULL;
        echoes = echoes && out[e].text && memmem(out[e].text, out[e].n, EFFORT[e], strlen(EFFORT[e]));
    }
    bool differ = false;
    for (int e = 1; e < CHAT_EFFORT_N; e++)
        differ = differ || !out[0].text || !out[e].text || !same_text(&out[0], &out[e]);
    if (n_good && differ) v->can.effort_name = name;
    for (int e = 0; echoes && e < CHAT_EFFORT_N; e++)
        v->can.effort[e] = (e >= CHAT_LOW && e <= CHAT_HIGH) || source_names(v->source, EFFORT[e]);
    for (int e = 0; e < CHAT_EFFORT_N; e++) jinja_output_fini(&out[e]);
}

void chat_think_probe(chat_variant *v, const json_t *tokens, const json_t *base) {
    json_t *on = json_copy((json_t *)base);
    for (size_t i = 0; on && i < N_SWITCH; i++) {
        if (!switch_works(v, tokens, base, i)) continue;
        v->switches |= 1u << i;
        set_switch(on, i, true);
    }
    v->can.switches_thinking = v->switches != 0;
    for (size_t i = 0; on && i < sizeof EFFORT_VARIABLE / sizeof *EFFORT_VARIABLE; i++)
        if (!v->can.effort_name && jinja_names(v->t, EFFORT_VARIABLE[i]))
            probe_efforts(v, tokens, on, EFFORT_VARIABLE[i]);
    json_decref(on);
}

/* ---- a wish ---- */

/* The rung of a word: -1 for none (thinking off), -2 for no such word. */
static int rung_of(const char *word) {
    if (strcmp(word, "none") == 0) return -1;
    for (int e = 0; e < CHAT_EFFORT_N; e++)
        if (strcmp(word, EFFORT[e]) == 0) return e;
    return -2;
}

static int nearest(const chat_abilities *can, int want) {
    for (int d = 0; d < CHAT_EFFORT_N; d++) {
        if (want + d < CHAT_EFFORT_N && can->effort[want + d]) return want + d;
        if (want - d >= 0 && can->effort[want - d]) return want - d;
    }
    return want;
}

/* Turns thinking on or off where the caller's own kwargs do not say. */
static mica_status put_switches(json_t *context, const chat_variant *v, bool on, mica_error *err) {
    for (size_t i = 0; i < N_SWITCH; i++) {
        bool theirs = json_object_get(context, SWITCH[i].name) != NULL;
        if (!(v->switches & (1u << i)) || theirs) continue;
        if (!set_switch(context, i, on)) return fail(err, MICA_E_NOMEM, "think: out of memory");
    }
    return MICA_OK;
}

static mica_status put_effort(json_t *context, const chat_variant *v, int rung, mica_error *err) {
    const chat_abilities *can = &v->can;
    if (!can->effort_name) return MICA_OK;
    // without a switch the least effort is the nearest to none
    int e = nearest(can, rung < 0 ? 0 : rung);
    if (rung < 0 && v->switches) return MICA_OK;
    if (json_object_set_new(context, can->effort_name, json_string(EFFORT[e])) == 0) return MICA_OK;
    return fail(err, MICA_E_NOMEM, "think: out of memory");
}

static mica_status apply_rung(json_t *context, const chat_variant *v, int rung, mica_error *err) {
    TRY(put_switches(context, v, rung >= 0, err));
    return put_effort(context, v, rung, err);
}

static mica_status unknown(mica_error *err, const char *what, const char *word) {
    return fail(err, MICA_E_ARG, "%s: '%.40s': not on, off, none, minimal, low, medium, high, xhigh or max",
                what, word);
}

/* An effort in kwargs, under either name, becomes one the template takes, under its name for it. */
static mica_status apply_kwargs(json_t *context, const chat_variant *v, bool *found, mica_error *err) {
    for (size_t i = 0; i < sizeof EFFORT_VARIABLE / sizeof *EFFORT_VARIABLE; i++) {
        const json_t *given = json_object_get(context, EFFORT_VARIABLE[i]);
        if (!given || json_is_null(given)) continue;
        const char *word = json_string_value(given);
        if (!word) return fail(err, MICA_E_ARG, "%s: must be a string", EFFORT_VARIABLE[i]);
        int rung = rung_of(word);
        if (rung == -2) return unknown(err, EFFORT_VARIABLE[i], word);
        json_object_del(context, EFFORT_VARIABLE[i]);
        *found = true;
        TRY(apply_rung(context, v, rung, err));
    }
    return MICA_OK;
}

mica_status chat_think_apply(json_t *context, const chat_variant *v, const char *think, mica_error *err) {
    bool found = false;
    TRY(apply_kwargs(context, v, &found, err));
    if (!think || found) return MICA_OK; // what a request says of itself goes before a default
    if (strcmp(think, "on") == 0) return put_switches(context, v, true, err);
    int rung = strcmp(think, "off") == 0 ? -1 : rung_of(think);
    if (rung == -2) return unknown(err, "think", think);
    return apply_rung(context, v, rung, err);
}
