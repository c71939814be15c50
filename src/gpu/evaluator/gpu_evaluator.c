// SPDX-License-Identifier: MIT
// gpu_evaluator.c: any model on one GPU: owns the memory, captures steps into CUDA graphs and runs batches through them. The model's part
// (kernels, their memory and order) comes through its gpu_kind; transfers are in gpu_call.c.
//
// Kernels read atom counts and pointers from device memory, so a graph serves every batch up to the size it was captured for. Neighbor
// counts never lead to a new capture, atom counts only beyond their size class.
#include "gpu_evaluator.h"

#include "gpu_clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// ---- making one ---------------------------------------------------------------------------------------------------------

static bool has_tile(const gpu_kind *kind, long tile)
{
    const int *legal = kind->tiles;
    while (legal && *legal >= 0 && *legal != tile) legal++;
    return legal && *legal >= 0;
}

// Plans that a developer compares, as "tile=16,wgmma=0,fused=1" (docs/guide/gpu.md). −1: not set. A value that no kernel has would give
// wrong results without a word.
static mlff_status read_forced_plan(const gpu_kind *kind, gpu_plan *plan)
{
    enum { N_FIELDS = 9, MOST_BLOCKS = 8 };
    const struct {
        const char *name;
        int *value, highest;
    } fields[N_FIELDS] = {{"cluster", &plan->cluster, MOST_BLOCKS},
                          {"tile", &plan->tile, INT32_MAX},
                          {"wgmma", &plan->wgmma, 1},
                          {"edge_mode", &plan->edge_mode, 3},
                          {"overlap", &plan->overlap, 1},
                          {"cell_list", &plan->cell_list, 2},
                          {"fused", &plan->fused, 3},
                          {"fused_search", &plan->fused_search, 1},
                          {"small", &plan->small, GPU_SMALL_WARPS}};
    for (int k = 0; k < N_FIELDS; k++) *fields[k].value = -1;
    for (const char *text = getenv("MLFF_CUDA_PLAN"); text && *text;) {
        const size_t name = strcspn(text, "="), length = strcspn(text, ",");
        long value = -1;
        char *end = NULL;
        int k = 0;
        while (k < N_FIELDS && (strlen(fields[k].name) != name || strncmp(text, fields[k].name, name) != 0)) k++;
        if (k < N_FIELDS && text[name] == '=' && text[name + 1] >= '0' && text[name + 1] <= '9')
            value = strtol(text + name + 1, &end, 10);
        bool legal = value >= 0 && end == text + length && value <= fields[k].highest;
        if (legal && fields[k].value == &plan->tile) legal = has_tile(kind, value);
        if (legal && fields[k].value == &plan->cluster) legal = value > 0 && (value & (value - 1)) == 0;
        if (!legal)
            return host.fail(
                MLFF_ERR_USAGE,
                "MLFF_CUDA_PLAN: \"%.*s\" is not a choice of this model's kernels; unset it, or see docs/guide/gpu.md",
                length < 60 ? (int)length : 60, text);
        *fields[k].value = (int)value;
        text += length + (text[length] == ',');
    }
    return MLFF_OK;
}

// A GPU may run code that was compiled for an older one, without newer features.
static mlff_status query_code(gpu_evaluator *e)
{
    mlff_status status = MLFF_OK;
    int32_t code[2] = {0};
    PLUGIN_TRY(cuda_allocate(e->device, sizeof code, "kernel properties", &e->code));
    CUDA_TRY(gpu_launch_code(e->code, e->stream), "querying the kernels");
    CUDA_TRY(cudaMemcpyAsync(code, e->code, sizeof code, cudaMemcpyDeviceToHost, e->stream), "querying the kernels");
    CUDA_TRY(cuda_wait(e->stream, 0), "querying the kernels");
    if (code[0] < e->capability) e->capability = code[0];
    e->hopper = code[1] && e->capability == 90;
done:
    return status;
}

mlff_status gpu_evaluator_make_stream(bool first, cudaStream_t *stream_out)
{
    mlff_status status = MLFF_OK;
    int lowest, highest;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "creating a stream");
    CUDA_TRY(cudaStreamCreateWithPriority(stream_out, cudaStreamNonBlocking, first ? highest : lowest), "creating a stream");
done:
    return status;
}

mlff_status gpu_evaluator_open(gpu_evaluator *e, const gpu_kind *kind, const char *model_name,
                               const mlff_evaluator_options *options)
{
    mlff_status status = MLFF_OK;
    struct cudaDeviceProp properties;
    if (options->precision == MLFF_FLOAT64)
        return host.fail(MLFF_ERR_UNSUPPORTED, "float64 is the reference and runs on the CPU; use float32 on the GPU");
    e->kind = kind;
    e->model_name = model_name;
    e->waits = options->halo != NULL;
    e->device = options->device.index;
    PLUGIN_TRY(cuda_use(e->device));
    CUDA_TRY(cudaGetDeviceProperties(&properties, e->device), "querying the GPU");
    e->capability = 10 * properties.major + properties.minor;
    e->n_multiprocessors = properties.multiProcessorCount;
    e->shared_bytes = (int)properties.sharedMemPerBlockOptin;
    PLUGIN_TRY(gpu_evaluator_make_stream(true, &e->stream));
    PLUGIN_TRY(gpu_evaluator_make_stream(true, &e->side));
    PLUGIN_TRY(gpu_evaluator_make_stream(false, &e->background));
    CUDA_TRY(cudaEventCreateWithFlags(&e->forked, cudaEventDisableTiming), "creating an event");
    CUDA_TRY(cudaEventCreateWithFlags(&e->joined, cudaEventDisableTiming), "creating an event");
    CUDA_TRY(cudaEventCreateWithFlags(&e->reported, cudaEventDisableTiming), "creating an event");
    CUDA_TRY(cudaEventCreateWithFlags(&e->left_end, cudaEventDisableTiming), "creating an event");
    e->step.neighbors.row_capacity = FIRST_ROW;
    e->step.neighbors.skin = options->skin_angstrom;
    e->row_limit = e->atom_limit = INT32_MAX;
    e->n_members = 1;
    e->member = -1;
    PLUGIN_TRY(read_forced_plan(kind, &e->forced));
    PLUGIN_TRY(query_code(e));
done:
    return status;
}

// Fresh pages are zeros; large ones where the system has them, since the first touch of small ones is slow.
static void *map_zeros(size_t bytes)
{
    // cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return NULL;
    madvise(block, bytes, MADV_HUGEPAGE); // a hint
    return block;
}

mlff_status gpu_evaluator_upload_more(gpu_evaluator *e, gpu_pack_model pack, void *context, void **constants_out)
{
    mlff_status status = MLFF_OK;
    void *block = NULL, *constants = NULL;
    size_t bytes;
    pack(context, NULL, &bytes, NULL);
    PLUGIN_TRY(cuda_allocate(e->device, bytes, "the model", &constants));
    block = map_zeros(bytes);
    if (!block) {
        status = host.fail(MLFF_ERR_MEMORY, "out of memory: %.1f MB for the model", (double)bytes / 1048576.0);
        goto done;
    }
    pack(context, block, &bytes, constants);
    CUDA_TRY(cuda_copy(constants, block, bytes, cudaMemcpyHostToDevice), "copying the model to the GPU");
    e->constant_bytes += bytes;
    *constants_out = constants;
    constants = NULL;
done:
    cuda_release(e->device, constants);
    if (block) munmap(block, bytes);
    return status;
}

mlff_status gpu_evaluator_upload(gpu_evaluator *e, gpu_pack_model pack, void *context)
{
    return gpu_evaluator_upload_more(e, pack, context, &e->constants);
}

void gpu_evaluator_drop_graphs(gpu_evaluator *e)
{
    for (int k = 0; k < MAX_GRAPHS; k++) {
        if (e->graphs[k].graph) cudaGraphExecDestroy(e->graphs[k].graph);
        e->graphs[k].graph = NULL;
    }
    e->dynamics = NULL;
}

void gpu_evaluator_destroy(gpu_evaluator *e)
{
    if (!e || cuda_stuck()) return; // left to the end of the process
    cuda_use(e->device);
    if (e->stream && cuda_wait(e->stream, 0) == cudaErrorLaunchTimeout) return;
    gpu_evaluator_drop_graphs(e);
    if (e->stream) cudaStreamDestroy(e->stream);
    if (e->side) cudaStreamDestroy(e->side);
    if (e->background) cudaStreamDestroy(e->background);
    if (e->forked) cudaEventDestroy(e->forked);
    if (e->joined) cudaEventDestroy(e->joined);
    if (e->reported) cudaEventDestroy(e->reported);
    if (e->left_end) cudaEventDestroy(e->left_end);
    gpu_evaluator_release_exchanges(e);
    if (e->io.block) cudaFreeHost(e->io.block);
    if (e->clock) cudaGraphExecDestroy(e->clock);
    if (e->kind && e->kind->release) e->kind->release(e);
    cuda_release(e->device, e->clock_times);
    cuda_release(e->device, e->code);
    cuda_release(e->device, e->constants);
    cuda_release(e->device, e->arena);
    cuda_release(e->device, e->input);
    cuda_release(e->device, e->staged);
    free(e->sent);
    free(e->seen);
    free(e->stages);
    free(e->time_ns);
    free(e);
}

// ---- memory -------------------------------------------------------------------------------------------------------------

mlff_status gpu_evaluator_grow(gpu_evaluator *e, int n_atoms, int n_systems, int row)
{
    mlff_status status = MLFF_OK;
    gpu_step step = e->step;
    if (e->arena && n_atoms <= step.neighbors.atom_capacity && n_systems <= step.neighbors.system_capacity &&
        row <= step.neighbors.row_capacity && e->asymmetric <= step.neighbors.incoming_room)
        return MLFF_OK;
    step.neighbors.incoming_room = e->asymmetric;
    int64_t atoms = class_of(n_atoms) > step.neighbors.atom_capacity ? class_of(n_atoms) : step.neighbors.atom_capacity;
    atoms = (atoms + GPU_ATOM_BLOCK - 1) / GPU_ATOM_BLOCK * GPU_ATOM_BLOCK;
    if (class_of_systems(n_systems) > step.neighbors.system_capacity)
        step.neighbors.system_capacity = class_of_systems(n_systems);
    if (row > step.neighbors.row_capacity) step.neighbors.row_capacity = (row + row / 8 + 15) / 16 * 16;
    if (atoms * step.neighbors.row_capacity > INT32_MAX || atoms > e->atom_limit)
        return host.fail(MLFF_ERR_LIMIT,
                         "%d atoms with up to %d neighbors each are more than one GPU evaluator holds; split the batch", n_atoms,
                         step.neighbors.row_capacity);
    if (step.neighbors.row_capacity > e->row_limit)
        return host.fail(MLFF_ERR_LIMIT, "an atom has %d neighbors; this model's kernels hold rows of %d; use device cpu", row,
                         e->row_limit);
    step.neighbors.atom_capacity = (int32_t)atoms;
    const size_t own_bytes = gpu_step_arena(&step, NULL), bytes = own_bytes + e->kind->arena(e, &step, NULL);
    CUDA_TRY(cuda_wait(e->stream, 0), "waiting for the last step");
    gpu_evaluator_drop_graphs(e);
    cuda_release(e->device, e->arena);
    e->arena = NULL;
    e->arena_bytes = 0;
    e->trusted_atoms = 0;
    e->lists_counted = 0;
    PLUGIN_TRY(cuda_allocate(e->device, bytes, "arrays of a step", &e->arena));
    e->arena_bytes = bytes;
    gpu_step_arena(&step, e->arena);
    e->kind->arena(e, &step, (char *)e->arena + own_bytes);
    e->step = step;
    e->n_growths++;
done:
    return status;
}

// ---- graphs -------------------------------------------------------------------------------------------------------------

int gpu_evaluator_isolated(const mlff_batch *batch)
{
    for (int k = 0; batch->periodic && k < 3 * batch->n_systems; k++)
        if (batch->periodic[k]) return 0;
    return 1;
}

gpu_plan gpu_evaluator_make_plan(const gpu_evaluator *e, int n_atoms, int n_systems, int largest, int isolated, int forces)
{
    int atoms = class_of(n_atoms), systems = class_of_systems(n_systems);
    gpu_plan plan = {.n_atoms = atoms < e->step.neighbors.atom_capacity ? atoms : e->step.neighbors.atom_capacity,
                     .n_systems = systems < e->step.neighbors.system_capacity ? systems : e->step.neighbors.system_capacity,
                     .overlap = e->capability >= 90,
                     .n_multiprocessors = e->n_multiprocessors,
                     .forces = forces,
                     .wide = e->wide,
                     // The cell list keeps four rows of candidates in 48 KB of shared memory.
                     .cell_list = largest >= CELL_LIST_FROM && e->step.neighbors.candidate_capacity <= 3000,
                     .fused_search = largest <= 32                                ? 32
                                     : largest <= GPU_FUSED_ATOMS && atoms <= 512 ? largest <= 64 ? 64 : GPU_FUSED_ATOMS
                                     : systems == 1 && atoms <= 1024              ? atoms
                                                                                  : 0,
                     .isolated = isolated,
                     .small = largest <= GPU_SMALL ? class_of_systems(largest) : 0};
    if (plan.small > GPU_SMALL_WARPS) plan.small = GPU_SMALL_WARPS;
    if (e->forced.overlap >= 0) plan.overlap = e->forced.overlap && e->capability >= 90;
    if (e->forced.cell_list >= 0) plan.cell_list = e->forced.cell_list;
    if (e->forced.fused_search >= 0) plan.fused_search = e->forced.fused_search ? plan.fused_search : 0;
    if (e->forced.small >= 0) plan.small = plan.small ? e->forced.small : 0;
    e->kind->plan(e, &plan);
    plan.isolated = 0; // the model has chosen; batches with the same kernels have one graph
    return plan;
}

// The step of a graph, or of a step without a graph.
static gpu_step step_of(const gpu_evaluator *e, const captured_graph *graph)
{
    gpu_step step = e->step;
    step.call_in = graph->from_device ? e->staged : e->input;
    step.stamps = graph->stamps ? e->io.stamps : NULL;
    step.overflow = e->io.overflow;
    gpu_step_choose_rows(&step, graph->given_pairs);
    return step;
}

static cudaError_t copy_input(gpu_evaluator *e, const captured_graph *graph, cudaStream_t stream)
{
    input_block unused;
    size_t bytes = gpu_place_input(&unused, NULL, graph->plan.n_atoms, graph->plan.n_systems);
    return graph->from_device ? cudaSuccess : cudaMemcpyAsync(e->input, e->io.input, bytes, cudaMemcpyHostToDevice, stream);
}

mlff_status gpu_evaluator_enqueue(gpu_evaluator *e, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = e->kind->enqueue_rows(e, step, plan, stream);
    return status == MLFF_OK ? e->kind->enqueue_model(e, step, plan, stream) : status;
}

static mlff_status capture(gpu_evaluator *e, captured_graph *slot)
{
    mlff_status status = MLFF_OK;
    cudaGraph_t graph = NULL;
    gpu_step step = step_of(e, slot);
    CUDA_TRY(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
    cudaError_t copied = copy_input(e, slot, e->stream);
    if (copied != cudaSuccess) status = cuda_failed(copied, "capturing a step");
    if (status == MLFF_OK) status = gpu_evaluator_enqueue(e, &step, &slot->plan, e->stream);
    cudaError_t error = cudaStreamEndCapture(e->stream, &graph);
    if (status == MLFF_OK && error != cudaSuccess) status = cuda_failed(error, "capturing a step");
    if (status != MLFF_OK) goto done;
    CUDA_TRY(cudaGraphInstantiate(&slot->graph, graph, cudaGraphInstantiateFlagUseNodePriority),
             "instantiating the graph of a step");
done:
    if (graph) cudaGraphDestroy(graph);
    return status;
}

static mlff_status find_graph(gpu_evaluator *e, const captured_graph *wanted, captured_graph **graph_out)
{
    mlff_status status = MLFF_OK;
    captured_graph *oldest = &e->graphs[0];
    for (int k = 0; k < MAX_GRAPHS; k++) {
        captured_graph *g = &e->graphs[k];
        if (g->graph && memcmp(&g->plan, &wanted->plan, sizeof g->plan) == 0 && g->from_device == wanted->from_device &&
            g->given_pairs == wanted->given_pairs && g->ghosts == wanted->ghosts && g->stamps == wanted->stamps) {
            g->last_use = e->n_computes;
            *graph_out = g;
            return MLFF_OK;
        }
        if (!g->graph || (oldest->graph && g->last_use < oldest->last_use)) oldest = g;
    }
    if (oldest->graph) {
        CUDA_TRY(cuda_wait(e->stream, 0), "waiting for the last step");
        cudaGraphExecDestroy(oldest->graph);
    }
    *oldest = *wanted;
    oldest->graph = NULL;
    oldest->last_use = e->n_computes;
    PLUGIN_TRY(capture(e, oldest));
    *graph_out = oldest;
done:
    return status;
}

// ---- one call -----------------------------------------------------------------------------------------------------------

mlff_status gpu_evaluator_report_status(const gpu_evaluator *e, const gpu_report *report)
{
    int flags = report->flags, atom = report->atom, other = report->other;
    if (flags & GPU_NOT_FINITE)
        return host.fail(MLFF_ERR_VALUE, "atom %d (or its cell) has a coordinate that is not finite", atom);
    if (flags & GPU_NO_VOLUME)
        return host.fail(MLFF_ERR_VALUE, "the cell of atom %d has no volume, or a periodic axis without a cell vector", atom);
    if (flags & GPU_MANY_IMAGES)
        return host.fail(
            MLFF_ERR_LIMIT,
            "the cell of atom %d repeats more than %d times within the cutoff; give the vectors of the same lattice that "
            "are least skewed, or use the CPU",
            atom, GPU_IMAGES);
    if (flags & GPU_ELEMENT)
        return host.fail(MLFF_ERR_ELEMENT, "atom %d has atomic number %d, which model '%s' does not know", atom, other,
                         e->model_name);
    if (flags & GPU_SAME_POINT) return host.fail(MLFF_ERR_VALUE, "atoms %d and %d are on one point", atom, other);
    if (flags & GPU_TOO_WIDE)
        return host.fail(MLFF_ERR_LIMIT,
                         "atom %d is more than 50000 Å from the first atom of its system; the system may be unstable", atom);
    if (flags & GPU_SHIFT_RANGE)
        return host.fail(MLFF_ERR_LIMIT, "a pair of atoms %d and %d has an image shift beyond 511; wrap the atoms into the cell",
                         atom, other);
    if (flags & GPU_NOT_SYMMETRIC)
        return host.fail(MLFF_ERR_VALUE, "the pair of atoms %d and %d was given without its reverse", atom, other);
    return MLFF_OK;
}

static int count_pairs(const mlff_batch *batch, int n_atoms)
{
    return batch->pairs && batch->location == MLFF_HOST ? batch->pairs->first[n_atoms] : 0;
}

static cudaError_t clear_report(const gpu_step *step, cudaStream_t stream)
{
    const cudaError_t error = cudaMemsetAsync(step->report, 0, sizeof *step->report, stream);
    return error != cudaSuccess ? error
                                : cudaMemsetAsync(step->neighbors.pair_counts, 0,
                                                  GPU_PAIR_COUNTS * 32 * sizeof *step->neighbors.pair_counts, stream);
}

// The report of rows and of the search beside them, to the host on the second stream: the first layer does not wait for it.
static mlff_status send_report_of_rows(gpu_evaluator *e, const gpu_step *step, bool searches, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(cudaEventRecord(e->reported, stream), "the report");
    CUDA_TRY(cudaStreamWaitEvent(e->side, e->reported, 0), "the report");
    if (searches) CUDA_TRY(cudaStreamWaitEvent(e->side, e->joined, 0), "joining");
    CUDA_TRY(cudaMemcpyAsync(e->io.report_of_rows, step->report, sizeof *step->report, cudaMemcpyDeviceToHost, e->side),
             "the report");
    CUDA_TRY(cudaEventRecord(e->reported, e->side), "the report");
    e->rows_unknown = true;
done:
    return status;
}

mlff_status gpu_evaluator_know_rows(gpu_evaluator *e, bool *good_out)
{
    mlff_status status = MLFF_OK;
    if (e->rows_unknown) CUDA_TRY(cuda_wait_event(e->reported), "the neighbor rows on the GPU");
    e->rows_unknown = false;
    *good_out = e->io.report_of_rows->flags == 0;
done:
    return status;
}

// A step without a graph: the caller's hooks run between its layers. They are called only when rows are known to be long enough and all
// inputs valid: other processes take part in an exchange, and none may be started twice.
static mlff_status run_without_graph(gpu_evaluator *e, const captured_graph *wanted, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    gpu_step step = step_of(e, wanted);
    bool good = false;
    e->n_exchanges = 0;
    CUDA_TRY(copy_input(e, wanted, stream), "copying inputs to the GPU");
    PLUGIN_TRY(e->kind->enqueue_rows(e, &step, &wanted->plan, stream));
    PLUGIN_TRY(send_report_of_rows(e, &step, wanted->plan.forces, stream));
    status = e->kind->enqueue_model(e, &step, &wanted->plan, stream);
    const mlff_status known = gpu_evaluator_know_rows(e, &good);
    if (known != MLFF_OK) return known;
    if (status == MLFF_OK && good) return MLFF_OK;
    cuda_wait(e->side, 0); // sums may be running there
    CUDA_TRY(cuda_wait(stream, 0), "a step on the GPU");
    CUDA_TRY(clear_report(&step, stream), "the report");
    if (!good) {
        *e->io.report = *e->io.report_of_rows;
        status = MLFF_OK; // the caller handles the report
    }
done:
    return status;
}

mlff_status gpu_evaluator_widen(gpu_evaluator *e, bool *can_out)
{
    *can_out = false;
    if (!e->kind->widen || (e->has_halo && !e->halo.any)) return MLFF_OK;
    const mlff_status status = e->kind->widen(e);
    *can_out = status == MLFF_OK;
    return status == MLFF_ERR_UNSUPPORTED ? MLFF_OK : status;
}

// Whether a step of this process, or with halos of any process, exceeded the range of halves.
static mlff_status find_overflow(const gpu_evaluator *e, int *overflow_out)
{
    *overflow_out = *e->io.overflow != 0 && !e->wide;
    return e->has_halo && e->halo.any && e->kind->widen && !e->wide ? e->halo.any(e->halo.context, overflow_out) : MLFF_OK;
}

// Counts rebuilt Verlet lists; the device counts them and reports later. The search of all pairs keeps no list.
static void count_lists(gpu_evaluator *e, const captured_graph *graph)
{
    if (graph->given_pairs || !graph->plan.cell_list) return;
    e->n_rebuilds += e->io.report->n_lists - e->lists_counted;
    e->lists_counted = e->io.report->n_lists;
}

// The report of a step that is complete; *again_out: it must be repeated, with longer rows or with float32's range.
static mlff_status examine(gpu_evaluator *e, const mlff_batch *batch, const captured_graph *graph, host_times *times,
                           bool *again_out)
{
    const gpu_report *report = e->io.report;
    const int n_atoms = batch->first_atom[batch->n_systems];
    *again_out = (report->flags & GPU_ROW_FULL) != 0;
    if (*again_out) return gpu_evaluator_grow(e, n_atoms, batch->n_systems, report->longest_row);
    int overflow = 0;
    mlff_status status = gpu_evaluator_report_status(e, report);
    const int64_t asked = gpu_evaluator_host_clock(e);
    if (status == MLFF_OK) status = find_overflow(e, &overflow);
    times->agreed = gpu_evaluator_host_clock(e) - asked;
    if (status == MLFF_OK && overflow) status = gpu_evaluator_widen(e, again_out);
    e->wide |= *again_out;
    if (status != MLFF_OK || *again_out) return status;
    e->n_pairs = report->n_pairs;
    if (e->kind->read_report) e->kind->read_report(e, report, n_atoms);
    count_lists(e, graph);
    if (graph->from_device && !*e->io.overflow && !e->wide) e->trusted_atoms = n_atoms;
    return MLFF_OK;
}

// Steps use the same arrays: one that has not been waited for ends before one on another stream begins, or the host writes a call.
static mlff_status follow_left_step(gpu_evaluator *e, bool on_device, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    if (!e->left || (on_device && stream == e->left_on)) return MLFF_OK;
    if (on_device) {
        CUDA_TRY(cudaStreamWaitEvent(stream, e->left_end, 0), "waiting for the last step");
    } else {
        CUDA_TRY(cuda_wait_event(e->left_end), "waiting for the last step");
        e->left = false;
    }
done:
    return status;
}

// The caller may be capturing its stream: then the step is a part of a graph of its own.
static mlff_status leave_step(gpu_evaluator *e, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    enum cudaStreamCaptureStatus captures;
    CUDA_TRY(cudaStreamIsCapturing(stream, &captures), "starting a step");
    if (captures != cudaStreamCaptureStatusNone) return MLFF_OK;
    CUDA_TRY(cudaEventRecord(e->left_end, stream), "starting a step");
    e->left = true;
    e->left_on = stream;
done:
    return status;
}

mlff_status gpu_evaluator_compute(gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    const int64_t begun = gpu_evaluator_host_clock(e);
    int on_device = batch->location == MLFF_DEVICE_MEMORY, n_atoms = batch->first_atom[batch->n_systems];
    int gradient = results->forces || results->virials || results->stresses;
    if (on_device != (results->location == MLFF_DEVICE_MEMORY))
        return host.fail(MLFF_ERR_USAGE, "batch and results must both be on the host or both on the GPU");
    int given_pairs = !batch->pairs ? 0 : batch->pairs->symmetric ? 1 : 2, largest = 0;
    for (int s = 0; s < batch->n_systems; s++)
        if (batch->first_atom[s + 1] - batch->first_atom[s] > largest) largest = batch->first_atom[s + 1] - batch->first_atom[s];
    if (given_pairs == 2) e->asymmetric = 1;
    PLUGIN_TRY(gpu_evaluator_check_charges(e, batch));
    PLUGIN_TRY(cuda_use(e->device));
    cudaStream_t stream = on_device ? (cudaStream_t)batch->stream : e->stream;
    int n_pairs = count_pairs(batch, n_atoms);
    PLUGIN_TRY(follow_left_step(e, on_device, stream));
    PLUGIN_TRY(gpu_evaluator_grow(e, n_atoms, batch->n_systems, e->step.neighbors.row_capacity));
    PLUGIN_TRY(gpu_evaluator_grow_host(e, on_device ? 1 : n_atoms, on_device ? 1 : batch->n_systems, n_pairs));

    captured_graph *graph = NULL;
    host_times times = {.begun = begun};
    bool again = true;
    const int isolated = gpu_evaluator_isolated(batch);
    if (*e->io.overflow) e->trusted_atoms = 0; // in a device batch that was not waited for: wait for this one
    e->wide = 0;
    e->ghosts = batch->owned != NULL;
    while (again) {
        *e->io.overflow = 0;
        captured_graph wanted = {.plan = gpu_evaluator_make_plan(e, n_atoms, batch->n_systems, largest, isolated, gradient),
                                 .from_device = on_device,
                                 .given_pairs = given_pairs,
                                 .ghosts = e->ghosts,
                                 .stamps = e->clock_on};
        wanted.plan.virial = results->virials || results->stresses;
        wanted.plan.errors = results->force_errors != NULL;
        if (on_device) {
            PLUGIN_TRY(gpu_evaluator_send_call(e, batch, results, stream));
        } else {
            PLUGIN_TRY(gpu_evaluator_fill_host(e, batch, results, &wanted.plan));
        }
        times.filled = gpu_evaluator_host_clock(e);
        if (e->has_halo) {
            PLUGIN_TRY(run_without_graph(e, &wanted, stream));
        } else {
            PLUGIN_TRY(find_graph(e, &wanted, &graph));
            CUDA_TRY(cudaGraphLaunch(graph->graph, stream), "starting a step");
        }
        if (on_device && n_atoms <= e->trusted_atoms && !e->clock_on && !e->waits) {
            PLUGIN_TRY(leave_step(e, stream));
            break;
        }
        times.enqueued = gpu_evaluator_host_clock(e);
        CUDA_TRY(cuda_wait(stream, 0), "a step on the GPU");
        e->left = false;
        times.waited = gpu_evaluator_host_clock(e);
        PLUGIN_TRY(examine(e, batch, &wanted, &times, &again));
        if (again) times.repeated += gpu_evaluator_host_clock(e) - times.filled;
    }
    if (!on_device) gpu_evaluator_take_results(e, batch, results);
    if (e->clock_on) {
        times.taken = gpu_evaluator_host_clock(e);
        if (graph && graph->launch_ns == 0) {
            const int64_t rebuilds = e->n_rebuilds;
            PLUGIN_TRY(gpu_evaluator_measure_launch(e, graph, stream));
            count_lists(e, graph);
            e->n_rebuilds = rebuilds; // exclude timing steps from the count
        }
        gpu_evaluator_keep_stamps(e, gradient, graph ? graph->launch_ns : 0, &times);
    }
    e->n_computes++;
done:
    e->wide = e->ghosts = 0;
    return status;
}

void gpu_evaluator_select_member(gpu_evaluator *e, int member)
{
    e->member = member;
}

// ---- information about the evaluator ----------------------------------------------------------------------------------

void gpu_evaluator_info(const gpu_evaluator *e, mlff_evaluator_info *info_out)
{
    info_out->n_computes = e->n_computes;
    info_out->n_pairs = e->n_pairs;
    info_out->n_rebuilds = e->n_rebuilds;
    info_out->n_growths = e->n_growths;
    info_out->n_members = e->n_members;
    info_out->host_bytes = (int64_t)(sizeof *e + e->io.bytes);
    info_out->device_bytes = (int64_t)(e->constant_bytes + e->arena_bytes + e->staged_bytes + e->io.input_bytes);
}
