// SPDX-License-Identifier: MIT
// soap.c: which matrices SOAP preconditions, and a step of one in float32. All products are aᵀ b of the kernel `outer`, whose
// operands are padded with zeros.
#include "soap.h"

#include <math.h>
#include <string.h>

// ---- plan -----------------------------------------------------------------------------------------------------------------

static int padded(int n, int pad)
{
    return (n + pad - 1) / pad * pad;
}

static soap_side side_of(int n, int pad, int64_t *n_state)
{
    soap_side side = {.n = n, .ld = padded(n, pad), .at = -1};
    if (n > SOAP_MAX_SIDE) return side;
    side.at = *n_state;
    *n_state += 2 * (int64_t)n * side.ld;
    return side;
}

mlff_status soap_plan_create(const train_layout *layout, int pad, soap_plan *plan_out)
{
    soap_plan plan = {0};
    const size_t n = (size_t)layout->n_tensors;
    plan.of_tensor = base_alloc(n + 1, sizeof *plan.of_tensor, "SOAP");
    plan.matrices = base_alloc(n + 1, sizeof *plan.matrices, "SOAP");
    if (!plan.of_tensor || !plan.matrices) {
        soap_plan_free(&plan);
        return MLFF_ERR_MEMORY;
    }
    for (int t = 0; t < layout->n_tensors; t++) {
        const train_tensor *tensor = &layout->tensors[t];
        const int rows = tensor->n_rows, columns = rows > 0 ? (int)(tensor->n_elements / rows) : 0;
        plan.of_tensor[t] = -1;
        if (!tensor->decays || rows < 2 || columns < 2 || (rows > SOAP_MAX_SIDE && columns > SOAP_MAX_SIDE)) continue;
        plan.of_tensor[t] = plan.n_matrices;
        soap_matrix *q = &plan.matrices[plan.n_matrices++];
        *q = (soap_matrix){.offset = tensor->offset, .n_rows = rows, .n_columns = columns};
        q->left = side_of(rows, pad, &plan.n_state);
        q->right = side_of(columns, pad, &plan.n_state);
        const size_t longer = (size_t)(q->left.ld > q->right.ld ? q->left.ld : q->right.ld);
        const size_t shorter = (size_t)(q->left.ld > q->right.ld ? q->right.ld : q->left.ld);
        const size_t side = longer > SOAP_MAX_SIDE ? shorter : longer; // of the largest basis
        const size_t floats = 4 * longer * shorter + 2 * side * side + longer;
        if (floats > plan.n_scratch) plan.n_scratch = floats;
    }
    *plan_out = plan;
    return MLFF_OK;
}

void soap_plan_free(soap_plan *plan)
{
    base_free(plan->of_tensor);
    base_free(plan->matrices);
    *plan = (soap_plan){0};
}

void soap_begin(const soap_plan *plan, double *state)
{
    memset(state, 0, sizeof *state * (size_t)plan->n_state);
    for (int k = 0; k < plan->n_matrices; k++) {
        const soap_side *sides[] = {&plan->matrices[k].left, &plan->matrices[k].right};
        for (int s = 0; s < 2; s++)
            for (int i = 0; sides[s]->at >= 0 && i < sides[s]->n; i++)
                state[sides[s]->at + (int64_t)(sides[s]->n + i) * sides[s]->ld + i] = 1;
    }
}

// ---- a step ---------------------------------------------------------------------------------------------------------------

// One matrix at work; arrays of scratch: rows × right.ld, but `across` columns × left.ld, and two squares of the larger basis.
typedef struct work {
    const soap_matrix *q;
    const nn_gradient_kernels *kernels;
    float *sample, *step, *product, *across, *square, *other, *dots;
} work;

// to[columns][ld_to] = from[rows][ld_from]ᵀ, padding zero.
static void transpose(int rows, int columns, const float *from, int ld_from, float *to, int ld_to)
{
    memset(to, 0, sizeof *to * (size_t)columns * (size_t)ld_to);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            to[(size_t)j * (size_t)ld_to + (size_t)i] = from[(size_t)i * (size_t)ld_from + (size_t)j];
}

// c[m][ldb] = aᵀ b over k rows.
static void multiply(const work *w, int m, int k, const float *a, int lda, const float *b, int ldb, float *c)
{
    const nn_outer operands = {a, b};
    memset(c, 0, sizeof *c * (size_t)m * (size_t)ldb);
    w->kernels->outer(m, ldb, k, 1, &operands, lda, ldb, c, ldb);
}

// x = Q_Lᵀ x Q_R, or back: Q_L x Q_Rᵀ; x[rows][right.ld].
static void rotate(const work *w, const float *state, bool back, float *x)
{
    const soap_side *left = &w->q->left, *right = &w->q->right;
    const size_t size = sizeof *x * (size_t)left->n * (size_t)right->ld;
    if (left->at >= 0) {
        const float *basis = state + left->at + (int64_t)left->n * left->ld;
        if (back) {
            transpose(left->n, left->n, basis, left->ld, w->square, left->ld);
            basis = w->square;
        }
        multiply(w, left->n, left->n, basis, left->ld, x, right->ld, w->product);
        memcpy(x, w->product, size);
    }
    if (right->at >= 0) {
        const float *basis = state + right->at + (int64_t)right->n * right->ld;
        if (back) {
            transpose(right->n, right->n, basis, right->ld, w->square, right->ld);
            basis = w->square;
        }
        transpose(left->n, right->n, x, right->ld, w->across, left->ld);
        multiply(w, left->n, right->n, w->across, left->ld, basis, right->ld, x);
    }
}

// The covariance's mean takes w->square, its new sample; then, if it is time, the basis follows.
static void update_side(const work *w, const soap_side *side, const train_update *u, float *state)
{
    const int n = side->n, ld = side->ld;
    const size_t size = (size_t)n * (size_t)ld;
    float *covariance = state + side->at, *basis = covariance + size, trace = 0;
    const float keep = (float)u->soap_decay, take = (float)(1 - u->soap_decay);
    for (size_t k = 0; k < size; k++) covariance[k] = keep * covariance[k] + take * w->square[k];
    for (int i = 0; i < n; i++) trace += covariance[(size_t)i * (size_t)ld + (size_t)i];
    if (!u->soap_refresh || !(trace > 0)) return;
    const float shift = (float)SOAP_SHIFT * trace / (float)n;
    multiply(w, n, n, covariance, ld, basis, ld, w->other);
    for (size_t k = 0; k < size; k++) w->other[k] += shift * basis[k];
    w->kernels->orthonormalize(n, ld, w->other, w->dots);
    memcpy(basis, w->other, sizeof *basis * size);
}

static void update_bases(const work *w, const train_update *u, float *state)
{
    const soap_side *left = &w->q->left, *right = &w->q->right;
    if (left->at >= 0) {
        transpose(left->n, right->n, w->sample, right->ld, w->across, left->ld);
        multiply(w, left->n, right->n, w->across, left->ld, w->across, left->ld, w->square);
        update_side(w, left, u, state);
    }
    if (right->at >= 0) {
        multiply(w, right->n, left->n, w->sample, right->ld, w->sample, right->ld, w->square);
        update_side(w, right, u, state);
    }
}

static work lay_out(const soap_matrix *q, const nn_gradient_kernels *kernels, float *scratch)
{
    const size_t size = (size_t)q->left.ld * (size_t)q->right.ld;
    const size_t left = q->left.at >= 0 ? (size_t)q->left.ld : 0, right = q->right.at >= 0 ? (size_t)q->right.ld : 0;
    const size_t side = left > right ? left : right;
    float *squares = scratch + 4 * size;
    return (work){.q = q,
                  .kernels = kernels,
                  .sample = scratch,
                  .step = scratch + size,
                  .product = scratch + 2 * size,
                  .across = scratch + 3 * size,
                  .square = squares,
                  .other = squares + side * side,
                  .dots = squares + 2 * side * side};
}

// V from the rotated sample, the step in the bases in place of the rotated momentum.
static void divide(const work *w, const train_update *u, const float *rotated, float *v)
{
    const float beta2 = (float)u->beta2, epsilon = (float)u->epsilon;
    const float rate = (float)(u->learning_rate / u->correction1), root_scale = (float)(1 / sqrt(u->correction2));
    const int columns = w->q->n_columns, ld = w->q->right.ld;
    for (int i = 0; i < w->q->n_rows; i++) {
        const float *row = rotated + (size_t)i * (size_t)ld;
        float *step = w->step + (size_t)i * (size_t)ld, *mean = v + (size_t)i * (size_t)columns;
        for (int j = 0; j < columns; j++) {
            mean[j] = beta2 * mean[j] + (1.0f - beta2) * row[j] * row[j];
            step[j] = rate * step[j] / (__builtin_sqrtf(mean[j]) * root_scale + epsilon);
        }
    }
}

void soap_step(const soap_matrix *q, const train_update *u, float scale, const nn_gradient_kernels *kernels, const float *g,
               float *weights, float *m, float *v, float *average, float *state, float *scratch)
{
    const work w = lay_out(q, kernels, scratch);
    const int rows = q->n_rows, columns = q->n_columns, ld = q->right.ld;
    const size_t size = (size_t)rows * (size_t)ld;
    const float beta1 = (float)u->beta1, keep = (float)(1 - u->learning_rate * u->weight_decay);
    float *rotated = w.sample; // the sample again, once V has it
    g += q->offset, weights += q->offset, m += q->offset, v += q->offset, average += q->offset;
    memset(w.sample, 0, sizeof *w.sample * size);
    memset(w.step, 0, sizeof *w.step * size);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const size_t k = (size_t)i * (size_t)columns + (size_t)j, p = (size_t)i * (size_t)ld + (size_t)j;
            w.sample[p] = scale * g[k];
            w.step[p] = m[k] = beta1 * m[k] + (1.0f - beta1) * w.sample[p];
        }
    rotate(&w, state, false, rotated);
    rotate(&w, state, false, w.step);
    divide(&w, u, rotated, v);
    rotate(&w, state, true, w.step);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const size_t k = (size_t)i * (size_t)columns + (size_t)j, p = (size_t)i * (size_t)ld + (size_t)j;
            weights[k] = keep * weights[k] - w.step[p];
            average[k] += (float)(1 - u->average) * (weights[k] - average[k]);
            w.sample[p] = scale * g[k];
        }
    update_bases(&w, u, state);
}
