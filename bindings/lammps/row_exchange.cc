// SPDX-License-Identifier: GPL-2.0-only
// row_exchange.cc: plan and exchange of ghosts' rows.
#include "row_exchange.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

static bool mpi_reads_device_memory()
{
    const char *text = getenv("MLFF_MPI_DEVICE_MEMORY");
    if (text) return *text == '1';
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

RowExchange::RowExchange(mlff_device where, MPI_Comm communicator)
    : device(where), world(communicator), through_host(where.kind == MLFF_CPU || !mpi_reads_device_memory())
{
    MPI_Comm_rank(world, &me);
    MPI_Comm_size(world, &n_ranks);
}

RowExchange::~RowExchange()
{
    release(inner);
    release(outer);
    mlff_device_release(device, tables);
}

void RowExchange::release(Buffer &buffer)
{
    if (through_host)
        mlff_host_release(device, buffer.data);
    else
        mlff_device_release(device, buffer.data);
    buffer = {};
}

mlff_status RowExchange::reserve(Buffer &buffer, size_t bytes)
{
    if (bytes <= buffer.bytes) return MLFF_OK;
    const size_t wanted = bytes + bytes / 8;
    void *memory = nullptr;
    release(buffer);
    const mlff_status status =
        through_host ? mlff_host_allocate(device, wanted, &memory) : mlff_device_allocate(device, wanted, &memory);
    if (status == MLFF_OK) buffer = {static_cast<char *>(memory), wanted};
    return status;
}

// ---- plan -------------------------------------------------------------------------------------------------------------------

// Rows that each rank wants of each other one: n_wanted[rank], `wanted` in the order of ranks. Sets the same of what is asked of this one.
mlff_status RowExchange::ask_owners(const std::vector<int> &n_wanted, const std::vector<int> &wanted, std::vector<int> &asked)
{
    std::vector<int> n_asked(n_ranks), wanted_begin(n_ranks + 1), asked_begin(n_ranks + 1);
    MPI_Alltoall(n_wanted.data(), 1, MPI_INT, n_asked.data(), 1, MPI_INT, world);
    std::partial_sum(n_wanted.begin(), n_wanted.end(), wanted_begin.begin() + 1);
    std::partial_sum(n_asked.begin(), n_asked.end(), asked_begin.begin() + 1);
    asked.resize(asked_begin[n_ranks]);
    MPI_Alltoallv(wanted.data(), n_wanted.data(), wanted_begin.data(), MPI_INT, asked.data(), n_asked.data(), asked_begin.data(),
                  MPI_INT, world);
    partners.clear();
    for (int rank = 0; rank < n_ranks; rank++)
        if (n_asked[rank] + n_wanted[rank] > 0)
            partners.push_back({rank, asked_begin[rank], n_asked[rank], wanted_begin[rank], n_wanted[rank]});
    for (int row : asked)
        if (row < 0 || row >= n_owned)
            return mlff_fail(MLFF_ERR_VALUE, "a rank has a ghost of row %d, and its owner has %d rows; types of atoms that the "
                                             "model does not see were changed between two neighbor lists",
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
    n_owned = n_owned_now;
    n_ghosts = static_cast<int>(owner_of_ghost.size());
    std::vector<std::tuple<int, int, int>> ghosts; // rank, row, ghost
    for (int g = 0; g < n_ghosts; g++) ghosts.emplace_back(owner_of_ghost[g].rank, owner_of_ghost[g].row, n_owned + g);
    std::sort(ghosts.begin(), ghosts.end());

    std::vector<int32_t> images, images_of, imaged_atoms, images_begin, others, outer_of_others, outer_rows, others_begin;
    std::vector<int> n_wanted(n_ranks), wanted, asked;
    for (size_t k = 0; k < ghosts.size(); k++) {
        const auto [rank, row, g] = ghosts[k];
        if (rank == me) {
            images.push_back(g);
            images_of.push_back(row);
            continue;
        }
        if (wanted.empty() || std::get<0>(ghosts[k - 1]) != rank || wanted.back() != row) {
            wanted.push_back(row);
            n_wanted[rank]++;
        }
        others.push_back(g);
        outer_of_others.push_back(static_cast<int32_t>(wanted.size() - 1));
    }
    const mlff_status status = ask_owners(n_wanted, wanted, asked);
    if (status != MLFF_OK) return status;
    n_inner = static_cast<int>(asked.size());
    n_outer = static_cast<int>(wanted.size());
    group(images_of, imaged_atoms, images_begin);
    group(outer_of_others, outer_rows, others_begin);

    std::vector<int32_t> order(n_inner), sorted(n_inner), distinct, distinct_begin;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return asked[a] < asked[b]; });
    for (int k = 0; k < n_inner; k++) sorted[k] = asked[order[k]];
    group(sorted, distinct, distinct_begin);
    is_planned = true;
    return upload({imaged_atoms, images_begin, images, images_of, others, outer_of_others, others_begin,
                   std::vector<int32_t>(asked.begin(), asked.end()), distinct, distinct_begin, order},
                  {&imaged, &image_first, &image, &image_of, &ghost, &outer_of, &outer_first, &inner_of, &shared, &shared_first,
                   &shared_inner});
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

mlff_status RowExchange::move(const mlff_rows &described, Table to_row, Table first, Table from_row, void *stream)
{
    mlff_rows rows = described;
    rows.to_row = table(to_row);
    rows.first = table(first);
    rows.from_row = table(from_row);
    return mlff_device_rows(device, &rows, stream);
}

// Rows of `inner` go to those who read them, and rows of `outer` come from their owners; or the reverse.
mlff_status RowExchange::messages(bool forward, const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    if (partners.empty()) return MLFF_OK;
    const mlff_status status = mlff_stream_synchronize(device, stream);
    if (status != MLFF_OK) return status;
    size_t inner_at = 0, outer_at = 0;
    requests.clear();
    for (int a = 0; a < n_arrays; a++) {
        const size_t bytes = static_cast<size_t>(arrays[a].width) * arrays[a].element_bytes;
        const int words = static_cast<int>(bytes / sizeof(int32_t));
        for (const Partner &p : partners) {
            char *in = inner.data + inner_at + p.inner_begin * bytes, *out = outer.data + outer_at + p.outer_begin * bytes;
            MPI_Request to, from;
            MPI_Irecv(forward ? out : in, (forward ? p.n_outer : p.n_inner) * words, MPI_INT32_T, p.rank, a, world, &from);
            MPI_Isend(forward ? in : out, (forward ? p.n_inner : p.n_outer) * words, MPI_INT32_T, p.rank, a, world, &to);
            requests.push_back(from);
            requests.push_back(to);
        }
        inner_at += n_inner * bytes;
        outer_at += n_outer * bytes;
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    return MLFF_OK;
}

static size_t bytes_of_row(const mlff_halo_array *arrays, int n_arrays)
{
    size_t bytes = 0;
    for (int a = 0; a < n_arrays; a++) bytes += static_cast<size_t>(arrays[a].width) * arrays[a].element_bytes;
    return bytes;
}

mlff_status RowExchange::forward(const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    mlff_status status = MLFF_OK;
    const Table none = {0, 0};
    size_t inner_at = 0, outer_at = 0;
    const size_t row = bytes_of_row(arrays, n_arrays);
    if ((status = reserve(inner, n_inner * row)) != MLFF_OK || (status = reserve(outer, n_outer * row)) != MLFF_OK) return status;
    for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
        mlff_rows rows = {};
        rows.width = arrays[a].width;
        rows.element_bytes = arrays[a].element_bytes;
        rows.from = arrays[a].data;
        rows.to = inner.data + inner_at;
        rows.n_rows = n_inner;
        status = move(rows, none, none, inner_of, stream);
        inner_at += static_cast<size_t>(n_inner) * rows.width * rows.element_bytes;
        rows.to = arrays[a].data;
        rows.n_rows = image.n;
        if (status == MLFF_OK) status = move(rows, image, none, image_of, stream);
    }
    if (status == MLFF_OK) status = messages(true, arrays, n_arrays, stream);
    for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
        mlff_rows rows = {};
        rows.width = arrays[a].width;
        rows.element_bytes = arrays[a].element_bytes;
        rows.from = outer.data + outer_at;
        rows.to = arrays[a].data;
        rows.n_rows = ghost.n;
        status = move(rows, ghost, none, outer_of, stream);
        outer_at += static_cast<size_t>(n_outer) * rows.width * rows.element_bytes;
    }
    return status;
}

mlff_status RowExchange::reverse(const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    mlff_status status = MLFF_OK;
    const Table none = {0, 0};
    size_t inner_at = 0, outer_at = 0;
    const size_t row = bytes_of_row(arrays, n_arrays);
    if ((status = reserve(inner, n_inner * row)) != MLFF_OK || (status = reserve(outer, n_outer * row)) != MLFF_OK) return status;
    for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
        const size_t bytes = static_cast<size_t>(arrays[a].width) * arrays[a].element_bytes;
        mlff_rows rows = {};
        rows.width = arrays[a].width;
        rows.element_bytes = arrays[a].element_bytes;
        rows.from = arrays[a].data;
        rows.to = outer.data + outer_at;
        rows.n_rows = n_outer;
        status = move(rows, none, outer_first, ghost, stream);
        outer_at += n_outer * bytes;
        rows.to = arrays[a].data;
        rows.n_rows = imaged.n;
        rows.add = 1;
        if (status == MLFF_OK) status = move(rows, imaged, image_first, image, stream);
        if (status == MLFF_OK)
            status = mlff_device_zero(device, static_cast<char *>(arrays[a].data) + n_owned * bytes, n_ghosts * bytes, stream);
    }
    if (status == MLFF_OK) status = messages(false, arrays, n_arrays, stream);
    for (int a = 0; a < n_arrays && status == MLFF_OK; a++) {
        mlff_rows rows = {};
        rows.width = arrays[a].width;
        rows.element_bytes = arrays[a].element_bytes;
        rows.from = inner.data + inner_at;
        rows.to = arrays[a].data;
        rows.n_rows = shared.n;
        rows.add = 1;
        status = move(rows, shared, shared_first, shared_inner, stream);
        inner_at += static_cast<size_t>(n_inner) * rows.width * rows.element_bytes;
    }
    return status;
}
