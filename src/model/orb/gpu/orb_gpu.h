/* SPDX-License-Identifier: MIT */
/* orb_gpu.h: what the files of Orb on a GPU share: the arrays of a step, and the launches of its kernels.
 *
 *   neighbor list > graph (cap of each sender, edges, incoming edges) > encoder > layers > heads > forces > sums
 *   a layer: projections of nodes > first, second, third edge layer > sums over edges > first, second, third node layer;
 *     all layers of a small Orb-v2 in one kernel; of a larger one all that nodes have in a layer
 *   conservative: heads > layers backward, last to first > encoder backward > gradient of each edge > forces > sums
 *
 * For the reverse pass every layer keeps what its derivatives need (orb_gpu_kept); adjoints of hidden features take its place.
 *
 * The first edge layer W [e | n_sender | n_receiver] is W_e e + (W_s n)_sender + (W_r n)_receiver: the projections W_s n + b and W_r n are
 * computed once for each atom. Edges are processed in chunks, so that hidden features of a chunk stay in the L2 cache and need no memory
 * in proportion to the edges. Latent features of edges and nodes are kept as two planes of 16 bits (gpu/nn/linear.h). */
#ifndef ORB_GPU_H
#define ORB_GPU_H

#include "gpu/gpu_step.h"
#include "gpu/nn/gpu_segment.h"
#include "model/orb/orb_model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ORB_GPU_LATENT = GPU_NORM_WIDTH,
    ORB_GPU_CHUNK = 33792, /* edges, or atoms, processed together: 264 tiles of 128 */
    /* Values of plan.tile beyond those of products: networks of edges by clusters of 2 blocks; all products by size, no networks; networks
     * of edges by clusters of 4 blocks and, in the fast modes, networks of nodes by clusters of 4 or of 8; networks of edges by clusters of 2 blocks in
     * tiles of 32, 48, 64 or 80 rows, which are operand B. */
    ORB_GPU_TILES_NETWORK = GPU_LINEAR_TILES,
    ORB_GPU_TILES_BY_SIZE,
    ORB_GPU_TILES_CLUSTERS_OF_4,
    ORB_GPU_TILES_CLUSTERS_OF_8,
    ORB_GPU_TILES_ROWS,
    ORB_GPU_TILE_SIZES = 4,
    ORB_GPU_NETWORK_EDGES_FLOAT32 = 400,  /* networks of edges from so many on in float32; in the fast modes always */
    ORB_GPU_CLUSTERS_OF_4_FLOAT32 = 1200, /* by clusters of 4 from so many on */
    ORB_GPU_NETWORK_NODES = 192,          /* networks of nodes from so many on */
    ORB_GPU_MAX_LAYERS = 16,
    ORB_GPU_MAX_CAP = 128,
    ORB_GPU_FEW_ATOMS = 64, /* heads of one system in one kernel, up to so many */
    /* One kernel for all layers: of at most so many atoms and edges. Slots of what its blocks exchange. */
    ORB_GPU_TOGETHER_ATOMS = 16,
    ORB_GPU_TOGETHER_EDGES = 320,
    ORB_GPU_SLOTS = 4,
    /* One kernel for a layer's nodes, up to so many: of units of so many nodes, in the slots' memory. */
    ORB_GPU_NODES_TOGETHER = 256,
    ORB_GPU_NODE_UNIT = 16,
    ORB_GPU_NODE_UNIT_BYTES = 7 * 1024 * ORB_GPU_NODE_UNIT,
    ORB_GPU_NODE_SLOT_BYTES = ORB_GPU_NODES_TOGETHER / ORB_GPU_NODE_UNIT * ORB_GPU_NODE_UNIT_BYTES,
    ORB_GPU_SLOT_BYTES = 5 * 1024 * ORB_GPU_TOGETHER_EDGES + 16 * ORB_GPU_TOGETHER_EDGES + 7 * 1024 * ORB_GPU_TOGETHER_ATOMS
};

#define ORB_GPU_NODE_UNITS(n_atoms) (((n_atoms) + ORB_GPU_NODE_UNIT - 1) / ORB_GPU_NODE_UNIT)

/* A multilayer perceptron of three layers, and the norm of its output: shift NULL: root mean square. */
typedef struct orb_gpu_mlp {
    gpu_linear layer[3];
    const float *scale, *shift; /* [256] */
} orb_gpu_mlp;

typedef struct orb_gpu_layer {
    gpu_linear project; /* 2 H outputs: W_s n + b, W_r n */
    orb_gpu_mlp edge, node;
    const float *gate; /* [2][256] weights of the sending and of the receiving gate */
    float gate_bias[2];
    /* Transposed, for the reverse pass; 0 outputs where forces are direct. */
    gpu_linear edge_back[3], node_back[3], project_back;
} orb_gpu_layer;

/* What the reverse pass needs of a network that was applied to rows; all NULL: nothing is kept. */
typedef struct orb_gpu_kept {
    gpu_operand hidden[2]; /* [rows][hidden] before the activations; then the adjoints of these */
    float *z, *inverse;    /* [rows][256], [rows] of the norm */
} orb_gpu_kept;

/* One head, 256 → 256 → n. */
typedef struct orb_gpu_output {
    const float *weight, *bias; /* [n][256], [n] */
} orb_gpu_output;

/* Repulsion of an atom's edges: energy and stress (times the volume) of those it sends, force of all. */
typedef struct orb_gpu_repulsion {
    double energy, stress[6], force[3];
} orb_gpu_repulsion;

/* Sums over the atoms of a system. */
typedef struct orb_gpu_system {
    double mean_force[3], center[3], torque[3]; /* torque: the mu of F += r × mu */
} orb_gpu_system;

/* Constants that only the host reads: they become arguments of products. */
typedef struct orb_gpu_model {
    orb_gpu_mlp encoder; /* of edges */
    gpu_linear encoder_back[3];
    orb_gpu_layer layer[ORB_GPU_MAX_LAYERS];
    gpu_linear force_hidden;  /* 256 → 256 */
    gpu_linear error_hidden;  /* 256 → 256 of the confidence head */
    gpu_linear system_hidden; /* 256 → 512: of energy and of stress */
} orb_gpu_model;

typedef struct orb_gpu_step {
    gpu_step gpu; /* first: the call, the neighbor list, the integrator, the stamps */
    /* ---- the model */
    const orb_gpu_model *model; /* on the host */
    int32_t numbers;            /* enum gpu_number */
    int32_t activation;         /* enum gpu_activation */
    int32_t n_layers, hidden;   /* hidden: width of the hidden layers */
    int32_t edge_inputs;        /* columns of an edge's input, a multiple of 64 */
    int32_t bessel;             /* 1: Bessel functions × spherical harmonics × envelope; 0: Gaussians and direction */
    int32_t cap;                /* edges of a sender */
    int32_t has_forces, has_stress;
    int32_t conservative;      /* forces are the derivative of the energy */
    int32_t repulsion_is_mean; /* over a system's atoms */
    int32_t stamp_heads;       /* stamp of the heads, behind the layers' */
    int32_t saves;             /* 1: a step with conservative forces */
    float norm_epsilon;
    const float *repulsion_table; /* [n_species][2] by atomic number Z: radius in Å, (Z + 1)^0.3; NULL: no repulsion */
    const float *node_table;      /* [n_species][256] encoded nodes by atomic number */
    const orb_gpu_layer *layers;  /* [n_layers] of the model, on the device */
    const float *energy_back;     /* [256][256] weights of the energy's hidden layer; NULL: forces are direct */
    /* Of charge and spin; NULL without conditioning. */
    const float *frequency;                         /* [2][64] of charge and of spin */
    const float *condition_weight, *condition_bias; /* [n_layers][256 inputs][256], [n_layers][256] */
    orb_gpu_output energy, force, stress, confidence;
    int32_t n_bins;         /* of the confidence head; 0: the model has none */
    const float *bin_edges; /* [n_bins + 1] eV/Å */
    double energy_scale, energy_mean, force_scale, force_mean, stress_scale[6], stress_mean[6];
    /* ---- on the device */
    int32_t edge_capacity, atom_rows, chunk;    /* rows of an edges' and of a nodes' slot; of the hidden arrays */
    int32_t *n_edges;                           /* [1] */
    int32_t *first_edge;                        /* [n_atoms + 1] */
    int32_t *count;                             /* [n_atoms] edges of a sender, then of a receiver */
    int32_t *incoming_first;                    /* [n_atoms + 1] */
    int32_t *incoming_next;                     /* [n_atoms] */
    int32_t *incoming_unsorted, *incoming_edge; /* [n_edges] edges by receiver */
    int32_t *sender, *receiver;                 /* [n_edges] */
    float *geometry;                            /* [n_edges][4] direction, distance in Å */
    float *envelope;                            /* [n_edges] */
    gpu_operand input;                          /* [chunk][edge_inputs] */
    gpu_operand hidden_a, hidden_b;             /* [chunk][hidden] */
    gpu_operand edges;                          /* [n_edges][256] */
    /* Of edges: a slot for each layer, then one for the encoder; with direct forces one slot for all of them. */
    orb_gpu_kept of_edges;        /* z: messages before the norm's scale */
    float *gates;                 /* [slots][n_edges][parts][2] parts of the gates' sums, of senders and of receivers */
    orb_gpu_kept of_nodes;        /* a slot for each layer; NULL with direct forces */
    gpu_operand nodes;            /* [n_atoms][256] */
    gpu_operand gathered;         /* [n_atoms][512] messages received, sent */
    float *projection;            /* [n_atoms][2 hidden]; of 16 bits where one kernel computes an edge's network in a fast mode */
    float *atom_hidden;           /* [n_atoms][256] of the force head, then of the confidence head */
    float *raw_force;             /* [n_atoms][3] in units of the normalizer */
    float *condition;             /* [n_systems][n_layers][256] added to nodes */
    gpu_operand pooled;           /* [n_systems][256] */
    gpu_operand pooled_hidden;    /* [n_systems][512] of energy and stress, before the activation */
    float *system_hidden_values;  /* [n_systems][512] */
    orb_gpu_repulsion *repulsion; /* [n_atoms] */
    char *exchange;               /* [ORB_GPU_SLOTS][ORB_GPU_SLOT_BYTES] of kernels whose blocks run at once */
    orb_gpu_system *system;       /* [n_systems] */
    /* ---- adjoints, of conservative forces */
    float *system_bar;            /* [n_systems][256] of the last nodes */
    float *nodes_bar, *edges_bar; /* [n_atoms][256], [n_edges][256] */
    float *context_bar;           /* [n_atoms][768] of a node network's input */
    float *envelope_bar;          /* [n_edges] */
    gpu_operand y_bar;            /* [chunk][256] of a norm's input, rows scaled */
    float *row_scale;             /* [n_edges] of edges */
    float *node_scale;            /* [n_atoms] the same of nodes */
    gpu_operand hidden_sums;      /* [n_atoms][2 hidden] of projections, rows scaled */
    float *hidden_sums_scale;     /* [n_atoms] */
    float *input_bar;             /* [chunk][edge_inputs] */
    float *gradient;              /* [n_edges][4] dE/d(vector), eV/Å */
} orb_gpu_step;

/* The heads of direct forces in one kernel, of one system. */
typedef struct orb_gpu_heads {
    orb_gpu_step step;
    gpu_linear force_hidden, system_hidden; /* as in orb_gpu_model */
    int32_t wants_energy, wants_forces;     /* wants_energy: and stress */
    int32_t moves;                          /* 1: of dynamics */
} orb_gpu_heads;

/* Stamps of the stages after the neighbor list's two. Layers have two each. */
enum orb_gpu_stamp { ORB_GPU_STAMP_GRAPH = 2, ORB_GPU_STAMP_ENCODER, ORB_GPU_STAMP_LAYERS };

/* An edge's or a node's third layer: normalizes, then adds to the latent features. */
typedef struct orb_gpu_update {
    gpu_product product;
    const float *scale, *shift;
    float epsilon;
    int32_t replaces; /* 1: the result is the latent feature itself */
    int32_t keeps;    /* 1: latent features are not written */
    gpu_operand latent;
    float *z, *inverse;       /* [rows][256], [rows] of the norm; NULL: not kept */
    int32_t halves;           /* 1: z are halves */
    const float *gate;        /* [2][256], of edges */
    float *gates;             /* [n_edges][parts][2] */
    const float *added;       /* of nodes: [n_systems][stride] added too; NULL: nothing */
    const int32_t *system_of; /* NULL: all nodes are in system 0 */
    int32_t stride;
} orb_gpu_update;

/* An edge's first layer: adds the projections of both atoms. */
typedef struct orb_gpu_gather {
    gpu_product product;
    int32_t activation;
    gpu_operand out, keep; /* keep: before the activation; NULL: nowhere */
    const float *projection;
    const int32_t *sender, *receiver;
} orb_gpu_gather;

/* A network of Orb-v2's edges or nodes in one kernel: `update` is its third layer but for the product. */
typedef struct orb_gpu_network {
    gpu_network net;
    orb_gpu_update update;
    const float *projection; /* of an edge's atoms; NULL: the encoder, or nodes */
    float *projects;         /* of nodes: where the projections of the next layer are stored */
    const int32_t *sender, *receiver;
} orb_gpu_network;

/* Orb-v2's encoder and all layers in one kernel. */
typedef struct orb_gpu_layers {
    orb_gpu_mlp encoder;
    const orb_gpu_layer *layer; /* [n_layers] on the device */
    int32_t n_layers;
    float epsilon;
    const float *node_table;
    gpu_operand nodes; /* of the last layer */
    const int32_t *n_atoms, *n_edges, *first_edge, *incoming_first, *incoming_edge, *sender, *receiver, *species;
    const float *geometry, *envelope;
    char *exchange;   /* the first three slots are all ones */
    uint64_t *stamps; /* [1 + 2 n_layers], or NULL */
} orb_gpu_layers;

/* A layer's nodes of Orb-v2 in one kernel: sums of messages, the network, the projections of the next layer. */
typedef struct orb_gpu_node_layers {
    gpu_attention attention; /* its `out` is not used */
    orb_gpu_mlp mlp;
    gpu_linear project;
    float *projects; /* NULL: none */
    int32_t rounds;  /* 1: they are numbers of 16 bits */
    float epsilon;
    gpu_operand nodes;
    char *exchange, *next_exchange; /* of all units; the first is all ones, the second becomes so */
} orb_gpu_node_layers;

/* Launches. `stream` is a cudaStream_t, the result a cudaError_t. */
int orb_gpu_launch_graph(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
/* The same in one kernel, on Hopper, in which so many bytes of the exchange become empty; and whether it takes the plan's atoms and so many edges. */
int orb_gpu_launch_few_edges(const orb_gpu_step *step, const gpu_plan *plan, int cleared, void *stream);
int orb_gpu_has_few_edges(const gpu_plan *plan, int edges);
int orb_gpu_launch_inputs(const orb_gpu_step *step, const gpu_plan *plan, int first, void *stream); /* of a chunk of edges */
/* `cleared`: so many bytes of the exchange become empty, too. */
int orb_gpu_launch_nodes(const orb_gpu_step *step, const gpu_plan *plan, int cleared, void *stream);
int orb_gpu_launch_edge_dense(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_node_dense(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_gather(const orb_gpu_gather *gather, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_edge_update(const orb_gpu_update *update, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_node_update(const orb_gpu_update *update, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_network(const orb_gpu_network *network, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_node_network(const orb_gpu_network *network, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_layers(const orb_gpu_layers *layers, enum gpu_number numbers, const gpu_plan *plan, int edges, void *stream);
int orb_gpu_launch_node_layers(const orb_gpu_node_layers *layers, enum gpu_number numbers, const gpu_plan *plan, void *stream);
int orb_gpu_launch_condition(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
int orb_gpu_launch_pool(const orb_gpu_step *step, const gpu_plan *plan, int stamped, void *stream);
int orb_gpu_launch_repulsion(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
int orb_gpu_launch_forces(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
int orb_gpu_launch_few_heads(const orb_gpu_heads *heads, const gpu_plan *plan,
                             void *stream); /* Hopper; ORB_GPU_FEW_ATOMS atoms at most */
int orb_gpu_launch_errors(const orb_gpu_step *step, const gpu_plan *plan, void *stream); /* of forces, from atom_hidden */
int orb_gpu_launch_sums(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
/* ---- conservative forces */
int orb_gpu_launch_edge_back(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_node_back(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream);
int orb_gpu_launch_readout_back(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
int orb_gpu_launch_gradient(const orb_gpu_step *step, const gpu_plan *plan, int first, void *stream); /* of a chunk of edges */
int orb_gpu_launch_gathered_forces(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
int orb_gpu_launch_energies(const orb_gpu_step *step, const gpu_plan *plan, void *stream);
/* Raises the kernels' limits of shared memory; once per device. */
int orb_gpu_prepare_products(int hopper);
int orb_gpu_prepare_updates(int hopper);
int orb_gpu_prepare_networks(void); /* Hopper only */
int orb_gpu_prepare_layers(void);
int orb_gpu_prepare_node_layers(void);
int orb_gpu_prepare_few_heads(void);
/* Whether the kernel of all layers takes the plan's atoms and so many edges; bytes of the exchange that are empty when it begins. */
int orb_gpu_has_layers(const gpu_plan *plan, int edges);
int orb_gpu_layers_cleared(enum gpu_number numbers);
/* Whether the kernel of a layer's nodes takes the plan's atoms. */
int orb_gpu_has_node_layers(const gpu_plan *plan);
int orb_gpu_prepare_back(int hopper);

/* A second stream (cudaStream_t), and events (cudaEvent_t) of its beginning and end. */
typedef struct orb_gpu_side {
    void *stream, *forked, *joined;
} orb_gpu_side;

/* All kernels of the model, behind the neighbor list. `tiles`: kind of the products' tiles (gpu_linear_plan.wide); -1: chosen by size. */
int orb_gpu_enqueue(const orb_gpu_step *step, const gpu_plan *plan, int hopper, int tiles, orb_gpu_side side, void *stream);

/* NULL if the kernels support this shape, else what they lack. */
const char *orb_gpu_lacks(const orb_parameters *parameters);
/* Constants in one block of *bytes, pointers of `step` and `model` relative to `base`; with block NULL only *bytes is set. Fails with
 * MLFF_ERR_MEMORY by returning false. */
bool orb_gpu_pack(const orb_parameters *parameters, const mlff_model *model, void *block, size_t *bytes, const void *base,
                  orb_gpu_step *step, orb_gpu_model *host);
/* Orb's arrays of a step whose sizes are set: pointers relative to `base`; returns the bytes. */
size_t orb_gpu_arena(orb_gpu_step *step, void *base);

#ifdef __cplusplus
}
#endif
#endif
