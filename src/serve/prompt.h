/* Conversations to prompts: the chat template's answer to a request, as a job. Any thread. */
#ifndef MICA_SERVE_PROMPT_H
#define MICA_SERVE_PROMPT_H

#include "serve/job.h"

#include <jansson.h>

typedef enum tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED } tool_choice;

/* Borrowed. */
typedef struct chat_ask {
    const json_t *messages; // OpenAI-style
    const json_t *tools;    // OpenAI-style, NULL: none
    const json_t *kwargs;   // chat_template_kwargs, NULL: none
    const json_t *schema;   // of the answer, NULL: any text; true: any JSON object
    const char *grammar;    // GBNF of the answer, NULL
    const char *think;      // "on" "off" or an effort, NULL
    const char *think_name; // the field it came from
    tool_choice choice;
    const char *tool; // TOOLS_NAMED
    bool one_call, no_generation_prompt;
} chat_ask;

/* Fills the job's prompt, tools, grammar and how its answer begins. text, when not NULL, gets the rendered
 * prompt (mica_text_free). */
mica_status prompt_chat(job *j, const mica_model *m, const chat_ask *c, char **text, problem *p);

/* OpenAI's `tools` and `tool_choice` with what a template needs filled in: kinds that are no functions are
 * left out, missing parameters become an empty object. *tools is a new reference, NULL: none. */
mica_status prompt_tools(json_t **tools, const json_t *body, problem *p);
mica_status prompt_tool_choice(chat_ask *c, const json_t *body, problem *p); // after c->tools
/* OpenAI's response_format in its three spellings, json_schema and grammar. */
mica_status prompt_format(chat_ask *c, const json_t *body, problem *p);
/* reasoning_effort; enable_thinking. */
mica_status prompt_think(chat_ask *c, const json_t *body, const char *fallback, problem *p);

/* response_format, json_schema and grammar of a request without a template. */
mica_status prompt_form(job *j, const mica_model *m, const json_t *body, problem *p);

#endif
