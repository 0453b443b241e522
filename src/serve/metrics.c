/* Counting, and the text. */
#include "serve/metrics.h"

#include <math.h>

static const double g_bounds[METRICS_N_BUCKET] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                  0.5,   1,     2.5,  5,     10,   30,  120};

void metrics_init(metrics *m) {
    *m = (metrics){.mean_request_s = 1.0};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_fini(metrics *m) {
    pthread_mutex_destroy(&m->lock);
}

static void observe(histogram *h, double s, uint64_t n) {
    int i = 0;
    while (i < METRICS_N_BUCKET && s > g_bounds[i]) i++;
    h->bucket[i] += n;
    h->n += n;
    h->sum += s * (double)n;
}

void metrics_step(metrics *m, size_t n_busy, uint64_t n_made, double step_s) {
    pthread_mutex_lock(&m->lock);
    m->n_step++;
    m->n_busy += n_busy;
    m->n_made += n_made;
    if (n_made > 0) observe(&m->between_tokens, step_s * (double)n_busy / (double)n_made, n_made);
    pthread_mutex_unlock(&m->lock);
}

void metrics_first(metrics *m, double first_s) {
    pthread_mutex_lock(&m->lock);
    observe(&m->first_token, first_s, 1);
    pthread_mutex_unlock(&m->lock);
}

void metrics_draft(metrics *m, uint64_t n_drafted, uint64_t n_accepted) {
    pthread_mutex_lock(&m->lock);
    m->n_draft_window += n_drafted > 0;
    m->n_drafted += n_drafted;
    m->n_accepted += n_accepted;
    pthread_mutex_unlock(&m->lock);
}

void metrics_end(metrics *m, const event_end *e, double whole_s) {
    pthread_mutex_lock(&m->lock);
    m->finished[e ? e->finish : METRICS_N_FINISH - 1]++;
    if (e) {
        m->n_prompt += e->n_prompt;
        m->n_cached += e->n_cached;
        m->prompt_s += e->prompt_ms / 1000.0;
        m->decode_s += e->decode_ms / 1000.0;
        if (e->n_prompt + e->n_made > m->n_max) m->n_max = e->n_prompt + e->n_made;
        observe(&m->whole_request, whole_s, 1);
        m->mean_request_s += (whole_s - m->mean_request_s) * 0.1;
    }
    pthread_mutex_unlock(&m->lock);
}

double metrics_mean_request_s(metrics *m) {
    pthread_mutex_lock(&m->lock);
    const double s = m->mean_request_s;
    pthread_mutex_unlock(&m->lock);
    return s;
}

/* ---- Text ---- */

static void head(strbuf *out, const char *name, const char *type, const char *help) {
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put(strbuf *out, const char *name, const char *type, const char *help, double v) {
    head(out, name, type, help);
    strbuf_printf(out, "%s %.10g\n", name, isfinite(v) ? v : 0.0);
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0.0;
}

static void put_histogram(strbuf *out, const char *name, const char *help, const histogram *h) {
    uint64_t n = 0;
    head(out, name, "histogram", help);
    for (int i = 0; i < METRICS_N_BUCKET; i++) {
        n += h->bucket[i];
        strbuf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, g_bounds[i], (unsigned long long)n);
    }
    strbuf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.10g\n%s_count %llu\n", name,
                  (unsigned long long)h->n, name, h->sum, name, (unsigned long long)h->n);
}

static void put_llamacpp(strbuf *out, const metrics *m, const metrics_gauges *g) {
    put(out, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens read.",
        (double)(m->n_prompt - m->n_cached));
    put(out, "llamacpp:prompt_seconds_total", "counter", "Time spent on prompts.", m->prompt_s);
    put(out, "llamacpp:tokens_predicted_total", "counter", "Tokens made.", (double)m->n_made);
    put(out, "llamacpp:tokens_predicted_seconds_total", "counter", "Time spent on making tokens.",
        m->decode_s);
    put(out, "llamacpp:prompt_tokens_seconds", "gauge", "Mean prompt tokens per second.",
        ratio((double)(m->n_prompt - m->n_cached), m->prompt_s));
    put(out, "llamacpp:predicted_tokens_seconds", "gauge", "Mean tokens per second of one answer.",
        ratio((double)m->n_made, m->decode_s));
    put(out, "llamacpp:requests_processing", "gauge", "Requests at work.", (double)g->n_running);
    put(out, "llamacpp:requests_deferred", "gauge", "Requests that wait.", (double)g->n_waiting);
    put(out, "llamacpp:n_tokens_max", "counter", "Longest sequence seen.", (double)m->n_max);
    put(out, "llamacpp:n_decode_total", "counter", "Steps of the model.", (double)m->n_step);
    put(out, "llamacpp:n_busy_slots_per_decode", "gauge", "Mean sequences in a step.",
        ratio((double)m->n_busy, (double)m->n_step));
    put(out, "llamacpp:spec_decode_num_drafts_total", "counter", "Draft windows.", (double)m->n_draft_window);
    put(out, "llamacpp:spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.",
        (double)m->n_drafted);
    put(out, "llamacpp:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens kept.",
        (double)m->n_accepted);
}

static void put_vllm(strbuf *out, const metrics *m, const metrics_gauges *g) {
    static const char *const reasons[METRICS_N_FINISH] = {"stop",   "stop",       "length",
                                                          "length", "tool_calls", "abort"};
    put(out, "vllm:num_requests_running", "gauge", "Requests at work.", (double)g->n_running);
    put(out, "vllm:num_requests_waiting", "gauge", "Requests that wait.", (double)g->n_waiting);
    put(out, "vllm:kv_cache_usage_perc", "gauge", "Share of the positions of all sequences in use, 1 is all.",
        ratio((double)g->n_token, (double)g->n_token_max));
    put(out, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the cache.",
        (double)m->n_prompt);
    put(out, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.", (double)m->n_cached);
    put(out, "vllm:prompt_tokens_total", "counter", "Prompt tokens, cached ones too.", (double)m->n_prompt);
    put(out, "vllm:generation_tokens_total", "counter", "Tokens made.", (double)m->n_made);
    head(out, "vllm:request_success_total", "counter", "Requests by how they ended.");
    uint64_t sum[METRICS_N_FINISH] = {0};
    for (int i = 0; i < METRICS_N_FINISH; i++) {
        int first = i;
        while (first > 0 && strcmp(reasons[first - 1], reasons[i]) == 0) first--;
        sum[first] += m->finished[i];
    }
    for (int i = 0; i < METRICS_N_FINISH; i++)
        if (i == 0 || strcmp(reasons[i - 1], reasons[i]) != 0)
            strbuf_printf(out, "vllm:request_success_total{finished_reason=\"%s\"} %llu\n", reasons[i],
                          (unsigned long long)sum[i]);
    put_histogram(out, "vllm:time_to_first_token_seconds", "From a request to its first token.",
                  &m->first_token);
    put_histogram(out, "vllm:inter_token_latency_seconds", "Between two tokens of an answer.",
                  &m->between_tokens);
    put_histogram(out, "vllm:e2e_request_latency_seconds", "From a request to its end.", &m->whole_request);
}

static void put_bytes(strbuf *out, const char *name, const char *label, const char *what, uint64_t n) {
    strbuf_printf(out, "%s{%s=\"%s\"} %llu\n", name, label, what, (unsigned long long)n);
}

/* Where weights are, and where a token reads them. */
static void put_tiers(strbuf *out, const mica_model_info *i) {
    uint64_t link = i->link_bytes_per_token;
    if (link > i->bytes_per_token) link = i->bytes_per_token;
    head(out, "mica_bytes_per_token", "gauge", "Weights that a token reads, by tier.");
    if (i->on_card) put_bytes(out, "mica_bytes_per_token", "tier", "vram", i->bytes_per_token - link);
    put_bytes(out, "mica_bytes_per_token", "tier", "ram", i->on_card ? link : i->bytes_per_token);
    const char *name = i->on_card ? "mica_vram_bytes" : "mica_ram_bytes";
    head(out, name, "gauge", "Memory taken, by purpose.");
    put_bytes(out, name, "what", "weights", i->weights_bytes);
    put_bytes(out, name, "what", "kv", i->kv_bytes);
    put_bytes(out, name, "what", "scratch", i->scratch_bytes);
    if (i->beside_bytes == 0) return;
    head(out, "mica_ram_bytes", "gauge", "Memory taken, by purpose.");
    put_bytes(out, "mica_ram_bytes", "what", "experts", i->beside_bytes);
}

static void put_mica(strbuf *out, const metrics_gauges *g) {
    mica_model_info info;
    put(out, "mica_slots", "gauge", "Sequences that can be at work together.", (double)g->n_slot);
    put(out, "mica_connections", "gauge", "Open connections.", (double)g->n_connection);
    put(out, "mica_ready", "gauge", "1: the model is loaded.", g->model ? 1.0 : 0.0);
    if (!g->model) return;
    mica_model_get_info(g->model, &info);
    put(out, "mica_expert_hit_ratio", "gauge", "Experts found in the fastest tier; 1 without tiers.",
        info.expert_hit_rate);
    put_tiers(out, &info);
}

void metrics_text(metrics *m, const metrics_gauges *g, strbuf *out) {
    pthread_mutex_lock(&m->lock);
    put_llamacpp(out, m, g);
    put_vllm(out, m, g);
    pthread_mutex_unlock(&m->lock);
    put_mica(out, g);
}
