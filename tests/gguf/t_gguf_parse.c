/* Malformed files: each must be refused with its status and a line that names the thing, quickly and with
 * little memory. Right files of every form must open. */
#include "check.h"
#include "gguf_build.h"
#include "temp_dir.h"

#include "base/mem.h"
#include "gguf/gguf_int.h"

#include <sys/resource.h>

typedef struct bad_case {
    const char *name;
    void (*build)(strbuf *b, uint64_t arg);
    uint64_t arg;
    mica_status want;
    const char *needle; // in the text, besides the file's name
} bad_case;

static void cut_header(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 0);
    b->n = (size_t)n;
}
static void bad_magic(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 0, 0);
    memcpy(b->p, "GGML", 4);
}
static void lfs_pointer(strbuf *b, uint64_t arg) {
    (void)arg;
    strbuf_puts(b, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
}
static void version(strbuf *b, uint64_t v) {
    put_header(b, (uint32_t)v, 0, 0);
}
static void big_endian(strbuf *b, uint64_t v) {
    put_header(b, __builtin_bswap32((uint32_t)v), __builtin_bswap64(1), __builtin_bswap64(1));
}
static void key_count(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, n);
}
static void tensor_count(strbuf *b, uint64_t n) {
    put_header(b, 3, n, 0);
}

static void empty_key(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 0, 1);
    put_key(b, "", GGUF_KIND_U8);
    put_u8(b, 1);
}
/* The rest of a file whose single key has this length. */
static void key_length(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_u64(b, n);
    put_zeros(b, 16);
}
static void key_length_true(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_u64(b, n);
    for (uint64_t i = 0; i < n; i++) put_u8(b, 'k');
    put_u32(b, GGUF_KIND_U8);
    put_u8(b, 1);
}
static void key_bytes(strbuf *b, uint64_t which) {
    static const char *const key[] = {"a\0b", "a\xff", "\xc0\xaf", "\xed\xa0\x80"};
    static const size_t len[] = {3, 2, 2, 3};
    put_header(b, 3, 0, 1);
    put_bytes(b, key[which], len[which]);
    put_u32(b, GGUF_KIND_U8);
    put_u64(b, 1);
}
static void value_kind(strbuf *b, uint64_t kind) {
    put_header(b, 3, 0, 1);
    put_key(b, "a", (uint32_t)kind);
    put_u64(b, 1);
}
static void elem_kind(strbuf *b, uint64_t kind) {
    put_header(b, 3, 0, 1);
    put_array(b, "a", (uint32_t)kind, 1);
    put_u64(b, 1);
}
static void nested(strbuf *b, uint64_t depth) {
    put_header(b, 3, 0, 1);
    put_key(b, "a", GGUF_KIND_ARRAY);
    for (uint64_t i = 0; i < depth; i++) {
        put_u32(b, GGUF_KIND_ARRAY);
        put_u64(b, 1);
    }
    put_u32(b, GGUF_KIND_U8);
    put_u64(b, 1);
    put_u8(b, 1);
}
static void array_u32(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_array(b, "a", GGUF_KIND_U32, n);
}
static void array_str(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_array(b, "a", GGUF_KIND_STR, n);
    put_u64(b, 0);
}
static void array_str_long(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_array(b, "a", GGUF_KIND_STR, 2);
    put_str(b, "x");
    put_u64(b, n);
}
static void string_length(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_key(b, "general.name", GGUF_KIND_STR);
    put_u64(b, n);
    put_u8(b, 'x');
}
static void bool_value(strbuf *b, uint64_t x) {
    put_header(b, 3, 0, 1);
    put_key(b, "a", GGUF_KIND_BOOL);
    put_u8(b, (uint8_t)x);
}
static void bool_array(strbuf *b, uint64_t x) {
    put_header(b, 3, 0, 1);
    put_array(b, "a", GGUF_KIND_BOOL, 3);
    put_u8(b, 1);
    put_u8(b, 0);
    put_u8(b, (uint8_t)x);
}
static void twice(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 0, 2);
    put_kv_str(b, "general.architecture", "llama");
    put_kv_str(b, "general.architecture", "llama");
}
static void alignment(strbuf *b, uint64_t n) {
    put_header(b, 3, 0, 1);
    put_kv_u32(b, "general.alignment", (uint32_t)n);
}
static void alignment_str(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 0, 1);
    put_kv_str(b, "general.alignment", "32");
}

/* One tensor "a" and 4 KiB of data behind it. */
static void tensor(strbuf *b, uint32_t n_dim, const uint64_t *ne, uint32_t type, uint64_t off) {
    put_header(b, 3, 1, 0);
    put_tensor(b, "a", n_dim, ne, type, off);
    put_pad(b, 32);
    put_zeros(b, 4096);
}
static void zero_dim(strbuf *b, uint64_t which) {
    uint64_t ne[2] = {1, 1};
    ne[which] = 0;
    tensor(b, 2, ne, GGUF_F32, 0);
}
static void n_dims(strbuf *b, uint64_t n) {
    put_header(b, 3, 1, 0);
    put_str(b, "a");
    put_u32(b, (uint32_t)n);
    for (int i = 0; i < 8; i++) put_u64(b, 1);
    put_zeros(b, 64);
}
static void dims_wrap(strbuf *b, uint64_t type) {
    tensor(b, 4, (uint64_t[]){1ull << 32, 1ull << 32, 4, 1}, (uint32_t)type, 0);
}
static void bytes_wrap(strbuf *b, uint64_t type) {
    tensor(b, 3, (uint64_t[]){1ull << 31, 1ull << 30, 1}, (uint32_t)type, 0); // 2^61 elements of 8 bytes
}
static void sum_wrap(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 2, 0);
    put_tensor(b, "a", 1, (uint64_t[]){(1ull << 63) - 1}, GGUF_I8, 0);
    put_tensor(b, "b", 1, (uint64_t[]){(1ull << 63) - 1}, GGUF_I8, 1ull << 63);
    put_pad(b, 32);
    put_zeros(b, 64);
}
static void offset(strbuf *b, uint64_t off) {
    tensor(b, 1, (uint64_t[]){8}, GGUF_F32, off);
}
static void overlap(strbuf *b, uint64_t second) {
    put_header(b, 3, 2, 0);
    put_vector(b, "first", 20, 32); // 32..112
    put_vector(b, "second", 20, second);
    put_pad(b, 32);
    put_zeros(b, 256);
}
static void name_twice(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 2, 0);
    put_vector(b, "blk.0.w", 8, 0);
    put_vector(b, "blk.0.w", 8, 32);
    put_pad(b, 32);
    put_zeros(b, 64);
}
static void name_length(strbuf *b, uint64_t n) {
    put_header(b, 3, 1, 0);
    put_u64(b, n);
    for (uint64_t i = 0; i < n; i++) put_u8(b, 'n');
    put_u32(b, 1);
    put_u64(b, 1);
    put_u32(b, GGUF_F32);
    put_u64(b, 0);
    put_pad(b, 32);
    put_zeros(b, 4);
}
static void name_nul(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 1, 0);
    put_bytes(b, "a\0b", 3);
    put_zeros(b, 64);
}
static void ragged(strbuf *b, uint64_t n) {
    tensor(b, 2, (uint64_t[]){n, 2}, GGUF_Q4_K, 0);
}
static void type(strbuf *b, uint64_t id) {
    tensor(b, 1, (uint64_t[]){256}, (uint32_t)id, 0);
}
static void cut_data(strbuf *b, uint64_t n) {
    put_small_model(b);
    b->n -= (size_t)n;
}
static void split_no(strbuf *b, uint64_t no) {
    put_shard(b, (uint16_t)no, 3, 1, "a", 1);
}
static void split_wide(strbuf *b, uint64_t arg) {
    (void)arg;
    put_header(b, 3, 0, 1);
    put_key(b, "split.no", GGUF_KIND_I32);
    put_u32(b, UINT32_MAX);
}

#define FORMAT MICA_E_FORMAT
#define UNSUPPORTED MICA_E_UNSUPPORTED
static const bad_case g_bad[] = {
    {"empty", cut_header, 0, FORMAT, "is empty"},
    {"magic only", cut_header, 4, FORMAT, "the version needs 4 bytes"},
    {"one byte", cut_header, 1, FORMAT, "the magic needs 4 bytes, the file has 1 more"},
    {"23 bytes", cut_header, 23, FORMAT, "the key count needs 8 bytes, the file has 7 more"},
    {"bad magic", bad_magic, 0, FORMAT, "not a GGUF file: it starts with 47 47 4d 4c"},
    {"LFS pointer", lfs_pointer, 0, FORMAT, "Git LFS"},
    {"version 0", version, 0, FORMAT, "byte 4: version 0"},
    {"version 1", version, 1, FORMAT, "version 1 with 32-bit counts"},
    {"version 4", version, 4, FORMAT, "version 4"},
    {"version max", version, UINT32_MAX, FORMAT, "version 4294967295"},
    {"big-endian 3", big_endian, 3, FORMAT, "50331648: wrong byte order"},
    {"big-endian 2", big_endian, 2, FORMAT, "wrong byte order"},
    {"n_kv wrap", key_count, UINT64_MAX / 48 + 1, FORMAT,
     "384307168202282326 keys cannot fit in the 0 bytes"},
    {"n_tensor huge", tensor_count, INT64_MAX, FORMAT, "9223372036854775807 tensors cannot fit"},
    {"n_tensor max", tensor_count, UINT64_MAX, FORMAT, "tensors cannot fit"},
    {"empty key", empty_key, 0, FORMAT, "key 0: byte 24: the name is empty"},
    {"key 2^48-1", key_length, (1ull << 48) - 1, FORMAT,
     "a name of 281474976710655 bytes, the file has 16 more"},
    {"key 2^64-1", key_length, UINT64_MAX, FORMAT, "a name of 18446744073709551615 bytes"},
    {"key 65536", key_length_true, 65536, FORMAT, "a name of 65536 bytes, at most 65535"},
    {"key NUL", key_bytes, 0, FORMAT, "key 0: byte 32: the name holds a NUL"},
    {"key FF", key_bytes, 1, FORMAT, "not valid UTF-8"},
    {"key overlong", key_bytes, 2, FORMAT, "not valid UTF-8"},
    {"key surrogate", key_bytes, 3, FORMAT, "not valid UTF-8"},
    {"kind 13", value_kind, 13, FORMAT, "key 0 'a': byte 33: value kind 13"},
    {"kind 255", value_kind, 255, FORMAT, "value kind 255"},
    {"kind max", value_kind, UINT32_MAX, FORMAT, "value kind 4294967295"},
    {"elem kind 13", elem_kind, 13, FORMAT, "element kind 13"},
    {"nested 1", nested, 1, FORMAT, "arrays of arrays"},
    {"nested 4", nested, 4, FORMAT, "arrays of arrays"},
    {"nested 10000", nested, 10000, FORMAT, "arrays of arrays"},
    {"array wrap", array_u32, 0x4000000000000001, FORMAT,
     "an array of 4611686018427387905 u32 cannot fit in the 0 bytes"},
    {"array of 1 missing", array_u32, 1, FORMAT, "an array of 1 u32"},
    {"string array wrap", array_str, 0x2000000000000001, FORMAT,
     "2305843009213693953 strings cannot fit in the 8 bytes"},
    {"string array long", array_str, 2, FORMAT, "an array of 2 strings"},
    {"string in array", array_str_long, UINT64_MAX - 7, FORMAT,
     "a string of the array needs 18446744073709551608 bytes"},
    {"string 2^64-1", string_length, UINT64_MAX, FORMAT, "'general.name': byte 56: the string needs"},
    {"string by one", string_length, 2, FORMAT, "the string needs 2 bytes, the file has 1 more"},
    {"bool 2", bool_value, 2, FORMAT, "bool 0 is 2"},
    {"bool in array", bool_array, 255, FORMAT, "byte 51: bool 2 is 255"},
    {"key twice", twice, 0, FORMAT,
     "key 1 'general.architecture': byte 77: the key stands twice, first as key 0"},
    {"alignment 0", alignment, 0, FORMAT, "'general.alignment': byte 53: alignment 0 must be a power of two"},
    {"alignment 3", alignment, 3, FORMAT, "alignment 3"},
    {"alignment 4", alignment, 4, FORMAT, "alignment 4"},
    {"alignment 48", alignment, 48, FORMAT, "alignment 48"},
    {"alignment 2^31", alignment, 0x80000000, FORMAT, "alignment 2147483648"},
    {"alignment str", alignment_str, 0, FORMAT, "'general.alignment': byte 53: must be an integer"},
    {"zero dim 0", zero_dim, 0, FORMAT, "tensor 0 'a': byte 37: dimension 0 is 0"},
    {"zero dim 1", zero_dim, 1, FORMAT, "dimension 1 is 0"},
    {"n_dims 0", n_dims, 0, FORMAT, "tensor 0 'a': byte 33: 0 dimensions"},
    {"n_dims 5", n_dims, 5, FORMAT, "5 dimensions"},
    {"n_dims max", n_dims, UINT32_MAX, FORMAT, "4294967295 dimensions"},
    {"dims wrap", dims_wrap, GGUF_F32, FORMAT, "4294967296 x 4294967296 x 4 x 1 overflow"},
    {"dims wrap q1", dims_wrap, GGUF_Q1_0, FORMAT, "overflow"},
    {"bytes wrap", bytes_wrap, GGUF_F64, FORMAT, "overflow in bytes"},
    {"sum wrap", sum_wrap, 0, FORMAT, "runs past the end of the file"},
    {"offset 2^40", offset, 1ull << 40, FORMAT,
     "tensor 0 'a': byte 49: data of 32 bytes at offset 1099511627776"},
    {"offset max", offset, UINT64_MAX - 31, FORMAT, "runs past the end"},
    {"offset by one", offset, 4096, FORMAT, "runs past the end of the file: 4160 bytes with data from 64"},
    {"offset 1", offset, 1, FORMAT, "offset 1 is not a multiple of the alignment 32"},
    {"same offset", overlap, 32, FORMAT, "data overlaps tensor 'first', which ends at"},
    {"overlap behind", overlap, 96, FORMAT, "tensor 1 'second'"},
    {"overlap before", overlap, 0, FORMAT, "tensor 0 'first'"},
    {"name twice", name_twice, 0, FORMAT, "tensor 1 'blk.0.w': the name stands twice, first as tensor 0"},
    {"name 0", name_length, 0, FORMAT, "tensor 0: byte 24: the name is empty"},
    {"name 65", name_length, 65, FORMAT, "a name of 65 bytes, at most 64"},
    {"name 10^6", name_length, 1000000, FORMAT, "a name of 1000000 bytes"},
    {"name NUL", name_nul, 0, FORMAT, "holds a NUL"},
    {"ragged 100", ragged, 100, FORMAT, "rows of 100 weights are not whole blocks of q4_k (256 weights)"},
    {"ragged 384", ragged, 384, FORMAT, "rows of 384 weights"},
    {"type 4", type, 4, UNSUPPORTED, "tensor 0 'a': byte 45: unsupported type 4"},
    {"type 5", type, 5, UNSUPPORTED, "unsupported type 5"},
    {"type 31", type, 31, UNSUPPORTED, "unsupported type 31"},
    {"type 33", type, 33, UNSUPPORTED, "unsupported type 33"},
    {"type 36", type, 36, UNSUPPORTED, "unsupported type 36"},
    {"type 38", type, 38, UNSUPPORTED, "unsupported type 38"},
    {"type 43", type, 43, UNSUPPORTED, "unsupported type 43"},
    {"type 200", type, 200, UNSUPPORTED, "unsupported type 200"},
    {"type max", type, UINT32_MAX, UNSUPPORTED, "unsupported type 4294967295"},
    {"last byte cut", cut_data, 1, FORMAT, "tensor 1 'norm'"},
    {"first tensor cut", cut_data, 100, FORMAT, "tensor 0 'blk.0.w'"},
    {"data gone", cut_data, 116, FORMAT, "is the download complete?"},
    {"split.no past count", split_no, 3, FORMAT, "key 0 'split.no': byte 44: shard number 3 (from 0) of 3"},
    {"split.no negative", split_wide, 0, FORMAT, "'split.no': byte 44: must be an integer and not negative"},
};

static long peak_kib(void) {
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return ru.ru_maxrss;
}

static void test_malformed_files_are_refused_by_name(void **state) {
    (void)state;
    temp_dir dir;
    temp_dir_make(&dir);
    for (size_t i = 0; i < sizeof g_bad / sizeof *g_bad; i++) {
        const bad_case *c = &g_bad[i];
        strbuf b = {0};
        mica_error err = {0};
        gguf_file *g = (gguf_file *)&b;
        c->build(&b, c->arg);
        const char *path = temp_dir_write(&dir, "malformed file.gguf", b.p ? b.p : "", b.n);
        mica_status st = gguf_open(&g, path, &err);
        if (st != c->want || g || !strstr(err.text, c->needle) || !strstr(err.text, "malformed file.gguf: "))
            print_error("case '%s': %s: %s\n", c->name, mica_status_name(st), err.text);
        CHECK(st == c->want && err.status == c->want && g == NULL);
        CHECK(strstr(err.text, c->needle) && strstr(err.text, "malformed file.gguf: "));
        CHECK(utf8_valid(err.text, strlen(err.text)) && !strchr(err.text, '\n'));
        // The same bytes from memory, in a block of their exact size: reading one byte more is an error under
        // ASan.
        char *exact = mem_alloc(b.n);
        if (b.n) memcpy(exact, b.p, b.n);
        CHECK(gguf_parse_memory(&g, &(slice){exact, b.n}, 1, NULL) == c->want && g == NULL);
        mem_free(exact);
        strbuf_fini(&b);
    }
    temp_dir_drop(&dir);
}

/* Files that are mostly holes: counts that the file's size allows, so only our own limits refuse them. */
static void check_sparse(const char *path, const strbuf *head, uint64_t size, mica_status want,
                         const char *needle) {
    mica_error err = {0};
    gguf_file *g = NULL;
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(head->p, 1, head->n, f) == head->n && fclose(f) == 0);
    CHECK(truncate(path, (off_t)size) == 0);
    mica_status st = gguf_open(&g, path, &err);
    if (st != want || (needle && !strstr(err.text, needle))) print_error("%s\n", err.text);
    CHECK(st == want && (!needle || strstr(err.text, needle)));
    gguf_close(g);
}

static void test_huge_counts_cost_little(void **state) {
    (void)state;
    temp_dir dir;
    temp_dir_make(&dir);
    strbuf b = {0};
    const char *path = temp_dir_at(&dir, "huge.gguf");
    long before = peak_kib();

    put_header(&b, 3, GGUF_TENSORS_MAX + 1, 0);
    check_sparse(path, &b, 1ull << 30, MICA_E_UNSUPPORTED, "131073 tensors, at most 131072");
    strbuf_clear(&b);
    put_header(&b, 3, 0, GGUF_KEYS_MAX + 1);
    check_sparse(path, &b, 1ull << 30, MICA_E_UNSUPPORTED, "65537 keys, at most 65536");
    strbuf_clear(&b);
    put_header(&b, 3, GGUF_TENSORS_MAX, 0); // all names empty: refused at the first
    check_sparse(path, &b, 1ull << 30, MICA_E_FORMAT, "tensor 0: byte 24: the name is empty");
    strbuf_clear(&b);
    array_str(&b, GGUF_STRINGS_MAX + 1);
    check_sparse(path, &b, 1ull << 30, MICA_E_UNSUPPORTED, "16777217 strings");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1); // one token of 2^31 bytes: a string like any other here
    put_array(&b, "tokenizer.ggml.tokens", GGUF_KIND_STR, 1);
    put_u64(&b, 1ull << 31);
    check_sparse(path, &b, b.n + (1ull << 31), MICA_OK, NULL);
    check_sparse(path, &b, b.n + (1ull << 31) - 1, MICA_E_FORMAT, "needs 2147483648 bytes");
    long after = peak_kib();
    print_message("peak memory grew by %ld KiB\n", after - before);
    CHECK(after - before < 64 * 1024);

    strbuf_clear(&b);
    put_header(&b, 3, 0, 1); // ten million empty strings
    put_array(&b, "tokenizer.ggml.tokens", GGUF_KIND_STR, 10000000);
    check_sparse(path, &b, b.n + 80000000, MICA_OK, NULL);
    strbuf_fini(&b);
    temp_dir_drop(&dir);
}

static void test_every_cut_of_a_good_file_is_refused(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g;
    mica_error err;
    put_small_model(&b);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    gguf_close(g);
    for (size_t n = 0; n < b.n; n++) {
        char *exact = mem_alloc(n);
        memcpy(exact, b.p, n);
        CHECK(gguf_parse_memory(&g, &(slice){exact, n}, 1, &err) == MICA_E_FORMAT);
        mem_free(exact);
    }
    strbuf_fini(&b);
}

/* Any byte may be wrong: then it opens, or is refused as one of two kinds; what opens stays readable within
 * its bytes. */
static void test_every_changed_byte_is_survived(void **state) {
    (void)state;
    static const uint8_t with[] = {0, 1, 0x7f, 0x80, 0xff};
    strbuf b = {0};
    size_t n_ok = 0, n_refused = 0;
    put_small_model(&b);
    for (size_t at = 0; at < b.n; at++)
        for (size_t k = 0; k < sizeof with; k++) {
            char was = b.p[at];
            gguf_file *g;
            b.p[at] = (char)with[k];
            mica_status st = gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, NULL);
            CHECK(st == MICA_OK || st == MICA_E_FORMAT || st == MICA_E_UNSUPPORTED);
            n_ok += st == MICA_OK;
            n_refused += st != MICA_OK;
            for (size_t i = 0; g && i < gguf_tensor_count(g); i++) {
                const gguf_tensor *t = gguf_tensor_at(g, i);
                CHECK((const char *)t->data >= b.p && (const char *)t->data + t->size_bytes <= b.p + b.n);
            }
            gguf_close(g);
            b.p[at] = was;
        }
    CHECK(n_ok > 0 && n_refused > 0);
    strbuf_fini(&b);
}

static void test_out_of_memory_at_any_allocation(void **state) {
    (void)state;
    strbuf b = {0};
    mica_error err;
    put_small_model(&b);
    int n = 0;
    for (;; n++) {
        gguf_file *g;
        mem_fail_after(n);
        mica_status st = gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err);
        mem_fail_after(-1);
        CHECK((st == MICA_OK) == (g != NULL));
        gguf_close(g);
        if (st == MICA_OK) break;
        CHECK(st == MICA_E_NOMEM && strstr(err.text, "out of memory"));
    }
    CHECK(n >= 5);
    strbuf_fini(&b);
}

static void test_directory_of_a_good_file(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g;
    mica_error err;
    for (uint32_t v = 2; v <= 3; v++) {
        strbuf_clear(&b);
        put_small_model(&b);
        memcpy(b.p + 4, &v, 4);
        CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
        CHECK(gguf_version(g) == v && gguf_tensor_count(g) == 2 && gguf_kv_count(g) == 2);
        const gguf_tensor *t = gguf_tensor_find(g, "blk.0.w");
        CHECK(t && t == gguf_tensor_at(g, 0) && t->type == GGUF_Q8_0 && t->n_dim == 2);
        CHECK(t->shape[0] == 1 && t->shape[1] == 1 && t->shape[2] == 2 && t->shape[3] == 32);
        CHECK(t->size_bytes == 68 && *(const uint8_t *)t->data == 0 && t->shard == 0);
        CHECK((const char *)t->data - b.p == (ptrdiff_t)t->off_bytes && t->off_bytes % 32 == 0);
        t = gguf_tensor_find(g, "norm");
        CHECK(t && t->shape[2] == 1 && t->shape[3] == 5 && t->size_bytes == 20 &&
              *(const uint8_t *)t->data == 96);
        CHECK(!gguf_tensor_find(g, "nor") && !gguf_tensor_find(g, "norm2") && !gguf_tensor_find(g, ""));
        gguf_close(g);
    }
    strbuf_fini(&b);
}

/* Every type: one row of two blocks has twice the bytes of a block, and four axes are turned. */
static void test_every_type_and_four_axes(void **state) {
    (void)state;
    int n_type = 0;
    for (uint32_t id = 0; id < GGUF_TYPE_N + 60; id++) {
        const gguf_type_info *info = gguf_type_get(id);
        if (!info) continue;
        strbuf b = {0};
        gguf_file *g;
        mica_error err;
        uint64_t size = 2ull * info->bytes * 3 * 5 * 7;
        put_header(&b, 3, 1, 0);
        put_tensor(&b, "t", 4, (uint64_t[]){2ull * info->block, 3, 5, 7}, id, 0);
        put_pad(&b, 32);
        put_zeros(&b, (size_t)size);
        CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
        const gguf_tensor *t = gguf_tensor_at(g, 0);
        CHECK(t->size_bytes == size && t->n_dim == 4 && t->type == (gguf_type)id);
        CHECK(t->shape[0] == 7 && t->shape[1] == 5 && t->shape[2] == 3 && t->shape[3] == 2ull * info->block);
        gguf_close(g);
        b.n--;
        CHECK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, NULL) == MICA_E_FORMAT);
        strbuf_fini(&b);
        n_type++;
    }
    CHECK(n_type == 35);
}

static void test_alignments(void **state) {
    (void)state;
    for (uint32_t align = 8; align <= 65536; align *= 2) {
        strbuf b = {0};
        gguf_file *g;
        mica_error err;
        put_header(&b, 3, 2, 1);
        put_kv_u32(&b, "general.alignment", align);
        put_vector(&b, "a", 1, 0);
        put_vector(&b, "b", 1, align);
        put_pad(&b, align);
        put_f32(&b, 1.5f);
        put_pad(&b, align);
        put_f32(&b, 2.5f); // the last one is not padded
        CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
        float x, y;
        memcpy(&x, gguf_tensor_find(g, "a")->data, 4);
        memcpy(&y, gguf_tensor_find(g, "b")->data, 4);
        CHECK(x == 1.5f && y == 2.5f && gguf_shard_at(g, 0)->data_off_bytes % align == 0);
        gguf_close(g);
        strbuf_fini(&b);
    }
}

static void test_names_at_their_limits(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g;
    mica_error err;
    name_length(&b, 64);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    CHECK(strlen(gguf_tensor_at(g, 0)->name) == 64 && gguf_tensor_find(g, gguf_tensor_at(g, 0)->name));
    gguf_close(g);
    strbuf_clear(&b);
    key_length_true(&b, 65535);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    CHECK(gguf_kv_key(g, 0).n == 65535 && gguf_find(g, b.p + 32)); // the kind's 0 bytes end b.p + 32
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_order_of_data_is_free(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g;
    mica_error err;
    put_header(&b, 3, 3, 0); // data in another order than the directory, with a gap
    put_vector(&b, "a", 8, 128);
    put_vector(&b, "b", 8, 0);
    put_vector(&b, "c", 8, 32);
    put_pad(&b, 32);
    put_zeros(&b, 160);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_files_without_a_model(void **state) {
    (void)state;
    strbuf b = {0};
    gguf_file *g;
    mica_error err;
    slice arch;
    put_header(&b, 3, 0, 0);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    CHECK(gguf_need_model(g, &arch, &err) == MICA_E_FORMAT &&
          strstr(err.text, "'general.architecture': is missing"));
    gguf_close(g);
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_kv_str(&b, "general.architecture", "llama");
    CHECK(b.n == 69);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    CHECK(gguf_need_model(g, &arch, &err) == MICA_E_FORMAT && strstr(err.text, "no tensors"));
    CHECK(!gguf_tensor_find(g, "a"));
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_shards_in_memory(void **state) {
    (void)state;
    strbuf a = {0}, b = {0};
    gguf_file *g;
    mica_error err;
    put_shard(&a, 0, 2, 3, "a", 0);
    put_shard(&b, 1, 2, 3, "b", 3);
    slice s[2] = {{a.p, a.n}, {b.p, b.n}};
    CHECK_OK(gguf_parse_memory(&g, s, 2, &err));
    CHECK(gguf_tensor_count(g) == 3 && gguf_shard_count(g) == 2 && gguf_tensor_find(g, "b.2")->shard == 1);
    CHECK(*(const float *)gguf_tensor_find(g, "b.2")->data == 1.0f && gguf_kv_count(g) == 4);
    gguf_close(g);
    CHECK(gguf_parse_memory(&g, s, 1, &err) == MICA_E_FORMAT &&
          strstr(err.text, "is shard 1 of 2, expected 1 of 1"));
    CHECK(gguf_parse_memory(&g, s + 1, 1, &err) == MICA_E_FORMAT && strstr(err.text, "is shard 2 of 2"));
    CHECK(gguf_parse_memory(&g, (slice[]){s[1], s[0]}, 2, &err) == MICA_E_FORMAT);
    strbuf_fini(&a);
    strbuf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_files_are_refused_by_name),
        cmocka_unit_test(test_huge_counts_cost_little),
        cmocka_unit_test(test_every_cut_of_a_good_file_is_refused),
        cmocka_unit_test(test_every_changed_byte_is_survived),
        cmocka_unit_test(test_out_of_memory_at_any_allocation),
        cmocka_unit_test(test_directory_of_a_good_file),
        cmocka_unit_test(test_every_type_and_four_axes),
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_names_at_their_limits),
        cmocka_unit_test(test_order_of_data_is_free),
        cmocka_unit_test(test_files_without_a_model),
        cmocka_unit_test(test_shards_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
