/* mica_eval_tasks: greedy answers to prompts with one right answer each. */
#include "mica_tools.h"

#include "base/str.h"
#include "eval/report.h"
#include "run/api_int.h"
#include "text/detok.h"

#include <string.h>

/* Decodes until the text equals the answer or can no longer become it. */
static mica_status answer_is(bool *right, mica_session *s, const mica_ids *prompt, slice answer,
                             mica_error *err) {
    strbuf text = {0};
    text_stream ts;
    mica_status st = MICA_OK;
    *right = false;
    text_stream_init(&ts, s->m->vocab, TEXT_SHOW_CONTROL);
    session_sync_args a = {.ids = prompt->ids, .n = prompt->n};
    TRY_GOTO(session_sync(s->s, &a, NULL, err), done);
    for (;;) {
        int32_t id = sample_argmax(session_logits(s->s), s->m->info.n_vocab);
        size_t before = text.n;
        text_stream_put(&ts, id, &text);
        *right = slice_eq((slice){text.p, text.n}, answer);
        bool may = text.n < answer.n && memcmp(strbuf_cstr(&text), answer.p, text.n) == 0;
        if (*right || !may || (text.n == before && text_vocab_ends(s->m->vocab, id))) break;
        if (session_length(s->s) >= s->m->info.n_ctx) break;
        TRY_GOTO(session_append(s->s, id, err), done);
    }
done:
    strbuf_fini(&text);
    return st;
}

static void count(json_t *by_task, const char *task, bool right) {
    json_t *t = json_object_get(by_task, task);
    if (!t) {
        t = json_pack("{s:i, s:i}", "right", 0, "total", 0);
        json_object_set_new(by_task, task, t);
    }
    json_object_set_new(t, "right", json_integer(json_integer_value(json_object_get(t, "right")) + right));
    json_object_set_new(t, "total", json_integer(json_integer_value(json_object_get(t, "total")) + 1));
}

mica_status mica_eval_tasks(char **json, mica_session *s, const char *path, mica_progress_fn *progress,
                            void *user, mica_error *err) {
    *json = NULL;
    json_t *tasks, *by_task = json_object();
    json_int_t n_right = 0;
    mica_status st = report_read_gz(&tasks, path, err);
    size_t n = st == MICA_OK ? json_array_size(tasks) : 0;
    if (st == MICA_OK && n == 0) st = fail(err, MICA_E_FORMAT, "%s: no tasks: an array is expected", path);
    for (size_t i = 0; st == MICA_OK && i < n; i++) {
        const json_t *t = json_array_get(tasks, i), *answer = json_object_get(t, "answer");
        const char *task = json_string_value(json_object_get(t, "task")),
                   *p = json_string_value(json_object_get(t, "prompt"));
        mica_ids ids = {0};
        bool right = false;
        if (!task || !p || !answer) {
            st = fail(err, MICA_E_FORMAT, "%s: task %zu: task, prompt and answer are needed", path, i);
            break;
        }
        st = mica_tokenize(s->m, p, strlen(p), true, true, &ids, err);
        slice want = {json_string_value(answer), json_string_length(answer)};
        if (st == MICA_OK) st = answer_is(&right, s, &ids, want, err);
        mica_ids_free(&ids);
        n_right += right;
        count(by_task, task, right);
        if (progress) progress(user, "tasks", i + 1, n);
    }
    json_decref(tasks);
    if (st != MICA_OK) {
        json_decref(by_task);
        return st;
    }
    return report_text(
        json, json_pack("{s:I, s:I, s:o}", "right", n_right, "total", (json_int_t)n, "by_task", by_task),
        err);
}
