// SPDX-License-Identifier: MIT
// number.c: decimal numbers as text, both ways exact, many times faster than strtod and printf.
//
// Reading: the digits give m and the point k with value m / 10^k. Up to 2^53 one division is exact (Clinger 1990); beyond, a quotient of 128 by
// 64 bits has at least 64, and with "is there a remainder" it rounds as the true quotient does. All else (long numbers, large exponents)
// goes to strtod.
// Writing: m is the nearest integer to value × 10^k, formed exactly in 128 bits, for 15, 16 and then 17 digits, until m / 10^k is nearer to the
// value than half the distance to the next number. All else goes to printf.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/atoms.h"

__extension__ typedef unsigned __int128 uint128;

enum { MAX_DECIMALS = 19 }; // 10^19 < 2^64 < 10^20

// clang-format off
static const uint64_t integer_power[MAX_DECIMALS + 1] = {
    1u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u, 10000000000u, 100000000000u,
    1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u, 10000000000000000u, 100000000000000000u,
    1000000000000000000u, 10000000000000000000u,
};
// clang-format on

// All of these are exact.
static const double power[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// 5^k, of which 5^27 is the last below 2^63.
enum { MAX_POWER = 27 };
// clang-format off
static const uint64_t power_of_5[MAX_POWER + 1] = {
    1u, 5u, 25u, 125u, 625u, 3125u, 15625u, 78125u, 390625u, 1953125u, 9765625u, 48828125u, 244140625u, 1220703125u, 6103515625u,
    30517578125u, 152587890625u, 762939453125u, 3814697265625u, 19073486328125u, 95367431640625u, 476837158203125u,
    2384185791015625u, 11920928955078125u, 59604644775390625u, 298023223876953125u, 1490116119384765625u, 7450580596923828125u,
};
// clang-format on

// m / 10^decimals, correctly rounded; m > 0, decimals from 0 to MAX_POWER.
static double divide(uint64_t m, int decimals)
{
    const int zeros = __builtin_clzll(m);
    const uint64_t divisor = power_of_5[decimals];
    const uint128 numerator = (uint128)(m << zeros) << 64, quotient = numerator / divisor; // at least 2^127 / 2^63: 64 bits
    const bool inexact = quotient * divisor != numerator;

    const int bits = quotient >> 64 ? 128 - __builtin_clzll((uint64_t)(quotient >> 64)) : 64;
    const int drop = bits - 53; // >= 11
    uint64_t kept = (uint64_t)(quotient >> drop);
    const uint128 rest = quotient & (((uint128)1 << drop) - 1), half = (uint128)1 << (drop - 1);
    if (rest > half || (rest == half && (inexact || (kept & 1)))) kept++;
    // kept × 2^exponent, of which neither factor is subnormal
    const uint64_t exponent_bits = (uint64_t)(1023 + drop - 64 - zeros - decimals) << 52;
    double power_of_2;
    memcpy(&power_of_2, &exponent_bits, sizeof power_of_2);
    return (double)kept * power_of_2;
}

static bool is_end(char c)
{
    return c == 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// Numbers strtod knows and we want, decimal ones and nan and inf, in any writing of them.
static bool parse_slowly(const char *start, const char **end_out, double *value_out)
{
    char copy[64], *text = copy, *long_copy = NULL, *end;
    size_t length = 0;
    while (!is_end(start[length])) length++;
    if (length >= sizeof copy && !(text = long_copy = malloc(length + 1))) return false;
    bool valid = length > 0;
    for (size_t i = 0; i < length; i++) {
        text[i] = start[i] == 'd' || start[i] == 'D' ? 'e' : start[i];          // Fortran's double precision exponent
        valid = valid && start[i] != 'x' && start[i] != 'X' && start[i] != '('; // no hexadecimals, no nan(…)
    }
    text[length] = 0;
    if (valid) {
        double value = strtod(text, &end);
        valid = end == text + length;
        if (valid) {
            *value_out = value;
            *end_out = start + length;
        }
    }
    free(long_copy);
    return valid;
}

// Adds the digits from text on to m; returns where they end.
static const char *take_digits(const char *text, uint64_t *m)
{
    uint64_t sum = *m;
    for (unsigned digit; (digit = (unsigned)(unsigned char)*text - '0') < 10; text++) sum = 10 * sum + digit;
    *m = sum;
    return text;
}

bool atoms_parse_number(const char **cursor, double *value_out)
{
    const char *text = *cursor;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+') text++;

    // Leading zeros do not count. m overflows silently where there are more than 19 other digits, which are read slowly.
    const char *first = text, *point;
    uint64_t m = 0;
    ptrdiff_t n_digits, decimals = 0;
    while (*text == '0') text++;
    const char *counted = text;
    text = take_digits(text, &m);
    bool any = text > first;
    n_digits = text - counted;
    if (*text == '.') {
        point = ++text;
        if (m == 0)
            while (*text == '0') text++;
        counted = text;
        text = take_digits(text, &m);
        n_digits += text - counted;
        decimals = text - point;
        any |= decimals > 0;
    }
    if (n_digits > 19 || decimals > 400) goto slow;
    if (!any) goto slow;
    if (*text == 'e' || *text == 'E') {
        text++;
        bool down = *text == '-';
        if (*text == '-' || *text == '+') text++;
        if (*text < '0' || *text > '9') return false;
        int exponent = 0;
        for (; *text >= '0' && *text <= '9'; text++) {
            exponent = 10 * exponent + (*text - '0');
            if (exponent > 1000) goto slow;
        }
        decimals += down ? exponent : -exponent;
    }
    if (!is_end(*text)) goto slow;

    double value;
    if (m == 0)
        value = 0.0;
    else if (m <= (uint64_t)1 << 53 && decimals >= 0 && decimals <= 22)
        value = (double)m / power[decimals];
    else if (m <= (uint64_t)1 << 53 && decimals < 0 && decimals >= -22)
        value = (double)m * power[-decimals];
    else if (decimals >= 0 && decimals <= MAX_POWER)
        value = divide(m, (int)decimals);
    else
        goto slow;
    *value_out = negative ? -value : value;
    *cursor = text;
    return true;
slow:
    return parse_slowly(*cursor, cursor, value_out);
}

bool atoms_parse_integer(const char **cursor, int64_t *value_out)
{
    const char *text = *cursor;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+') text++;
    if (*text < '0' || *text > '9') return false;
    int64_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (value > (INT64_MAX - 9) / 10) return false;
        value = 10 * value + (*text - '0');
    }
    if (!is_end(*text)) return false;
    *value_out = negative ? -value : value;
    *cursor = text;
    return true;
}

// How many digits there are before the point of a size from 1e-10 to 1e8, minus the zeros behind it: 2 of 12.5, 0 of 0.125, -1 of 0.0125.
static int digits_before(double size)
{
    static const double bounds[] = {1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1,
                                    1e0,   1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8};
    const int guess = (ilogb(size) * 1233) >> 12; // log10(2) = 1233/4096 - 1e-5; not below the number by more than 1
    return guess + 1 + (size >= bounds[guess + 1 + 10]);
}

// m = round(size × 10^decimals), whose product is exact in 128 bits, of a size from 1e-10 to 1e8; says whether m / 10^decimals reads back as
// size: its distance is less than half the distance to the next number, which is half as far below a power of two.
static bool scale(double size, int decimals, uint64_t *m_out)
{
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    const uint64_t mantissa = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    const int shift = 1075 - (int)(bits >> 52) - decimals; // size × 10^decimals = mantissa × 5^decimals / 2^shift
    const uint128 product = (uint128)mantissa * power_of_5[decimals];
    const uint64_t m = (uint64_t)((product + ((uint128)1 << (shift - 1))) >> shift);
    const uint128 scaled = (uint128)m << shift;
    const bool is_below = scaled < product;
    const uint128 distance = is_below ? product - scaled : scaled - product;
    *m_out = m;
    return distance << (is_below && mantissa == (uint64_t)1 << 52 ? 2 : 1) < power_of_5[decimals];
}

// Number of digits of m > 0.
static int count_digits(uint64_t m)
{
    const int guess = ((64 - __builtin_clzll(m)) * 1233) >> 12;
    return guess + (guess > MAX_DECIMALS || m >= integer_power[guess]);
}

// The n digits of m.
static void print_digits(uint64_t m, int n, char *text)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354"
        "55565758596061626364656667686970717273747576777879808182838485868788899091929394959697989900";
    char *at = text + n;
    for (; n >= 2; n -= 2, m /= 100) memcpy(at -= 2, pairs + 2 * (m % 100), 2);
    if (n == 1) at[-1] = (char)('0' + m);
}

// m / 10^decimals with its point and without trailing zeros.
static int print_decimals(bool negative, uint64_t m, int decimals, char *text)
{
    char *at = text;
    for (; decimals > 1 && m % 10 == 0; decimals--) m /= 10;
    const int n = count_digits(m), before = n - decimals;
    if (negative) *at++ = '-';
    if (before <= 0) {
        *at++ = '0';
        *at++ = '.';
        for (int k = before; k < 0; k++) *at++ = '0';
        print_digits(m, n, at);
        at += n;
    } else {
        print_digits(m, n, at + 1);
        for (int k = 0; k < before; k++) at[k] = at[k + 1];
        at[before] = '.';
        at += n + 1;
    }
    *at = 0;
    return (int)(at - text);
}

// m / 10^decimals as printf's %e without trailing zeros.
static int print_exponent(bool negative, uint64_t m, int decimals, char *text)
{
    char *at = text;
    for (; m % 10 == 0; decimals--) m /= 10;
    const int n = count_digits(m), exponent = decimals - (n - 1);
    if (negative) *at++ = '-';
    print_digits(m, n, at + 1);
    at[0] = at[1];
    at[1] = '.';
    at += n > 1 ? n + 1 : 1;
    memcpy(at, "e-0", 3);
    at += exponent < 10 ? 3 : 2;
    print_digits((uint64_t)exponent, exponent < 10 ? 1 : 2, at);
    at += exponent < 10 ? 1 : 2;
    *at = 0;
    return (int)(at - text);
}

int atoms_format_number(double value, char text[ATOMS_NUMBER_BYTES])
{
    const double size = fabs(value);
    if (size == 0.0) return snprintf(text, ATOMS_NUMBER_BYTES, signbit(value) ? "-0.0" : "0.0");
    if (size >= 1e-9 && size < 1e8) {
        const int before = digits_before(size);
        for (int n_digits = 15; n_digits <= 17; n_digits++) {
            uint64_t m;
            if (!scale(size, n_digits - before, &m)) continue;
            const bool below = before < -3 && m != integer_power[n_digits]; // 1e-4 itself is printed without an exponent
            return below ? print_exponent(value < 0.0, m, n_digits - before, text)
                         : print_decimals(value < 0.0, m, n_digits - before, text);
        }
    }
    int length = 0;
    for (int n_digits = 15; n_digits <= 17; n_digits++) {
        length = snprintf(text, ATOMS_NUMBER_BYTES, "%.*g", n_digits, value);
        if (n_digits < 17 && strtod(text, NULL) == value) break;
    }
    return length;
}

int atoms_count_words(const char *line, int limit)
{
    int n = 0;
    for (line = atoms_skip_blanks(line); *line && n < limit; line = atoms_skip_blanks(line)) {
        while (*line && !atoms_is_blank(*line)) line++;
        n++;
    }
    return n;
}
