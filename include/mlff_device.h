/* SPDX-License-Identifier: MIT */
/* mlff_device.h: processors: what there is, memory, streams and events. Conventions and the error contract: mlff_base.h.
 * On a GPU every function fails with MLFF_ERR_DEVICE where the driver or the plugin fails. */
#ifndef MLFF_DEVICE_H
#define MLFF_DEVICE_H

#include "mlff_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mlff_device_kind { MLFF_CPU = 0, MLFF_CUDA = 1 } mlff_device_kind;
typedef struct mlff_device {
    mlff_device_kind kind;
    int index;
} mlff_device;
/* Device of a text: "auto" (a GPU if one works, else the CPU with a warning), "cpu", "cuda", "cuda:1". Fails with
 * MLFF_ERR_USAGE for another text, MLFF_ERR_DEVICE where there is no such GPU. */
MLFF_API mlff_status mlff_device_parse(const char *text, mlff_device *device_out);
/* Devices of a text: as mlff_device_parse, or several, as "cuda:0,1" or "cpu:4" (four times the CPU: four domains of one thread each).
 * Fails as mlff_device_parse, and with MLFF_ERR_LIMIT for more than `capacity`; `devices` may then have been written to. */
MLFF_API mlff_status mlff_devices_parse(const char *text, mlff_device *devices, int capacity, int *n_out);
/* "cpu:4" or "cuda:0,1", cut to text_bytes; one device as mlff_device_text. */
MLFF_API void mlff_devices_text(const mlff_device *devices, int n_devices, char *text, size_t text_bytes);
/* "cpu" or "cuda:0" into text of at least 16 bytes. */
MLFF_API void mlff_device_text(mlff_device device, char *text, size_t text_bytes);

/* Working devices of a kind: 1 for the CPU; 0 for CUDA where no GPU works (mlff_device_problem says why). */
MLFF_API int mlff_device_count(mlff_device_kind kind);
/* Why there is no GPU, one line; "" if there is one. Borrowed until this thread's next failure. */
MLFF_API const char *mlff_device_problem(void);

typedef struct mlff_device_info {
    size_t struct_size;                     /* set by the caller; no more than this is written */
    char name[128];                         /* "NVIDIA H200"; the processor's name for the CPU */
    int capability_major, capability_minor; /* 9, 0; 0 for the CPU */
    int64_t memory_bytes;
    int n_multiprocessors;               /* CPU: cores this process may use */
    double clock_mhz, memory_clock_mhz;  /* highest; 0 where unknown */
    int64_t l2_bytes;                    /* 0 where unknown */
    int shared_memory_bytes;             /* a block can have */
    int driver_version, runtime_version; /* 13000 for CUDA 13.0; 0 for the CPU */
    int driver_version_required;         /* oldest driver this build runs on */
    char pci[32];                        /* "0000:3b:00.0", or "" */
} mlff_device_info;
/* What a device is. Fails with MLFF_ERR_USAGE, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_info_get(mlff_device device, mlff_device_info *info_out);

/* Bytes. `allocated` and its peak: held by this process through this library; `reserved`: taken from the driver for it.
 * CPU: allocated is this library's heap, reserved the resident set of the whole process, and peak the high-water mark of that
 * resident set, not of allocated. */
typedef struct mlff_device_memory {
    int64_t allocated, reserved, peak, free, total;
} mlff_device_memory;
/* Memory now. Fails with MLFF_ERR_USAGE, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_memory_get(mlff_device device, mlff_device_memory *memory_out);
/* The peak counts from what is allocated now. On the CPU it stays as it was where the kernel does not allow that. Fails with
 * MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_peak_reset(mlff_device device);
/* Memory that a piece of code takes. begin: the peak counts from here, and `before_out` is the state at the start. end: waits for
 * the device; `after_out` (or NULL) gets the state with the peak since begin, `grown_out` the bytes that are still held: allocated
 * on a GPU, of the resident set on the CPU. A leak is growth that repeats with each repetition and exceeds what allocators keep;
 * 10 MB is a usual tolerance. Scopes of one device that overlap share one peak. Fails with MLFF_ERR_USAGE, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_memory_scope_begin(mlff_device device, mlff_device_memory *before_out);
MLFF_API mlff_status mlff_memory_scope_end(mlff_device device, const mlff_device_memory *before, mlff_device_memory *after_out,
                                           int64_t *grown_out);
/* Gives memory that is reserved but not allocated back to the driver. Fails with MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_cache_empty(mlff_device device);
/* Waits for all work of the device. Fails with MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_synchronize(mlff_device device);
/* Creates the context, raises the clocks and launches once, so that the next timed call is representative. Fails with MLFF_ERR_MEMORY,
 * MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_warm_up(mlff_device device);

/* Streams and events; on the CPU a stream is NULL and an event is a clock reading. Fails with MLFF_ERR_USAGE,
 * MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_stream_create(mlff_device device, void **stream_out);
MLFF_API mlff_status mlff_stream_synchronize(mlff_device device, void *stream);
MLFF_API void mlff_stream_destroy(mlff_device device, void *stream);
MLFF_API mlff_status mlff_event_create(mlff_device device, void **event_out);
MLFF_API mlff_status mlff_event_record(mlff_device device, void *event, void *stream);
/* Waits for `end`; time from `start` to `end`, ns. Fails with MLFF_ERR_USAGE, also for an event that was not recorded, and
 * MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_event_elapsed(mlff_device device, void *start, void *end, double *time_ns_out);
MLFF_API void mlff_event_destroy(mlff_device device, void *event);

/* Memory of a device (host memory for the CPU), zeroed; released by mlff_device_release. Fails with MLFF_ERR_USAGE,
 * MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_allocate(mlff_device device, size_t bytes, void **memory_out);
MLFF_API void mlff_device_release(mlff_device device, void *memory);
/* Copies in any direction, and waits. Fails with MLFF_ERR_USAGE, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_device_copy(mlff_device device, void *to, const void *from, size_t bytes);

/* Fast paths of the CPU that this build has and this machine runs, best first, NULL-terminated:
 * "avx512", "amx", "avx2", "portable". Static. "amx" is "avx512" with products of matrices by AMX tiles, and is used for tf32 and bf16; in
 * float32 it is faster for large systems and slower for small ones. The environment variable MLFF_CPU forces one. */
MLFF_API const char *const *mlff_cpu_paths(void);

#ifdef __cplusplus
}
#endif
#endif
