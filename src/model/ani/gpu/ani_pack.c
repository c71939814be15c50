// SPDX-License-Identifier: MIT
// ani_pack.c: ANI's constants in the layout of the kernels, and the layout of a step's arrays. Runs on the host.
#include "ani_gpu.h"

#include <math.h>
#include <string.h>

#include "gpu/gpu_pack.h"

const char *ani_gpu_lacks(const ani_parameters *parameters)
{
    const int shifts = parameters->n_shifts, sections = parameters->n_sections;
    if (parameters->n_radial > ANI_GPU_RADIAL) return "at most 16 radial shifts";
    if (!((shifts <= 8 && sections <= 4) || (shifts <= 4 && sections <= 8))) return "at most 8 × 4 or 4 × 8 angular functions";
    for (int m = 0; m < parameters->n_members; m++)
        for (int s = 0; s < parameters->n_species; s++) {
            const ani_network *network = &parameters->network[m][s];
            if (network->n_layers - 1 > ANI_GPU_MAX_HIDDEN) return "at most 4 hidden layers";
            int width = 0;
            for (int l = 1; l < network->n_layers; l++) width += (network->width[l] + 15) / 16 * 16;
            if (width > 1536) return "at most 1536 hidden features together";
        }
    return NULL;
}

// The AEV element in column c of the stored first layers, −1: none.
static int element_of(const ani_parameters *P, const ani_gpu_step *step, int c)
{
    const int n = P->n_species, radial = n * ANI_GPU_RADIAL, sections = step->more_shifts ? 4 : 8;
    if (c < radial) return c % ANI_GPU_RADIAL < P->n_radial ? c / ANI_GPU_RADIAL * P->n_radial + c % ANI_GPU_RADIAL : -1;
    c -= radial;
    const int block = c / ANI_GPU_ANGULAR, shift = c % ANI_GPU_ANGULAR / sections, section = c % sections;
    if (shift >= P->n_shifts || section >= P->n_sections) return -1;
    return n * P->n_radial + (block * P->n_shifts + shift) * P->n_sections + section;
}

static const float *pack_padded(gpu_packer *p, const float *values, int n, double scale)
{
    const void *device;
    size_t bytes = sizeof(float) * (size_t)(n < ANI_GPU_WGMMA_WIDTH ? ANI_GPU_WGMMA_WIDTH : (n + 15) / 16 * 16);
    float *place = gpu_pack(p, bytes, &device);
    if (place) {
        memset(place, 0, bytes);
        for (int k = 0; k < n; k++) place[k] = (float)(scale * values[k]);
    }
    return device;
}

static float largest_weight(const ani_parameters *P, const int *members, int n_members)
{
    float largest = 0;
    for (int m = 0; m < n_members; m++)
        for (int s = 0; s < P->n_species; s++) {
            const ani_network *net = &P->network[members[m]][s];
            for (int l = 0; l + 1 < net->n_layers; l++)
                largest = gpu_largest(net->weight[l], (size_t)net->width[l] * (size_t)net->width[l + 1], largest);
        }
    return largest;
}

// Width of a hidden layer for tiles of 128 slots: padded to one that the kernel is compiled for.
static int padded_width(int width)
{
    return width <= 128 ? 128 : (width + 31) / 32 * 32;
}

static const void *place_operand(gpu_packer *operands, int columns, int rows)
{
    const void *device;
    gpu_pack(operands, 4 * (size_t)columns * (size_t)rows, &device); // two halves
    return device;
}

static void pack_network(gpu_packer *p, gpu_packer *operands, const ani_gpu_step *step, const ani_network *from,
                         ani_gpu_network *to)
{
    to->n_hidden = from->n_layers - 1;
    for (int l = 0; l < to->n_hidden; l++) {
        const int in = l ? (from->width[l] + 15) / 16 : step->stored_tiles, out = (from->width[l + 1] + 15) / 16;
        to->tiles[l] = out;
        to->weight[l] = place_operand(operands, 16 * out, 16 * in);
        to->bias[l] = pack_padded(p, from->bias[l], from->width[l + 1], 1.0);
        if (step->wgmma_blocks == 0) continue;
        const int columns = padded_width(from->width[l + 1]), rows = l ? padded_width(from->width[l]) : 16 * in;
        to->wgmma_width[l] = columns;
        to->wgmma_bias[l] = pack_padded(p, from->bias[l], from->width[l + 1], ANI_GPU_VALUE_SCALE);
        to->wgmma_weight[l] = place_operand(operands, columns, rows);
        to->wgmma_back[l] = place_operand(operands, rows, columns);
    }
    to->output = pack_padded(p, from->weight[to->n_hidden], from->width[to->n_hidden], 1.0);
    to->output_bias = from->bias[to->n_hidden][0];
}

void ani_gpu_list_sources(const ani_parameters *P, const int *members, int n_members, ani_gpu_source *sources)
{
    for (int m = 0; m < n_members; m++)
        for (int s = 0; s < P->n_species; s++, sources += ANI_GPU_MAX_HIDDEN) {
            const ani_network *net = &P->network[members[m]][s];
            for (int l = 0; l < ANI_GPU_MAX_HIDDEN; l++)
                sources[l] = l + 1 < net->n_layers ? (ani_gpu_source){net->weight[l], net->width[l], net->width[l + 1]}
                                                   : (ani_gpu_source){0};
        }
}

static void fill_shape(const ani_parameters *P, const mlff_model *model, ani_gpu_step *step)
{
    const double log2e = 1.4426950408889634;
    step->n_species = P->n_species;
    step->more_shifts = P->n_shifts > 4 || P->n_sections <= 4;
    step->stored_tiles = P->n_species + P->n_species * (P->n_species + 1);
    step->radial_cutoff = (float)P->radial_cutoff;
    step->angular_cutoff = (float)P->angular_cutoff;
    step->eta_radial = (float)(P->eta_radial * log2e);
    step->eta_angular = (float)(P->eta_angular * log2e);
    step->zeta = (float)P->zeta;
    step->value_scale = ANI_GPU_VALUE_SCALE;
    step->value_unit = 1 / ANI_GPU_VALUE_SCALE;
    for (int k = 0; k < P->n_radial; k++) step->radial_shift[k] = (float)P->radial_shift[k];
    for (int k = 0; k < P->n_shifts; k++) step->angular_shift[k] = (float)P->angular_shift[k];
    for (int k = 0; k < P->n_sections; k++) {
        step->cosine[k] = (float)cos(P->section[k]);
        step->sine[k] = (float)sin(P->section[k]);
    }
    step->gpu.neighbors.n_species = MLFF_MAX_ATOMIC_NUMBER + 1;
    step->gpu.neighbors.cutoff = model->cutoff;
    step->gpu.length_unit = model->length_unit;
    step->gpu.neighbors.inverse_unit = 1.0 / model->length_unit;
    step->gpu.neighbors.tag_bits = 0; // no radial grid: an edge's `packed` is the neighbor
    step->gpu.energy_unit = model->energy_unit;
}

void ani_gpu_pack(const ani_parameters *P, const mlff_model *model, const int *members, int n_members, void *block, size_t *bytes,
                  const void *base, gpu_packer *operands, ani_gpu_step *step)
{
    gpu_packer p = {block, base, 0};
    const void *device;
    const float largest = block ? largest_weight(P, members, n_members) : 0;
    // The largest weight just below 2¹³: its low part and those of weights 2⁻¹³ as large are normal halves.
    const float scale = largest > 0 ? ldexpf(1.0f, (int)fmin(13 - ceil(log2(largest)), 100)) : 1.0f;
    fill_shape(P, model, step);
    step->n_members = n_members;
    step->weight_unit = 1.0f / scale;
    step->hidden_tiles = step->saved_columns = 0;
    for (int m = 0; m < n_members; m++)
        for (int s = 0; s < P->n_species; s++) {
            const ani_network *net = &P->network[members[m]][s];
            int saved = 0, tiles = 0;
            for (int l = 1; l < net->n_layers; l++) {
                if (net->width[l] > ANI_GPU_WGMMA_WIDTH) step->wgmma_blocks = 0;
                if (l + 1 < net->n_layers) saved += padded_width(net->width[l]);
                tiles += (net->width[l] + 15) / 16;
            }
            if (tiles > step->hidden_tiles) step->hidden_tiles = tiles;
            if (saved > step->saved_columns) step->saved_columns = saved;
        }

    double *offset = gpu_pack(&p, sizeof(double) * (MLFF_MAX_ATOMIC_NUMBER + 1), &device);
    step->gpu.neighbors.offset = device;
    int32_t *species_of = gpu_pack(&p, sizeof(int32_t) * (MLFF_MAX_ATOMIC_NUMBER + 1), &device);
    step->species_of = device;
    for (int z = 0; block && z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        offset[z] = model->known[z] ? model->offset[z] : NAN;
        species_of[z] = P->species_of[z];
    }
    int32_t *element = gpu_pack(&p, sizeof *element * 16 * (size_t)step->stored_tiles, &device);
    step->element = device;
    for (int c = 0; block && c < 16 * step->stored_tiles; c++) element[c] = element_of(P, step, c);
    ani_gpu_network *network = gpu_pack(&p, sizeof *network * (size_t)(n_members * P->n_species), &device), counted;
    step->network = device;
    operands->at = 0;
    for (int k = 0; k < n_members * P->n_species; k++)
        pack_network(&p, operands, step, &P->network[members[k / P->n_species]][k % P->n_species],
                     block ? &network[k] : &counted);
    *bytes = p.at;
}

size_t ani_gpu_arena(ani_gpu_step *step, void *base)
{
    gpu_packer p = {NULL, base, 0};
    const size_t n = (size_t)step->gpu.neighbors.atom_capacity, real = sizeof(float), columns = 16 * (size_t)step->stored_tiles;
    const void *at;
    step->slot_capacity = (step->gpu.neighbors.atom_capacity + ANI_GPU_MAX_TILE - 1) / ANI_GPU_MAX_TILE * ANI_GPU_MAX_TILE +
                          step->n_species * ANI_GPU_MAX_TILE;
    const size_t slots = (size_t)step->slot_capacity;
#define PLACE(field, bytes) (gpu_pack(&p, bytes, &at), step->field = (void *)(uintptr_t)at)
    PLACE(groups, sizeof(ani_gpu_groups));
    PLACE(slot_of, n * sizeof(int32_t));
    PLACE(block_counts, (n / ANI_GPU_SORT_ATOMS + 1) * 2 * ANI_MAX_SPECIES * sizeof(int32_t));
    PLACE(aev, slots * columns * real);
    PLACE(adjoint, (size_t)step->n_parts * slots * columns * real);
    PLACE(member_energy, (size_t)step->n_members * 8 * slots * real);
    PLACE(saved,
          ((size_t)step->wgmma_blocks * (size_t)step->saved_columns + ANI_GPU_WGMMA_WIDTH) * 128 *
              real); // the kernel reads past the end
    PLACE(energy, n * 2 * sizeof(double));
    PLACE(center, n * 3 * sizeof(double));
    PLACE(incoming_gradient, n * (size_t)step->gpu.neighbors.row_capacity * 4 * real);
#undef PLACE
    return (p.at + 255) / 256 * 256;
}
