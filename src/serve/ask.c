/* Sampling, limits and stop strings of a request. */
#include "serve/ask.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>

static const field_range g_any = {-9.2e18, 9.2e18};

/* Known fields of other servers that change what is made, and the value with which they change nothing. */
static const struct {
    const char *name;
    double neutral;
} g_unsupported[] = {
    {"typical_p", 1},      {"tfs_z", 1},           {"mirostat", 0},        {"dynatemp_range", 0},
    {"dry_multiplier", 0}, {"xtc_probability", 0}, {"top_n_sigma", -1},    {"top_a", 0},
    {"min_tokens", 0},     {"length_penalty", 1},  {"prompt_logprobs", 0}, {"n_discard", 0},
};

static mica_status refuse_unsupported(const json_t *body, problem *p) {
    for (size_t i = 0; i < sizeof g_unsupported / sizeof g_unsupported[0]; i++) {
        double v = g_unsupported[i].neutral;
        TRY(field_real(&v, body, g_unsupported[i].name, g_any, p));
        if (v != g_unsupported[i].neutral)
            return problem_set(p, 400, g_unsupported[i].name, "%s: not supported: leave it out or send %g",
                               g_unsupported[i].name, g_unsupported[i].neutral);
    }
    bool beams = false;
    TRY(field_bool(&beams, body, "use_beam_search", p));
    return beams ? problem_set(p, 400, "use_beam_search", "use_beam_search: not supported") : MICA_OK;
}

static mica_status real(float *out, const json_t *body, const char *name, field_range r, problem *p) {
    double v = *out;
    TRY(field_real(&v, body, name, r, p));
    *out = (float)v;
    return MICA_OK;
}

static mica_status whole(int32_t *out, const json_t *body, const char *name, field_range r, problem *p) {
    int64_t v = *out;
    TRY(field_int(&v, body, name, r, p));
    *out = (int32_t)v;
    return MICA_OK;
}

static uint64_t random_seed(void) {
    uint64_t seed = clock_ns();
    const ssize_t n = getrandom(&seed, sizeof seed, 0);
    (void)n;
    return seed & INT64_MAX;
}

static mica_status parse_sampling(mica_sampling *s, const json_t *body, problem *p) {
    const field_range share = {0, 1}, penalty = {-100, 100}, count = {-1, INT32_MAX};
    int64_t seed = -1;
    TRY(real(&s->temperature, body, "temperature", (field_range){0, 100}, p));
    TRY(whole(&s->top_k, body, "top_k", (field_range){INT32_MIN, INT32_MAX}, p));
    TRY(real(&s->top_p, body, "top_p", share, p));
    TRY(real(&s->min_p, body, "min_p", share, p));
    TRY(real(&s->repeat_penalty, body, "repetition_penalty", (field_range){0.01, 100}, p));
    TRY(real(&s->repeat_penalty, body, "repeat_penalty", (field_range){0.01, 100}, p));
    TRY(real(&s->presence_penalty, body, "presence_penalty", penalty, p));
    TRY(real(&s->frequency_penalty, body, "frequency_penalty", penalty, p));
    TRY(whole(&s->penalty_last_n, body, "repeat_last_n", count, p));
    TRY(whole(&s->penalty_last_n, body, "penalty_last_n", count, p));
    TRY(field_int(&seed, body, "seed", g_any, p));
    s->seed = seed == -1 ? random_seed() : (uint64_t)seed;
    return MICA_OK;
}

/* ---- logit_bias ---- */

static mica_status fail_bias(problem *p, const char *why) {
    return problem_set(p, 400, "logit_bias", "logit_bias: %s", why);
}

static mica_status bias_value(float *out, const json_t *v, problem *p) {
    if (json_is_false(v)) {
        *out = -INFINITY;
        return MICA_OK;
    }
    if (!json_is_number(v)) return fail_bias(p, "each value has to be a number, or false: never this token");
    const double x = json_number_value(v);
    if (!(x >= -1000 && x <= 1000)) return fail_bias(p, "each value has to be from -1000 to 1000");
    *out = x <= -100 ? -INFINITY : (float)x; // OpenAI's -100 bans
    return MICA_OK;
}

/* Adds the ids that a key stands for: a number, or a text that is cut into tokens. */
static mica_status add_bias(ask *a, size_t *n, const json_t *key, float bias, const mica_model *m,
                            problem *p) {
    mica_model_info info;
    mica_ids ids = {0};
    mica_error err = {0};
    mica_model_get_info(m, &info);
    if (json_is_string(key)) {
        const mica_status st =
            mica_tokenize(m, json_string_value(key), json_string_length(key), false, false, &ids, &err);
        if (st != MICA_OK) return problem_of(p, st, &err, "logit_bias");
    }
    const size_t n_id = json_is_string(key) ? ids.n : 1;
    mica_status st = MICA_OK;
    for (size_t i = 0; i < n_id && st == MICA_OK; i++) {
        const int64_t id = json_is_string(key) ? ids.ids[i] : json_integer_value(key);
        if (id < 0 || id >= (int64_t)info.n_vocab)
            st = fail_bias(p, "a token id is outside of the vocabulary");
        else if (*n == ASK_MAX_BIAS)
            st = fail_bias(p, "too many entries");
        else
            a->bias[(*n)++] = (mica_bias){(int32_t)id, bias};
    }
    mica_ids_free(&ids);
    return st;
}

static mica_status bias_pair(ask *a, size_t *n, const json_t *pair, const mica_model *m, problem *p) {
    float bias;
    const json_t *key = json_array_get(pair, 0);
    if (json_array_size(pair) != 2 || !(json_is_integer(key) || json_is_string(key)))
        return fail_bias(p, "each entry has to be [token, value]");
    TRY(bias_value(&bias, json_array_get(pair, 1), p));
    return add_bias(a, n, key, bias, m, p);
}

static mica_status bias_member(ask *a, size_t *n, const char *name, const json_t *value, const mica_model *m,
                               problem *p) {
    float bias;
    char *end;
    const long long id = strtoll(name, &end, 10);
    if (!*name || *end) return fail_bias(p, "each name has to be a token id");
    TRY(bias_value(&bias, value, p));
    json_t *key = json_integer(id);
    const mica_status st = add_bias(a, n, key, bias, m, p);
    json_decref(key);
    return st;
}

static mica_status parse_bias(ask *a, const json_t *body, const mica_model *m, problem *p) {
    json_t *v = json_object_get(body, "logit_bias");
    size_t n = 0;
    if (!v || json_is_null(v)) return MICA_OK;
    if (!json_is_object(v) && !json_is_array(v)) return fail_bias(p, "it has to be an object or an array");
    if (json_object_size(v) + json_array_size(v) == 0) return MICA_OK;
    a->bias = mem_calloc(ASK_MAX_BIAS, sizeof *a->bias);
    if (!a->bias) return problem_set(p, 500, NULL, "logit_bias: out of memory");
    const char *name;
    json_t *value;
    size_t i;
    json_object_foreach(v, name, value) TRY(bias_member(a, &n, name, value, m, p));
    json_array_foreach(v, i, value) TRY(bias_pair(a, &n, value, m, p));
    a->sampling.bias = a->bias;
    a->sampling.n_bias = n;
    return MICA_OK;
}

/* ---- stop ---- */

static mica_status add_stop(ask *a, const json_t *v, const char *name, problem *p) {
    if (!json_is_string(v)) return problem_set(p, 400, name, "%s: it has to be a string or strings", name);
    const size_t n = json_string_length(v);
    if (n == 0) return problem_set(p, 400, name, "%s: an empty string ends nothing", name);
    if (n > STOPS_MAX_BYTES || strlen(json_string_value(v)) != n)
        return problem_set(p, 400, name, "%s: a string may have %d bytes, and no NUL", name, STOPS_MAX_BYTES);
    a->stop[a->n_stop] = mem_strdup(json_string_value(v));
    if (!a->stop[a->n_stop]) return problem_set(p, 500, NULL, "%s: out of memory", name);
    a->n_stop++;
    return MICA_OK;
}

static mica_status parse_stop(ask *a, const json_t *body, const char *name, problem *p) {
    json_t *v = json_object_get(body, name), *one;
    size_t i;
    if (!v || json_is_null(v)) return MICA_OK;
    if (json_array_size(v) > STOPS_MAX)
        return problem_set(p, 400, name, "%s: %zu strings: at most %d", name, json_array_size(v), STOPS_MAX);
    a->stop = mem_calloc(STOPS_MAX, sizeof *a->stop);
    if (!a->stop) return problem_set(p, 500, NULL, "%s: out of memory", name);
    if (!json_is_array(v)) return add_stop(a, v, name, p);
    json_array_foreach(v, i, one) TRY(add_stop(a, one, name, p));
    return MICA_OK;
}

/* ---- the rest ---- */

static mica_status parse_max(ask *a, const json_t *body, const char *const *names, problem *p) {
    a->n_predict = -1;
    for (; *names; names++) {
        const json_t *v = json_object_get(body, *names);
        if (!v || json_is_null(v)) continue;
        return field_int(&a->n_predict, body, *names, (field_range){-1, INT32_MAX}, p);
    }
    return MICA_OK;
}

static mica_status parse_limits(ask *a, const json_t *body, const ask_rules *rules, problem *p) {
    json_t *options = NULL;
    bool cache = true;
    a->n_choice = 1;
    a->n_think = -1;
    TRY(parse_max(a, body, rules->max_names, p));
    TRY(field_int(&a->n_choice, body, "n", (field_range){1, ASK_MAX_CHOICES}, p));
    TRY(field_int(&a->n_think, body, "reasoning_budget", (field_range){-1, INT32_MAX}, p));
    TRY(field_int(&a->n_think, body, "thinking_budget_tokens", (field_range){-1, INT32_MAX}, p));
    TRY(field_bool(&a->stream, body, "stream", p));
    TRY(field_object(&options, body, "stream_options", p));
    TRY(field_bool(&a->include_usage, options, "include_usage", p));
    TRY(field_bool(&a->ignore_end, body, "ignore_eos", p));
    TRY(field_bool(&a->fit, body, "fit_max_tokens", p));
    TRY(field_bool(&a->progress, body, "return_progress", p));
    TRY(field_bool(&cache, body, "cache_prompt", p));
    a->no_cache = !cache;
    return MICA_OK;
}

mica_status ask_parse(ask *a, const json_t *body, const ask_rules *rules, problem *p) {
    mica_status st = MICA_OK;
    *a = (ask){.sampling = *rules->defaults, .n_top = -1};
    a->sampling.bias = NULL;
    a->sampling.n_bias = 0;
    TRY_GOTO(refuse_unsupported(body, p), done);
    TRY_GOTO(parse_sampling(&a->sampling, body, p), done);
    TRY_GOTO(parse_limits(a, body, rules, p), done);
    TRY_GOTO(parse_stop(a, body, rules->stop_name, p), done);
    TRY_GOTO(parse_bias(a, body, rules->model, p), done);
done:
    if (st != MICA_OK) ask_fini(a);
    return st;
}

void ask_fini(ask *a) {
    for (size_t i = 0; i < a->n_stop; i++) mem_free(a->stop[i]);
    mem_free(a->stop);
    mem_free(a->bias);
    *a = (ask){0};
}

mica_status ask_check_room(const ask *a, size_t n_prompt, uint32_t n_ctx, problem *p) {
    if (n_prompt > n_ctx || (n_prompt == n_ctx && a->n_predict != 0))
        return problem_too_long(p, n_prompt, 0, n_ctx);
    if (!a->fit && a->n_predict > 0 && (uint64_t)a->n_predict > n_ctx - n_prompt)
        return problem_too_long(p, n_prompt, (uint64_t)a->n_predict, n_ctx);
    return MICA_OK;
}
