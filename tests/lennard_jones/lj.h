/* SPDX-License-Identifier: MIT */
/* lj.h: parameters of the Lennard-Jones model, and its pair potential; shared by CPU and GPU. */
#ifndef LJ_H
#define LJ_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lj_parameters {
    double four_epsilon, sigma2; /* eV, Å² */
    double cutoff;               /* Å */
    double shift, slope;         /* V and V' at the cutoff, of the potential without them */
} lj_parameters;

#ifdef __CUDACC__
#define LJ_INLINE static __device__ __host__ __forceinline__
#else
#define LJ_INLINE static inline
#endif

/* V(r) in eV, and V'(r)/r in eV/Å². Operations: s² 2, s⁶ 2, s¹² 1, V'/r 7, V 6. */
enum { LJ_PAIR_FLOPS = 18 };
LJ_INLINE double lj_pair(const lj_parameters *p, double r2, double r, double *derivative_by_r)
{
    const double inverse = 1.0 / r2, s2 = p->sigma2 * inverse, s6 = s2 * s2 * s2, s12 = s6 * s6;
    *derivative_by_r = p->four_epsilon * (6.0 * s6 - 12.0 * s12) * inverse - p->slope / r;
    return p->four_epsilon * (s12 - s6) - p->shift - (r - p->cutoff) * p->slope;
}

#ifdef __cplusplus
}
#endif
#endif
