// SPDX-License-Identifier: MIT
// SHA-256 against the examples of FIPS 180-4 and, over every length up to two blocks, against Python's hashlib;
// the two forms of the compression against each other.
#include "support.h"

#include "base/sha256.h"

static void check(const char *text, size_t n, const char *expected)
{
    unsigned char digest[SHA256_BYTES];
    char got[SHA256_TEXT_BYTES];
    sha256_of(text, n, digest);
    sha256_text(digest, got);
    assert_string_equal(got, expected);
}

static void test_standard(void **state)
{
    (void)state;
    check("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

// Padding has a case for every length modulo 64, and pieces may end anywhere.
static void test_lengths(void **state)
{
    (void)state;
    unsigned char bytes[130], chain[SHA256_BYTES] = {0}, digest[SHA256_BYTES];
    char text[SHA256_TEXT_BYTES];
    for (int n = 0; n <= 130; n++) {
        sha256 hash;
        sha256_begin(&hash);
        for (int k = 0; k < n; k++) bytes[k] = (unsigned char)k;
        sha256_add(&hash, bytes, (size_t)n / 3);
        sha256_add(&hash, bytes + n / 3, (size_t)(n - n / 3));
        sha256_end(&hash, digest);
        for (int k = 0; k < SHA256_BYTES; k++) chain[k] ^= digest[k];
    }
    sha256_text(chain, text);
    // python3: XOR over n of hashlib.sha256(bytes(range(n))).digest()
    assert_string_equal(text, "bbbf09b185c39acd9a905b21502aeb2b4588f4bebe456eeff99ecbf1505401ba");
}

// Where the processor has no SHA instructions, both are the portable form.
static void test_forms_agree(void **state)
{
    (void)state;
    unsigned char blocks[7 * SHA256_BLOCK];
    for (int trial = 0; trial < 200; trial++) {
        uint32_t by_form[2][8];
        for (size_t k = 0; k < sizeof blocks; k++)
            blocks[k] = (unsigned char)(256 * base_random_uniform(1, (uint64_t)trial, (uint64_t)k));
        for (int k = 0; k < 8; k++)
            by_form[0][k] = by_form[1][k] = (uint32_t)(0x1p32 * base_random_uniform(2, (uint64_t)trial, (uint64_t)k));
        sha256_compress(by_form[0], blocks, (size_t)trial % 8);
        sha256_compress_portable(by_form[1], blocks, (size_t)trial % 8);
        assert_memory_equal(by_form[0], by_form[1], sizeof *by_form);
    }
}

// The longest piece that a block in progress takes whole, and pieces of many sizes over several blocks.
static void test_pieces(void **state)
{
    (void)state;
    unsigned char bytes[1000], whole[SHA256_BYTES], digest[SHA256_BYTES];
    for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (unsigned char)(37 * k);
    sha256_of(bytes, sizeof bytes, whole);
    for (size_t first = 0; first <= 130; first++)
        for (size_t piece = 1; piece <= 200; piece += 7) {
            sha256 hash;
            sha256_begin(&hash);
            sha256_add(&hash, bytes, first);
            for (size_t at = first; at < sizeof bytes; at += piece)
                sha256_add(&hash, bytes + at, piece < sizeof bytes - at ? piece : sizeof bytes - at);
            sha256_end(&hash, digest);
            assert_memory_equal(digest, whole, sizeof whole);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_standard), cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_forms_agree), cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
