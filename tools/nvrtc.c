/* Device source to machine code or PTX for NVIDIA cards, at build time, without the CUDA toolkit: NVRTC
 * through dlopen.
 *
 *     nvrtc LIBRARY NAME OUT TEXT...      NAME: sm_90.cubin or compute_75.ptx; texts are paths below src/
 *     nvrtc --find LIBRARY                prints the library's path when it can be opened; LIBRARY "" looks
 * in the usual places */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 64 };

static void *open_library(const char *path) {
    static const char *const usual[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    if (path[0]) return dlopen(path, RTLD_NOW);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        void *lib = dlopen(usual[i], RTLD_NOW);
        if (lib) return lib;
    }
    return NULL;
}

static char *read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    long n = -1;
    if (f && fseek(f, 0, SEEK_END) == 0) n = ftell(f);
    char *p = n >= 0 ? calloc((size_t)n + 1, 1) : NULL;
    if (p) {
        rewind(f);
        if (fread(p, 1, (size_t)n, f) != (size_t)n) p[0] = 0;
    }
    if (f) fclose(f);
    return p;
}

static int find(const char *path) {
    struct link_map *map;
    void *lib = open_library(path);
    if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map) != 0) return 1;
    puts(map->l_name);
    return 0;
}

static int call2(void *lib, const char *name, void *prog, void *out) {
    int (*f)(void *, void *);
    *(void **)&f = dlsym(lib, name);
    return f ? f(prog, out) : -1;
}

static int compile(void *lib, void **prog, char **argv, int n_text) {
    const char *text = NULL, *head[TEXTS_MAX], *name[TEXTS_MAX];
    int n = 0;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*run)(void *, int, const char *const *);
    *(void **)&create = dlsym(lib, "nvrtcCreateProgram");
    *(void **)&run = dlsym(lib, "nvrtcCompileProgram");
    if (!create || !run) return -1;
    for (int i = 0; i < n_text && n < TEXTS_MAX; i++) {
        const char *path = argv[4 + i], *short_name = strncmp(path, "src/", 4) == 0 ? path + 4 : path;
        char *p = read_file(path);
        if (!p) return -1;
        if (strcmp(short_name, "kern/all.cuh") == 0) {
            text = p;
        } else {
            head[n] = p;
            name[n++] = short_name;
        }
    }
    char arch[64];
    snprintf(arch, sizeof arch, "--gpu-architecture=%.*s", (int)strcspn(argv[2], "."), argv[2]);
    // As gpu_code.c compiles at first use: no contraction, no flush to zero.
    const char *const options[] = {arch,
                                   "-DWAVE=32",
                                   "--std=c++17",
                                   "--fmad=false",
                                   "--ftz=false",
                                   "--prec-div=true",
                                   "--prec-sqrt=true",
                                   "-DMICA_DEVICE_SOURCE=1",
                                   "--device-as-default-execution-space"};
    if (!text || create(prog, text, "kern/all.cuh", n, head, name) != 0) return -1;
    return run(*prog, (int)(sizeof options / sizeof *options), options);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--find") == 0) return find(argv[2]);
    if (argc < 5) return 2;
    void *lib = open_library(argv[1]), *prog = NULL;
    if (!lib) return fprintf(stderr, "nvrtc: %s\n", dlerror()), 1;
    int rc = compile(lib, &prog, argv, argc - 4);
    size_t n = 0;
    if (rc && prog && call2(lib, "nvrtcGetProgramLogSize", prog, &n) == 0) {
        char *log = calloc(n + 1, 1);
        if (log && call2(lib, "nvrtcGetProgramLog", prog, log) == 0) fprintf(stderr, "%s\n", log);
        free(log);
    }
    if (rc) return 1;
    const char *ptx = strstr(argv[2], ".ptx");
    char *code = NULL;
    if (call2(lib, ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize", prog, &n) == 0 && n) code = malloc(n);
    if (!code || call2(lib, ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN", prog, code) != 0) return 1;
    FILE *f = fopen(argv[3], "wb");
    int ok = f && fwrite(code, 1, n, f) == n;
    free(code);
    return f && fclose(f) == 0 && ok ? 0 : 1;
}
