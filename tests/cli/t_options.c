/* The table of flags holds together, and the parser reads it right. Messages
 * are tested from outside (cli_test.py). */
#include "cli/options.h"

#include "check.h"
#include "cli/command.h"

static options g_o;
static mica_error err; // named as CHECK_OK wants it

static mica_status parse(const char *line) {
    static char words[400];
    char *argv[32] = {"mica"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
    return options_parse(&g_o, argc, argv, &err);
}

static void expect_error(const char *line, mica_status want) {
    const mica_status st = parse(line);
    if (st != want) check_failed(__FILE__, __LINE__, line, mica_status_name(st));
    CHECK(!g_o.args.p && !g_o.stop.p && !g_o.n_gen.p); // nothing is left to free
}

/* Adds the words of `words` to `seen`; the first that was there already is the result. */
static const char *add_words(char seen[4000], char *words) {
    char one[64];
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
        snprintf(one, sizeof one, " %s ", w);
        if (strstr(seen, one)) return w;
        strcat(seen, w);
        strcat(seen, " ");
    }
    return NULL;
}

/* Two rows of one command must not share a spelling, or one of them could never be reached. */
static void test_no_spelling_twice(void **state) {
    (void)state;
    for (int id = 0; id < CMD_N; id++) {
        char seen[4000] = " ", words[200];
        option_view v;
        for (size_t i = 0; options_view(command_at((command_id)id), i, &v); i++) {
            snprintf(words, sizeof words, "%s %s %s", v.name, v.shorter ? v.shorter : "",
                     v.aliases ? v.aliases : "");
            CHECK(v.help[0] && v.name[0] == '-');
            const char *twice = add_words(seen, words);
            if (twice) check_failed(__FILE__, __LINE__, command_at((command_id)id)->name, twice);
        }
        CHECK(strstr(seen, " --help "));
    }
}

static void test_commands_are_found(void **state) {
    (void)state;
    int n_word;
    for (int id = 0; id < CMD_N; id++) CHECK(command_at((command_id)id)->id == (command_id)id);
    CHECK(command_find(2, (const char *const[]){"eval", "ppl"}, &n_word)->id == CMD_EVAL_PPL && n_word == 2);
    CHECK(command_find(2, (const char *const[]){"run", "ppl"}, &n_word)->id == CMD_RUN && n_word == 1);
    CHECK(!command_find(1, (const char *const[]){"eval"}, &n_word));
    CHECK(command_is_group("eval") && !command_is_group("run") && !command_is_group("ev"));
}

static void test_values_land_in_their_fields(void **state) {
    (void)state;
    CHECK_OK(parse("run -m a.gguf -c 512 --temp=0.5 --stop x --stop y -n -1 --kv "
                   "int8 --ram 1.5G --raw"));
    CHECK(g_o.command->id == CMD_RUN && strcmp(g_o.model, "a.gguf") == 0 && g_o.context == 512 &&
          g_o.temp == 0.5);
    CHECK(g_o.stop.n == 2 && strcmp(g_o.stop.p[1], "y") == 0 && g_o.predict == -1 && g_o.kv == 2 && g_o.raw);
    CHECK(g_o.ram == (uint64_t)3 << 29);
    CHECK(OPTION_SEEN(&g_o, temp) && OPTION_SEEN(&g_o, kv) && !OPTION_SEEN(&g_o, top_k) &&
          !OPTION_SEEN(&g_o, json));
    options_fini(&g_o);
}

static void test_shared_spellings_mean_what_their_command_says(void **state) {
    (void)state;
    CHECK_OK(parse("bench -m a -p 1,22 -p 3 -n 0 -d 7 -r 2 -o csv"));
    CHECK(g_o.n_prompt.n == 3 && g_o.n_prompt.p[1] == 22 && g_o.n_prompt.p[2] == 3 && g_o.n_gen.n == 1);
    CHECK(g_o.n_gen.p[0] == 0 && g_o.depth.p[0] == 7 && g_o.repeats == 2 && g_o.format == BENCH_CSV &&
          !g_o.prompt);
    options_fini(&g_o);
    CHECK_OK(parse("run -m a -p 1,22 -n 3"));
    CHECK(strcmp(g_o.prompt, "1,22") == 0 && g_o.predict == 3 && g_o.n_prompt.n == 0);
    options_fini(&g_o);
    CHECK_OK(parse("run -m a --draft off -ngl auto"));
    CHECK(g_o.draft == 0 && OPTION_SEEN(&g_o, draft) && g_o.gpu_layers == -1);
    options_fini(&g_o);
    CHECK_OK(parse("rm -- -q --json"));
    CHECK(g_o.args.n == 2 && strcmp(g_o.args.p[1], "--json") == 0 && !g_o.json);
    options_fini(&g_o);
    CHECK_OK(parse("synth --output f --seed 4 --set a=1 --set b=2"));
    CHECK(strcmp(g_o.output, "f") == 0 && g_o.seed == 4 && g_o.set.n == 2);
    options_fini(&g_o);
}

static void test_errors_leave_nothing_behind(void **state) {
    (void)state;
    expect_error("", MICA_E_ARG);
    expect_error("run --stop a --stop b --nope", MICA_E_ARG);
    expect_error("bench -n 1,2,x", MICA_E_ARG);
    expect_error("run model prompt word", MICA_E_ARG);
    expect_error("plan -m a word", MICA_E_ARG);
    expect_error("run -c", MICA_E_ARG);
    expect_error("run -c 1e3", MICA_E_ARG);
    expect_error("run --stop a --kv-resident 9", MICA_E_DEVICE);
    expect_error("run --ram 16GB", MICA_E_ARG);
    expect_error("run --ram 9999999T", MICA_E_ARG);
    expect_error("run --temp inf", MICA_E_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_spelling_twice),
        cmocka_unit_test(test_commands_are_found),
        cmocka_unit_test(test_values_land_in_their_fields),
        cmocka_unit_test(test_shared_spellings_mean_what_their_command_says),
        cmocka_unit_test(test_errors_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
