// SPDX-License-Identifier: MIT
// Purpose: structures in which two near atoms are pushed together: how near they get, and that fixed atoms stay.
#include "support.h"

#include "train/sampling/pressed_pairs.h"

enum { N = 200 };

static double distance(const mlff_system *system, int i, int j)
{
    const double *a = system->positions + 3 * (size_t)i, *b = system->positions + 3 * (size_t)j;
    return sqrt(pow(b[0] - a[0], 2) + pow(b[1] - a[1], 2) + pow(b[2] - a[2], 2));
}

// Ethanol at 0 K, of which the atoms of `fixed`, bits, are fixed: the two atoms are pushed to the ratio that is told, the others stay. Returns
// how many of N structures have a pressed pair.
static int press_ethanol(unsigned fixed)
{
    pressed_pairs pairs = {.closest = 0.55, .kelvin = 0, .seed = 3};
    mlff_system *ethanol;
    int n_pressed = 0;
    assert_ok(mlff_system_build("ethanol", 0, 0, &ethanol));
    assert_ok(mlff_system_add_fixed(ethanol));
    for (int i = 0; i < ethanol->n_atoms; i++) ethanol->fixed[i] = fixed >> i & 1;
    assert_ok(pressed_pairs_open(ethanol, &pairs));
    for (int k = 0; k < N; k++) {
        mlff_system *copy;
        sample_contact pressed;
        assert_ok(pressed_pairs_make(&pairs, ethanol, k, &copy, &pressed));
        n_pressed += pressed.a >= 0;
        for (int i = 0; i < ethanol->n_atoms; i++) {
            const bool stays = memcmp(copy->positions + 3 * i, ethanol->positions + 3 * i, 3 * sizeof(double)) == 0;
            assert_int_equal(stays, ethanol->fixed[i] || (i != pressed.a && i != pressed.b));
        }
        if (pressed.a >= 0) {
            const double before = distance(ethanol, pressed.a, pressed.b), after = distance(copy, pressed.a, pressed.b);
            assert_true(after < 0.951 * before && pressed.ratio > 0.55);
        }
        mlff_system_destroy(copy);
    }
    pressed_pairs_close(&pairs);
    mlff_system_destroy(ethanol);
    return n_pressed;
}

static void test_fixed_atoms_stay(void **state)
{
    (void)state;
    assert_int_equal(press_ethanol(0), N);
    assert_int_equal(press_ethanol(0x3), N);
    assert_int_equal(press_ethanol(0xff), N); // one atom moves
    assert_int_equal(press_ethanol(0x1ff), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fixed_atoms_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
