/* The expanded codebooks against the SHA-256 of the published tables (little-endian bytes). */
#include "check.h"

#include "quant/block.h"

static const uint32_t g_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void sha256_block(uint32_t h[8], const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = __builtin_bswap32(load_u32(p + 4 * i));
    for (int i = 16; i < 64; i++) {
        uint32_t a = ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25),
                 a = ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22);
        uint32_t t = v[7] + e + ((v[4] & v[5]) ^ (~v[4] & v[6])) + g_k[i] + w[i];
        uint32_t u = a + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

/* Hex digest of n bytes. */
static const char *sha256(const void *data, size_t n) {
    static char hex[65];
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t at = 0;
    for (; n - at >= 64; at += 64) sha256_block(h, (const uint8_t *)data + at);
    uint8_t tail[128] = {0};
    size_t left = n - at, len = left < 56 ? 64 : 128;
    memcpy(tail, (const uint8_t *)data + at, left);
    tail[left] = 0x80;
    for (size_t i = 0; i < 8; i++) tail[len - 1 - i] = (uint8_t)((uint64_t)n * 8 >> 8 * i);
    for (at = 0; at < len; at += 64) sha256_block(h, tail + at);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", h[i]);
    return hex;
}

static void test_digest_of_known_text(void **state) {
    (void)state;
    assert_string_equal(sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_grids_are_the_published_ones(void **state) {
    (void)state;
    assert_string_equal(sha256(quant_grid_iq2xxs, sizeof quant_grid_iq2xxs),
                        "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54");
    assert_string_equal(sha256(quant_grid_iq2xs, sizeof quant_grid_iq2xs),
                        "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de");
    assert_string_equal(sha256(quant_grid_iq2s, sizeof quant_grid_iq2s),
                        "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88");
    assert_string_equal(sha256(quant_grid_iq3xxs, sizeof quant_grid_iq3xxs),
                        "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d");
    assert_string_equal(sha256(quant_grid_iq3s, sizeof quant_grid_iq3s),
                        "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f");
    assert_string_equal(sha256(quant_grid_iq1s, sizeof quant_grid_iq1s),
                        "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a");
}

static void test_signs_are_the_published_ones(void **state) {
    (void)state;
    uint8_t signs[128];
    for (uint32_t i = 0; i < 128; i++) signs[i] = (uint8_t)quant_signs_even(i);
    assert_string_equal(sha256(signs, sizeof signs),
                        "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest_of_known_text),
        cmocka_unit_test(test_grids_are_the_published_ones),
        cmocka_unit_test(test_signs_are_the_published_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
