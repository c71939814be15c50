/* SPDX-License-Identifier: MIT */
/* orb_enqueue.h: what the two passes of a step share: launches one after the other until one fails, and views of arrays. */
#ifndef ORB_ENQUEUE_H
#define ORB_ENQUEUE_H

#include "orb_gpu.h"

typedef struct orb_launcher {
    const orb_gpu_step *step;
    const gpu_plan *plan;
    int hopper, tiles, n_edges, error; /* n_edges: upper bound */
    int exchanges;                     /* 1: a layer's nodes in one kernel whose blocks run at once */
    void *stream;
    orb_gpu_side side;
} orb_launcher;

/* Runs a launch unless an earlier one has failed. */
#define RUN(l, call) ((l)->error = (l)->error ? (l)->error : (call))

static inline gpu_linear_plan orb_plan_for(const orb_launcher *l, int rows, int outputs)
{
    gpu_linear_plan plan =
        gpu_linear_choose((enum gpu_number)l->step->numbers, rows, outputs, l->plan->n_multiprocessors, l->hopper);
    if (l->tiles >= 0 && l->tiles < GPU_LINEAR_TILES) plan.wide = l->tiles;
    plan.overlap = l->plan->overlap;
    return plan;
}

/* Whether networks of three layers may be computed by one kernel each: only Orb-v2's. */
static inline int orb_has_networks(const orb_launcher *l)
{
    const orb_gpu_step *s = l->step;
    return l->hopper && !s->conservative && s->hidden == GPU_NETWORK_HIDDEN && s->activation == GPU_SHIFTED_SOFTPLUS &&
           !s->frequency;
}

/* Blocks of the clusters that compute the networks of edges; 0: a kernel for each layer. Clusters of 4 where all slabs are computed at once. */
static inline int orb_edge_blocks(const orb_launcher *l)
{
    const int slabs = (l->n_edges + GPU_SLAB - 1) / GPU_SLAB;
    if (!orb_has_networks(l)) return 0;
    if (l->tiles == ORB_GPU_TILES_CLUSTERS_OF_4 || l->tiles == ORB_GPU_TILES_CLUSTERS_OF_8) return 4;
    if (l->tiles >= 0) return l->tiles == ORB_GPU_TILES_NETWORK || l->tiles >= ORB_GPU_TILES_ROWS ? 2 : 0;
    if (l->step->numbers == GPU_NUMBER_FLOAT32 && l->n_edges < ORB_GPU_CLUSTERS_OF_4_FLOAT32)
        return l->n_edges < ORB_GPU_NETWORK_EDGES_FLOAT32 ? 0 : 2;
    return 4 * slabs <= l->plan->n_multiprocessors ? 4 : 2;
}
/* gpu_network.tile_rows of edges: the fewest rows with which clusters of 2 have one tile each. In float32 tiles of 64 take less time as operand A. */
static inline int orb_edge_rows(const orb_launcher *l)
{
    static const int rows[ORB_GPU_TILE_SIZES] = {32, 48, 64, 80};
    const int clusters = l->plan->n_multiprocessors / 2, split = l->step->numbers == GPU_NUMBER_FLOAT32;
    if (l->tiles >= 0) return l->tiles < ORB_GPU_TILES_ROWS ? 0 : rows[l->tiles - ORB_GPU_TILES_ROWS];
    for (int k = split ? 0 : 1; k < ORB_GPU_TILE_SIZES; k++)
        if (l->n_edges <= rows[k] * clusters) return split && rows[k] == GPU_SLAB ? 0 : rows[k];
    return 0;
}
/* Blocks of the clusters that compute the networks of nodes. */
static inline int orb_node_blocks(const orb_launcher *l)
{
    const int slabs = (l->plan->n_atoms + GPU_SLAB - 1) / GPU_SLAB, n = l->plan->n_multiprocessors;
    if (!orb_has_networks(l) || l->step->numbers == GPU_NUMBER_FLOAT32) return 0;
    if (l->tiles >= 0) return l->tiles == ORB_GPU_TILES_CLUSTERS_OF_4 ? 4 : l->tiles == ORB_GPU_TILES_CLUSTERS_OF_8 ? 8 : 0;
    if (l->exchanges || l->plan->n_atoms < ORB_GPU_NETWORK_NODES) return 0;
    return 16 * slabs <= n ? 8 : 4 * slabs <= n ? 4 : 0;
}
/* Whether the kernel of layer t's nodes computes the projections of the next layer's edges. */
static inline int orb_projects_early(const orb_launcher *l, int t)
{
    return t >= 0 && t + 1 < l->step->n_layers && (l->exchanges || (orb_node_blocks(l) && orb_edge_blocks(l)));
}

/* Messages are halves in the fast modes, but not where forces are derivatives: an energy has the same bits with and without its forces. */
static inline int orb_halves_messages(const orb_launcher *l)
{
    return l->step->numbers != GPU_NUMBER_FLOAT32 && !l->step->conservative;
}

/* The operand whose row 0 is row `row` of m, a multiple of 64; it may be before the beginning of m: an array of a chunk, addressed by the
 * rows of the whole. */
static inline gpu_operand orb_rows_from(gpu_operand m, int64_t row)
{
    const intptr_t bytes = (intptr_t)(row / GPU_SLAB) * GPU_SLAB * 2 * m.columns;
    m.high = m.high ? (void *)((intptr_t)m.high + bytes) : NULL;
    m.low = m.low ? (void *)((intptr_t)m.low + bytes) : NULL;
    return m;
}

/* Slot t of what is kept, of `rows` rows; all NULL if nothing is. */
static inline orb_gpu_kept orb_kept_at(const orb_gpu_step *step, const orb_gpu_kept *all, int t, int rows)
{
    orb_gpu_kept kept = {0};
    const size_t row = (size_t)t * (size_t)rows;
    if (!step->saves) return kept;
    for (int k = 0; k < 2; k++) kept.hidden[k] = orb_rows_from(all->hidden[k], (int64_t)row);
    kept.z = all->z + row * ORB_GPU_LATENT;
    kept.inverse = all->inverse + row;
    return kept;
}

static inline gpu_product orb_product(gpu_operand a, const gpu_linear *layer, const int32_t *n_rows, int first, int rows)
{
    return (gpu_product){.a = {a}, .layer = *layer, .n_rows = n_rows, .first_row = first, .rows = rows};
}

/* Where a stage's stamp is stored; NULL: nowhere. */
static inline uint64_t *orb_stamp_at(const orb_launcher *l, int stage)
{
    return l->step->gpu.stamps ? l->step->gpu.stamps + stage : NULL;
}

/* Attention of layer t. */
static inline gpu_attention orb_attention_of(const orb_launcher *l, int t)
{
    const orb_gpu_step *s = l->step;
    const orb_gpu_layer *layer = &s->model->layer[t];
    const size_t slot = s->saves ? (size_t)t * (size_t)s->edge_capacity : 0;
    const gpu_linear_plan last = orb_plan_for(l, l->n_edges, ORB_GPU_LATENT);
    const int blocks = orb_edge_blocks(l),
              parts = blocks ? gpu_network_parts((enum gpu_number)s->numbers, blocks, orb_edge_rows(l)) : gpu_linear_parts(&last);
    return (gpu_attention){
        .edges = {&s->gpu.call->n_atoms, s->n_edges, s->first_edge, s->incoming_first, s->incoming_edge, s->sender, s->receiver},
        .logits = s->gates + slot * GPU_LOGIT_PARTS * 2,
        .logit_parts = parts,
        .bias = {layer->gate_bias[0], layer->gate_bias[1]},
        .envelope = s->envelope,
        .z = s->of_edges.z + slot * ORB_GPU_LATENT,
        .halves = orb_halves_messages(l),
        .scale = layer->edge.scale,
        .shift = layer->edge.shift};
}

/* The reverse pass, behind the heads: gradients of edges and forces. orb_enqueue_back.c. */
void orb_enqueue_backward(orb_launcher *launcher);

#endif
