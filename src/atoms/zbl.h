/* SPDX-License-Identifier: MIT */
/* zbl.h: repulsion of two nuclei at short distance.
 *
 * V(r) = V_ZBL(r) s(r / r_o), the universal potential of Ziegler, Biersack and Littmark (1985), switched off smoothly at r_o:
 *   V_ZBL = k e² Z₁ Z₂ / r · φ(r / a)      a = 0.8854 a₀ / (Z₁^0.23 + Z₂^0.23)
 *   φ(x)  = 0.18175 e^(−3.19980 x) + 0.50986 e^(−0.94229 x) + 0.28022 e^(−0.40290 x) + 0.02817 e^(−0.20162 x)
 *   s(t)  = (1 − t)³ (1 + 3t + 6t²), 0 from t = 1 on: value, slope and curvature are continuous there */
#ifndef ZBL_H
#define ZBL_H

#define ZBL_COULOMB 14.3996454784               /* e²/(4π ε₀), eV Å (CODATA 2018) */
#define ZBL_SCREENING (0.8854 * 0.529177210903) /* 0.8854 a₀, Å */

/* V in eV at distance r, and dV/dr in *slope_out, of atomic numbers z1 and z2; 0 from `end` = r_o on. Lengths in Å. */
double zbl_pair(int z1, int z2, double end, double r, double *slope_out);

#endif
