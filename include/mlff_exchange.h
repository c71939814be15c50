/* SPDX-License-Identifier: MIT */
/* mlff_exchange.h: rows of arrays in a device's memory, for programs that exchange ghost atoms' features between processes (mlff_halo of
 * mlff.h). Conventions and the error contract: mlff_base.h. */
#ifndef MLFF_EXCHANGE_H
#define MLFF_EXCHANGE_H

#include "mlff_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros; on a GPU enqueued on `stream`. Fails with MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_zero(mlff_device device, void *memory, size_t bytes, void *stream);
/* Page-locked memory of the host that GPUs read and write; any memory for the CPU. Released by mlff_host_release. Fails as
 * mlff_device_allocate. */
MLFF_API mlff_status mlff_host_allocate(mlff_device device, size_t bytes, void **memory_out);
MLFF_API void mlff_host_release(mlff_device device, void *memory);

/* Memory of a GPU that several processes of a host use. */
typedef struct mlff_memory_handle {
    unsigned char bytes[64];
} mlff_memory_handle;
/* Handle of memory of mlff_device_allocate, by which another process opens it; it is released when all have closed it. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_UNSUPPORTED for the CPU, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_memory_share(mlff_device device, void *memory, mlff_memory_handle *handle_out);
/* Memory of another process; closed by mlff_memory_close. Fails as mlff_memory_share. */
MLFF_API mlff_status mlff_memory_open(mlff_device device, const mlff_memory_handle *handle, void **memory_out);
MLFF_API void mlff_memory_close(mlff_device device, void *memory);

/* Rows of arrays, copied or summed. Row k of n_rows is row to_row[k] of `to`, or k where to_row is NULL. It becomes row from_row[k] of
 * `from` (k where from_row is NULL); with `first` the sum of rows from_row[j], j = first[k] … first[k + 1] − 1, in this order. If `add`
 * is not 0, this is added to it. No row is both read and written. */
typedef struct mlff_rows {
    void *to;
    const void *from;
    int width, element_bytes; /* of a row; 4: float, 8: double */
    int n_rows, add;
    const int32_t *to_row, *first, *from_row; /* memory of the device */
} mlff_rows;
/* On a GPU enqueued on `stream`: of floats, `width` a multiple of 4, in memory of the device or of mlff_host_allocate. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_rows(mlff_device device, const mlff_rows *rows, void *stream);

#ifdef __cplusplus
}
#endif
#endif
