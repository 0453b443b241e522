/* A request's JSON from anybody: read strictly, then taken for messages, tools and variables of a chat. What
 * is rendered has spans that cover it, and no message's text in a trusted one. */
#include "base/str.h"
#include "text/chat.h"
#include "text/json_in.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char SOURCE[] =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ "
    "m.content }}"
    "{{ m.reasoning_content }}{{ m.name }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.id }}"
    "{{ c.function.arguments | tojson }}{% endfor %}<|end|>{% endfor %}{{ reasoning_effort }}"
    "{% if enable_thinking %}<think>{% endif %}";

static void check(const chat_prompt *p) {
    size_t at = 0;
    for (size_t i = 0; i < p->n_span; i++) {
        if (p->span[i].begin != at || p->span[i].end <= at) abort();
        at = p->span[i].end;
        if (p->span[i].trusted && memmem(p->text + p->span[i].begin, at - p->span[i].begin, "qzq", 3))
            abort();
    }
    if (at != p->n || !utf8_valid(p->text, p->n)) abort();
}

static void ask(const chat_template *t, const json_t *messages, const json_t *tools, const json_t *kwargs) {
    chat_prompt p;
    mica_error err;
    chat_request req = {.messages = messages, .tools = tools, .kwargs = kwargs, .now_s = 1700000000};
    if (chat_render(&p, t, &req, &err) == MICA_OK) check(&p);
    chat_prompt_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static chat_template *t;
    mica_error err;
    json_t *j, *hello = json_pack("[{s:s, s:s}]", "role", "user", "content", "qzq");
    if (!t && chat_template_build(&t, &(chat_source){.source = SLICE_LIT(SOURCE)}, &err) != MICA_OK) abort();
    json_in_parse(&j, (slice){(const char *)data, size}, &(json_in_options){.what = "body"}, &err);
    if (json_is_object(j)) {
        const json_t *m = json_object_get(j, "messages");
        ask(t, m ? m : hello, json_object_get(j, "tools"), json_object_get(j, "kwargs"));
        ask(t, hello, NULL, j);
    } else if (json_is_array(j)) {
        ask(t, j, NULL, NULL);
        ask(t, hello, j, NULL);
    }
    json_decref(j);
    json_decref(hello);
    return 0;
}
