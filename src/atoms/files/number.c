// SPDX-License-Identifier: MIT
// number.c: decimal numbers as text, both ways exact, many times faster than strtod and printf.
//
// Reading: the digits give m and the point k with value m / 10^k. Up to 2^53 one division is exact (Clinger 1990);
// beyond, a 128-bit quotient has at least 54 bits, and with "is there a remainder" it rounds as the true quotient does.
// All else (long numbers, large exponents) goes to strtod.
// Writing: m is the nearest integer to value × 10^k, formed exactly in 128 bits, for 15, 16 and then 17 digits,
// until reading m / 10^k gives the value back. All else goes to printf.
#include <math.h>
#include <pthread.h>
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

// m / 10^decimals, correctly rounded; m > 2^53, decimals <= MAX_DECIMALS.
static double divide(uint64_t m, int decimals)
{
    uint128 numerator = (uint128)m << 64;
    uint64_t divisor = integer_power[decimals];
    uint128 quotient = numerator / divisor; // > 2^(53 + 64) / 2^63.2: at least 54 bits
    bool inexact = quotient * divisor != numerator;

    int bits = quotient >> 64 ? 128 - __builtin_clzll((uint64_t)(quotient >> 64)) : 64 - __builtin_clzll((uint64_t)quotient);
    int drop = bits - 53; // >= 1
    uint64_t kept = (uint64_t)(quotient >> drop);
    uint128 rest = quotient & (((uint128)1 << drop) - 1), half = (uint128)1 << (drop - 1);
    if (rest > half || (rest == half && (inexact || (kept & 1)))) kept++;
    return ldexp((double)kept, drop - 64);
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

bool atoms_parse_number(const char **cursor, double *value_out)
{
    const char *text = *cursor;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+') text++;

    uint64_t m = 0;
    int n_digits = 0, decimals = 0; // digits that count, that is without leading zeros
    bool any = false;
    for (; *text >= '0' && *text <= '9'; text++, any = true) {
        m = 10 * m + (uint64_t)(*text - '0');
        n_digits += m != 0;
        if (n_digits > 19) goto slow;
    }
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9'; text++, any = true) {
            m = 10 * m + (uint64_t)(*text - '0');
            n_digits += m != 0;
            decimals++;
            if (n_digits > 19 || decimals > 400) goto slow;
        }
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
    else if (m > (uint64_t)1 << 53 && decimals >= 0 && decimals <= MAX_DECIMALS)
        value = divide(m, decimals);
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

// round(|value| × 10^decimals), exact for 2^-11 < |value| < 2^32 and decimals <= MAX_DECIMALS.
static uint64_t scale(double value, int decimals)
{
    int exponent;
    double fraction = frexp(fabs(value), &exponent); // in [0.5, 1)
    uint64_t mantissa = (uint64_t)ldexp(fraction, 53);
    int shift = 53 - exponent;
    uint128 product = (uint128)mantissa * integer_power[decimals];
    return (uint64_t)((product + ((uint128)1 << (shift - 1))) >> shift);
}

// m / 10^decimals with its point and without trailing zeros.
static int print_decimals(bool negative, uint64_t m, int decimals, char *text)
{
    while (decimals > 1 && m % 10 == 0) {
        m /= 10;
        decimals--;
    }
    char reversed[24];
    int n = 0, length = 0;
    do {
        if (n == decimals && decimals > 0) reversed[n++] = '.';
        reversed[n++] = (char)('0' + m % 10);
        m /= 10;
    } while (m > 0 || n <= decimals);
    if (negative) text[length++] = '-';
    while (n > 0) text[length++] = reversed[--n];
    text[length] = 0;
    return length;
}

int atoms_format_number(double value, char text[ATOMS_NUMBER_BYTES])
{
    double size = fabs(value);
    if (size == 0.0) return snprintf(text, ATOMS_NUMBER_BYTES, signbit(value) ? "-0.0" : "0.0");
    if (size >= 1e-3 && size < 1e8) {
        int before = -2; // digits before the point; negative: zeros after it
        for (double bound = 1e-2; size >= bound; bound *= 10.0) before++;
        for (int n_digits = 15; n_digits <= 17; n_digits++) {
            int decimals = n_digits - before;
            if (decimals > MAX_DECIMALS) decimals = MAX_DECIMALS;
            uint64_t m = scale(value, decimals);
            double back = m > (uint64_t)1 << 53 ? divide(m, decimals) : (double)m / power[decimals];
            if (back == size) return print_decimals(value < 0.0, m, decimals, text);
        }
    }
    int length = 0;
    for (int n_digits = 15; n_digits <= 17; n_digits++) {
        length = snprintf(text, ATOMS_NUMBER_BYTES, "%.*g", n_digits, value);
        if (n_digits < 17 && strtod(text, NULL) == value) break;
    }
    return length;
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t atoms_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale;
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
