// SPDX-License-Identifier: MIT
// orb_enqueue_back.c: the kernels of the reverse pass in order (README.md of the model's folder derives it). A network's adjoints of hidden
// features take the place of what the forward pass kept of them.
#include <cuda_runtime_api.h>

#include "orb_enqueue.h"

typedef int (*launch_dense)(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream);

// The third and the second layer of a network backward: from norm.y_bar, whose row 0 is `first`, to the adjoint of the first hidden
// layer, in kept->hidden[0].
static void hidden_backward(orb_launcher *l, const gpu_linear back[3], const orb_gpu_kept *kept, const int32_t *n_rows, int first,
                            int rows, int bound, launch_dense launch)
{
    const orb_gpu_step *s = l->step;
    const gpu_linear_plan plan = orb_plan_for(l, bound, s->hidden);
    const gpu_dense third = {.product = orb_product(orb_rows_from(s->y_bar, -first), &back[2], n_rows, first, rows),
                             .activation = s->activation,
                             .saved = kept->hidden[1],
                             .out = kept->hidden[1]};
    const gpu_dense second = {.product = orb_product(kept->hidden[1], &back[1], n_rows, first, rows),
                              .activation = s->activation,
                              .saved = kept->hidden[0],
                              .out = kept->hidden[0]};
    RUN(l, launch(&third, &plan, l->stream));
    RUN(l, launch(&second, &plan, l->stream));
}

static gpu_norm_rows norm_of(const orb_launcher *l, const orb_gpu_kept *kept, const orb_gpu_mlp *mlp, float *row_scale)
{
    return (gpu_norm_rows){.z = kept->z,
                           .inverse = kept->inverse,
                           .scale = mlp->scale,
                           .centered = mlp->shift != NULL,
                           .y_bar = l->step->y_bar,
                           .row_scale = row_scale};
}

// nodes_bar is the adjoint of layer t's output but for what the next layer's networks of nodes added: context_bar.
static void update_backward(orb_launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_layer *layer = &s->model->layer[t];
    const orb_gpu_kept kept = orb_kept_at(s, &s->of_nodes, t, s->atom_rows);
    const int32_t *n_atoms = &s->gpu.call->n_atoms;
    const int n = l->plan->n_atoms, last = t + 1 == s->n_layers;
    const gpu_linear_plan plan = orb_plan_for(l, n, 3 * ORB_GPU_LATENT);
    for (int first = 0; first < n; first += s->chunk) {
        const int rows = n - first < s->chunk ? n - first : s->chunk;
        const gpu_norm_backward norm = {.norm = norm_of(l, &kept, &layer->node, s->node_scale),
                                        .n_rows = n_atoms,
                                        .first_row = first,
                                        .rows = rows,
                                        .bar = s->nodes_bar,
                                        .added = last ? NULL : s->context_bar,
                                        .stride = 3 * ORB_GPU_LATENT,
                                        .initial = last ? s->system_bar : NULL,
                                        .group = last && l->plan->n_systems > 1 ? s->gpu.neighbors.system_of : NULL,
                                        .stamp = first ? NULL : orb_stamp_at(l, s->stamp_heads + 1 + 2 * (s->n_layers - 1 - t))};
        RUN(l, gpu_launch_norm_backward(&norm, (enum gpu_number)s->numbers, l->plan->overlap, l->stream));
        hidden_backward(l, layer->node_back, &kept, n_atoms, first, rows, n, orb_gpu_launch_node_back);
        const gpu_dense context = {.product = orb_product(kept.hidden[0], &layer->node_back[0], n_atoms, first, rows),
                                   .values = s->context_bar,
                                   .stride = 3 * ORB_GPU_LATENT,
                                   .row_scale = s->node_scale};
        RUN(l, orb_gpu_launch_node_back(&context, &plan, l->stream));
    }
}

// Adds what the first layer of the edges' network gives to the adjoints of its edges, of a chunk.
static void add_edges(orb_launcher *l, int t, const orb_gpu_kept *kept, int first, const gpu_linear_plan *plan, void *stream)
{
    const orb_gpu_step *s = l->step;
    const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
    const gpu_dense edges = {.product = orb_product(kept->hidden[0], &s->model->layer[t].edge_back[0], s->n_edges, first, rows),
                             .values = s->edges_bar,
                             .stride = ORB_GPU_LATENT,
                             .adds = 1,
                             .row_scale = s->row_scale};
    RUN(l, orb_gpu_launch_edge_back(&edges, plan, stream));
}

// Adjoints of the layer's edges; below the first layer nothing depends on nodes any more. The last product of many edges, which nothing needs
// until the next layer's edges, runs on a second stream, beside the sums and the nodes between.
static void messages_backward(orb_launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_layer *layer = &s->model->layer[t];
    const orb_gpu_kept kept = orb_kept_at(s, &s->of_edges, t, s->edge_capacity);
    const gpu_attention attention = orb_attention_of(l, t);
    const gpu_linear_plan of_nodes = orb_plan_for(l, l->plan->n_atoms, ORB_GPU_LATENT);
    gpu_linear_plan plan = orb_plan_for(l, l->n_edges, ORB_GPU_LATENT);
    const int forked = plan.wide < 3;
    for (int first = 0; first < l->n_edges; first += s->chunk) {
        const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
        const gpu_attention_backward back = {.attention = attention,
                                             .weight = layer->gate,
                                             .sums_bar = s->context_bar + ORB_GPU_LATENT,
                                             .stride = 3 * ORB_GPU_LATENT,
                                             .begins = t + 1 == s->n_layers,
                                             .e_bar = s->edges_bar,
                                             .envelope_bar = s->envelope_bar,
                                             .norm = norm_of(l, &kept, &layer->edge, s->row_scale),
                                             .first_row = first,
                                             .rows = rows,
                                             .stamp =
                                                 first ? NULL : orb_stamp_at(l, s->stamp_heads + 2 + 2 * (s->n_layers - 1 - t))};
        const int joins = first == 0 && forked && t + 1 < s->n_layers;
        if (joins) RUN(l, (int)cudaStreamWaitEvent(l->stream, l->side.joined, 0));
        RUN(l, gpu_launch_attention_backward(&back, (enum gpu_number)s->numbers, joins ? 0 : l->plan->overlap, l->stream));
        hidden_backward(l, layer->edge_back, &kept, s->n_edges, first, rows, l->n_edges, orb_gpu_launch_edge_back);
    }
    if (!forked || t == 0) {
        for (int first = 0; first < l->n_edges; first += s->chunk) add_edges(l, t, &kept, first, &plan, l->stream);
    } else {
        RUN(l, (int)cudaEventRecord(l->side.forked, l->stream));
        RUN(l, (int)cudaStreamWaitEvent(l->side.stream, l->side.forked, 0));
        plan.overlap = 0;
        for (int first = 0; first < l->n_edges; first += s->chunk) add_edges(l, t, &kept, first, &plan, l->side.stream);
        RUN(l, (int)cudaEventRecord(l->side.joined, l->side.stream));
    }
    if (t == 0) return;
    const gpu_segment_sum sums = {.edges = attention.edges,
                                  .rows = kept.hidden[0],
                                  .row_scale = s->row_scale,
                                  .sums = s->hidden_sums,
                                  .sums_scale = s->hidden_sums_scale};
    const gpu_dense nodes = {.product =
                                 orb_product(s->hidden_sums, &layer->project_back, &s->gpu.call->n_atoms, 0, l->plan->n_atoms),
                             .values = s->nodes_bar,
                             .stride = ORB_GPU_LATENT,
                             .adds = 1,
                             .row_scale = s->hidden_sums_scale};
    RUN(l, gpu_launch_segment_sum(&sums, (enum gpu_number)s->numbers, l->plan->n_atoms, l->plan->overlap, l->stream));
    RUN(l, orb_gpu_launch_edge_back(&nodes, &of_nodes, l->stream));
}

// Of the encoder, and from its inputs and the envelope to the vectors of edges.
static void encoder_backward(orb_launcher *l)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_kept kept = orb_kept_at(s, &s->of_edges, s->n_layers, s->edge_capacity);
    const gpu_linear_plan plan = orb_plan_for(l, l->n_edges, s->edge_inputs);
    for (int first = 0; first < l->n_edges; first += s->chunk) {
        const int rows = l->n_edges - first < s->chunk ? l->n_edges - first : s->chunk;
        const gpu_norm_backward norm = {.norm = norm_of(l, &kept, &s->model->encoder, s->row_scale),
                                        .n_rows = s->n_edges,
                                        .first_row = first,
                                        .rows = rows,
                                        .bar = s->edges_bar,
                                        .stamp = first ? NULL : orb_stamp_at(l, s->stamp_heads + 1 + 2 * s->n_layers)};
        RUN(l, gpu_launch_norm_backward(&norm, (enum gpu_number)s->numbers, l->plan->overlap, l->stream));
        hidden_backward(l, s->model->encoder_back, &kept, s->n_edges, first, rows, l->n_edges, orb_gpu_launch_edge_back);
        const gpu_dense inputs = {.product = orb_product(kept.hidden[0], &s->model->encoder_back[0], s->n_edges, first, rows),
                                  .values = s->input_bar - (size_t)first * (size_t)s->edge_inputs,
                                  .stride = s->edge_inputs,
                                  .row_scale = s->row_scale};
        RUN(l, orb_gpu_launch_edge_back(&inputs, &plan, l->stream));
        RUN(l, orb_gpu_launch_gradient(s, l->plan, first, l->stream));
    }
}

void orb_enqueue_backward(orb_launcher *l)
{
    RUN(l, orb_gpu_launch_readout_back(l->step, l->plan, l->stream));
    for (int t = l->step->n_layers - 1; t >= 0; t--) {
        update_backward(l, t);
        messages_backward(l, t);
    }
    encoder_backward(l);
    RUN(l, orb_gpu_launch_gathered_forces(l->step, l->plan, l->stream));
}
