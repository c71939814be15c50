// SPDX-License-Identifier: MIT
// ani_cpu_memory.c: packed weights and buffers of the float32 backend.
#include "ani_cpu.h"

#include <math.h>
#include <string.h>

// ---- weights ------------------------------------------------------------------------------------------------------

static void fill_shape(ani_cpu *c)
{
    const ani_parameters *P = c->parameters;
    ani_shape *s = &c->shape;
    s->eta_radial = (float)P->eta_radial;
    s->eta_angular = (float)P->eta_angular;
    s->zeta = (float)P->zeta;
    s->least_base = (float)exp(-32.0 / P->zeta);
    s->radial_cutoff = P->radial_cutoff;
    s->angular_cutoff = P->angular_cutoff;
    s->n_shifts = P->n_shifts;
    s->n_sections = (P->n_sections + 3) / 4 * 4;
    s->radial_width = nn_padded(P->n_radial);
    s->angular_width = nn_padded(s->n_shifts * s->n_sections);
    for (int k = 0; k < P->n_radial; k++) s->radial_shift[k] = (float)P->radial_shift[k];
    for (int k = 0; k < P->n_shifts; k++) s->angular_shift[k] = (float)P->angular_shift[k];
    for (int k = 0; k < P->n_sections; k++) {
        s->cosine[k] = (float)cos(P->section[k]);
        s->sine[k] = (float)sin(P->section[k]);
    }
    c->n_blocks = P->n_species + P->n_species * (P->n_species + 1) / 2;
    c->first_angular = (P->n_species * s->radial_width + 31) / 32 * 32; // tiles of AMX begin there: nn/tile_kernels.c
    c->n_weight_rows = c->first_angular + P->n_species * (P->n_species + 1) / 2 * s->angular_width;
}

// Row of a padded first layer that holds AEV element k.
static int padded_element(const ani_cpu *c, int k)
{
    const ani_parameters *P = c->parameters;
    const ani_shape *s = &c->shape;
    int n_radial = P->n_species * P->n_radial;
    if (k < n_radial) return k / P->n_radial * s->radial_width + k % P->n_radial;
    k -= n_radial;
    int block = P->n_shifts * P->n_sections, within = k % block;
    return c->first_angular + k / block * s->angular_width + within / P->n_sections * s->n_sections + within % P->n_sections;
}

// All packed weights lie in one block, in the order in which a step reads them: it is large enough for huge pages.
static float *reserve(ani_cpu *c, size_t floats)
{
    float *place = c->weights + c->weights_used;
    c->weights_used += floats;
    return place;
}

static float *copy_padded(ani_cpu *c, const float *values, int n)
{
    float *copy = reserve(c, (size_t)nn_padded(n));
    memcpy(copy, values, sizeof *copy * (size_t)n);
    return copy;
}

size_t ani_cpu_first_block(const ani_cpu *c, int out, int block)
{
    const ani_shape *shape = &c->shape;
    const int S = c->parameters->n_species, radial = block < S ? block : S;
    return (size_t)radial * c->nn->packed_floats(out, shape->radial_width) +
           (size_t)(block - radial) * c->nn->packed_floats(out, shape->angular_width);
}

static size_t weight_floats(const ani_cpu *c, const ani_network *net)
{
    size_t floats = 0;
    for (int l = 0; l < net->n_layers; l++) {
        size_t in = (size_t)(l ? nn_padded(net->width[l]) : c->n_weight_rows), out = (size_t)nn_padded(net->width[l + 1]);
        if (l + 1 == net->n_layers)
            floats += in;
        else
            floats += c->nn->packed_floats((int)in, (int)out) + out +
                      (l ? c->nn->packed_floats((int)out, (int)in) : ani_cpu_first_block(c, (int)out, c->n_blocks));
    }
    return floats;
}

// w [out][in] packed for both directions; the rows of the input are moved where it is the AEV.
static mlff_status pack_layer(ani_cpu *c, const float *w, int out, int in, bool is_first, float **forward, float **back)
{
    mlff_status status = MLFF_ERR_MEMORY;
    const ani_shape *shape = &c->shape;
    int out_p = nn_padded(out), in_p = is_first ? c->n_weight_rows : nn_padded(in);
    size_t size = (size_t)out_p * in_p;
    float *turned = base_alloc(size, sizeof *turned, "weights"), *plain = base_alloc(size, sizeof *plain, "weights");
    if (!turned || !plain) goto done;
    *forward = reserve(c, c->nn->packed_floats(in_p, out_p));
    *back = reserve(c, is_first ? ani_cpu_first_block(c, out_p, c->n_blocks) : c->nn->packed_floats(out_p, in_p));
    for (int i = 0; i < in; i++) {
        int row = is_first ? padded_element(c, i) : i;
        for (int o = 0; o < out; o++) turned[(size_t)row * out_p + o] = w[(size_t)o * in + i];
    }
    c->nn->pack(in_p, out_p, turned, *forward);
    if (!is_first) {
        for (int o = 0; o < out; o++) memcpy(plain + (size_t)o * in_p, w + (size_t)o * in, sizeof *w * (size_t)in);
        c->nn->pack(out_p, in_p, plain, *back);
    } else {
        const int S = c->parameters->n_species;
        for (int block = 0; block < c->n_blocks; block++) {
            const int begin = block < S ? block * shape->radial_width : c->first_angular + (block - S) * shape->angular_width;
            const int width = block < S ? shape->radial_width : shape->angular_width;
            for (int o = 0; o < out_p; o++)
                for (int i = 0; i < width; i++) plain[(size_t)o * width + i] = turned[(size_t)(begin + i) * out_p + o];
            c->nn->pack(out_p, width, plain, *back + ani_cpu_first_block(c, out_p, block));
        }
    }
    status = MLFF_OK;
done:
    base_free(turned);
    base_free(plain);
    return status;
}

static mlff_status pack_network(ani_cpu *c, const ani_network *from, ani_cpu_network *to)
{
    mlff_status status = MLFF_OK;
    size_t floats = 0;
    to->n_hidden = from->n_layers - 1;
    for (int l = 0; l < to->n_hidden; l++) {
        int out = from->width[l + 1];
        to->width[l] = nn_padded(out);
        floats += 2 * (size_t)to->width[l];
        if (to->width[l] > c->widest) c->widest = to->width[l];
        MLFF_TRY(pack_layer(c, from->weight[l], out, from->width[l], l == 0, &to->weight[l], &to->back[l]));
        to->bias[l] = copy_padded(c, from->bias[l], out);
    }
    to->output = copy_padded(c, from->weight[to->n_hidden], from->width[to->n_hidden]);
    to->output_bias = from->bias[to->n_hidden][0];
    if (floats > c->layer_floats) c->layer_floats = floats;
done:
    return status;
}

mlff_status ani_cpu_pack(ani_cpu *c)
{
    mlff_status status = MLFF_OK;
    const ani_parameters *P = c->parameters;
    fill_shape(c);
    if (!(c->network = base_alloc((size_t)c->backend.n_members, sizeof *c->network, "networks"))) return MLFF_ERR_MEMORY;
    size_t floats = 0;
    for (int m = 0; m < c->backend.n_members; m++)
        for (int s = 0; s < P->n_species; s++) floats += weight_floats(c, &P->network[c->members[m]][s]);
    if (!(c->weights = base_alloc(floats, sizeof *c->weights, "weights"))) return MLFF_ERR_MEMORY;
    for (int m = 0; m < c->backend.n_members; m++)
        for (int s = 0; s < P->n_species; s++) MLFF_TRY(pack_network(c, &P->network[c->members[m]][s], &c->network[m][s]));
    c->layer_floats = (size_t)ANI_BLOCK * (c->layer_floats + 2 * (size_t)c->widest);
    for (int t = 0; t < c->n_threads; t++) {
        ani_thread *thread = &c->thread[t];
        if (!(thread->layers = base_alloc(c->layer_floats, sizeof(float), "scratch")) ||
            !(thread->bar = base_alloc((size_t)c->n_weight_rows, sizeof(float), "scratch")) ||
            !(thread->energy = base_alloc((size_t)c->backend.n_members * ANI_BLOCK, sizeof(float), "scratch")))
            return MLFF_ERR_MEMORY;
    }
done:
    return status;
}

// ---- buffers ------------------------------------------------------------------------------------------------------

// Nothing is worth keeping from one compute to the next.
static mlff_status regrow(void *pointer, size_t count, size_t size, const char *what)
{
    void **array = pointer;
    base_free(*array);
    return (*array = base_alloc(count, size, what)) ? MLFF_OK : MLFF_ERR_MEMORY;
}

mlff_status ani_cpu_resize_atoms(ani_cpu *c, const model_graph *graph)
{
    mlff_status status = MLFF_OK;
    size_t n = (size_t)graph->n_atoms;
    if (n <= c->atom_capacity) return MLFF_OK;
    n += n / 4;
    c->n_growths++;
    c->atom_capacity = 0;
    MLFF_TRY(regrow(&c->active, n, sizeof *c->active, "atoms"));
    MLFF_TRY(regrow(&c->atom, n, sizeof *c->atom, "atoms"));
    MLFF_TRY(regrow(&c->rows, n, sizeof *c->rows, "atoms"));
    c->atom_capacity = n;
done:
    return status;
}

// n: most neighbors of an atom.
static mlff_status resize_scratch(const ani_cpu *c, ani_thread *t, size_t n)
{
    mlff_status status = MLFF_OK;
    ani_scratch *s = &t->scratch;
    size_t neighbors = (n + 2 * NN_PAD) / NN_PAD * NN_PAD;
    // 512 triples: their factors, some 50 kB, are what the first two caches like; a row of triples must fit.
    size_t triples = ((n > 512 ? n : 512) + 2 * NN_PAD) / NN_PAD * NN_PAD;
    size_t shifts = (size_t)c->shape.n_shifts, sections = (size_t)c->shape.n_sections;
    MLFF_TRY(regrow(&t->distance, n, sizeof *t->distance, "scratch"));
    MLFF_TRY(regrow(&s->memory, 11 * neighbors + (4 + 2 * shifts + 4 * sections + 3) * triples, sizeof(float), "scratch"));
    s->neighbor_capacity = neighbors;
    s->triple_capacity = triples;
    float *at = s->memory;
    float **by_neighbor[] = {&s->d, &s->inverse, &s->x, &s->y, &s->z, &s->f, &s->df, &s->slope, &s->gx, &s->gy, &s->gz};
    for (size_t k = 0; k < sizeof by_neighbor / sizeof *by_neighbor; k++, at += neighbors) *by_neighbor[k] = at;
    struct {
        float **array;
        size_t rows;
    } by_triple[] = {{&s->mean, 1},      {&s->ff, 1},         {&s->X, 1},        {&s->Y, 1},
                     {&s->P, shifts},    {&s->dP, shifts},    {&s->Q, sections}, {&s->dQ, sections},
                     {&s->Qt, sections}, {&s->dQt, sections}, {&s->S, 3}};
    for (size_t k = 0; k < sizeof by_triple / sizeof *by_triple; k++) {
        *by_triple[k].array = at;
        at += by_triple[k].rows * triples;
    }
done:
    return status;
}

static mlff_status resize_slots(ani_cpu *c, size_t n)
{
    mlff_status status = MLFF_OK;
    ani_neighbors *list = &c->neighbors;
    float **arrays[ANI_N_ARRAYS] = {&list->d, &list->x, &list->y, &list->z, &list->fr, &list->dfr, &list->fa, &list->dfa};
    if (n <= c->slot_capacity) return MLFF_OK;
    n += n / 4;
    c->n_growths++;
    c->slot_capacity = 0;
    for (int k = 0; k < ANI_N_ARRAYS; k++) MLFF_TRY(regrow(arrays[k], n, sizeof(float), "pairs"));
    MLFF_TRY(regrow(&list->pair, n, sizeof *list->pair, "pairs"));
    c->slot_capacity = n;
done:
    return status;
}

mlff_status ani_cpu_resize_rows(ani_cpu *c, const model_graph *graph, int n_rows, bool split)
{
    mlff_status status = MLFF_OK;
    size_t rows = (size_t)n_rows, columns = (size_t)c->shape.n_columns, most = 0;
    for (int i = 0; i < graph->n_atoms; i++) {
        size_t n = (size_t)(graph->first[i + 1] - graph->first[i]);
        if (n > most) most = n;
    }
    // A row of n pairs takes n slots rounded up, and at most NN_PAD more: see where `start` is set.
    MLFF_TRY(resize_slots(c, (size_t)graph->n_pairs + 2 * NN_PAD * ((size_t)graph->n_atoms + 1)));
    if (most > c->row_capacity || !c->thread[0].scratch.memory) {
        most += most / 4;
        c->n_growths++;
        c->row_capacity = 0;
        for (int t = 0; t < c->n_threads; t++) MLFF_TRY(resize_scratch(c, &c->thread[t], most));
        c->row_capacity = most;
    }
    if (!split) {
        size_t needed = 2 * ANI_BLOCK * columns;
        if (needed <= c->block_capacity) return MLFF_OK;
        c->n_growths++;
        c->block_capacity = 0;
        for (int t = 0; t < c->n_threads; t++) MLFF_TRY(regrow(&c->thread[t].block, needed, sizeof(float), "AEVs"));
        c->block_capacity = needed;
        return MLFF_OK;
    }
    struct {
        float **array;
        size_t *capacity, needed;
    } arrays[] = {{&c->aev, &c->aev_capacity, rows * columns},
                  {&c->parts, &c->part_capacity, rows * columns * (size_t)c->n_running},
                  {&c->energy, &c->energy_capacity, rows * (size_t)c->n_running}};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) {
        size_t n = arrays[k].needed;
        if (n <= *arrays[k].capacity && *arrays[k].array) continue;
        n += n / 4;
        c->n_growths++;
        *arrays[k].capacity = 0;
        MLFF_TRY(regrow(arrays[k].array, n, sizeof(float), "AEVs"));
        *arrays[k].capacity = n;
    }
done:
    return status;
}

int64_t ani_cpu_bytes(const ani_cpu *c)
{
    int64_t per_thread = (int64_t)c->layer_floats + c->n_weight_rows + (int64_t)c->backend.n_members * ANI_BLOCK +
                         11 * (int64_t)c->thread[0].scratch.neighbor_capacity + (int64_t)c->block_capacity +
                         (7 + 2 * c->shape.n_shifts + 4 * c->shape.n_sections) * (int64_t)c->thread[0].scratch.triple_capacity;
    return 4 * ((int64_t)c->weights_used + c->n_threads * per_thread + (ANI_N_ARRAYS + 1) * (int64_t)c->slot_capacity +
                (int64_t)(c->aev_capacity + c->part_capacity + c->energy_capacity)) +
           (int64_t)c->atom_capacity * (int64_t)(sizeof(ani_row) + 5) + 8 * (int64_t)c->row_capacity * c->n_threads;
}

void ani_cpu_free(ani_cpu *c)
{
    base_free(c->weights);
    base_free(c->network);
    for (int t = 0; t < ANI_MAX_THREADS; t++) {
        ani_thread *thread = &c->thread[t];
        void *arrays[] = {thread->distance, thread->layers, thread->bar, thread->block, thread->energy, thread->scratch.memory};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    }
    void *arrays[] = {c->active,        c->atom,           c->rows,         c->neighbors.d,   c->neighbors.x,
                      c->neighbors.y,   c->neighbors.z,    c->neighbors.fr, c->neighbors.dfr, c->neighbors.fa,
                      c->neighbors.dfa, c->neighbors.pair, c->aev,          c->parts,         c->energy};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    base_free(c);
}
