/* SPDX-License-Identifier: MIT */
/* painn_edges.cuh: how a warp reads the edges of a row, their filters from the table, and sums over the quarters of the warp. */
#ifndef PAINN_GPU_EDGE_CUH
#define PAINN_GPU_EDGE_CUH

#include "painn_gpu.cuh"

// Entries of 16 bytes in an interval of the table, for one slice; in the fast modes two features share one.
template <bool fast> static constexpr int table_entries()
{
    return fast ? 3 * PAINN_GPU_SLICE / 2 : 3 * PAINN_GPU_SLICE;
}

// A layer's table of filters: entry (interval, block b) of the lane's two features, in shared or global memory.
template <bool in_shared, bool fast> struct filter_table {
    static const int INTERVAL = table_entries<fast>(), ENTRIES = PAINN_GPU_INTERVALS * INTERVAL;
    const uint4 *near; // if in_shared; else `far`
    const char *far;
    const uint32_t lane;
    __device__ __forceinline__ filter_table(const painn_gpu_layer &layer, const uint4 *shared, int slice)
        : near(shared), far((const char *)((const float4 *)layer.filter + slice * ENTRIES + threadIdx.x % 8)),
          lane(threadIdx.x % 8 * 16)
    {
    }
    // Coefficients of an edge's interval.
    template <int BLOCKS> struct entries {
        float4 first[BLOCKS], second[BLOCKS]; // of two features; in the fast modes `first` has both
    };
    // What a block copies into shared memory for BLOCKS filters; entry k comes from `place`.
    template <int BLOCKS> struct staged {
        static const int ENTRIES = PAINN_GPU_INTERVALS * INTERVAL;
        static __device__ __forceinline__ int place(int k)
        {
            return k;
        }
    };
    template <int BLOCKS> __device__ __forceinline__ void fetch(unsigned interval, entries<BLOCKS> &c) const
    {
        const uint32_t place = interval * (INTERVAL * 16) + lane;
        const char *at = far + interval * (size_t)(INTERVAL * 16);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const int first = b * (INTERVAL / 3 * 16);
            c.first[b] = in_shared ? read_shared<float4>(near, place + first) : __ldg((const float4 *)(at + first));
            if (!fast)
                c.second[b] =
                    in_shared ? read_shared<float4>(near, place + first + 128) : __ldg((const float4 *)(at + first + 128));
        }
    }
    template <int BLOCKS, bool derivative>
    static __device__ __forceinline__ void evaluate(const entries<BLOCKS> &c, float t, float2 (&W)[BLOCKS], float2 (&dW)[BLOCKS])
    {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) both<derivative>(c.first[b], c.second[b], t, W[b], dW[b]);
    }
    template <bool derivative>
    static __device__ __forceinline__ void both(float4 first, float4 second, float t, float2 &W, float2 &dW)
    {
        const uint32_t t2 = pack_half2(t, t);
        if (fast) {
            const uint32_t c0 = __float_as_uint(first.x), c1 = __float_as_uint(first.y), c2 = __float_as_uint(first.z),
                           c3 = __float_as_uint(first.w);
            const uint32_t b2 = fma_half2(t2, c3, c2), b1 = fma_half2(t2, b2, c1);
            W = unpack_half2(fma_half2(t2, b1, c0));
            if (derivative) dW = unpack_half2(fma_half2(t2, fma_half2(t2, c3, b2), b1));
        } else {
            const uint32_t c3 = __float_as_uint(first.w), c4 = __float_as_uint(second.w), b3 = fma_half2(t2, c4, c3);
            const float2 high = unpack_half2(b3), slope = unpack_half2(fma_half2(t2, c4, b3));
            one<derivative>(first, t, high.x, slope.x, W.x, dW.x);
            one<derivative>(second, t, high.y, slope.y, W.y, dW.y);
        }
    }
    // high: c3 + t c4, slope: c3 + 2 t c4.
    template <bool derivative>
    static __device__ __forceinline__ void one(float4 c, float t, float high, float slope, float &W, float &dW)
    {
        const float b2 = fmaf(t, high, c.z), b1 = fmaf(t, b2, c.y);
        W = fmaf(t, b1, c.x);
        if (derivative) dW = fmaf(t, fmaf(t, slope, b2), b1);
    }
    static __device__ __forceinline__ const uint4 *of_slice(const painn_gpu_layer &layer, int slice)
    {
        return (const uint4 *)layer.filter + slice * ENTRIES;
    }
};

// The same for the forward pass: values only.
template <bool in_shared, bool fast> struct value_table : filter_table<in_shared, true> {
    using filter_table<in_shared, true>::filter_table;
};
template <bool in_shared> struct value_table<in_shared, false> {
    static const int ENTRIES = PAINN_GPU_INTERVALS * PAINN_GPU_VALUES / 16;
    const uint4 *near; // if in_shared; else `far`
    const char *far;
    const uint32_t lane;
    __device__ __forceinline__ value_table(const painn_gpu_layer &layer, const uint4 *shared, int slice)
        : near(shared), far((const char *)of_slice(layer, slice) + threadIdx.x % 8 * 16), lane(threadIdx.x % 8)
    {
    }
    template <int BLOCKS> struct entries {
        float4 c01[BLOCKS], qR; // c2, c3 of q and R
        float2 mu;
    };
    // As in filter_table. The first layer has no filter of μ: an interval has c0, c1 of q and of R, then c2, c3 of both.
    template <int BLOCKS> struct staged {
        static const int INTERVAL = PAINN_GPU_VALUES / 16, EACH = BLOCKS == 3 ? INTERVAL : 24,
                         ENTRIES = PAINN_GPU_INTERVALS * EACH;
        static __device__ __forceinline__ int place(int k)
        {
            const int r = k % EACH;
            return BLOCKS == 3 ? k : k / EACH * INTERVAL + r + (r < 16 ? 0 : 8);
        }
    };
    template <int BLOCKS> __device__ __forceinline__ void fetch(unsigned interval, entries<BLOCKS> &c) const
    {
        if (in_shared) {
            const uint32_t at = interval * (staged<BLOCKS>::EACH * 16) + lane * 16;
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) c.c01[b] = read_shared<float4>(near, at + b * 128);
            c.qR = read_shared<float4>(near, at + BLOCKS * 128);
            if (BLOCKS > 2) c.mu = read_shared<float2>(near, at - lane * 8 + 4 * 128);
        } else {
            const char *at = far + interval * (size_t)PAINN_GPU_VALUES;
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) c.c01[b] = __ldg((const float4 *)(at + b * 128));
            c.qR = __ldg((const float4 *)(at + 3 * 128));
            if (BLOCKS > 2) c.mu = __ldg((const float2 *)(at - lane * 8 + 4 * 128));
        }
    }
    template <int BLOCKS, bool derivative>
    static __device__ __forceinline__ void evaluate(const entries<BLOCKS> &c, float t, float2 (&W)[BLOCKS], float2 (&)[BLOCKS])
    {
        const uint32_t t2 = pack_half2(t, t);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const float2 c23 = b == 0 ? make_float2(c.qR.x, c.qR.y) : b == 1 ? make_float2(c.qR.z, c.qR.w) : c.mu;
            const float2 b2 = unpack_half2(fma_half2(t2, __float_as_uint(c23.y), __float_as_uint(c23.x)));
            W[b].x = fmaf(t, fmaf(t, b2.x, c.c01[b].y), c.c01[b].x);
            W[b].y = fmaf(t, fmaf(t, b2.y, c.c01[b].w), c.c01[b].z);
        }
    }
    static __device__ __forceinline__ const uint4 *of_slice(const painn_gpu_layer &layer, int slice)
    {
        return (const uint4 *)layer.values + slice * ENTRIES;
    }
};

// Copies a slice of the table into shared memory, by blocks of THREADS threads, with all loads in flight at once.
template <typename Table, int THREADS>
static __device__ __forceinline__ void load_table(const painn_gpu_layer &layer, uint4 *shared, int slice)
{
    const int EACH = (Table::ENTRIES + THREADS - 1) / THREADS;
    const uint4 *from = Table::of_slice(layer, slice);
    uint4 v[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) v[k] = __ldg(from + min(k * THREADS + (int)threadIdx.x, Table::ENTRIES - 1));
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (k * THREADS + (int)threadIdx.x < Table::ENTRIES) shared[k * THREADS + threadIdx.x] = v[k];
    __syncthreads();
}
// The same without waiting: rows and the previous kernel's results arrive meanwhile. Not for the kernels of the way back, whose registers
// would spill.
template <typename Table, int BLOCKS, int THREADS>
static __device__ __forceinline__ void request_table(const painn_gpu_layer &layer, uint4 *shared, int slice)
{
    typedef typename Table::template staged<BLOCKS> staged;
    const uint4 *from = Table::of_slice(layer, slice);
#pragma unroll
    for (int k = threadIdx.x; k < staged::ENTRIES; k += THREADS) copy_async(shared + k, from + staged::place(k));
    copy_commit();
}
// By all threads, before the first filter.
static __device__ __forceinline__ void await_table()
{
    copy_wait<0>();
    __syncthreads();
}

// Lanes with `bit` set keep b, the others a; each adds the opposite lane's value of what it keeps.
static __device__ __forceinline__ float share(float a, float b, int bit)
{
    const bool upper = threadIdx.x & bit;
    const float keep = upper ? b : a, give = upper ? a : b;
    return keep + __shfl_xor_sync(~0u, give, bit);
}
static __device__ __forceinline__ float2 share(float2 a, float2 b, int bit)
{
    return make_float2(share(a.x, b.x, bit), share(a.y, b.y, bit));
}
// Four values, each summed over the quarters of a warp; the first quarter gets the first, and so on.
static __device__ __forceinline__ float2 sum_quarters(float2 a, float2 b, float2 c, float2 d)
{
    return share(share(a, c, 16), share(b, d, 16), 8);
}

static __device__ __forceinline__ void fma2(float2 &sum, float2 a, float2 b)
{
    sum.x = fmaf(a.x, b.x, sum.x);
    sum.y = fmaf(a.y, b.y, sum.y);
}
static __device__ __forceinline__ float2 mul2(float2 a, float2 b)
{
    return make_float2(a.x * b.x, a.y * b.y);
}

// Up to 32 edges of a row, one for each lane. A lane without an edge gets one to the atom and the species behind the last, whose features
// are zeros.
struct edge_chunk {
    float4 a;            // direction and distance
    int packed, species; // packed: neighbor and interval
    float t;             // the variable of the filter table in the interval
    int length;          // of the row
    __device__ __forceinline__ void load(const painn_gpu_step &step, const gpu_edge *rows, const int32_t *lengths, int i,
                                         int begin)
    {
        const int k = begin + (int)(threadIdx.x % 32);
        length = lengths[i];
        // Does not wait for the length: memory behind the row's end is valid, and close() replaces it.
        const gpu_edge *edge = rows + (size_t)i * step.gpu.neighbors.row_capacity + min(k, step.gpu.neighbors.row_capacity - 1);
        a = *(const float4 *)edge->u;
        const float4 b = *(const float4 *)&edge->packed;
        packed = __float_as_int(b.x);
        t = b.y;
        species = __float_as_int(b.z);
    }
    // When the edges are needed: this waits for the loads.
    __device__ __forceinline__ void close(const painn_gpu_step &step, int begin)
    {
        if (begin + (int)(threadIdx.x % 32) < length) return;
        a = make_float4(0, 0, 0, 1);
        packed = step.gpu.neighbors.atom_capacity * PAINN_GPU_INTERVALS;
        species = step.gpu.neighbors.n_species;
        t = 0;
    }
};

// An edge, broadcast to all lanes of a quarter from the lane that read it, with its filters.
template <int BLOCKS, bool derivative> struct edge_view {
    float ux, uy, uz;
    int j;
    float2 W[BLOCKS], dW[BLOCKS];
    float t;
    int interval;
    // The chunk's edge `source`, which may differ between quarters.
    __device__ __forceinline__ void locate(const edge_chunk &chunk, int packed, int source)
    {
        ux = __shfl_sync(~0u, chunk.a.x, source);
        uy = __shfl_sync(~0u, chunk.a.y, source);
        uz = __shfl_sync(~0u, chunk.a.z, source);
        const unsigned place = (unsigned)__shfl_sync(~0u, packed, source);
        t = __shfl_sync(~0u, chunk.t, source);
        j = (int)(place / PAINN_GPU_INTERVALS);
        interval = (int)(place % PAINN_GPU_INTERVALS);
    }
    template <typename Table> __device__ __forceinline__ void filter(const Table &table)
    {
        typename Table::template entries<BLOCKS> entries;
        table.fetch((unsigned)interval, entries);
        evaluate<Table>(entries);
    }
    // Evaluates coefficients that were requested before.
    template <typename Table> __device__ __forceinline__ void evaluate(const typename Table::template entries<BLOCKS> &entries)
    {
        Table::template evaluate<BLOCKS, derivative>(entries, t, W, dW);
    }
};

// Sums the four numbers of v over the 8 lanes of a quarter: lanes 2c and 2c + 1 get number c.
static __device__ __forceinline__ float sum_quarter(float4 v)
{
    const float mine = share(share(v.x, v.z, 4), share(v.y, v.w, 4), 2);
    return mine + __shfl_xor_sync(~0u, mine, 1);
}

// What an edge's neighbor sends, for a lane's two features: q, R; μ_x, μ_y; μ_z, x^μ. In the first layer μ is zero, and rows have q, R only.
template <bool first_layer> struct message_inputs {
    float4 qR, xy, zm;
    __device__ __forceinline__ message_inputs(const char *row) : qR(*(const float4 *)row)
    {
        if (first_layer) return;
        xy = ((const float4 *)row)[8];
        zm = ((const float4 *)row)[16];
    }
};

// Sums of a message over edges, for a lane's two features (formulas: painn_edges.cu).
struct message_sums {
    float2 q = make_float2(0, 0), mx = q, my = q, mz = q;
    template <bool first_layer, int BLOCKS>
    __device__ __forceinline__ void add(const edge_view<BLOCKS, false> &e, const message_inputs<first_layer> &in)
    {
        add<first_layer>(e, in.qR, in.xy, in.zm);
    }
    // The same, where they were read as three vectors.
    template <bool first_layer, int BLOCKS>
    __device__ __forceinline__ void add(const edge_view<BLOCKS, false> &e, float4 qR, float4 xy, float4 zm)
    {
        fma2(q, e.W[0], make_float2(qR.x, qR.z));
        float2 s = mul2(e.W[1], make_float2(qR.y, qR.w));
        mx.x = fmaf(s.x, e.ux, mx.x), mx.y = fmaf(s.y, e.ux, mx.y);
        my.x = fmaf(s.x, e.uy, my.x), my.y = fmaf(s.y, e.uy, my.y);
        mz.x = fmaf(s.x, e.uz, mz.x), mz.y = fmaf(s.y, e.uz, mz.y);
        if (!first_layer) {
            s = mul2(e.W[BLOCKS - 1], make_float2(zm.y, zm.w));
            fma2(mx, s, make_float2(xy.x, xy.z));
            fma2(my, s, make_float2(xy.y, xy.w));
            fma2(mz, s, make_float2(zm.x, zm.z));
        }
    }
    // Each quarter of the warp gets one component: q, μ_x, μ_y, μ_z.
    __device__ __forceinline__ float2 finish() const
    {
        return sum_quarters(q, mx, my, mz);
    }
};

// Backward pass: an atom's own message inputs and vectors, and its sums. x, y, z are sums of W^μ∘μ̄'; at the end of the row they give
// both Σ W^μ∘Q and Σ W^μ∘x^μ∘μ̄', since μ and x^μ are the atom's own.
struct reverse_sums {
    float2 xq, xR, xm, mux, muy, muz, bq, bR, x, y, z;
    __device__ __forceinline__ reverse_sums()
    {
        xq = xR = xm = mux = muy = muz = bq = bR = x = y = z = make_float2(0, 0);
    }
    __device__ __forceinline__ void load(const float *own, bool first_layer)
    {
        const float4 own0 = *(const float4 *)own;
        xq = make_float2(own0.x, own0.z), xR = make_float2(own0.y, own0.w);
        if (first_layer) return;
        const float4 own1 = *(const float4 *)(own + 32), own2 = *(const float4 *)(own + 64);
        mux = make_float2(own1.x, own1.z);
        muy = make_float2(own1.y, own1.w);
        muz = make_float2(own2.x, own2.z);
        xm = make_float2(own2.y, own2.w);
    }
    // bar: q̄', μ̄'_x; μ̄'_y, μ̄'_z. Returns the two features' part of κ (with respect to the table's variable) and of ū.
    template <bool first_layer, int BLOCKS>
    __device__ __forceinline__ float4 terms(const edge_view<BLOCKS, true> &e, float4 bar0, float4 bar1)
    {
        const float2 q = make_float2(bar0.x, bar0.z), mx = make_float2(bar0.y, bar0.w), my = make_float2(bar1.x, bar1.z),
                     mz = make_float2(bar1.y, bar1.w);
        float2 P, Q, kappa;
        P.x = -fmaf(e.ux, mx.x, fmaf(e.uy, my.x, e.uz * mz.x));
        P.y = -fmaf(e.ux, mx.y, fmaf(e.uy, my.y, e.uz * mz.y));
        kappa = mul2(e.dW[0], mul2(xq, q));
        fma2(kappa, e.dW[1], mul2(xR, P));
        const float2 s = mul2(e.W[1], xR);
        if (!first_layer) {
            fma2(bq, e.W[0], q);
            fma2(bR, e.W[1], P);
            Q = mul2(mx, mux);
            fma2(Q, my, muy);
            fma2(Q, mz, muz);
            fma2(kappa, e.dW[BLOCKS - 1], mul2(xm, Q));
            fma2(x, e.W[BLOCKS - 1], mx);
            fma2(y, e.W[BLOCKS - 1], my);
            fma2(z, e.W[BLOCKS - 1], mz);
        }
        return make_float4(kappa.x + kappa.y, fmaf(s.x, mx.x, s.y * mx.y), fmaf(s.x, my.x, s.y * my.y),
                           fmaf(s.x, mz.x, s.y * mz.y));
    }
    // Returns κ or a component of ū, by the lanes of the quarter (sum_quarter); scale: dt/dd.
    template <bool first_layer, int BLOCKS>
    __device__ __forceinline__ float add(const edge_view<BLOCKS, true> &e, float4 bar0, float4 bar1, float scale)
    {
        return sum_quarter(terms<first_layer>(e, bar0, bar1) * make_float4(scale, 1.0f, 1.0f, 1.0f));
    }
    // Σ W^μ∘Q.
    __device__ __forceinline__ float2 bm() const
    {
        float2 sum = mul2(x, mux);
        fma2(sum, y, muy);
        fma2(sum, z, muz);
        return sum;
    }
    // Quarters 0 … 2 get x̄ (first), quarters 1 … 3 the sums of μ̄ (second).
    __device__ __forceinline__ void finish(float2 (&mine)[2]) const
    {
        const float2 none = make_float2(0, 0);
        mine[0] = sum_quarters(bq, bR, bm(), none);
        mine[1] = sum_quarters(none, mul2(x, xm), mul2(y, xm), mul2(z, xm));
    }
};

#endif
