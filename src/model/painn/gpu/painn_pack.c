// SPDX-License-Identifier: MIT
// painn_pack.c: PaiNN's constants in the layout of the kernels, and the layout of a step's arrays. Runs on the host.
#include "painn_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/zbl.h"
#include "gpu/gpu_pack.h"

// ---- pieces -------------------------------------------------------------------------------------------------------------

typedef struct packer {
    gpu_packer common;  // first
    float weight_scale; // a power of two
    int numbers;
    int rows; // matrices as operand A
} packer;

static void *take(packer *p, size_t bytes, const void **device_out)
{
    return gpu_pack(&p->common, bytes, device_out);
}

static const float *pack_floats(packer *p, const float *values, size_t n)
{
    return gpu_pack_floats(&p->common, values, n);
}

// A matrix stored [out][in] as operand B: B[k][n] = w[n][k], or `transposed` (backward pass) w[k][n]. With `in_pairs` features are permuted
// so that a thread of a product has two adjacent ones, both as rows and as columns of a slice.
typedef struct matrix {
    const float *w;
    int n_in, transposed, in_pairs;
    const int *k_block_order;
    int k_block;
} matrix;

static int in_pairs(int place)
{
    return place / 16 * 16 + place % 8 * 2 + place / 8 % 2;
}

static void column(const void *context, int n, int k, float *values)
{
    const matrix *m = context;
    if (m->in_pairs) n = in_pairs(n);
    if (m->k_block_order) k = m->k_block_order[k / m->k_block] * m->k_block + k % m->k_block;
    const size_t step = m->transposed ? (size_t)m->n_in : 1;
    const float *from = m->transposed ? m->w + (size_t)k * step + n : m->w + (size_t)n * (size_t)m->n_in + k;
    for (int j = 0; j < 16; j++) values[j] = from[step * (size_t)(m->in_pairs ? in_pairs(j) : j)];
}

// Converts an operand B of `columns` columns in `k_tiles` into operand A with these columns as rows: for each two tiles of columns, by k
// tile, the high parts of all lanes and then the low ones, 16 bytes for each lane.
static void turn_to_rows(char *place, int columns, int k_tiles, int parts)
{
    const size_t piece = (size_t)(8 * parts), half = (size_t)k_tiles * 32 * piece;
    char *pair = malloc(2 * half);
    if (!pair) { // NaN: energies will not be finite
        memset(place, 0xff, half * (size_t)(columns / 8));
        return;
    }
    for (int tile = 0; tile < columns / 8; tile += 2, place += 2 * half) {
        memcpy(pair, place, 2 * half);
        for (int k = 0; k < k_tiles; k++)
            for (int lane = 0; lane < 32; lane++)
                for (int part = 0; part < parts; part++)
                    for (int word = 0; word < 4; word++) // even tile, odd tile, and both of the next k
                        memcpy(place + (((size_t)k * parts + part) * 32 + lane) * 16 + 4 * word,
                               pair + word % 2 * half + ((size_t)k * 32 + lane) * piece + 8 * part + word / 2 * 4, 4);
    }
    free(pair);
}

// `k_block_order` permutes blocks of k_block rows of B (NULL: as they are).
static const void *pack_matrix(packer *p, const float *w, int n_out, int n_in, int transposed, const int *k_block_order,
                               int k_block)
{
    const matrix m = {w, n_in, transposed, p->rows, k_block_order, k_block};
    const int columns = transposed ? n_in : n_out, rows = transposed ? n_out : n_in;
    const void *device = gpu_pack_operand(&p->common, p->numbers, columns, rows, p->weight_scale, column, &m);
    if (p->rows && p->common.block) {
        char *place = p->common.block + ((const char *)device - p->common.base);
        turn_to_rows(place, columns, rows / 16, p->numbers == PAINN_GPU_SPLIT_HALVES ? 2 : 1);
    }
    return device;
}

// The polynomial through `n` Chebyshev points in a variable from −1/range to 1/range, for which coefficients are normal numbers in halves
// with weights of usual size: coefficient k is Σ_m map[k][m] · value at node[m].
static void map_nodes(int n, double *node, double (*map)[5])
{
    static const double monomial[5][5] = {{1, 0, -1, 0, 1}, {0, 1, 0, -3, 0}, {0, 0, 2, 0, -8}, {0, 0, 0, 4, 0}, {0, 0, 0, 0, 8}};
    for (int m = 0; m < n; m++) {
        double grow = 1;
        node[m] = cos((2 * m + 1) * 3.14159265358979323846 / (2 * n));
        for (int k = 0; k < 5; k++, grow *= PAINN_GPU_TABLE_RANGE) {
            map[k][m] = 0;
            for (int c = 0; c < n; c++) map[k][m] += grow * monomial[k][c] * (c ? 2.0 : 1.0) / n * cos(c * acos(node[m]));
        }
    }
}

// Coefficients [interval][5][3F] of W(d) = [A | b] ψ(d). W is linear in ψ: so are they in the coefficients of ψ.
static double *fit_filter(const painn_parameters *parameters, const painn_layer *layer,
                          void (*radial)(const painn_parameters *, double, double *, double *), int n)
{
    const int F3 = 3 * parameters->n_features, K = parameters->n_radial, T = PAINN_GPU_INTERVALS;
    double *psi = malloc(sizeof(double) * (size_t)(6 * (K + 1))), *a = calloc((size_t)T * 5 * (size_t)F3, sizeof(double)),
           *weight = malloc(sizeof(double) * (size_t)(K + 1) * (size_t)F3), node[5], map[5][5];
    if (!psi || !a || !weight) {
        free(psi);
        free(a);
        free(weight);
        return NULL;
    }
    for (int r = 0; r <= K; r++)
        for (int f = 0; f < F3; f++)
            weight[r * F3 + f] = r < K ? layer->filter_weight[(size_t)f * (size_t)K + (size_t)r] : layer->filter_bias[f];
    map_nodes(n, node, map);
    for (int i = 0; i < T; i++) {
        for (int m = 0; m < n; m++)
            radial(parameters, (i + 0.5 + 0.5 * node[m]) * parameters->cutoff / T, psi + m * (K + 1), psi + 5 * (K + 1));
        for (int k = 0; k < n; k++) {
            double *restrict to = a + ((size_t)i * 5 + (size_t)k) * (size_t)F3;
            for (int r = 0; r <= K; r++) {
                const double *restrict from = weight + r * F3;
                double c = 0;
                for (int m = 0; m < n; m++) c += map[k][m] * psi[m * (K + 1) + r];
                for (int f = 0; f < F3; f++) to[f] += c * from[f];
            }
        }
    }
    free(psi);
    free(weight);
    return a;
}

// Fits polynomials of degree n − 1 for a table of `bytes`; without memory the table becomes NaN, so that energies are not finite.
static char *take_table(packer *p, size_t bytes, const painn_parameters *parameters, const painn_layer *layer,
                        void (*radial)(const painn_parameters *, double, double *, double *), int n, const void **device_out,
                        double **fitted_out)
{
    char *place = take(p, bytes, device_out);
    *fitted_out = place ? fit_filter(parameters, layer, radial, n) : NULL;
    if (place && !*fitted_out) memset(place, 0xff, bytes);
    return place;
}

static void pack_filter(packer *p, const painn_parameters *parameters, const painn_layer *layer, painn_gpu_layer *out,
                        void (*radial)(const painn_parameters *, double, double *, double *))
{
    int F = parameters->n_features, T = PAINN_GPU_INTERVALS, exact = p->numbers == PAINN_GPU_SPLIT_HALVES;
    size_t n = (size_t)T * 3 * F;
    double *a;
    char *place = take_table(p, exact ? n * 16 : n * 8, parameters, layer, radial, exact ? 5 : 4, &out->filter, &a);
    for (int i = 0; a && i < T; i++)
        for (int f = 0; f < 3 * F; f++) {
            const double *from = a + (size_t)i * 15 * F + f; // coefficient k: from[3 F k]
            int block = f / F, feature = f % F, slice = feature / PAINN_GPU_SLICE, in_slice = feature % PAINN_GPU_SLICE;
            size_t entry = ((size_t)slice * T + i) * 3 + block;
            if (exact) {
                // The first of a lane's two features is in the first eight places, with c3 of both; the second with c4.
                float *pair = (float *)(void *)place + (entry * PAINN_GPU_SLICE + in_slice / 2) * 4,
                      *to = pair + in_slice % 2 * 32;
                for (int k = 0; k < 3; k++) to[k] = (float)from[3 * F * k];
                for (int k = 0; k < 2; k++)
                    ((uint16_t *)(void *)(pair + 32 * k + 3))[in_slice % 2] = gpu_to_half(from[3 * F * (3 + k)]);
            } else {
                uint16_t *to = (uint16_t *)(void *)place + entry * PAINN_GPU_SLICE * 4 + in_slice / 2 * 8 + in_slice % 2;
                for (int k = 0; k < 4; k++) to[2 * k] = gpu_to_half(from[3 * F * k]);
            }
        }
    free(a);
}

static void pack_values(packer *p, const painn_parameters *parameters, const painn_layer *layer, painn_gpu_layer *out,
                        void (*radial)(const painn_parameters *, double, double *, double *))
{
    const int F = parameters->n_features, T = PAINN_GPU_INTERVALS, slices = F / PAINN_GPU_SLICE;
    double *a;
    char *place = take_table(p, (size_t)T * slices * PAINN_GPU_VALUES, parameters, layer, radial, 4, &out->values, &a);
    for (int i = 0; a && i < T; i++)
        for (int f = 0; f < 3 * F; f++) {
            const double *from = a + (size_t)i * 15 * F + f; // coefficient k: from[3 F k]
            const int block = f / F, lane = f % PAINN_GPU_SLICE / 2, second = f % 2;
            char *entry = place + ((size_t)(f % F / PAINN_GPU_SLICE) * T + i) * PAINN_GPU_VALUES;
            float *to = (float *)(void *)entry + (block * 8 + lane) * 4 + 2 * second;
            uint16_t *halves =
                (uint16_t *)(void *)(entry + 3 * 8 * 16) + (block < 2 ? lane * 8 + block * 4 : 8 * 8 + lane * 4) + second;
            // Rounding errors of the t² and t³ terms are added to the terms 1 and t, by Chebyshev expansion: t² is at most `square`.
            const double square = 1.0 / PAINN_GPU_TABLE_RANGE / PAINN_GPU_TABLE_RANGE;
            double lost[2];
            for (int k = 0; k < 2; k++) {
                const double exact = from[3 * F * (2 + k)];
                halves[2 * k] = gpu_to_half(exact);
                lost[k] = exact - gpu_from_half(halves[2 * k]);
            }
            to[0] = (float)(from[0] + 0.5 * square * lost[0]);
            to[1] = (float)(from[3 * F] + 0.75 * square * lost[1]);
        }
    free(a);
}

// Message input x (blocks q, R) of layer 0: its q is the element's embedding, so x is a function of the element. An entry of zeros follows
// the last element.
static const float *pack_x0(packer *p, const painn_parameters *parameters, int n_species)
{
    int F = parameters->n_features;
    const painn_layer *layer = &parameters->layer[0];
    const void *device;
    float *place = take(p, (size_t)(n_species + 1) * 2 * F * sizeof(float), &device);
    if (!place) return device;
    for (int z = 0; z < n_species; z++) {
        double a[PAINN_MAX_FEATURES];
        const float *q = parameters->embedding + (size_t)z * F;
        for (int f = 0; f < F; f++) {
            double h = layer->b1[f];
            for (int k = 0; k < F; k++) h += (double)layer->W1[(size_t)f * F + k] * q[k];
            a[f] = parameters->activation == PAINN_SILU ? h / (1.0 + exp(-h))
                                                        : fmax(h, 0.0) + log1p(exp(-fabs(h))) - 0.6931471805599453;
        }
        for (int f = 0; f < 2 * F; f++) {
            double x = layer->b2[f];
            for (int k = 0; k < F; k++) x += (double)layer->W2[(size_t)f * F + k] * a[k];
            place[((size_t)z * F + f % F) * 2 + f / F] = (float)x;
        }
    }
    return device;
}

// ---- products of the fused layers, in their order ---------------------------------------------------------------------------

typedef struct product_table {
    painn_gpu_product *at; // NULL: only counted
    ptrdiff_t rows_distance;
    int n, n_features, piece_bytes, next_slot, owner[PAINN_GPU_MOST_SLOTS];
} product_table;

// `weights`: k_tiles of k, in column blocks of F, in `order`; in the ring buffer they are operand A, contiguous for each product.
static painn_gpu_product *add_product(product_table *t, const void *weights, int k_tiles, int blocks, const int *order, int early,
                                      int operand, int warps, int parts)
{
    static const int in_order[3] = {0, 1, 2};
    static painn_gpu_product counted;
    const int per_slot = t->n_features / 16, slots = (k_tiles + per_slot - 1) / per_slot * blocks,
              tile_blocks = PAINN_GPU_TILE_BLOCKS(t->n_features);
    painn_gpu_product *p = t->at ? &t->at[t->n] : &counted;
    if (t->next_slot + slots > PAINN_GPU_RING_SLOTS(t->n_features)) t->next_slot = 0;
    *p = (painn_gpu_product){.bytes = 2 * k_tiles * 32 * t->piece_bytes,
                             .copies = blocks,
                             .position = t->next_slot * PAINN_GPU_SLOT(t->n_features),
                             .after = -1,
                             .ranks = tile_blocks,
                             .operand = operand,
                             .early = early,
                             .warps = warps,
                             .parts = parts};
    for (int k = t->next_slot; k < t->next_slot + slots; k++) {
        if (t->owner[k] > p->after) p->after = t->owner[k];
        t->owner[k] = t->n;
    }
    for (int k = 0; k < blocks; k++)
        p->source[k] =
            (const char *)weights + t->rows_distance + (size_t)(order ? order : in_order)[k] * tile_blocks * (size_t)p->bytes;
    t->next_slot += slots;
    t->n++;
    return p;
}

static void list_products(product_table *t, painn_gpu_step *step)
{
    static const int q_t_mu[3] = {0, 2, 1};
    const int L = step->n_layers, F = t->n_features, K = F / 16;
    t->n = t->next_slot = 0;
    for (int k = 0; k < PAINN_GPU_MOST_SLOTS; k++) t->owner[k] = -1;
    for (int l = 0; l < L; l++) {
        const painn_gpu_layer *w = &step->layer[l], *next = &step->layer[l + 1 < L ? l + 1 : l];
        const int last = l + 1 == L, blocks = last ? 2 : 3; // of the update: q, t, and μ
        add_product(t, w->U, K, 2, NULL, 0, 6, 6, 3);
        add_product(t, w->M1, 2 * K, 1, NULL, 2, 2, 1, 0)->bias[0] = w->c1;
        painn_gpu_product *p = add_product(t, w->M2, K, blocks, q_t_mu, 0, 2, blocks, 1);
        for (int k = 0; k < blocks; k++) p->bias[k] = w->c2 + q_t_mu[k] * F;
        if (last) break;
        add_product(t, next->W1, K, 1, NULL, 0, 2, 1, 0)->bias[0] = next->b1;
        p = add_product(t, next->W2, K, 3, NULL, 0, 2, 3, 0);
        for (int k = 0; k < 3; k++) p->bias[k] = next->b2 + k * F;
    }
    painn_gpu_product *p = add_product(t, step->O1, K, 1, NULL, 0, 2, 1, 0);
    p->ranks = PAINN_GPU_TILE_BLOCKS(F) / 2; // half as many hidden features
    p->bias[0] = step->o1;
    p->bias[1] = step->O2;
    step->n_products_forward = t->n;
    add_product(t, step->O1t, K / 2, 1, NULL, 0, 1, 1, 0);
    for (int l = L - 1; l >= 0; l--) {
        const painn_gpu_layer *w = &step->layer[l];
        const int parts = l + 1 == L ? 2 : 3; // no μ̄ yet
        add_product(t, w->M2t, 3 * K, 1, NULL, 0, 2 * parts, parts, parts);
        add_product(t, w->M1t, K, 2, NULL, 0, 2, 4, 0);
        add_product(t, w->Ut, 2 * K, 1, NULL, 6, 6, 3, 0);
        if (l == 0) break;
        add_product(t, w->W2t, 3 * K, 1, NULL, 0, 6, 3, 3);
        add_product(t, w->W1t, K, 1, NULL, 0, 2, 1, 0);
    }
    step->n_products = t->n;
}

// ---- the model ------------------------------------------------------------------------------------------------------------

int painn_gpu_supported(const painn_parameters *parameters)
{
    int F = parameters->n_features;
    return (F == 32 || F == 64 || F == 128) && parameters->n_readout == 2 && parameters->readout_width[1] == F / 2;
}

static float largest(const float *values, size_t n, float so_far)
{
    for (size_t k = 0; k < n; k++) so_far = fmaxf(so_far, fabsf(values[k]));
    return so_far;
}

// The power of two that brings the largest weight of all products near 2¹⁰: far from overflow, and the low halves of all but the smallest
// weights stay normal numbers.
static float weight_scale(const painn_parameters *parameters)
{
    size_t FF = (size_t)parameters->n_features * parameters->n_features;
    float size = largest(parameters->readout_weight[0], (size_t)parameters->readout_width[1] * parameters->n_features, 0);
    for (int l = 0; l < parameters->n_layers; l++) {
        const painn_layer *layer = &parameters->layer[l];
        size = largest(layer->U, 2 * FF, largest(layer->M1, 2 * FF, largest(layer->M2, 3 * FF, size)));
        size = largest(layer->W1, FF, largest(layer->W2, 3 * FF, size));
    }
    return size > 0 ? (float)exp2(fmin(floor(10.0 - log2(size)), 100.0)) : 1.0f;
}

// Context of gpu_pack_parts.
typedef struct part_of_model {
    packer settings; // all but its `common`
    const painn_parameters *parameters;
    void (*radial)(const painn_parameters *, double, double *, double *);
    painn_gpu_step *step;
} part_of_model;

// The matrices of layer l; behind the last one those of the readout.
static void pack_matrices_of(void *context, gpu_packer *common, int l)
{
    static const int q_t_mu[3] = {0, 2, 1};
    const part_of_model *m = context;
    const painn_parameters *parameters = m->parameters;
    const int F = parameters->n_features, H = parameters->readout_width[1];
    packer own = m->settings, *p = &own;
    own.common = *common;
    if (l < parameters->n_layers) {
        const painn_layer *from = &parameters->layer[l];
        painn_gpu_layer *to = &m->step->layer[l];
        to->U = pack_matrix(p, from->U, 2 * F, F, 0, NULL, F);
        to->Ut = pack_matrix(p, from->U, 2 * F, F, 1, NULL, F);
        to->M1 = pack_matrix(p, from->M1, F, 2 * F, 0, NULL, F);
        to->M1t = pack_matrix(p, from->M1, F, 2 * F, 1, NULL, F);
        to->M2 = pack_matrix(p, from->M2, 3 * F, F, 0, NULL, F);
        to->M2t = pack_matrix(p, from->M2, 3 * F, F, 1, q_t_mu, F);
        to->W1 = pack_matrix(p, from->W1, F, F, 0, NULL, F);
        to->W1t = pack_matrix(p, from->W1, F, F, 1, NULL, F);
        to->W2 = pack_matrix(p, from->W2, 3 * F, F, 0, NULL, F);
        to->W2t = pack_matrix(p, from->W2, 3 * F, F, 1, NULL, F);
    } else {
        m->step->O1 = pack_matrix(p, parameters->readout_weight[0], H, F, 0, NULL, F);
        m->step->O1t = pack_matrix(p, parameters->readout_weight[0], H, F, 1, NULL, H);
    }
    *common = own.common;
}

static void pack_matrices(packer *p, const painn_parameters *parameters, painn_gpu_step *step)
{
    part_of_model all = {*p, parameters, NULL, step};
    gpu_pack_parts(&p->common, parameters->n_layers + 1, pack_matrices_of, &all);
}

static void pack_filters_of(void *context, gpu_packer *common, int l)
{
    const part_of_model *m = context;
    const painn_layer *from = &m->parameters->layer[l];
    painn_gpu_layer *to = &m->step->layer[l];
    const int F = m->parameters->n_features;
    packer own = m->settings;
    own.common = *common;
    pack_filter(&own, m->parameters, from, to, m->radial);
    if (own.numbers == PAINN_GPU_SPLIT_HALVES) pack_values(&own, m->parameters, from, to, m->radial);
    to->b1 = pack_floats(&own, from->b1, F);
    to->b2 = pack_floats(&own, from->b2, 3 * F);
    to->c1 = pack_floats(&own, from->c1, F);
    to->c2 = pack_floats(&own, from->c2, 3 * F);
    *common = own.common;
}

// Radii of the core repulsion; none where the model has no such repulsion.
static void pack_core_repulsion(packer *p, painn_gpu_step *step, const mlff_model *model)
{
    const void *device;
    step->core_radius = NULL;
    if (model->core_repulsion == 0) return;
    float *radius = take(p, sizeof(float) * (MLFF_MAX_ATOMIC_NUMBER + 1), &device);
    double largest = 0;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        if (radius) radius[z] = (float)(model->core_radius[z] / model->length_unit);
        if (model->known[z]) largest = fmax(largest, model->core_radius[z]);
    }
    step->core_radius = device;
    step->core_reach = (float)(2 * largest / model->length_unit);
    step->core_coulomb = (float)(ZBL_COULOMB / (model->energy_unit * model->length_unit));
    step->core_screening = (float)(ZBL_SCREENING / model->length_unit);
}

void painn_gpu_pack(const painn_parameters *parameters, const mlff_model *model,
                    void (*radial)(const painn_parameters *, double, double *, double *), void *block, size_t *bytes,
                    const void *base, painn_gpu_step *step)
{
    packer p = {{block, base, 0}, block ? weight_scale(parameters) : 1.0f, step->numbers, 0};
    int F = parameters->n_features, H = parameters->readout_width[1];
    step->n_features = F;
    step->n_layers = parameters->n_layers;
    step->gpu.neighbors.n_species =
        parameters->n_species < MLFF_MAX_ATOMIC_NUMBER + 1 ? parameters->n_species : MLFF_MAX_ATOMIC_NUMBER + 1;
    step->n_hidden = H;
    step->weight_unit = (float)(1.0 / (PAINN_GPU_OPERAND_SCALE * p.weight_scale));
    step->softplus = parameters->activation == PAINN_SHIFTED_SOFTPLUS;
    step->epsilon = (float)parameters->epsilon;
    step->gpu.length_unit = model->length_unit;
    step->gpu.energy_unit = model->energy_unit;
    step->gpu.neighbors.cutoff = parameters->cutoff * model->length_unit;
    step->gpu.neighbors.inverse_unit = 1.0 / step->gpu.length_unit;
    step->gpu.neighbors.tag_bits = PAINN_GPU_TAG_BITS;
    step->gpu.neighbors.position_scale = 1.0 / PAINN_GPU_TABLE_RANGE;
    step->gpu.neighbors.intervals_per_angstrom = PAINN_GPU_INTERVALS / step->gpu.neighbors.cutoff;
    step->table_scale = (float)(2.0 * PAINN_GPU_INTERVALS / PAINN_GPU_TABLE_RANGE / parameters->cutoff);
    part_of_model all = {p, parameters, radial, step};
    gpu_pack_parts(&p.common, parameters->n_layers, pack_filters_of, &all);
    step->embedding =
        pack_floats(&p, parameters->embedding, (size_t)parameters->n_species * F); // slices of 16 are contiguous already
    step->x0 = pack_x0(&p, parameters, step->gpu.neighbors.n_species);
    // A second copy as operand A, in the same order, at one common distance.
    painn_gpu_step turned = *step;
    p.rows = 1;
    pack_matrices(&p, parameters, &turned);
    p.rows = 0;
    pack_matrices(&p, parameters, step);
    step->rows_distance = (const char *)turned.O1 - (const char *)step->O1;
    step->o1 = pack_floats(&p, parameters->readout_bias[0], H);
    step->O2 = pack_floats(&p, parameters->readout_weight[1], H);
    step->o2 = parameters->readout_bias[1][0];
    const void *device;
    step->n_products = step->n_products_forward = 0;
    if (H == F / 2) {
        product_table table = {
            .n_features = F, .rows_distance = step->rows_distance, .piece_bytes = p.numbers == PAINN_GPU_SPLIT_HALVES ? 16 : 8};
        list_products(&table, step);
        table.at = take(&p, (size_t)table.n * sizeof(painn_gpu_product), &device);
        step->products = device;
        if (table.at) list_products(&table, step);
    }
    double *offset = take(&p, sizeof(double) * (MLFF_MAX_ATOMIC_NUMBER + 1), &device);
    step->gpu.neighbors.offset = device;
    if (offset)
        for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) offset[z] = model->known[z] ? model->offset[z] : NAN;
    pack_core_repulsion(&p, step, model);
    *bytes = p.common.at;
}

void painn_gpu_pack_wide(const painn_parameters *parameters, void *block, size_t *bytes, const void *base, painn_gpu_step *step)
{
    packer p = {{block, base, 0}, 1.0f, PAINN_GPU_THREE_BFLOATS, 0}; // no factors: they would take from the range
    pack_matrices(&p, parameters, step);
    step->weight_unit = 1;
    *bytes = p.common.at;
}

size_t painn_gpu_arena(painn_gpu_step *step, void *base)
{
    packer p = {{NULL, base, 0}, 1.0f, 0, 0};
    size_t n = (size_t)step->gpu.neighbors.atom_capacity, e = n * (size_t)step->gpu.neighbors.row_capacity;
    size_t F = (size_t)step->n_features, slices = F / PAINN_GPU_SLICE, real = sizeof(float);
    const void *at;
#define PLACE(field, bytes) (take(&p, bytes, &at), step->field = (void *)(uintptr_t)at)
    PLACE(q, n * F * real);
    // Arrays that edges gather have one more atom, which stays zero: for lanes without an edge.
    for (int l = 1; l < step->n_layers; l++) PLACE(state[l], (n + 1) * 6 * F * real);
    PLACE(prime, n * 4 * F * real);
    PLACE(adjoint, 2 * (n + 1) * 4 * F * real);
    PLACE(sender, n * 6 * F * real);
    PLACE(saved, n * PAINN_GPU_SAVED * F * (size_t)step->n_layers * real);
    PLACE(edge_gradient, e * slices * 4 * real);
    PLACE(core_energy, n * real);
    PLACE(raw_energy, n * slices * real);
    PLACE(reach, ((size_t)step->n_layers + 1) * sizeof(int32_t));
    PLACE(calls, ((size_t)step->n_layers + 1) * sizeof(gpu_call));
    PLACE(exchange_count, PAINN_GPU_MOST_BLOCKS * PAINN_GPU_COUNTER_STRIDE * sizeof(uint32_t));
#undef PLACE
    return (p.common.at + 255) / 256 * 256;
}
