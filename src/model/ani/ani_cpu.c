// SPDX-License-Identifier: MIT
// ani_cpu.c: ANI in float32 on the CPU. The equations: README.md of this folder; the kernels: ani_kernels.c.
//
// Atoms are sorted by species into rows. Small batches go through three steps with all threads on each: AEVs of rows;
// networks, one task for a member, a species and a block of rows; gradients of rows from the sum over members. A member's
// weights are read once for its forward and its reverse pass, by one core. Large batches are cut into blocks of rows of
// one species, and a thread takes a block through everything. Both add up members in the same order: same bits.
// Exact savings: species absent from the batch have no columns; the packed first layers are read in runs of rows.
#include "ani_cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "device/team.h"

enum { AEV_ROWS = 4, MAX_SPLIT_FLOATS = 4 << 20, ANI_MAX_BLOCKS = ANI_MAX_SPECIES + ANI_MAX_SPECIES * (ANI_MAX_SPECIES + 1) / 2 };

// One compute, as all threads see it.
typedef struct run {
    ani_cpu *cpu;
    const model_graph *graph;
    double *atom_energy, *pair_gradient;
    stage_clock *clock;
    int stage;
    int n_rows, first_row[ANI_MAX_SPECIES + 1]; // rows of active species
    int species[ANI_MAX_SPECIES];               // of the model, by active species
    int n_runs;
    nn_rows runs[ANI_MAX_BLOCKS]; // rows of W1 that have columns
    int n_blocks;
    struct {
        int column, block; // of the compact AEV; index of the packed block of W1
    } blocks[ANI_MAX_BLOCKS];
    int block_rows, n_row_blocks[ANI_MAX_SPECIES];
    int first_member, n_members;
    int n_row_blocks_in_all;
    bool split;
    _Atomic int next[2]; // dynamic schedules: rows of AEVs, tasks or rows of gradients
    _Atomic int next_task;
} run;

static void mark(const run *r, int thread, int stage)
{
    if (thread == 0) stage_end(r->clock, r->stage + stage);
}

static int take(_Atomic int *counter, int count)
{
    return atomic_fetch_add(counter, count);
}

// ---- what is present ----------------------------------------------------------------------------------------------

static void add_rows(run *r, int first, int count)
{
    nn_rows *last = r->n_runs ? &r->runs[r->n_runs - 1] : NULL;
    if (last && last->first + last->count == first)
        last->count += count;
    else
        r->runs[r->n_runs++] = (nn_rows){first, count};
}

static void lay_out(run *r)
{
    ani_cpu *c = r->cpu;
    ani_shape *shape = &c->shape;
    int S = c->parameters->n_species, P = shape->n_active, column = 0;
    r->n_runs = r->n_blocks = 0;
    for (int a = 0; a < P; a++, column += shape->radial_width) {
        add_rows(r, r->species[a] * shape->radial_width, shape->radial_width);
        r->blocks[r->n_blocks].column = column;
        r->blocks[r->n_blocks++].block = r->species[a];
    }
    for (int a = 0; a < P; a++)
        for (int b = a; b < P; b++, column += shape->angular_width) {
            int pair = ani_pair_index(S, r->species[a], r->species[b]);
            shape->pair_column[a][b] = shape->pair_column[b][a] = column;
            add_rows(r, c->first_angular + pair * shape->angular_width, shape->angular_width);
            r->blocks[r->n_blocks].column = column;
            r->blocks[r->n_blocks++].block = S + pair;
        }
    shape->n_columns = column;
}

// Active species, those of ghosts among them; rows are owned atoms by species.
static void sort_atoms(run *r)
{
    ani_cpu *c = r->cpu;
    const model_graph *graph = r->graph;
    const int *species_of = c->parameters->species_of;
    int count[ANI_MAX_SPECIES] = {0}, active[ANI_MAX_SPECIES] = {0}, at[ANI_MAX_SPECIES];
    bool present[ANI_MAX_SPECIES] = {false};
    for (int i = 0; i < graph->n_atoms; i++) {
        int s = species_of[graph->species[i]];
        present[s] = true;
        if (!graph->owned || graph->owned[i]) count[s]++;
    }
    int P = 0, n = 0;
    for (int s = 0; s < c->parameters->n_species; s++) {
        if (!present[s]) continue;
        active[s] = P;
        r->species[P] = s;
        r->first_row[P] = at[P] = n;
        n += count[s];
        P++;
    }
    r->first_row[P] = r->n_rows = n;
    c->shape.n_active = P;
    for (int i = 0; i < graph->n_atoms; i++) {
        int a = active[species_of[graph->species[i]]];
        c->active[i] = (unsigned char)a;
        if (!graph->owned || graph->owned[i]) c->atom[at[a]++] = i;
    }
}

// ---- rows ---------------------------------------------------------------------------------------------------------

static void aev_of_rows(const run *r, int begin, int end, float *aev, ani_thread *t, int thread)
{
    ani_cpu *c = r->cpu;
    const ani_shape *shape = &c->shape;
    const model_graph *graph = r->graph;
    for (int row = begin; row < end; row++) {
        int i = c->atom[row];
        c->rows[row].start = ((size_t)(graph->first[i] + NN_PAD - 1) / NN_PAD + (size_t)i) * NN_PAD;
        c->ani->geometry(shape, graph->first[i], graph->first[i + 1], graph->vectors, graph->neighbor, c->active, t->distance,
                         &c->rows[row], &c->neighbors);
        c->ani->radial(shape, &c->rows[row], &c->neighbors, aev + (size_t)(row - begin) * shape->n_columns);
    }
    mark(r, thread, ANI_RADIAL);
    for (int row = begin; row < end; row++)
        c->ani->angular(shape, &c->rows[row], &c->neighbors, &t->scratch, aev + (size_t)(row - begin) * shape->n_columns);
    mark(r, thread, ANI_ANGULAR);
}

// One member's energies of a block of rows of one species, and dE/dAEV, set or added to.
static void network(const run *r, int member, int species, int n, const float *aev, float *energy, float *aev_bar,
                    bool accumulate, ani_thread *t, int thread)
{
    const ani_cpu *c = r->cpu;
    const ani_shape *shape = &c->shape;
    const nn_kernels *nn = c->nn;
    const ani_cpu_network *net = &c->network[member][species];
    int last = net->n_hidden - 1;
    float *h[ANI_MAX_LAYERS], *slope[ANI_MAX_LAYERS], *free_part = t->layers;
    for (int l = 0; l <= last; l++) {
        int out = net->width[l];
        h[l] = free_part;
        slope[l] = h[l] + (size_t)ANI_BLOCK * out;
        free_part = slope[l] + (size_t)ANI_BLOCK * out;
        if (l == 0)
            nn->product_rows(n, out, c->n_weight_rows, r->n_runs, r->runs, aev, shape->n_columns, net->weight[0], net->bias[0],
                             h[0], out, 0);
        else
            nn->product(n, out, net->width[l - 1], h[l - 1], net->width[l - 1], net->weight[l], net->bias[l], h[l], out, 0);
        nn->activate(NN_CELU, (size_t)n * out, h[l], slope[l]);
    }
    float *delta = free_part, *next = delta + (size_t)ANI_BLOCK * c->widest;
    c->ani->output(n, net->width[last], h[last], slope[last], net->output, net->output_bias, energy, aev_bar ? delta : NULL);
    mark(r, thread, ANI_NETWORK);
    if (!aev_bar) return;

    for (int l = last; l > 0; l--) {
        int in = net->width[l - 1];
        nn->product(n, in, net->width[l], delta, net->width[l], net->back[l], NULL, next, in, 0);
        c->ani->multiply((size_t)n * in, next, slope[l - 1]);
        float *swap = delta;
        delta = next;
        next = swap;
    }
    nn_block blocks[ANI_MAX_BLOCKS];
    for (int b = 0; b < r->n_blocks; b++) {
        const int block = r->blocks[b].block;
        blocks[b] =
            (nn_block){net->back[0] + ani_cpu_first_block(c, net->width[0], block),
                       block < c->parameters->n_species ? shape->radial_width : shape->angular_width, r->blocks[b].column};
    }
    nn->product_blocks(n, net->width[0], r->n_blocks, blocks, delta, net->width[0], aev_bar, shape->n_columns, accumulate);
    mark(r, thread, ANI_NETWORK_BACKWARD);
}

// Mean over members of a row's energy, and its pairs' gradients from the sum over members of dE/dAEV.
static void finish_rows(const run *r, int begin, int end, const float *energy, size_t energy_stride, const float *aev_bar,
                        int n_parts, size_t stride, ani_thread *t, int thread)
{
    ani_cpu *c = r->cpu;
    const ani_shape *shape = &c->shape;
    for (int row = begin; row < end; row++) {
        double sum = 0;
        for (int m = 0; m < r->n_members; m++) sum += (double)energy[(size_t)m * energy_stride + (size_t)(row - begin)];
        r->atom_energy[c->atom[row]] = sum / r->n_members;
        if (!r->pair_gradient) continue;
        c->ani->mean((size_t)shape->n_columns, n_parts, stride, aev_bar + (size_t)(row - begin) * shape->n_columns,
                     1.0f / (float)r->n_members, t->bar);
        c->ani->aev_backward(shape, &c->rows[row], &c->neighbors, &t->scratch, t->bar, r->pair_gradient);
    }
    mark(r, thread, ANI_AEV_BACKWARD);
}

// ---- one thread's step --------------------------------------------------------------------------------------------

// Block `k` of all blocks of rows: its species and rows.
static void row_block(const run *r, int k, int *species, int *begin, int *end)
{
    int a = 0;
    while (k >= r->n_row_blocks[a]) k -= r->n_row_blocks[a++];
    *species = a;
    *begin = r->first_row[a] + k * r->block_rows;
    *end = *begin + r->block_rows < r->first_row[a + 1] ? *begin + r->block_rows : r->first_row[a + 1];
}

static void step_split(run *r, ani_thread *t, const team_member *member)
{
    ani_cpu *c = r->cpu;
    int thread = member->thread;
    size_t columns = (size_t)c->shape.n_columns, part = (size_t)r->n_rows * columns;
    for (int row; (row = take(&r->next[0], AEV_ROWS)) < r->n_rows;)
        aev_of_rows(r, row, row + AEV_ROWS < r->n_rows ? row + AEV_ROWS : r->n_rows, c->aev + (size_t)row * columns, t, thread);
    team_barrier(member);
    mark(r, thread, ANI_ANGULAR);
    for (int task; (task = take(&r->next_task, 1)) < r->n_row_blocks_in_all * r->n_members;) {
        int m = task % r->n_members, a, begin, end;
        row_block(r, task / r->n_members, &a, &begin, &end);
        network(r, r->first_member + m, r->species[a], end - begin, c->aev + (size_t)begin * columns,
                c->energy + (size_t)m * (size_t)r->n_rows + begin,
                r->pair_gradient ? c->parts + (size_t)m * part + (size_t)begin * columns : NULL, false, t, thread);
    }
    team_barrier(member);
    mark(r, thread, r->pair_gradient ? ANI_NETWORK_BACKWARD : ANI_NETWORK);
    for (int row; (row = take(&r->next[1], AEV_ROWS)) < r->n_rows;)
        finish_rows(r, row, row + AEV_ROWS < r->n_rows ? row + AEV_ROWS : r->n_rows, c->energy + row, (size_t)r->n_rows,
                    c->parts + (size_t)row * columns, r->n_members, part, t, thread);
    team_barrier(member);
    mark(r, thread, ANI_AEV_BACKWARD);
}

static void step_blocks(run *r, ani_thread *t, const team_member *member)
{
    ani_cpu *c = r->cpu;
    int thread = member->thread;
    float *aev = t->block, *aev_bar = aev + (size_t)ANI_BLOCK * (size_t)c->shape.n_columns;
    for (int task; (task = take(&r->next_task, 1)) < r->n_row_blocks_in_all;) {
        int a, begin, end;
        row_block(r, task, &a, &begin, &end);
        aev_of_rows(r, begin, end, aev, t, thread);
        for (int m = 0; m < r->n_members; m++)
            network(r, r->first_member + m, r->species[a], end - begin, aev, t->energy + (size_t)m * ANI_BLOCK,
                    r->pair_gradient ? aev_bar : NULL, m > 0, t, thread);
        finish_rows(r, begin, end, t->energy, ANI_BLOCK, aev_bar, 1, 0, t, thread);
    }
    team_barrier(member);
    mark(r, thread, ANI_AEV_BACKWARD);
}

static void step(void *context, const team_member *member)
{
    run *r = context;
    ani_thread *t = &r->cpu->thread[member->thread];
    if (r->split)
        step_split(r, t, member);
    else
        step_blocks(r, t, member);
}

// ---- the backend --------------------------------------------------------------------------------------------------

static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    mlff_status status = MLFF_OK;
    double *atom_energy = outputs->atom_energy, *pair_gradient = outputs->pair_gradient;
    ani_cpu *c = (ani_cpu *)backend;
    run r = {.cpu = c,
             .graph = graph,
             .atom_energy = atom_energy,
             .pair_gradient = pair_gradient,
             .clock = clock,
             .stage = stage,
             .first_member = c->first_member,
             .n_members = c->n_running};
    MLFF_TRY(ani_cpu_resize_atoms(c, graph));
    sort_atoms(&r);
    lay_out(&r);
    if (graph->owned)
        for (int i = 0; i < graph->n_atoms; i++) {
            if (graph->owned[i]) continue;
            atom_energy[i] = 0;
            if (pair_gradient)
                memset(pair_gradient + 3 * (size_t)graph->first[i], 0,
                       sizeof(double) * 3 * (size_t)(graph->first[i + 1] - graph->first[i]));
        }
    size_t floats = (size_t)r.n_rows * (size_t)c->shape.n_columns * (size_t)r.n_members;
    bool split = floats <= MAX_SPLIT_FLOATS;
    MLFF_TRY(ani_cpu_resize_rows(c, graph, r.n_rows, split));

    // Blocks of a few dozen rows keep the multiply-add units busy; more of them than threads keep the threads busy.
    int wanted = split ? ANI_BLOCK : r.n_rows / (8 * c->n_threads), n_row_blocks = 0;
    r.block_rows = wanted < ANI_BLOCK / 4 ? ANI_BLOCK / 4 : wanted > ANI_BLOCK ? ANI_BLOCK : (wanted + 5) / 6 * 6;
    for (int a = 0; a < c->shape.n_active; a++) {
        r.n_row_blocks[a] = (r.first_row[a + 1] - r.first_row[a] + r.block_rows - 1) / r.block_rows;
        n_row_blocks += r.n_row_blocks[a];
    }
    int n_tasks = split ? n_row_blocks * r.n_members : n_row_blocks, n_threads = n_tasks < c->n_threads ? n_tasks : c->n_threads;
    r.split = split;
    r.n_row_blocks_in_all = n_row_blocks;
    team_run(n_threads, step, &r);
done:
    return status;
}

static void select_member(model_backend *backend, int member)
{
    ani_cpu *c = (ani_cpu *)backend;
    c->first_member = member < 0 ? 0 : member;
    c->n_running = member < 0 ? c->backend.n_members : 1;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const ani_cpu *c = (const ani_cpu *)backend;
    *bytes = ani_cpu_bytes(c);
    *n_growths = c->n_growths;
}

static void destroy(model_backend *backend)
{
    ani_cpu_free((ani_cpu *)backend);
}

mlff_status ani_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    ani_cpu *c = base_alloc(1, sizeof *c, "an evaluator");
    if (!c) return MLFF_ERR_MEMORY;
    c->backend = (model_backend){.stages = ani_stages,
                                 .n_stages = ANI_N_STAGES,
                                 .compute = compute,
                                 .select_member = select_member,
                                 .info = info,
                                 .destroy = destroy};
    c->parameters = model->parameters;
    MLFF_TRY(cpu_products(options, &c->nn));
    c->ani = ani_kernels_get(options->path);
    c->n_threads = options->n_threads < ANI_MAX_THREADS ? options->n_threads : ANI_MAX_THREADS;
    c->backend.n_members = ani_members(c->parameters, options, c->members);
    select_member(&c->backend, -1);
    MLFF_TRY(ani_cpu_pack(c));
    *backend_out = &c->backend;
    c = NULL;
done:
    if (c) ani_cpu_free(c);
    return status;
}
