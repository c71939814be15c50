// SPDX-License-Identifier: MIT
// orb_cpu_weights.c: weights of Orb packed for matrix products, padded with zeros, and transposed for the reverse pass.
#include <string.h>

#include "orb_cpu.h"

// A matrix b [rows][columns] to be packed.
typedef struct matrix {
    int rows, columns;
    float *b;
} matrix;

// b[row + c][column + o] = W[o][first + c], or with `back` b[row + o][column + c].
static void place(matrix *m, int row, int column, const orb_linear *linear, int first, int n, bool back)
{
    for (int o = 0; o < linear->n_out; o++)
        for (int c = 0; c < n; c++) {
            const size_t at = back ? (size_t)(row + o) * (size_t)m->columns + (size_t)(column + c)
                                   : (size_t)(row + c) * (size_t)m->columns + (size_t)(column + o);
            m->b[at] = linear->weight[(size_t)o * (size_t)linear->n_in + (size_t)(first + c)];
        }
}

static mlff_status begin(matrix *m, int rows, int columns)
{
    *m = (matrix){rows, columns, base_alloc((size_t)rows * (size_t)columns, sizeof(float), "weights")};
    return m->b ? MLFF_OK : MLFF_ERR_MEMORY;
}

static mlff_status finish(orb_cpu *cpu, matrix *m, float **packed_out)
{
    const size_t n = cpu->nn->packed_floats(m->rows, m->columns);
    float *packed = base_alloc(n, sizeof *packed, "weights");
    if (packed) cpu->nn->pack(m->rows, m->columns, m->b, packed);
    base_free(m->b);
    cpu->bytes += (int64_t)(n * sizeof *packed);
    *packed_out = packed;
    return packed ? MLFF_OK : MLFF_ERR_MEMORY;
}

// The columns of `n_blocks` blocks of `width` numbers from `first`, each padded.
static mlff_status pack(orb_cpu *cpu, const orb_linear *linear, int first, int n_blocks, int width, bool back, float **packed_out)
{
    const int in = nn_padded(width), out = nn_padded(linear->n_out);
    matrix m;
    if (begin(&m, back ? out : n_blocks * in, back ? n_blocks * in : out) != MLFF_OK) return MLFF_ERR_MEMORY;
    for (int k = 0; k < n_blocks; k++) place(&m, back ? 0 : k * in, back ? k * in : 0, linear, first + k * width, width, back);
    return finish(cpu, &m, packed_out);
}

static mlff_status pad(const float *from, int n, float **padded_out)
{
    float *padded = base_alloc((size_t)nn_padded(n), sizeof *padded, "weights");
    if (padded) memcpy(padded, from, sizeof *padded * (size_t)n);
    *padded_out = padded;
    return padded ? MLFF_OK : MLFF_ERR_MEMORY;
}

static mlff_status pack_mlp(orb_cpu *cpu, const orb_mlp *mlp, int n_blocks, int width, orb_cpu_mlp *out)
{
    mlff_status status = MLFF_OK;
    const orb_parameters *p = &cpu->parameters;
    const int H = p->n_hidden;
    out->n_in = n_blocks * nn_padded(width);
    MLFF_TRY(pack(cpu, &mlp->linear[0], 0, n_blocks, width, false, &out->W1));
    MLFF_TRY(pack(cpu, &mlp->linear[1], 0, 1, H, false, &out->W2));
    MLFF_TRY(pack(cpu, &mlp->linear[2], 0, 1, H, false, &out->W3));
    if (p->conservative) {
        MLFF_TRY(pack(cpu, &mlp->linear[0], 0, n_blocks, width, true, &out->W1_back));
        MLFF_TRY(pack(cpu, &mlp->linear[1], 0, 1, H, true, &out->W2_back));
        MLFF_TRY(pack(cpu, &mlp->linear[2], 0, 1, H, true, &out->W3_back));
    }
    MLFF_TRY(pad(mlp->linear[0].bias, H, &out->b1));
    MLFF_TRY(pad(mlp->linear[1].bias, H, &out->b2));
    MLFF_TRY(pad(mlp->linear[2].bias, p->n_features, &out->b3));
    MLFF_TRY(pad(mlp->norm_weight, p->n_features, &out->norm_weight));
    if (mlp->norm_bias) MLFF_TRY(pad(mlp->norm_bias, p->n_features, &out->norm_bias));
    out->norm = (nn_norm){.F = cpu->F,
                          .width = p->n_features,
                          .epsilon = (float)p->norm_epsilon,
                          .weight = out->norm_weight,
                          .bias = out->norm_bias};
done:
    return status;
}

// [W_s | W_r] of the first edge layer, for all atoms at once; the bias goes with the sender's half.
static mlff_status pack_project(orb_cpu *cpu, const orb_linear *linear, orb_cpu_layer *out)
{
    mlff_status status = MLFF_OK;
    const int F = cpu->parameters.n_features, H = cpu->H;
    matrix m;
    MLFF_TRY(begin(&m, cpu->F, 2 * H));
    for (int k = 0; k < 2; k++) place(&m, 0, k * H, linear, (k + 1) * F, F, false);
    MLFF_TRY(finish(cpu, &m, &out->project));
    if (!(out->project_bias = base_alloc(2 * (size_t)H, sizeof(float), "weights"))) return MLFF_ERR_MEMORY;
    memcpy(out->project_bias, linear->bias, sizeof(float) * (size_t)linear->n_out);
    if (!cpu->parameters.conservative) return MLFF_OK;
    MLFF_TRY(begin(&m, 2 * H, cpu->F));
    for (int k = 0; k < 2; k++) place(&m, k * H, 0, linear, (k + 1) * F, F, true);
    MLFF_TRY(finish(cpu, &m, &out->project_back));
done:
    return status;
}

static mlff_status pack_layer(orb_cpu *cpu, const orb_layer *layer, orb_cpu_layer *out)
{
    mlff_status status = MLFF_OK;
    const size_t F = (size_t)cpu->parameters.n_features;
    MLFF_TRY(pack_mlp(cpu, &layer->edge, 1, (int)F, &out->edge));
    MLFF_TRY(pack_mlp(cpu, &layer->node, 3, (int)F, &out->node));
    MLFF_TRY(pack_project(cpu, &layer->edge.linear[0], out));
    if (!(out->gate = base_alloc(2 * (size_t)cpu->F, sizeof(float), "weights"))) return MLFF_ERR_MEMORY;
    memcpy(out->gate, layer->send.weight, sizeof(float) * F);
    memcpy(out->gate + cpu->F, layer->receive.weight, sizeof(float) * F);
    out->gate_bias[0] = layer->send.bias[0];
    out->gate_bias[1] = layer->receive.bias[0];
done:
    return status;
}

// The encoder's output depends on the element alone.
static mlff_status encode_elements(orb_cpu *cpu)
{
    mlff_status status = MLFF_OK;
    const orb_parameters *p = &cpu->parameters;
    const size_t F = (size_t)cpu->F;
    orb_cpu_mlp mlp = {0};
    float *x = base_alloc(ORB_BLOCK * F, sizeof *x, "weights"),
          *h = base_alloc(2 * ORB_BLOCK * (size_t)cpu->H, sizeof *h, "weights");
    cpu->encoded = base_alloc((size_t)p->n_species * F, sizeof(float), "weights");
    if (!x || !h || !cpu->encoded) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(pack_mlp(cpu, &p->node_encoder, 1, p->n_features, &mlp));
    for (int z = 0; z < p->n_species; z += ORB_BLOCK) {
        const int n = p->n_species - z < ORB_BLOCK ? p->n_species - z : ORB_BLOCK;
        for (int i = 0; i < n; i++)
            memcpy(x + (size_t)i * F, p->embedding + (size_t)(z + i) * (size_t)p->n_features, sizeof *x * (size_t)p->n_features);
        orb_cpu_mlp_forward(cpu, &mlp, n, x, false, h, cpu->encoded + (size_t)z * F, NULL, 0);
    }
done:;
    float *arrays[] = {mlp.W1,      mlp.W2,      mlp.W3,          mlp.b1,        mlp.b2, mlp.b3, mlp.W1_back,
                       mlp.W2_back, mlp.W3_back, mlp.norm_weight, mlp.norm_bias, x,      h};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    return status;
}

mlff_status orb_cpu_pack(orb_cpu *cpu)
{
    mlff_status status = MLFF_OK;
    const orb_parameters *p = &cpu->parameters;
    MLFF_TRY(pack_mlp(cpu, &p->edge_encoder, 1, p->n_edge_inputs, &cpu->encoder));
    for (int t = 0; t < p->n_layers; t++) MLFF_TRY(pack_layer(cpu, &p->layer[t], &cpu->layer[t]));
    if (!p->conservative) {
        MLFF_TRY(pack(cpu, &p->forces.linear[0], 0, 1, p->n_features, false, &cpu->force_hidden));
        MLFF_TRY(pack(cpu, &p->forces.linear[1], 0, 1, p->n_head, false, &cpu->force));
        MLFF_TRY(pad(p->forces.linear[0].bias, p->n_head, &cpu->force_hidden_bias));
        MLFF_TRY(pad(p->forces.linear[1].bias, 3, &cpu->force_bias));
    }
    MLFF_TRY(encode_elements(cpu));
done:
    return status;
}

static void free_mlp(orb_cpu_mlp *mlp)
{
    float *arrays[] = {mlp->W1,      mlp->W2,      mlp->W3,      mlp->b1,          mlp->b2,       mlp->b3,
                       mlp->W1_back, mlp->W2_back, mlp->W3_back, mlp->norm_weight, mlp->norm_bias};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
}

void orb_cpu_free_weights(orb_cpu *cpu)
{
    free_mlp(&cpu->encoder);
    for (int t = 0; t < ORB_MAX_LAYERS; t++) {
        orb_cpu_layer *layer = &cpu->layer[t];
        free_mlp(&layer->edge);
        free_mlp(&layer->node);
        float *arrays[] = {layer->project, layer->project_bias, layer->project_back, layer->gate};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    }
    float *arrays[] = {cpu->encoded, cpu->force_hidden, cpu->force_hidden_bias, cpu->force, cpu->force_bias};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
}
