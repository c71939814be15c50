// SPDX-License-Identifier: MIT
// orb_edge.c: functions of an edge or of a system: envelope, edge inputs and their derivatives, ZBL repulsion, direct forces.
//
// Real spherical harmonics Y of the direction (x, y, z), each block l multiplied by √(2l + 1), in e3nn's order:
//   l = 0: 1    l = 1: x, y, z
//   l = 2: q0 = √3 xz, q1 = √3 xy, q2 = y² - (x² + z²)/2, q3 = √3 yz, q4 = √3/2 (z² - x²)
//   l = 3: √(5/6)(q0 z + q4 x), √5 q0 y, √(3/8)(4y² - x² - z²) x, y (2y² - 3x² - 3z²)/2, √(3/8)(4y² - x² - z²) z, √5 q4 y,
//          √(5/6)(q4 z - q0 x)
#include <math.h>
#include <string.h>

#include "orb_graph.h"

static const double sqrt3 = 1.7320508075688772, sqrt5 = 2.23606797749979, sqrt7 = 2.6457513110645907,
                    sqrt5_6 = 0.9128709291752769, sqrt3_8 = 0.6123724356957945;

double orb_envelope(int power, double d, double end, double *slope)
{
    const double p = power, x = d / end, a = 0.5 * (p + 1.0) * (p + 2.0), b = p * (p + 2.0), c = 0.5 * p * (p + 1.0);
    *slope = 0;
    if (!(d < end)) return 0;
    double below = 1; // x^(p-1)
    for (int k = 1; k < power; k++) below *= x;
    *slope = below * (-a * p + x * (b * (p + 1.0) - x * c * (p + 2.0))) / end;
    return 1.0 - below * x * (a - x * (b - x * c));
}

// ---- edge inputs ------------------------------------------------------------------------------------------------------

static void harmonics(const double u[3], double Y[ORB_HARMONICS])
{
    const double x = u[0], y = u[1], z = u[2], q0 = sqrt3 * x * z, q4 = 0.5 * sqrt3 * (z * z - x * x);
    const double r = 4.0 * y * y - x * x - z * z;
    Y[0] = 1;
    for (int c = 0; c < 3; c++) Y[1 + c] = sqrt3 * u[c];
    Y[4] = sqrt5 * q0;
    Y[5] = sqrt5 * sqrt3 * x * y;
    Y[6] = sqrt5 * (y * y - 0.5 * (x * x + z * z));
    Y[7] = sqrt5 * sqrt3 * y * z;
    Y[8] = sqrt5 * q4;
    Y[9] = sqrt7 * sqrt5_6 * (q0 * z + q4 * x);
    Y[10] = sqrt7 * sqrt5 * q0 * y;
    Y[11] = sqrt7 * sqrt3_8 * r * x;
    Y[12] = sqrt7 * 0.5 * y * (2.0 * y * y - 3.0 * x * x - 3.0 * z * z);
    Y[13] = sqrt7 * sqrt3_8 * r * z;
    Y[14] = sqrt7 * sqrt5 * q4 * y;
    Y[15] = sqrt7 * sqrt5_6 * (q4 * z - q0 * x);
}

// g = Σ b_k dY_k/d(x, y, z) of the polynomials above.
static void harmonics_backward(const double u[3], const double b[ORB_HARMONICS], double g[3])
{
    const double x = u[0], y = u[1], z = u[2], q0 = sqrt3 * x * z, q4 = 0.5 * sqrt3 * (z * z - x * x);
    const double r = 4.0 * y * y - x * x - z * z, q0x = sqrt3 * z, q0z = sqrt3 * x, q4x = -sqrt3 * x, q4z = sqrt3 * z;
    const double s5 = sqrt5, s15 = sqrt5 * sqrt3, s7a = sqrt7 * sqrt5_6, s7b = sqrt7 * sqrt5, s7c = sqrt7 * sqrt3_8;
    g[0] = sqrt3 * b[1] + s5 * q0x * b[4] + s15 * y * b[5] - s5 * x * b[6] + s5 * q4x * b[8] +
           s7a * (q0x * z + q4x * x + q4) * b[9] + s7b * q0x * y * b[10] + s7c * (r - 2.0 * x * x) * b[11] -
           sqrt7 * 3.0 * x * y * b[12] - s7c * 2.0 * x * z * b[13] + s7b * q4x * y * b[14] +
           s7a * (q4x * z - q0x * x - q0) * b[15];
    g[1] = sqrt3 * b[2] + s15 * x * b[5] + s5 * 2.0 * y * b[6] + s15 * z * b[7] + s7b * q0 * b[10] + s7c * 8.0 * y * x * b[11] +
           sqrt7 * 0.5 * (6.0 * y * y - 3.0 * x * x - 3.0 * z * z) * b[12] + s7c * 8.0 * y * z * b[13] + s7b * q4 * b[14];
    g[2] = sqrt3 * b[3] + s5 * q0z * b[4] - s5 * z * b[6] + s15 * y * b[7] + s5 * q4z * b[8] +
           s7a * (q0z * z + q0 + q4z * x) * b[9] + s7b * q0z * y * b[10] - s7c * 2.0 * z * x * b[11] -
           sqrt7 * 3.0 * y * z * b[12] + s7c * (r - 2.0 * z * z) * b[13] + s7b * q4z * y * b[14] +
           s7a * (q4z * z + q4 - q0z * x) * b[15];
}

void orb_edge_inputs(const orb_parameters *p, double d, const double u[3], double envelope, double *inputs)
{
    if (p->edge_input == ORB_GAUSSIAN_UNIT) {
        for (int k = 0; k < p->n_radial; k++) {
            const double x = d - p->gaussian_center[k];
            inputs[k] = exp(-x * x);
        }
        memcpy(inputs + p->n_radial, u, 3 * sizeof *u);
        return;
    }
    double Y[ORB_HARMONICS];
    harmonics(u, Y);
    for (int n = 0; n < p->n_radial; n++) {
        const double radial = p->bessel_prefactor * sin(p->bessel_frequency[n] * d) / d * envelope;
        for (int k = 0; k < ORB_HARMONICS; k++) inputs[ORB_HARMONICS * n + k] = radial * Y[k];
    }
}

void orb_edge_inputs_backward(const orb_parameters *p, double d, const double u[3], double envelope, double slope,
                              const double *inputs_bar, double envelope_bar, double vector_bar[3])
{
    double Y[ORB_HARMONICS], Y_bar[ORB_HARMONICS] = {0}, u_bar[3], d_bar = 0;
    harmonics(u, Y);
    for (int n = 0; n < p->n_radial; n++) {
        const double w = p->bessel_frequency[n], bessel = p->bessel_prefactor * sin(w * d) / d;
        const double bessel_slope = (p->bessel_prefactor * w * cos(w * d) - bessel) / d;
        const double *bar = inputs_bar + (size_t)ORB_HARMONICS * n;
        double along = 0;
        for (int k = 0; k < ORB_HARMONICS; k++) {
            along += bar[k] * Y[k];
            Y_bar[k] += bar[k] * bessel * envelope;
        }
        d_bar += along * bessel_slope * envelope;
        envelope_bar += along * bessel;
    }
    d_bar += envelope_bar * slope;
    harmonics_backward(u, Y_bar, u_bar);
    const double radial = u[0] * u_bar[0] + u[1] * u_bar[1] + u[2] * u_bar[2];
    for (int c = 0; c < 3; c++) vector_bar[c] = d_bar * u[c] + (u_bar[c] - radial * u[c]) / d;
}

// ---- repulsion ----------------------------------------------------------------------------------------------------------

// ZBL energy of an edge between elements a and b, eV: half of that of the pair; its slope in d.
// orb-models numbers the elements from 1 twice: charge and radius are those of the next element.
static double repulsion_of_edge(const orb_parameters *p, int a, int b, double d, double *slope)
{
    static const double c[4] = {0.1818, 0.5099, 0.2802, 0.02817}, k[4] = {3.2, 0.9423, 0.4028, 0.2016};
    const double end = p->repulsion_radius[a] + p->repulsion_radius[b];
    *slope = 0;
    if (!(d < end)) return 0;
    const double za = a + 1, zb = b + 1, length = 0.4543 * 0.529 / (pow(za, 0.3) + pow(zb, 0.3));
    double phi = 0, phi_slope = 0, envelope_slope;
    for (int i = 0; i < 4; i++) {
        const double term = c[i] * exp(-k[i] * d / length);
        phi += term;
        phi_slope -= k[i] / length * term;
    }
    const double envelope = orb_envelope(6, d, end, &envelope_slope), half = 0.5 * 14.3996 * za * zb / d;
    *slope = half * ((phi_slope - phi / d) * envelope + phi * envelope_slope);
    return half * phi * envelope;
}

// The direct models add up the edges of a system, and forces and stress likewise; the conservative ones take the mean over
// atoms, and forces follow from the pairs' gradients.
void orb_add_repulsion(const orb_parameters *p, const orb_graph *graph, const model_graph *pairs, const model_outputs *out)
{
    static const int voigt[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
    if (p->repulsion == ORB_NO_REPULSION) return;
    for (int s = 0; s < pairs->n_systems; s++) {
        const int begin = pairs->first_atom[s], end = pairs->first_atom[s + 1];
        const double share = p->repulsion == ORB_REPULSION_MEAN ? 1.0 / (end - begin) : 1.0;
        const double *h = pairs->cells ? pairs->cells + 9 * (size_t)s : NULL;
        const double volume = !h ? 0
                                 : fabs(h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) +
                                        h[2] * (h[3] * h[7] - h[4] * h[6]));
        double energy = 0;
        for (int e = graph->first[begin]; e < graph->first[end]; e++) {
            const size_t i = (size_t)graph->sender[e], j = (size_t)graph->receiver[e], pair = (size_t)graph->pair[e];
            const double d = graph->distance[e], *u = graph->direction + 3 * (size_t)e;
            double slope = 0;
            energy += repulsion_of_edge(p, pairs->species[i], pairs->species[j], d, &slope);
            for (int c = 0; out->pair_gradient && c < 3; c++) out->pair_gradient[3 * pair + (size_t)c] += share * slope * u[c];
            for (int c = 0; out->atom_force && c < 3; c++) {
                out->atom_force[3 * i + (size_t)c] += share * slope * u[c];
                out->atom_force[3 * j + (size_t)c] -= share * slope * u[c];
            }
            for (int k = 0; out->stress && volume != 0 && k < 6; k++)
                out->stress[6 * (size_t)s + (size_t)k] += share * slope * d * u[voigt[k][0]] * u[voigt[k][1]] / volume;
        }
        out->system_energy[s] += share * energy;
    }
}

// ---- systems --------------------------------------------------------------------------------------------------------------

// Eigenvalues, and eigenvectors in the rows of v, of the symmetric matrix a (destroyed): Jacobi rotations.
static void diagonalize(double a[3][3], double v[3][3])
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) v[i][j] = i == j;
    for (int sweep = 0; sweep < 30; sweep++)
        for (int p = 0; p < 2; p++)
            for (int q = p + 1; q < 3; q++) {
                if (a[p][q] == 0) continue;
                const double theta = 0.5 * (a[q][q] - a[p][p]) / a[p][q];
                const double t = copysign(1.0, theta) / (fabs(theta) + sqrt(theta * theta + 1.0)), c = 1.0 / sqrt(t * t + 1.0),
                             s = t * c;
                for (int k = 0; k < 3; k++) {
                    const double x = a[k][p], y = a[k][q];
                    a[k][p] = c * x - s * y;
                    a[k][q] = s * x + c * y;
                }
                for (int k = 0; k < 3; k++) {
                    const double x = a[p][k], y = a[q][k], vx = v[p][k], vy = v[q][k];
                    a[p][k] = c * x - s * y;
                    a[q][k] = s * x + c * y;
                    v[p][k] = c * vx - s * vy;
                    v[q][k] = s * vx + c * vy;
                }
            }
}

// Adds r × μ to the forces, r from the center of positions, with (Σ r rᵀ − Σ r² 1) μ = −Σ r × f: the least change without a
// net torque. The matrix is singular for atoms on a line; then μ is the shortest solution.
static void remove_torque(int n, const double *positions, double *forces)
{
    double center[3] = {0}, torque[3] = {0}, matrix[3][3] = {{0}}, axes[3][3], mu[3] = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) center[c] += positions[3 * (size_t)i + (size_t)c] / n;
    for (int i = 0; i < n; i++) {
        const double *x = positions + 3 * (size_t)i, *f = forces + 3 * (size_t)i;
        const double r[3] = {x[0] - center[0], x[1] - center[1], x[2] - center[2]};
        const double square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
        for (int a = 0; a < 3; a++) {
            torque[a] += r[(a + 1) % 3] * f[(a + 2) % 3] - r[(a + 2) % 3] * f[(a + 1) % 3];
            for (int b = 0; b < 3; b++) matrix[a][b] += r[a] * r[b] - (a == b ? square : 0);
        }
    }
    diagonalize(matrix, axes);
    const double largest = fmax(fabs(matrix[0][0]), fmax(fabs(matrix[1][1]), fabs(matrix[2][2])));
    for (int k = 0; k < 3; k++) {
        if (fabs(matrix[k][k]) <= 1e-14 * largest) continue;
        const double along = axes[k][0] * torque[0] + axes[k][1] * torque[1] + axes[k][2] * torque[2];
        for (int c = 0; c < 3; c++) mu[c] -= along / matrix[k][k] * axes[k][c];
    }
    for (int i = 0; i < n; i++) {
        const double *x = positions + 3 * (size_t)i;
        const double r[3] = {x[0] - center[0], x[1] - center[1], x[2] - center[2]};
        for (int a = 0; a < 3; a++)
            forces[3 * (size_t)i + (size_t)a] += r[(a + 1) % 3] * mu[(a + 2) % 3] - r[(a + 2) % 3] * mu[(a + 1) % 3];
    }
}

void orb_finish_forces(const orb_parameters *p, int n, const double *positions, bool has_cell, double *forces)
{
    double mean[3] = {0};
    for (size_t k = 0; k < 3 * (size_t)n; k++) mean[k % 3] += forces[k] / n;
    for (size_t k = 0; k < 3 * (size_t)n; k++) forces[k] -= mean[k % 3];
    if (!has_cell) remove_torque(n, positions, forces);
    for (size_t k = 0; k < 3 * (size_t)n; k++) forces[k] = p->force_scale * forces[k] + p->force_mean;
}

// [sin 2π q w | cos 2π q w | sin 2π s w' | cos 2π s w']; zeros for spin 0.
void orb_condition_inputs(const orb_parameters *p, double charge, double spin, double *inputs)
{
    const int n = p->n_features / 4;
    for (int k = 0; k < n; k++) {
        const double q = 2.0 * BASE_PI * charge * p->charge_frequency[k], s = 2.0 * BASE_PI * spin * p->spin_frequency[k];
        inputs[k] = sin(q);
        inputs[n + k] = cos(q);
        inputs[2 * n + k] = spin == 0 ? 0 : sin(s);
        inputs[3 * n + k] = spin == 0 ? 0 : cos(s);
    }
}
