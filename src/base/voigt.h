/* SPDX-License-Identifier: MIT */
/* voigt.h: symmetric 3 × 3 matrices as six numbers, xx yy zz yz xz xy. */
#ifndef VOIGT_H
#define VOIGT_H

/* Of each element, row by row, its place among the six. */
static const int voigt_index[9] = {0, 5, 4, 5, 1, 3, 4, 3, 2};

/* The virial −V σ, eV, of a stress, eV/Å³. */
static inline void voigt_virial(double volume, const double stress[6], double virial[9])
{
    for (int k = 0; k < 9; k++) virial[k] = -volume * stress[voigt_index[k]];
}

#endif
