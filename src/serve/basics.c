/* The endpoints that make no text: models, health, props, slots, metrics, and text to tokens and back. */
#include "serve/server_int.h"
#include "serve/sse.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void answer_problem(exchange *x, int status, const char *param, const char *why) {
    problem p;
    problem_set(&p, status, param, "%s", why);
    exchange_problem(x, &p);
}

void route_embeddings(mica_server *s, exchange *x) {
    (void)s;
    answer_problem(x, 501, NULL, "embeddings: not supported");
}

/* ---- Models ---- */

static json_t *model_json(const mica_server *s) {
    const mica_model_info *i = &s->info;
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:{s:s, s:o, s:o, s:o, s:o, s:o, s:o}}", "id", s->name,
                     "object", "model", "created", (json_int_t)s->begun_s, "owned_by", "mica",
                     "max_model_len", json_u64(i->n_ctx), "meta", "architecture", i->arch, "n_ctx",
                     json_u64(i->n_ctx), "n_ctx_train", json_u64(i->n_ctx_train), "n_embd",
                     json_u64(i->n_embd), "n_vocab", json_u64(i->n_vocab), "n_params", json_u64(i->n_param),
                     "size", json_u64(i->file_bytes));
}

void route_models(mica_server *s, exchange *x) {
    json_t *m = model_json(s);
    // Anthropic's clients read display_name, first_id and the like; others pass over them.
    json_object_set_new(m, "type", json_string("model"));
    json_object_set_new(m, "display_name", json_string(s->name));
    exchange_json(x, 200,
                  json_pack("{s:s, s:[o], s:[], s:s, s:s, s:b}", "object", "list", "data", m, "models",
                            "first_id", s->name, "last_id", s->name, "has_more", 0));
}

void route_model(mica_server *s, exchange *x) {
    if (strcmp(x->tail, s->name) == 0)
        exchange_json(x, 200, model_json(s));
    else
        answer_problem(x, 404, "model", "model: not the one that is loaded");
}

/* ---- State ---- */

enum { MOST_SLOTS = 1024 };

/* What the slots do; *n gets how many there are. NULL: none yet, or out of memory. mem_free frees it. */
static slot_look *look_at_slots(mica_server *s, size_t *n, size_t *n_waiting) {
    slot_look *l = mem_calloc(MOST_SLOTS, sizeof *l);
    *n = l ? worker_look(s->worker, l, MOST_SLOTS, n_waiting) : 0;
    return l;
}

void route_health(mica_server *s, exchange *x) {
    if (!atomic_load(&s->ready)) {
        answer_problem(x, 503, NULL, "Loading model");
        return;
    }
    if (worker_is_ending(s->worker)) {
        answer_problem(x, 503, NULL, "the server is about to end"); // a balancer sends nothing more here
        return;
    }
    size_t n = 0, n_waiting = 0, n_busy = 0;
    slot_look *l = look_at_slots(s, &n, &n_waiting);
    for (size_t i = 0; i < n; i++) n_busy += l[i].busy;
    mem_free(l);
    exchange_json(x, 200,
                  json_pack("{s:s, s:o, s:o, s:o, s:I}", "status", "ok", "slots_idle", json_u64(n - n_busy),
                            "slots_processing", json_u64(n_busy), "requests_waiting", json_u64(n_waiting),
                            "uptime_s", (json_int_t)(time(NULL) - s->begun_s)));
}

static json_t *sampling_json(const mica_sampling *s) {
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i}", "temperature", (double)s->temperature,
                     "top_k", s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p,
                     "repeat_penalty", (double)s->repeat_penalty, "presence_penalty",
                     (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty,
                     "repeat_last_n", s->penalty_last_n);
}

void route_props(mica_server *s, exchange *x) {
    const mica_model_info *i = &s->info;
    json_t *v =
        json_pack("{s:{s:o, s:o}, s:o, s:s, s:s, s:b, s:b, s:s}", "default_generation_settings", "n_ctx",
                  json_u64(i->n_ctx), "params", sampling_json(&s->sampling), "total_slots",
                  json_u64(i->n_seq), "model_alias", s->name, "build_info", mica_version(), "has_template",
                  i->has_template, "thinks", i->think_begin != NULL, "device", i->device);
    json_object_set_new(v, "model", model_json(s));
    json_object_set_new(v, "memory",
                        json_pack("{s:o, s:o, s:o}", "weights", json_u64(i->weights_bytes), "kv",
                                  json_u64(i->kv_bytes), "scratch", json_u64(i->scratch_bytes)));
    json_object_set_new(v, "modalities", json_pack("{s:b, s:b}", "vision", 0, "audio", 0));
    json_object_set_new(v, "stored_responses", json_boolean(s->archive != NULL));
    exchange_json(x, 200, v);
}

void route_slots(mica_server *s, exchange *x) {
    size_t n = 0, n_waiting = 0;
    slot_look *l = look_at_slots(s, &n, &n_waiting);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:I, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "id",
                                        (json_int_t)i, "is_processing", l[i].busy, "state",
                                        !l[i].busy     ? "idle"
                                        : l[i].reading ? "reading"
                                                       : "answering",
                                        "n_ctx", json_u64(s->info.n_ctx), "n_prompt", json_u64(l[i].n_prompt),
                                        "n_cached", json_u64(l[i].n_cached), "n_read", json_u64(l[i].n_read),
                                        "n_decoded", json_u64(l[i].n_made), "n_predict",
                                        (json_int_t)l[i].n_predict, "n_past", json_u64(l[i].n_token)));
    mem_free(l);
    exchange_json(x, 200, list);
}

void route_metrics(mica_server *s, exchange *x) {
    size_t n = 0, n_waiting = 0;
    strbuf text = {0};
    slot_look *l = look_at_slots(s, &n, &n_waiting);
    const bool ready = atomic_load(&s->ready);
    metrics_gauges g = {.n_waiting = n_waiting,
                        .n_slot = n,
                        .n_connection = watch_count(http_watch(s->http)),
                        .model = ready ? s->model : NULL,
                        .name = s->name};
    for (size_t i = 0; i < n; i++) {
        g.n_running += l[i].busy;
        g.n_token += l[i].n_token;
    }
    if (ready) g.n_token_max = (uint64_t)s->info.n_ctx * s->info.n_seq;
    mem_free(l);
    metrics_text(&s->metrics, &g, &text);
    exchange_bytes(x, 200, "text/plain; version=0.0.4", strbuf_cstr(&text), text.n);
    strbuf_fini(&text);
}

/* ---- Slots in files ---- */

static const struct {
    const char *action;
    job_kind kind;
} g_actions[] = {{"save", JOB_SLOT_SAVE}, {"restore", JOB_SLOT_RESTORE}, {"erase", JOB_SLOT_ERASE}};

static void on_slot_event(void *user, const event *e, strbuf *out) {
    outcome *o = user;
    (void)out;
    if (e->kind == EVENT_RESULT) strbuf_put(&o->choices[0].text, e->body.p, e->body.n);
    if (e->kind != EVENT_FAIL) return;
    problem_set(&o->failed, 500, NULL, "%.*s", (int)e->body.n, e->body.p);
    if (e->number == MICA_E_ARG || e->number == MICA_E_FORMAT) o->failed.http = 400;
    if (e->number == MICA_E_BUSY) o->failed.http = 409;
}

static int slot_whole(void *user, strbuf *out) {
    outcome *o = user;
    if (o->failed.http)
        json_text(out, problem_json(&o->failed, DIALECT_OPENAI, o->request_id));
    else
        strbuf_put(out, o->choices[0].text.p, o->choices[0].text.n);
    return o->failed.http ? o->failed.http : 200;
}

static void outcome_drop(void *user) {
    outcome_free(user);
}

static mica_status prepare_slot(job *j, const exchange *x, const json_t *body, problem *p) {
    const char *action = exchange_query(x, "action"), *file = NULL;
    char *end;
    const unsigned long n = strtoul(x->tail, &end, 10);
    if (*end || x->tail[0] == '-' || n > MOST_SLOTS)
        return problem_set(p, 400, "id", "slot: not a number of one");
    j->slot = (uint32_t)n;
    size_t i = 0;
    while (i < 3 && (!action || strcmp(g_actions[i].action, action) != 0)) i++;
    if (i == 3) return problem_set(p, 400, "action", "action: it can be save, restore or erase");
    j->kind = g_actions[i].kind;
    if (j->kind == JOB_SLOT_ERASE) return MICA_OK;
    TRY(field_text(&file, body, "filename", p));
    if (!file || !*file || strlen(file) > 100 ||
        strspn(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(file) ||
        file[0] == '.')
        return problem_set(
            p, 400, "filename",
            "filename: 1 to 100 letters, digits, '.', '_', '-', and no '.' in front: it stays in the "
            "state folder");
    snprintf(j->file, sizeof j->file, "%s", file);
    return MICA_OK;
}

void route_slot(mica_server *s, exchange *x) {
    static const shape nothing = {.id_prefix = "slot_", .call_prefix = ""};
    problem p = {0};
    json_t *body = x->body.n > 0 ? server_body(s, x) : json_object();
    if (!body) return;
    job *j = job_new(JOB_SLOT_SAVE);
    mica_status st = j ? prepare_slot(j, x, body, &p) : problem_set(&p, 500, NULL, "out of memory");
    if (st == MICA_OK && j->kind != JOB_SLOT_ERASE && !s->state_dir)
        st = problem_set(&p, 501, NULL, "slots: saved with --state-dir only");
    json_decref(body);
    if (st != MICA_OK) {
        job_drop(j);
        exchange_problem(x, &p);
        return;
    }
    j->ask.n_choice = 1;
    j->client = x->client;
    job_hold(j);
    outcome *o =
        outcome_new(x, &(outcome_options){.shape = &nothing, .job = j, .model = s->model, .name = s->name});
    if (o && worker_submit(s->worker, j, &p) == MICA_OK) {
        const source src = {
            .flow = &j->flow, .user = o, .event = on_slot_event, .whole = slot_whole, .free = outcome_drop};
        exchange_follow(x, &src);
    } else if (o) {
        outcome_free(o);
        exchange_problem(x, &p);
    }
    job_drop(j);
}

/* ---- Text and tokens ---- */

static mica_status pieces_json(json_t **out, const mica_model *m, const mica_ids *ids) {
    *out = json_array();
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *bytes = mica_token_bytes(m, ids->ids[i], &n);
        json_t *piece = utf8_valid(bytes, n) ? json_stringn(bytes, n) : json_array();
        for (size_t k = 0; json_is_array(piece) && k < n; k++)
            json_array_append_new(piece, json_integer((unsigned char)bytes[k]));
        json_array_append_new(*out, json_pack("{s:i, s:o}", "id", ids->ids[i], "piece", piece));
    }
    return MICA_OK;
}

static mica_status tokenize(json_t **out, const mica_server *s, const json_t *body, problem *p) {
    bool add_special = false, parse_special = false, with_pieces = false;
    mica_error err = {0};
    mica_ids ids = {0};
    const json_t *content = json_object_get(body, "content");
    if (!content) content = json_object_get(body, "prompt");
    if (!json_is_string(content)) return problem_set(p, 400, "content", "content: it has to be a string");
    TRY(field_bool(&add_special, body, "add_special", p));
    TRY(field_bool(&parse_special, body, "parse_special", p));
    TRY(field_bool(&with_pieces, body, "with_pieces", p));
    const mica_status st = mica_tokenize(s->model, json_string_value(content), json_string_length(content),
                                         parse_special, add_special, &ids, &err);
    if (st != MICA_OK) return problem_of(p, st, &err, "content");
    json_t *list = json_array();
    if (with_pieces) {
        json_decref(list);
        pieces_json(&list, s->model, &ids);
    }
    for (size_t i = 0; !with_pieces && i < ids.n; i++) json_array_append_new(list, json_integer(ids.ids[i]));
    *out = json_pack("{s:o, s:o}", "tokens", list, "count", json_u64(ids.n));
    mica_ids_free(&ids);
    return MICA_OK;
}

mica_status basics_ids(mica_ids *out, const json_t *list, const mica_model_info *info, const char *name,
                       problem *p) {
    const size_t n = json_array_size(list);
    *out = (mica_ids){.ids = mem_alloc((n ? n : 1) * sizeof(int32_t)), .n = n};
    if (!out->ids) return problem_set(p, 500, NULL, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const json_int_t id = json_integer_value(one);
        if (json_is_integer(one) && id >= 0 && id < (json_int_t)info->n_vocab) {
            out->ids[i] = (int32_t)id;
            continue;
        }
        mica_ids_free(out);
        return problem_set(p, 400, name, "%s: each has to be a token id from 0 to %u", name,
                           info->n_vocab - 1);
    }
    return MICA_OK;
}

/* The text of the ids, with its NULs. */
static mica_status text_of(strbuf *out, const mica_model *m, const mica_ids *ids, bool special,
                           mica_error *err) {
    mica_text_stream *ts;
    size_t n;
    TRY(mica_text_stream_new(&ts, m, special, err));
    for (size_t i = 0; i < ids->n; i++) {
        const char *text = mica_text_stream_put(ts, ids->ids[i], &n);
        strbuf_put(out, text, n);
    }
    const char *rest = mica_text_stream_end(ts, &n);
    strbuf_put(out, rest, n);
    mica_text_stream_free(ts);
    return out->failed ? fail(err, MICA_E_NOMEM, "detokenize: out of memory") : MICA_OK;
}

static mica_status detokenize(json_t **out, const mica_server *s, const json_t *body, problem *p) {
    json_t *list = NULL;
    mica_ids ids;
    strbuf text = {0};
    bool special = true;
    mica_error err = {0};
    TRY(field_array(&list, body, "tokens", p));
    TRY(field_bool(&special, body, "special", p));
    if (!list) return problem_set(p, 400, "tokens", "tokens: missing");
    TRY(basics_ids(&ids, list, &s->info, "tokens", p));
    const mica_status st = text_of(&text, s->model, &ids, special, &err);
    if (st == MICA_OK) *out = json_pack("{s:o}", "content", json_buffer(&text));
    strbuf_fini(&text);
    mica_ids_free(&ids);
    return st == MICA_OK ? MICA_OK : problem_of(p, st, &err, "tokens");
}

typedef mica_status text_fn(json_t **out, const mica_server *s, const json_t *body, problem *p);

static void answer_text(mica_server *s, exchange *x, text_fn *fn) {
    problem p = {0};
    json_t *out = NULL, *body = server_body(s, x);
    if (!body) return;
    if (fn(&out, s, body, &p) == MICA_OK)
        exchange_json(x, 200, out);
    else
        exchange_problem(x, &p);
    json_decref(body);
}

void route_tokenize(mica_server *s, exchange *x) {
    answer_text(s, x, tokenize);
}

void route_detokenize(mica_server *s, exchange *x) {
    answer_text(s, x, detokenize);
}
