// SPDX-License-Identifier: MIT
// ani_reference.c: ANI in float64, plain: the truth the other implementations are tested against.
//
// The equations and symbols are those of README.md in this folder. An atom's energy and its reverse pass need nothing of
// other atoms but their species and places, so each atom is done from first to last before the next.
#include <math.h>
#include <string.h>

#include "ani.h"

typedef struct edge {
    int pair; // index in the graph's list
    int species;
    double d, u[3];          // distance and direction from the center
    double fr, dfr, fa, dfa; // cutoffs of the radial and the angular part, and their slopes
} edge;

typedef struct reference {
    model_backend backend;
    const ani_parameters *parameters;
    int members[ANI_MAX_MEMBERS], n_members;
    int first, last;        // of them, those that run: all, or the one selected
    double *aev, *aev_bar;  // [length]
    double *hidden, *slope; // [ANI_MAX_LAYERS][width]: outputs of layers, and their activations' slopes
    double *bar[2];         // [width]
    int width;              // the largest
    edge *edges;            // of one atom
    size_t edge_capacity;
    int64_t n_growths;
} reference;

static void cutoff(double d, double r, double *f, double *df)
{
    *f = d <= r ? 0.5 * cos(BASE_PI * d / r) + 0.5 : 0.0;
    *df = d <= r ? -0.5 * BASE_PI / r * sin(BASE_PI * d / r) : 0.0;
}

static mlff_status collect(reference *r, const model_graph *graph, int i, int *n_out)
{
    const ani_parameters *P = r->parameters;
    int n = graph->first[i + 1] - graph->first[i];
    if ((size_t)n > r->edge_capacity) {
        r->n_growths++;
        if (base_grow(&r->edges, &r->edge_capacity, (size_t)n, sizeof *r->edges, "pairs")) return MLFF_ERR_MEMORY;
    }
    for (int k = 0; k < n; k++) {
        edge *e = &r->edges[k];
        e->pair = graph->first[i] + k;
        const double *v = graph->vectors + 3 * (size_t)e->pair;
        e->species = P->species_of[graph->species[graph->neighbor[e->pair]]];
        e->d = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        for (int c = 0; c < 3; c++) e->u[c] = v[c] / e->d;
        cutoff(e->d, P->radial_cutoff, &e->fr, &e->dfr);
        cutoff(e->d, P->angular_cutoff, &e->fa, &e->dfa);
    }
    *n_out = n;
    return MLFF_OK;
}

static void radial(reference *r, int n)
{
    const ani_parameters *P = r->parameters;
    for (int e = 0; e < n; e++)
        for (int k = 0; k < P->n_radial; k++) {
            double x = r->edges[e].d - P->radial_shift[k];
            r->aev[r->edges[e].species * P->n_radial + k] += ANI_RADIAL_FACTOR * exp(-P->eta_radial * x * x) * r->edges[e].fr;
        }
}

// The factors of a triple that depend on the shift or the section alone, with their slopes.
typedef struct triple {
    double c, P[ANI_MAX_GRID], dP[ANI_MAX_GRID], Q[ANI_MAX_GRID], dQ[ANI_MAX_GRID]; // dP by d1 (and d2), dQ by X
    size_t at;                                                                      // first column of the block
} triple;

static void triple_of(const ani_parameters *P, const edge *j, const edge *k, triple *t)
{
    t->c = j->u[0] * k->u[0] + j->u[1] * k->u[1] + j->u[2] * k->u[2];
    double X = ANI_COSINE_FACTOR * t->c, Y = sqrt(1.0 - X * X), mean = 0.5 * (j->d + k->d);
    for (int a = 0; a < P->n_shifts; a++) {
        double x = mean - P->angular_shift[a];
        t->P[a] = exp(-P->eta_angular * x * x);
        t->dP[a] = -P->eta_angular * x * t->P[a];
    }
    for (int z = 0; z < P->n_sections; z++) {
        double s = P->section[z], u = fmax(0.5 * (1.0 + X * cos(s) + Y * sin(s)), 0.0);
        t->Q[z] = 2.0 * pow(u, P->zeta);
        t->dQ[z] = P->zeta * pow(u, P->zeta - 1.0) * (cos(s) - X / Y * sin(s));
    }
    t->at = (size_t)P->n_species * P->n_radial +
            (size_t)ani_pair_index(P->n_species, j->species, k->species) * P->n_shifts * P->n_sections;
}

static void angular(reference *r, int n)
{
    const ani_parameters *P = r->parameters;
    triple t;
    for (int j = 0; j < n; j++)
        for (int k = j + 1; k < n; k++) {
            if (r->edges[j].d > P->angular_cutoff || r->edges[k].d > P->angular_cutoff) continue;
            triple_of(P, &r->edges[j], &r->edges[k], &t);
            double ff = r->edges[j].fa * r->edges[k].fa;
            for (int a = 0; a < P->n_shifts; a++)
                for (int z = 0; z < P->n_sections; z++) r->aev[t.at + (size_t)(a * P->n_sections + z)] += t.P[a] * t.Q[z] * ff;
        }
}

static double network(reference *r, const ani_network *net)
{
    const double *input = r->aev;
    for (int l = 0; l < net->n_layers; l++) {
        double *out = r->hidden + (size_t)l * r->width, *slope = r->slope + (size_t)l * r->width;
        for (int o = 0; o < net->width[l + 1]; o++) {
            const float *w = net->weight[l] + (size_t)o * net->width[l];
            double z = net->bias[l][o];
            for (int k = 0; k < net->width[l]; k++) z += w[k] * input[k];
            bool linear = l + 1 == net->n_layers || z > 0;
            out[o] = linear ? z : ANI_CELU_ALPHA * expm1(z / ANI_CELU_ALPHA);
            slope[o] = linear ? 1.0 : exp(z / ANI_CELU_ALPHA);
        }
        input = out;
    }
    return input[0];
}

// aev_bar += factor · dE/dAEV
static void network_backward(reference *r, const ani_network *net, double factor)
{
    double *bar = r->bar[0], *next = r->bar[1];
    bar[0] = factor;
    for (int l = net->n_layers - 1; l >= 0; l--) {
        double *to = l ? next : r->aev_bar;
        if (l) memset(to, 0, sizeof *to * (size_t)net->width[l]);
        for (int o = 0; o < net->width[l + 1]; o++) {
            const float *w = net->weight[l] + (size_t)o * net->width[l];
            double delta = bar[o] * r->slope[(size_t)l * r->width + o];
            for (int k = 0; k < net->width[l]; k++) to[k] += delta * w[k];
        }
        next = bar;
        bar = to;
    }
}

static void aev_backward(reference *r, int n, double *g)
{
    const ani_parameters *P = r->parameters;
    triple t;
    for (int e = 0; e < n; e++) {
        const edge *j = &r->edges[e];
        double slope = 0;
        for (int k = 0; k < P->n_radial; k++) {
            double x = j->d - P->radial_shift[k], gauss = ANI_RADIAL_FACTOR * exp(-P->eta_radial * x * x);
            slope += r->aev_bar[j->species * P->n_radial + k] * gauss * (-2.0 * P->eta_radial * x * j->fr + j->dfr);
        }
        for (int c = 0; c < 3; c++) g[3 * (size_t)j->pair + c] = slope * j->u[c];
    }
    for (int first = 0; first < n; first++)
        for (int second = first + 1; second < n; second++) {
            const edge *j = &r->edges[first], *k = &r->edges[second];
            if (j->d > P->angular_cutoff || k->d > P->angular_cutoff) continue;
            triple_of(P, j, k, &t);
            double S0 = 0, Sr = 0, SX = 0;
            for (int a = 0; a < P->n_shifts; a++)
                for (int z = 0; z < P->n_sections; z++) {
                    double bar = r->aev_bar[t.at + (size_t)(a * P->n_sections + z)];
                    S0 += bar * t.P[a] * t.Q[z];
                    Sr += bar * t.dP[a] * t.Q[z];
                    SX += bar * t.P[a] * t.dQ[z];
                }
            double by_dj = Sr * j->fa * k->fa + S0 * j->dfa * k->fa, by_dk = Sr * j->fa * k->fa + S0 * j->fa * k->dfa;
            double by_c = ANI_COSINE_FACTOR * SX * j->fa * k->fa;
            for (int c = 0; c < 3; c++) {
                g[3 * (size_t)j->pair + c] += by_dj * j->u[c] + by_c * (k->u[c] - t.c * j->u[c]) / j->d;
                g[3 * (size_t)k->pair + c] += by_dk * k->u[c] + by_c * (j->u[c] - t.c * k->u[c]) / k->d;
            }
        }
}

static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    mlff_status status = MLFF_OK;
    double *atom_energy = outputs->atom_energy, *pair_gradient = outputs->pair_gradient;
    reference *r = (reference *)backend;
    const ani_parameters *P = r->parameters;
    double factor = 1.0 / (r->last - r->first);
    if (pair_gradient) memset(pair_gradient, 0, sizeof(double) * 3 * (size_t)graph->n_pairs);
    for (int i = 0; i < graph->n_atoms; i++) {
        int n = 0;
        double energy = 0;
        atom_energy[i] = 0.0;
        if (graph->owned && !graph->owned[i]) continue;
        MLFF_TRY(collect(r, graph, i, &n));
        memset(r->aev, 0, sizeof(double) * (size_t)P->length);
        memset(r->aev_bar, 0, sizeof(double) * (size_t)P->length);
        radial(r, n);
        stage_end(clock, stage + ANI_RADIAL);
        angular(r, n);
        stage_end(clock, stage + ANI_ANGULAR);
        for (int m = r->first; m < r->last; m++) {
            const ani_network *net = &P->network[r->members[m]][P->species_of[graph->species[i]]];
            energy += network(r, net);
            stage_end(clock, stage + ANI_NETWORK);
            if (!pair_gradient) continue;
            network_backward(r, net, factor);
            stage_end(clock, stage + ANI_NETWORK_BACKWARD);
        }
        atom_energy[i] = factor * energy;
        if (!pair_gradient) continue;
        aev_backward(r, n, pair_gradient);
        stage_end(clock, stage + ANI_AEV_BACKWARD);
    }
done:
    return status;
}

static void select_member(model_backend *backend, int member)
{
    reference *r = (reference *)backend;
    r->first = member < 0 ? 0 : member;
    r->last = member < 0 ? r->n_members : member + 1;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const reference *r = (const reference *)backend;
    *bytes = (int64_t)sizeof(double) * (2 * r->parameters->length + (2 * ANI_MAX_LAYERS + 2) * (int64_t)r->width) +
             (int64_t)(r->edge_capacity * sizeof(edge));
    *n_growths = r->n_growths;
}

static void destroy(model_backend *backend)
{
    reference *r = (reference *)backend;
    base_free(r->aev);
    base_free(r->aev_bar);
    base_free(r->hidden);
    base_free(r->slope);
    base_free(r->bar[0]);
    base_free(r->bar[1]);
    base_free(r->edges);
    base_free(r);
}

mlff_status ani_reference_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    reference *r = base_alloc(1, sizeof *r, "an evaluator");
    if (!r) return MLFF_ERR_MEMORY;
    r->backend = (model_backend){.stages = ani_stages,
                                 .n_stages = ANI_N_STAGES,
                                 .compute = compute,
                                 .select_member = select_member,
                                 .info = info,
                                 .destroy = destroy};
    r->parameters = model->parameters;
    const ani_parameters *P = r->parameters;
    r->backend.n_members = r->n_members = ani_members(P, options, r->members);
    select_member(&r->backend, -1);
    for (int m = 0; m < P->n_members; m++)
        for (int s = 0; s < P->n_species; s++)
            for (int l = 1; l <= P->network[m][s].n_layers; l++)
                if (P->network[m][s].width[l] > r->width) r->width = P->network[m][s].width[l];
    r->aev = base_alloc((size_t)P->length, sizeof(double), "an AEV");
    r->aev_bar = base_alloc((size_t)P->length, sizeof(double), "an AEV");
    r->hidden = base_alloc((size_t)ANI_MAX_LAYERS * r->width, sizeof(double), "hidden layers");
    r->slope = base_alloc((size_t)ANI_MAX_LAYERS * r->width, sizeof(double), "hidden layers");
    r->bar[0] = base_alloc((size_t)r->width, sizeof(double), "hidden layers");
    r->bar[1] = base_alloc((size_t)r->width, sizeof(double), "hidden layers");
    if (!r->aev || !r->aev_bar || !r->hidden || !r->slope || !r->bar[0] || !r->bar[1]) {
        destroy(&r->backend);
        return MLFF_ERR_MEMORY;
    }
    *backend_out = &r->backend;
    return MLFF_OK;
}
