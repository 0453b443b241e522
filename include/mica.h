/* libmica: run a GGUF language model.
 *
 *     mica_model *m;  mica_session *s;  mica_error err;
 *     mica_model_load(&m, &(mica_load_options){.path = "model.gguf"}, &err);
 *     mica_session_new(&s, m, &err);
 *     mica_ids prompt = {0};
 *     mica_encode_chat(m, "[{\"role\":\"user\",\"content\":\"Hi\"}]", NULL, &prompt, NULL, &err);
 *     mica_generate(s, prompt.ids, prompt.n, &(mica_generate_options){.n_predict = 128}, on_token,
 *                   user, NULL, NULL, &err);
 *     mica_ids_free(&prompt);  mica_session_free(s);  mica_model_free(m);
 *
 * Objects. A model is the file, the device and its memory; everything is sized and taken in mica_model_load,
 * nothing is allocated while tokens are made. A session is one timeline of tokens in one of the model's
 * sequence slots. Options. Every options struct may be zeroed: zero means the documented default. Threads.
 * Text calls (tokenize, detokenize, encode_chat, info) may be made from any thread at any time. Everything
 * that takes a session or steps a model belongs to one thread at a time, the model's worker. mica_cancel may
 * be called anywhere, also from a signal handler. Ownership. Out-pointers give; the matching *_free takes.
 * const pointers are borrowed for the call unless said otherwise. Errors. See mica_status.h. On failure
 * out-pointers are NULL or empty. */
#ifndef MICA_H
#define MICA_H

#include "mica_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

MICA_API const char *mica_version(void); // "0.1.0"

typedef struct mica_model mica_model;
typedef struct mica_session mica_session;

/* Token ids or text that the library gave. */
typedef struct mica_ids {
    int32_t *ids; // owned by whoever holds the struct
    size_t n;
} mica_ids;
MICA_API void mica_ids_free(mica_ids *ids); // leaves it empty
MICA_API void mica_text_free(char *text);   // NULL allowed

/* A flag that ends long calls at their next step with MICA_E_CANCELLED. Zeroed is "go on". */
typedef struct mica_cancel_flag {
    volatile int set;
} mica_cancel_flag;
static inline void mica_cancel(mica_cancel_flag *f) {
    f->set = 1;
}

/* Called now and then by long operations, on the calling thread. what: "load", "prompt", "download", "write"
 * ... */
typedef void mica_progress_fn(void *user, const char *what, uint64_t done, uint64_t total);

typedef enum mica_kv_type { MICA_KV_F16 = 0, MICA_KV_F32, MICA_KV_I8 } mica_kv_type;

/* How RAM holds experts that a card has no room for: a copy of all, of those that are not on the card, or the
 * file's pages. Without a card: ALL and COMPLEMENT refuse a model whose experts do not fit, MMAP leaves what
 * does not to the system's page cache. */
typedef enum mica_experts_ram {
    MICA_EXPERTS_RAM_AUTO = 0, // the first that fits
    MICA_EXPERTS_RAM_ALL,
    MICA_EXPERTS_RAM_COMPLEMENT,
    MICA_EXPERTS_RAM_MMAP
} mica_experts_ram;

typedef struct mica_load_options {
    const char *path;   // a GGUF file or the first of its shards
    const char *device; // "auto" (NULL), "cpu", "ref", "hip:N", "cuda:N", "sim:N"
    const char *isa;    // cap on the instruction set: "scalar" "avx2" "avx512"; NULL: the best there is
    int n_thread;       // 0: one for each fast physical core we may use
    uint32_t
        n_ctx; // positions of one sequence; 0: the smaller of the model's own and what fits, at least 4,096
    uint32_t n_seq;    // sequence slots; 0: 1
    uint32_t n_ubatch; // rows of a prompt chunk; 0: 512
    mica_kv_type kv;
    uint64_t ram_bytes; // cap on memory; 0: what the machine has free
    /* Prefix cache of all sessions (mica_session_begin), part of the plan. 0: none, but for what a recurrent
     * model keeps to go back in its own text. */
    uint64_t cache_bytes;
    const char *state_dir;  // folder for the cache's share on disk and for saved sessions; NULL: neither
    uint64_t disk_bytes;    // cap on the cache's share on disk; 0: four times cache_bytes
    uint64_t vram_bytes;    // cap on a card's memory; 0: what it has free, less the reserve
    uint64_t vram_reserve;  // left alone on the card; 0: a 32nd of it, more when a screen is connected
    const char *draft_path; // a file of its own with the model's draft block; NULL: none
    bool no_draft; // leave out the model's own draft block (its memory, and its share of reading a prompt)
    bool exact;    // prompt role without float matrix units (the CPU never uses them)
    mica_experts_ram experts_ram;
    const char *profile_path; // learned use of experts; NULL: in the cache folder, where it is of use
    const char *trace_path;   // record which experts tokens chose, for mica_eval_cache; NULL: do not
    bool text_only; // the text calls and the info alone: no weights, no device, no sessions (MICA_E_ARG)
    mica_cancel_flag *cancel; // borrowed for the load, NULL: none
    mica_progress_fn *progress;
    void *progress_user;
} mica_load_options;

MICA_API mica_status mica_model_load(mica_model **out, const mica_load_options *opt, mica_error *err);
MICA_API void mica_model_free(mica_model *m); // NULL allowed; its sessions must be gone

/* A model file that another program cuts short while it is mapped would end this one (SIGBUS). After this
 * call such a file fails the step at hand with MICA_E_IO instead. It sets a signal handler for the whole
 * process, so programs ask for it, the library does not. May be called again. */
MICA_API mica_status mica_guard_files(mica_error *err);

/* A grammar that the answer must follow, with the place it has come to (mica_grammar_new_*). One belongs to
 * one answer. */
typedef struct mica_grammar mica_grammar;

/* Sampling, in the order of docs/ARITHMETIC.md rule 11: bias, penalties, grammar, temperature, top-k, top-p,
 * min-p, draw. */
typedef struct mica_bias {
    int32_t id;
    float bias; // added to the logit; -INFINITY bans the token
} mica_bias;

typedef struct mica_sampling {
    float temperature;       // 0: greedy
    int32_t top_k;           // <= 0: off
    float top_p;             // >= 1: off
    float min_p;             // <= 0: off
    float repeat_penalty;    // 1: off; > 0
    float presence_penalty;  // 0: off
    float frequency_penalty; // 0: off
    int32_t penalty_last_n;  // tokens the penalties look back on; 0: none, < 0: the whole context
    uint64_t seed;
    const mica_bias *bias; // borrowed while the session generates
    size_t n_bias;
    mica_grammar *grammar; // borrowed while the session generates; moves on with every token made; NULL: none
} mica_sampling;

/* What a model is. Strings are borrowed from the model. */
typedef struct mica_model_info {
    const char *arch, *name, *file_type, *device; // device: for people, "AMD EPYC, avx2, 2 threads"
    uint64_t n_param, file_bytes;
    uint64_t bytes_per_token; // weights a decoded token reads, wherever they are
    uint32_t n_layer, n_embd, n_vocab, n_ctx_train, n_ctx, n_seq, n_ubatch;
    uint32_t n_expert, n_expert_used;
    uint64_t weights_bytes, kv_bytes, scratch_bytes; // as planned, and as taken
    bool on_card;                  // they are in a graphics card's memory, but experts without a slot there
    uint64_t beside_bytes;         // of experts in memory, for a card that has no slots for all
    double expert_hit_rate;        // uses of an expert that had a slot, so far; 1 without tiers
    uint64_t link_bytes_per_token; // weights that a token read over a card's link, so far
    int32_t bos, eos;              // -1: none
    bool has_template, has_draft;
    const char *think_begin,
        *think_end; // marks around thinking in generated text ("<think>"); NULL: it does not think
    mica_sampling
        sampling; // defaults: the file's own where it states them, else temperature 0.8, top_k 40, ...
} mica_model_info;
MICA_API void mica_model_get_info(const mica_model *m, mica_model_info *out);

/* ---- Text ---- */

/* text: n bytes of UTF-8 (invalid bytes become byte tokens). special: control tokens in the text are
 * recognised; else all of it stays text. add_bos: as the model's file says, when it says so. */
MICA_API mica_status mica_tokenize(const mica_model *m, const char *text, size_t n, bool special,
                                   bool add_bos, mica_ids *out, mica_error *err);
/* Text of ids, NUL-terminated; bytes that are no UTF-8 become U+FFFD. special: control tokens print their
 * names. */
MICA_API mica_status mica_detokenize(const mica_model *m, const int32_t *ids, size_t n, bool special,
                                     char **out, mica_error *err);
/* The bytes of one token as they are (maybe a part of a character); borrowed from the model; NULL when id is
 * out of range. */
MICA_API const char *mica_token_bytes(const mica_model *m, int32_t id, size_t *n_bytes);
MICA_API bool mica_token_ends_turn(const mica_model *m, int32_t id); // the model's end-of-generation set

typedef struct mica_chat_options {
    const char *tools_json;    // array of OpenAI tool definitions, NULL: none
    const char *kwargs_json;   // object handed to the template (chat_template_kwargs), NULL: none
    const char *think;         // "on" "off" or an effort; NULL: as the template likes
    bool no_generation_prompt; // leave out the opening of the assistant's turn
    bool *in_think; // gets whether the prompt ends inside an opened thinking block; NULL: not asked
} mica_chat_options;

/* messages_json: array of OpenAI-style messages. The text of messages never becomes a control token.
 * prompt_text may be NULL, else gives the rendered prompt. A template error is MICA_E_ARG with the template's
 * own words. */
MICA_API mica_status mica_encode_chat(const mica_model *m, const char *messages_json,
                                      const mica_chat_options *opt, mica_ids *out, char **prompt_text,
                                      mica_error *err);

/* Whole UTF-8 out of tokens: bytes of a cut character are held back until its rest comes. special: control
 * tokens show their names, which the marks around thinking may be. */
typedef struct mica_text_stream mica_text_stream;
MICA_API mica_status mica_text_stream_new(mica_text_stream **out, const mica_model *m, bool special,
                                          mica_error *err);
/* Gives the text that became complete with this token, borrowed until the next call, "" when none. */
MICA_API const char *mica_text_stream_put(mica_text_stream *ts, int32_t id, size_t *n_bytes);
MICA_API const char *mica_text_stream_end(mica_text_stream *ts,
                                          size_t *n_bytes); // what was held back; ready for reuse
MICA_API void mica_text_stream_free(mica_text_stream *ts);

/* ---- Grammars ---- */

/* What an answer may be, and how far one answer has come in it. Before a token is chosen, mask says which ids
 * may come; after it was chosen, accept moves on. mica_generate does both for mica_sampling.grammar; whoever
 * samples for himself calls accept for every token he keeps. Tokens that end the turn are allowed exactly
 * where the text may end; other control tokens only where a grammar names them.
 *
 * The model must outlive its grammars. Clones share what is expensive (compiled rules, learned tables), each
 * with a place of its own. Threads: one grammar belongs to one thread at a time; clones may be used by
 * different threads. Size, depth, repetition and the work of a mask are bounded: what goes over a bound is
 * MICA_E_ARG. */

/* text: NUL-terminated GBNF; its rule `root` is the whole answer. What cannot be is MICA_E_ARG with line and
 * column. docs/GRAMMAR.md has the dialect. */
MICA_API mica_status mica_grammar_new_gbnf(mica_grammar **out, const mica_model *m, const char *text,
                                           mica_error *err);
typedef struct mica_grammar_options {
    const char *prompt; // the text of mica_encode_chat that the answer follows: says whether thinking may
                        // come first. NULL: what the grammar asks for begins at once
    bool lenient;       // what a schema asks for and no grammar can hold to is left out, not refused
    const char *tool;   // of new_tools: the only one that may be called; NULL: any
    bool optional;      // of new_tools: text may come before a call or instead of it (tool_choice "auto")
    bool single;        // of new_tools: one call at most (parallel_tool_calls false)
} mica_grammar_options;

/* schema_json: a JSON schema; docs/GRAMMAR.md has the subset. {"type": "object"} is any JSON object. A
 * keyword that cannot be held to is MICA_E_ARG with its name and place. opt: NULL is all zero. */
MICA_API mica_status mica_grammar_new_schema(mica_grammar **out, const mica_model *m, const char *schema_json,
                                             const mica_grammar_options *opt, mica_error *err);
/* tools_json: as in mica_chat_options. The answer is one or more calls, written as the model's template
 * writes them, with arguments that keep to the tools' schemas (always leniently). MICA_E_UNSUPPORTED: the
 * template knows no calls; MICA_E_ARG: no tool of that name. */
MICA_API mica_status mica_grammar_new_tools(mica_grammar **out, const mica_model *m, const char *tools_json,
                                            const mica_grammar_options *opt, mica_error *err);
/* The same grammar at the same place, to look ahead with or to try drafts on. */
MICA_API mica_status mica_grammar_clone(mica_grammar **out, const mica_grammar *g, mica_error *err);
/* A second clone's place in a first one: what draft windows go back with. Allocates nothing. */
MICA_API void mica_grammar_copy(mica_grammar *to, const mica_grammar *from);
MICA_API void mica_grammar_reset(mica_grammar *g); // to the beginning
MICA_API void mica_grammar_free(mica_grammar *g);  // NULL allowed

/* bits: (n_vocab + 7) / 8 bytes; bit i % 8 of byte i / 8 becomes 1 when id i may come now. */
MICA_API mica_status mica_grammar_mask(mica_grammar *g, uint8_t *bits, mica_error *err);
/* Moves past a token. One that may not come is MICA_E_ARG and leaves the place as it was. */
MICA_API mica_status mica_grammar_accept(mica_grammar *g, int32_t id, mica_error *err);
MICA_API bool mica_grammar_may_end(const mica_grammar *g); // the text so far is whole

/* What a model writes, read while it writes: thinking, text and tool calls told from each other by the marks
 * of its template. What is given out, joined, is the same however the text was cut; text is held back only
 * while it may be the beginning of a mark. A call is told as soon as it is known for one: its name when its
 * first argument has begun, its arguments as they come. What is none when it ends comes out as the text it
 * is; a call that breaks off ends there, its arguments then no whole JSON. */
typedef struct mica_answer mica_answer;

typedef enum mica_answer_kind {
    MICA_ANSWER_THINK,
    MICA_ANSWER_TEXT,
    MICA_ANSWER_CALL,      // a call begins: its name and index
    MICA_ANSWER_ARGUMENTS, // more of its arguments; joined they are a JSON object as text
    MICA_ANSWER_CALL_END,
    MICA_ANSWER_MARK // what stands around thinking, see mica_answer_options
} mica_answer_kind;

/* Borrowed for the call of the function. */
typedef struct mica_answer_piece {
    mica_answer_kind kind;
    const char *text; // n_text bytes of whole UTF-8; not NUL-terminated
    size_t n_text;
    const char *name; // of a CALL
    int index;        // of a call, from 0
} mica_answer_piece;

typedef void mica_answer_fn(void *user, const mica_answer_piece *piece);

typedef struct mica_answer_options {
    bool in_think;          // the prompt ended inside a thinking block
    bool marks;             // MICA_ANSWER_MARK too: the marks of thinking and the blanks beside them
    const char *tools_json; // the request's tools; NULL: no calls are looked for
    mica_answer_fn *fn;
    void *user;
} mica_answer_options;

/* text: from a mica_text_stream that shows control tokens; tokens that end the turn are no part of it. The
 * model must outlive the answer. put and end fail with MICA_E_NOMEM only. */
MICA_API mica_status mica_answer_new(mica_answer **out, const mica_model *m, const mica_answer_options *opt,
                                     mica_error *err);
MICA_API mica_status mica_answer_put(mica_answer *a, const char *text, size_t n, mica_error *err);
MICA_API mica_status mica_answer_end(mica_answer *a, mica_error *err); // gives what was held back
MICA_API void mica_answer_free(mica_answer *a);                        // NULL allowed

/* ---- Sessions ---- */

MICA_API mica_status mica_session_new(mica_session **out, mica_model *m,
                                      mica_error *err); // MICA_E_BUSY: no slot left
MICA_API void mica_session_free(mica_session *s);       // NULL allowed

/* Makes the session's state be exactly the prefix `ids`: what it shares with the present one is kept, the
 * rest is read in chunks. *n_cached (NULL allowed) gets the tokens that were kept. Logits of the last id are
 * then available. On error or cancel the state is a whole prefix of ids, never half a chunk. A prefix longer
 * than the context is MICA_E_ARG. */
MICA_API mica_status mica_session_sync(mica_session *s, const int32_t *ids, size_t n, size_t *n_cached,
                                       mica_cancel_flag *cancel, mica_progress_fn *progress, void *user,
                                       mica_error *err);
/* Appends one generated token (token role). */
MICA_API mica_status mica_session_decode(mica_session *s, int32_t id, mica_error *err);
MICA_API size_t mica_session_length(const mica_session *s);
MICA_API const int32_t *mica_session_ids(const mica_session *s); // borrowed until the next call
/* [n_vocab] logits after the last token; borrowed until the next call on the model. NULL when there are none.
 */
MICA_API const float *mica_session_logits(mica_session *s);
/* The model's choice after the last token; does not append it, nor move a grammar on. */
MICA_API mica_status mica_session_sample(mica_session *s, const mica_sampling *sampling, int32_t *id,
                                         mica_error *err);

typedef enum mica_finish {
    MICA_FINISH_NONE,
    MICA_FINISH_STOP,
    MICA_FINISH_LENGTH,
    MICA_FINISH_CANCELLED
} mica_finish;

/* Draft tokens a window; how many where nothing was measured. */
enum { MICA_DRAFT_MAX = 7, MICA_DRAFT_DEFAULT = 4 };

typedef struct mica_generate_options {
    const mica_sampling *sampling; // NULL: the model's defaults
    int32_t
        n_predict;   // most tokens to make; < 0: until the turn or the context ends; 0: read the prompt only
    int32_t n_draft; // most draft tokens a window, up to 7; 0: off. The tokens are the same with and without
    float draft_min_p; // a draft ends below this probability of the draft block's
    bool ignore_end;   // go on after the end of the turn (for measuring)
    mica_cancel_flag *cancel;
    mica_progress_fn *progress; // of the prompt
    void *progress_user;
} mica_generate_options;

typedef struct mica_stats {
    uint64_t n_prompt, n_cached, n_generated;
    double prompt_ms, decode_ms;
    uint64_t draft_windows, n_drafted, n_accepted;
    double expert_hit_rate; // of the fastest tier; 1 when all are there
    uint64_t link_bytes, cpu_bytes, ssd_bytes;
} mica_stats;

/* Called for every generated token, the ending one excepted; false stops after it. */
typedef bool mica_token_fn(void *user, int32_t id);

/* sync, then sample and decode until an end. *finish and *stats may be NULL. */
MICA_API mica_status mica_generate(mica_session *s, const int32_t *ids, size_t n,
                                   const mica_generate_options *opt, mica_token_fn *on_token, void *user,
                                   mica_finish *finish, mica_stats *stats, mica_error *err);

/* Decodes one token for each of n different sessions of one model in a single step: id[i] is appended to
 * s[i]. */
MICA_API mica_status mica_decode_batch(mica_session *const *s, const int32_t *id, size_t n, mica_error *err);

/* ---- Steps of many sessions: what a server's worker calls ----
 *
 *     mica_session_begin(s, ids, n, NULL, &reuse, &err);       // for a new request; reads nothing yet
 *     item[k] = (mica_step_item){.session = s, .n_prompt = 256, .n_predict = 100, .n_draft = 4};
 *     for (;;) {
 *         mica_step(item, n_item, &err);                       // one batch on the device
 *         ... item[k].ids[0 .. n_id) are new; .finish says when it is over; others come and go between steps
 *     }
 *
 * Every session's tokens are bit for bit those it would make alone, whatever else is in the batch, however
 * its prompt is cut into pieces and whether it drafts or not. mica_generate is this loop for one session. To
 * give a request up, leave it out of the next step: its session can begin another at once. */

typedef struct mica_begin_options {
    /* Positions in ids, ascending, where a later prompt is likely to part from this one: the beginnings of
     * turns. A recurrent model can come back to these (and to the end) only. NULL: before the control tokens
     * that open turns. */
    const size_t *marks;
    size_t n_marks;
    bool no_cache;        // neither take from the shared cache nor give to it
    bool cold;            // keep nothing of the session's own state either: all of ids is read
    bool reuse_generated; // count the session's own generated tokens as prefix: faster, and no longer the
                          // bits of a fresh session (docs/ARITHMETIC.md rule 12)
} mica_begin_options;

/* Where the tokens that need not be read came from. n_cached is the sum of the three.
 *
 * A text that differs early shares nothing after the difference: every later row depends on it, and no exact
 * reuse is possible (rule 12). So noise that changes with every request (a hash in the first line of a system
 * prompt) must be left out, or put last, by whoever renders the prompt; n_noise shows who does not: there is
 * a cached text that differs from this one in tokens [noise_at, noise_at + n_noise) and then goes on with
 * n_after equal tokens or more. */
typedef struct mica_reuse {
    size_t n_cached, n_own, n_ram, n_disk;
    size_t noise_at, n_noise, n_after; // n_after 0: no such text
} mica_reuse;

/* Makes the session's state be the longest prefix of ids that can be had without reading: its own state, or
 * the prefix cache in RAM or on disk. The rest stays unread (mica_session_pending) until steps take it. opt
 * and reuse may be NULL. Errors are those of mica_session_sync; a damaged or missing cache file is not one.
 */
MICA_API mica_status mica_session_begin(mica_session *s, const int32_t *ids, size_t n,
                                        const mica_begin_options *opt, mica_reuse *reuse, mica_error *err);
MICA_API size_t mica_session_pending(const mica_session *s); // prompt tokens still unread

typedef struct mica_logprob {
    int32_t id;
    float logprob; // natural, of the model's own distribution: before bias, temperature and all else
} mica_logprob;

enum { MICA_STEP_TOKENS = 8, MICA_TOP_MAX = 20 };

typedef struct mica_step_item {
    /* In; a step leaves them as they are. */
    mica_session *session;
    const mica_sampling *sampling; // NULL: the model's defaults
    uint32_t n_prompt; // most unread prompt tokens to take in this step; 0: the item waits while it has some
    int32_t n_predict; // most tokens to make since begin; < 0: no bound; 0: read the prompt only
    int32_t n_draft;   // most draft tokens a window, up to 7; 0: off. Fewer are tried where they do not pay
    float draft_min_p; // a draft ends below this probability of the draft block's
    bool ignore_end;   // go on after the end of the turn
    const mica_cancel_flag *cancel; // read when the step starts; NULL: none
    mica_token_fn *on_token;        // called for each token as it is chosen; false ends the item; NULL: none
    void *user;
    mica_logprob *top; // [MICA_STEP_TOKENS][1 + n_top] of the caller, NULL: not wanted. Row i gets ids[i]
                       // itself, then the n_top likeliest tokens, in falling order, equal ones by id
    uint32_t n_top;    // up to MICA_TOP_MAX

    /* Out. */
    int32_t ids[MICA_STEP_TOKENS]; // tokens gained, the one that ends the turn excepted
    uint32_t n_id;
    uint32_t n_read;    // prompt tokens taken
    mica_finish finish; // NONE: call again. LENGTH: n_predict, or the context is full
    mica_status status; // of this item alone; not MICA_OK: it has ended, error says why
    mica_error error;
    uint32_t n_drafted, n_accepted; // draft tokens of this step
} mica_step_item;

/* Advances n items with different sessions of one model in one batch. An item with unread prompt takes some
 * of it; the step that takes the last of it gains the first token. An item whose prompt is read gains between
 * one and MICA_STEP_TOKENS. A batch has room for info.n_ubatch rows, or 8 a sequence if that is more: tokens
 * of answers go first, prompts get what is left in the order of the items. What fails is one item's (its
 * status; the others go on), unless the device or the file failed: then the call says so, and every item that
 * took part too; their sessions must begin again. */
MICA_API mica_status mica_step(mica_step_item *items, size_t n, mica_error *err);

/* Things for a quiet moment of the worker: puts a piece of the prefix cache on disk. True: there is more. */
MICA_API bool mica_model_idle(mica_model *m);

typedef struct mica_cache_info {
    uint64_t ram_bytes, ram_used_bytes, disk_bytes, disk_used_bytes;
    uint64_t n_lookup, n_hit, n_token_asked, n_token_hit; // of mica_session_begin since the model was loaded
} mica_cache_info;
MICA_API void mica_model_cache_info(const mica_model *m, mica_cache_info *out);

/* A session's whole state in a file of its name in the model's state_dir. name: 1 to 100 letters, digits,
 * '.', '_', '-', no '.' first. n_token and n_bytes may be NULL. Without a state_dir MICA_E_ARG. A file that
 * is not there or of another model is MICA_E_ARG, a damaged one MICA_E_FORMAT: the session is then as it was.
 */
MICA_API mica_status mica_session_save(mica_session *s, const char *name, size_t *n_token, uint64_t *n_bytes,
                                       mica_error *err);
MICA_API mica_status mica_session_restore(mica_session *s, const char *name, size_t *n_token,
                                          uint64_t *n_bytes, mica_error *err);
MICA_API void mica_session_erase(mica_session *s); // forgets everything: as a new session

#ifdef __cplusplus
}
#endif
#endif
