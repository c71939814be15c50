// SPDX-License-Identifier: MIT
// orb_pack.c: Orb's constants in the layout of the kernels, and the layout of a step's arrays. Runs on the host.
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "orb_gpu.h"

const char *orb_gpu_lacks(const orb_parameters *P)
{
    if (P->n_features != ORB_GPU_LATENT || P->n_head != ORB_GPU_LATENT) return "256 features and heads of 256";
    if (P->n_hidden % GPU_SLAB != 0) return "hidden layers of a multiple of 64";
    if (P->n_layers > ORB_GPU_MAX_LAYERS) return "at most 16 layers";
    if (P->max_neighbors > ORB_GPU_MAX_CAP) return "at most 128 neighbors of an atom";
    if (P->edge_input == ORB_GAUSSIAN_UNIT ? P->n_radial != 20 : P->n_radial != 8) return "20 Gaussians or 8 Bessel functions";
    return NULL;
}

// ---- layers

typedef struct part {
    const orb_linear *from;
    int first_input; // of the inputs that this layer reads
    int split;       // outputs from here on read inputs `shift` further; 0: none
    int shift;
} part;

static void weights_of(const void *context, int n, int k, int count, float *values)
{
    const part *b = context;
    const int row = b->split && n >= b->split ? n - b->split : n,
              column = b->first_input + k + (b->split && n >= b->split ? b->shift : 0);
    const float *from = b->from->weight + (size_t)row * (size_t)b->from->n_in + (size_t)column;
    for (int j = 0; j < count; j++) values[j] = from[j];
}

static gpu_linear pack_layer(gpu_packer *p, enum gpu_number numbers, const orb_linear *from)
{
    const part all = {from, 0, 0, 0};
    return gpu_pack_linear(p, numbers, from->n_out, from->n_in, from->bias, weights_of, &all);
}

static void pack_mlp(gpu_packer *p, enum gpu_number numbers, const orb_mlp *from, int first, orb_gpu_mlp *to)
{
    for (int l = first; l < 3; l++) to->layer[l] = pack_layer(p, numbers, &from->linear[l]);
    to->scale = gpu_pack_floats(p, from->norm_weight, ORB_GPU_LATENT);
    to->shift = from->norm_bias ? gpu_pack_floats(p, from->norm_bias, ORB_GPU_LATENT) : NULL;
}

// The transposed layer: output n is the input n of `from`, its inputs the outputs.
static void transposed_weights(const void *context, int n, int k, int count, float *values)
{
    const part *b = context;
    for (int j = 0; j < count; j++) {
        const int row = b->split && k + j >= b->split ? k + j - b->split : k + j,
                  column = b->first_input + n + (b->split && k + j >= b->split ? b->shift : 0);
        values[j] = b->from->weight[(size_t)row * (size_t)b->from->n_in + (size_t)column];
    }
}

static void pack_back(gpu_packer *p, enum gpu_number numbers, const orb_mlp *from, int n_in, gpu_linear to[3])
{
    for (int l = 0; l < 3; l++) {
        const part all = {&from->linear[l], 0, 0, 0};
        to[l] = gpu_pack_linear(p, numbers, l == 0 ? n_in : from->linear[l].n_in, from->linear[l].n_out, NULL, transposed_weights,
                                &all);
    }
}

// Nodes are projected with W_s and the bias, and with W_r; the columns of the first edge layer are [e | sender | receiver].
static bool pack_message_layer(gpu_packer *p, enum gpu_number numbers, const orb_layer *from, bool conservative,
                               orb_gpu_layer *to)
{
    const orb_linear *edge = &from->edge.linear[0];
    const int F = ORB_GPU_LATENT, H = edge->n_out;
    const part of_edge = {edge, 0, 0, 0}, of_nodes = {edge, F, H, F};
    float *bias = calloc(2 * (size_t)H, sizeof *bias), gates[2][ORB_GPU_LATENT];
    if (!bias) return false;
    memcpy(bias, edge->bias, sizeof *bias * (size_t)H);
    to->project = gpu_pack_linear(p, numbers, 2 * H, F, bias, weights_of, &of_nodes);
    free(bias);
    to->edge.layer[0] = gpu_pack_linear(p, numbers, H, F, NULL, weights_of, &of_edge);
    pack_mlp(p, numbers, &from->edge, 1, &to->edge);
    pack_mlp(p, numbers, &from->node, 0, &to->node);
    memcpy(gates[0], from->send.weight, sizeof gates[0]);
    memcpy(gates[1], from->receive.weight, sizeof gates[1]);
    to->gate = gpu_pack_floats(p, gates[0], 2 * ORB_GPU_LATENT);
    to->gate_bias[0] = from->send.bias[0];
    to->gate_bias[1] = from->receive.bias[0];
    if (!conservative) return true;
    pack_back(p, numbers, &from->edge, F, to->edge_back);
    pack_back(p, numbers, &from->node, 3 * F, to->node_back);
    to->project_back = gpu_pack_linear(p, numbers, F, 2 * H, NULL, transposed_weights, &of_nodes);
    return true;
}

// ---- encoded nodes of each element, in float64

static double activate(enum orb_activation kind, double x)
{
    if (kind == ORB_SILU) return x / (1.0 + exp(-x));
    return (x > 20.0 ? x : log1p(exp(x))) - 0.69314718055994530942;
}

static void apply(const orb_linear *layer, const double *x, double *y)
{
    enum { TOGETHER = 8 }; // sums that do not wait for each other; outputs are a multiple of it
    const size_t n_in = (size_t)layer->n_in;
    for (int n = 0; n < layer->n_out; n += TOGETHER) {
        const float *w = layer->weight + (size_t)n * n_in;
        double sum[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) sum[j] = layer->bias[n + j];
        for (size_t k = 0; k < n_in; k++)
            for (size_t j = 0; j < TOGETHER; j++) sum[j] += w[j * n_in + k] * x[k];
        memcpy(y + n, sum, sizeof sum);
    }
}

static void normalize(const orb_mlp *mlp, double epsilon, double *x)
{
    double mean = 0, squares = 0;
    for (int k = 0; k < ORB_GPU_LATENT && mlp->norm_bias; k++) mean += x[k] / ORB_GPU_LATENT;
    for (int k = 0; k < ORB_GPU_LATENT; k++) squares += (x[k] - mean) * (x[k] - mean) / ORB_GPU_LATENT;
    const double scale = 1.0 / sqrt(squares + epsilon);
    for (int k = 0; k < ORB_GPU_LATENT; k++)
        x[k] = (x[k] - mean) * scale * mlp->norm_weight[k] + (mlp->norm_bias ? mlp->norm_bias[k] : 0.0);
}

// Context of gpu_pack_parts: a part is an element, or a message layer.
typedef struct all_parts {
    const orb_parameters *parameters;
    enum gpu_number numbers;
    double epsilon;
    float *node_table;
    orb_gpu_layer *layer;
    atomic_bool failed; // without memory
} all_parts;

static void pack_node(void *context, gpu_packer *p, int z)
{
    all_parts *all = context;
    const orb_parameters *P = all->parameters;
    if (!p->block) return;
    double *x = malloc(sizeof *x * (ORB_GPU_LATENT + 2 * (size_t)P->n_hidden));
    if (!x) {
        all->failed = true;
        return;
    }
    double *a = x + ORB_GPU_LATENT, *b = a + P->n_hidden;
    for (int k = 0; k < ORB_GPU_LATENT; k++) x[k] = P->embedding[(size_t)z * ORB_GPU_LATENT + (size_t)k];
    apply(&P->node_encoder.linear[0], x, a);
    for (int k = 0; k < P->n_hidden; k++) a[k] = activate(P->activation, a[k]);
    apply(&P->node_encoder.linear[1], a, b);
    for (int k = 0; k < P->n_hidden; k++) b[k] = activate(P->activation, b[k]);
    apply(&P->node_encoder.linear[2], b, x);
    normalize(&P->node_encoder, all->epsilon, x);
    for (int k = 0; k < ORB_GPU_LATENT; k++) all->node_table[(size_t)z * ORB_GPU_LATENT + (size_t)k] = (float)x[k];
    free(x);
}

static void pack_layer_part(void *context, gpu_packer *p, int t)
{
    all_parts *all = context;
    const orb_parameters *P = all->parameters;
    if (!pack_message_layer(p, all->numbers, &P->layer[t], P->conservative, &all->layer[t])) all->failed = true;
}

// orb-models takes radius and charge of the next element.
static const float *pack_repulsion(gpu_packer *p, const orb_parameters *P)
{
    float table[MLFF_MAX_ATOMIC_NUMBER + 1][2];
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        table[z][0] = (float)P->repulsion_radius[z];
        table[z][1] = (float)pow(z + 1.0, 0.3);
    }
    return gpu_pack_floats(p, table[0], 2 * (MLFF_MAX_ATOMIC_NUMBER + 1));
}

// ---- heads

static orb_gpu_output pack_output(gpu_packer *p, const orb_linear *from)
{
    orb_gpu_output to = {0};
    if (!from->weight) return to;
    to.weight = gpu_pack_floats(p, from->weight, (size_t)from->n_out * (size_t)from->n_in);
    to.bias = gpu_pack_floats(p, from->bias, (size_t)from->n_out);
    return to;
}

// The hidden layers of energy and stress, one below the other.
static void system_weights(const void *context, int n, int k, int count, float *values)
{
    const orb_parameters *P = context;
    const orb_linear *from = n < ORB_GPU_LATENT ? &P->energy.linear[0] : &P->stress.linear[0];
    const float *row = from->weight ? from->weight + (size_t)(n % ORB_GPU_LATENT) * (size_t)from->n_in + (size_t)k : NULL;
    for (int j = 0; j < count; j++) values[j] = row ? row[j] : 0.0f;
}

static void pack_heads(gpu_packer *p, enum gpu_number numbers, const orb_parameters *P, orb_gpu_step *step, orb_gpu_model *host)
{
    float bias[2 * ORB_GPU_LATENT] = {0};
    memcpy(bias, P->energy.linear[0].bias, sizeof bias / 2);
    if (P->stress.linear[0].weight) memcpy(bias + ORB_GPU_LATENT, P->stress.linear[0].bias, sizeof bias / 2);
    host->system_hidden = gpu_pack_linear(p, numbers, 2 * ORB_GPU_LATENT, ORB_GPU_LATENT, bias, system_weights, P);
    step->has_forces = P->forces.linear[0].weight != NULL;
    step->has_stress = P->stress.linear[0].weight != NULL;
    if (step->has_forces) host->force_hidden = pack_layer(p, numbers, &P->forces.linear[0]);
    step->energy = pack_output(p, &P->energy.linear[1]);
    step->force = pack_output(p, &P->forces.linear[1]);
    step->stress = pack_output(p, &P->stress.linear[1]);
    step->n_bins = P->n_bins;
    if (P->n_bins > 0) {
        host->error_hidden = pack_layer(p, numbers, &P->confidence.linear[0]);
        step->confidence = pack_output(p, &P->confidence.linear[1]);
        step->bin_edges = gpu_pack_floats(p, P->confidence_edges, (size_t)P->n_bins + 1);
    }
    step->energy_scale = P->energy_scale, step->energy_mean = P->energy_mean;
    step->force_scale = P->force_scale, step->force_mean = P->force_mean;
    memcpy(step->stress_scale, P->stress_scale, sizeof step->stress_scale);
    memcpy(step->stress_mean, P->stress_mean, sizeof step->stress_mean);
}

// Frequencies of charge and spin, and the layers' weights with the input first.
static void pack_condition(gpu_packer *p, const orb_parameters *P, orb_gpu_step *step)
{
    const size_t F = ORB_GPU_LATENT, quarter = F / 4;
    const void *at;
    float *frequency = gpu_pack(p, sizeof(float) * 2 * quarter, &at);
    step->frequency = at;
    for (size_t k = 0; frequency && k < quarter; k++) {
        frequency[k] = P->charge_frequency[k];
        frequency[quarter + k] = P->spin_frequency[k];
    }
    float *weight = gpu_pack(p, sizeof(float) * (size_t)P->n_layers * F * F, &at);
    step->condition_weight = at;
    float *bias = gpu_pack(p, sizeof(float) * (size_t)P->n_layers * F, &at);
    step->condition_bias = at;
    for (size_t t = 0; weight && bias && t < (size_t)P->n_layers; t++)
        for (size_t f = 0; f < F; f++) {
            bias[t * F + f] = P->layer[t].condition.bias[f];
            for (size_t k = 0; k < F; k++) weight[(t * F + k) * F + f] = P->layer[t].condition.weight[f * F + k];
        }
}

bool orb_gpu_pack(const orb_parameters *P, const mlff_model *model, void *block, size_t *bytes, const void *base,
                  orb_gpu_step *step, orb_gpu_model *host)
{
    gpu_packer p = {block, base, 0};
    const void *device;
    const enum gpu_number numbers = (enum gpu_number)step->numbers;
    const double epsilon = P->norm_epsilon;
    step->model = host;
    step->activation = P->activation == ORB_SILU ? GPU_SILU : GPU_SHIFTED_SOFTPLUS;
    step->n_layers = P->n_layers;
    step->hidden = P->n_hidden;
    step->edge_inputs = (P->n_edge_inputs + 63) / 64 * 64;
    step->bessel = P->edge_input == ORB_BESSEL_HARMONICS;
    step->cap = P->max_neighbors;
    step->conservative = P->conservative;
    step->repulsion_is_mean = P->repulsion == ORB_REPULSION_MEAN;
    step->norm_epsilon = (float)epsilon;
    step->stamp_heads = ORB_GPU_STAMP_LAYERS + 2 * P->n_layers;
    step->gpu.length_unit = model->length_unit;
    step->gpu.energy_unit = model->energy_unit;
    step->gpu.neighbors.cutoff = P->cutoff;
    step->gpu.neighbors.inverse_unit = 1.0 / model->length_unit;
    step->gpu.neighbors.tag_bits = 0; // an edge's `packed` is the neighbor
    step->gpu.neighbors.n_species = MLFF_MAX_ATOMIC_NUMBER + 1;
    double *offset = gpu_pack(&p, sizeof(double) * (MLFF_MAX_ATOMIC_NUMBER + 1), &device);
    step->gpu.neighbors.offset = device;
    for (int z = 0; offset && z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        offset[z] = z < P->n_species && model->known[z] ? model->offset[z] : NAN;
    step->repulsion_table = P->repulsion == ORB_NO_REPULSION ? NULL : pack_repulsion(&p, P);
    all_parts all = {P,           numbers, epsilon, gpu_pack(&p, sizeof(float) * (size_t)P->n_species * ORB_GPU_LATENT, &device),
                     host->layer, false};
    step->node_table = device;
    gpu_pack_parts(&p, P->n_species, pack_node, &all);
    pack_mlp(&p, numbers, &P->edge_encoder, 0, &host->encoder);
    gpu_pack_parts(&p, P->n_layers, pack_layer_part, &all);
    orb_gpu_layer *layers = gpu_pack(&p, sizeof *layers * (size_t)P->n_layers, &device);
    step->layers = device;
    if (layers) memcpy(layers, host->layer, sizeof *layers * (size_t)P->n_layers);
    if (P->conservative) pack_back(&p, numbers, &P->edge_encoder, P->n_edge_inputs, host->encoder_back);
    pack_heads(&p, numbers, P, step, host);
    if (P->conservative)
        step->energy_back = gpu_pack_floats(&p, P->energy.linear[0].weight, (size_t)ORB_GPU_LATENT * ORB_GPU_LATENT);
    if (P->conditioned) pack_condition(&p, P, step);
    *bytes = p.at;
    return !all.failed;
}

// ---- arrays of a step

static void place_operand(gpu_packer *p, gpu_operand *m, size_t rows, int columns, int both)
{
    const void *high, *low = NULL;
    gpu_pack(p, gpu_plane_bytes(rows, columns), &high);
    if (both) gpu_pack(p, gpu_plane_bytes(rows, columns), &low);
    *m = (gpu_operand){(void *)(uintptr_t)high, (void *)(uintptr_t)low, columns};
}

#define PLACE(field, bytes) (gpu_pack(p, bytes, &at), step->field = (void *)(uintptr_t)at)

static void place_graph(gpu_packer *p, orb_gpu_step *step, size_t n, size_t e)
{
    const void *at;
    PLACE(n_edges, sizeof(int32_t));
    PLACE(first_edge, (n + 1) * sizeof(int32_t));
    PLACE(count, n * sizeof(int32_t));
    PLACE(incoming_first, (n + 1) * sizeof(int32_t));
    PLACE(incoming_next, n * sizeof(int32_t));
    PLACE(incoming_unsorted, e * sizeof(int32_t));
    PLACE(incoming_edge, e * sizeof(int32_t));
    PLACE(sender, e * sizeof(int32_t));
    PLACE(receiver, e * sizeof(int32_t));
    PLACE(geometry, e * 4 * sizeof(float));
    PLACE(envelope, e * sizeof(float));
}

// What the reverse pass reads and writes: `both` planes of hidden features.
static void place_adjoints(gpu_packer *p, orb_gpu_step *step, size_t n, size_t e, size_t systems, int both)
{
    const void *at;
    const size_t real = sizeof(float), T = (size_t)step->n_layers, chunk = (size_t)step->chunk, F = ORB_GPU_LATENT;
    for (int k = 0; k < 2; k++) {
        place_operand(p, &step->of_edges.hidden[k], (T + 1) * e, step->hidden, both);
        place_operand(p, &step->of_nodes.hidden[k], T * n, step->hidden, both);
    }
    PLACE(of_edges.inverse, (T + 1) * e * real);
    PLACE(of_nodes.z, T * n * F * real);
    PLACE(of_nodes.inverse, T * n * real);
    PLACE(system_bar, systems * F * real);
    PLACE(nodes_bar, n * F * real);
    PLACE(edges_bar, e * F * real);
    PLACE(context_bar, n * 3 * F * real);
    PLACE(envelope_bar, e * real);
    place_operand(p, &step->y_bar, chunk, (int)F, both);
    PLACE(row_scale, e * real);
    PLACE(node_scale, n * real);
    place_operand(p, &step->hidden_sums, n, 2 * step->hidden, both);
    PLACE(hidden_sums_scale, n * real);
    PLACE(input_bar, chunk * (size_t)step->edge_inputs * real);
    PLACE(gradient, e * 4 * real);
}

size_t orb_gpu_arena(orb_gpu_step *step, void *base)
{
    gpu_packer packer = {NULL, base, 0}, *p = &packer;
    const void *at;
    const int both = step->numbers == GPU_NUMBER_FLOAT32, row = step->gpu.neighbors.row_capacity;
    // Tiles of 128 rows read whole.
    const size_t n = ((size_t)step->gpu.neighbors.atom_capacity + 127) / 128 * 128, real = sizeof(float);
    const size_t e = (n * (size_t)(row < step->cap ? row : step->cap) + 127) / 128 * 128;
    const size_t systems = ((size_t)step->gpu.neighbors.system_capacity + 127) / 128 * 128;
    const size_t layers = step->conservative ? (size_t)step->n_layers : 1, slots = step->conservative ? layers + 1 : 1;
    step->edge_capacity = (int32_t)e;
    step->atom_rows = (int32_t)n;
    step->chunk = (int32_t)(e < ORB_GPU_CHUNK ? e : ORB_GPU_CHUNK);
    if (step->chunk < (int32_t)n) step->chunk = (int32_t)(n < ORB_GPU_CHUNK ? n : ORB_GPU_CHUNK);
    const size_t chunk = (size_t)step->chunk;
    place_graph(p, step, n, e);
    place_operand(p, &step->input, chunk, step->edge_inputs, both);
    place_operand(p, &step->hidden_a, chunk, step->hidden, both);
    place_operand(p, &step->hidden_b, chunk, step->hidden, both);
    place_operand(p, &step->edges, e, ORB_GPU_LATENT, 1);
    PLACE(of_edges.z, slots * e * ORB_GPU_LATENT * real);
    PLACE(gates, layers * e * GPU_LOGIT_PARTS * 2 * real);
    place_operand(p, &step->nodes, n, ORB_GPU_LATENT, 1);
    place_operand(p, &step->gathered, n, 2 * ORB_GPU_LATENT, both);
    PLACE(projection, n * 2 * (size_t)step->hidden * real);
    PLACE(atom_hidden, n * ORB_GPU_LATENT * real);
    PLACE(raw_force, n * 3 * real);
    PLACE(condition, (step->frequency ? systems * (size_t)step->n_layers * ORB_GPU_LATENT : 1) * real);
    place_operand(p, &step->pooled, systems, ORB_GPU_LATENT, both);
    place_operand(p, &step->pooled_hidden, systems, 2 * ORB_GPU_LATENT, 1);
    PLACE(system_hidden_values, systems * 2 * ORB_GPU_LATENT * real);
    if (!step->conservative && step->hidden == GPU_NETWORK_HIDDEN) PLACE(exchange, (size_t)ORB_GPU_SLOTS * ORB_GPU_SLOT_BYTES);
    PLACE(repulsion, (step->repulsion_table ? n : 1) * sizeof(orb_gpu_repulsion));
    PLACE(system, systems * sizeof(orb_gpu_system));
    if (step->conservative) place_adjoints(p, step, n, e, systems, both);
    return (p->at + 255) / 256 * 256;
}
#undef PLACE
