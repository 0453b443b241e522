/* The states of a model's answer:
 *
 *     START --<think>--> THINK --</think>--> START ... --anything else--> TEXT --<tool_call>--> CALL --end-->
 * START
 *
 * `buf` holds what is not given out yet; every state gives out what it is sure of and keeps the rest. */
#include "text/answer_int.h"

#include "base/mem.h"

typedef enum state { START, THINK, TEXT, CALL, BARE } state;

struct answer {
    answer_options opt;
    json_t *tools; // owned reference, or NULL
    state state;
    bool drop_space; // START: blanks here belong to the marker before
    bool thought;    // THINK: something of it was given out already
    strbuf buf;      // not given out yet
    size_t at;       // where buf's live part begins
    size_t seen;     // CALL: how much of the live part was searched for the end marker
    strbuf gap;      // the blanks before a call's marker, for the case that it is none
    bool begun;      // CALL: its name was given
    size_t n_given;  // ... and so many bytes of its arguments
    size_t n_looked; // CALL: how long the live part was when it was last read for more
    int n_call;
};

/* ---- markers ---- */

static slice call_begin(const answer *a) {
    if (!a->tools) return (slice){NULL, 0};
    switch (a->opt.format.family) {
    case CHAT_HERMES:
    case CHAT_QWEN_XML: return SLICE_LIT("<tool_call>");
    case CHAT_GEMMA4: return SLICE_LIT("<|tool_call>");
    default: return (slice){NULL, 0};
    }
}

static slice call_end(const answer *a) {
    return a->opt.format.family == CHAT_GEMMA4 ? SLICE_LIT("<tool_call|>") : SLICE_LIT("</tool_call>");
}

static slice think_begin(const answer *a) {
    const char *s = a->opt.format.think_begin;
    return s ? slice_of(s) : (slice){NULL, 0};
}

static slice think_end(const answer *a) {
    return slice_of(a->opt.format.think_end);
}

static slice live(const answer *a) {
    return (slice){a->buf.p ? a->buf.p + a->at : "", a->buf.n - a->at};
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static slice from(slice s, size_t i) {
    return (slice){s.p + i, s.n - i};
}
static slice upto(slice s, size_t n) {
    return (slice){s.p, n};
}

static size_t blanks_in_front(slice s) {
    size_t i = 0;
    while (i < s.n && is_blank(s.p[i])) i++;
    return i;
}

/* Blanks before a marker go with it: up to MAX_BLANKS of them, so that no more are ever held back. */
enum { MAX_BLANKS = 64 };

static size_t without_blanks_behind(slice s) {
    for (int i = 0; i < MAX_BLANKS && s.n && is_blank(s.p[s.n - 1]); i++) s.n--;
    return s.n;
}

/* s could become mark: it is a proper prefix of it. */
static bool may_become(slice s, slice mark) {
    return s.n < mark.n && memcmp(s.p, mark.p, s.n) == 0;
}

/* How many bytes at the end of s may be the beginning of mark. */
static size_t overlap(slice s, slice mark) {
    size_t n = s.n < mark.n ? s.n : mark.n - 1;
    while (n && memcmp(s.p + s.n - n, mark.p, n) != 0) n--;
    return n;
}

static bool find(slice s, slice mark, size_t *at) {
    const char *p = s.n >= mark.n ? memmem(s.p, s.n, mark.p, mark.n) : NULL;
    if (p) *at = (size_t)(p - s.p);
    return p != NULL;
}

/* ---- giving out ---- */

static void give(answer *a, answer_kind kind, slice text) {
    if (text.n) a->opt.fn(a->opt.user, &(answer_piece){.kind = kind, .text = text});
}

static void give_mark(answer *a, slice text) {
    if (a->opt.marks) give(a, ANSWER_MARK, text);
}

static void consume(answer *a, size_t n) {
    a->at += n;
    a->seen = 0;
    if (a->at == a->buf.n) {
        strbuf_clear(&a->buf);
        a->at = 0;
    } else if (a->at > 4096 && a->at > a->buf.n / 2) {
        memmove(a->buf.p, a->buf.p + a->at, a->buf.n - a->at + 1);
        a->buf.n -= a->at;
        a->at = 0;
    }
}

static void enter(answer *a, state s) {
    a->state = s;
    a->thought = false;
    a->seen = 0;
    a->n_looked = 0;
}

/* ---- one step of each state: true when it got on, false when it waits for more ---- */

static bool step_start(answer *a, bool end) {
    slice s = live(a), mark = think_begin(a), tag = SLICE_LIT("<|python_tag|>");
    size_t blanks = blanks_in_front(s);
    slice rest = from(s, blanks);
    if (a->drop_space && blanks) {
        give_mark(a, upto(s, blanks));
        consume(a, blanks);
        return true;
    }
    if (mark.n && slice_starts(rest, mark) && blanks < MAX_BLANKS) {
        give_mark(a, upto(s, blanks + mark.n));
        consume(a, blanks + mark.n);
        enter(a, THINK);
        return true;
    }
    if (!end && mark.n && may_become(rest, mark) && blanks < MAX_BLANKS) return false;
    if (a->tools && a->opt.format.family == CHAT_LLAMA3) {
        bool tagged = slice_starts(rest, tag);
        if (!end && may_become(rest, tag)) return false;
        if (tagged || (rest.n && (rest.p[0] == '{' || rest.p[0] == '['))) {
            enter(a, BARE);
            return true;
        }
    }
    if (!rest.n && !end && blanks < MAX_BLANKS) return false;
    enter(a, TEXT);
    return true;
}

static bool step_think(answer *a, bool end) {
    slice s = live(a);
    size_t at, keep;
    if (!a->thought) { // the line end behind the marker
        size_t blanks = 0;
        while (blanks < s.n && (s.p[blanks] == '\n' || s.p[blanks] == '\r')) blanks++;
        if (blanks) {
            give_mark(a, upto(s, blanks));
            consume(a, blanks);
            return true;
        }
        a->thought = s.n > 0;
    }
    if (find(s, think_end(a), &at)) {
        const size_t n = without_blanks_behind(upto(s, at));
        give(a, ANSWER_THINK, upto(s, n));
        give_mark(a, (slice){s.p + n, at + think_end(a).n - n});
        consume(a, at + think_end(a).n);
        enter(a, START);
        a->drop_space = true;
        return true;
    }
    keep = end ? 0 : overlap(s, think_end(a));
    size_t sure = without_blanks_behind(upto(s, s.n - keep));
    give(a, ANSWER_THINK, upto(s, sure));
    if (end) give_mark(a, from(s, sure));
    consume(a, end ? s.n : sure);
    return false;
}

static bool step_text(answer *a, bool end) {
    slice s = live(a), mark = call_begin(a);
    size_t at, sure = s.n;
    if (mark.n && find(s, mark, &at)) {
        sure = without_blanks_behind(upto(s, at));
        give(a, ANSWER_TEXT, upto(s, sure));
        strbuf_clear(&a->gap);
        strbuf_put(&a->gap, s.p + sure, at - sure);
        consume(a, at + mark.n);
        enter(a, CALL);
        return true;
    }
    if (mark.n && !end) sure = without_blanks_behind(upto(s, s.n - overlap(s, mark)));
    give(a, ANSWER_TEXT, upto(s, sure));
    consume(a, sure);
    return false;
}

/* What looked like a call was none: its marker and all are text. */
static void give_back(answer *a, size_t n_body, bool ended) {
    slice body = upto(live(a), n_body);
    give(a, ANSWER_TEXT, (slice){a->gap.p, a->gap.n});
    give(a, ANSWER_TEXT, call_begin(a));
    give(a, ANSWER_TEXT, body);
    if (ended) give(a, ANSWER_TEXT, call_end(a));
    consume(a, n_body + (ended ? call_end(a).n : 0));
    enter(a, TEXT);
}

/* What of a call was not given before. */
static void give_more(answer *a, const answer_call *c) {
    answer_piece p = {.kind = ANSWER_CALL, .name = {c->name.p, c->name.n}, .index = a->n_call};
    if (!a->begun) a->opt.fn(a->opt.user, &p);
    a->begun = true;
    p = (answer_piece){.kind = ANSWER_ARGS, .index = a->n_call};
    if (c->arguments.n > a->n_given) {
        p.text = (slice){c->arguments.p + a->n_given, c->arguments.n - a->n_given};
        a->opt.fn(a->opt.user, &p);
        a->n_given = c->arguments.n;
    }
}

static void end_call(answer *a) {
    a->opt.fn(a->opt.user, &(answer_piece){.kind = ANSWER_CALL_END, .index = a->n_call});
    a->n_call++;
    a->begun = false;
    a->n_given = 0;
}

static void give_call(answer *a, const answer_call *c) {
    give_more(a, c);
    end_call(a);
}

/* Gives what is certain of a call that may go on. */
static void give_begun(answer *a, slice body) {
    answer_call c = {0};
    const bool known = answer_call_begun(&c, a->opt.format.family, body, a->tools);
    if (known && !c.name.failed && !c.arguments.failed) give_more(a, &c);
    a->buf.failed |= c.name.failed || c.arguments.failed;
    answer_call_fini(&c);
}

static bool take_call(answer *a, slice body) {
    answer_call c = {0};
    bool good =
        answer_call_read(&c, a->opt.format.family, body, a->tools) && !c.name.failed && !c.arguments.failed;
    if (good) give_call(a, &c);
    a->buf.failed |= c.name.failed || c.arguments.failed;
    answer_call_fini(&c);
    return good;
}

/* Behind a call: blanks belong to its marker. */
static void leave_call(answer *a, size_t n) {
    consume(a, n);
    enter(a, START);
    a->drop_space = true;
}

/* The end marker came, and it stands in no string: a call, a broken one, or none. */
static void finish_call(answer *a, slice body) {
    const size_t n = body.n + call_end(a).n;
    give_begun(a, body);
    if (!a->begun) {
        give_back(a, body.n, true);
        return;
    }
    end_call(a);
    leave_call(a, n);
}

static bool step_call(answer *a, bool end) {
    slice s = live(a), mark = call_end(a);
    size_t at, begin = a->seen;
    while (find(from(s, begin), mark, &at)) {
        slice body = upto(s, begin + at);
        if (take_call(a, body)) {
            leave_call(a, body.n + mark.n);
            return true;
        }
        if (!answer_call_open(a->opt.format.family, body)) {
            finish_call(a, body);
            return true;
        }
        begin += at + mark.n; // the marker stood in a string
    }
    a->seen = s.n > begin + mark.n ? s.n - mark.n + 1 : begin;
    if (!end) {
        if (s.n < a->n_looked + a->n_looked / 64)
            return false; // long calls in larger pieces: each is a new reading
        a->n_looked = s.n;
        give_begun(a, upto(s, s.n - overlap(s, mark)));
        return false;
    }
    if (!take_call(a, s)) { // the end marker is missing, the call is not whole either
        give_begun(a, s);
        if (!a->begun) {
            give_back(a, s.n, false);
            return false;
        }
        end_call(a);
    }
    consume(a, s.n);
    return false;
}

/* The answer of a CHAT_LLAMA3 model that began like a call: known for one only at its end. */
static bool step_bare(answer *a, bool end) {
    slice s = live(a), rest, tag = SLICE_LIT("<|python_tag|>");
    int n = 0;
    bool good = true;
    if (!end) return false;
    rest = from(s, blanks_in_front(s));
    if (slice_starts(rest, tag)) rest = from(rest, tag.n);
    for (int pass = 0; pass < 2 && good; pass++) { // all of it must be calls before one is given
        slice left = rest;
        for (n = 0; good && (left.n || !n); n++) {
            answer_call c = {0};
            good = answer_call_read_bare(&c, &left) && !c.name.failed && !c.arguments.failed;
            if (good && pass) give_call(a, &c);
            a->buf.failed |= c.name.failed || c.arguments.failed;
            answer_call_fini(&c);
        }
    }
    if (!good) give(a, ANSWER_TEXT, s);
    consume(a, s.n);
    return false;
}

static bool step(answer *a, bool end) {
    switch (a->state) {
    case START: return step_start(a, end);
    case THINK: return step_think(a, end);
    case TEXT: return step_text(a, end);
    case CALL: return step_call(a, end);
    default: return step_bare(a, end);
    }
}

/* ---- the interface ---- */

mica_status answer_new(answer **out, const answer_options *opt, mica_error *err) {
    answer *a = *out = mem_calloc(1, sizeof *a);
    if (!a) return fail(err, MICA_E_NOMEM, "answer: out of memory");
    a->opt = *opt;
    if (opt->tools && json_array_size(opt->tools)) a->tools = json_incref((json_t *)opt->tools);
    enter(a, opt->in_think && opt->format.think_end ? THINK : START);
    return MICA_OK;
}

void answer_free(answer *a) {
    if (!a) return;
    strbuf_fini(&a->buf);
    strbuf_fini(&a->gap);
    json_decref(a->tools);
    mem_free(a);
}

static mica_status advance(answer *a, bool end, mica_error *err) {
    while (!a->buf.failed && !a->gap.failed && step(a, end)) {
    }
    if (!a->buf.failed && !a->gap.failed) return MICA_OK;
    return fail(err, MICA_E_NOMEM, "answer: %zu bytes: out of memory", a->buf.n);
}

mica_status answer_put(answer *a, slice text, mica_error *err) {
    strbuf_put(&a->buf, text.p, text.n);
    return advance(a, false, err);
}

mica_status answer_end(answer *a, mica_error *err) {
    return advance(a, true, err);
}
