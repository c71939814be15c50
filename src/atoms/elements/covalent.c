// SPDX-License-Identifier: MIT
// covalent.c: covalent radii of Cordero et al. 2008, doi:10.1039/b801115j.
#include "atoms/elements/covalent.h"

#include <stddef.h>

static const float radii[] = {
    [1] = 0.31f, 0.28f, 1.28f, 0.96f, 0.84f, 0.76f, 0.71f, 0.66f, 0.57f, 0.58f, 1.66f, 1.41f, 1.21f, 1.11f, 1.07f, 1.05f,
    1.02f,       1.06f, 2.03f, 1.76f, 1.70f, 1.60f, 1.53f, 1.39f, 1.39f, 1.32f, 1.26f, 1.24f, 1.32f, 1.22f, 1.22f, 1.20f,
    1.19f,       1.20f, 1.20f, 1.16f, 2.20f, 1.95f, 1.90f, 1.75f, 1.64f, 1.54f, 1.47f, 1.46f, 1.42f, 1.39f, 1.45f, 1.44f,
    1.42f,       1.39f, 1.39f, 1.38f, 1.39f, 1.40f, 2.44f, 2.15f, 2.07f, 2.04f, 2.03f, 2.01f, 1.99f, 1.98f, 1.98f, 1.96f,
    1.94f,       1.92f, 1.92f, 1.89f, 1.90f, 1.87f, 1.87f, 1.75f, 1.70f, 1.62f, 1.51f, 1.44f, 1.41f, 1.36f, 1.36f, 1.32f,
    1.45f,       1.46f, 1.48f, 1.40f, 1.50f, 1.50f, 2.60f, 2.21f, 2.15f, 2.06f, 2.00f, 1.96f, 1.90f, 1.87f, 1.80f, 1.69f,
};

double covalent_radius(int atomic_number)
{
    const int n = (int)(sizeof radii / sizeof *radii);
    return atomic_number >= 1 && atomic_number < n ? (double)radii[atomic_number] : 1.5;
}

bool element_is_metal(int atomic_number)
{
    static const unsigned char others[] = {1, 2, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 32, 33, 34, 35, 36, 52, 53, 54, 85, 86};
    for (size_t k = 0; k < sizeof others; k++)
        if (atomic_number == others[k]) return false;
    return true;
}
