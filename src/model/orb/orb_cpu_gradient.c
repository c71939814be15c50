// SPDX-License-Identifier: MIT
// orb_cpu_gradient.c: the reverse pass of Orb in float32 on the CPU, last layer first; README.md of this folder derives it.
//
// Per layer two barriers: atoms (the sums of what the layer above wrote for its edges, then the network of the update), edges
// (gates, then the network of the message). dE/d(hidden) of an edge is summed over the edges of an atom before it goes through the
// transposed projections, once for each atom.
#include <string.h>

#include "model/orb/reference/orb_plain.h"
#include "orb_cpu.h"

static int block_size(int begin, int end)
{
    return end - begin < ORB_BLOCK ? end - begin : ORB_BLOCK;
}

// dE/dn is the same for all atoms of a system.
static void readout_backward(const orb_run *r, int s, double *scratch)
{
    orb_cpu *c = r->cpu;
    const orb_parameters *p = &c->parameters;
    const orb_linear *first = &p->energy.linear[0], *second = &p->energy.linear[1];
    const size_t F = (size_t)p->n_features;
    double *z = scratch, *mean_bar = scratch + p->n_head;
    orb_plain_linear(first, 1, c->mean + (size_t)s * F, z);
    for (int k = 0; k < p->n_head; k++) z[k] = p->energy_scale * second->weight[k] * orb_plain_slope(p->activation, z[k]);
    memset(mean_bar, 0, sizeof *mean_bar * F);
    orb_plain_linear_backward(first, 1, z, mean_bar);
    for (int i = r->graph->first_atom[s]; i < r->graph->first_atom[s + 1]; i++) {
        float *row = c->nodes_bar + (size_t)i * (size_t)c->F;
        for (size_t f = 0; f < (size_t)c->F; f++) row[f] = f < F ? (float)mean_bar[f] : 0.0f;
    }
}

// nodes_bar += of the messages of layer t + 1, then the network of layer t's update.
static void update_backward(const orb_run *r, int t, orb_span atoms, float *scratch)
{
    orb_cpu *c = r->cpu;
    orb_cpu_layer *layer = &c->layer[t];
    const size_t F = (size_t)c->F, H = (size_t)c->H;
    float *sums = scratch, *h_bar = sums + 2 * ORB_BLOCK * H, *x_bar = h_bar + ORB_BLOCK * H,
          *free_part = x_bar + 3 * ORB_BLOCK * F;
    for (int b = atoms.begin; b < atoms.end; b += ORB_BLOCK) {
        const int n = block_size(b, atoms.end);
        float *nodes_bar = c->nodes_bar + (size_t)b * F;
        if (t + 1 < c->parameters.n_layers) {
            c->segment->segment_sum(&c->edges, b, b + n, c->H, c->h_bar, sums);
            c->nn->product_in_parts(n, c->F, 2 * c->H, sums, 2 * c->H, c->layer[t + 1].project_back, NULL, nodes_bar, c->F, 1);
        }
        orb_cpu_mlp_backward(c, &layer->node, n, nodes_bar, &layer->node_saved, b, free_part, h_bar);
        c->nn->product_in_parts(n, 3 * c->F, c->H, h_bar, c->H, layer->node.W1_back, NULL, x_bar, 3 * c->F, 0);
        for (size_t i = 0; i < (size_t)n; i++) {
            c->segment->add(F, nodes_bar + i * F, x_bar + 3 * i * F);
            memcpy(c->sums_bar + 2 * ((size_t)b + i) * F, x_bar + (3 * i + 1) * F, sizeof *x_bar * 2 * F);
        }
    }
}

static void message_backward(const orb_run *r, int t, orb_span edges, float *scratch)
{
    orb_cpu *c = r->cpu;
    orb_cpu_layer *layer = &c->layer[t];
    const size_t F = (size_t)c->F, H = (size_t)c->H;
    float *m_bar = scratch, *free_part = m_bar + ORB_BLOCK * F;
    for (int b = edges.begin; b < edges.end; b += ORB_BLOCK) {
        const int n = block_size(b, edges.end);
        float *h_bar = c->h_bar + (size_t)b * H;
        c->segment->attention_backward(&c->edges, b, b + n, c->F, layer->gate, layer->message, layer->gates, c->sums_bar,
                                       c->e_bar, m_bar, c->envelope_bar);
        orb_cpu_mlp_backward(c, &layer->edge, n, m_bar, &layer->edge_saved, b, free_part, h_bar);
        c->nn->product_in_parts(n, c->F, c->H, h_bar, c->H, layer->edge.W1_back, NULL, c->e_bar + (size_t)b * F, c->F, 1);
    }
}

static void encoder_backward(const orb_run *r, orb_span edges, float *scratch)
{
    orb_cpu *c = r->cpu;
    const orb_parameters *p = &c->parameters;
    const orb_graph *graph = &c->graph;
    const size_t F = (size_t)c->F, D = (size_t)c->D;
    float *h_bar = scratch, *inputs_bar = h_bar + ORB_BLOCK * (size_t)c->H, *free_part = inputs_bar + ORB_BLOCK * D;
    double bar[ORB_MAX_RADIAL * ORB_HARMONICS];
    for (int b = edges.begin; b < edges.end; b += ORB_BLOCK) {
        const int n = block_size(b, edges.end);
        orb_cpu_mlp_backward(c, &c->encoder, n, c->e_bar + (size_t)b * F, &c->encoder_saved, b, free_part, h_bar);
        c->nn->product_in_parts(n, c->D, c->H, h_bar, c->H, c->encoder.W1_back, NULL, inputs_bar, c->D, 0);
        for (size_t i = 0, e = (size_t)b; i < (size_t)n; i++, e++) {
            for (int k = 0; k < p->n_edge_inputs; k++) bar[k] = (double)inputs_bar[i * D + (size_t)k];
            orb_edge_inputs_backward(p, graph->distance[e], graph->direction + 3 * e, graph->envelope[e],
                                     graph->envelope_slope[e], bar, (double)c->envelope_bar[e],
                                     r->outputs->pair_gradient + 3 * (size_t)graph->pair[e]);
        }
    }
}

void orb_cpu_backward(const orb_run *r, const team_member *member)
{
    orb_cpu *c = r->cpu;
    const int T = c->parameters.n_layers, first = 3 + 2 * T;
    const orb_span edges = orb_span_of(c->graph.n_edges, member), atoms = orb_span_of(c->graph.n_atoms, member),
                   pairs = orb_span_of(r->graph->n_pairs, member);
    const size_t F = (size_t)c->F, n_edges = (size_t)(edges.end - edges.begin);
    float *scratch = c->scratch[member->thread];
    for (int s = member->thread; s < r->graph->n_systems; s += member->n) readout_backward(r, s, c->plain[member->thread]);
    memset(c->e_bar + (size_t)edges.begin * F, 0, sizeof *c->e_bar * n_edges * F);
    memset(c->envelope_bar + edges.begin, 0, sizeof *c->envelope_bar * n_edges);
    memset(r->outputs->pair_gradient + 3 * (size_t)pairs.begin, 0, sizeof(double) * 3 * (size_t)(pairs.end - pairs.begin));
    team_barrier(member);
    orb_mark(r, member, first);
    for (int t = T - 1; t >= 0; t--) {
        update_backward(r, t, atoms, scratch);
        team_barrier(member);
        orb_mark(r, member, first + 1 + 2 * (T - 1 - t));
        message_backward(r, t, edges, scratch);
        team_barrier(member);
        orb_mark(r, member, first + 2 + 2 * (T - 1 - t));
    }
    encoder_backward(r, edges, scratch);
    team_barrier(member);
    orb_mark(r, member, first + 1 + 2 * T);
}
