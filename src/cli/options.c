/* The table of flags and the parser that walks it. Numbers are read whole and held to their range here, so
 * that no command meets a value it has to doubt; what needs the model to judge (an effort, a prompt's length)
 * is judged there. */
#include "cli/options.h"

#include "base/mem.h"
#include "base/near.h"
#include "cli/command.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
    KIND_FLAG,    // bool
    KIND_TEXT,    // const char *
    KIND_FILE,    // const char *, completed as a file name
    KIND_INT,     // int64_t; `words` may name values: "off=0"
    KIND_REAL,    // double
    KIND_SIZE,    // uint64_t bytes: 16G, 1.5GiB, 4096
    KIND_CHOICE,  // int, the index in `words`: "f16|f32|int8"
    KIND_TEXTS,   // text_list, one for each time it is given
    KIND_NUMBERS, // number_list, separated by commas
    KIND_REFUSED  // known, and not possible in this build: `words` says why
} option_kind;

typedef struct option_row {
    const char *name, *shorter, *aliases;
    option_kind kind;
    option_group group;
    const char *value, *words;
    const char *offers; // for completion: values that are likely, not the only ones
    double lo, hi;
    uint64_t commands; // bit of each command_id that takes it
    size_t offset;     // of the field in `options`
    const char *help;
} option_row;

#define C(x) (UINT64_C(1) << CMD_##x)
#define EVALS (C(EVAL_LOGITS) | C(EVAL_REF) | C(EVAL_TASKS) | C(EVAL_PPL) | C(EVAL_KLD))
#define COMPUTE (C(RUN) | C(SERVE) | C(BENCH) | C(TUNE) | EVALS)
#define TEXTS (C(TOKENIZE) | C(DETOKENIZE) | C(TEMPLATE))
#define JSONS                                                                                                \
    (C(RUN) | C(BENCH) | C(TUNE) | EVALS | C(EVAL_CACHE) | C(PLAN) | C(DEVICES) | C(INSPECT) | TEXTS |       \
     C(PULL) | C(LIST) | C(SYNTH) | C(ENV) | C(VERSION))
#define EVERY ((UINT64_C(1) << CMD_N) - 1)
#define ROW(g, k, field, who)                                                                                \
    .group = GROUP_##g, .kind = KIND_##k, .offset = offsetof(options, field), .commands = (who)
#define REFUSED(flag, v, why)                                                                                \
    .kind = KIND_REFUSED, .commands = COMPUTE | C(PLAN), .name = flag, .value = v, .words = why

#define KV_WORDS "f16|f32|int8|q8_0" // the first three in the order of mica_kv_type

// clang-format off
static const option_row g_rows[] = {
    // the commands' own
    {ROW(COMMAND, TEXT, prompt, C(RUN)), .name = "--prompt", .shorter = "-p", .value = "TEXT",
     .help = "what to answer; what comes in a pipe or file on standard input goes below it (default: a "
             "conversation, or standard input alone)"},
    {ROW(COMMAND, FILE, file, C(RUN)), .name = "--file", .shorter = "-f", .value = "FILE",
     .help = "read the prompt from FILE, with -p what goes below it; - is standard input"},
    {ROW(COMMAND, TEXT, system, C(RUN)), .name = "--system", .shorter = "-sys", .aliases = "--system-prompt",
     .value = "TEXT",
     .help = "system message"},
    {ROW(COMMAND, FLAG, raw, C(RUN)), .name = "--raw",
     .help = "no chat template: the prompt goes in as it is, control tokens in it are recognised"},
    {ROW(COMMAND, TEXT, think, C(RUN) | C(SERVE) | C(TEMPLATE)), .name = "--think", .value = "on|off|EFFORT",
     .offers = "on|off|none|minimal|low|medium|high|xhigh|max",
     .help = "thinking before the answer (default: as the template likes)"},
    {ROW(COMMAND, TEXT, kwargs, C(RUN) | C(TEMPLATE)), .name = "--chat-template-kwargs", .value = "JSON",
     .help = "object of further variables for the template"},
    {ROW(COMMAND, INT, predict, C(RUN)), .name = "--predict", .shorter = "-n", .aliases = "--n-predict",
     .value = "N", .lo = -1, .hi = INT32_MAX,
     .help = "most tokens to make; 0: read the prompt only, -1: until the end of the turn (default)"},
    {ROW(COMMAND, TEXTS, stop, C(RUN)), .name = "--stop", .value = "TEXT",
     .help = "end the answer before TEXT; may be given several times"},
    {ROW(COMMAND, FLAG, ignore_end, C(RUN)), .name = "--ignore-eos",
     .help = "go on after the end of the turn"},
    {ROW(COMMAND, INT, draft, C(RUN) | C(SERVE) | C(BENCH) | C(PLAN)), .name = "--draft", .value = "N|off",
     .words = "off=0", .hi = 7,
     .help = "most tokens drafted ahead, by the model's own draft block or else by looking back in the text; "
             "off leaves the block out (default: 4 with a draft block, else off)"},
    {ROW(COMMAND, TEXT, draft_model, COMPUTE | C(PLAN)), .name = "--draft-model", .value = "FILE",
     .help = "the model's draft block, where it is a file of its own (mtp-*.gguf)"},
    {ROW(COMMAND, REAL, draft_min_p, C(RUN) | C(SERVE)), .name = "--draft-min-p", .value = "P", .hi = 1,
     .help = "a draft ends below this probability of the draft block's (default 0)"},
    {ROW(COMMAND, NUMBERS, n_prompt, C(BENCH)), .name = "--n-prompt", .shorter = "-p", .value = "N,...",
     .hi = INT32_MAX,
     .help = "prompt lengths to time (default 512; 0: none)"},
    {ROW(COMMAND, NUMBERS, n_gen, C(BENCH)), .name = "--n-gen", .shorter = "-n", .value = "N,...",
     .hi = INT32_MAX,
     .help = "numbers of generated tokens to time (default 128; 0: none)"},
    {ROW(COMMAND, NUMBERS, depth, C(BENCH)), .name = "--depth", .shorter = "-d", .aliases = "--n-depth",
     .value = "N,...", .hi = INT32_MAX,
     .help = "tokens already in the context before each test (default 0)"},
    {ROW(COMMAND, INT, repeats, C(BENCH)), .name = "--repeats", .shorter = "-r", .aliases = "--repetitions",
     .value = "N", .lo = 1, .hi = 1000,
     .help = "runs of each test (default 5)"},
    {ROW(COMMAND, FLAG, profile_ops, C(BENCH)), .name = "--profile-ops",
     .help = "also time every operation of one more run (processor only)"},
    {ROW(COMMAND, CHOICE, format, C(BENCH)), .name = "--output", .shorter = "-o", .value = "FORMAT",
     .words = "md|csv|json",
     .help = "form of the table (default md)"},
    {ROW(COMMAND, NUMBERS, tokens, C(EVAL_LOGITS)), .name = "--tokens", .value = "ID,...", .hi = INT32_MAX,
     .help = "the token ids to read"},
    {ROW(COMMAND, CHOICE, positions, C(EVAL_LOGITS)), .name = "--positions", .value = "WHICH",
     .words = "last|all",
     .help = "print the logits after the last id (default) or after each"},
    {ROW(COMMAND, INT, top, C(EVAL_LOGITS)), .name = "--top", .value = "K", .lo = 1, .hi = INT32_MAX,
     .help = "only the K best, as [id, logit]"},
    {ROW(COMMAND, INT, split_at, C(EVAL_LOGITS)), .name = "--split-at", .value = "N", .lo = 1,
     .hi = INT32_MAX,
     .help = "read the first N ids in a call of their own"},
    {ROW(COMMAND, FILE, ref, C(EVAL_REF)), .name = "--ref", .value = "FILE",
     .help = "reference file (.ref.json.gz)"},
    {ROW(COMMAND, FILE, tasks, C(EVAL_TASKS)), .name = "--tasks", .value = "FILE",
     .help = "file of prompts and right answers (.json.gz)"},
    {ROW(COMMAND, FILE, file, C(EVAL_PPL) | C(EVAL_KLD)), .name = "--file", .shorter = "-f", .value = "FILE",
     .help = "text to score"},
    {ROW(COMMAND, FILE, base, C(EVAL_KLD)), .name = "--base", .value = "GGUF",
     .help = "the model to compare with"},
    {ROW(COMMAND, FILE, trace, C(EVAL_CACHE)), .name = "--trace", .value = "FILE",
     .help = "record of routing, made with --trace of another command"},
    {ROW(COMMAND, NUMBERS, capacity, C(EVAL_CACHE)), .name = "--capacity", .value = "PERCENT,...",
     .lo = 1, .hi = 100,
     .help = "shares of the experts that the cache holds (default 10,25,50)"},
    {ROW(COMMAND, FLAG, selftest, C(DEVICES)), .name = "--selftest",
     .help = "compare every kernel with the definition on the CPU; exit code 1 when one differs"},
    {ROW(COMMAND, FLAG, list, C(TUNE)), .name = "--list",
     .help = "show what is kept"},
    {ROW(COMMAND, FLAG, erase, C(TUNE)), .name = "--erase",
     .help = "forget what is kept for the model, for all models when none is named"},
    {ROW(COMMAND, FLAG, all, C(INSPECT)), .name = "--all",
     .help = "long arrays of the metadata in full"},
    {ROW(COMMAND, FILE, file, C(TOKENIZE)), .name = "--file", .shorter = "-f", .value = "FILE",
     .help = "read the text from FILE, - is standard input"},
    {ROW(COMMAND, FLAG, special, C(TOKENIZE)), .name = "--special",
     .help = "recognise control tokens in the text (default: all of it is plain text)"},
    {ROW(COMMAND, FLAG, special, C(DETOKENIZE)), .name = "--special",
     .help = "print the names of control tokens (default: leave them out)"},
    {ROW(COMMAND, FLAG, bos, C(TOKENIZE)), .name = "--bos",
     .help = "begin with the model's begin-of-text token where its file asks for one"},
    {ROW(COMMAND, FILE, messages, C(TEMPLATE)), .name = "--messages", .value = "FILE",
     .help = "JSON array of chat messages, - is standard input"},
    {ROW(COMMAND, FILE, tools, C(TEMPLATE)), .name = "--tools", .value = "FILE",
     .help = "JSON array of tool definitions"},
    {ROW(COMMAND, FLAG, no_generation_prompt, C(TEMPLATE)), .name = "--no-generation-prompt",
     .help = "leave out the opening of the assistant's turn"},
    {ROW(COMMAND, TEXT, preset, C(SYNTH)), .name = "--preset", .value = "NAME",
     .help = "shape of the model; --presets lists them"},
    {ROW(COMMAND, FLAG, presets, C(SYNTH)), .name = "--presets",
     .help = "list the presets"},
    {ROW(COMMAND, TEXT, quant, C(SYNTH)), .name = "--quant", .value = "TYPE",
     .help = "type of the weights, such as q4_k_m or q8_0"},
    {ROW(COMMAND, FILE, output, C(SYNTH)), .name = "--output", .shorter = "-o", .value = "FILE",
     .help = "the file to write"},
    {ROW(COMMAND, FILE, vocab, C(SYNTH)), .name = "--vocab", .value = "GGUF",
     .help = "take the vocabulary and template of this file (default: a dummy one)"},
    {ROW(COMMAND, TEXTS, set, C(SYNTH)), .name = "--set", .value = "KEY=N",
     .help = "another value for a number of the preset; may be given several times"},
    {ROW(COMMAND, INT, layers, C(SYNTH)), .name = "--layers", .value = "N", .lo = 1, .hi = 4096,
     .help = "number of layers"},
    {ROW(COMMAND, INT, experts, C(SYNTH)), .name = "--experts", .value = "N", .lo = 1, .hi = 65536,
     .help = "number of experts a layer"},
    {ROW(COMMAND, REAL, router_skew, C(SYNTH)), .name = "--router-skew", .value = "S", .hi = 10,
     .help = "Zipf exponent of how often experts are chosen (default 0: evenly)"},
    {ROW(COMMAND, FLAG, mtp, C(SYNTH)), .name = "--mtp",
     .help = "with the draft block"},
    {ROW(COMMAND, FLAG, dry_run, C(SYNTH)), .name = "--dry-run",
     .help = "print the sizes, write nothing"},
    {ROW(COMMAND, FLAG, force, C(SYNTH)), .name = "--force",
     .help = "write over a file that is there"},
    {ROW(COMMAND, TEXT, host, C(SERVE)), .name = "--host", .value = "ADDRESS",
     .help = "address to listen on (default 127.0.0.1: this machine alone)"},
    {ROW(COMMAND, INT, port, C(SERVE)), .name = "--port", .value = "N", .hi = 65535,
     .help = "port to listen on, 0: any that is free (default 8080)"},
    {ROW(COMMAND, TEXTS, api_key, C(SERVE)), .name = "--api-key", .value = "KEY",
     .help = "requests need this key; may be given several times (others can read it in the list of "
             "processes)"},
    {ROW(COMMAND, FILE, api_key_file, C(SERVE)), .name = "--api-key-file", .value = "FILE",
     .help = "the same from a file, one key a line"},
    {ROW(COMMAND, TEXTS, allow_origin, C(SERVE)), .name = "--allow-origin", .value = "ORIGIN",
     .help = "web pages of ORIGIN may use the server, as https://example.org; may be given several times"},
    {ROW(COMMAND, TEXTS, allow_host, C(SERVE)), .name = "--allow-host", .value = "NAME",
     .help = "a further name that the server is called by; may be given several times"},
    {ROW(COMMAND, TEXT, alias, C(SERVE)), .name = "--alias", .shorter = "-a", .value = "NAME",
     .help = "the model's name to clients (default: the one in the file)"},
    {ROW(COMMAND, FILE, state_dir, C(SERVE)), .name = "--state-dir", .value = "DIR",
     .help = "folder for stored responses, saved slots and prompts read before (default: none is kept)"},
    {ROW(COMMAND, FLAG, insecure, C(SERVE)), .name = "--insecure",
     .help = "listen where others reach it without a key"},
    {ROW(COMMAND, FLAG, reuse_generated, C(SERVE)), .name = "--reuse-generated",
     .help = "also what was generated counts as read: faster, not always the bits of a fresh start"},
    {ROW(COMMAND, FILE, web_dir, C(SERVE)), .name = "--web-dir", .value = "DIR",
     .help = "read the page's files from DIR (default: those in the program)"},
    {ROW(COMMAND, INT, queue, C(SERVE)), .name = "--queue", .value = "N", .lo = 1, .hi = 100000,
     .help = "requests that may wait (default 256)"},
    {ROW(COMMAND, INT, receive_s, C(SERVE)), .name = "--receive-timeout", .value = "S", .lo = 1, .hi = 86400,
     .help = "seconds in which a request has to come whole (default 60)"},
    {ROW(COMMAND, INT, ping_s, C(SERVE)), .name = "--ping-interval", .aliases = "--sse-ping-interval",
     .value = "S", .lo = 1, .hi = 3600,
     .help = "seconds after which a silent stream says that it lives (default 10)"},
    {ROW(COMMAND, INT, stall_s, C(SERVE)), .name = "--stall-timeout", .value = "S", .lo = 1, .hi = 86400,
     .help = "seconds after which a client that reads nothing is left (default 60)"},
    {ROW(COMMAND, SIZE, body_bytes, C(SERVE)), .name = "--max-body", .value = "SIZE",
     .help = "most that is read of a request (default 16M)"},
    {ROW(COMMAND, FLAG, man, C(HELP)), .name = "--man",
     .help = "all of it as a manual page (troff)"},

    // the model and where it runs
    {ROW(MODEL, FILE, model, COMPUTE | TEXTS | C(PLAN) | C(INSPECT)), .name = "--model", .shorter = "-m",
     .value = "MODEL",
     .help = "GGUF file, the first file of a split model, or a pulled name; the first plain word means "
             "the same"},
    {ROW(MODEL, TEXT, hf, COMPUTE | TEXTS | C(PLAN) | C(INSPECT)), .name = "-hf", .aliases = "--hf-repo",
     .value = "ORG/REPO[:QUANT]",
     .help = "pull this model from Hugging Face unless it is here already"},
    {ROW(MODEL, INT, context, COMPUTE | C(PLAN)), .name = "--context", .shorter = "-c",
     .aliases = "--ctx-size", .value = "N", .hi = INT32_MAX,
     .help = "tokens of context (default 0: the model's own or what fits, at least 4096)"},
    {ROW(MODEL, INT, threads, COMPUTE | C(PLAN)), .name = "--threads", .shorter = "-t", .value = "N",
     .hi = 1024,
     .help = "CPU threads (default 0: one for each fast core this process may use)"},
    {ROW(MODEL, TEXT, device, COMPUTE | C(PLAN)), .name = "--device", .shorter = "-dev", .value = "NAME",
     .offers = "auto|cpu|ref",
     .help = "auto, cpu, hip:N, cuda:N, sim:N, or ref: the scalar definition (default auto)"},
    {ROW(MODEL, INT, gpu_layers, COMPUTE | C(PLAN)), .name = "--gpu-layers", .shorter = "-ngl",
     .aliases = "--n-gpu-layers", .value = "N", .words = "auto=-1|all=2147483647", .lo = -1, .hi = INT32_MAX,
     .offers = "auto|all|0",
     .help = "as in llama.cpp: all of the model's layers on a card (all, 99), or none of them (0)"},
    {ROW(MODEL, TEXT, isa, COMPUTE), .name = "--isa", .value = "NAME", .offers = "scalar|avx2|avx512",
     .help = "most that the CPU may use: scalar, avx2 or avx512 (default: the best there is)"},
    {ROW(MODEL, CHOICE, kv, COMPUTE | C(PLAN)), .name = "--kv", .value = "TYPE", .words = "f16|f32|int8",
     .help = "type of the KV cache (default f16; eval ref: f32)"},
    {ROW(MODEL, CHOICE, kv_k, COMPUTE | C(PLAN)), .name = "--cache-type-k", .shorter = "-ctk",
     .value = "TYPE", .words = KV_WORDS,
     .help = "as in llama.cpp; keys and values have one type here, so -ctv has to say the same"},
    {ROW(MODEL, CHOICE, kv_v, COMPUTE | C(PLAN)), .name = "--cache-type-v", .shorter = "-ctv",
     .value = "TYPE", .words = KV_WORDS,
     .help = "the same of values; q8_0 is int8"},
    {ROW(MODEL, INT, ubatch, COMPUTE | C(PLAN)), .name = "--ubatch", .shorter = "-ub",
     .aliases = "--ubatch-size", .value = "N", .lo = 1, .hi = 65536,
     .help = "tokens of the prompt computed at once (default 512)"},
    {ROW(MODEL, INT, parallel, C(PLAN) | C(SERVE)), .name = "--parallel", .shorter = "-np", .value = "N",
     .lo = 1, .hi = 1024,
     .help = "sequences at the same time (default 1; serve: 4)"},
    {ROW(MODEL, SIZE, cache_ram, C(SERVE)), .name = "--cache-ram", .value = "SIZE",
     .help = "memory for prompts that were read before (default 256M)"},
    {ROW(MODEL, SIZE, ram, COMPUTE | C(PLAN)), .name = "--ram", .value = "SIZE",
     .help = "most memory to use, such as 16G (default: what is free)"},
    {ROW(MODEL, FLAG, exact, COMPUTE), .name = "--exact",
     .help = "prompts without float matrix units: the same bits on every device"},
    {ROW(MODEL, SIZE, vram, COMPUTE | C(PLAN)), .name = "--vram", .value = "SIZE",
     .help = "most of a card's memory to use (default: what is free, less the reserve)"},
    {ROW(MODEL, SIZE, vram_reserve, COMPUTE | C(PLAN)), .name = "--vram-reserve", .value = "SIZE",
     .help = "memory of the card left alone "
             "(default: a 32nd of it, 700M where a screen is connected, 3G with a desktop)"},
    {ROW(MODEL, FILE, trace, COMPUTE), .name = "--trace", .value = "FILE",
     .help = "record which experts tokens choose into FILE, for `mica eval cache`"},
    {ROW(MODEL, CHOICE, experts_ram, COMPUTE | C(PLAN)), .name = "--experts-ram", .value = "HOW",
     .words = "auto|all|complement|mmap",
     .help = "how memory holds experts that a card has no room for: a copy of all, of those that are not on "
             "the card, or the file's pages (default auto: the first that fits)"},
    {ROW(MODEL, FILE, profile, COMPUTE), .name = "--profile", .value = "FILE",
     .help = "learned use of experts, read at the start and kept up to date (default: experts.db in the "
             "cache folder)"},
    {REFUSED("--kv-resident", "N", "not in this version: the whole cache stays where the model runs")},
    {REFUSED("--n-cpu-moe", "N", "not in this version: --vram says how much of a card to use, and the "
             "most used experts get it"), .shorter = "-ncmoe"},

    // sampling
    {ROW(SAMPLING, REAL, temp, C(RUN) | C(SERVE)), .name = "--temp", .aliases = "--temperature",
     .value = "T", .hi = 100,
     .help = "temperature, 0: always the likeliest token (default: the model's, else 0.8)"},
    {ROW(SAMPLING, INT, top_k, C(RUN) | C(SERVE)), .name = "--top-k", .value = "K", .hi = INT32_MAX,
     .help = "among the K likeliest, 0: all (default: the model's, else 40)"},
    {ROW(SAMPLING, REAL, top_p, C(RUN) | C(SERVE)), .name = "--top-p", .value = "P", .hi = 1,
     .help = "among the likeliest that make up P, 1: all (default: the model's, else 0.95)"},
    {ROW(SAMPLING, REAL, min_p, C(RUN) | C(SERVE)), .name = "--min-p", .value = "P", .hi = 1,
     .help = "at least P times as likely as the likeliest (default: the model's, else 0.05)"},
    {ROW(SAMPLING, REAL, repeat_penalty, C(RUN) | C(SERVE)), .name = "--repeat-penalty",
     .value = "R", .lo = 0.01,
     .hi = 100,
     .help = "divide the logits of tokens seen lately, 1: off"},
    {ROW(SAMPLING, REAL, presence_penalty, C(RUN) | C(SERVE)), .name = "--presence-penalty",
     .value = "A", .lo = -100,
     .hi = 100,
     .help = "take A from the logits of tokens seen lately, 0: off"},
    {ROW(SAMPLING, REAL, frequency_penalty, C(RUN) | C(SERVE)), .name = "--frequency-penalty",
     .value = "A", .lo = -100,
     .hi = 100,
     .help = "the same for each time a token was seen, 0: off"},
    {ROW(SAMPLING, INT, repeat_last_n, C(RUN) | C(SERVE)), .name = "--repeat-last-n", .value = "N", .lo = -1,
     .hi = INT32_MAX,
     .help = "tokens that count as lately, -1: the whole context (default: the model's, else 64)"},
    {ROW(SAMPLING, INT, seed, C(RUN)), .name = "--seed", .shorter = "-s", .value = "N", .lo = -1,
     .hi = 9.2e18,
     .help = "the same seed gives the same answer (default -1: a random one, printed)"},
    {ROW(COMMAND, INT, seed, C(SYNTH)), .name = "--seed", .value = "N", .hi = 9.2e18,
     .help = "the same seed gives the same file (default 1)"},

    // everywhere
    {ROW(GENERAL, FLAG, json, JSONS), .name = "--json",
     .help = "results as JSON on standard output (run: one value a line)"},
    {ROW(GENERAL, FLAG, help, EVERY), .name = "--help", .shorter = "-h",
     .help = "this page"},
};
// clang-format on
#define N_ROW (sizeof g_rows / sizeof g_rows[0])
static_assert(N_ROW <= OPTION_MAX, "options.seen has one place for each row");

/* ---- Finding rows ---- */

static bool takes(const option_row *r, const command *c) {
    return (r->commands >> c->id & 1) != 0;
}

static bool among(const char *list, const char *word, size_t n) {
    for (const char *p = list; p && *p;) {
        const size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, word, n) == 0) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

static bool is_called(const option_row *r, const char *word, size_t n) {
    return among(r->name, word, n) || among(r->shorter, word, n) || among(r->aliases, word, n);
}

/* The row of command c (NULL: of any) that the n bytes at `word` name, or NULL. */
static const option_row *find_row(const command *c, const char *word, size_t n) {
    for (size_t i = 0; i < N_ROW; i++)
        if ((!c || takes(&g_rows[i], c)) && is_called(&g_rows[i], word, n)) return &g_rows[i];
    return NULL;
}

/* What people of llama.cpp and ollama type, where a name nearby would be a wrong guess. */
static const struct {
    const char *flags, *instead;
} g_elsewhere[] = {
    {"-fa --flash-attn --no-flash-attn", "nothing to choose: attention never keeps a table of all scores"},
    {"-b --batch-size", "-ub is the number of prompt tokens computed at once"},
    {"--mlock", "there is no such lock: `mica plan` says whether the model stays in memory"},
    {"--mmap --no-mmap", "weights are always mapped from the file"},
    {"-cnv --conversation -i --interactive -if", "leave out -p and -f for a conversation"},
    {"-no-cnv --no-conversation -st --single-turn",
     "-p gives one answer, --raw leaves out the chat template"},
    {"--jinja --no-jinja --chat-template --chat-template-file",
     "the model's own template is always used, --raw leaves it out"},
    {"-co --color --colors --log-colors", "colour is used on a terminal, NO_COLOR switches it off"},
    {"-e --escape --no-escape", "the text is taken as it is: let the shell write line breaks"},
    {"--no-display-prompt --simple-io --no-warmup --no-perf", "that is how it always is: leave it out"},
    {"-v --verbose --log-disable --log-verbose", "times go to standard error, 2>/dev/null leaves them out"},
    {"--log-file", "messages go to standard error: 2>FILE keeps them"},
    {"--list-devices", "`mica devices` lists them"},
    {"-tb --threads-batch", "-t is the number of threads for prompts and answers"},
    {"-mu --model-url", "`mica pull URL` downloads it, -m takes the name that it prints"},
    {"-hff --hf-file", "-hf ORG/REPO:QUANT picks the file"},
    {"--mmproj -mm --image --audio", "models read text only here"},
    {"--lora --lora-scaled --control-vector", "there are no adapters here: use a model that has it merged"},
    {"--numa -C --cpu-mask --cpu-strict --prio --poll",
     "`taskset` and `numactl` say where it may run, -t how wide"},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu", "--device says which card"},
    {"-ot --override-tensor --cpu-moe -cmoe --n-cpu-moe-draft",
     "`mica plan` shows where weights go; --vram says how much of a card they may take"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx",
     "positions are as the model's file says"},
    {"--samplers --sampling-seq --mirostat --xtc-probability --dry-multiplier --typical --dynatemp-range",
     "the order is fixed: penalties, temperature, top-k, top-p, min-p"},
    {"-r --reverse-prompt", "--stop ends the answer before a text"},
    {"--grammar --grammar-file -j --json-schema", "`mica serve` takes grammars and schemas with a request"},
    {"--prompt-cache --slot-save-path", "`mica serve --state-dir` keeps prompts that were read"},
    {"-cb --cont-batching -nocb --metrics --slots --props --webui --ui",
     "that is how `mica serve` always is: leave it out"},
    {"-md --model-draft --spec-draft-model", "--draft-model takes the file of the model's own draft block"},
    {"--draft-max --draft-n --spec-draft-n-max", "--draft N is the most tokens drafted ahead"},
    {"--keep --context-shift --no-context-shift",
     "nothing is ever cut from a conversation: -c gives more room"},
    {"--offline", "nothing is fetched unless -hf or `mica pull` asks for it"},
};

static const char *elsewhere(const char *flag, size_t n) {
    for (size_t i = 0; i < sizeof g_elsewhere / sizeof g_elsewhere[0]; i++)
        if (among(g_elsewhere[i].flags, flag, n)) return g_elsewhere[i].instead;
    return NULL;
}

static mica_status fail_unknown_flag(const command *c, const char *flag, size_t n, mica_error *err) {
    const char *instead = elsewhere(flag, n);
    if (instead) return fail(err, MICA_E_ARG, "%.*s: no flag of mica %s: %s", (int)n, flag, c->name, instead);
    const option_row *other = find_row(NULL, flag, n);
    if (other) {
        for (int id = 0; id < CMD_N; id++) {
            if (!takes(other, command_at((command_id)id))) continue;
            return fail(err, MICA_E_ARG, "%.*s: not a flag of `mica %s`: `mica %s` takes it", (int)n, flag,
                        c->name, command_at((command_id)id)->name);
        }
    }
    const char *names[N_ROW * 2];
    size_t n_name = 0;
    for (size_t i = 0; i < N_ROW; i++) {
        if (!takes(&g_rows[i], c)) continue;
        names[n_name++] = g_rows[i].name;
        if (g_rows[i].aliases && !strchr(g_rows[i].aliases, ' ')) names[n_name++] = g_rows[i].aliases;
    }
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)n, flag);
    const char *near = near_word(word, names, n_name);
    if (near) return fail(err, MICA_E_ARG, "%.*s: unknown flag: did you mean %s?", (int)n, flag, near);
    return fail(err, MICA_E_ARG, "%.*s: unknown flag: `mica help %s` lists them", (int)n, flag, c->name);
}

/* ---- Reading values ---- */

static mica_status fail_value(const char *flag, const char *value, const char *why, mica_error *err) {
    return fail(err, MICA_E_ARG, "%s: \"%s\": %s", flag, value, why);
}

static mica_status check_range(const option_row *r, double v, const char *flag, const char *value,
                               mica_error *err) {
    if (v >= r->lo && v <= r->hi) return MICA_OK; // a NaN fails both
    char why[80];
    if (v < r->lo)
        snprintf(why, sizeof why, "the least is %.10g", r->lo);
    else
        snprintf(why, sizeof why, "the most is %.10g", r->hi);
    return fail_value(flag, value, why, err);
}

/* The value of `word` in "off=0|all=7", or false. */
static bool named_int(const char *words, const char *word, int64_t *out) {
    const size_t n = strlen(word);
    for (const char *p = words; p && *p;) {
        const size_t len = strcspn(p, "|"), key = strcspn(p, "=");
        if (key == n && memcmp(p, word, n) == 0) {
            *out = strtoll(p + key + 1, NULL, 10);
            return true;
        }
        p += len + (p[len] == '|');
    }
    return false;
}

static mica_status read_int(const option_row *r, const char *flag, const char *value, int64_t *out,
                            mica_error *err) {
    if (named_int(r->words, value, out)) return MICA_OK;
    char *end;
    errno = 0;
    const long long v = strtoll(value, &end, 10);
    if (end == value || *end || value[0] == ' ') return fail_value(flag, value, "not a whole number", err);
    if (errno == ERANGE) return fail_value(flag, value, "too large a number", err);
    TRY(check_range(r, (double)v, flag, value, err));
    *out = v;
    return MICA_OK;
}

static mica_status read_real(const option_row *r, const char *flag, const char *value, double *out,
                             mica_error *err) {
    char *end;
    const double v = strtod(value, &end);
    if (end == value || *end || value[0] == ' ') return fail_value(flag, value, "not a number", err);
    TRY(check_range(r, v, flag, value, err));
    *out = v;
    return MICA_OK;
}

static mica_status read_size(const char *flag, const char *value, uint64_t *out, mica_error *err) {
    static const char units[] = "KMGT";
    char *end;
    double v = strtod(value, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    if (unit) {
        v *= (double)(UINT64_C(1) << (10 * (unit - units + 1)));
        end++;
        if (end[0] == 'i' && end[1] == 'B') end += 2;
    }
    if (end == value || *end)
        return fail_value(flag, value, "not a size: write bytes, or 512M, 16G, 1.5G (powers of 1,024)", err);
    if (!(v >= 1 && v < 9e18)) return fail_value(flag, value, "a size lies between 1 byte and 8 EiB", err);
    *out = (uint64_t)v;
    return MICA_OK;
}

static mica_status read_choice(const option_row *r, const char *flag, const char *value, int *out,
                               mica_error *err) {
    const size_t n = strlen(value);
    int index = 0;
    for (const char *p = r->words; *p; index++) {
        const size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, value, n) == 0) {
            *out = index;
            return MICA_OK;
        }
        p += len + (p[len] == '|');
    }
    char why[80];
    snprintf(why, sizeof why, "not one of %s", r->words);
    return fail_value(flag, value, why, err);
}

static mica_status push_text(text_list *l, const char *value, mica_error *err) {
    const char **p = mem_realloc(l->p, (l->n + 1) * sizeof *p);
    if (!p) return fail(err, MICA_E_NOMEM, "arguments: %zu: out of memory", l->n + 1);
    l->p = p;
    l->p[l->n++] = value;
    return MICA_OK;
}

static mica_status read_numbers(const option_row *r, const char *flag, const char *value, number_list *l,
                                mica_error *err) {
    for (const char *p = value;;) {
        const size_t len = strcspn(p, ",");
        char one[32];
        snprintf(one, sizeof one, "%.*s", (int)(len < sizeof one ? len : sizeof one - 1), p);
        int64_t v;
        TRY(read_int(r, flag, one, &v, err));
        int64_t *grown = mem_realloc(l->p, (l->n + 1) * sizeof *grown);
        if (!grown) return fail(err, MICA_E_NOMEM, "%s: %zu numbers: out of memory", flag, l->n + 1);
        l->p = grown;
        l->p[l->n++] = v;
        if (!p[len]) return MICA_OK;
        p += len + 1;
    }
}

/* Puts the value (NULL for a flag) where the row says. */
static mica_status store(options *o, const option_row *r, const char *flag, const char *value,
                         mica_error *err) {
    void *at = (char *)o + r->offset;
    o->seen[r - g_rows] = true;
    switch (r->kind) {
    case KIND_FLAG: *(bool *)at = true; return MICA_OK;
    case KIND_TEXT:
    case KIND_FILE: *(const char **)at = value; return MICA_OK;
    case KIND_INT: return read_int(r, flag, value, at, err);
    case KIND_REAL: return read_real(r, flag, value, at, err);
    case KIND_SIZE: return read_size(flag, value, at, err);
    case KIND_CHOICE: return read_choice(r, flag, value, at, err);
    case KIND_TEXTS:
        if (!value[0]) return fail_value(flag, value, "empty", err);
        return push_text(at, value, err);
    case KIND_NUMBERS: return read_numbers(r, flag, value, at, err);
    case KIND_REFUSED: break;
    }
    return fail(err, MICA_E_DEVICE, "%s: %s", flag, r->words);
}

/* ---- The walk over argv ---- */

/* One flag at argv[*i]; *i moves on when the value is the next word. */
static mica_status parse_flag(options *o, int argc, char **argv, int *i, mica_error *err) {
    char *word = argv[*i];
    const size_t n = strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word);
    const option_row *r = find_row(o->command, word, n);
    if (!r) return fail_unknown_flag(o->command, word, n, err);
    char flag[64];
    snprintf(flag, sizeof flag, "%.*s", (int)n, word);
    const char *value = word[n] == '=' ? word + n + 1 : NULL;
    if (r->kind == KIND_FLAG) {
        if (value) return fail_value(flag, value, "this flag takes no value", err);
        return store(o, r, flag, NULL, err);
    }
    if (r->kind != KIND_REFUSED && !value) {
        if (*i + 1 >= argc) return fail(err, MICA_E_ARG, "%s: no value: it takes %s", flag, r->value);
        value = argv[++*i];
        // "--system --raw" forgot the text; a text that looks like a flag can still be written with "=".
        if (strncmp(value, "--", 2) == 0 && find_row(o->command, value, strlen(value)))
            return fail(err, MICA_E_ARG, "%s: no value before %s: it takes %s", flag, value, r->value);
    }
    return store(o, r, flag, value, err);
}

static mica_status find_command(options *o, int argc, char **argv, int *n_word, mica_error *err) {
    *n_word = 0;
    if (argc < 2) return fail(err, MICA_E_ARG, "command: missing: `mica help` lists them");
    const char *first = argv[1];
    *n_word = 1;
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        o->command = command_at(CMD_HELP);
    else if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0)
        o->command = command_at(CMD_VERSION);
    else
        o->command = command_find(argc - 1, (const char *const *)argv + 1, n_word);
    if (o->command) return MICA_OK;
    if (first[0] == '-')
        return fail(err, MICA_E_ARG, "%s: flags come after a command: `mica help` lists them", first);
    if (command_is_group(first)) {
        const bool wants_help = argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
        if (wants_help) { // as `mica help eval`
            o->command = command_at(CMD_HELP);
            *n_word = 0;
            return MICA_OK;
        }
        return fail(err, MICA_E_ARG, "%s: %s: `mica help %s` lists what it can do", first,
                    argc > 2 ? "unknown second word" : "a second word is missing", first);
    }
    static const char *const other[][2] = {{"ls", "list"},      {"chat", "run"},     {"generate", "run"},
                                           {"show", "inspect"}, {"info", "inspect"}, {"download", "pull"},
                                           {"remove", "rm"},    {"delete", "rm"}};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (strcmp(first, other[i][0]) == 0)
            return fail(err, MICA_E_ARG, "%s: unknown command: did you mean `mica %s`?", first, other[i][1]);
    const char *names[CMD_N];
    for (int id = 0; id < CMD_N; id++) names[id] = command_at((command_id)id)->name;
    const char *near = near_word(first, names, CMD_N);
    if (near) return fail(err, MICA_E_ARG, "%s: unknown command: did you mean `mica %s`?", first, near);
    return fail(err, MICA_E_ARG, "%s: unknown command: `mica help` lists them", first);
}

/* `mica run FILE` is `mica run -m FILE`, for every command that takes a model. */
static void take_model_word(options *o) {
    if (o->model || o->hf || o->args.n == 0 || !find_row(o->command, "--model", strlen("--model"))) return;
    o->model = o->args.p[0];
    o->args.n--;
    memmove(o->args.p, o->args.p + 1, o->args.n * sizeof *o->args.p);
}

/* llama.cpp's two flags for what is one type here. */
static mica_status take_kv_types(options *o, mica_error *err) {
    enum { Q8_0 = MICA_KV_I8 + 1 }; // in KV_WORDS
    const bool has_k = OPTION_SEEN(o, kv_k), has_v = OPTION_SEEN(o, kv_v);
    if (!has_k && !has_v) return MICA_OK;
    const int k = o->kv_k == Q8_0 ? MICA_KV_I8 : o->kv_k, v = o->kv_v == Q8_0 ? MICA_KV_I8 : o->kv_v;
    if (OPTION_SEEN(o, kv)) return fail(err, MICA_E_ARG, "%s: given beside --kv", has_k ? "-ctk" : "-ctv");
    if (k != v) // what was not given is f16, as there
        return fail(err, MICA_E_ARG,
                    "-ctk, -ctv: two types: keys and values have one here: give both the same");
    o->kv = k;
    for (size_t i = 0; i < N_ROW; i++)
        if (g_rows[i].offset == offsetof(options, kv)) o->seen[i] = true;
    return MICA_OK;
}

static mica_status check_args(const options *o, mica_error *err) {
    const command *c = o->command;
    if (o->help) return MICA_OK;
    if ((int)o->args.n < c->min_args)
        return fail(err, MICA_E_ARG, "%s: something is missing: usage: mica %s %s", c->name, c->name,
                    c->usage);
    if (c->id == CMD_RUN && o->args.n > 1)
        return fail(err, MICA_E_ARG, "%s: unexpected word: a prompt of several words needs quotes",
                    o->args.p[1]);
    if (c->max_args >= 0 && (int)o->args.n > c->max_args)
        return fail(err, MICA_E_ARG, "%s: unexpected word: usage: mica %s %s", o->args.p[c->max_args],
                    c->name, c->usage);
    return MICA_OK;
}

mica_status options_parse(options *o, int argc, char **argv, mica_error *err) {
    mica_status st = MICA_OK;
    int n_word;
    *o = (options){.predict = -1, .seed = -1, .gpu_layers = -1, .repeats = 5, .port = 8080};
    TRY_GOTO(find_command(o, argc, argv, &n_word, err), done);
    bool only_args = false;
    for (int i = 1 + n_word; i < argc; i++) {
        const char *word = argv[i];
        if (!only_args && strcmp(word, "--") == 0)
            only_args = true;
        else if (!only_args && word[0] == '-' && word[1])
            TRY_GOTO(parse_flag(o, argc, argv, &i, err), done);
        else
            TRY_GOTO(push_text(&o->args, word, err), done);
    }
    take_model_word(o);
    TRY_GOTO(take_kv_types(o, err), done);
    TRY_GOTO(check_args(o, err), done);
done:
    if (st != MICA_OK) options_fini(o);
    return st;
}

bool options_want_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--output=json") == 0) return true;
        const bool is_output = strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0;
        if (is_output && i + 1 < argc && strcmp(argv[i + 1], "json") == 0) return true;
    }
    return false;
}

void options_fini(options *o) {
    text_list *texts[] = {&o->stop, &o->set, &o->args, &o->api_key, &o->allow_origin, &o->allow_host};
    number_list *numbers[] = {&o->n_prompt, &o->n_gen, &o->depth, &o->tokens};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        mem_free(texts[i]->p);
        *texts[i] = (text_list){0};
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        mem_free(numbers[i]->p);
        *numbers[i] = (number_list){0};
    }
}

bool options_seen(const options *o, size_t offset) {
    for (size_t i = 0; i < N_ROW; i++)
        if (g_rows[i].kind != KIND_REFUSED && g_rows[i].offset == offset && o->seen[i]) return true;
    return false;
}

bool options_view(const command *c, size_t i, option_view *out) {
    for (size_t k = 0; k < N_ROW; k++) {
        const option_row *r = &g_rows[k];
        if (!takes(r, c) || r->kind == KIND_REFUSED || i-- > 0) continue;
        *out = (option_view){.name = r->name,
                             .shorter = r->shorter,
                             .aliases = r->aliases,
                             .value = r->value,
                             .choices = r->kind == KIND_CHOICE ? r->words : NULL,
                             .offers = r->kind == KIND_CHOICE ? r->words : r->offers,
                             .help = r->help,
                             .takes_file = r->kind == KIND_FILE,
                             .group = r->group};
        return true;
    }
    return false;
}
