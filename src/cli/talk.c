/* One conversation. The messages are the truth: each question is rendered from all of them, and the session
 * finds out by itself how much of that it has read already. */
#include "cli/talk.h"

#include "base/mem.h"
#include "base/status.h"
#include "cli/exit.h"
#include "cli/print.h"
#include "cli/sampling.h"
#include "cli/speak.h"
#include "cli/term.h"

#include <stdlib.h>
#include <string.h>

/* ---- What the flags ask for ---- */

static void sampling_of(talk *t, const options *o) {
    t->sampling = t->model->info.sampling;
    sampling_flags(&t->sampling, o);
    t->seed_is_random = o->seed < 0;
}

static mica_status draft_of(talk *t, const options *o, mica_error *err) {
    const bool has_block = t->model->info.has_draft;
    const int32_t known = t->model->n_draft >= 0 ? t->model->n_draft : MICA_DRAFT_DEFAULT;
    t->n_draft = OPTION_SEEN(o, draft) ? (int32_t)o->draft : has_block ? known : 0;
    if (has_block || !OPTION_SEEN(o, draft_min_p)) return MICA_OK;
    return fail(err, MICA_E_ARG,
                "--draft-min-p: there is no draft block whose probabilities could be looked at");
}

/* A model without a usable template is refused here, in the library's words: text that goes in unmarked where
 * a conversation was meant gives nonsense that looks like an answer. */
static mica_status check_template(const talk *t, mica_error *err) {
    mica_ids ids = {0};
    if (t->model->info.has_template) return MICA_OK;
    mica_status st = mica_encode_chat(t->model->model, "[]", NULL, &ids, NULL, err);
    mica_ids_free(&ids);
    return st;
}

static void warn_of_no_thinking(const talk *t, const char *flag) {
    if (!t->model->info.think_begin) term_note("%s: this model's template knows no thinking", flag);
}

static mica_status template_flags(talk *t, const options *o, mica_error *err) {
    const char *flag = o->system   ? "--system"
                       : o->think  ? "--think"
                       : o->kwargs ? "--chat-template-kwargs"
                                   : NULL;
    t->raw = o->raw;
    if (o->raw && flag) return fail(err, MICA_E_ARG, "%s: --raw has no chat template to hand it to", flag);
    if (!o->raw) TRY(check_template(t, err));
    if (o->think) warn_of_no_thinking(t, "--think");
    return MICA_OK;
}

mica_status talk_init(talk *t, opened *model, const options *o, mica_error *err) {
    *t = (talk){.model = model, .o = o, .think = o->think, .messages = json_array()};
    mica_status st = t->messages ? MICA_OK : fail(err, MICA_E_NOMEM, "conversation: out of memory");
    sampling_of(t, o);
    if (st == MICA_OK) st = draft_of(t, o, err);
    if (st == MICA_OK) st = template_flags(t, o, err);
    if (st == MICA_OK && o->system) st = talk_set_system(t, o->system, err);
    if (st != MICA_OK) talk_fini(t);
    return st;
}

void talk_fini(talk *t) {
    json_decref(t->messages);
    mem_free(t->think_owned);
    *t = (talk){0};
}

/* ---- Messages ---- */

static mica_status add_message(talk *t, const char *role, const char *text, size_t n, mica_error *err) {
    if (!utf8_valid(text, n))
        return fail(err, MICA_E_ARG, "%s message: not UTF-8: --raw takes bytes as they are", role);
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", text, n);
    if (!m || json_array_append_new(t->messages, m) != 0)
        return fail(err, MICA_E_NOMEM, "%s message: %zu bytes: out of memory", role, n);
    return MICA_OK;
}

static const char *role_at(const talk *t, size_t i) {
    const char *role = json_string_value(json_object_get(json_array_get(t->messages, i), "role"));
    return role ? role : "";
}

static void cut_messages(talk *t, size_t n) {
    while (json_array_size(t->messages) > n) json_array_remove(t->messages, json_array_size(t->messages) - 1);
}

void talk_clear(talk *t) {
    cut_messages(t, strcmp(role_at(t, 0), "system") == 0 ? 1 : 0);
}

mica_status talk_set_system(talk *t, const char *text, mica_error *err) {
    if (strcmp(role_at(t, 0), "system") == 0) json_array_remove(t->messages, 0);
    if (!text[0]) return MICA_OK;
    const size_t n = json_array_size(t->messages);
    TRY(add_message(t, "system", text, strlen(text), err));
    json_t *m = json_incref(json_array_get(t->messages, n)); // it came last and belongs first
    json_array_remove(t->messages, n);
    json_array_insert_new(t->messages, 0, m);
    return MICA_OK;
}

/* Where the first question after the system message stands. */
static size_t first_question(const talk *t) {
    return strcmp(role_at(t, 0), "system") == 0 ? 1 : 0;
}

bool talk_undo(talk *t) {
    const size_t first = first_question(t);
    size_t n = json_array_size(t->messages);
    if (n <= first) return false;
    while (n > first && strcmp(role_at(t, n - 1), "user") != 0) n--;
    cut_messages(t, n > first ? n - 1 : first);
    return true;
}

bool talk_trim(talk *t) {
    const size_t first = first_question(t);
    if (json_array_size(t->messages) <= first) return false;
    do json_array_remove(t->messages, first);
    while (json_array_size(t->messages) > first && strcmp(role_at(t, first), "user") != 0);
    return true;
}

/* The library knows the words; what it is asked with does not matter. */
static mica_status check_think(const talk *t, const char *think, mica_error *err) {
    mica_ids ids = {0};
    const mica_chat_options chat = {.think = think};
    mica_status st =
        mica_encode_chat(t->model->model, "[{\"role\":\"user\",\"content\":\"x\"}]", &chat, &ids, NULL, err);
    mica_ids_free(&ids);
    return st;
}

mica_status talk_set_think(talk *t, const char *think, mica_error *err) {
    TRY(check_think(t, think, err));
    if (strcmp(think, "off") != 0 && strcmp(think, "none") != 0) warn_of_no_thinking(t, "/think");
    char *copy = mem_strdup(think);
    if (!copy) return fail(err, MICA_E_NOMEM, "/think: out of memory");
    mem_free(t->think_owned);
    t->think = t->think_owned = copy;
    return MICA_OK;
}

/* ---- One answer ---- */

static mica_status encode(const talk *t, const char *raw_text, size_t n, mica_ids *ids, bool *in_think,
                          mica_error *err) {
    if (t->raw) return mica_tokenize(t->model->model, raw_text, n, true, true, ids, err);
    char *json = json_dumps(t->messages, JSON_COMPACT);
    if (!json) return fail(err, MICA_E_NOMEM, "conversation: out of memory");
    const mica_chat_options chat = {.kwargs_json = t->o->kwargs, .think = t->think, .in_think = in_think};
    mica_status st = mica_encode_chat(t->model->model, json, &chat, ids, NULL, err);
    free(json); // jansson's own
    return st;
}

static const char *finish_name(mica_finish f) {
    return f == MICA_FINISH_LENGTH ? "length" : f == MICA_FINISH_CANCELLED ? "cancelled" : "stop";
}

static double per_second(uint64_t n, double ms) {
    return ms > 0 ? (double)n * 1000 / ms : 0;
}

/* The last line of `run --json`. */
static mica_status put_done(const talk *t, const speaker *s, const answer *a, mica_error *err) {
    const mica_stats *x = &a->stats;
    json_t *ids = json_array();
    for (size_t i = 0; i < s->n_ids; i++) json_array_append_new(ids, json_integer(s->ids[i]));
    json_t *v = json_pack(
        "{s:s, s:I, s:I, s:o, s:s%, s:s, s:{s:f, s:f, s:f, s:f, s:f}, s:{s:I, s:I, s:I}, s:{s:f, s:I, s:I, "
        "s:I}}", //
        "type", "done", "prompt_tokens", (json_int_t)a->n_prompt, "cached_tokens", (json_int_t)x->n_cached,
        "ids", ids, "text", strbuf_cstr(&s->all), s->all.n, "finish_reason", finish_name(a->finish), //
        "timings", "load_ms", t->model->load_ms, "prompt_ms", x->prompt_ms, "prompt_tps",
        per_second(a->n_prompt - x->n_cached, x->prompt_ms), "decode_ms", x->decode_ms, "decode_tps",
        per_second(x->n_generated, x->decode_ms), //
        "draft", "windows", (json_int_t)x->draft_windows, "drafted", (json_int_t)x->n_drafted, "accepted",
        (json_int_t)x->n_accepted, //
        "experts", "hit_rate", x->expert_hit_rate, "link_bytes", (json_int_t)x->link_bytes, "cpu_bytes",
        (json_int_t)x->cpu_bytes, "ssd_bytes", (json_int_t)x->ssd_bytes);
    if (!v) return fail(err, MICA_E_NOMEM, "result: out of memory");
    print_json(v);
    json_decref(v);
    return MICA_OK;
}

static mica_status generate(talk *t, speaker *s, const mica_ids *ids, answer *out, mica_error *err) {
    const mica_generate_options g = {
        .sampling = &t->sampling,
        .n_predict = (int32_t)t->o->predict,
        .n_draft = t->n_draft,
        .draft_min_p = (float)t->o->draft_min_p,
        .ignore_end = t->o->ignore_end,
        .cancel = interrupt_flag(),
        .progress = progress_show,
        .progress_user = &s->bar,
    };
    term_quiet();
    mica_status st = mica_generate(t->model->session, ids->ids, ids->n, &g, speaker_token, s, &out->finish,
                                   &out->stats, err);
    if (st == MICA_E_CANCELLED) {
        out->finish = MICA_FINISH_CANCELLED;
        st = MICA_OK;
    }
    if (s->reply.stopped) out->finish = MICA_FINISH_STOP;
    const bool had_enough = g.n_predict >= 0 && out->stats.n_generated >= (uint64_t)g.n_predict;
    out->is_full = out->finish == MICA_FINISH_LENGTH && !had_enough;
    speaker_end(s);
    term_loud();
    if (st == MICA_OK && s->all.failed)
        st = fail(err, MICA_E_NOMEM, "answer: %zu bytes: out of memory", s->all.n);
    return st;
}

static mica_status keep_answer(talk *t, const speaker *s, mica_error *err) {
    if (t->raw) return MICA_OK;
    TRY(add_message(t, "assistant", strbuf_cstr(&s->answer), s->answer.n, err));
    if (s->thinking.n == 0) return MICA_OK;
    // Templates that want earlier thinking find it here, the others ignore it.
    json_object_set_new(json_array_get(t->messages, json_array_size(t->messages) - 1), "reasoning_content",
                        json_stringn(s->thinking.p, s->thinking.n));
    return MICA_OK;
}

/* A prompt that the context cannot hold, with the one that could. */
static mica_status check_length(const talk *t, size_t n, answer *out, mica_error *err) {
    enum { ROOM = 256 }; // for an answer, and what contexts are whole multiples of
    const uint32_t n_ctx = t->model->info.n_ctx, made_for = t->model->info.n_ctx_train;
    const size_t wanted = (n + 2 * ROOM - 1) / ROOM * ROOM;
    char beyond[80] = "";
    out->is_too_long = n > n_ctx;
    if (!out->is_too_long) return MICA_OK;
    if (made_for && wanted > made_for)
        snprintf(beyond, sizeof beyond, ", although the model was made for %u at most", made_for);
    return fail(err, MICA_E_ARG,
                "prompt: %zu tokens: the context holds %u: -c %zu would hold it and a short answer%s", n,
                n_ctx, wanted, beyond);
}

static mica_status answer_now(talk *t, const char *raw_text, size_t n, answer *out, mica_error *err) {
    mica_status st = MICA_OK;
    mica_ids ids = {0};
    bool in_think = false;
    speaker s = {0};
    *out = (answer){0};
    TRY_GOTO(encode(t, raw_text, n, &ids, &in_think, err), done);
    if (ids.n == 0)
        TRY_GOTO(fail(err, MICA_E_ARG, "prompt: empty: the model needs at least one token"), done);
    out->n_prompt = ids.n;
    TRY_GOTO(check_length(t, ids.n, out, err), done);
    const reply_options how = {.model = t->model->model,
                               .raw = t->raw,
                               .in_think = in_think,
                               .stops = t->o->stop.p,
                               .n_stop = t->o->stop.n};
    TRY_GOTO(speaker_init(&s, &how, t->o->json, err), done);
    TRY_GOTO(generate(t, &s, &ids, out, err), done);
    if (t->o->json) TRY_GOTO(put_done(t, &s, out, err), done);
    out->is_dropped = !t->raw && out->finish == MICA_FINISH_CANCELLED && s.answer.n == 0;
    if (!out->is_dropped) TRY_GOTO(keep_answer(t, &s, err), done);
done:
    speaker_fini(&s);
    mica_ids_free(&ids);
    return st;
}

mica_status talk_ask(talk *t, const char *text, size_t n, answer *out, mica_error *err) {
    const size_t before = json_array_size(t->messages);
    if (!t->raw) TRY(add_message(t, "user", text, n, err));
    mica_status st = answer_now(t, text, n, out, err);
    if (st != MICA_OK || out->is_dropped) cut_messages(t, before);
    return st;
}

mica_status talk_again(talk *t, answer *out, mica_error *err) {
    const size_t n = json_array_size(t->messages);
    if (n < 2 || strcmp(role_at(t, n - 1), "assistant") != 0)
        return fail(err, MICA_E_ARG, "/regen: there is no answer yet that could be made again");
    json_t *old = json_incref(json_array_get(t->messages, n - 1));
    cut_messages(t, n - 1);
    t->sampling.seed++; // the same seed would say the same again
    mica_status st = answer_now(t, NULL, 0, out, err);
    if (st == MICA_OK && !out->is_dropped)
        json_decref(old);
    else
        json_array_append_new(t->messages, old);
    return st;
}

/* "12 tokens, 340 ms, 35.3 t/s"; one token came out of the prompt and has no time of its own. */
static void format_part(char *out, size_t size_bytes, uint64_t n, const char *cached, double ms,
                        uint64_t n_timed) {
    char rate[32] = "";
    if (n_timed > 1 && ms > 0) snprintf(rate, sizeof rate, ", %.1f t/s", per_second(n_timed, ms));
    snprintf(out, size_bytes, "%llu token%s%s, %.0f ms%s", (unsigned long long)n, n == 1 ? "" : "s", cached,
             ms, rate);
}

void talk_times(char *out, size_t size_bytes, const answer *a) {
    const mica_stats *x = &a->stats;
    char cached[48] = "", drafts[64] = "", experts[80] = "", prompt[120], made[120];
    if (x->n_cached) snprintf(cached, sizeof cached, " (%llu cached)", (unsigned long long)x->n_cached);
    if (x->n_drafted)
        snprintf(drafts, sizeof drafts, ", %.0f %% of drafts taken",
                 100.0 * (double)x->n_accepted / (double)x->n_drafted);
    if (x->expert_hit_rate < 1.0 && x->ssd_bytes > 0)
        snprintf(experts, sizeof experts, "; %.0f %% of experts in memory, %.1f GB from disk",
                 100.0 * x->expert_hit_rate, (double)x->ssd_bytes * 1e-9);
    else if (x->expert_hit_rate < 1.0)
        snprintf(experts, sizeof experts, "; %.0f %% of experts on the card, %.1f GB over the link",
                 100.0 * x->expert_hit_rate, (double)x->link_bytes * 1e-9);
    format_part(prompt, sizeof prompt, a->n_prompt, cached, x->prompt_ms, a->n_prompt - x->n_cached);
    format_part(made, sizeof made, x->n_generated, "", x->decode_ms, x->n_generated);
    snprintf(out, size_bytes, "prompt %s; answer %s%s%s", prompt, made, drafts, experts);
}
