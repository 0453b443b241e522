/* libmica: an HTTP server for one model, in the shapes of OpenAI's and Anthropic's APIs (docs/CONTRACT.md).
 *
 *     mica_server *s;  mica_error err;
 *     mica_server_open(&s, &(mica_server_options){.port = 8080}, &err);    // the port is ours, or this fails
 *     ... load the model; meanwhile every request is answered with 503 ...
 *     mica_server_run(s, model, NULL, &stop, &err);     // until stop is set and all is answered
 *     mica_server_free(s);
 *
 * Threads: open, run and free belong to one thread, which becomes the model's worker inside run; the sockets
 * have threads of their own. The flag may be set from anywhere, also from a signal handler. Strings of the
 * options are copied. */
#ifndef MICA_SERVER_H
#define MICA_SERVER_H

#include "mica.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_server mica_server;

typedef struct mica_server_options {
    const char *host; // address to listen on; NULL: 127.0.0.1
    int port;         // 0: any that is free
    const char *const
        *api_keys; // any of these opens the server; none: requests are judged by Host and Origin
    size_t n_api_key;
    const char *const *allow_origins; // pages of these origins may read answers
    size_t n_allow_origin;
    const char *const *allow_hosts; // further names that this server may be called by
    size_t n_allow_host;
    const char *alias;     // the model's name to clients; NULL: the file's
    const char *state_dir; // stored responses and saved slots; NULL: none of these
    const char *web_dir;   // the page's files are read from here at every request; NULL: those in the program
    bool insecure;         // listen on other than loopback addresses without a key
    bool reuse_generated; // also generated tokens may be reused as a prefix: faster, not always the same bits
    uint32_t n_queue;     // requests that may wait; 0: 256
    uint32_t n_connection; // open connections; 0: 2048 or what the system allows
    uint64_t body_bytes;   // of a request; 0: 16 MiB
    uint32_t receive_s;    // a request has to come whole within this time; 0: 60
    uint32_t ping_s;       // a stream is silent for no longer than this; 0: 10
    uint32_t stall_s;      // a client that takes nothing for so long is left; 0: 60
} mica_server_options;

/* What holds for requests that do not say it themselves. */
typedef struct mica_server_defaults {
    const mica_sampling *sampling; // NULL: the model's
    const char *think;             // "on" "off" or an effort; NULL: as the template likes
    int32_t n_draft;               // most drafted tokens a window; 0: off
    float draft_min_p;
} mica_server_defaults;

/* MICA_E_BUSY: the port is in use. MICA_E_ARG: an address that is not ours, or one that others reach, without
 * a key. */
MICA_API mica_status mica_server_open(mica_server **out, const mica_server_options *opt, mica_error *err);
MICA_API int mica_server_port(const mica_server *s);
MICA_API const char *mica_server_url(const mica_server *s); // "http://127.0.0.1:8080", for people
/* Answers requests until `stop` is set and what was running then has ended; requests that come later get 503.
 * The model's sessions must all be free. `d` may be NULL, its strings are borrowed. */
MICA_API mica_status mica_server_run(mica_server *s, mica_model *m, const mica_server_defaults *d,
                                     const mica_cancel_flag *stop, mica_error *err);
MICA_API void mica_server_free(mica_server *s); // NULL allowed

#ifdef __cplusplus
}
#endif
#endif
