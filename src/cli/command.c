/* The table of commands. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

static const char g_run[] =
    "  Without a prompt, and with a terminal on standard input, it is a conversation:\n"
    "  /help lists its commands, a line that ends in \\ goes on, Tab completes. Ctrl-C\n"
    "  stops the answer; at an empty prompt, twice, it leaves.\n"
    "  Lines are kept in the file `history` of the cache folder (MICA_HOME).\n"
    "  Generated text alone goes to standard output. Thinking, progress and times go\n"
    "  to standard error; with --raw and --json thinking is part of the text.\n"
    "\n"
    "    mica run smollm2-135m\n"
    "    mica run smollm2-135m \"What is a mica?\"\n"
    "    git diff | mica run model.gguf -p \"Write a commit message.\" > message.txt\n";

static const char g_serve[] =
    "  OpenAI's API at /v1 (chat/completions, completions, responses), Anthropic's at\n"
    "  /v1/messages, a page at /. docs/CONTRACT.md lists the endpoints,\n"
    "  docs/SECURITY.md says who gets in. The first Ctrl-C or SIGTERM brings running\n"
    "  answers to their end, the second ends at once.\n"
    "\n"
    "    mica serve smollm2-135m\n"
    "    curl http://127.0.0.1:8080/v1/chat/completions \\\n"
    "        -H 'Content-Type: application/json' \\\n"
    "        -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is a mica?\"}]}'\n";

static const char g_bench[] =
    "  pp: reading a prompt of so many tokens; tg: generating so many; @d: after so\n"
    "  many tokens of context. GB/s counts the bytes of weights a test reads; share\n"
    "  compares it with what this machine's memory was measured to give in the same\n"
    "  run.\n";

static const char g_eval[] = "  One JSON value with --json (docs/CONTRACT.md gives its shape), else a short\n"
                             "  summary.\n";

static const char g_plan[] = "  Exit code 6 when it does not fit; the nearest that fits is printed.\n";

static const char g_tune[] =
    "  Loads the model several times and takes about a minute. What is found is kept\n"
    "  in the cache folder for models of this shape on this processor or card, and\n"
    "  used wherever no flag says otherwise. It changes how long an answer takes,\n"
    "  never the answer.\n";

static const char g_tokenize[] =
    "  Without TEXT or FILE the text is read from standard input. No weights are\n"
    "  loaded.\n";

static const char g_detokenize[] =
    "  Without ids they are read from standard input, separated by blanks or commas.\n"
    "  No weights are loaded.\n";

static const char g_template[] = "  No weights are loaded.\n";

static const char g_pull[] = "  Prints the path of the file. A stopped download goes on where it was.\n"
                             "\n"
                             "    mica pull smollm2-135m\n"
                             "    mica pull hf:bartowski/SmolLM2-360M-Instruct-GGUF:Q8_0\n";

static const char g_completion[] = "    source <(mica completion bash)\n"
                                   "    mica completion fish > ~/.config/fish/completions/mica.fish\n";

// name, what follows it, summary, more text, fewest and most words that are no flags, function
static const command g_commands[CMD_N] = {
    [CMD_RUN] = {CMD_RUN, "run", "-m MODEL [-p TEXT] [-f FILE]", "generate or chat in the terminal", g_run, 0,
                 1, cmd_run},
    [CMD_SERVE] = {CMD_SERVE, "serve", "-m MODEL [--host ADDRESS] [--port N]",
                   "answer over HTTP: OpenAI's and Anthropic's APIs, and a page", g_serve, 0, 0, cmd_serve},
    [CMD_BENCH] = {CMD_BENCH, "bench", "-m MODEL [-p N,...] [-n N,...] [-d N,...]",
                   "measure speed: pp512, tg128, pp512@d4096 ...", g_bench, 0, 0, cmd_bench},
    [CMD_EVAL_LOGITS] = {CMD_EVAL_LOGITS, "eval logits", "-m MODEL --tokens ID,...",
                         "logits after given token ids", g_eval, 0, 0, cmd_eval_logits},
    [CMD_EVAL_REF] = {CMD_EVAL_REF, "eval ref", "-m MODEL --ref FILE",
                      "compare with reference outputs; exit code 1 when they differ", g_eval, 0, 0,
                      cmd_eval_ref},
    [CMD_EVAL_TASKS] = {CMD_EVAL_TASKS, "eval tasks", "-m MODEL --tasks FILE", "count right answers", g_eval,
                        0, 0, cmd_eval_tasks},
    [CMD_EVAL_PPL] = {CMD_EVAL_PPL, "eval ppl", "-m MODEL -f FILE",
                      "perplexity of a text, over windows of the context", g_eval, 0, 0, cmd_eval_ppl},
    [CMD_EVAL_KLD] = {CMD_EVAL_KLD, "eval kld", "-m MODEL --base GGUF -f FILE",
                      "divergence from another model on a text", g_eval, 0, 0, cmd_eval_kld},
    [CMD_EVAL_CACHE] = {CMD_EVAL_CACHE, "eval cache", "--trace FILE [--capacity PERCENT,...]",
                        "recorded routing against caches of experts", g_eval, 0, 0, cmd_eval_cache},
    [CMD_PLAN] = {CMD_PLAN, "plan", "-m MODEL", "where every byte would go, without loading anything", g_plan,
                  0, 0, cmd_plan},
    [CMD_DEVICES] = {CMD_DEVICES, "devices", "[--selftest]", "what models can run on, usable or why not",
                     NULL, 0, 0, cmd_devices},
    [CMD_TUNE] = {CMD_TUNE, "tune", "-m MODEL | --list | --erase",
                  "measure threads, prompt chunk and drafts, keep the best", g_tune, 0, 0, cmd_tune},
    [CMD_INSPECT] = {CMD_INSPECT, "inspect", "MODEL", "header, metadata and tensors of a GGUF file", NULL, 0,
                     0, cmd_inspect},
    [CMD_TOKENIZE] = {CMD_TOKENIZE, "tokenize", "-m MODEL [TEXT | -f FILE]", "text to token ids", g_tokenize,
                      0, 1, cmd_tokenize},
    [CMD_DETOKENIZE] = {CMD_DETOKENIZE, "detokenize", "-m MODEL [ID ...]", "token ids to text", g_detokenize,
                        0, -1, cmd_detokenize},
    [CMD_TEMPLATE] = {CMD_TEMPLATE, "template", "-m MODEL --messages FILE",
                      "chat messages to the prompt the model reads", g_template, 0, 0, cmd_template},
    [CMD_PULL] = {CMD_PULL, "pull", "hf:ORG/REPO[:QUANT] | URL | NAME",
                  "download a model: verified, resumable", g_pull, 1, 1, cmd_pull},
    [CMD_LIST] = {CMD_LIST, "list", "", "pulled models", NULL, 0, 0, cmd_list},
    [CMD_RM] = {CMD_RM, "rm", "NAME ...", "delete pulled models", NULL, 1, -1, cmd_rm},
    [CMD_SYNTH] = {CMD_SYNTH, "synth", "--preset NAME --quant TYPE -o FILE",
                   "write a random-weight GGUF with a real model's shape", NULL, 0, 0, cmd_synth},
    [CMD_ENV] = {CMD_ENV, "env", "", "the environment variables that are read, and their values", NULL, 0, 0,
                 cmd_env},
    [CMD_VERSION] = {CMD_VERSION, "version", "", "version of the program and of what it is built with", NULL,
                     0, 0, cmd_version},
    [CMD_COMPLETION] = {CMD_COMPLETION, "completion", "bash|zsh|fish", "completion script for a shell",
                        g_completion, 1, 1, cmd_completion},
    [CMD_HELP] = {CMD_HELP, "help", "[COMMAND]", "this page, or the flags of a command", NULL, 0, 2,
                  cmd_help},
};

const command *command_at(command_id id) {
    return &g_commands[id];
}

const command *command_find(int argc, const char *const *argv, int *n_word) {
    for (int words = 2; words >= 1; words--) {
        if (words > argc) continue;
        char name[64];
        snprintf(name, sizeof name, words == 2 ? "%s %s" : "%s", argv[0], words == 2 ? argv[1] : "");
        for (int id = 0; id < CMD_N; id++) {
            if (strcmp(g_commands[id].name, name) != 0) continue;
            *n_word = words;
            return &g_commands[id];
        }
    }
    return NULL;
}

bool command_is_group(const char *word) {
    const size_t n = strlen(word);
    for (int id = 0; id < CMD_N; id++)
        if (strncmp(g_commands[id].name, word, n) == 0 && g_commands[id].name[n] == ' ') return true;
    return false;
}
