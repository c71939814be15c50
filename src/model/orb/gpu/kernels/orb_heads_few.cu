// SPDX-License-Identifier: MIT
// orb_heads_few.cu: the heads of direct forces (orb_heads.cu) of one system of few atoms in one kernel, a cluster. A block has 32 columns of the force head's
// hidden layer and 64 of those of energy and stress:
//
//   F'_ic = Σ_k w_ck f(V n_i + b)_k,   c = x, y, z;     y = Σ_k u_k f(U mean_i(n_i) + d)_k of energy, then of stress
//
// Blocks send each other their parts of F'; every block adds these up, removes mean and torque, and finishes eight of the atoms. Parts of y go to one block.
#include "gpu/dynamics/integrate.cuh"
#include "orb_heads.cuh"
#include "orb_together.cuh"

enum { HEADS_BLOCKS = 8, SYSTEM_BLOCK = 1, NODES_AT_ONCE = 16, SYSTEM_OUTPUTS = 7, FORCE_WARPS = 4 };
static constexpr int FORCE_COLUMNS = ORB_GPU_LATENT / HEADS_BLOCKS, SYSTEM_COLUMNS = 2 * FORCE_COLUMNS;

static_assert(FORCE_COLUMNS == 8 * FORCE_WARPS && SYSTEM_COLUMNS == 8 * TOGETHER_WARPS, "8 columns for each warp");
static_assert(ORB_GPU_FEW_ATOMS * 3 <= TOGETHER_THREADS && ORB_GPU_FEW_ATOMS == HEADS_BLOCKS * TOGETHER_WARPS,
              "a warp for each atom");

struct heads_shared {
    float4 partial[2][TOGETHER_WARPS * 8 * 32];
    float4 forces[HEADS_BLOCKS][ORB_GPU_FEW_ATOMS]; // what each block of the cluster has sent
    float outputs[HEADS_BLOCKS][8], of_warp[FORCE_WARPS][ORB_GPU_FEW_ATOMS][3], output_of_warp[TOGETHER_WARPS][8];
    float raw[ORB_GPU_FEW_ATOMS][3];
    uint64_t forces_arrived, outputs_arrived;
};

template <int NUMBERS> struct heads_block : together_block<NUMBERS, heads_shared> {
    typedef together_block<NUMBERS, heads_shared> base;
    using base::g, base::lane, base::planes, base::shared, base::t, base::thread, base::warp;
    const orb_gpu_heads &call;
    const orb_gpu_step &step;
    const int rank, n; // of the block in its cluster; atoms

    __device__ __forceinline__ heads_block(const orb_gpu_heads &call_, uint4 *memory)
        : base(*(heads_shared *)memory, 0), call(call_), step(call_.step), rank(cluster_rank<HEADS_BLOCKS>()),
          n(min(call_.step.gpu.call->n_atoms, (int)ORB_GPU_FEW_ATOMS))
    {
    }
    // The first of the thread's two columns of both hidden layers.
    __device__ __forceinline__ int force_column() const
    {
        return FORCE_COLUMNS * rank + base::column_of(warp % FORCE_WARPS);
    }
    __device__ __forceinline__ int system_column() const
    {
        return SYSTEM_COLUMNS * rank + base::column_of(warp);
    }
    __device__ __forceinline__ float hide(float x) const
    {
        return step.activation == GPU_SILU ? silu(x) : base::soften_one(x);
    }
    __device__ __forceinline__ void begin() const
    {
        if (thread == 0) {
            mbarrier_init_bytes(&shared.forces_arrived, HEADS_BLOCKS * n * (int)sizeof(float4));
            mbarrier_init_bytes(&shared.outputs_arrived, (int)sizeof shared.outputs);
            mbarrier_init_fence();
        }
        cluster_arrive_relaxed();
    }
    __device__ __forceinline__ uint32_t offset_of(const void *at) const
    {
        return (uint32_t)((const char *)at - (const char *)&shared);
    }
    // Parts of F' of all atoms, to all blocks; `mean` becomes the sums of the thread's columns over its rows.
    __device__ __forceinline__ void send_forces(const uint4 (&b)[planes * FORCE_WARPS], float2 bias, eight &mean)
    {
        const int c = force_column();
        float2 weight[3];
#pragma unroll
        for (int k = 0; k < 3; k++) weight[k] = request_two(step.force.weight + k * ORB_GPU_LATENT + c);
#pragma unroll 1
        for (int first = 0; first < n; first += NODES_AT_ONCE) {
            eight x[2];
            uint4 a[planes * 2];
            float4 sum[FORCE_WARPS];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                x[r] = {};
                if (first + g + 8 * r < n) x[r] = load_operand<NUMBERS>(step.nodes, first + g + 8 * r, 32 * warp + 8 * t);
            }
#pragma unroll
            for (int k = 0; k < 8; k++) mean.v[k] += x[0].v[k] + x[1].v[k];
            if (!call.wants_forces) continue;
            base::round_rows(x, a, a + (planes - 1) * 2);
            base::template multiply<1, FORCE_WARPS, 1>(sum, a, b);
            const float4 y = base::scale_and_add(base::add_warps(sum, warp), call.force_hidden.unit, bias);
            const float4 h = map4([&](float v) { return hide(v); }, y);
#pragma unroll
            for (int k = 0; k < 3; k++) {
                const float upper = sum_quad(fmaf(h.x, weight[k].x, h.y * weight[k].y)),
                            lower = sum_quad(fmaf(h.z, weight[k].x, h.w * weight[k].y));
                if (warp >= FORCE_WARPS || t > 0) continue;
                shared.of_warp[warp][first + g][k] = upper;
                shared.of_warp[warp][first + g + 8][k] = lower;
            }
        }
        if (!call.wants_forces) return;
        __syncthreads();
        if (thread >= n) return;
        float f[3] = {0, 0, 0};
#pragma unroll
        for (int w = 0; w < FORCE_WARPS; w++)
#pragma unroll
            for (int k = 0; k < 3; k++) f[k] += shared.of_warp[w][thread][k];
#pragma unroll
        for (int other = 0; other < HEADS_BLOCKS; other++)
            store_async(cluster_map(&shared, other), offset_of(&shared.forces[rank][thread]), offset_of(&shared.forces_arrived),
                        make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), 0));
    }
    // Parts of the outputs of energy and stress, to one block.
    __device__ __forceinline__ void send_outputs(const uint4 (&b)[planes * TOGETHER_WARPS], float2 bias, const eight &sum,
                                                 float share)
    {
        const int c = system_column(), of_stress = rank >= HEADS_BLOCKS / 2;
        const float *const weight = of_stress ? step.stress.weight + (c - ORB_GPU_LATENT) : step.energy.weight + c;
        const int n_outputs = of_stress ? step.has_stress ? 6 : 0 : 1;
        eight x[2] = {};
        uint4 a[planes * 2];
        float4 product[TOGETHER_WARPS];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float v = sum.v[k];
            for (int mask = 4; mask < 32; mask *= 2) v += __shfl_xor_sync(~0u, v, mask);
            x[0].v[k] = g == 0 ? v * share : 0.0f;
        }
        base::round_rows(x, a, a + (planes - 1) * 2);
        base::template multiply<1, TOGETHER_WARPS, 1>(product, a, b);
        const float4 y = base::scale_and_add(base::add_warps(product, warp), call.system_hidden.unit, bias);
        const float one = hide(y.x), two = hide(y.y); // of row 0: the first four lanes
        for (int k = 0; k < n_outputs; k++) {
            const float2 w = *(const float2 *)(weight + k * ORB_GPU_LATENT);
            const float part = sum_quad(fmaf(one, w.x, two * w.y));
            if (lane == 0) shared.output_of_warp[warp][k] = part;
        }
        __syncthreads();
        if (thread >= 8) return;
        float out = 0;
        for (int w = 0; w < TOGETHER_WARPS && thread < n_outputs; w++) out += shared.output_of_warp[w][thread];
        store_async(cluster_map(&shared, SYSTEM_BLOCK), offset_of(&shared.outputs[rank][thread]),
                    offset_of(&shared.outputs_arrived), __float_as_uint(out));
    }
    __device__ __forceinline__ void finish_forces(const moving_atom &atom, const double (&position)[3])
    {
        const gpu_call &of = *step.gpu.call;
        const float own = thread < 3 * n ? step.force.bias[thread % 3] : 0.0f;
        mbarrier_wait_bytes(&shared.forces_arrived);
        if (thread < 3 * n) {
            float f = 0;
#pragma unroll
            for (int k = 0; k < HEADS_BLOCKS; k++) f += ((const float *)&shared.forces[k][thread / 3])[thread % 3];
            shared.raw[thread / 3][thread % 3] = f + own;
        }
        __syncthreads();
        const orb_gpu_system system = balance_system<TOGETHER_THREADS>(
            n, has_no_cell(of, 0),
            [&](int, double *to) { // a thread has one atom
                for (int c = 0; c < 3; c++) to[c] = position[c];
            },
            [&](int i, double *to) {
                for (int c = 0; c < 3; c++) to[c] = shared.raw[i][c];
            });
        const int i = TOGETHER_WARPS * rank + warp;
        if (i >= n) return;
        const double force = direct_force(step, of, system, i, min(lane, 2), shared.raw[i][min(lane, 2)]);
        if (lane < 3 && of.forces) of.forces[(size_t)i * 3 + lane] = force;
        if (call.moves) move_atom(step.gpu, atom, force, true);
    }
    __device__ __forceinline__ void finish_system(const double (&offsets)[7])
    {
        const gpu_call of = *step.gpu.call;
        const gpu_system &system = step.gpu.neighbors.systems[0];
        mbarrier_wait_bytes(&shared.outputs_arrived);
        if (thread < SYSTEM_OUTPUTS && of.n_systems > 0) {
            const bool energy = thread == 6;
            const int k = energy ? 0 : thread, begin = energy ? 0 : HEADS_BLOCKS / 2;
            double own = 0;
            float y = 0;
            for (int b = begin; b < begin + HEADS_BLOCKS / 2; b++) y += shared.outputs[b][k];
            for (int m = 0; m < 7; m++) own = m == thread ? offsets[m] : own;
            if (energy && of.energies) of.energies[0] = energy_of(step, system, y + step.energy.bias[0], own);
            if (!energy && step.has_stress && of.stresses)
                of.stresses[k] = direct_stress(step, system, k, y + step.stress.bias[k], own);
        }
        publish_report(step.gpu, of);
        if (step.gpu.stamps && thread == 0) step.gpu.stamps[step.stamp_heads + 1] = gpu_timer();
    }

    __device__ __forceinline__ void run()
    {
        uint4 of_forces[planes * FORCE_WARPS], of_system[planes * TOGETHER_WARPS];
        double position[3] = {0, 0, 0}, offsets[7] = {0, 0, 0, 0, 0, 0, 0};
        eight mean = {};
        begin();
        base::template request<FORCE_WARPS, 1, ORB_GPU_LATENT>(of_forces, call.force_hidden, FORCE_COLUMNS * rank);
        const float2 force_bias = request_two(call.force_hidden.bias + force_column());
        float2 system_bias = make_float2(0, 0);
        if (call.wants_energy) {
            base::template request<TOGETHER_WARPS, 1, 2 * ORB_GPU_LATENT>(of_system, call.system_hidden, SYSTEM_COLUMNS * rank);
            system_bias = request_two(call.system_hidden.bias + system_column());
        }
        for (int c = 0; c < 3 && thread < n; c++) position[c] = step.gpu.call->positions[(size_t)thread * 3 + c];
        const moving_atom atom(step.gpu.motion, call.moves ? TOGETHER_WARPS * rank + warp : INT32_MAX, step.gpu.motion.place + 1);
        if (call.wants_energy && rank == SYSTEM_BLOCK)
            sum_offsets<TOGETHER_THREADS>(step, step.gpu.neighbors.systems[0], offsets);
        cluster_wait(); // mbarriers of other blocks are there
        wait_for_previous();
        let_next_start();
        if (step.gpu.stamps && base::block == 0 && thread == 0) step.gpu.stamps[step.stamp_heads] = gpu_timer();
        send_forces(of_forces, force_bias, mean);
        // Energy and stress of a step that has failed are not a number.
        if (call.wants_energy)
            send_outputs(of_system, system_bias, mean, step.gpu.report->flags ? nanf("") : 1.0f / (float)max(n, 1));
        if (call.wants_forces) finish_forces(atom, position);
        __syncwarp();
        cluster_arrive(); // the report has been read
        cluster_wait();
        if (call.wants_energy && rank == SYSTEM_BLOCK) finish_system(offsets);
    }
};

template <int NUMBERS>
static __global__ void __launch_bounds__(TOGETHER_THREADS, 1)
    orb_heads_few_kernel(const __grid_constant__ orb_gpu_heads call, int unused)
{
    DYNAMIC_SHARED(memory);
    heads_block<NUMBERS> run(call, memory);
    run.run();
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <int NUMBERS> static int launch_one(const orb_gpu_heads *call, const gpu_plan *plan, void *stream)
{
    return launch(orb_heads_few_kernel<NUMBERS>, HEADS_BLOCKS, TOGETHER_THREADS, sizeof(heads_shared), HEADS_BLOCKS,
                  plan->overlap, stream, *call, 0);
}

int orb_gpu_launch_few_heads(const orb_gpu_heads *call, const gpu_plan *plan, void *stream)
{
    return FOR_NUMBERS(call->step.numbers, launch_one, call, plan, stream);
}

template <int NUMBERS> static int prepare_one(int unused)
{
    return (int)cudaFuncSetAttribute(orb_heads_few_kernel<NUMBERS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)sizeof(heads_shared));
}

int orb_gpu_prepare_few_heads(void)
{
    int error = 0;
    FOR_EACH_NUMBERS(error, prepare_one, 0);
    return error;
}
