/* The commands: one table of names, help and the function that does it.
 *
 * A command gets its parsed options, prints results to stdout and everything else to stderr, and returns a
 * status; main.c prints the error and makes the exit code. A command whose checks fail without being an error
 * (eval ref, the self-test) returns MICA_OK and calls exit_failed_check. */
#ifndef MICA_CLI_COMMAND_H
#define MICA_CLI_COMMAND_H

#include "cli/options.h"

typedef mica_status command_fn(const options *o, mica_error *err);

typedef enum command_id {
    CMD_RUN,
    CMD_SERVE,
    CMD_BENCH,
    CMD_EVAL_LOGITS,
    CMD_EVAL_REF,
    CMD_EVAL_TASKS,
    CMD_EVAL_PPL,
    CMD_EVAL_KLD,
    CMD_EVAL_CACHE,
    CMD_PLAN,
    CMD_DEVICES,
    CMD_TUNE,
    CMD_INSPECT,
    CMD_TOKENIZE,
    CMD_DETOKENIZE,
    CMD_TEMPLATE,
    CMD_PULL,
    CMD_LIST,
    CMD_RM,
    CMD_SYNTH,
    CMD_ENV,
    CMD_VERSION,
    CMD_COMPLETION,
    CMD_HELP,
    CMD_N
} command_id;

typedef struct command {
    command_id id;
    const char *name;  // "run", or two words: "eval ppl"
    const char *usage; // what follows the name
    const char *summary;
    const char *text;       // more lines of help, NULL: none
    int min_args, max_args; // of what is no flag; max < 0: any number
    command_fn *run;
} command;

const command *command_at(command_id id);
/* The command whose name argv[0..] begins with, and how many words it took (1 or 2); NULL when there is none.
 */
const command *command_find(int argc, const char *const *argv, int *n_word);
bool command_is_group(const char *word); // the first word of two-word commands: "eval"

command_fn cmd_run, cmd_serve, cmd_bench, cmd_eval_logits, cmd_eval_ref, cmd_eval_tasks, cmd_eval_ppl,
    cmd_eval_kld, cmd_eval_cache, cmd_plan, cmd_devices, cmd_tune, cmd_inspect, cmd_tokenize, cmd_detokenize,
    cmd_template, cmd_pull, cmd_list, cmd_rm, cmd_synth, cmd_env, cmd_version, cmd_completion, cmd_help;

#endif
