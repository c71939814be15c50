/* SPDX-License-Identifier: GPL-2.0-only
 * row_exchange.h: rows of ghost atoms from the ranks that own the atoms, and sums of ghosts' rows back to these. */
#ifndef ROW_EXCHANGE_H
#define ROW_EXCHANGE_H

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "mlff.h"
#include "mlff_exchange.h"

/* Rows of a rank: n_owned of its own atoms, then of ghosts. Periodic images of own atoms are copied in the memory where the rows are. Of
 * an atom of another rank one row is sent, whatever the number of its images here, through page-locked memory of the host; where MPI
 * reads device memory (MLFF_MPI_DEVICE_MEMORY=0|1, by default what Open MPI says of itself), from there. Sums have a fixed order. */
class RowExchange
{
  public:
    struct Owner {
        int rank, row;
    };

    RowExchange(mlff_device device, MPI_Comm world);
    ~RowExchange();
    RowExchange(const RowExchange &) = delete;
    RowExchange &operator=(const RowExchange &) = delete;

    /* Called by all ranks, when ghosts have changed: owners of the rows from n_owned on. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE,
     * MLFF_ERR_VALUE where a rank is asked for a row that it does not own. */
    mlff_status plan(int n_owned, const std::vector<Owner> &owner_of_ghost);
    /* Fills the rows of ghosts; or adds them to their owners' and zeroes them. On a GPU enqueued on `stream`, which is waited for only if
     * other ranks take part. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE, MLFF_ERR_USAGE. */
    mlff_status forward(const mlff_halo_array *arrays, int n_arrays, void *stream);
    mlff_status reverse(const mlff_halo_array *arrays, int n_arrays, void *stream);

    bool planned() const
    {
        return is_planned;
    }
    double bytes() const
    {
        return static_cast<double>(outer.bytes + inner.bytes + table_bytes);
    }

  private:
    struct Table { // of integers in the device's memory
        size_t begin;
        int n;
    };
    struct Buffer {
        char *data = nullptr;
        size_t bytes = 0;
    };
    struct Partner { // rows of `inner` that it reads, and of `outer` that it owns
        int rank, inner_begin, n_inner, outer_begin, n_outer;
    };

    mlff_status ask_owners(const std::vector<int> &n_wanted, const std::vector<int> &wanted, std::vector<int> &asked);
    mlff_status upload(const std::vector<std::vector<int32_t>> &lists, std::vector<Table *> tables);
    mlff_status reserve(Buffer &buffer, size_t bytes);
    void release(Buffer &buffer);
    mlff_status move(const mlff_rows &rows, Table to_row, Table first, Table from_row, void *stream);
    mlff_status messages(bool forward, const mlff_halo_array *arrays, int n_arrays, void *stream);
    const int32_t *table(Table table) const;

    mlff_device device;
    MPI_Comm world;
    int me, n_ranks;
    bool through_host, is_planned = false;
    int n_owned = 0, n_ghosts = 0, n_inner = 0, n_outer = 0;
    std::vector<Partner> partners;
    std::vector<MPI_Request> requests;
    int32_t *tables = nullptr;
    size_t table_bytes = 0;
    Buffer inner, outer; // copies of own rows for others; of others' rows
    // Own atoms with images here: the atom; where its images begin; the images. The atom of each image.
    Table imaged, image_first, image, image_of;
    // Ghosts of other ranks' atoms, and the row of `outer` of each; where the ghosts of each row of `outer` begin.
    Table ghost, outer_of, outer_first;
    // Own atom of each row of `inner`. The distinct ones of them, and the rows of `inner` of each.
    Table inner_of, shared, shared_first, shared_inner;
};

#endif
