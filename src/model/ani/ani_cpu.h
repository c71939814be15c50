/* SPDX-License-Identifier: MIT */
/* ani_cpu.h: what the float32 backend holds: packed weights and buffers (ani_cpu_memory.c), used by ani_cpu.c. */
#ifndef ANI_CPU_H
#define ANI_CPU_H

#include "ani.h"
#include "ani_kernels.h"

enum { ANI_BLOCK = 96, ANI_MAX_THREADS = 256 };

/* One member's network of one species. Widths are padded; the last layer is a vector. */
typedef struct ani_cpu_network {
    int n_hidden, width[ANI_MAX_LAYERS];
    float *weight[ANI_MAX_LAYERS]; /* packed (in, out); the first has rows for every species, padded as ani_shape says */
    float *back[ANI_MAX_LAYERS];   /* packed (out, in); the first block by block */
    float *bias[ANI_MAX_LAYERS];
    float *output, output_bias;
} ani_cpu_network;

typedef struct ani_thread {
    double *distance; /* [row_capacity] */
    float *layers;    /* [ANI_BLOCK][2 Σ widths + 2 widest] */
    float *bar;       /* [n_columns of all species] */
    float *block;     /* [2][ANI_BLOCK][n_columns], where blocks are used */
    float *energy;    /* [n_members][ANI_BLOCK] */
    ani_scratch scratch;
} ani_thread;

typedef struct ani_cpu {
    model_backend backend;
    const ani_parameters *parameters;
    const nn_kernels *nn;
    const ani_kernels *ani;
    int n_threads;
    int members[ANI_MAX_MEMBERS], first_member, n_running;
    ani_shape shape;
    int n_weight_rows, first_angular, n_blocks; /* rows of a padded first layer; blocks of them, of species and of pairs */
    int widest;                                 /* hidden layer */
    size_t layer_floats;
    ani_cpu_network (*network)[ANI_MAX_SPECIES]; /* [n_members] */
    float *weights;                              /* what the networks point into */
    size_t weights_used;                         /* floats */

    size_t atom_capacity, slot_capacity, row_capacity, aev_capacity, part_capacity, energy_capacity, block_capacity;
    int64_t n_growths;
    unsigned char *active; /* [n_atoms] active species */
    int32_t *atom;         /* [n_rows] atom of a row */
    ani_row *rows;         /* [n_rows] */
    ani_neighbors neighbors;
    float *aev, *parts, *energy; /* [n_rows][n_columns], [n_members][n_rows][n_columns], [n_members][n_rows] */
    ani_thread thread[ANI_MAX_THREADS];
} ani_cpu;

/* Floats before a block of the first layer's transpose, with `out` rows. */
size_t ani_cpu_first_block(const ani_cpu *cpu, int out, int block);
/* Shape and packed weights; what threads need whatever the batch is. */
mlff_status ani_cpu_pack(ani_cpu *cpu);
/* Arrays by atom; then, with species known, by row. Growth is counted; nothing is allocated where all fits. */
mlff_status ani_cpu_resize_atoms(ani_cpu *cpu, const model_graph *graph);
mlff_status ani_cpu_resize_rows(ani_cpu *cpu, const model_graph *graph, int n_rows, bool split);
int64_t ani_cpu_bytes(const ani_cpu *cpu);
void ani_cpu_free(ani_cpu *cpu);

#endif
