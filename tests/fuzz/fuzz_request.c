/* Bodies of requests: from bytes to a job's wishes and a template's messages, in the shape of each API. The
 * first byte chooses the API. What is read has to be within its bounds, what is refused has to say so with a
 * 400 in clean UTF-8. No model is needed for these parts. */
#include "serve/anthropic_in.h"
#include "serve/ask.h"
#include "serve/field.h"
#include "serve/responses_in.h"
#include "serve/responses_tools.h"

#include <math.h>
#include <stdlib.h>

static const char *const g_max_names[] = {"max_completion_tokens", "max_tokens", NULL};
static const mica_sampling g_defaults = {.temperature = 0.8f, .top_p = 0.95f, .repeat_penalty = 1.0f};

static void require(bool x) {
    if (!x) abort();
}

static void check_problem(mica_status st, const problem *p) {
    if (st == MICA_OK) return;
    require(p->http >= 400 && p->http < 500 && p->text[0]);
    require(utf8_valid(p->text, strlen(p->text)) && utf8_valid(p->param, strlen(p->param)));
    json_t *v = problem_json(p, DIALECT_OPENAI, "id");
    char *text = json_dumps(v, JSON_COMPACT);
    require(text != NULL);
    free(text);
    json_decref(v);
}

static void check_ask(const json_t *body) {
    const ask_rules rules = {NULL, &g_defaults, g_max_names, "stop"};
    ask a;
    problem p = {0};
    // Biases need a vocabulary.
    json_t *copy = json_copy((json_t *)body);
    json_object_del(copy, "logit_bias");
    const mica_status st = ask_parse(&a, copy, &rules, &p);
    check_problem(st, &p);
    if (st == MICA_OK) {
        require(a.sampling.temperature >= 0 && isfinite(a.sampling.temperature) &&
                a.sampling.repeat_penalty > 0);
        require(a.n_predict >= -1 && a.n_choice >= 1 && a.n_choice <= ASK_MAX_CHOICES &&
                a.n_stop <= STOPS_MAX);
        for (size_t i = 0; i < a.n_stop; i++) require(a.stop[i][0]);
        check_problem(ask_check_room(&a, 100, 4096, &p), &p);
        ask_fini(&a);
    }
    json_decref(copy);
}

static void check_openai(const json_t *body) {
    chat_ask c = {0};
    problem p = {0};
    json_t *tools = NULL;
    mica_status st = prompt_tools(&tools, body, &p);
    c.tools = tools;
    if (st == MICA_OK) st = prompt_tool_choice(&c, body, &p);
    if (st == MICA_OK) st = prompt_format(&c, body, &p);
    if (st == MICA_OK) st = prompt_think(&c, body, NULL, &p);
    check_problem(st, &p);
    require(st != MICA_OK || c.choice != TOOLS_NAMED || c.tool);
    json_decref(tools);
}

static void check_anthropic(const json_t *body) {
    anthropic_in in;
    problem p = {0};
    const mica_status st = anthropic_in_parse(&in, body, NULL, &p);
    check_problem(st, &p);
    if (st != MICA_OK) return;
    require(json_is_array(in.messages));
    anthropic_in_fini(&in);
}

static void check_responses(const json_t *body) {
    chat_ask c = {0};
    problem p = {0};
    json_t *names = json_object(), *tools;
    check_problem(responses_tools_flat(&tools, names, json_object_get(body, "tools"), &p), &p);
    const responses_in in = {json_array(), json_array(), names};
    check_problem(responses_in_items(&in, json_object_get(body, "input"), &p), &p);
    responses_in_output(&in, json_object_get(body, "output"));
    check_problem(responses_in_form(&c, body, NULL, &p), &p);
    json_decref(in.messages);
    json_decref(in.items);
    json_decref(names);
    json_decref(tools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_t *body;
    problem p = {0};
    if (n == 0) return 0;
    const mica_status st = field_body(&body, (slice){(const char *)data + 1, n - 1}, &p);
    check_problem(st, &p);
    if (st != MICA_OK) return 0;
    check_ask(body);
    switch (data[0] % 3) {
    case 0: check_openai(body); break;
    case 1: check_anthropic(body); break;
    default: check_responses(body); break;
    }
    json_decref(body);
    return 0;
}
