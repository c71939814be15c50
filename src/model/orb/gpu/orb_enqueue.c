// SPDX-License-Identifier: MIT
// orb_enqueue.c: the kernels of a step in order. Numbers of rows are upper bounds: kernels read the true ones from device memory.
#include <cuda_runtime_api.h>

#include "orb_enqueue.h"

// The second and the third layer of an MLP, of rows whose first hidden layer is in hidden_a.
static void finish_edges(orb_launcher *l, const orb_gpu_mlp *mlp, const orb_gpu_kept *kept, orb_gpu_update *update, int first,
                         int rows)
{
    const orb_gpu_step *s = l->step;
    const gpu_operand a = orb_rows_from(s->hidden_a, -first), b = orb_rows_from(s->hidden_b, -first);
    const gpu_linear_plan middle = orb_plan_for(l, l->n_edges, s->hidden), last = orb_plan_for(l, l->n_edges, ORB_GPU_LATENT);
    const gpu_dense second = {.product = orb_product(a, &mlp->layer[1], s->n_edges, first, rows),
                              .activation = s->activation,
                              .out = b,
                              .keep = kept->hidden[1]};
    RUN(l, orb_gpu_launch_edge_dense(&second, &middle, l->stream));
    update->product = orb_product(b, &mlp->layer[2], s->n_edges, first, rows);
    update->scale = mlp->scale, update->shift = mlp->shift, update->epsilon = s->norm_epsilon;
    update->latent = s->edges, update->inverse = kept->inverse;
    RUN(l, orb_gpu_launch_edge_update(update, &last, l->stream));
}

// All three layers of a network of edges, of layer t or, if it is −1, of the encoder; `update`: its last layer but for product and norm.
static void fuse_edges(orb_launcher *l, const orb_gpu_mlp *mlp, gpu_operand input, const orb_gpu_update *update, int first,
                       int rows, int t)
{
    const orb_gpu_step *s = l->step;
    const gpu_linear_plan plan = orb_plan_for(l, rows, s->hidden);
    orb_gpu_network network = {.net = {.input = {input},
                                       .layer = {mlp->layer[0], mlp->layer[1], mlp->layer[2]},
                                       .n_rows = s->n_edges,
                                       .first_row = first,
                                       .rows = rows,
                                       .early = t >= 0, // written in the previous layer
                                       .blocks = orb_edge_blocks(l),
                                       .tile_rows = orb_edge_rows(l)},
                               .update = *update};
    network.update.product.layer = mlp->layer[2];
    network.update.scale = mlp->scale, network.update.shift = mlp->shift, network.update.epsilon = s->norm_epsilon;
    network.update.latent = s->edges;
    if (orb_projects_early(l, t - 1)) network.net.stamp = orb_stamp_at(l, ORB_GPU_STAMP_LAYERS + 2 * t);
    if (t >= 0) network.projection = s->projection, network.sender = s->sender, network.receiver = s->receiver;
    RUN(l, orb_gpu_launch_network(&network, &plan, l->stream));
}

static void encode(orb_launcher *l)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_mlp *mlp = &s->model->encoder;
    const orb_gpu_kept kept = orb_kept_at(s, &s->of_edges, s->n_layers, s->edge_capacity);
    const gpu_linear_plan plan = orb_plan_for(l, l->n_edges, s->hidden);
    if (s->frequency) RUN(l, orb_gpu_launch_condition(s, l->plan, l->stream));
    for (int first = 0; first < l->n_edges; first += s->chunk) {
        const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
        const gpu_dense dense = {.product = orb_product(orb_rows_from(s->input, -first), &mlp->layer[0], s->n_edges, first, rows),
                                 .activation = s->activation,
                                 .out = orb_rows_from(s->hidden_a, -first),
                                 .keep = kept.hidden[0]};
        orb_gpu_update update = {.replaces = 1, .z = kept.z};
        RUN(l, orb_gpu_launch_inputs(s, l->plan, first, l->stream));
        if (orb_edge_blocks(l)) {
            fuse_edges(l, mlp, orb_rows_from(s->input, -first), &update, first, rows, -1);
            continue;
        }
        RUN(l, orb_gpu_launch_edge_dense(&dense, &plan, l->stream));
        finish_edges(l, mlp, &kept, &update, first, rows);
    }
    // Behind the edges: kernels of a layer read these before the kernel in front of them is complete.
    const int cleared = l->exchanges ? ORB_GPU_NODE_UNITS(l->plan->n_atoms) * ORB_GPU_NODE_UNIT_BYTES : 0;
    RUN(l, orb_gpu_launch_nodes(s, l->plan, cleared, l->stream));
}

static void send_messages(orb_launcher *l, int t)
{
    const int fused = orb_edge_blocks(l) > 0;
    const orb_gpu_step *s = l->step;
    const orb_gpu_layer *layer = &s->model->layer[t];
    const orb_gpu_kept kept = orb_kept_at(s, &s->of_edges, t, s->edge_capacity);
    const int32_t *n_atoms = &s->gpu.call->n_atoms;
    const gpu_linear_plan of_nodes = orb_plan_for(l, l->plan->n_atoms, 2 * s->hidden),
                          of_edges = orb_plan_for(l, l->n_edges, s->hidden);
    gpu_attention attention = orb_attention_of(l, t);
    gpu_dense projection = {.product = orb_product(s->nodes, &layer->project, n_atoms, 0, l->plan->n_atoms),
                            .values = s->projection,
                            .rounds = fused && s->numbers != GPU_NUMBER_FLOAT32,
                            .stride = 2 * s->hidden};
    projection.product.stamp = orb_stamp_at(l, ORB_GPU_STAMP_LAYERS + 2 * t);
    if (!orb_projects_early(l, t - 1)) RUN(l, orb_gpu_launch_edge_dense(&projection, &of_nodes, l->stream));
    const orb_gpu_update update = {.keeps = t + 1 == s->n_layers,
                                   .gate = layer->gate,
                                   .gates = (float *)(uintptr_t)attention.logits,
                                   .z = (float *)(uintptr_t)attention.z,
                                   .halves = attention.halves};
    if (fused) fuse_edges(l, &layer->edge, s->edges, &update, 0, l->n_edges, t);
    for (int first = 0; first < l->n_edges && !fused; first += s->chunk) {
        const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
        orb_gpu_gather gather = {.product = orb_product(s->edges, &layer->edge.layer[0], s->n_edges, first, rows),
                                 .activation = s->activation,
                                 .out = orb_rows_from(s->hidden_a, -first),
                                 .keep = kept.hidden[0],
                                 .projection = s->projection,
                                 .sender = s->sender,
                                 .receiver = s->receiver};
        orb_gpu_update last = update;
        if (orb_projects_early(l, t - 1)) gather.product.stamp = orb_stamp_at(l, ORB_GPU_STAMP_LAYERS + 2 * t);
        gather.product.early = ORB_GPU_LATENT; // written in the previous layer
        RUN(l, orb_gpu_launch_gather(&gather, &of_edges, l->stream));
        finish_edges(l, &layer->edge, &kept, &last, first, rows);
    }
    if (l->exchanges) return;
    attention.out = s->gathered;
    attention.stamp = orb_stamp_at(l, ORB_GPU_STAMP_LAYERS + 2 * t + 1);
    RUN(l, gpu_launch_attention(&attention, (enum gpu_number)s->numbers, l->plan->n_atoms, l->plan->overlap, l->stream));
}

// The same of nodes.
static void fuse_nodes(orb_launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_mlp *mlp = &s->model->layer[t].node;
    const gpu_linear_plan plan = orb_plan_for(l, l->plan->n_atoms, s->hidden);
    orb_gpu_network network = {.net = {.input = {s->nodes, s->gathered},
                                       .layer = {mlp->layer[0], mlp->layer[1], mlp->layer[2]},
                                       .n_rows = &s->gpu.call->n_atoms,
                                       .rows = l->plan->n_atoms,
                                       .early = 1, // nodes
                                       .blocks = orb_node_blocks(l)},
                               .update = {.product.layer = mlp->layer[2],
                                          .scale = mlp->scale,
                                          .shift = mlp->shift,
                                          .epsilon = s->norm_epsilon,
                                          .latent = s->nodes}};
    if (orb_projects_early(l, t)) network.net.project = s->model->layer[t + 1].project, network.projects = s->projection;
    RUN(l, orb_gpu_launch_node_network(&network, &plan, l->stream));
}

// Sums of messages, the network, and the next layer's projections.
static void exchange_nodes(orb_launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_mlp *mlp = &s->model->layer[t].node;
    orb_gpu_node_layers layers = {.attention = orb_attention_of(l, t),
                                  .mlp = *mlp,
                                  .epsilon = s->norm_epsilon,
                                  .nodes = s->nodes,
                                  .exchange = s->exchange + (size_t)(t % 2) * ORB_GPU_NODE_SLOT_BYTES,
                                  .next_exchange = s->exchange + (size_t)((t + 1) % 2) * ORB_GPU_NODE_SLOT_BYTES};
    layers.attention.stamp = orb_stamp_at(l, ORB_GPU_STAMP_LAYERS + 2 * t + 1);
    if (orb_projects_early(l, t)) {
        layers.project = s->model->layer[t + 1].project, layers.projects = s->projection;
        layers.rounds = orb_edge_blocks(l) && s->numbers != GPU_NUMBER_FLOAT32;
    }
    RUN(l, orb_gpu_launch_node_layers(&layers, (enum gpu_number)s->numbers, l->plan, l->stream));
}

static void update_nodes(orb_launcher *l, int t)
{
    if (l->exchanges) {
        exchange_nodes(l, t);
        return;
    }
    if (orb_node_blocks(l)) {
        fuse_nodes(l, t);
        return;
    }
    const orb_gpu_step *s = l->step;
    const orb_gpu_mlp *mlp = &s->model->layer[t].node;
    const int32_t *n_atoms = &s->gpu.call->n_atoms;
    const orb_gpu_kept kept = orb_kept_at(s, &s->of_nodes, t, s->atom_rows);
    const int n = l->plan->n_atoms;
    const gpu_linear_plan middle = orb_plan_for(l, n, s->hidden), last = orb_plan_for(l, n, ORB_GPU_LATENT);
    for (int first = 0; first < n; first += s->chunk) {
        const int rows = n - first < s->chunk ? n - first : s->chunk;
        const gpu_operand a = orb_rows_from(s->hidden_a, -first), b = orb_rows_from(s->hidden_b, -first);
        gpu_dense hidden = {
            .product = orb_product(s->nodes, &mlp->layer[0], n_atoms, first, rows), .activation = s->activation, .out = a};
        hidden.product.a[1] = s->gathered;
        hidden.product.early = ORB_GPU_LATENT; // of nodes
        hidden.keep = kept.hidden[0];
        RUN(l, orb_gpu_launch_node_dense(&hidden, &middle, l->stream));
        hidden.product = orb_product(a, &mlp->layer[1], n_atoms, first, rows);
        hidden.out = b;
        hidden.keep = kept.hidden[1];
        RUN(l, orb_gpu_launch_node_dense(&hidden, &middle, l->stream));
        orb_gpu_update update = {.product = orb_product(b, &mlp->layer[2], n_atoms, first, rows),
                                 .scale = mlp->scale,
                                 .shift = mlp->shift,
                                 .epsilon = s->norm_epsilon,
                                 .latent = s->nodes,
                                 .z = kept.z,
                                 .inverse = kept.inverse};
        if (s->frequency && t + 1 < s->n_layers) {
            update.added = s->condition + (size_t)(t + 1) * ORB_GPU_LATENT;
            update.stride = s->n_layers * ORB_GPU_LATENT;
            update.system_of = l->plan->n_systems == 1 ? NULL : s->gpu.neighbors.system_of;
        }
        RUN(l, orb_gpu_launch_node_update(&update, &last, l->stream));
    }
}

// The encoder and all layers.
static void run_layers(orb_launcher *l)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_layers layers = {.encoder = s->model->encoder,
                                   .layer = s->layers,
                                   .n_layers = s->n_layers,
                                   .epsilon = s->norm_epsilon,
                                   .node_table = s->node_table,
                                   .nodes = s->nodes,
                                   .n_atoms = &s->gpu.call->n_atoms,
                                   .n_edges = s->n_edges,
                                   .first_edge = s->first_edge,
                                   .incoming_first = s->incoming_first,
                                   .incoming_edge = s->incoming_edge,
                                   .sender = s->sender,
                                   .receiver = s->receiver,
                                   .species = s->gpu.neighbors.species,
                                   .geometry = s->geometry,
                                   .envelope = s->envelope,
                                   .exchange = s->exchange,
                                   .stamps = orb_stamp_at(l, ORB_GPU_STAMP_ENCODER)};
    RUN(l, orb_gpu_launch_layers(&layers, (enum gpu_number)s->numbers, l->plan, l->n_edges, l->stream));
}

// The hidden layers of energy and stress, of the mean of a system's nodes; `aside`: on the second stream, which waits for what is enqueued.
static void pool(orb_launcher *l, int aside)
{
    const orb_gpu_step *s = l->step;
    const gpu_linear_plan plan = orb_plan_for(l, l->plan->n_systems, 2 * ORB_GPU_LATENT);
    void *const stream = aside ? l->side.stream : l->stream;
    gpu_plan first = *l->plan;
    if (aside) first.overlap = 0;
    gpu_dense hidden = {.product =
                            orb_product(s->pooled, &s->model->system_hidden, &s->gpu.call->n_systems, 0, l->plan->n_systems),
                        .activation = s->activation,
                        .values = s->system_hidden_values,
                        .stride = 2 * ORB_GPU_LATENT};
    if (s->saves) hidden.keep = s->pooled_hidden;
    RUN(l, orb_gpu_launch_pool(s, &first, !aside, stream));
    RUN(l, gpu_launch_dense(&hidden, &plan, stream));
}

// A head's hidden layer, of each node, into atom_hidden.
static void hide_nodes(orb_launcher *l, const gpu_linear *layer, uint64_t *stamp)
{
    const orb_gpu_step *s = l->step;
    const gpu_linear_plan plan = orb_plan_for(l, l->plan->n_atoms, ORB_GPU_LATENT);
    gpu_dense hidden = {.product = orb_product(s->nodes, layer, &s->gpu.call->n_atoms, 0, l->plan->n_atoms),
                        .activation = s->activation,
                        .values = s->atom_hidden,
                        .stride = ORB_GPU_LATENT};
    hidden.product.stamp = stamp;
    RUN(l, gpu_launch_dense(&hidden, &plan, l->stream));
}

// Direct forces, and on a second stream beside them the hidden layers of the energy, if it is wanted.
static void read_forces(orb_launcher *l, int wants_energy)
{
    const orb_gpu_step *s = l->step;
    if (wants_energy) {
        RUN(l, (int)cudaEventRecord(l->side.forked, l->stream));
        RUN(l, (int)cudaStreamWaitEvent(l->side.stream, l->side.forked, 0));
        pool(l, 1);
        RUN(l, (int)cudaEventRecord(l->side.joined, l->side.stream));
    }
    hide_nodes(l, &s->model->force_hidden, orb_stamp_at(l, s->stamp_heads));
    RUN(l, orb_gpu_launch_forces(s, l->plan, l->stream));
    if (wants_energy) RUN(l, (int)cudaStreamWaitEvent(l->stream, l->side.joined, 0));
}

static void read_out(orb_launcher *l)
{
    const orb_gpu_step *s = l->step;
    const gpu_motion *motion = &s->gpu.motion;
    const int wants_energy =
        motion->n_atoms == 0 || motion->place + 1 == motion->n_steps; // of dynamics, in a graph's last step only
    const int forces = l->plan->forces && s->has_forces,
              few = s->has_forces && l->hopper && l->plan->n_systems == 1 && l->plan->n_atoms <= ORB_GPU_FEW_ATOMS;
    if (l->plan->errors && s->n_bins > 0) {
        hide_nodes(l, &s->model->error_hidden, NULL);
        RUN(l, orb_gpu_launch_errors(s, l->plan, l->stream));
    }
    if (few) {
        const orb_gpu_heads heads = {.step = *s,
                                     .force_hidden = s->model->force_hidden,
                                     .system_hidden = s->model->system_hidden,
                                     .wants_energy = wants_energy,
                                     .wants_forces = forces,
                                     .moves = motion->n_atoms > 0};
        RUN(l, orb_gpu_launch_few_heads(&heads, l->plan, l->stream));
        return;
    }
    if (forces)
        read_forces(l, wants_energy);
    else if (s->saves || wants_energy)
        pool(l, 0);
    if (s->saves) orb_enqueue_backward(l);
    if (!wants_energy) return;
    gpu_plan sums = *l->plan;
    if (forces) sums.overlap = 0; // behind two streams
    RUN(l, s->conservative ? orb_gpu_launch_energies(s, &sums, l->stream) : orb_gpu_launch_sums(s, &sums, l->stream));
}

int orb_gpu_enqueue(const orb_gpu_step *given, const gpu_plan *plan, int hopper, int tiles, orb_gpu_side side, void *stream)
{
    orb_gpu_step step = *given;
    const int64_t edges = (int64_t)plan->n_atoms * step.cap;
    orb_launcher l = {.step = &step, .plan = plan, .hopper = hopper, .tiles = tiles, .stream = stream, .side = side};
    l.n_edges = edges < step.edge_capacity ? (int)edges : step.edge_capacity;
    step.saves = step.conservative && plan->forces;
    const int few = hopper && orb_gpu_has_few_edges(plan, l.n_edges),
              together = few && orb_has_networks(&l) && tiles < 0 && orb_gpu_has_layers(plan, l.n_edges),
              cleared = together ? orb_gpu_layers_cleared((enum gpu_number)step.numbers) : 0;
    RUN(&l, few ? orb_gpu_launch_few_edges(&step, plan, cleared, stream) : orb_gpu_launch_graph(&step, plan, stream));
    if (step.repulsion_table) RUN(&l, orb_gpu_launch_repulsion(&step, plan, stream));
    l.exchanges = orb_has_networks(&l) && tiles < 0 && !together && orb_gpu_has_node_layers(plan);
    if (together)
        run_layers(&l);
    else
        encode(&l);
    for (int t = 0; t < step.n_layers && !together; t++) {
        send_messages(&l, t);
        update_nodes(&l, t);
    }
    read_out(&l);
    return l.error;
}
