// SPDX-License-Identifier: MIT
// painn_train_chain.cu: what happens at atoms of a small batch between two pair kernels of a training step, in one kernel: the update
// of a layer and the message network of the next one, readout, their way back, and the tangents of all of them.
//
// A cluster has a tile of 16 atoms. A block makes 16 features of each product, or 64 where clusters of so few would not all run at
// once; a thread has an atom and one or four neighboring features of what follows (painn_train_node.cuh) and sends its results to all blocks of the
// cluster, whose next product needs all features. Warps divide a product into units of 16 features and shares of its terms, which are
// added in fixed order. Weights and other operands of a product are requested before the results of the previous one are waited for.
// Bound by latency.
//
// An exchange has an mbarrier for one use and one of two alternating buffers: a block that sends exchange k + 1 has received all of
// exchange k, so all blocks have completed their products of exchange k − 1.
#include "painn_train_chain.cuh"

// Ends the product of a hidden layer, forward or back (hidden_forward, hidden_back): its results go to `first` and `second`, and to the cluster
// as exchange k.
template <class Operation, class Second, class Chain>
static __device__ __forceinline__ void finish_hidden(const Chain &c, int k, const Operation &op, const painn_dual &first,
                                                     const Second &second)
{
    const element e = c.own();
    const numbers<Chain::EACH> sum = c.template sum<1>(CHAIN_ROWS, c.row);
    c.send(k, c.row, e.f, Chain::features, op.finish(c.s.activation, e.there, first, second, sum));
}

// ---- forward ------------------------------------------------------------------------------------------------------------

// Update of layer l, from μ' and q' of the previous kernel. q'' is exchange 2.
template <int PARTS, int TANGENT, class Chain> static __device__ __forceinline__ void update(const Chain &c, int l)
{
    constexpr int F = Chain::features;
    const known_step<F> &s = c.s;
    const painn_train_layer &L = s.layer[l];
    chain_weights<Chain, 1, 2 * F> hidden;
    chain_weights<Chain, 3, F> output;
    {
        chain_weights<Chain, 2, F> w;
        update_vectors<TANGENT, Chain::EACH> op;
        w.load(painn_weights(&s, l, PAINN_U), F, F, w.columns_of(c));
        hidden.load(painn_weights(&s, l, PAINN_M1), 2 * F, 0, hidden.columns_of(c));
        op.load(s, l, c.own());
        c.begin();
        c.load_rows(1, TANGENT ? L.mu1.tangent : L.mu1.value, 3, F, F, F);
        c.load_rows(0, TANGENT ? L.context.tangent : L.context.value, 1, F, 2 * F, 2 * F);
        c.rows_loaded();
        w.template multiply<PARTS, false, 3>(c, c.rows(1), F);
        const element e = c.own();
        numbers<Chain::EACH> V[3], B[3];
        for (int axis = 0; axis < 3; axis++) {
            V[axis] = c.template sum<2>(3 * CHAIN_ROWS, axis * CHAIN_ROWS + c.row, 0);
            B[axis] = c.template sum<2>(3 * CHAIN_ROWS, axis * CHAIN_ROWS + c.row, 1);
        }
        c.send(0, c.row, F + e.f, 2 * F, op.finish(s, l, e, V, B));
    }
    {
        hidden_forward<PARTS, TANGENT, Chain::EACH> op;
        output.load(painn_weights(&s, l, PAINN_M2), F, F, output.columns_of(c));
        op.load(F, c.own(), L.g, s.weights.base + s.weights.layer[l].c1);
        c.receive(0);
        hidden.template multiply<PARTS, false, 1>(c, c.rows(0), 2 * F);
        finish_hidden(c, 1, op, L.g, L.s);
    }
    update_features<TANGENT, Chain::EACH> op;
    op.load(s, l, c.own());
    c.receive(1);
    output.template multiply<PARTS, true, 1>(c, c.rows(1), F);
    const element e = c.own();
    numbers<Chain::EACH> y[3];
    for (int b = 0; b < 3; b++) y[b] = c.template sum<3>(CHAIN_ROWS, c.row, b);
    c.send(2, c.row, e.f, F, operands<PARTS>(op.finish(s, l, e, y))); // products alone read it there
}

// Message network of layer l, from exchange INPUT or (−1) from q of the previous kernel.
template <int PARTS, int TANGENT, int INPUT, class Chain>
static __device__ __forceinline__ void message_net(const Chain &c, int l)
{
    constexpr int F = Chain::features;
    const known_step<F> &s = c.s;
    const painn_train_layer &L = s.layer[l];
    chain_weights<Chain, 3, F> output;
    {
        chain_weights<Chain, 1, F> w;
        hidden_forward<PARTS, TANGENT, Chain::EACH> op;
        w.load(painn_weights(&s, l, PAINN_W1), F, 0, w.columns_of(c));
        output.load(painn_weights(&s, l, PAINN_W2), F, F, output.columns_of(c));
        op.load(F, c.own(), L.h, s.weights.base + s.weights.layer[l].b1);
        if (INPUT < 0) {
            c.begin();
            c.load_rows(1, TANGENT ? s.q[l].tangent : s.q[l].value, 1, F, F, F);
            c.rows_loaded();
        } else {
            c.receive(INPUT);
        }
        w.template multiply<PARTS, (INPUT >= 0), 1>(c, c.rows(INPUT), F);
        finish_hidden(c, INPUT + 1, op, L.h, L.a);
    }
    message_output<TANGENT, Chain::EACH> op;
    op.load(s, l, c.own());
    c.receive(INPUT + 1);
    output.template multiply<PARTS, true, 1>(c, c.rows(INPUT + 1), F);
    numbers<Chain::EACH> x[3];
    for (int b = 0; b < 3; b++) x[b] = c.template sum<3>(CHAIN_ROWS, c.row, b);
    op.finish(s, l, c.own(), x);
}

// ---- readout ------------------------------------------------------------------------------------------------------------

// Sends the sum of a row's terms in this block to the first block, as part of exchange 3.
template <class Chain> static __device__ __forceinline__ void send_energy(const Chain &c, float term)
{
    for (int offset = CHAIN_COLUMNS / 2; offset > 0; offset /= 2) term += __shfl_xor_sync(0xffffffffu, term, offset);
    const uint32_t to = CHAIN_ENERGIES + 4u * (uint32_t)(c.rank * CHAIN_ROWS + c.row);
    if (c.column == 0) store_async(cluster_map(c.memory, 0), to, 8 * 3, __float_as_uint(term));
}

// From exchange 2. `q`: q̄ of the last layer's output; `next` is loaded for what follows. A block has units of 16 hidden numbers,
// every blocks-th.
template <int PARTS, int TANGENT, class Chain>
static __device__ __forceinline__ void readout(const Chain &c, update_adjoint<PARTS, TANGENT, Chain::EACH> &next,
                                               numbers<Chain::EACH> &q)
{
    constexpr int F = Chain::features;
    const known_step<F> &s = c.s;
    const int H = s.n_hidden, l = s.n_layers;
    chain_weights<Chain, 1, F> back;
    {
        chain_weights<Chain, 1, F> w;
        readout_hidden<PARTS, TANGENT, Chain::EACH> op;
        const int n0 = CHAIN_COLUMNS * (c.rank + c.blocks * w.unit()),
                  f = CHAIN_COLUMNS * (c.rank + c.blocks * (c.column / CHAIN_COLUMNS));
        const bool there = f < H;
        const element own = c.own(), hidden = {own.atom, (there ? f : 0) + c.column % CHAIN_COLUMNS, own.there && there};
        w.load(painn_weights_of_readout(&s), F, 0, n0, n0 < H);
        back.load(painn_transposed_readout(&s), H, 0, back.columns_of(c));
        op.load(s, hidden);
        c.receive(2);
        w.template multiply<PARTS, true, 1>(c, c.rows(2), F);
        numbers<Chain::EACH> term = {};
        c.send(3, c.row, hidden.f, H, op.finish(s, hidden, c.template sum<1>(CHAIN_ROWS, c.row), term), there);
        float energy = 0;
        for (int i = 0; i < Chain::EACH && there; i++) energy += term.v[i];
        if (!TANGENT) send_energy(c, energy);
    }
    next.load(s, l - 1, c.own());
    c.receive(3);
    back.template multiply<PARTS, true, 1>(c, c.rows(3), H);
    if (c.rank == 0 && c.column == 0 && c.own().there) {
        const float *energies = (const float *)c.memory + CHAIN_ENERGIES / 4 + c.row;
        float energy = 0;
        for (int k = 0; k < c.blocks && !TANGENT; k++) energy += energies[k * CHAIN_ROWS];
        write_energy<TANGENT>(s, c.own().atom, energy);
    }
    const element e = c.own();
    q = c.template sum<1>(CHAIN_ROWS, c.row);
    if (e.there) put((TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value) + (size_t)e.atom * F + e.f, q);
}

// ---- backward -----------------------------------------------------------------------------------------------------------

// Message network of layer l, from x̄ of the previous kernel. `q`: q̄ of the layer's input; `next`: as of the readout, with NEXT.
template <int PARTS, int TANGENT, bool NEXT, class Chain>
static __device__ __forceinline__ void message_net_back(const Chain &c, int l, update_adjoint<PARTS, TANGENT, Chain::EACH> &next,
                                                        numbers<Chain::EACH> &q)
{
    constexpr int F = Chain::features;
    const known_step<F> &s = c.s;
    const painn_train_layer &L = s.layer[l];
    chain_weights<Chain, 1, F> input;
    {
        chain_weights<Chain, 1, 3 * F> w;
        hidden_back<PARTS, TANGENT, Chain::EACH> op;
        w.load(painn_transposed(&s, l, PAINN_W2), 3 * F, 0, w.columns_of(c));
        input.load(painn_transposed(&s, l, PAINN_W1), F, 0, input.columns_of(c));
        op.load(F, c.own(), L.h, L.a_bar);
        c.begin();
        c.load_rows(1, TANGENT ? L.x_bar.tangent : L.x_bar.value, 1, 3 * F, 3 * F, 3 * F);
        c.rows_loaded();
        w.template multiply<PARTS, true, 1>(c, c.rows(1), 3 * F);
        finish_hidden(c, 0, op, L.h_bar, L.a_bar);
    }
    features_back<TANGENT, Chain::EACH> op;
    op.load(s, l, c.own());
    if (NEXT) next.load(s, l - 1, c.own());
    c.receive(0);
    input.template multiply<PARTS, true, 1>(c, c.rows(0), F);
    q = op.finish(s, l, c.own(), c.template sum<1>(CHAIN_ROWS, c.row));
}

// Update of layer l, from q̄ and μ̄ of its output. Exchanges from K on.
template <int PARTS, int TANGENT, int K, class Chain>
static __device__ __forceinline__ void
update_back(const Chain &c, int l, const update_adjoint<PARTS, TANGENT, Chain::EACH> &adjoint, const numbers<Chain::EACH> &q)
{
    constexpr int F = Chain::features;
    const known_step<F> &s = c.s;
    const painn_train_layer &L = s.layer[l];
    const element e = c.own();
    chain_weights<Chain, 2, F> norm;
    chain_weights<Chain, 1, 2 * F> vectors;
    {
        chain_weights<Chain, 1, 3 * F> w;
        hidden_back<PARTS, TANGENT, Chain::EACH> op;
        numbers<Chain::EACH> y[3];
        w.load(painn_transposed(&s, l, PAINN_M2), 3 * F, 0, w.columns_of(c));
        adjoint.finish(s, l, e, q, y);
        for (int b = 0; b < 3; b++) c.send(K, c.row, b * F + e.f, 3 * F, y[b]);
        norm.load(painn_transposed(&s, l, PAINN_M1), F, F, norm.columns_of(c));
        op.load(F, c.own(), L.g, L.s_bar);
        c.receive(K);
        w.template multiply<PARTS, true, 1>(c, c.rows(K), 3 * F);
        finish_hidden(c, K + 1, op, L.g_bar, L.s_bar);
    }
    {
        norm_back<PARTS, TANGENT, Chain::EACH> op;
        vectors.load(painn_transposed(&s, l, PAINN_U), 2 * F, 0, vectors.columns_of(c));
        op.load(s, l, c.own());
        c.receive(K + 1);
        norm.template multiply<PARTS, true, 1>(c, c.rows(K + 1), F);
        numbers<Chain::EACH> V[3], B[3];
        op.finish(s, l, e, q, c.template sum<2>(CHAIN_ROWS, c.row, 0), c.template sum<2>(CHAIN_ROWS, c.row, 1), V, B);
        for (int axis = 0; axis < 3; axis++) {
            c.send(K + 2, axis * CHAIN_ROWS + c.row, e.f, 2 * F, V[axis]);
            c.send(K + 2, axis * CHAIN_ROWS + c.row, F + e.f, 2 * F, B[axis]);
        }
    }
    vector_back<TANGENT, Chain::EACH> op;
    op.load(s, l, c.own());
    c.receive(K + 2);
    vectors.template multiply<PARTS, true, 3>(c, c.rows(K + 2), 2 * F);
    numbers<Chain::EACH> mu[3];
    for (int axis = 0; axis < 3; axis++) mu[axis] = c.template sum<1>(3 * CHAIN_ROWS, axis * CHAIN_ROWS + c.row);
    op.finish(s, l, e, mu);
}

// ---- kernels ------------------------------------------------------------------------------------------------------------

// Features of a block: wide ones, of which a multiprocessor has one, where not all narrow ones would run at once: with 128 features only.
enum { NARROW = 16, WIDE = 64 };

template <int F> struct chain_call {
    known_step<F> s;
    int32_t l;
};
static_assert(sizeof(chain_call<PAINN_TRAIN_MAX_FEATURES>) <= 4096, "parameters of a kernel");

// Bytes of each exchange, in the order of the pieces.
template <int PIECES, class Chain> static __device__ __forceinline__ void expect_all(const Chain &c, bool energies)
{
    constexpr int F = Chain::features;
    int k = 0;
    if (PIECES & CHAIN_UPDATE) {
        for (int which = 0; which < 3; which++) c.expect(k++, F); // n, act(g), q''
    }
    if (PIECES & CHAIN_NET) c.expect(k++, F);
    if (PIECES & CHAIN_READOUT) c.expect(k++, c.s.n_hidden, energies && c.rank == 0 ? 4 * CHAIN_ROWS * c.blocks : 0);
    if (PIECES & CHAIN_NET_BACK) c.expect(k++, F);
    if (PIECES & CHAIN_UPDATE_BACK) {
        c.expect(k++, 3 * F); // ȳ, ḡ, vectors
        c.expect(k++, F);
        c.expect(k++, 6 * F);
    }
}

template <int PARTS, int TANGENT, int PIECES, int WIDTH, int F>
static __global__ void __launch_bounds__(CHAIN_THREADS, WIDTH == WIDE ? 1 : 2) node_chain(chain_call<F> call)
{
    DYNAMIC_SHARED(memory);
    typedef chain<WIDTH, F> block;
    const block c(call.s, memory, PIECES);
    const int l = call.l;
    if (threadIdx.x == 0) expect_all<PIECES>(c, !TANGENT);
    c.announce();
    update_adjoint<PARTS, TANGENT, block::EACH> adjoint;
    numbers<block::EACH> q = {};
    if (PIECES & CHAIN_UPDATE) update<PARTS, TANGENT>(c, l);
    if (PIECES & CHAIN_NET) message_net<PARTS, TANGENT, PIECES & CHAIN_UPDATE ? 2 : -1>(c, PIECES & CHAIN_UPDATE ? l + 1 : l);
    if (PIECES & CHAIN_READOUT) readout<PARTS, TANGENT>(c, adjoint, q);
    if (PIECES & CHAIN_NET_BACK) message_net_back<PARTS, TANGENT, (PIECES & CHAIN_UPDATE_BACK) != 0>(c, l, adjoint, q);
    if (PIECES & CHAIN_UPDATE_BACK)
        update_back<PARTS, TANGENT, PIECES & CHAIN_READOUT ? 4 : 1>(c, PIECES & CHAIN_READOUT ? l : l - 1, adjoint, q);
}

// ---- launches -----------------------------------------------------------------------------------------------------------

template <int F> struct chain_kernel {
    typedef void (*type)(chain_call<F>);
};

static const int pieces_of[PAINN_CHAINS] = {CHAIN_NET, CHAIN_UPDATE | CHAIN_NET, CHAIN_UPDATE | CHAIN_READOUT | CHAIN_UPDATE_BACK,
                                            CHAIN_NET_BACK | CHAIN_UPDATE_BACK, CHAIN_NET_BACK};

template <int PARTS, int TANGENT, int WIDTH, int F> static typename chain_kernel<F>::type chain_of(int which)
{
    switch (which) {
    case PAINN_CHAIN_BEGIN: return node_chain<PARTS, TANGENT, CHAIN_NET, WIDTH, F>;
    case PAINN_CHAIN_FORWARD: return node_chain<PARTS, TANGENT, CHAIN_UPDATE | CHAIN_NET, WIDTH, F>;
    case PAINN_CHAIN_TURN: return node_chain<PARTS, TANGENT, CHAIN_UPDATE | CHAIN_READOUT | CHAIN_UPDATE_BACK, WIDTH, F>;
    case PAINN_CHAIN_BACK: return node_chain<PARTS, TANGENT, CHAIN_NET_BACK | CHAIN_UPDATE_BACK, WIDTH, F>;
    default: return node_chain<PARTS, TANGENT, CHAIN_NET_BACK, WIDTH, F>;
    }
}

// features of a block; wide ones where blocks would otherwise not run all at once: 128 features only

// Bytes of which a multiprocessor has no two in its share of shared memory (GPU_TRAIN_SHARED): with a multiprocessor for each block, clusters
// would still be given two blocks of one.
enum { CHAIN_ALONE = 100 * 1024 };

// A block of a GPU with less (99 kB of a multiprocessor's 100 with compute capability 12.0) is alone with as much as it may have.
static int bytes_alone(int needed, size_t shared_bytes)
{
    const int most = shared_bytes < CHAIN_ALONE ? (int)shared_bytes : CHAIN_ALONE;
    return needed < most ? most : needed;
}

template <int F> static typename chain_kernel<F>::type kernel_of(int which, int parts, int tangent, int width)
{
    enum { WIDEST = F == PAINN_TRAIN_MAX_FEATURES ? WIDE : NARROW };
    if (width == WIDEST) {
        if (parts == 3) return tangent ? chain_of<3, 1, WIDEST, F>(which) : chain_of<3, 0, WIDEST, F>(which);
        return tangent ? chain_of<1, 1, WIDEST, F>(which) : chain_of<1, 0, WIDEST, F>(which);
    }
    if (parts == 3) return tangent ? chain_of<3, 1, NARROW, F>(which) : chain_of<3, 0, NARROW, F>(which);
    return tangent ? chain_of<1, 1, NARROW, F>(which) : chain_of<1, 0, NARROW, F>(which);
}

template <int F> static int prepare(size_t shared_bytes, int *there_out)
{
    for (int which = 0; which < PAINN_CHAINS; which++) {
        for (int k = 0; k < (F == PAINN_TRAIN_MAX_FEATURES ? 8 : 4); k++) {
            const int width = k & 4 ? WIDE : NARROW;
            const int bytes = bytes_alone(chain_bytes(width, pieces_of[which], F), shared_bytes);
            if ((size_t)bytes > shared_bytes) return cudaSuccess;
            const cudaError_t error = cudaFuncSetAttribute(kernel_of<F>(which, k & 1 ? 3 : 1, k & 2, width),
                                                           cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
            if (error != cudaSuccess) return error;
        }
    }
    *there_out = 1;
    return cudaSuccess;
}

extern "C" int painn_train_prepare_chains(const painn_train_step *step, size_t shared_bytes, int *there_out)
{
    *there_out = 0;
    return step->n_features == 128  ? prepare<128>(shared_bytes, there_out)
           : step->n_features == 64 ? prepare<64>(shared_bytes, there_out)
                                    : prepare<32>(shared_bytes, there_out);
}

template <int F>
static int launch_of(const painn_train_step &step, const painn_train_plan *plan, int which, int l, int tangent, void *stream)
{
    const int tiles = (plan->n_atoms + CHAIN_ROWS - 1) / CHAIN_ROWS;
    const bool crowded =
        tiles * (F / NARROW) > 2 * plan->n_multiprocessors && F == PAINN_TRAIN_MAX_FEATURES; // more than run at once
    const int width = crowded ? WIDE : NARROW, blocks = F / width;
    const chain_call<F> call = {{step}, l};
    int bytes = chain_bytes(width, pieces_of[which], F);
    if (plan->overlap & GPU_TRAIN_SHARED) bytes = bytes_alone(bytes, plan->shared_bytes);
    return launch(kernel_of<F>(which, plan->parts, tangent, width), tiles * blocks, CHAIN_THREADS, (size_t)bytes, blocks,
                  plan->overlap, stream, call);
}

extern "C" int painn_train_launch_chain(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent,
                                        void *stream)
{
    return step->n_features == 128  ? launch_of<128>(*step, plan, which, l, tangent, stream)
           : step->n_features == 64 ? launch_of<64>(*step, plan, which, l, tangent, stream)
                                    : launch_of<32>(*step, plan, which, l, tangent, stream);
}
