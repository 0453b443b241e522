/* The prefix cache: whatever it gives back, from memory or from disk, the logits are those of a session that
 * read everything itself; and what it must give back in the histories of real clients is asserted. */
#include "check.h"
#include "temp_dir.h"

#include "base/log.h"
#include "base/mem.h"
#include "mica_tools.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_CTX = 1024, N_SEQ = 3, LONGEST = 600, N_OLD = 12, N_ROUND = 14 };

static temp_dir g_dir;

/* Random weights, small and fast; the fixtures' trained models read the texts of people further down. */
static int make_models(void **state) {
    (void)state;
    static const char *const preset[] = {"tiny-llama-moe", "tiny-qwen35", "tiny-gemma4", "tiny-gemma4-e",
                                         "tiny-flash-next"};
    temp_dir_make(&g_dir);
    for (size_t i = 0; i < sizeof preset / sizeof *preset; i++) {
        mica_synth_options o = {.preset = preset[i], .quant = "q8_0", .mtp = i == 1};
        mica_error err;
        char *json, name[64];
        snprintf(name, sizeof name, "%s.gguf", preset[i]);
        CHECK_OK(mica_synth(&json, temp_dir_at(&g_dir, name), &o, &err));
        mica_text_free(json);
    }
    return 0;
}

static int drop_models(void **state) {
    (void)state;
    temp_dir_drop(&g_dir);
    return 0;
}

static mica_model *load(const char *name, uint64_t cache_bytes, const char *dir, mica_kv_type kv) {
    char path[512];
    mica_model *m;
    mica_error err;
    bool tiny = strncmp(name, "tiny-", 5) == 0;
    snprintf(path, sizeof path, "%s/%s.gguf", tiny ? g_dir.path : "tests/fixtures", name);
    mica_load_options o = {.path = path, .n_ctx = N_CTX, .n_seq = N_SEQ, .n_ubatch = 128, .n_thread = 1};
    o.cache_bytes = cache_bytes;
    o.state_dir = dir;
    o.kv = kv;
    CHECK_OK(mica_model_load(&m, &o, &err));
    return m;
}

/* Reads ids in pieces; what was reused is told. */
static mica_reuse read_prompt(mica_session *s, const int32_t *ids, size_t n, uint32_t piece) {
    mica_error err;
    mica_reuse r;
    CHECK_OK(mica_session_begin(s, ids, n, NULL, &r, &err));
    CHECK(r.n_cached == r.n_own + r.n_ram + r.n_disk && r.n_cached + mica_session_pending(s) == n);
    mica_step_item it = {.session = s, .n_prompt = piece};
    while (it.finish == MICA_FINISH_NONE) {
        CHECK_OK(mica_step(&it, 1, &err));
        if (it.status != MICA_OK) print_error("%s\n", it.error.text);
        CHECK(it.status == MICA_OK);
    }
    return r;
}

static void expect_equal(mica_session *got, mica_session *want, uint32_t n_vocab, const char *what) {
    if (memcmp(mica_session_logits(got), mica_session_logits(want), n_vocab * sizeof(float)) == 0) return;
    print_error("%s: %zu tokens: logits differ from those of a session that read all of it\n", what,
                mica_session_length(got));
    _fail(__FILE__, __LINE__);
}

/* ---- random histories ---- */

typedef struct text {
    int32_t ids[LONGEST];
    size_t n;
} text;

/* A beginning of an older text, and something new after it. */
static void new_text(text *t, const text *old, int n_old, uint64_t *seed, uint32_t n_vocab) {
    t->n = 1 + test_rand(seed) % LONGEST;
    size_t keep = 0;
    if (n_old > 0 && test_rand(seed) % 8 != 0) {
        const text *from = &old[test_rand(seed) % (uint64_t)n_old];
        keep = test_rand(seed) % 4 ? from->n : test_rand(seed) % from->n;
        if (keep > t->n) t->n = keep + (test_rand(seed) % 2 ? 0 : test_rand(seed) % (LONGEST - keep + 1));
        memcpy(t->ids, from->ids, keep * sizeof *t->ids);
    }
    for (size_t i = keep; i < t->n; i++) t->ids[i] = (int32_t)(test_rand(seed) % n_vocab);
}

static void random_histories(const char *name, uint64_t cache_bytes, const char *dir, mica_kv_type kv) {
    mica_error err;
    mica_model *m = load(name, cache_bytes, dir, kv), *plain = load(name, 0, NULL, kv);
    mica_session *s[N_SEQ], *fresh;
    mica_model_info info;
    mica_cache_info c;
    static text old[N_OLD], t;
    int n_old = 0;
    uint64_t seed = 31337, from[3] = {0};
    mica_model_get_info(m, &info);
    for (int q = 0; q < N_SEQ; q++) CHECK_OK(mica_session_new(&s[q], m, &err));
    CHECK_OK(mica_session_new(&fresh, plain, &err));
    for (int round = 0; round < N_ROUND; round++) {
        mica_session *x = s[test_rand(&seed) % N_SEQ];
        new_text(&t, old, n_old, &seed, info.n_vocab);
        mica_reuse r = read_prompt(x, t.ids, t.n, 40 + (uint32_t)(test_rand(&seed) % 100));
        from[0] += r.n_own, from[1] += r.n_ram, from[2] += r.n_disk;
        mica_session_erase(fresh);
        read_prompt(fresh, t.ids, t.n, 128);
        expect_equal(x, fresh, info.n_vocab, name);
        for (int k = 0; k < 3 && mica_session_length(x) < N_CTX; k++) { // generated rows stay its own
            int32_t id = (int32_t)(test_rand(&seed) % info.n_vocab);
            CHECK_OK(mica_session_decode(x, id, &err));
            CHECK_OK(mica_session_decode(fresh, id, &err));
        }
        expect_equal(x, fresh, info.n_vocab, name);
        old[n_old < N_OLD ? n_old++ : (int)(test_rand(&seed) % N_OLD)] = t;
        mica_model_cache_info(m, &c);
        CHECK(c.ram_used_bytes <= cache_bytes);
    }
    printf("%s: %llu tokens kept, %llu from memory, %llu from disk\n", name, (unsigned long long)from[0],
           (unsigned long long)from[1], (unsigned long long)from[2]);
    CHECK(from[1] > 0 && (!dir || from[2] > 0));
    for (int q = 0; q < N_SEQ; q++) mica_session_free(s[q]);
    mica_session_free(fresh);
    mica_model_free(m);
    mica_model_free(plain);
}

static void test_histories_of_attention_models(void **state) {
    (void)state;
    random_histories("tiny-llama-moe", 64 << 20, NULL, MICA_KV_F16);
    random_histories("tiny-llama-moe", 640 << 10, NULL, MICA_KV_I8); // room for a few texts only
}

static void test_histories_of_hybrids(void **state) {
    (void)state;
    random_histories("tiny-qwen35", 1280 << 10, NULL, MICA_KV_I8);
    random_histories("tiny-flash-next", 64 << 20, NULL, MICA_KV_F16); // keys of blocks, n-gram rows
}

static void test_histories_of_sliding_windows(void **state) {
    (void)state;
    random_histories("tiny-gemma4", 64 << 20, NULL, MICA_KV_F16);
    random_histories("tiny-gemma4-e", 1 << 20, NULL, MICA_KV_F16);
}

static void test_histories_through_the_disk(void **state) {
    (void)state;
    const char *dir = temp_dir_at(&g_dir, "state"); // all in one folder
    random_histories("tiny-qwen35", 1280 << 10, dir, MICA_KV_F16);
    random_histories("tiny-gemma4", 1 << 20, dir, MICA_KV_F16);
}

/* ---- what clients do ---- */

/* A conversation's ids: a long system prompt that begins with `head`, then `rest` (JSON, after a comma). */
static mica_ids chat(const mica_model *m, const char *head, const char *rest) {
    static char json[8192], body[4096];
    mica_ids ids;
    mica_error err;
    size_t n = 0;
    for (int i = 0; i < 36; i++)
        n +=
            (size_t)snprintf(body + n, sizeof body - n, "Rule %d: answer what is asked, in plain words. ", i);
    snprintf(json, sizeof json, "[{\"role\":\"system\",\"content\":\"%s%s\"},%s]", head, body, rest);
    CHECK_OK(mica_encode_chat(m, json, NULL, &ids, NULL, &err));
    return ids;
}

static size_t shared_tokens(const mica_ids *a, const mica_ids *b) {
    size_t k = 0;
    while (k < a->n && k < b->n && a->ids[k] == b->ids[k]) k++;
    return k;
}

/* The conversation is read by a session that has not seen it; all that it shares with `before` must come from
 * the cache, or, where state cannot be cut, what lies before the turn that differs. */
static mica_reuse expect_reuse(mica_session *s, const mica_ids *now, const mica_ids *before, bool hybrid) {
    mica_reuse r = read_prompt(s, now->ids, now->n, 100);
    size_t most = shared_tokens(now, before), least = hybrid ? most - 40 : most;
    if (most == now->n && !hybrid) least--; // the last is read for its logits, where they are not kept
    if (r.n_cached < least || r.n_cached > most)
        print_error("%zu tokens, %zu shared: %zu cached\n", now->n, most, r.n_cached);
    CHECK(r.n_cached >= least && r.n_cached <= most);
    return r;
}

static const char g_ask[] = "{\"role\":\"user\",\"content\":\"What is the capital of Norland?\"}",
                  g_edit[] = "{\"role\":\"user\",\"content\":\"Which river runs through Norland?\"}",
                  g_next[] = "{\"role\":\"user\",\"content\":\"What is the capital of Norland?\"},"
                             "{\"role\":\"assistant\",\"content\":\"Aldenburg.\",\"reasoning_content\":"
                             "\"The user asks for a capital; a long thought that templates drop.\"},"
                             "{\"role\":\"user\",\"content\":\"And the river?\"}";

static void check_clients(const char *name, bool hybrid) {
    mica_error err;
    temp_dir dir;
    temp_dir_make(&dir);
    mica_model *m = load(name, 64 << 20, dir.path, MICA_KV_F16), *plain = load(name, 0, NULL, MICA_KV_F16);
    mica_session *s[N_SEQ], *fresh;
    mica_model_info info;
    mica_model_get_info(m, &info);
    CHECK_OK(mica_session_new(&fresh, plain, &err));
    for (int q = 0; q < N_SEQ; q++) CHECK_OK(mica_session_new(&s[q], m, &err));
    mica_ids ask = chat(m, "", g_ask), edit = chat(m, "", g_edit), next = chat(m, "", g_next);
    CHECK(shared_tokens(&ask, &edit) > 200 && shared_tokens(&ask, &next) > 200);
    CHECK(read_prompt(s[0], ask.ids, ask.n, 100).n_cached == 0);
    CHECK(expect_reuse(s[1], &edit, &ask, hybrid).n_own == 0);          // an edited last message
    CHECK(expect_reuse(s[2], &next, &ask, hybrid).n_own == 0);          // a turn whose thinking is dropped
    CHECK(expect_reuse(s[1], &ask, &ask, false).n_cached >= ask.n - 1); // the same again: all of it
    read_prompt(fresh, next.ids, next.n, 100);
    expect_equal(s[2], fresh, info.n_vocab, name);
    read_prompt(fresh, ask.ids, ask.n, 100);
    expect_equal(s[1], fresh, info.n_vocab, name);
    /* A fork: two texts go on from one side by side. */
    mica_step_item it[2] = {{.session = s[0], .n_prompt = 30, .n_predict = 5, .ignore_end = true},
                            {.session = s[1], .n_prompt = 30, .n_predict = 5, .ignore_end = true}};
    mica_ids left = chat(m, "", g_next), right = chat(m, "", g_edit);
    CHECK_OK(mica_session_begin(s[0], left.ids, left.n, NULL, NULL, &err));
    CHECK_OK(mica_session_begin(s[1], right.ids, right.n, NULL, NULL, &err));
    while (it[0].finish == MICA_FINISH_NONE || it[1].finish == MICA_FINISH_NONE)
        CHECK_OK(mica_step(it, 2, &err));
    CHECK(mica_session_length(s[0]) == left.n + 4 && mica_session_length(s[1]) == right.n + 4);
    /* A hash that changes with every request: nothing after it can be used, and that is told. */
    mica_ids one = chat(m, "id abc12; ", g_ask), two = chat(m, "id zqx; ", g_ask);
    read_prompt(s[0], one.ids, one.n, 100);
    mica_reuse r = read_prompt(s[2], two.ids, two.n, 100);
    size_t parts = shared_tokens(&one, &two);
    CHECK(r.n_cached <= parts && r.noise_at == parts && r.n_noise > 0 && r.n_noise < 16);
    CHECK(r.n_after == two.n - parts - r.n_noise);
    for (int q = 0; q < N_SEQ; q++) mica_session_free(s[q]);
    mica_model_free(m);
    /* After a restart the disk knows them. */
    m = load(name, 64 << 20, dir.path, MICA_KV_F16);
    CHECK_OK(mica_session_new(&s[0], m, &err));
    r = expect_reuse(s[0], &edit, &edit, false);
    CHECK(r.n_disk == r.n_cached && r.n_disk >= edit.n - 1);
    read_prompt(fresh, edit.ids, edit.n, 100);
    expect_equal(s[0], fresh, info.n_vocab, name);
    mica_session_free(s[0]);
    mica_session_free(fresh);
    mica_model_free(m);
    mica_model_free(plain);
    mica_ids *all[] = {&ask, &edit, &next, &left, &right, &one, &two};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) mica_ids_free(all[i]);
    temp_dir_drop(&dir);
}

static void test_clients_of_an_attention_model(void **state) {
    (void)state;
    check_clients("llama.q4_k_m", false);
}

static void test_clients_of_a_hybrid(void **state) {
    (void)state;
    check_clients("qwen3_5.q4_k_m", true);
}

static void test_clients_of_sliding_windows(void **state) {
    (void)state;
    check_clients("gemma4.q4_k_m", false);
}

/* ---- a disk that fails ---- */

static int g_lines;

static void count_lines(void *user, log_level level, const char *line) {
    (void)user, (void)level;
    g_lines += strstr(line, "cache:") != NULL;
}

/* Reads a text in a model with this state folder; how much of it came from disk. */
static size_t read_with(const char *dir, uint64_t disk_bytes, const int32_t *ids, size_t n) {
    mica_error err;
    char path[512];
    mica_model *m;
    mica_session *s;
    snprintf(path, sizeof path, "%s/tiny-qwen35.gguf", g_dir.path);
    mica_load_options o = {
        .path = path, .n_ctx = N_CTX, .n_ubatch = 128, .n_thread = 1, .cache_bytes = 16 << 20};
    o.state_dir = dir;
    o.disk_bytes = disk_bytes;
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    mica_reuse r = read_prompt(s, ids, n, 128);
    mica_session_free(s);
    while (mica_model_idle(m)) {
    }
    mica_model_free(m);
    return r.n_disk;
}

/* Changes one byte of every piece, at a place that differs from piece to piece. */
static int damage_piece(const char *path, const struct stat *sb, int flag, struct FTW *ftw) {
    static unsigned turn;
    (void)flag, (void)ftw;
    size_t n = strlen(path);
    if (n < 6 || strcmp(path + n - 6, ".piece") != 0) return 0;
    int fd = open(path, O_RDWR);
    off_t at = (off_t)(turn++ * 40503u % (unsigned)sb->st_size);
    char c;
    CHECK(pread(fd, &c, 1, at) == 1);
    c ^= 0x20;
    CHECK(pwrite(fd, &c, 1, at) == 1);
    close(fd);
    return 0;
}

static void test_damaged_files_are_a_miss(void **state) {
    (void)state;
    int32_t ids[500];
    char index[1100];
    uint64_t seed = 12;
    const char *dir = temp_dir_at(&g_dir, "damaged");
    for (int i = 0; i < 500; i++) ids[i] = (int32_t)(test_rand(&seed) % 500);
    log_set_sink(count_lines, NULL);
    CHECK(read_with(dir, 0, ids, 500) == 0);
    CHECK(read_with(dir, 0, ids, 500) == 500);
    CHECK(nftw(dir, damage_piece, 16, FTW_PHYS) == 0);
    g_lines = 0;
    CHECK(read_with(dir, 0, ids, 500) == 0 && g_lines == 1); // told once: the first page ends the search
    CHECK(read_with(dir, 0, ids, 500) == 500);               // and written anew
    snprintf(index, sizeof index, "%s/prefix/index.db", dir);
    int fd = open(index, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && write(fd, "no database at all", 18) == 18);
    close(fd);
    g_lines = 0;
    CHECK(read_with(dir, 0, ids, 500) == 0 && g_lines == 1);
    CHECK(read_with(dir, 0, ids, 500) == 500);
    log_set_sink(NULL, NULL);
}

static void test_a_disk_without_room(void **state) {
    (void)state;
    int32_t ids[500];
    struct rlimit was, little = {.rlim_cur = 100 << 10};
    uint64_t seed = 13;
    const char *dir = temp_dir_at(&g_dir, "full"), *file = temp_dir_at(&g_dir, "tiny-gemma4.gguf");
    for (int i = 0; i < 500; i++) ids[i] = (int32_t)(test_rand(&seed) % 500);
    log_set_sink(count_lines, NULL);
    g_lines = 0;
    CHECK(getrlimit(RLIMIT_FSIZE, &was) == 0);
    little.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    CHECK(read_with(dir, 0, ids, 500) == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &was) == 0);
    CHECK(g_lines == 1); // one line, however many pieces did not fit
    CHECK(read_with(dir, 1, ids, 500) == 0 && read_with(dir, 1, ids, 500) == 0); // a cap below every piece
    g_lines = 0;
    CHECK(read_with(file, 0, ids, 500) == 0 && g_lines >= 1); // no folder can be there
    log_set_sink(NULL, NULL);
}

static void run_sql(const char *dir, const char *sql) {
    char index[1100];
    sqlite3 *db = NULL;
    snprintf(index, sizeof index, "%s/prefix/index.db", dir);
    CHECK(sqlite3_open(index, &db) == SQLITE_OK && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

/* Nothing can leave a full index that refuses to be written: what is new is not kept, and nothing hangs. */
static void test_an_index_that_cannot_be_written(void **state) {
    (void)state;
    int32_t ids[500], other[500];
    uint64_t seed = 14;
    const char *dir = temp_dir_at(&g_dir, "refuses");
    for (int i = 0; i < 500; i++) ids[i] = (int32_t)(test_rand(&seed) % 500);
    for (int i = 0; i < 500; i++) other[i] = (int32_t)(test_rand(&seed) % 500);
    log_set_sink(count_lines, NULL);
    CHECK(read_with(dir, 0, ids, 500) == 0);
    run_sql(dir, "UPDATE piece SET used = used; CREATE TRIGGER stays BEFORE DELETE ON piece "
                 "BEGIN SELECT RAISE(ABORT, 'it stays'); END;");
    g_lines = 0;
    CHECK(read_with(dir, 400 << 10, other, 500) == 0 && g_lines >= 1);
    CHECK(read_with(dir, 0, ids, 500) == 500);
    log_set_sink(NULL, NULL);
}

/* An index that another program holds is not thrown away. */
static void test_a_locked_index(void **state) {
    (void)state;
    int32_t ids[500];
    char index[1100];
    uint64_t seed = 15;
    sqlite3 *db = NULL;
    const char *dir = temp_dir_at(&g_dir, "locked");
    for (int i = 0; i < 500; i++) ids[i] = (int32_t)(test_rand(&seed) % 500);
    log_set_sink(count_lines, NULL);
    CHECK(read_with(dir, 0, ids, 500) == 0);
    snprintf(index, sizeof index, "%s/prefix/index.db", dir);
    CHECK(sqlite3_open(index, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE piece SET used = used",
                       NULL, NULL, NULL) == SQLITE_OK);
    g_lines = 0;
    CHECK(read_with(dir, 0, ids, 500) == 0 && g_lines == 1);
    CHECK(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    CHECK(read_with(dir, 0, ids, 500) == 500);
    log_set_sink(NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories_of_attention_models),
        cmocka_unit_test(test_histories_of_hybrids),
        cmocka_unit_test(test_histories_of_sliding_windows),
        cmocka_unit_test(test_histories_through_the_disk),
        cmocka_unit_test(test_clients_of_an_attention_model),
        cmocka_unit_test(test_clients_of_a_hybrid),
        cmocka_unit_test(test_clients_of_sliding_windows),
        cmocka_unit_test(test_damaged_files_are_a_miss),
        cmocka_unit_test(test_a_disk_without_room),
        cmocka_unit_test(test_an_index_that_cannot_be_written),
        cmocka_unit_test(test_a_locked_index),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
