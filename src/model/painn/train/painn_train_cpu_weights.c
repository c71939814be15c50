// SPDX-License-Identifier: MIT
// painn_train_cpu_weights.c: from the flat vector of weights to the padded, packed forms of a float32 training step, and from the
// slots' gradients back. Each array is packed and summed by one thread, so that results do not depend on their number.
#include <string.h>

#include "painn_train_cpu.h"

// ---- plan -----------------------------------------------------------------------------------------------------------------

// Row or column `index` of blocks of `block`, each padded; -1 in a block that is left out.
static int padded_index(int index, int block, int skipped)
{
    int b = index / block;
    if (b == skipped) return -1;
    if (skipped >= 0 && b > skipped) b--;
    return b * nn_padded(block) + index % block;
}

static int column_of(const cpu_weight *w, int column)
{
    return w->is_vector ? 0 : padded_index(column, w->column_block, -1);
}

static int add_weight(painn_train_cpu *c, cpu_weight w)
{
    for (int k = 0; k < c->n_weights; k++)
        if (c->weights[k].flat == w.flat) return k; // shared
    int blocks = w.rows / w.row_block - (w.skipped_block >= 0);
    w.padded_rows = blocks * nn_padded(w.row_block);
    w.padded_columns = w.is_vector ? 1 : w.columns / w.column_block * nn_padded(w.column_block);
    w.gradient = c->slot_floats;
    c->slot_floats += (size_t)w.padded_rows * (size_t)w.padded_columns;
    c->weights[c->n_weights] = w;
    return c->n_weights++;
}

static int add_matrix(painn_train_cpu *c, int64_t flat, int rows, int columns, int row_block, int column_block, int skipped)
{
    return add_weight(c, (cpu_weight){.flat = flat,
                                      .rows = rows,
                                      .columns = columns,
                                      .row_block = row_block,
                                      .column_block = column_block,
                                      .skipped_block = skipped});
}

static int add_vector(painn_train_cpu *c, int64_t flat, int length, int block, int skipped)
{
    return add_weight(c, (cpu_weight){.flat = flat,
                                      .rows = length,
                                      .columns = 1,
                                      .row_block = block,
                                      .column_block = 1,
                                      .skipped_block = skipped,
                                      .is_vector = true});
}

static int add_filter(painn_train_cpu *c, const painn_trainable_layer *T)
{
    for (int k = 0; k < c->n_filters; k++)
        if (c->filters[k].flat_weight == T->filter_weight) {
            c->filters[k].blocks = 3;
            return k;
        }
    const int blocks = c->n_filters ? 3 : 2;
    c->filters[c->n_filters] = (cpu_filter){T->filter_weight, T->filter_bias, blocks, NULL, c->slot_floats};
    c->slot_floats += 3 * (size_t)c->F * (size_t)c->K1;
    return c->n_filters++;
}

static mlff_status allocate(float **array, size_t count)
{
    *array = base_alloc(count, sizeof **array, "weights");
    return *array ? MLFF_OK : MLFF_ERR_MEMORY;
}

mlff_status painn_train_cpu_plan_weights(painn_train_cpu *c)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &c->parameters;
    int F = P->n_features;
    size_t largest = 0;

    for (int l = 0; l < P->n_layers; l++) {
        const painn_trainable_layer *T = &c->trainable.layer[l];
        int skipped = c->skips_last && l == P->n_layers - 1 ? 1 : -1;
        c->layer[l] = (cpu_layer){
            .W1 = add_matrix(c, T->W1, F, F, F, F, -1),
            .b1 = add_vector(c, T->b1, F, F, -1),
            .W2 = add_matrix(c, T->W2, 3 * F, F, F, F, -1),
            .b2 = add_vector(c, T->b2, 3 * F, F, -1),
            .U = add_matrix(c, T->U, 2 * F, F, F, F, -1),
            .M1 = add_matrix(c, T->M1, F, 2 * F, F, F, -1),
            .c1 = add_vector(c, T->c1, F, F, -1),
            .M2 = add_matrix(c, T->M2, 3 * F, F, F, F, skipped),
            .c2 = add_vector(c, T->c2, 3 * F, F, skipped),
            .filter = add_filter(c, T),
        };
    }
    c->readout_width[0] = c->F;
    for (int k = 0; k < P->n_readout; k++) {
        int in = P->readout_width[k], out = P->readout_width[k + 1];
        c->readout_width[k + 1] = nn_padded(out);
        c->readout_weight[k] = add_matrix(c, c->trainable.readout_weight[k], out, in, out, in, -1);
        c->readout_bias[k] = add_vector(c, c->trainable.readout_bias[k], out, out, -1);
    }
    c->embedding_gradient = c->slot_floats;
    c->slot_floats += (size_t)P->n_species * (size_t)c->F;

    for (int k = 0; k < c->n_weights; k++) {
        cpu_weight *w = &c->weights[k];
        size_t size = (size_t)w->padded_rows * (size_t)w->padded_columns;
        MLFF_TRY(allocate(&w->forward, size));
        if (!w->is_vector) MLFF_TRY(allocate(&w->back, size));
        if (size > largest) largest = size;
    }
    size_t slice = (size_t)c->K1 * 3 * NN_PAD;
    for (int k = 0; k < c->n_filters; k++) MLFF_TRY(allocate(&c->filters[k].packed, slice * (size_t)(c->F / NN_PAD)));
    if (slice > largest) largest = slice;
    for (int t = 0; t < c->n_threads; t++) MLFF_TRY(allocate(&c->pack_scratch[t], largest));
    c->squares = base_alloc((size_t)painn_train_cpu_n_parts(c), sizeof *c->squares, "a gradient");
    if (!c->squares) status = MLFF_ERR_MEMORY;
done:
    return status;
}

void painn_train_cpu_free_weights(painn_train_cpu *c)
{
    for (int k = 0; k < c->n_weights; k++) {
        base_free(c->weights[k].forward);
        base_free(c->weights[k].back);
    }
    for (int k = 0; k < c->n_filters; k++) base_free(c->filters[k].packed);
    for (int t = 0; t < c->n_threads; t++) base_free(c->pack_scratch[t]);
    base_free(c->squares);
}

// ---- packing --------------------------------------------------------------------------------------------------------------

// The weight with rows and columns padded: where it lies, if nothing is padded or left out, or in `scratch`.
static const float *padded_weight(const cpu_weight *w, const float *values, float *scratch)
{
    if (w->padded_rows == w->rows && w->padded_columns == w->columns) return values;
    memset(scratch, 0, sizeof *scratch * (size_t)w->padded_rows * (size_t)w->padded_columns);
    for (int r = 0; r < w->rows; r++) {
        int row = padded_index(r, w->row_block, w->skipped_block);
        for (int b = 0; row >= 0 && b < w->columns; b += w->column_block)
            memcpy(scratch + (size_t)row * (size_t)w->padded_columns + column_of(w, b),
                   values + (size_t)r * (size_t)w->columns + b, sizeof *scratch * (size_t)w->column_block);
    }
    return scratch;
}

static void pack_weight(painn_train_cpu *c, cpu_weight *w, const float *flat, float *scratch)
{
    const float *plain = padded_weight(w, flat + w->flat, w->is_vector ? w->forward : scratch);
    if (w->is_vector) {
        if (plain != w->forward) memcpy(w->forward, plain, sizeof *plain * (size_t)w->rows);
        return;
    }
    c->gradient->pack_transposed(w->padded_columns, w->padded_rows, plain, w->forward);
    c->nn->pack(w->padded_rows, w->padded_columns, plain, w->back);
}

static void pack_filter(painn_train_cpu *c, cpu_filter *filter, const float *flat, float *scratch)
{
    int F = c->parameters.n_features, K = c->K1 - 1;
    size_t width = (size_t)filter->blocks * NN_PAD, slice = (size_t)c->K1 * width;
    for (int s = 0; s < c->F / NN_PAD; s++) {
        memset(scratch, 0, sizeof *scratch * slice);
        for (int b = 0; b < filter->blocks; b++)
            for (int f = s * NN_PAD; f < (s + 1) * NN_PAD && f < F; f++) {
                int64_t row = (int64_t)b * F + f;
                float *out = scratch + b * NN_PAD + f % NN_PAD;
                for (int k = 0; k < K; k++) out[(size_t)k * width] = flat[filter->flat_weight + row * K + k];
                out[(size_t)K * width] = flat[filter->flat_bias + row];
            }
        c->nn->pack(c->K1, (int)width, scratch, filter->packed + (size_t)s * slice);
    }
}

// Layer 0's message network for each species in use.
static void compute_species(painn_train_cpu *c, const float *flat)
{
    const cpu_layer *L = &c->layer[0];
    int F = c->F, n = c->n_rows;
    for (int r = 0; r < n; r++)
        memcpy(c->embedding + (size_t)r * F,
               flat + c->trainable.embedding + (int64_t)c->row_species[r] * c->parameters.n_features,
               sizeof(float) * (size_t)c->parameters.n_features);
    c->nn->product(n, F, F, c->embedding, F, c->weights[L->W1].forward, c->weights[L->b1].forward, c->a0, F, 0);
    c->gradient->activate(c->activation, (size_t)n * F, c->a0, c->slope0, c->curve0);
    c->nn->product(n, 3 * F, F, c->a0, F, c->weights[L->W2].forward, c->weights[L->b2].forward, c->x0, 3 * F, 0);
}

// Does a thread own the part that begins after `before` of `all` elements?
static bool owns(const team_member *member, size_t before, size_t all)
{
    return (int)(before * (size_t)member->n / all) == member->thread;
}

void painn_train_cpu_pack(painn_train_cpu *c, enum train_vector which, const team_member *member)
{
    const float *flat = c->vectors[which];
    float *scratch = c->pack_scratch[member->thread];
    size_t before = 0, all = c->slot_floats;
    for (int k = 0; k < c->n_weights; k++) {
        if (owns(member, before, all)) pack_weight(c, &c->weights[k], flat, scratch);
        before += (size_t)c->weights[k].padded_rows * (size_t)c->weights[k].padded_columns;
    }
    for (int k = 0; k < c->n_filters; k++) {
        if (owns(member, before, all)) pack_filter(c, &c->filters[k], flat, scratch);
        before += 3 * (size_t)c->F * (size_t)c->K1;
    }
    team_barrier(member);
    if (member->thread == 0) {
        compute_species(c, flat);
        c->packed = (int)which;
    }
    team_barrier(member);
}

// ---- gradients ------------------------------------------------------------------------------------------------------------

int painn_train_cpu_n_parts(const painn_train_cpu *c)
{
    return c->n_weights + c->n_filters + 1;
}

// out[k] = Σ over slots of the n floats at `at`.
static void sum_slots(const painn_train_cpu *c, size_t at, size_t n, float *out)
{
    const float *parts[CPU_MAX_SLOTS];
    for (int s = 0; s < c->n_slots; s++) parts[s] = c->slots[s] + at;
    c->gradient->sum_arrays(n, c->n_slots, parts, out);
}

static double reduce_weight(painn_train_cpu *c, const cpu_weight *w)
{
    float *total = c->total + w->flat;
    for (int r = 0; r < w->rows; r++) {
        int row = padded_index(r, w->row_block, w->skipped_block);
        float *out = total + (size_t)r * (size_t)w->columns;
        if (row < 0) {
            memset(out, 0, sizeof *out * (size_t)w->columns);
            continue;
        }
        for (int b = 0; b < w->columns; b += w->column_block)
            sum_slots(c, w->gradient + (size_t)row * (size_t)w->padded_columns + (size_t)column_of(w, b), (size_t)w->column_block,
                      out + b);
    }
    return c->gradient->square_sum((size_t)w->rows * (size_t)w->columns, total);
}

static double reduce_filter(painn_train_cpu *c, const cpu_filter *filter)
{
    int F = c->parameters.n_features, K = c->K1 - 1;
    for (int b = 0; b < 3; b++)
        for (int f = 0; f < F; f++)
            for (int k = 0; k <= K; k++) {
                size_t at = filter->gradient + ((size_t)(f / NN_PAD) * (size_t)c->K1 + (size_t)k) * 3 * NN_PAD +
                            (size_t)b * NN_PAD + (size_t)(f % NN_PAD);
                int64_t row = (int64_t)b * F + f;
                float sum = 0;
                for (int s = 0; s < c->n_slots; s++) sum += c->slots[s][at];
                c->total[k < K ? filter->flat_weight + row * K + k : filter->flat_bias + row] = sum;
            }
    return c->gradient->square_sum(3 * (size_t)F * (size_t)K, c->total + filter->flat_weight) +
           c->gradient->square_sum(3 * (size_t)F, c->total + filter->flat_bias);
}

static double reduce_embedding(painn_train_cpu *c)
{
    size_t F = (size_t)c->parameters.n_features;
    for (int z = 0; z < c->parameters.n_species; z++)
        sum_slots(c, c->embedding_gradient + (size_t)z * (size_t)c->F, F, c->total + c->trainable.embedding + (size_t)z * F);
    return c->gradient->square_sum((size_t)c->parameters.n_species * F, c->total + c->trainable.embedding);
}

void painn_train_cpu_reduce(painn_train_cpu *c, const team_member *member)
{
    size_t before = 0, all = c->slot_floats;
    int part = 0;
    for (int k = 0; k < c->n_weights; k++, part++) {
        if (owns(member, before, all)) c->squares[part] = reduce_weight(c, &c->weights[k]);
        before += (size_t)c->weights[k].padded_rows * (size_t)c->weights[k].padded_columns;
    }
    for (int k = 0; k < c->n_filters; k++, part++) {
        if (owns(member, before, all)) c->squares[part] = reduce_filter(c, &c->filters[k]);
        before += 3 * (size_t)c->F * (size_t)c->K1;
    }
    if (owns(member, before, all)) c->squares[part] = reduce_embedding(c);
}
