/* Renders requests through the chat layer in batch for chat_oracle.py. One JSON object per input line:
 *     {"source": "...", "tool_source": "...", "bos": "<s>", "eos": "</s>", "chatml": false,
 *      "messages": [...], "tools": [...], "kwargs": {...}, "think": "low", "no_generation_prompt": false,
 * "now": 0} and one per output line: {"text": "...", "spans": [[begin, end, trusted], ...], "in_think":
 * false, "can": {...}} or
 * {"status": "...", "error": "...", "can": {...}}. A source that is the same as on the line before is probed
 * once. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const FAMILY[] = {"plain", "hermes", "qwen_xml", "gemma4", "llama3"};

static slice text_of(const json_t *job, const char *key) {
    const json_t *v = json_object_get(job, key);
    return (slice){json_string_value(v), json_string_length(v)};
}

static json_t *abilities(const chat_abilities *can) {
    json_t *effort = json_array();
    for (int e = 0; e < CHAT_EFFORT_N; e++)
        if (can->effort_name && can->effort[e])
            json_array_append_new(effort, json_string(chat_effort_name((chat_effort)e)));
    json_t *can_json =
        json_pack("{s:s, s:s*, s:s*, s:o}", "family", FAMILY[can->format.family], "think_begin",
                  can->format.think_begin, "effort_name", can->effort_name, "effort", effort);
    const struct {
        const char *name;
        bool on;
    } flag[] = {{"strings", can->strings},
                {"parts", can->parts},
                {"system_parts", can->system_parts},
                {"system", can->system},
                {"more_system", can->more_system},
                {"developer", can->developer},
                {"tools", can->tools},
                {"object_args", can->object_args},
                {"string_args", can->string_args},
                {"broken_args", can->broken_args},
                {"no_content", can->no_content},
                {"short_ids", can->short_ids},
                {"empty_answer", can->empty_answer},
                {"switches_thinking", can->switches_thinking}};
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
        json_object_set_new(can_json, flag[i].name, json_boolean(flag[i].on));
    return can_json;
}

static json_t *answer(const chat_template *t, const json_t *job) {
    mica_error err = {0};
    chat_prompt p;
    chat_request req = {.messages = json_object_get(job, "messages"),
                        .tools = json_object_get(job, "tools"),
                        .kwargs = json_object_get(job, "kwargs"),
                        .think = json_string_value(json_object_get(job, "think")),
                        .no_generation_prompt = json_is_true(json_object_get(job, "no_generation_prompt")),
                        .now_s = json_integer_value(json_object_get(job, "now"))};
    json_t *can = abilities(chat_template_abilities(t, req.tools && json_array_size(req.tools)));
    mica_status st = chat_render(&p, t, &req, &err);
    if (st != MICA_OK)
        return json_pack("{s:s, s:s, s:o}", "status", mica_status_name(st), "error", err.text, "can", can);
    json_t *spans = json_array();
    for (size_t i = 0; i < p.n_span; i++)
        json_array_append_new(spans, json_pack("[I, I, b]", (json_int_t)p.span[i].begin,
                                               (json_int_t)p.span[i].end, p.span[i].trusted));
    json_t *made = json_pack("{s:o, s:o, s:b, s:o}", "text", json_stringn(p.text, p.n), "spans", spans,
                             "in_think", p.in_think, "can", can);
    chat_prompt_fini(&p);
    return made;
}

int main(void) {
    chat_template *t = NULL;
    char *source = NULL, *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        json_error_t e;
        mica_error err;
        json_t *job = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        if (!job) {
            fprintf(stderr, "chat_main: %s\n", e.text);
            return 2;
        }
        slice s = text_of(job, "source");
        if (!source || !slice_is(s, source)) {
            chat_template_free(t);
            free(source);
            source = strdup(s.p ? s.p : "");
            chat_source from = {.source = s,
                                .tool_source = text_of(job, "tool_source"),
                                .bos = text_of(job, "bos"),
                                .eos = text_of(job, "eos"),
                                .chatml = json_is_true(json_object_get(job, "chatml"))};
            if (chat_template_build(&t, &from, &err) != MICA_OK) return 3;
        }
        json_t *made = answer(t, job);
        json_dumpf(made, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(made);
        json_decref(job);
    }
    chat_template_free(t);
    free(source);
    free(line);
    return 0;
}
