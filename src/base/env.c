/* Environment table. */
#include "base/env.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const env_var g_vars[] = {
    {"MICA_HOME", "folder of downloaded models and caches", "$XDG_CACHE_HOME/mica, else ~/.cache/mica"},
    {"XDG_CACHE_HOME", "base of the cache folder when MICA_HOME is unset", "~/.cache"},
    {"HOME", "base of ~/.cache and of the line-editing history", "the user's entry in the password file"},
    {"NO_COLOR", "any value: no colour on the terminal", "colour when stderr is a terminal"},
    {"TERM", "\"dumb\": no colour and no progress bar", "from the terminal"},
    {"MICA_SIM", "knobs of the simulated graphics card: cards=2,arch=gfx1201,vram=2G,link=16 ...",
     "one card with 16 GiB, listed only when this is set"},
    {"MICA_LIBRARY_PATH", "folders where libraries of graphics cards are looked for first, with : between",
     "their usual places"},
    {"HF_TOKEN", "access token sent to Hugging Face by pull, never to another host", "none"},
    {"HF_ENDPOINT", "base URL used by pull for hf: names", "https://huggingface.co"},
};

char *const *env_all(void) {
    return environ;
}

size_t env_count(void) {
    return sizeof g_vars / sizeof g_vars[0];
}

const env_var *env_at(size_t i) {
    return &g_vars[i];
}

const char *env_get(const char *name) {
    size_t i = 0;
    while (i < env_count() && strcmp(g_vars[i].name, name) != 0) i++;
    assert(i < env_count());
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}
