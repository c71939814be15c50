// SPDX-License-Identifier: MIT
// ani_kernels.c: ANI's own pieces of the float32 step, compiled once per instruction set.
//
//   radial    G_R[p][k] += ¼ exp(−η_R (d − s_k)²) f(d; R_cr)
//   angular   with X = 0.95 cos θ, Y = √(1 − X²), u_z = ½(1 + X cos s_z + Y sin s_z) of neighbors j < k:
//             G_A[pq][a][z] += P_a Q_z f_j f_k,   P_a = exp(−η_A (½(d_j + d_k) − s_a)²),   Q_z = 2 u_z^ζ
// Triples are laid out flat, row j after row j (k = j + 1 …), so that exponentials and powers run over full vectors; the
// sums over triples then run in quads of four sections, with the block of a pair of species in registers. The reverse pass
// computes the factors again: that is cheaper than storing them.
#include "model/ani/ani_kernels.h"

#include <math.h>
#include <string.h>

#include "nn/simd.h"

extern const ani_kernels SIMD_SYMBOL(ani_kernels);

typedef float simd_any __attribute__((vector_size(SIMD_WIDTH * 4), may_alias, aligned(4)));
typedef float quad __attribute__((vector_size(16), may_alias, aligned(4)));

SIMD_INLINE simd load_any(const float *p)
{
    return *(const simd_any *)p;
}

SIMD_INLINE void store_any(float *p, simd v)
{
    *(simd_any *)p = v;
}

SIMD_INLINE quad quad_load(const float *p)
{
    return *(const quad *)p;
}

SIMD_INLINE float sum_of(simd v)
{
    float lanes[SIMD_WIDTH];
    store_any(lanes, v);
    quad q = quad_load(lanes);
    for (int k = 4; k < SIMD_WIDTH; k += 4) q += quad_load(lanes + k);
    return (q[0] + q[1]) + (q[2] + q[3]);
}

// exp(x) of x ≤ 0, cut at −32: 1e-14 of what an AEV is made of, and products of two stay normal numbers.
SIMD_INLINE simd decay(simd x)
{
    simd low = simd_set(-32.0f);
    return simd_exp_in_range(simd_select(x < low, low, x));
}

// ---- geometry -----------------------------------------------------------------------------------------------------

// f = ½(1 + cos πx) = cos²(πx/2) and f' of x = d/R; both 0 beyond. In terms of y = π(1 − x)/2, so that f keeps its relative
// accuracy as it vanishes: f = sin² y, f' = −(π/R) sin y cos y. Taylor to 1e-9 on 0 … π/2.
SIMD_INLINE void cutoff(simd d, float r, simd *f, simd *df)
{
    simd x = d * (1.0f / r), y = (1.0f - x) * 1.57079632679f;
    simd_int inside = x < simd_set(1);
    simd y2 = y * y;
    simd s = simd_set(1.6059044e-10f);
    s = s * y2 - 2.5052108e-8f;
    s = s * y2 + 2.7557319e-6f;
    s = s * y2 - 1.9841270e-4f;
    s = s * y2 + 8.3333333e-3f;
    s = s * y2 - 1.6666667e-1f;
    s = s * y2 * y + y;
    simd c = simd_set(-1.1470746e-11f);
    c = c * y2 + 2.0876757e-9f;
    c = c * y2 - 2.7557319e-7f;
    c = c * y2 + 2.4801587e-5f;
    c = c * y2 - 1.3888889e-3f;
    c = c * y2 + 4.1666667e-2f;
    c = c * y2 - 0.5f;
    c = c * y2 + 1.0f;
    *f = simd_select(inside, s * s, simd_set(0));
    *df = simd_select(inside, s * c * (-3.14159265359f / r), simd_set(0));
}

static void geometry(const ani_shape *shape, int begin, int end, const double *vectors, const int32_t *neighbor,
                     const unsigned char *active, double *distance, ani_row *row, const ani_neighbors *out)
{
    int n = end - begin, n_runs = 2 * shape->n_active;
    int32_t at[2 * ANI_MAX_SPECIES] = {0};
    const double *r = vectors + 3 * (size_t)begin;
    for (int p = 0; p < n; p++, r += 3) distance[p] = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
    for (int p = 0; p < n; p++) at[active[neighbor[begin + p]] + (distance[p] < shape->angular_cutoff ? 0 : shape->n_active)]++;
    int32_t sum = 0;
    for (int k = 0; k < n_runs; k++) {
        int32_t count = at[k];
        at[k] = sum;
        row->end[k] = sum += count;
    }
    row->n = n;
    row->n_angular = row->end[shape->n_active - 1];
    float *d = out->d + row->start, *x = out->x + row->start, *y = out->y + row->start, *z = out->z + row->start;
    int32_t *pair = out->pair + row->start;
    r = vectors + 3 * (size_t)begin;
    for (int p = 0; p < n; p++, r += 3) {
        int32_t slot = at[active[neighbor[begin + p]] + (distance[p] < shape->angular_cutoff ? 0 : shape->n_active)]++;
        double inverse = 1.0 / distance[p];
        d[slot] = (float)distance[p];
        x[slot] = (float)(r[0] * inverse);
        y[slot] = (float)(r[1] * inverse);
        z[slot] = (float)(r[2] * inverse);
        pair[slot] = begin + p;
    }
    for (int k = n; k % NN_PAD; k++) d[k] = 0;
    for (int k = 0; k < n; k += SIMD_WIDTH) {
        simd f, df;
        cutoff(simd_load(d + k), (float)shape->radial_cutoff, &f, &df);
        simd_store(out->fr + row->start + k, f);
        simd_store(out->dfr + row->start + k, df);
    }
    for (int k = 0; k < row->n_angular; k += SIMD_WIDTH) {
        simd f, df;
        cutoff(simd_load(d + k), (float)shape->angular_cutoff, &f, &df);
        simd_store(out->fa + row->start + k, f);
        simd_store(out->dfa + row->start + k, df);
    }
}

// ---- radial -------------------------------------------------------------------------------------------------------

static void radial(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, float *aev)
{
    const float *d = neighbors->d + row->start, *f = neighbors->fr + row->start;
    memset(aev, 0, sizeof *aev * (size_t)shape->n_columns);
    for (int run = 0, k = 0; run < 2 * shape->n_active; run++) {
        float *block = aev + (size_t)(run % shape->n_active) * (size_t)shape->radial_width;
        int first = k;
        for (int c = 0; c < shape->radial_width; c += SIMD_WIDTH) {
            simd sum = simd_load(block + c), shift = simd_load(shape->radial_shift + c);
            for (k = first; k < row->end[run]; k++) {
                simd x = d[k] - shift;
                sum += decay(x * x * -shape->eta_radial) * ((float)ANI_RADIAL_FACTOR * f[k]);
            }
            simd_store(block + c, sum);
        }
    }
}

// slope[k] = dE/dd of each neighbor's radial part.
static void radial_backward(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, const float *bar,
                            float *slope)
{
    const float *d = neighbors->d + row->start, *f = neighbors->fr + row->start, *df = neighbors->dfr + row->start;
    for (int run = 0, k = 0; run < 2 * shape->n_active; run++) {
        const float *block = bar + (size_t)(run % shape->n_active) * (size_t)shape->radial_width;
        for (; k < row->end[run]; k++) {
            simd sum = simd_set(0);
            for (int c = 0; c < shape->radial_width; c += SIMD_WIDTH) {
                simd x = d[k] - simd_load(shape->radial_shift + c);
                sum +=
                    simd_load(block + c) * decay(x * x * -shape->eta_radial) * (x * (-2.0f * shape->eta_radial * f[k]) + df[k]);
            }
            slope[k] = (float)ANI_RADIAL_FACTOR * sum_of(sum);
        }
    }
}

// ---- triples ------------------------------------------------------------------------------------------------------

static void load_angular(const ani_row *row, const ani_neighbors *neighbors, ani_scratch *s)
{
    size_t n = (size_t)row->n_angular, bytes = n * sizeof(float), pad = SIMD_WIDTH * sizeof(float);
    struct {
        float *to;
        const float *from;
    } arrays[] = {{s->d, neighbors->d}, {s->x, neighbors->x},  {s->y, neighbors->y},
                  {s->z, neighbors->z}, {s->f, neighbors->fa}, {s->df, neighbors->dfa}};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
        memcpy(arrays[a].to, arrays[a].from + row->start, bytes);
        memset(arrays[a].to + n, 0, pad);
    }
    for (size_t k = 0; k < n; k++) s->inverse[k] = 1.0f / s->d[k];
    memset(s->inverse + n, 0, pad);
}

// How many rows j, from `first` on, fit into one flush.
static int rows_of_flush(const ani_scratch *s, int n, int first, int *n_triples)
{
    int last = first;
    size_t count = 0;
    while (last < n - 1 && (last == first || count + (size_t)(n - 1 - last) + SIMD_WIDTH <= s->triple_capacity))
        count += (size_t)(n - 1 - last++);
    *n_triples = (int)count;
    return last;
}

// X, Y, ½(d_j + d_k), f_j f_k of all triples of the rows first … last − 1.
static void flatten(ani_scratch *s, int n, int first, int last, int n_triples)
{
    size_t t = 0;
    for (int j = first; j < last; j++) {
        simd dj = simd_set(s->d[j]), fj = simd_set(s->f[j]);
        float x = s->x[j], y = s->y[j], z = s->z[j];
        for (int k = j + 1; k < n; k += SIMD_WIDTH) {
            simd c = load_any(s->x + k) * x + load_any(s->y + k) * y + load_any(s->z + k) * z;
            size_t to = t + (size_t)(k - j - 1); // what is beyond the row's end, the next row overwrites
            store_any(s->X + to, c * (float)ANI_COSINE_FACTOR);
            store_any(s->mean + to, (dj + load_any(s->d + k)) * 0.5f);
            store_any(s->ff + to, fj * load_any(s->f + k));
        }
        t += (size_t)(n - 1 - j);
    }
    for (int k = 0; k < SIMD_WIDTH; k++) s->X[n_triples + k] = s->mean[n_triples + k] = s->ff[n_triples + k] = 0;
    for (int k = 0; k < n_triples + SIMD_WIDTH; k++) s->Y[k] = __builtin_sqrtf(1.0f - s->X[k] * s->X[k]);
}

SIMD_INLINE simd base_of(const ani_shape *shape, int z, simd X, simd Y)
{
    simd u = 0.5f + X * (0.5f * shape->cosine[z]) + Y * (0.5f * shape->sine[z]), least = simd_set(shape->least_base);
    return simd_select(u < least, least, u);
}

// P f_j f_k and Q of all triples.
static void factors(const ani_shape *shape, ani_scratch *s, int n_triples)
{
    size_t capacity = s->triple_capacity;
    for (int t = 0; t < n_triples; t += SIMD_WIDTH) {
        simd mean = simd_load(s->mean + t), ff = simd_load(s->ff + t), X = simd_load(s->X + t), Y = simd_load(s->Y + t);
        for (int a = 0; a < shape->n_shifts; a++) {
            simd x = mean - shape->angular_shift[a];
            simd_store(s->P + (size_t)a * capacity + t, decay(x * x * -shape->eta_angular) * ff);
        }
        for (int z = 0; z < shape->n_sections; z++)
            simd_store(s->Q + (size_t)z * capacity + t,
                       simd_exp_in_range(simd_log(base_of(shape, z, X, Y)) * shape->zeta) * 2.0f);
    }
}

// P, dP/dd_j (= dP/dd_k), Q, dQ/dX of all triples.
static void factors_and_slopes(const ani_shape *shape, ani_scratch *s, int n_triples)
{
    size_t capacity = s->triple_capacity;
    for (int t = 0; t < n_triples; t += SIMD_WIDTH) {
        simd mean = simd_load(s->mean + t), X = simd_load(s->X + t), Y = simd_load(s->Y + t), ratio = X / Y;
        for (int a = 0; a < shape->n_shifts; a++) {
            simd x = mean - shape->angular_shift[a], P = decay(x * x * -shape->eta_angular);
            simd_store(s->P + (size_t)a * capacity + t, P);
            simd_store(s->dP + (size_t)a * capacity + t, x * P * -shape->eta_angular);
        }
        for (int z = 0; z < shape->n_sections; z++) {
            simd u = base_of(shape, z, X, Y), Q = simd_exp_in_range(simd_log(u) * shape->zeta);
            simd_store(s->Q + (size_t)z * capacity + t, Q * 2.0f);
            simd_store(s->dQ + (size_t)z * capacity + t, Q / u * shape->zeta * (shape->cosine[z] - ratio * shape->sine[z]));
        }
    }
}

// to[t][z] = from[z][t]: the sections of a triple side by side.
static void transpose(int n_sections, int n_triples, size_t capacity, const float *from, float *to)
{
    for (int z = 0; z < n_sections; z += 4) {
        const float *r = from + (size_t)z * capacity;
        for (int t = 0; t < n_triples; t += 4) {
            quad a = quad_load(r + t), b = quad_load(r + capacity + t), c = quad_load(r + 2 * capacity + t);
            quad d = quad_load(r + 3 * capacity + t);
            quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            quad cd = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            float *out = to + (size_t)t * n_sections + z;
            *(quad *)out = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
            *(quad *)(out + n_sections) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
            *(quad *)(out + 2 * n_sections) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
            *(quad *)(out + 3 * n_sections) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
        }
    }
}

enum { MAX_QUADS = 8 }; // of a block in registers

// block[a][z] += Σ P_a Q_z over triples t … end − 1. Shifts and quads of sections are constants where this is inlined.
SIMD_INLINE void add_block(const int n_shifts, const int n_quads, const ani_scratch *s, int t, int end, float *block)
{
    quad sum[MAX_QUADS];
    for (int k = 0; k < n_shifts * n_quads; k++) sum[k] = quad_load(block + 4 * k);
    for (; t < end; t++)
        for (int q = 0; q < n_quads; q++) {
            quad Q = quad_load(s->Qt + ((size_t)t * n_quads + q) * 4);
            for (int a = 0; a < n_shifts; a++) sum[a * n_quads + q] += s->P[(size_t)a * s->triple_capacity + t] * Q;
        }
    for (int k = 0; k < n_shifts * n_quads; k++) *(quad *)(block + 4 * k) = sum[k];
}

static void add_block_of_any(int n_shifts, int n_sections, const ani_scratch *s, int t, int end, float *block)
{
    for (; t < end; t++)
        for (int a = 0; a < n_shifts; a++)
            for (int z = 0; z < n_sections; z++)
                block[a * n_sections + z] += s->P[(size_t)a * s->triple_capacity + t] * s->Qt[(size_t)t * n_sections + z];
}

static void angular(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, ani_scratch *s, float *aev)
{
    int n = row->n_angular, species_j = 0, n_triples = 0;
    load_angular(row, neighbors, s);
    for (int first = 0, last; first < n - 1; first = last) {
        last = rows_of_flush(s, n, first, &n_triples);
        flatten(s, n, first, last, n_triples);
        factors(shape, s, n_triples);
        transpose(shape->n_sections, n_triples, s->triple_capacity, s->Q, s->Qt);
        for (int j = first, t = 0; j < last; j++) {
            while (j >= row->end[species_j]) species_j++;
            for (int species = species_j, k = j + 1; k < n; species++) {
                int end = row->end[species] > k ? row->end[species] : k;
                float *block = aev + shape->pair_column[species_j][species];
                if (shape->n_shifts == 8 && shape->n_sections == 4)
                    add_block(8, 1, s, t, t + end - k, block);
                else if (shape->n_shifts == 4 && shape->n_sections == 8)
                    add_block(4, 2, s, t, t + end - k, block);
                else
                    add_block_of_any(shape->n_shifts, shape->n_sections, s, t, t + end - k, block);
                t += end - k;
                k = end;
            }
        }
    }
}

// ---- triples, backward --------------------------------------------------------------------------------------------

SIMD_INLINE float quad_sum(quad q)
{
    return (q[0] + q[1]) + (q[2] + q[3]);
}

// S[0] = Σ ḡ P Q, S[1] = Σ ḡ P' Q, S[2] = Σ ḡ P Q' over the block of triples t … end − 1.
SIMD_INLINE void block_sums(const int n_shifts, const int n_quads, ani_scratch *s, int t, int end, const float *block)
{
    size_t capacity = s->triple_capacity;
    quad bar[MAX_QUADS] = {{0}};
    for (int k = 0; k < n_shifts * n_quads; k++) bar[k] = quad_load(block + 4 * k);
    for (; t < end; t++) {
        quad S0 = {0}, Sr = {0}, SX = {0};
        for (int q = 0; q < n_quads; q++) {
            quad U = {0}, dU = {0};
            for (int a = 0; a < n_shifts; a++) {
                U += s->P[(size_t)a * capacity + t] * bar[a * n_quads + q];
                dU += s->dP[(size_t)a * capacity + t] * bar[a * n_quads + q];
            }
            quad Q = quad_load(s->Qt + ((size_t)t * n_quads + q) * 4);
            S0 += U * Q;
            Sr += dU * Q;
            SX += U * quad_load(s->dQt + ((size_t)t * n_quads + q) * 4);
        }
        s->S[t] = quad_sum(S0);
        s->S[capacity + t] = quad_sum(Sr);
        s->S[2 * capacity + t] = quad_sum(SX);
    }
}

static void block_sums_of_any(int n_shifts, int n_sections, ani_scratch *s, int t, int end, const float *block)
{
    size_t capacity = s->triple_capacity;
    for (; t < end; t++) {
        float S0 = 0, Sr = 0, SX = 0;
        for (int a = 0; a < n_shifts; a++)
            for (int z = 0; z < n_sections; z++) {
                float bar = block[a * n_sections + z], P = s->P[(size_t)a * capacity + t];
                float Q = s->Qt[(size_t)t * n_sections + z];
                S0 += bar * P * Q;
                Sr += bar * s->dP[(size_t)a * capacity + t] * Q;
                SX += bar * P * s->dQt[(size_t)t * n_sections + z];
            }
        s->S[t] = S0;
        s->S[capacity + t] = Sr;
        s->S[2 * capacity + t] = SX;
    }
}

// Row j of triples: its parts of dE/dr of neighbor j and of each k.
static void triples_backward(ani_scratch *s, int n, int j, int t)
{
    const float *S0 = s->S + t, *Sr = S0 + s->triple_capacity, *SX = Sr + s->triple_capacity;
    float x = s->x[j], y = s->y[j], z = s->z[j], fj = s->f[j], dfj = s->df[j], inverse_j = s->inverse[j];
    simd slope_j = simd_set(0), gx_j = simd_set(0), gy_j = simd_set(0), gz_j = simd_set(0);
    for (int k = j + 1; k < n; k += SIMD_WIDTH) { // lanes beyond n have f = f' = 0
        int of = k - j - 1;
        simd ux = load_any(s->x + k), uy = load_any(s->y + k), uz = load_any(s->z + k), f = load_any(s->f + k);
        simd c = ux * x + uy * y + uz * z, ff = f * fj, both = load_any(Sr + of) * ff, S = load_any(S0 + of);
        simd by_c = load_any(SX + of) * ff * (float)ANI_COSINE_FACTOR;
        simd along_j = by_c * inverse_j, along_k = by_c * load_any(s->inverse + k);
        slope_j += both + S * f * dfj - along_j * c;
        gx_j += along_j * ux;
        gy_j += along_j * uy;
        gz_j += along_j * uz;
        store_any(s->slope + k, load_any(s->slope + k) + both + S * load_any(s->df + k) * fj - along_k * c);
        store_any(s->gx + k, load_any(s->gx + k) + along_k * x);
        store_any(s->gy + k, load_any(s->gy + k) + along_k * y);
        store_any(s->gz + k, load_any(s->gz + k) + along_k * z);
    }
    s->slope[j] += sum_of(slope_j);
    s->gx[j] += sum_of(gx_j);
    s->gy[j] += sum_of(gy_j);
    s->gz[j] += sum_of(gz_j);
}

static void angular_backward(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, ani_scratch *s,
                             const float *bar)
{
    int n = row->n_angular, species_j = 0, n_triples = 0;
    load_angular(row, neighbors, s);
    for (int first = 0, last; first < n - 1; first = last) {
        last = rows_of_flush(s, n, first, &n_triples);
        flatten(s, n, first, last, n_triples);
        factors_and_slopes(shape, s, n_triples);
        transpose(shape->n_sections, n_triples, s->triple_capacity, s->Q, s->Qt);
        transpose(shape->n_sections, n_triples, s->triple_capacity, s->dQ, s->dQt);
        for (int j = first, t = 0; j < last; j++) {
            while (j >= row->end[species_j]) species_j++;
            for (int species = species_j, k = j + 1; k < n; species++) {
                int end = row->end[species] > k ? row->end[species] : k;
                const float *block = bar + shape->pair_column[species_j][species];
                if (shape->n_shifts == 8 && shape->n_sections == 4)
                    block_sums(8, 1, s, t, t + end - k, block);
                else if (shape->n_shifts == 4 && shape->n_sections == 8)
                    block_sums(4, 2, s, t, t + end - k, block);
                else
                    block_sums_of_any(shape->n_shifts, shape->n_sections, s, t, t + end - k, block);
                t += end - k;
                k = end;
            }
        }
        for (int a = 0; a < 3; a++) memset(s->S + (size_t)a * s->triple_capacity + n_triples, 0, SIMD_WIDTH * sizeof(float));
        for (int j = first, t = 0; j < last; t += n - 1 - j++) triples_backward(s, n, j, t);
    }
}

static void aev_backward(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, ani_scratch *s,
                         const float *bar, double *pair_gradient)
{
    size_t bytes = ((size_t)row->n + NN_PAD) * sizeof(float);
    memset(s->gx, 0, bytes);
    memset(s->gy, 0, bytes);
    memset(s->gz, 0, bytes);
    radial_backward(shape, row, neighbors, bar, s->slope);
    angular_backward(shape, row, neighbors, s, bar);
    const float *x = neighbors->x + row->start, *y = neighbors->y + row->start, *z = neighbors->z + row->start;
    const int32_t *pair = neighbors->pair + row->start;
    for (int k = 0; k < row->n; k++) {
        double *g = pair_gradient + 3 * (size_t)pair[k];
        g[0] = (double)(s->slope[k] * x[k] + s->gx[k]);
        g[1] = (double)(s->slope[k] * y[k] + s->gy[k]);
        g[2] = (double)(s->slope[k] * z[k] + s->gz[k]);
    }
}

// ---- networks -----------------------------------------------------------------------------------------------------

static void output(int n, int width, const float *h, const float *slope, const float *w, float bias, float *energy, float *delta)
{
    for (int i = 0; i < n; i++, h += width) {
        simd sum = simd_set(0);
        for (int k = 0; k < width; k += SIMD_WIDTH) sum += simd_load(h + k) * simd_load(w + k);
        energy[i] = sum_of(sum) + bias;
        if (!delta) continue;
        for (int k = 0; k < width; k += SIMD_WIDTH) simd_store(delta + k, simd_load(slope + k) * simd_load(w + k));
        slope += width;
        delta += width;
    }
}

static void multiply(size_t n, float *a, const float *b)
{
    for (size_t k = 0; k < n; k += SIMD_WIDTH) simd_store(a + k, simd_load(a + k) * simd_load(b + k));
}

static void mean(size_t n, int n_parts, size_t stride, const float *parts, float factor, float *out)
{
    for (size_t k = 0; k < n; k += SIMD_WIDTH) {
        simd sum = simd_load(parts + k);
        for (int m = 1; m < n_parts; m++) sum += simd_load(parts + (size_t)m * stride + k);
        simd_store(out + k, sum * factor);
    }
}

const ani_kernels SIMD_SYMBOL(ani_kernels) = {geometry, radial, angular, aev_backward, output, multiply, mean};
