// SPDX-License-Identifier: MIT
// The pickle reader: values come out as Python put them in, nothing runs, and no input makes it use much memory or time.
#include "model/import/pickle.h"
#include "support.h"

// Pickle from a string literal, NUL bytes included.
#define PICKLE(literal) literal, sizeof(literal) - 1

static pickle *parse(const char *bytes, size_t length)
{
    pickle *p = NULL;
    char *copy = malloc(length); // exactly so many bytes, so that a sanitizer sees a read beyond them
    memcpy(copy, bytes, length);
    assert_ok(pickle_parse(copy, length, "x", &p));
    free(copy); // values do not point into the input
    return p;
}

static void expect_refusal(const char *bytes, size_t length, mlff_status expected, const char *part)
{
    pickle *p = NULL;
    int64_t held = base_allocated_bytes();
    mlff_status status = pickle_parse(bytes, length, "file.pkl", &p);
    if (status != expected || !strstr(mlff_last_error(), part) || strncmp(mlff_last_error(), "file.pkl: ", 10) != 0)
        fail_msg("gives %s \"%s\", expected %s with \"%s\"", mlff_status_name(status), mlff_last_error(),
                 mlff_status_name(expected), part);
    assert_null(p);
    assert_int_equal(base_allocated_bytes(), held);
}

static void numbers_and_texts(void **state)
{
    (void)state;
    // [0x05, 0x0102, -2, 2**40, -(2**40), -1, 0, 2.5, 'ä', None, True, b'\0x']
    pickle *p =
        parse(PICKLE("\x80\x02](K\x05M\x02\x01J\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01\x8a\x06\0\0\0\0\0\xff\x8a\x01\xff\x8a\0"
                     "G\x40\x04\0\0\0\0\0\0X\x02\0\0\0\xc3\xa4N\x88"
                     "C\x02\0xe."));
    const pickle_value *list = pickle_root(p);
    const int64_t expected[] = {5, 0x102, -2, INT64_C(1) << 40, -(INT64_C(1) << 40), -1, 0};
    assert_int_equal(list->kind, PICKLE_LIST);
    assert_int_equal(list->n, 12);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(list->items[i]->kind, PICKLE_INTEGER);
        assert_int_equal(list->items[i]->integer, expected[i]);
    }
    assert_true(list->items[7]->kind == PICKLE_REAL && list->items[7]->real == 2.5);
    assert_string_equal(pickle_text(list->items[8], "none"), "ä");
    assert_string_equal(pickle_text(list->items[9], "none"), "none");
    assert_string_equal(pickle_class(list->items[9]), "None");
    assert_true(list->items[10]->kind == PICKLE_BOOL && list->items[10]->integer == 1);
    assert_true(list->items[11]->kind == PICKLE_BYTES && list->items[11]->n == 2);
    pickle_destroy(p);
}

static void objects_are_their_names(void **state)
{
    (void)state;
    // os.system("false") as REDUCE, given a state by BUILD, in an OrderedDict under "key"
    pickle *p =
        parse(PICKLE("\x80\x02"
                     "ccollections\nOrderedDict\n)RX\x03\0\0\0keycos\nsystem\nX\x05\0\0\0false\x85R}X\x01\0\0\0aK\x07sbs."));
    const pickle_value *object = pickle_get(pickle_root(p), "key");
    assert_string_equal(pickle_class(object), "os.system");
    assert_true(pickle_is(object, "os.system") && !pickle_is(object, "os.syste"));
    assert_string_equal(object->items[1]->items[0]->text, "false");
    assert_int_equal(pickle_get(pickle_state(object), "a")->integer, 7);
    assert_null(pickle_get(pickle_root(p), "kex"));
    assert_null(pickle_get(object, "a")); // an object is no dictionary
    assert_null(pickle_get(NULL, "a"));
    assert_null(pickle_state(NULL));
    assert_string_equal(pickle_class(NULL), "missing");
    pickle_destroy(p);
}

static void the_last_of_equal_keys_counts(void **state)
{
    (void)state;
    pickle *p = parse(PICKLE("}(X\x01\0\0\0aK\1X\x01\0\0\0aK\2u."));
    assert_int_equal(pickle_get(pickle_root(p), "a")->integer, 2);
    pickle_destroy(p);
    p = parse(PICKLE("ccollections\nOrderedDict\n]]X\x01\0\0\0aaK\3aa\x85R.")); // OrderedDict([['a', 3]])
    assert_int_equal(pickle_get(pickle_root(p), "a")->integer, 3);
    pickle_destroy(p);
}

static void a_list_may_hold_itself(void **state)
{
    (void)state;
    pickle *p = parse(PICKLE("]q\0h\0a."));
    assert_ptr_equal(pickle_root(p)->items[0], pickle_root(p));
    pickle_destroy(p);
    p = parse(PICKLE("]\x94h\0a.")); // the same with protocol 4's MEMOIZE
    assert_ptr_equal(pickle_root(p)->items[0], pickle_root(p));
    pickle_destroy(p);
}

static void empty_containers(void **state)
{
    (void)state;
    pickle *p = parse(PICKLE("(t."));
    assert_true(pickle_root(p)->kind == PICKLE_TUPLE && pickle_root(p)->n == 0);
    pickle_destroy(p);
    p = parse(PICKLE("](e."));
    assert_true(pickle_root(p)->kind == PICKLE_LIST && pickle_root(p)->n == 0);
    pickle_destroy(p);
}

static void broken_pickles_are_refused(void **state)
{
    (void)state;
    expect_refusal(PICKLE(""), MLFF_ERR_FORMAT, "truncated");
    expect_refusal(PICKLE("."), MLFF_ERR_FORMAT, "more values than the stack has");
    expect_refusal(PICKLE("N"), MLFF_ERR_FORMAT, "truncated");
    expect_refusal(PICKLE("X\xff\xff\xff\x7fz."), MLFF_ERR_FORMAT, "truncated (at byte 0");
    expect_refusal(PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xffz."), MLFF_ERR_FORMAT, "truncated");
    expect_refusal(PICKLE("cos"), MLFF_ERR_FORMAT, "class name");
    expect_refusal(PICKLE("X\x01\0\0\0\xff."), MLFF_ERR_FORMAT, "UTF-8");
    expect_refusal(PICKLE("X\x01\0\0\0\0."), MLFF_ERR_FORMAT, "UTF-8");
    expect_refusal(PICKLE("N\xf0."), MLFF_ERR_UNSUPPORTED, "opcode 0xf0 at byte 1");
    expect_refusal(PICKLE("cos\nsystem\n(S'true'\ntR."), MLFF_ERR_UNSUPPORTED, "opcode 0x53");
    expect_refusal(PICKLE("\x80\x06N."), MLFF_ERR_UNSUPPORTED, "protocol 6");
    expect_refusal(PICKLE("h\x05."), MLFF_ERR_FORMAT, "memo");
    expect_refusal(PICKLE("Nr\xff\xff\xff\xff."), MLFF_ERR_FORMAT, "memo");
    expect_refusal(PICKLE("t."), MLFF_ERR_FORMAT, "mark");
    expect_refusal(PICKLE("N(a."), MLFF_ERR_FORMAT, "more values"); // APPEND may not reach below the mark
    expect_refusal(PICKLE("}(Nu."), MLFF_ERR_FORMAT, "a key without a value");
    expect_refusal(PICKLE("N(Ne."), MLFF_ERR_FORMAT, "holds none");
    expect_refusal(PICKLE("(Ne."), MLFF_ERR_FORMAT, "without a container");
    expect_refusal(PICKLE("](NNu."), MLFF_ERR_FORMAT, "holds none");
    expect_refusal(PICKLE("N)R."), MLFF_ERR_FORMAT, "not a class");
    expect_refusal(PICKLE("ca\nb\nNR."), MLFF_ERR_FORMAT, "not a class");
    expect_refusal(PICKLE("N}b."), MLFF_ERR_FORMAT, "not an object");
    expect_refusal(PICKLE("NN\x93."), MLFF_ERR_FORMAT, "not a text");
    expect_refusal(PICKLE("\x8a\x09\1\1\1\1\1\1\1\1\1."), MLFF_ERR_FORMAT, "64 bits");
    expect_refusal(PICKLE("ccollections\nOrderedDict\nN\x85R."), MLFF_ERR_FORMAT, "not a list");
    expect_refusal(PICKLE("ccollections\nOrderedDict\n]Na\x85R."), MLFF_ERR_FORMAT, "not a pair");
}

// Sixty doublings of a pair: 2^60 leaves if it were unfolded, 61 values as the graph it is.
static void doubling_stays_a_graph(void **state)
{
    (void)state;
    char bytes[1000] = "]q";
    size_t n = 3;
    for (int i = 0; i < 60; i++) {
        bytes[n++] = 'h', bytes[n++] = (char)i, bytes[n++] = 'h', bytes[n++] = (char)i, bytes[n++] = '\x86';
        bytes[n++] = 'q', bytes[n++] = (char)(i + 1);
    }
    bytes[n++] = '.';
    int64_t held = base_allocated_bytes();
    pickle *p = parse(bytes, n);
    assert_ptr_equal(pickle_root(p)->items[0], pickle_root(p)->items[1]);
    assert_true(base_allocated_bytes() - held < 100000);
    pickle_destroy(p);
}

// A million bytes of each opcode that makes something: an error or a value, within the budget, and soon.
static void floods_are_bounded(void **state)
{
    (void)state;
    enum { N = 3000000 };
    static const char *const units[] = {"(", "]", "}", "N", "\x8f", "]a", "N\x85", "(t", "}}", "K\1", "]q\0", "Nq\1h\1"};
    char *bytes = malloc(N + 16);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t unit = strlen(units[u]);
        if (units[u][unit - 1] == 'q') unit++; // its argument is the 0 at the end
        size_t n = 0;
        bytes[n++] = ']';
        while (n + unit <= N) memcpy(bytes + n, units[u], unit), n += unit;
        bytes[n++] = '.';
        pickle *p = NULL;
        int64_t held = base_allocated_bytes();
        if (pickle_parse(bytes, n, "x", &p) == MLFF_OK) {
            assert_true(base_allocated_bytes() - held < 100 << 20);
            pickle_destroy(p);
        }
        assert_int_equal(base_allocated_bytes(), held);
    }
    free(bytes);
}

// A list of 5000 pairs, turned into an OrderedDict again and again: two bytes a copy of 80 kB.
static void copies_run_into_the_budget(void **state)
{
    (void)state;
    enum { PAIRS = 5000, COPIES = 100000 };
    char *bytes = malloc(PAIRS * 4 + COPIES * 8 + 100), *at = bytes;
    at += sprintf(at, "ccollections\nOrderedDict\nq%c](", 1);
    for (int i = 0; i < PAIRS; i++) memcpy(at, "NN\x86", 3), at += 3;
    memcpy(at, "e\x85q\2", 4), at += 4;
    for (int i = 0; i < COPIES; i++) memcpy(at, "h\1h\2R", 5), at += 5;
    *at++ = '.';
    expect_refusal(bytes, (size_t)(at - bytes), MLFF_ERR_LIMIT, "unfolds to more than 64 MB");
    free(bytes);
}

static void every_truncation_is_noticed(void **state)
{
    (void)state;
    char *bytes;
    size_t length;
    assert_ok(base_read_file("tests/fuzz/corpus/pickle/model", 1 << 20, &bytes, &length));
    pickle_destroy(parse(bytes, length));
    int64_t held = base_allocated_bytes();
    for (size_t n = 0; n < length; n++) {
        pickle *p = NULL;
        char *copy = malloc(n + 1);
        memcpy(copy, bytes, n);
        if (pickle_parse(copy, n, "x", &p) == MLFF_OK)
            fail_msg("the first %zu of %zu bytes are taken for a whole pickle", n, length);
        free(copy);
    }
    assert_int_equal(base_allocated_bytes(), held);
    base_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_texts),
        cmocka_unit_test(objects_are_their_names),
        cmocka_unit_test(the_last_of_equal_keys_counts),
        cmocka_unit_test(a_list_may_hold_itself),
        cmocka_unit_test(empty_containers),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(doubling_stays_a_graph),
        cmocka_unit_test(floods_are_bounded),
        cmocka_unit_test(copies_run_into_the_budget),
        cmocka_unit_test(every_truncation_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
