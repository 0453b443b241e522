/* The text of MICA_SIM to numbers. */
#include "dev/gpu_sim.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { CARDS_MAX = 8 };

static bool read_bytes(uint64_t *out, const char *text) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift != 0;
    if (errno || end == text || *end || text[0] == '-' || v > UINT64_MAX >> shift) return false;
    *out = v << shift;
    return true;
}

static bool read_real(double *out, const char *text) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out > 0.0 && *out < 1e9;
}

static bool set_count(sim_knobs *k, const char *name, uint64_t v) {
    if (strcmp(name, "cards") == 0 && v >= 1 && v <= CARDS_MAX)
        k->n_card = (int)v;
    else if (strcmp(name, "wave") == 0 && (v == 32 || v == 64))
        k->wave = (uint32_t)v;
    else if (strcmp(name, "mp") == 0 && v >= 1 && v <= 1024)
        k->n_mp = (uint32_t)v;
    else if (strcmp(name, "vram") == 0 && v >= 1)
        k->vram_bytes = v;
    else if (strcmp(name, "no_memory") == 0)
        k->no_memory = v;
    else if (strcmp(name, "lost") == 0)
        k->lost = v;
    else if (strcmp(name, "copy_error") == 0)
        k->copy_error = v;
    else if (strcmp(name, "garbage") == 0)
        k->garbage = v;
    else if (strcmp(name, "no_register") == 0)
        k->no_register = v;
    else
        return false;
    return true;
}

static bool set_knob(sim_knobs *k, const char *name, const char *value) {
    uint64_t n;
    if (strcmp(name, "arch") == 0) {
        snprintf(k->arch, sizeof k->arch, "%s", value);
        return value[0] && strlen(value) < sizeof k->arch;
    }
    if (strcmp(name, "link") == 0) return read_real(&k->link_gbps, value);
    if (strcmp(name, "memory") == 0) return read_real(&k->memory_gbps, value);
    if (strcmp(name, "latency") == 0) return read_real(&k->latency_us, value);
    return read_bytes(&n, value) && set_count(k, name, n);
}

/* gfx9 and older run 64 lanes together. */
static uint32_t wave_of(const char *arch) {
    return strncmp(arch, "gfx9", 4) == 0 ? 64 : 32;
}

mica_status sim_knobs_parse(sim_knobs *k, const char *text, mica_error *err) {
    *k = (sim_knobs){.n_card = 1,
                     .arch = "sim",
                     .n_mp = 4,
                     .vram_bytes = (uint64_t)16 << 30,
                     .link_gbps = 16.0,
                     .memory_gbps = 500.0,
                     .latency_us = 5.0};
    while (text && *text) {
        char item[80];
        size_t n = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item - 1), text);
        char *eq = strchr(item, '=');
        if (eq) *eq = 0;
        if (!eq || !set_knob(k, item, eq + 1))
            return fail(err, MICA_E_ARG, "MICA_SIM: %.*s: no such knob, or not a value of it", (int)n, text);
        text += n + (text[n] == ',');
    }
    if (k->wave == 0) k->wave = wave_of(k->arch);
    return MICA_OK;
}
