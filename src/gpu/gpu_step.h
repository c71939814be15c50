/* SPDX-License-Identifier: MIT */
/* gpu_step.h: what every model's step on a GPU has: the call, the neighbor list, the integrator and the stage stamps. A model's
 * own step struct begins with a gpu_step and is passed by value to the kernels; kernels of src/gpu take the gpu_step alone. */
#ifndef GPU_STEP_H
#define GPU_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GPU_FUSED_ATOMS = 128, /* largest system whose atoms each row group of the fused search wraps for itself */
    GPU_SCAN_BLOCK = 1024, /* cells that one block sums */
    GPU_ATOM_BLOCK = 96,   /* atom capacities are multiples of it: tiles of 16, 24 and 32 atoms */
    GPU_SMALL_WARPS = 16,  /* warps of a block that sums a whole small system … */
    GPU_SMALL = 32,        /* … of at most so many atoms */
    GPU_PAIR_COUNTS = 16   /* counters of pairs: additions to one address take 1 ns each */
};

/* ---- the call */

/* One system. Missing cell vectors are completed; lengths in Å. */
typedef struct gpu_system {
    double cell[9], inverse[9];
    int32_t first, n;       /* its first atom; its atoms */
    int32_t images[3];      /* images −n … n beside the nearest one are searched */
    int32_t wrapped[3];     /* 1: periodic axis */
    int32_t bins[3];        /* cells of the cell list along each axis, at most n together; without periods they repeat */
    int32_t pending, flags; /* pending: the GPU has to complete the cell; flags of the report */
    double charge, spin;    /* e and multiplicity; NaN where not given */
} gpu_system;

/* One call: what the host sets before a step. Pointers are to device memory or to mapped host memory. */
typedef struct gpu_call {
    int32_t n_atoms, n_systems;
    int32_t want_virial;
    int32_t member;                                         /* of an ensemble, the member that runs; -1: all */
    const gpu_system *systems;                              /* [n_systems] */
    const int32_t *system_of;                               /* [n_atoms] */
    const double *cells;                                    /* [n_systems][9], or NULL */
    const int32_t *species;                                 /* [n_atoms] */
    const double *positions;                                /* [n_atoms][3] */
    const unsigned char *owned;                             /* [n_atoms], or NULL */
    const int32_t *pair_first, *pair_neighbor, *pair_shift; /* pairs given by the caller, or NULL */
    struct gpu_report *report;
    double *energies;                                    /* [n_systems] */
    double *atom_energies, *forces, *virials, *stresses; /* each may be NULL; virials is needed for stresses */
    double *force_errors;                                /* [n_atoms] eV/Å, or NULL; of models that estimate them */
} gpu_call;

/* The search looks at so many images to each side of a cell along an axis. */
enum { GPU_IMAGES = 500 };

/* Flags of a report. */
enum {
    GPU_ROW_FULL = 1,       /* an atom has more neighbors than a row holds: `longest_row` is the length needed */
    GPU_NOT_FINITE = 2,     /* position or cell */
    GPU_SAME_POINT = 4,     /* two atoms at one position */
    GPU_NO_VOLUME = 8,      /* a periodic axis without a cell vector, or dependent cell vectors */
    GPU_SHIFT_RANGE = 16,   /* an image shift beyond ±511 */
    GPU_NOT_SYMMETRIC = 32, /* a given pair has no reverse */
    GPU_ELEMENT = 64,       /* an element that the model does not have */
    GPU_TOO_WIDE = 128,     /* coordinates beyond ±5·10⁴ Å of the first atom */
    GPU_MANY_IMAGES = 256   /* a cell that repeats more than GPU_IMAGES times within the cutoff */
};

/* What a step reports to the host. */
typedef struct gpu_report {
    int32_t flags, longest_row, n_pairs, atom, other; /* `atom`, `other`: an atom or pair that a flag is about */
    int32_t n_lists;                                  /* Verlet lists built since the arrays were allocated */
    int32_t n_searched;                               /* blocks that have searched for the reverses of given pairs */
    int32_t overflow;                                 /* in dynamics: an energy or a force was not finite (gpu_step.overflow) */
    int32_t n_ties; /* atoms with equally distant neighbors of which a model's limit keeps only some; set by such models */
} gpu_report;

/* ---- the neighbor list */

/* What the Verlet list was built from; zeros: nothing yet. */
typedef struct gpu_verlet_list {
    int32_t n_atoms, n_systems; /* −1: the list must not be used again */
    int32_t stale, making;      /* it has to be rebuilt; this step rebuilds it */
    int32_t n_lists;
} gpu_verlet_list;

/* One edge of a row. Its tag is the place of its distance on the model's radial grid, for models that look their radial functions up
 * in tables: an interval, of gpu_neighbors.tag_bits bits, and the position in it. */
typedef struct __attribute__((aligned(16))) gpu_edge {
    float u[3], d;   /* direction from the row's atom to the neighbor, and distance, in model units */
    int32_t packed;  /* neighbor << tag_bits | interval */
    float position;  /* in the interval, −1 … 1 times gpu_neighbors.position_scale */
    int32_t species; /* atomic number of the neighbor */
    int32_t shift;   /* of its image: three times 10 bits, + 512 each */
} gpu_edge;

/* Pairs of two ghosts, which matter to no energy of an owned atom: all that are in the rows, those that the caller gives, none. */
enum { GPU_GHOST_PAIRS_ALL, GPU_GHOST_PAIRS_GIVEN, GPU_GHOST_PAIRS_NONE };

typedef struct gpu_neighbors {
    /* ---- set by the model */
    double cutoff;                 /* Å */
    double inverse_unit;           /* 1 / length unit of the model */
    double intervals_per_angstrom; /* radial grid: 2^tag_bits / cutoff; 0: the model uses no tag */
    double position_scale;
    int32_t tag_bits;
    int32_t n_species;    /* atomic numbers 0 … n_species − 1 have table rows */
    const double *offset; /* [n_species] eV per atom; not finite: an element the model does not have */
    int32_t ghost_pairs;  /* which pairs of two ghosts it needs: GPU_GHOST_PAIRS_… */

    /* ---- sizes */
    int32_t atom_capacity, system_capacity, row_capacity;
    int32_t given_pairs;        /* 1: rows come from the caller's pairs; 2: from an asymmetric list of pairs */
    int32_t drop_ghost_pairs;   /* 1: the rows leave out pairs of two ghosts */
    int32_t incoming_room;      /* 1: arrays for asymmetric lists are allocated */
    int32_t candidate_capacity; /* of a row of the Verlet list */
    double skin;                /* Å, of the Verlet list */

    /* ---- on the device */
    gpu_system *systems;
    int32_t *species, *system_of; /* [n_atoms] */
    unsigned char *owned;         /* [n_atoms] 0: a ghost */
    double *fractional;           /* [n_atoms][3], wrapped on periodic axes */
    float *fractional_float;      /* [n_atoms][4], last one unused */
    int32_t *row_length;          /* [n_atoms] */
    int32_t *pair_counts;         /* [GPU_PAIR_COUNTS][32] in lines of their own; added up in the report, then zero again */
    gpu_edge *edges;              /* [n_atoms][row_capacity] */
    /* Incoming edges of an atom, each reversed: the rows themselves where every pair has its reverse. */
    const gpu_edge *incoming;
    const int32_t *incoming_length;
    int32_t *reverse; /* [n_atoms][row_capacity] index in `incoming` of each edge */

    /* ---- only for asymmetric lists */
    int32_t *incoming_count, *incoming_keys; /* [n_atoms] incoming edges; [n_atoms][row_capacity] their indices in `edges` */
    gpu_edge *incoming_edges;                /* [n_atoms][row_capacity] */

    /* ---- cell list, and the Verlet list kept while no atom or cell changes by more than the skin allows */
    gpu_verlet_list *list;
    int32_t *bin, *place_in_bin;            /* [n_atoms] */
    int32_t *bin_count, *bin_first;         /* [n_atoms + 1] cells of a system, from the index of its first atom on */
    int32_t *bin_total;                     /* of GPU_SCAN_BLOCK cells each */
    float *binned;                          /* [n_atoms][4] fractional_float in the order of cells, and the atom */
    double *listed;                         /* [n_atoms][3] fractional, when the Verlet list was built */
    double *listed_cells;                   /* [n_systems][9] then */
    int32_t *candidates, *candidate_length; /* [n_atoms][candidate_capacity] the Verlet list: (neighbor, image), in order */
} gpu_neighbors;

/* ---- dynamics */

/* Atoms are moved as soon as their forces are known (dynamics/integrate.cuh). Pointers are to device memory, but for `trouble`,
 * which is mapped host memory. */
typedef struct gpu_motion {
    int32_t n_atoms, langevin;       /* n_atoms 0: no dynamics */
    int32_t place, n_steps;          /* index of the step in its graph; steps of the graph */
    double timestep_fs, keep, noise; /* c = exp(−friction dt) and (1 − c²) k_B T, eV */
    uint64_t seed;
    double *positions, *velocities, *forces; /* [n_atoms][3] */
    const double *inverse_mass;              /* [n_atoms] Å²/(fs² eV); 0: a fixed atom */
    double *heat;                            /* [n_atoms] eV given by the thermostat */
    int64_t *step;                           /* [2] number of the graph's first step; of the chunk's first step */
    uint64_t *times;                         /* [chunk + 1] GPU timer: begin of the chunk, end of each step */
    const gpu_report *report;                /* of the graph's steps together */
    gpu_report *trouble;                     /* flags of all graphs together */
} gpu_motion;

/* ---- a step */

typedef struct gpu_step {
    const gpu_call *call_in; /* device memory */
    gpu_call *call;          /* *call_in, copied by the neighbor list's first kernel */
    gpu_neighbors neighbors;
    gpu_motion motion;
    int32_t follows_motion;          /* 1: the kernel before the neighbor list's first one moves the atoms */
    double length_unit, energy_unit; /* of the model, in Å and eV */
    uint64_t *stamps;                /* GPU timer at the beginning of each stage and at the end; NULL: off */
    gpu_report *report;              /* zero at the beginning and the end of a step; in dynamics, of a graph of steps */
    int32_t *overflow;               /* mapped host memory: set to 1 if an energy or a force is not finite; or NULL */
    double *atom_virial;             /* [n_atoms][9] eV */
} gpu_step;

/* How a step is divided into kernel launches. Two equal plans share a captured graph. */
typedef struct gpu_plan {
    int n_atoms, n_systems; /* upper bounds, for which grids are sized */
    int overlap;            /* programmatic launches: a kernel starts while the one before it ends */
    int chained;            /* 1: the neighbor list's first kernel may start while the one before it runs */
    int n_multiprocessors;
    int forces;       /* 0: energies only */
    int virial;       /* 1: virials or stresses too, whose sums need all forces */
    int errors;       /* 1: estimated errors of forces too */
    int cell_list;    /* 1: cell list and Verlet list, for large systems; 2: the same, rebuilt in every step; 0: all pairs */
    int fused_search; /* fused search: atoms wrapped by the search kernel itself, up to GPU_FUSED_ATOMS by each row group, more by a
                   block; 0: a separate kernel wraps atoms */
    int row_warps,
        row_cluster; /* warps of a block, for given pairs, and blocks of a cluster in the list's first kernel; 0: default */

    /* ---- the model's kernels */
    int cluster;          /* blocks that share a tile of atoms: 1, 2, 4 or 8 */
    int tile;             /* atoms of a tile */
    int wgmma;            /* 1: tiles by wgmma, on Hopper alone */
    int wide;             /* 1: kernels with float32's range, for a step whose activations exceeded what halves hold */
    int isolated;         /* 1: no system is periodic; read by the model that makes the plan, 0 in a finished one */
    int small;            /* warps of a block that sums a whole small system; 0: systems are too large */
    int edge_mode, fused; /* defined by the model */
} gpu_plan;

/* Arrays of a step whose sizes are set: pointers relative to `base`; returns their bytes. */
size_t gpu_step_arena(gpu_step *step, void *base);
/* Where the rows of a step come from, and whether they have pairs of two ghosts; `given_pairs` as in gpu_neighbors. */
void gpu_step_choose_rows(gpu_step *step, int given_pairs);

/* ---- launches. `stream` is a cudaStream_t, the result a cudaError_t. Sizes must have been checked. */

int gpu_launch_neighbors(const gpu_step *step, const gpu_plan *plan, void *stream);
int gpu_launch_cell_list(const gpu_step *step, const gpu_plan *plan, void *stream); /* its part for plan->cell_list */
/* Index of each edge's reverse; with an asymmetric list, its transpose. */
int gpu_launch_reverse(const gpu_step *step, const gpu_plan *plan, void *stream);

#ifdef __cplusplus
}
#endif
#endif
