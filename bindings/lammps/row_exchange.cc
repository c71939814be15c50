// SPDX-License-Identifier: GPL-2.0-only
// row_exchange.cc: plan and exchange of ghosts' rows.
#include "row_exchange.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <tuple>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

static const size_t SHARED_BLOCK = 2 << 20;
static const char *const route_names[] = {"host", "mpi", "peer"};

static bool mpi_reads_device_memory()
{
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

RowExchange::RowExchange(mlff_device where, MPI_Comm communicator, size_t bytes_of_row)
    : device(where), world(communicator), row_bytes(bytes_of_row)
{
    MPI_Comm_rank(world, &me);
    MPI_Comm_size(world, &n_ranks);
}

RowExchange::~RowExchange()
{
    close_peers();
    release(inner);
    release(outer);
    mlff_device_release(device, tables);
}

const char *RowExchange::route_name() const
{
    return route_names[route];
}

// ---- buffers ----------------------------------------------------------------------------------------------------------------

bool RowExchange::anywhere(bool here) const
{
    int flag = here;
    MPI_Allreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_MAX, world);
    return flag;
}

// By all ranks: whether GPUs can read each other's memory is tried when there are buffers.
mlff_status RowExchange::choose_route()
{
    const char *forced = getenv("MLFF_EXCHANGE");
    if (device.kind == MLFF_CPU || n_ranks == 1) return MLFF_OK;
    if (forced && *forced) {
        for (int k = HOST; k <= PEER; k++)
            if (strcmp(forced, route_names[k]) == 0) route = static_cast<Route>(k);
        return strcmp(forced, route_name()) == 0 ? MLFF_OK
                                                 : mlff_fail(MLFF_ERR_USAGE, "MLFF_EXCHANGE=%s: expected host, mpi or peer", forced);
    }
    MPI_Comm host;
    int on_host;
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &on_host);
    MPI_Comm_free(&host);
    route = !anywhere(on_host != n_ranks) ? PEER : mpi_reads_device_memory() ? MPI : HOST;
    return MLFF_OK;
}

void RowExchange::release(Buffer &buffer)
{
    if (route == HOST)
        mlff_host_release(device, buffer.data);
    else
        mlff_device_release(device, buffer.data);
    buffer = {};
}

mlff_status RowExchange::reserve(Buffer &buffer, size_t bytes)
{
    if (bytes <= buffer.bytes) return MLFF_OK;
    size_t wanted = bytes + bytes / 8;
    // The driver gives memory in blocks of 2 MB, of which it shares whole ones alone.
    if (route == PEER) wanted = (wanted + SHARED_BLOCK - 1) / SHARED_BLOCK * SHARED_BLOCK;
    void *memory = nullptr;
    release(buffer);
    const mlff_status status =
        route == HOST ? mlff_host_allocate(device, wanted, &memory) : mlff_device_allocate(device, wanted, &memory);
    if (status == MLFF_OK) buffer = {static_cast<char *>(memory), wanted};
    return status;
}

void RowExchange::close_peers()
{
    for (char *memory : opened) mlff_memory_close(device, memory);
    opened.clear();
}

// All ranks' buffers, by all ranks.
mlff_status RowExchange::open_peers()
{
    struct Handles {
        mlff_memory_handle inner, outer;
        int has_inner, has_outer;
    };
    Handles own = {};
    std::vector<Handles> all(n_ranks);
    mlff_status status = MLFF_OK;
    own.has_inner = inner.data != nullptr;
    own.has_outer = outer.data != nullptr;
    if (own.has_inner) status = mlff_memory_share(device, inner.data, &own.inner);
    if (own.has_outer && status == MLFF_OK) status = mlff_memory_share(device, outer.data, &own.outer);
    if (anywhere(status != MLFF_OK)) return status != MLFF_OK ? status : MLFF_ERR_UNSUPPORTED;
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, world);
    opened.assign(2 * static_cast<size_t>(n_ranks), nullptr);
    for (int rank = 0; rank < n_ranks && status == MLFF_OK; rank++) {
        if (rank == me) continue;
        void *memory = nullptr;
        if (all[rank].has_inner) status = mlff_memory_open(device, &all[rank].inner, &memory);
        opened[2 * rank] = static_cast<char *>(memory);
        memory = nullptr;
        if (all[rank].has_outer && status == MLFF_OK) status = mlff_memory_open(device, &all[rank].outer, &memory);
        opened[2 * rank + 1] = static_cast<char *>(memory);
    }
    if (!anywhere(status != MLFF_OK)) return MLFF_OK;
    close_peers();
    return status != MLFF_OK ? status : MLFF_ERR_UNSUPPORTED;
}

// Room for the rows of the plan. All ranks open a rank's new buffers; where that fails another route is taken for good.
mlff_status RowExchange::reserve_buffers()
{
    const size_t rows_bytes = (route == PEER ? 2 : 1) * row_bytes, inner_bytes = n_inner * rows_bytes, outer_bytes = n_outer * rows_bytes;
    mlff_status status = MLFF_OK;
    half = 0;
    if (route == PEER) {
        const bool grows = inner_bytes > inner.bytes || outer_bytes > outer.bytes;
        if (!anywhere(grows || !is_planned)) return MLFF_OK;
        close_peers();
        MPI_Barrier(world); // no rank has them open
    }
    if (status == MLFF_OK) status = reserve(inner, inner_bytes);
    if (status == MLFF_OK) status = reserve(outer, outer_bytes);
    if (route != PEER) return status;
    if (anywhere(status != MLFF_OK)) return status != MLFF_OK ? status : MLFF_ERR_MEMORY;
    status = open_peers();
    if (status == MLFF_OK) return MLFF_OK;
    if (getenv("MLFF_EXCHANGE")) return mlff_fail(MLFF_ERR_USAGE, "MLFF_EXCHANGE=peer: a GPU cannot open the memory of another rank");
    release(inner);
    release(outer);
    route = mpi_reads_device_memory() ? MPI : HOST;
    return reserve_buffers();
}

// ---- plan -------------------------------------------------------------------------------------------------------------------

// Rows that this rank wants of each other one: n_wanted[rank], `wanted` in the order of ranks. Sets the same of what is asked of this one,
// and the partners.
mlff_status RowExchange::ask_owners(const std::vector<int> &n_wanted, const std::vector<int> &wanted, std::vector<int> &asked)
{
    std::vector<int> n_asked(n_ranks), wanted_begin(n_ranks + 1), asked_begin(n_ranks + 1);
    std::vector<Places> ours(n_ranks), theirs(n_ranks);
    MPI_Alltoall(n_wanted.data(), 1, MPI_INT, n_asked.data(), 1, MPI_INT, world);
    std::partial_sum(n_wanted.begin(), n_wanted.end(), wanted_begin.begin() + 1);
    std::partial_sum(n_asked.begin(), n_asked.end(), asked_begin.begin() + 1);
    n_inner = asked_begin[n_ranks];
    n_outer = wanted_begin[n_ranks];
    asked.resize(n_inner);
    MPI_Alltoallv(wanted.data(), n_wanted.data(), wanted_begin.data(), MPI_INT, asked.data(), n_asked.data(), asked_begin.data(),
                  MPI_INT, world);
    for (int rank = 0; rank < n_ranks; rank++) ours[rank] = {asked_begin[rank], wanted_begin[rank], n_inner, n_outer};
    MPI_Alltoall(ours.data(), sizeof(Places), MPI_BYTE, theirs.data(), sizeof(Places), MPI_BYTE, world);
    partners.clear();
    for (int rank = 0; rank < n_ranks; rank++)
        if (n_asked[rank] + n_wanted[rank] > 0)
            partners.push_back({rank, asked_begin[rank], n_asked[rank], wanted_begin[rank], n_wanted[rank], 0, 0, theirs[rank],
                                nullptr, nullptr});
    for (int row : asked)
        if (row < 0 || row >= n_owned)
            return mlff_fail(MLFF_ERR_VALUE,
                             "a rank has a ghost of row %d, and its owner has %d rows; types of atoms were changed without LAMMPS's "
                             "communication of them to other ranks",
                             row, n_owned);
    return MLFF_OK;
}

// Groups equal keys of a sorted list: the distinct keys, and where each begins.
static void group(const std::vector<int32_t> &keys, std::vector<int32_t> &distinct, std::vector<int32_t> &first)
{
    for (size_t k = 0; k < keys.size(); k++)
        if (k == 0 || keys[k] != keys[k - 1]) {
            distinct.push_back(keys[k]);
            first.push_back(static_cast<int32_t>(k));
        }
    first.push_back(static_cast<int32_t>(keys.size()));
}

mlff_status RowExchange::plan(int n_owned_now, const std::vector<Owner> &owner_of_ghost)
{
    mlff_status status;
    n_owned = n_owned_now;
    n_ghosts = static_cast<int>(owner_of_ghost.size());
    std::vector<std::tuple<int, int, int>> ghosts; // rank, row, ghost
    for (int g = 0; g < n_ghosts; g++) ghosts.emplace_back(owner_of_ghost[g].rank, owner_of_ghost[g].row, n_owned + g);
    std::sort(ghosts.begin(), ghosts.end());

    std::vector<int32_t> images, images_of, imaged_atoms, images_begin, others, outer_of_others, outer_rows, others_begin;
    std::vector<int> n_wanted(n_ranks), n_others(n_ranks), wanted, asked;
    for (const auto &[rank, row, g] : ghosts) {
        if (rank == me) {
            images.push_back(g);
            images_of.push_back(row);
            continue;
        }
        if (n_wanted[rank] == 0 || wanted.back() != row) {
            wanted.push_back(row);
            n_wanted[rank]++;
        }
        n_others[rank]++;
        others.push_back(g);
        outer_of_others.push_back(static_cast<int32_t>(wanted.size() - 1));
    }
    if ((status = ask_owners(n_wanted, wanted, asked)) != MLFF_OK) return status;
    group(images_of, imaged_atoms, images_begin);
    group(outer_of_others, outer_rows, others_begin);
    int at = 0;
    for (Partner &p : partners) {
        p.ghost_begin = at;
        p.n_ghosts = n_others[p.rank];
        at += p.n_ghosts;
    }
    if ((status = reserve_buffers()) != MLFF_OK) return status;
    for (Partner &p : partners) {
        p.their_inner = route == PEER ? opened[2 * p.rank] : nullptr;
        p.their_outer = route == PEER ? opened[2 * p.rank + 1] : nullptr;
    }
    is_planned = true;
    return upload({imaged_atoms, images_begin, images, images_of, others, outer_of_others, others_begin,
                   std::vector<int32_t>(asked.begin(), asked.end())},
                  {&imaged, &image_first, &image, &image_of, &ghost, &outer_of, &outer_first, &inner_of});
}

mlff_status RowExchange::upload(const std::vector<std::vector<int32_t>> &lists, std::vector<Table *> places)
{
    std::vector<int32_t> all;
    for (size_t k = 0; k < lists.size(); k++) {
        *places[k] = {all.size(), static_cast<int>(lists[k].size())};
        all.insert(all.end(), lists[k].begin(), lists[k].end());
    }
    const size_t bytes = all.size() * sizeof(int32_t);
    if (bytes > table_bytes) {
        void *memory = nullptr;
        mlff_device_release(device, tables);
        tables = nullptr;
        table_bytes = 0;
        const mlff_status status = mlff_device_allocate(device, bytes + bytes / 8, &memory);
        if (status != MLFF_OK) return status;
        tables = static_cast<int32_t *>(memory);
        table_bytes = bytes + bytes / 8;
    }
    return mlff_device_copy(device, tables, all.data(), bytes);
}

const int32_t *RowExchange::table(Table t) const
{
    return t.n > 0 ? tables + t.begin : nullptr;
}

// ---- exchange ---------------------------------------------------------------------------------------------------------------

mlff_rows RowExchange::rows_of(const mlff_halo_array &array) const
{
    mlff_rows rows = {};
    rows.to = array.data;
    rows.from = array.data;
    rows.width = array.width;
    rows.element_bytes = array.element_bytes;
    return rows;
}

static size_t bytes_of(const mlff_halo_array &array)
{
    return static_cast<size_t>(array.width) * array.element_bytes;
}

// The first row of an array in a buffer of n_rows rows: arrays follow each other.
char *RowExchange::place(char *buffer, int n_rows, const mlff_halo_array *arrays, int array) const
{
    size_t at = half * row_bytes;
    for (int a = 0; a < array; a++) at += bytes_of(arrays[a]);
    return buffer + at * n_rows;
}

// Rows of `inner` are complete in all ranks and go to those who read them, or rows of `outer` to their owners. With PEER these read them
// there, and the messages say only that they can.
mlff_status RowExchange::exchange_buffers(bool forward, const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    if (partners.empty()) return MLFF_OK;
    const mlff_status status = mlff_stream_synchronize(device, stream);
    if (status != MLFF_OK) return status;
    requests.clear();
    for (int a = 0; a < (route == PEER ? 1 : n_arrays); a++)
        for (const Partner &p : partners) {
            const size_t bytes = bytes_of(arrays[a]);
            char *const in = place(inner.data, n_inner, arrays, a) + p.inner_begin * bytes,
                        *const out = place(outer.data, n_outer, arrays, a) + p.outer_begin * bytes;
            const int words = route == PEER ? 0 : static_cast<int>(bytes / sizeof(int32_t));
            MPI_Request to, from;
            MPI_Irecv(forward ? out : in, (forward ? p.n_outer : p.n_inner) * words, MPI_INT32_T, p.rank, a, world, &from);
            MPI_Isend(forward ? in : out, (forward ? p.n_inner : p.n_outer) * words, MPI_INT32_T, p.rank, a, world, &to);
            requests.push_back(from);
            requests.push_back(to);
        }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    return MLFF_OK;
}

mlff_status RowExchange::forward(const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    mlff_status status = MLFF_OK;
    for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
        mlff_rows copies = rows_of(arrays[a]), images = copies;
        copies.to = place(inner.data, n_inner, arrays, a);
        copies.n_rows = n_inner;
        copies.from_row = table(inner_of);
        images.n_rows = image.n;
        images.to_row = table(image);
        images.from_row = table(image_of);
        status = mlff_device_rows(device, &copies, stream);
        if (status == MLFF_OK) status = mlff_device_rows(device, &images, stream);
    }
    if (status == MLFF_OK) status = exchange_buffers(true, arrays, n_arrays, stream);
    for (const Partner &p : partners)
        for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
            mlff_rows rows = rows_of(arrays[a]);
            const ptrdiff_t shift = p.theirs.inner_begin - p.outer_begin; // from a row of `outer` to that of their `inner`
            rows.from = route == PEER ? place(p.their_inner, p.theirs.n_inner, arrays, a) + shift * static_cast<ptrdiff_t>(bytes_of(arrays[a]))
                                      : place(outer.data, n_outer, arrays, a);
            rows.n_rows = p.n_ghosts;
            rows.to_row = table(ghost) + p.ghost_begin;
            rows.from_row = table(outer_of) + p.ghost_begin;
            if (p.n_ghosts > 0) status = mlff_device_rows(device, &rows, stream);
        }
    half = route == PEER && !half;
    return status;
}

mlff_status RowExchange::reverse(const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    mlff_status status = MLFF_OK;
    for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
        mlff_rows sums = rows_of(arrays[a]), images = sums;
        sums.to = place(outer.data, n_outer, arrays, a);
        sums.n_rows = n_outer;
        sums.first = table(outer_first);
        sums.from_row = table(ghost);
        images.n_rows = imaged.n;
        images.add = 1;
        images.to_row = table(imaged);
        images.first = table(image_first);
        images.from_row = table(image);
        const size_t bytes = bytes_of(arrays[a]);
        status = mlff_device_rows(device, &sums, stream);
        if (status == MLFF_OK) status = mlff_device_rows(device, &images, stream);
        if (status == MLFF_OK)
            status = mlff_device_zero(device, static_cast<char *>(arrays[a].data) + n_owned * bytes, n_ghosts * bytes, stream);
    }
    if (status == MLFF_OK) status = exchange_buffers(false, arrays, n_arrays, stream);
    for (const Partner &p : partners)
        for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
            mlff_rows rows = rows_of(arrays[a]);
            rows.from = route == PEER ? place(p.their_outer, p.theirs.n_outer, arrays, a) + p.theirs.outer_begin * bytes_of(arrays[a])
                                      : place(inner.data, n_inner, arrays, a) + p.inner_begin * bytes_of(arrays[a]);
            rows.n_rows = p.n_inner;
            rows.add = 1;
            rows.to_row = table(inner_of) + p.inner_begin;
            if (p.n_inner > 0) status = mlff_device_rows(device, &rows, stream);
        }
    half = route == PEER && !half;
    return status;
}
