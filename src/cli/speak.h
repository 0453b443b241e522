/* Where the text of one answer goes: to the terminal or a pipe, or out as JSON lines, while it is being made;
 * and into memory, for the conversation. */
#ifndef MICA_CLI_SPEAK_H
#define MICA_CLI_SPEAK_H

#include "cli/options.h"
#include "cli/reply.h"
#include "cli/term.h"

typedef struct speaker {
    reply reply;
    progress bar; // of the prompt; wiped before the first word
    bool json;
    bool in_thinking;        // standard error stands inside dimmed text
    bool failed;             // standard output or memory gave up
    char last;               // last byte of the answer, for the newline on a terminal
    strbuf answer, thinking; // the parts
    strbuf all;              // everything, in order
    // JSON: the line that waits for text still held back
    strbuf line;
    int32_t line_id;
    bool line_waits;
    int32_t *ids; // owned
    size_t n_ids, cap_ids;
} speaker;

/* opt: all but where pieces go. */
mica_status speaker_init(speaker *s, const reply_options *opt, bool json, mica_error *err);
void speaker_fini(speaker *s);
bool speaker_token(void *user, int32_t id); // a mica_token_fn; user is the speaker
void speaker_end(speaker *s);               // the rest of the text; then the parts are whole
#endif
