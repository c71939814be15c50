// SPDX-License-Identifier: MIT
// test_numbers.c: decimal numbers are read as strtod reads them, bit for bit, and written so that they read back; texts of errors hold
// nothing that a terminal could obey.
#include <cjson/cJSON.h>
#include <inttypes.h>

#include "atoms/atoms.h"
#include "support.h"

enum { N_RANDOM = 300000 };

static uint64_t bits(double value)
{
    uint64_t pattern;
    memcpy(&pattern, &value, sizeof pattern);
    return pattern;
}

static void check_as_strtod(const char *text)
{
    const char *cursor = text;
    double value = 0.0, expected = strtod(text, NULL);
    if (!atoms_parse_number(&cursor, &value) || *cursor) fail_msg("'%s' is not read", text);
    if (bits(value) != bits(expected)) fail_msg("'%s' is read as %.17g, strtod has %.17g", text, value, expected);
}

// Digits, a point anywhere and now and then an exponent: all branches of the parser, most of all its 128-bit division.
static void parses_as_strtod(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < N_RANDOM; k++) {
        char text[64];
        int length = 0, n_digits = 1 + (int)(21 * base_random_uniform(1, 1, k)),
            point = (int)((n_digits + 1) * base_random_uniform(1, 2, k));
        if (base_random_uniform(1, 3, k) < 0.5) text[length++] = '-';
        for (int d = 0; d < n_digits; d++) {
            if (d == point) text[length++] = '.';
            text[length++] = (char)('0' + (int)(10 * base_random_uniform(1, 4, 32 * k + (uint64_t)d)));
        }
        text[length] = 0;
        if (base_random_uniform(1, 5, k) < 0.3) sprintf(text + length, "e%d", (int)(700 * base_random_uniform(1, 6, k)) - 350);
        check_as_strtod(text);
    }
}

// Halfway cases, limits, and what the fast path must leave to strtod.
static void parses_hard_cases(void **state)
{
    (void)state;
    static const char *const texts[] = {"0",
                                        "-0",
                                        "0.0",
                                        ".5",
                                        "5.",
                                        "+1",
                                        "9007199254740992",
                                        "9007199254740993",
                                        "9007199254740993.0",
                                        "9007199254740995",
                                        "90071992547409930000000e-7",
                                        "1e22",
                                        "1e23",
                                        "1e-22",
                                        "1e-23",
                                        "1.7976931348623157e308",
                                        "1e400",
                                        "-1e400",
                                        "4.9e-324",
                                        "2e-324",
                                        "1e-400",
                                        "0.1000000000000000055511151231257827021181583404541015625",
                                        "18446744073709551615",
                                        "9999999999999999999",
                                        "0.9999999999999999999",
                                        "1.0000000000000000001",
                                        "0000000000000000000000000000001.5",
                                        "nan",
                                        "inf",
                                        "-infinity",
                                        "1E5",
                                        "1e+5",
                                        "123456789012345.6789"};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) check_as_strtod(texts[k]);

    const char *fortran = "-1.5D-3";
    double value;
    assert_true(atoms_parse_number(&fortran, &value));
    assert_true(value == -1.5e-3);
    static const char *const none[] = {"",       "-",     ".",   "e5",  "1e",  "1e+",   "0x10", "0x1p3",
                                       "nan(1)", "1.2.3", "1,5", "--1", "abc", "1_000", "5a"};
    for (size_t k = 0; k < sizeof none / sizeof none[0]; k++) {
        const char *cursor = none[k];
        if (atoms_parse_number(&cursor, &value)) fail_msg("'%s' is read as %g", none[k], value);
        assert_ptr_equal(cursor, none[k]);
    }
}

static void formats_exactly(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < N_RANDOM; k++) {
        uint64_t pattern =
            (uint64_t)(base_random_uniform(2, 1, k) * 0x1p53) << 11 ^ (uint64_t)(base_random_uniform(2, 2, k) * 0x1p53);
        double value;
        memcpy(&value, &pattern, sizeof value);
        if (!isfinite(value)) continue;
        // Any double in turn with ones of the sizes of coordinates and with short decimals.
        if (k % 3 == 1) value = (base_random_uniform(2, 3, k) - 0.5) * pow(10.0, (double)(k % 20) - 11.0);
        if (k % 3 == 2) value = round(1e6 * (base_random_uniform(2, 3, k) - 0.5)) / 1e4;
        char text[ATOMS_NUMBER_BYTES];
        int length = atoms_format_number(value, text);
        assert_int_equal(length, (int)strlen(text));
        if (bits(strtod(text, NULL)) != bits(value))
            fail_msg("%.17g (%016" PRIx64 ") is written as %s", value, bits(value), text);
    }
}

static void formats_shortly(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.0, "0.0"},
                 {-0.0, "-0.0"},
                 {1.0, "1.0"},
                 {-0.1, "-0.1"},
                 {25.25, "25.25"},
                 {0.3, "0.3"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {0.001, "0.001"},
                 {12345678.25, "12345678.25"},
                 {99999999.5, "99999999.5"},
                 {1e-5, "1e-05"},
                 {0.00012, "0.00012"},
                 {-1.5e-4, "-0.00015"},
                 {9.9999999999999991e-5, "9.999999999999999e-05"},
                 {1.2345678901234566e-9, "1.2345678901234566e-09"},
                 {-2.5e-9, "-2.5e-09"},
                 {1e8, "100000000"},
                 {1e300, "1e+300"},
                 {5e-324, "4.94065645841247e-324"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[ATOMS_NUMBER_BYTES];
        atoms_format_number(cases[k].value, text);
        assert_string_equal(text, cases[k].text);
    }
}

static void parses_integers(void **state)
{
    (void)state;
    int64_t value = 7;
    const char *good = "-12 x", *large = "99999999999999999999", *fraction = "1.0", *word = "12a";
    assert_true(atoms_parse_integer(&good, &value));
    assert_int_equal(value, -12);
    assert_false(atoms_parse_integer(&large, &value));
    assert_false(atoms_parse_integer(&fraction, &value));
    assert_false(atoms_parse_integer(&word, &value));
}

static void cleans_texts(void **state)
{
    (void)state;
    // Escapes, DEL, a C1 control as UTF-8 and as a byte, an overlong form, a surrogate, a sequence that is cut off.
    char text[] = "a\x1b[2J\x7f|\xc2\x9b|\x9b|\xc0\x9b|\xed\xa0\x80|\u00c5\u2026\U0001F600\n|\xe2\x80", again[sizeof text];
    memcpy(again, text, sizeof text);
    base_clean(text, '?', false);
    assert_string_equal(text, "a?[2J?|??|?|??|???|\u00c5\u2026\U0001F600?|??");
    base_clean(again, ' ', true);
    assert_string_equal(again, "a [2J |  | |  |   |\u00c5\u2026\U0001F600\n|  ");
    mlff_fail(MLFF_ERR_FORMAT, "%s: no\nmodel", "\x9b\x33m.xyz");
    assert_string_equal(mlff_last_error(), " 3m.xyz: no model");
}

static void cuts_at_whole_characters(void **state)
{
    (void)state;
    const char *text = "a\u00c5\u2026\U0001F600"; // of 1, 2, 3 and 4 bytes
    static const int whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (int most = 0; most < 12; most++) assert_int_equal(base_whole_length(text, (size_t)most), whole[most]);
    assert_int_equal(base_whole_length("a\u00c5\xe2\x80", 100), 3);
    assert_int_equal(base_whole_length("", 100), 0);
}

// The same characters as a string of JSON, and back through cJSON.
static void escapes_json(void **state)
{
    (void)state;
    const char *text = "\"\\\x01\n\x7f|\xc2\x9b|\x9b|\xed\xa0|\u00c5\u2026\U0001F600";
    char json[128] = "\"", escaped[8];
    while (*text) {
        text += base_json_character(text, escaped);
        strcat(json, escaped);
    }
    strcat(json, "\"");
    assert_string_equal(json, "\"\\\"\\\\\\u0001\\u000a\\u007f|\\u009b|\\ufffd|\\ufffd\\ufffd|\u00c5\u2026\U0001F600\"");
    cJSON *parsed = cJSON_Parse(json);
    assert_non_null(parsed);
    assert_string_equal(cJSON_GetStringValue(parsed), "\"\\\x01\n\x7f|\xc2\x9b|\ufffd|\ufffd\ufffd|\u00c5\u2026\U0001F600");
    cJSON_Delete(parsed);

    static const struct {
        const char *text;
        bool has;
    } zeros[] = {{"", false},           {"\\u0000", true},          {"a\\u0000", true}, {"\\\\u0000", false},
                 {"\\\\\\u0000", true}, {"\\\\u0000\\u0000", true}, {"\\u000", false},  {"u0000", false}};
    for (size_t k = 0; k < sizeof zeros / sizeof *zeros; k++)
        assert_int_equal(base_json_has_zero(zeros[k].text, strlen(zeros[k].text)), zeros[k].has);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_at_whole_characters),
        cmocka_unit_test(parses_as_strtod),
        cmocka_unit_test(parses_hard_cases),
        cmocka_unit_test(formats_exactly),
        cmocka_unit_test(formats_shortly),
        cmocka_unit_test(parses_integers),
        cmocka_unit_test(cleans_texts),
        cmocka_unit_test(escapes_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
