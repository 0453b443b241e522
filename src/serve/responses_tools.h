/* Tools in namespaces of the Responses API. Pure.
 *
 * Agents send the tools of each MCP server as {"type": "namespace", "name": ..., "tools": [functions]}, and a
 * call of one says `namespace` beside `name`. Templates know functions alone: a model sees these beside the
 * others, by their own names, and by NAMESPACE__NAME where another tool has that name already. */
#ifndef MICA_SERVE_RESPONSES_TOOLS_H
#define MICA_SERVE_RESPONSES_TOOLS_H

#include "serve/problem.h"

#include <jansson.h>

enum { RESPONSES_TOOLS_MAX = 1024 };

/* *out: the tools without namespaces (new; NULL where `given` is no array). names: an object; gets a member
 * for each function out of a namespace, by the name the model sees: {"namespace": ..., "name": ...}. A 400
 * names a tool that cannot be told from another, or says how many there may be. */
mica_status responses_tools_flat(json_t **out, json_t *names, const json_t *given, problem *p);

/* The name that the model sees for a call; `name` itself without a namespace, or one that is not known. */
const char *responses_tool_seen(const json_t *names, const char *namespace, const char *name);

/* Makes a function_call item of the model say namespace and name as the client sent them. */
void responses_tool_name(json_t *item, const json_t *names);

#endif
