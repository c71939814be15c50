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
 * an atom of another rank one row is exchanged, whatever the number of its images here. Sums have a fixed order. The route of rows
 * between ranks, of which the environment variable MLFF_EXCHANGE forces one:
 *   peer  a GPU reads the packed rows in another one's memory: all ranks are on one host, and the driver allows it
 *   mpi   MPI reads and writes device memory, as Open MPI says of itself
 *   host  through page-locked memory of the host */
class RowExchange
{
  public:
    struct Owner {
        int rank, row;
    };

    /* row_bytes: the most that one exchange has of an atom. */
    RowExchange(mlff_device device, MPI_Comm world, size_t row_bytes);
    ~RowExchange();
    RowExchange(const RowExchange &) = delete;
    RowExchange &operator=(const RowExchange &) = delete;

    /* Called by all ranks, once. Fails with MLFF_ERR_USAGE for an MLFF_EXCHANGE that is not known. */
    mlff_status choose_route();
    /* Called by all ranks, when ghosts have changed: owners of the rows from n_owned on. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE,
     * MLFF_ERR_USAGE for an MLFF_EXCHANGE that is not possible, MLFF_ERR_VALUE where a rank is asked for a row that it does
     * not own. */
    mlff_status plan(int n_owned, const std::vector<Owner> &owner_of_ghost);
    /* Fills the rows of ghosts; or adds them to their owners' and zeroes them. On a GPU enqueued on `stream`, which is waited for only if
     * other ranks take part. Fails with MLFF_ERR_DEVICE, MLFF_ERR_USAGE. */
    mlff_status forward(const mlff_halo_array *arrays, int n_arrays, void *stream);
    mlff_status reverse(const mlff_halo_array *arrays, int n_arrays, void *stream);

    bool planned() const
    {
        return is_planned;
    }
    const char *route_name() const;
    double bytes() const
    {
        return static_cast<double>(outer.bytes + inner.bytes + table_bytes);
    }

  private:
    enum Route { HOST, MPI, PEER };
    struct Table { // of integers in the device's memory
        size_t begin;
        int n;
    };
    struct Buffer {
        char *data = nullptr;
        size_t bytes = 0;
    };
    struct Places { // of a rank's buffers, as another rank uses them
        int inner_begin, outer_begin, n_inner, n_outer;
    };
    struct Partner { // rows of `inner` that it reads, and of `outer` that it owns, with the ghosts that have them
        int rank, inner_begin, n_inner, outer_begin, n_outer, ghost_begin, n_ghosts;
        Places theirs;                   // where this rank's rows are in its buffers
        char *their_inner, *their_outer; // PEER
    };

    mlff_status ask_owners(const std::vector<int> &n_wanted, const std::vector<int> &wanted, std::vector<int> &asked);
    mlff_status upload(const std::vector<std::vector<int32_t>> &lists, std::vector<Table *> tables);
    mlff_status reserve_buffers();
    mlff_status reserve(Buffer &buffer, size_t bytes);
    void release(Buffer &buffer);
    mlff_status open_peers();
    void close_peers();
    bool anywhere(bool here) const; // true in any rank; by all of them
    mlff_rows rows_of(const mlff_halo_array &array) const;
    char *place(char *buffer, int n_rows, const mlff_halo_array *arrays, int array) const;
    mlff_status exchange_buffers(bool forward, const mlff_halo_array *arrays, int n_arrays, void *stream);
    const int32_t *table(Table table) const;

    mlff_device device;
    MPI_Comm world;
    int me, n_ranks;
    size_t row_bytes;
    Route route = HOST;
    bool is_planned = false;
    int n_owned = 0, n_ghosts = 0, n_inner = 0, n_outer = 0;
    int half = 0; // PEER: buffers have two halves, used alternately, as another rank may still read the one before
    std::vector<Partner> partners;
    std::vector<char *> opened; // by PEER: inner and outer of each rank; null: none, or this one's
    std::vector<MPI_Request> requests;
    int32_t *tables = nullptr;
    size_t table_bytes = 0;
    Buffer inner, outer; // copies of own rows for others; of others' rows, or sums for them
    // Own atoms with images here: the atom; where its images begin; the images. The atom of each image.
    Table imaged, image_first, image, image_of;
    // Ghosts of other ranks' atoms, and the row of `outer` of each; where the ghosts of each row of `outer` begin.
    Table ghost, outer_of, outer_first;
    Table inner_of; // own atom of each row of `inner`
};

#endif
