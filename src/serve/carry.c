/* A prefix and base64, by OpenSSL. */
#include "serve/carry.h"

#include "base/mem.h"

#include <openssl/evp.h>
#include <string.h>

static const char PREFIX[] = "mica1.";
enum { N_PREFIX = sizeof PREFIX - 1 };

void carry_wrap(strbuf *out, slice text) {
    if (text.n > CARRY_MAX) return;
    unsigned char *code = mem_alloc((text.n + 2) / 3 * 4 + 1); // with the NUL of EVP_EncodeBlock
    if (!code) return;
    const int n = EVP_EncodeBlock(code, (const unsigned char *)text.p, (int)text.n);
    strbuf_put(out, PREFIX, N_PREFIX);
    strbuf_put(out, code, (size_t)n);
    mem_free(code);
}

bool carry_unwrap(strbuf *out, slice wrapped) {
    if (wrapped.n < N_PREFIX || memcmp(wrapped.p, PREFIX, N_PREFIX) != 0) return false;
    const slice code = {wrapped.p + N_PREFIX, wrapped.n - N_PREFIX};
    if (code.n % 4 != 0 || code.n / 4 * 3 > CARRY_MAX + 2) return false;
    unsigned char *text = mem_alloc(code.n / 4 * 3 + 1);
    if (!text) return false;
    int n = EVP_DecodeBlock(text, (const unsigned char *)code.p, (int)code.n);
    for (size_t i = 1; n > 0 && i <= 2 && i <= code.n && code.p[code.n - i] == '='; i++) n--;
    const bool good = n >= 0 && utf8_valid((const char *)text, (size_t)n);
    if (good) strbuf_put(out, text, (size_t)n);
    mem_free(text);
    return good;
}
