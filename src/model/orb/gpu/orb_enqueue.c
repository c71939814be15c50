// SPDX-License-Identifier: MIT
// orb_enqueue.c: the kernels of a step in order. Numbers of rows are upper bounds: kernels read the true ones from device memory.
#include "orb_gpu.h"

typedef struct launcher {
    const orb_gpu_step *step;
    const gpu_plan *plan;
    int hopper, tiles, n_edges, error;
    void *stream;
} launcher;

// Runs a launch unless an earlier one has failed.
#define RUN(l, call) ((l)->error = (l)->error ? (l)->error : (call))

static gpu_linear_plan plan_for(const launcher *l, int rows, int outputs)
{
    gpu_linear_plan plan =
        gpu_linear_choose((enum gpu_number)l->step->numbers, rows, outputs, l->plan->n_multiprocessors, l->hopper);
    if (l->tiles >= 0) plan.wide = l->tiles;
    plan.overlap = l->plan->overlap;
    return plan;
}

// An array of a chunk, addressed by the rows of the whole: the address of row 0.
static gpu_operand from_row(gpu_operand m, int first)
{
    const uintptr_t back = (uintptr_t)(first / GPU_SLAB) * GPU_SLAB * 2 * (uintptr_t)m.columns;
    m.high = (void *)((uintptr_t)m.high - back);
    if (m.low) m.low = (void *)((uintptr_t)m.low - back);
    return m;
}

static gpu_product product(gpu_operand a, const gpu_linear *layer, const int32_t *n_rows, int first, int rows)
{
    return (gpu_product){.a = {a}, .layer = *layer, .n_rows = n_rows, .first_row = first, .rows = rows};
}

static uint64_t *stamp_at(const launcher *l, int stage)
{
    return l->step->gpu.stamps ? l->step->gpu.stamps + stage : NULL;
}

// The second and the third layer of an MLP, of rows whose first hidden layer is in hidden_a.
static void finish_edges(launcher *l, const orb_gpu_mlp *mlp, orb_gpu_update *update, int first, int rows)
{
    const orb_gpu_step *s = l->step;
    const gpu_operand a = from_row(s->hidden_a, first), b = from_row(s->hidden_b, first);
    const gpu_linear_plan middle = plan_for(l, l->n_edges, s->hidden), last = plan_for(l, l->n_edges, ORB_GPU_LATENT);
    const gpu_dense second = {
        .product = product(a, &mlp->layer[1], s->n_edges, first, rows), .activation = s->activation, .out = b};
    RUN(l, orb_gpu_launch_edge_dense(&second, &middle, l->stream));
    update->product = product(b, &mlp->layer[2], s->n_edges, first, rows);
    update->scale = mlp->scale, update->shift = mlp->shift, update->epsilon = s->norm_epsilon;
    update->latent = s->edges, update->gates = s->gates, update->message = s->message;
    RUN(l, orb_gpu_launch_edge_update(update, &last, l->stream));
}

static void encode(launcher *l)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_mlp *mlp = &s->model->encoder;
    const gpu_linear_plan plan = plan_for(l, l->n_edges, s->hidden);
    for (int first = 0; first < l->n_edges; first += s->chunk) {
        const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
        const gpu_dense dense = {.product = product(from_row(s->input, first), &mlp->layer[0], s->n_edges, first, rows),
                                 .activation = s->activation,
                                 .out = from_row(s->hidden_a, first)};
        orb_gpu_update update = {.replaces = 1};
        RUN(l, orb_gpu_launch_inputs(s, l->plan, first, l->stream));
        RUN(l, orb_gpu_launch_edge_dense(&dense, &plan, l->stream));
        finish_edges(l, mlp, &update, first, rows);
    }
    RUN(l, orb_gpu_launch_nodes(s, l->plan, l->stream));
}

static void send_messages(launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_layer *layer = &s->model->layer[t];
    const int32_t *n_atoms = &s->gpu.call->n_atoms;
    const gpu_linear_plan of_nodes = plan_for(l, l->plan->n_atoms, 2 * s->hidden), of_edges = plan_for(l, l->n_edges, s->hidden);
    gpu_dense projection = {.product = product(s->nodes, &layer->project, n_atoms, 0, l->plan->n_atoms),
                            .values = s->projection,
                            .stride = 2 * s->hidden};
    projection.product.stamp = stamp_at(l, ORB_GPU_STAMP_LAYERS + 2 * t);
    RUN(l, orb_gpu_launch_edge_dense(&projection, &of_nodes, l->stream));
    for (int first = 0; first < l->n_edges; first += s->chunk) {
        const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
        orb_gpu_gather gather = {.product = product(s->edges, &layer->edge.layer[0], s->n_edges, first, rows),
                                 .activation = s->activation,
                                 .out = from_row(s->hidden_a, first),
                                 .projection = s->projection,
                                 .sender = s->sender,
                                 .receiver = s->receiver};
        orb_gpu_update update = {.keeps = t + 1 == s->n_layers, .gate = layer->gate};
        gather.product.early = ORB_GPU_LATENT; // written in the previous layer
        RUN(l, orb_gpu_launch_gather(&gather, &of_edges, l->stream));
        finish_edges(l, &layer->edge, &update, first, rows);
    }
    orb_gpu_step summed = *s;
    summed.gate_parts = plan_for(l, l->n_edges, ORB_GPU_LATENT).wide == 2 ? ORB_GPU_GATE_PARTS : 1;
    RUN(l, orb_gpu_launch_sum_messages(&summed, l->plan, t, l->stream));
}

static void update_nodes(launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_mlp *mlp = &s->model->layer[t].node;
    const int32_t *n_atoms = &s->gpu.call->n_atoms;
    const int n = l->plan->n_atoms;
    const gpu_linear_plan middle = plan_for(l, n, s->hidden), last = plan_for(l, n, ORB_GPU_LATENT);
    for (int first = 0; first < n; first += s->chunk) {
        const int rows = n - first < s->chunk ? n - first : s->chunk;
        const gpu_operand a = from_row(s->hidden_a, first), b = from_row(s->hidden_b, first);
        gpu_dense hidden = {
            .product = product(s->nodes, &mlp->layer[0], n_atoms, first, rows), .activation = s->activation, .out = a};
        hidden.product.a[1] = s->gathered;
        hidden.product.early = ORB_GPU_LATENT; // of nodes
        RUN(l, orb_gpu_launch_node_dense(&hidden, &middle, l->stream));
        hidden.product = product(a, &mlp->layer[1], n_atoms, first, rows);
        hidden.out = b;
        RUN(l, orb_gpu_launch_node_dense(&hidden, &middle, l->stream));
        const orb_gpu_update update = {.product = product(b, &mlp->layer[2], n_atoms, first, rows),
                                       .scale = mlp->scale,
                                       .shift = mlp->shift,
                                       .epsilon = s->norm_epsilon,
                                       .latent = s->nodes};
        RUN(l, orb_gpu_launch_node_update(&update, &last, l->stream));
    }
}

static void read_out(launcher *l)
{
    const orb_gpu_step *s = l->step;
    const gpu_motion *motion = &s->gpu.motion;
    if (l->plan->forces && s->has_forces) {
        const gpu_linear_plan plan = plan_for(l, l->plan->n_atoms, ORB_GPU_LATENT);
        gpu_dense hidden = {.product = product(s->nodes, &s->model->force_hidden, &s->gpu.call->n_atoms, 0, l->plan->n_atoms),
                            .activation = s->activation,
                            .values = s->atom_hidden,
                            .stride = ORB_GPU_LATENT};
        hidden.product.stamp = stamp_at(l, s->stamp_heads);
        RUN(l, gpu_launch_dense(&hidden, &plan, l->stream));
        RUN(l, orb_gpu_launch_forces(s, l->plan, l->stream));
    }
    if (motion->n_atoms > 0 && motion->place + 1 < motion->n_steps) return; // energies of the last step of dynamics only
    const gpu_linear_plan plan = plan_for(l, l->plan->n_systems, 2 * ORB_GPU_LATENT);
    const gpu_dense hidden = {.product =
                                  product(s->pooled, &s->model->system_hidden, &s->gpu.call->n_systems, 0, l->plan->n_systems),
                              .activation = s->activation,
                              .values = s->system_hidden_values,
                              .stride = 2 * ORB_GPU_LATENT};
    RUN(l, orb_gpu_launch_pool(s, l->plan, !l->plan->forces, l->stream));
    RUN(l, gpu_launch_dense(&hidden, &plan, l->stream));
    RUN(l, orb_gpu_launch_sums(s, l->plan, l->stream));
}

int orb_gpu_enqueue(const orb_gpu_step *step, const gpu_plan *plan, int hopper, int tiles, void *stream)
{
    const int64_t edges = (int64_t)plan->n_atoms * step->cap;
    launcher l = {.step = step, .plan = plan, .hopper = hopper, .tiles = tiles, .stream = stream};
    l.n_edges = edges < step->edge_capacity ? (int)edges : step->edge_capacity;
    RUN(&l, orb_gpu_launch_graph(step, plan, stream));
    if (step->repulsion_table) RUN(&l, orb_gpu_launch_repulsion(step, plan, stream));
    encode(&l);
    for (int t = 0; t < step->n_layers; t++) {
        send_messages(&l, t);
        update_nodes(&l, t);
    }
    read_out(&l);
    return l.error;
}
