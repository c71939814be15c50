// SPDX-License-Identifier: MIT
// painn_train_batch.c: batches of a training step on one GPU: the order of kernels, graphs, slots.
//
// A step is enqueued, not waited for: the host fills a slot of mapped memory and launches the graph captured for batches of this
// size; the graph's first kernel reads the slot. Graphs are captured for classes of sizes; memory is allocated when a batch has
// more frames than all before it, for the largest frames of the data, so that later batches of other frames fit.
#include <string.h>

#include "painn_trainer_gpu.h"

// ---- graphs and launches ------------------------------------------------------------------------------------------------

void painn_trainer_forget_graphs(painn_trainer *t)
{
    for (int k = 0; k < PAINN_TRAIN_GRAPHS; k++) {
        if (t->graph[k].executable) cudaGraphExecDestroy(t->graph[k].executable);
        t->graph[k] = (painn_train_graph){0};
    }
}

static mlff_status enqueue_forward(const painn_train_step *s, const painn_train_plan *plan, int tangent, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    for (int l = 0; l < s->n_layers; l++) {
        if (l > 0 || !tangent) // tangents of the first layer's input, and so of x, are 0
            CUDA_TRY(painn_train_launch_node(s, plan, PAINN_MESSAGE_NET, l, tangent, stream), "launching a message network");
        CUDA_TRY(painn_train_launch_message(s, plan, l, tangent, stream), "launching a message");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_VECTOR, l, tangent, stream), "launching an update");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_NET, l, tangent, stream), "launching an update");
    }
    CUDA_TRY(painn_train_launch_readout(s, plan, tangent, stream), "launching the readout");
done:
    return status;
}

static mlff_status enqueue_backward(const painn_train_step *s, const painn_train_plan *plan, int tangent, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    for (int l = s->n_layers - 1; l >= 0; l--) {
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_NET_BACK, l, tangent, stream), "launching an update's reverse");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_VECTOR_BACK, l, tangent, stream), "launching an update's reverse");
        CUDA_TRY(painn_train_launch_message_back(s, plan, l, tangent, stream), "launching a message's reverse");
        if (l > 0 || tangent) // of values, no tangent of the first layer's input asks for its adjoint
            CUDA_TRY(painn_train_launch_node(s, plan, PAINN_MESSAGE_NET_BACK, l, tangent, stream),
                     "launching a message network's reverse");
    }
done:
    return status;
}

// Forward and backward, small batches.
static mlff_status enqueue_chains(const painn_train_step *s, const painn_train_plan *plan, int tangent, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    const int last = s->n_layers - 1;
    if (!tangent)
        CUDA_TRY(painn_train_launch_chain(s, plan, PAINN_CHAIN_BEGIN, 0, tangent, stream), "launching a message network");
    for (int l = 0; l <= last; l++) {
        CUDA_TRY(painn_train_launch_message(s, plan, l, tangent, stream), "launching a message");
        CUDA_TRY(painn_train_launch_chain(s, plan, l < last ? PAINN_CHAIN_FORWARD : PAINN_CHAIN_TURN, l, tangent, stream),
                 "launching an update");
    }
    for (int l = last; l >= 0; l--) {
        CUDA_TRY(painn_train_launch_message_back(s, plan, l, tangent, stream), "launching a message's reverse");
        if (l > 0 || tangent)
            CUDA_TRY(painn_train_launch_chain(s, plan, l > 0 ? PAINN_CHAIN_BACK : PAINN_CHAIN_END, l, tangent, stream),
                     "launching an update's reverse");
    }
done:
    return status;
}

static mlff_status enqueue_network(const painn_train_step *s, const painn_train_plan *plan, int tangent, cudaStream_t stream)
{
    if (plan->chains) return enqueue_chains(s, plan, tangent, stream);
    const mlff_status status = enqueue_forward(s, plan, tangent, stream);
    return status == MLFF_OK ? enqueue_backward(s, plan, tangent, stream) : status;
}

// A branch of the step, up to its partial sums of gradients.
static mlff_status enqueue_branch(painn_trainer *t, int k, const painn_train_step *s, const painn_train_plan *plan, int pass)
{
    mlff_status status = MLFF_OK;
    cudaStream_t stream = k ? t->side[k - 1] : t->stream;
    painn_train_plan first = *plan;
    if (plan->n_branches > 1) first.overlap &= ~GPU_TRAIN_OVERLAP; // its previous kernel is another stream's
    CUDA_TRY(painn_train_launch_gather(s, &first, stream), "launching a batch");
    PLUGIN_TRY(enqueue_network(s, plan, 0, stream));
    CUDA_TRY(painn_train_launch_loss(s, plan, stream), "launching the loss");
    if (pass == PAINN_ERRORS) goto done;
    PLUGIN_TRY(enqueue_network(s, plan, 1, stream));
    CUDA_TRY(painn_train_launch_embedding(s, plan, stream), "launching the embedding's gradient");
    CUDA_TRY(gpu_launch_weight_gradients(t->jobs + k * t->n_jobs, t->n_jobs, t->n_job_blocks, t->weight_tile, s->call,
                                         plan->parts, plan->overlap, stream),
             "launching weight gradients");
done:
    return status;
}

static mlff_status enqueue_branches(painn_trainer *t, const painn_train_step *branch, const painn_train_plan *plan, int pass)
{
    mlff_status status = MLFF_OK;
    if (plan->n_branches > 1) CUDA_TRY(cudaEventRecord(t->forked, t->stream), "forking");
    for (int k = 0; k < plan->n_branches; k++) {
        if (k) CUDA_TRY(cudaStreamWaitEvent(t->side[k - 1], t->forked, 0), "forking");
        PLUGIN_TRY(enqueue_branch(t, k, &branch[k], plan, pass));
        if (k) CUDA_TRY(cudaEventRecord(t->joined[k - 1], t->side[k - 1]), "joining");
    }
    for (int k = 1; k < plan->n_branches; k++) CUDA_TRY(cudaStreamWaitEvent(t->stream, t->joined[k - 1], 0), "joining");
done:
    return status;
}

mlff_status painn_train_update(const painn_trainer *t, const gpu_optimizer *optimizer, int first_overlap, int overlap)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(gpu_launch_update(optimizer, first_overlap, t->stream), "launching the update");
    if (t->soap.tiles) CUDA_TRY(gpu_launch_soap(optimizer, &t->soap, overlap, t->stream), "launching the update");
done:
    return status;
}

// SOAP's bases on a stream of their own: some blocks of a long chain of steps, beside the gradient's many short kernels.
static mlff_status enqueue_bases(painn_trainer *t, const gpu_optimizer *optimizer)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(cudaEventRecord(t->bases_begin, t->stream), "forking");
    CUDA_TRY(cudaStreamWaitEvent(t->bases, t->bases_begin, 0), "forking");
    CUDA_TRY(gpu_launch_soap_bases(optimizer, &t->soap, t->bases), "launching the update");
    CUDA_TRY(cudaEventRecord(t->bases_end, t->bases), "joining");
done:
    return status;
}

static mlff_status enqueue(painn_trainer *t, const painn_train_step *branch, const painn_train_plan *plan, int pass,
                           const gpu_optimizer *optimizer)
{
    mlff_status status = MLFF_OK;
    painn_train_plan joined = *plan;
    if (plan->n_branches > 1) joined.overlap &= ~GPU_TRAIN_OVERLAP;
    const bool of_bases = pass == PAINN_STEP_OF_BASES;
    if (of_bases) PLUGIN_TRY(enqueue_bases(t, optimizer));
    CUDA_TRY(painn_train_launch_begin(branch, plan, t->stream), "launching a batch");
    PLUGIN_TRY(enqueue_branches(t, branch, plan, pass));
    if (pass == PAINN_ERRORS) {
        for (int k = 0; k < plan->n_branches; k++)
            CUDA_TRY(painn_train_launch_element_errors(&branch[k], &joined, t->element_sums, t->stream), "launching sums");
        CUDA_TRY(gpu_launch_count(optimizer, plan->overlap, t->stream), "launching sums");
        goto done;
    }
    CUDA_TRY(gpu_launch_gradient_sums(optimizer, joined.overlap, t->stream), "launching gradient sums");
    if (of_bases) CUDA_TRY(cudaStreamWaitEvent(t->stream, t->bases_end, 0), "joining");
    if (of_bases || pass == PAINN_STEP)
        PLUGIN_TRY(
            painn_train_update(t, optimizer, of_bases ? plan->overlap & ~GPU_TRAIN_OVERLAP : plan->overlap, plan->overlap));
done:
    return status;
}

// Sizes are rounded up to eighths of a power of two, so that ragged batches need few graphs.
static int class_of(int64_t n)
{
    int64_t step = 1;
    if (n < 1) return 1; // a GPU without a share of a batch
    while (step * 16 < n) step *= 2;
    return (int)((n + step - 1) / step * step);
}

static int at_most(int n, int capacity)
{
    return n < capacity ? n : capacity;
}

// Chains: up to so many atoms for each multiprocessor, or of a branch; a block has 16 atoms and, where there are few, 16 features.
enum { CHAIN_ATOMS = 8, CHAIN_BRANCH_ATOMS = 18, CHAIN_TILE = 16 };

// A batch that is too large for chains is divided among branches of the graph, whose kernels fill each other's ends.
static int branches_of(const painn_trainer *t, const gpu_train_call *call)
{
    return call->n_atoms > CHAIN_ATOMS * t->n_multiprocessors && call->n_frames > 1 ? GPU_TRAIN_BRANCHES : 1;
}

// The part of a batch of each branch.
typedef struct batch_division {
    int n, first[GPU_TRAIN_BRANCHES + 1];
    gpu_train_call call[GPU_TRAIN_BRANCHES];
} batch_division;

static painn_train_plan plan_of(const painn_trainer *t, const batch_division *d)
{
    painn_train_plan plan = {.parts = t->parts,
                             .overlap = t->overlap,
                             .n_branches = d->n,
                             .n_multiprocessors = t->n_multiprocessors,
                             .shared_bytes = t->shared_bytes};
    for (int k = 0; k < d->n; k++) {
        const gpu_train_call *call = &d->call[k];
        const int counts[3] = {at_most(class_of(call->n_frames), t->step.frame_capacity),
                               at_most(class_of(call->n_atoms), t->step.atom_capacity),
                               at_most(class_of(call->n_pairs), t->step.pair_capacity)};
        if (counts[0] > plan.n_frames) plan.n_frames = counts[0];
        if (counts[1] > plan.n_atoms) plan.n_atoms = counts[1];
        if (counts[2] > plan.n_pairs) plan.n_pairs = counts[2];
    }
    plan.chains = t->chains && plan.n_atoms <= (d->n > 1 ? CHAIN_BRANCH_ATOMS : CHAIN_ATOMS) * t->n_multiprocessors;
    const int blocks = (plan.n_atoms + CHAIN_TILE - 1) / CHAIN_TILE * (t->step.n_features / CHAIN_TILE);
    if (plan.chains && blocks <= t->n_multiprocessors) plan.overlap |= GPU_TRAIN_SHARED; // larger ones need the L1 cache
    return plan;
}

static mlff_status capture(painn_trainer *t, const painn_train_plan *plan, int pass, cudaGraphExec_t *executable_out)
{
    mlff_status status = MLFF_OK;
    cudaGraph_t graph = NULL;
    CUDA_TRY(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
    status = enqueue(t, t->branch, plan, pass, &t->optimizer);
    cudaError_t ended = cudaStreamEndCapture(t->stream, &graph);
    if (status != MLFF_OK) goto done;
    CUDA_TRY(ended, "capturing a step");
    CUDA_TRY(cudaGraphInstantiate(executable_out, graph, 0), "building a graph");
done:
    if (graph) cudaGraphDestroy(graph);
    return status;
}

static mlff_status graph_of(painn_trainer *t, const painn_train_plan *plan, int pass, cudaGraphExec_t *executable_out)
{
    mlff_status status = MLFF_OK;
    painn_train_graph *oldest = &t->graph[0];
    for (int k = 0; k < PAINN_TRAIN_GRAPHS; k++) {
        painn_train_graph *g = &t->graph[k];
        if (g->executable && g->pass == pass && memcmp(&g->plan, plan, sizeof *plan) == 0) {
            g->used = t->n_calls;
            *executable_out = g->executable;
            return MLFF_OK;
        }
        if (oldest->executable && (!g->executable || g->used < oldest->used)) oldest = g;
    }
    cudaGraphExec_t executable = NULL;
    PLUGIN_TRY(capture(t, plan, pass, &executable));
    if (oldest->executable) cudaGraphExecDestroy(oldest->executable); // the driver keeps it until its last launch is done
    *oldest = (painn_train_graph){*plan, pass, executable, t->n_calls};
    *executable_out = executable;
done:
    return status;
}

// ---- batches ------------------------------------------------------------------------------------------------------------

void painn_train_divide(const train_set *set, const int32_t *frames, int n_frames, int n, int *first)
{
    int64_t atoms = 0, total = 0;
    for (int f = 0; f < n_frames; f++) total += set->first_atom[frames[f] + 1] - set->first_atom[frames[f]];
    int k = 1;
    first[0] = 0;
    for (int f = 0; f < n_frames; f++) {
        const bool second = f > 0 && set->probe_step && set->probe_step[frames[f - 1]] > 0 && frames[f] == frames[f - 1] + 1;
        while (k < n && atoms * n >= total * k && !second) first[k++] = f;
        atoms += set->first_atom[frames[f] + 1] - set->first_atom[frames[f]];
    }
    while (k <= n) first[k++] = n_frames;
}

mlff_status painn_train_count(const painn_gpu_set *set, const int32_t *frames, int n_frames, gpu_train_call *call)
{
    int64_t atoms = 0, pairs = 0;
    for (int k = 0; k < n_frames; k++) {
        atoms += set->set->first_atom[frames[k] + 1] - set->set->first_atom[frames[k]];
        pairs += set->frame_pairs[frames[k] + 1] - set->frame_pairs[frames[k]];
    }
    if (atoms > INT32_MAX / 1024 || pairs > INT32_MAX / 4)
        return host.fail(MLFF_ERR_LIMIT, "a batch of %d structures with %lld atoms is too large; choose a smaller batch size",
                         n_frames, (long long)atoms);
    call->n_frames = n_frames;
    call->n_atoms = (int32_t)atoms;
    call->n_pairs = (int32_t)pairs;
    call->total_frames = n_frames;
    call->total_atoms = (double)atoms;
    return MLFF_OK;
}

static mlff_status divide(const painn_trainer *t, const painn_gpu_set *set, const int32_t *frames, const gpu_train_call *call,
                          batch_division *d)
{
    mlff_status status = MLFF_OK;
    d->n = branches_of(t, call);
    painn_train_divide(set->set, frames, call->n_frames, d->n, d->first);
    for (int k = 0; k < d->n; k++) {
        d->call[k] = *call;
        PLUGIN_TRY(painn_train_count(set, frames + d->first[k], d->first[k + 1] - d->first[k], &d->call[k]));
        d->call[k].total_frames = call->total_frames;
        d->call[k].total_atoms = call->total_atoms;
    }
done:
    return status;
}

// Memory for any batch of so many frames of the set. Fewer where that would be more than `limit` times this one.
static mlff_status make_room(painn_trainer *t, const painn_gpu_set *set, const gpu_train_call *call, const batch_division *d)
{
    enum { LIMIT = 4 };
    const painn_train_step *s = &t->step;
    bool fits = d->n <= t->n_branches;
    for (int k = 0; k < d->n; k++)
        fits = fits && d->call[k].n_frames <= s->frame_capacity && d->call[k].n_atoms <= s->atom_capacity &&
               d->call[k].n_pairs <= s->pair_capacity;
    if (fits) return MLFF_OK;
    int64_t frames = call->n_frames, atoms = frames * set->set->largest_frame, pairs = frames * set->most_pairs;
    if (atoms > LIMIT * (int64_t)call->n_atoms) atoms = LIMIT * (int64_t)call->n_atoms;
    if (pairs > LIMIT * (int64_t)call->n_pairs) pairs = LIMIT * (int64_t)call->n_pairs;
    if (d->n > 1) { // a share has at most a probe more than the others
        atoms = atoms / d->n + 2 * set->set->largest_frame;
        pairs = pairs / d->n + 2 * set->most_pairs;
    }
    for (int k = 0; k < d->n; k++)
        if (pairs < d->call[k].n_pairs) pairs = d->call[k].n_pairs;
    if (frames < s->frame_capacity) frames = s->frame_capacity;
    if (atoms < s->atom_capacity) atoms = s->atom_capacity;
    if (pairs < s->pair_capacity) pairs = s->pair_capacity;
    return painn_train_arena_create(t, d->n > t->n_branches ? d->n : t->n_branches, (int)frames, (int)atoms, (int)pairs);
}

void painn_train_set_loss(gpu_train_call *call, const mlff_loss *loss)
{
    call->energy_per_atom = loss->energy_per_atom;
    call->energy_weight = loss->energy_weight;
    call->forces_weight = loss->forces_weight;
    call->stress_weight = loss->stress_weight;
    call->atom_energies_weight = loss->atom_energies_weight;
    call->hessian_weight = loss->hessian_weight;
    call->huber_forces = loss->huber_forces;
}

void painn_train_set_update(gpu_train_call *call, const train_update *u)
{
    call->learning_rate = u->learning_rate;
    call->beta1 = u->beta1;
    call->beta2 = u->beta2;
    call->epsilon = u->epsilon;
    call->weight_decay = u->weight_decay;
    call->clip = u->clip;
    call->average = u->average;
    call->correction1 = u->correction1;
    call->correction2 = u->correction2;
    call->soap_decay = u->soap_decay;
}

// The next slot; branches that the batch does not have get counts of 0. The host may be as many calls ahead as there are slots; then it waits for
// half of them.
static mlff_status fill_slot(painn_trainer *t, const painn_gpu_set *set, const int32_t *frames, const batch_division *d)
{
    mlff_status status = MLFF_OK;
    const int slot = (int)(t->n_calls % PAINN_TRAIN_SLOTS), half = PAINN_TRAIN_SLOTS / 2;
    const size_t room = (size_t)t->step.frame_capacity;
    if (slot % half == 0) CUDA_TRY(cuda_wait_event(t->half_done[slot / half]), "waiting for earlier steps");
    gpu_train_call *call = (gpu_train_call *)(void *)(t->slots + t->step.slot_bytes * (size_t)slot);
    for (int b = 0; b < t->n_branches; b++) {
        int64_t *set_atom =
            (int64_t *)(void *)((int32_t *)(void *)(call + t->n_branches) + (size_t)b * painn_train_list((int)room));
        int64_t *set_pair = set_atom + room;
        int32_t *list = (int32_t *)(void *)(set_pair + room), *first_atom = list + room, *first_pair = first_atom + room + 1;
        call[b] = b < d->n ? d->call[b] : (gpu_train_call){0};
        first_atom[0] = first_pair[0] = 0;
        for (int k = 0; k < call[b].n_frames; k++) {
            const int32_t f = frames[d->first[b] + k];
            list[k] = f;
            set_atom[k] = set->set->first_atom[f];
            set_pair[k] = set->frame_pairs[f];
            first_atom[k + 1] = first_atom[k] + (int32_t)(set->set->first_atom[f + 1] - set->set->first_atom[f]);
            first_pair[k + 1] = first_pair[k] + (int32_t)(set->frame_pairs[f + 1] - set->frame_pairs[f]);
        }
    }
done:
    return status;
}

static mlff_status slot_taken(painn_trainer *t)
{
    mlff_status status = MLFF_OK;
    const int slot = (int)(t->n_calls++ % PAINN_TRAIN_SLOTS), half = PAINN_TRAIN_SLOTS / 2;
    if (slot % half == half - 1) CUDA_TRY(cudaEventRecord(t->half_done[slot / half], t->stream), "recording a step");
done:
    return status;
}

// After a failure the device may have taken fewer slots than the host filled.
mlff_status painn_train_recover(painn_trainer *t, mlff_status status)
{
    if (status == MLFF_OK || cuda_wait(t->stream, 0) == cudaErrorLaunchTimeout) return status;
    for (int k = 0; k < GPU_TRAIN_BRANCHES - 1; k++)
        if (cuda_wait(t->side[k], 0) == cudaErrorLaunchTimeout) return status;
    const uint32_t turn = (uint32_t)(t->n_calls % PAINN_TRAIN_SLOTS);
    cuda_copy(t->step.turn, &turn, sizeof turn, cudaMemcpyHostToDevice);
    cudaGetLastError();
    return status;
}

mlff_status painn_train_submit(painn_trainer *t, const painn_gpu_set *set, const int32_t *frames, const gpu_train_call *call,
                               int pass)
{
    mlff_status status = MLFF_OK;
    cudaGraphExec_t graph = NULL;
    batch_division d = {0};
    PLUGIN_TRY(cuda_use(t->device));
    PLUGIN_TRY(divide(t, set, frames, call, &d));
    PLUGIN_TRY(make_room(t, set, call, &d));
    const painn_train_plan plan = plan_of(t, &d);
    if (pass >= PAINN_SHARE) PLUGIN_TRY(graph_of(t, &plan, pass, &graph));
    PLUGIN_TRY(fill_slot(t, set, frames, &d));
    if (graph) {
        CUDA_TRY(cudaGraphLaunch(graph, t->stream), "launching a step");
    } else {
        painn_train_step branch[GPU_TRAIN_BRANCHES];
        gpu_optimizer optimizer = t->optimizer;
        for (int k = 0; k < d.n; k++) {
            branch[k] = t->branch[k];
            branch[k].data = set->data;
            if (pass == PAINN_ERRORS) branch[k].weights.base = t->vector[TRAIN_AVERAGE];
        }
        if (pass == PAINN_ERRORS) optimizer.sums = t->evaluation_sums;
        PLUGIN_TRY(enqueue(t, branch, &plan, pass, &optimizer));
    }
    PLUGIN_TRY(slot_taken(t));
done:
    return status;
}
