// SPDX-License-Identifier: MIT
// device_cuda.c: GPUs through the CUDA runtime: the plugin's entry, its devices, their memory, streams and events.
#include "device_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 64, DRIVER_REQUIRED = CUDART_VERSION / 1000 * 1000 }; // any driver of the toolkit's major version

device_host host;

// ---- errors -------------------------------------------------------------------------------------------------------------

mlff_status cuda_failed(cudaError_t error, const char *what)
{
    cudaGetLastError(); // clears the error for the next call
    switch (error) {
    case cudaErrorMemoryAllocation:
        return host.fail(MLFF_ERR_MEMORY, "out of GPU memory: %s; use a smaller system or batch", what);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
        return host.fail(MLFF_ERR_DEVICE, "%s: this build has no code for this GPU; compute capability 7.5 or newer is needed",
                         what);
    case cudaErrorInsufficientDriver:
        return host.fail(MLFF_ERR_DEVICE, "the GPU driver is too old for CUDA %d.%d; update it", CUDART_VERSION / 1000,
                         CUDART_VERSION % 1000 / 10);
    case cudaErrorNoDevice: return host.fail(MLFF_ERR_DEVICE, "no GPU: the driver sees none");
    case cudaErrorInvalidDevice: return host.fail(MLFF_ERR_DEVICE, "%s: there is no GPU of that number", what);
    case cudaErrorDevicesUnavailable: return host.fail(MLFF_ERR_DEVICE, "%s: the GPU is taken by another process", what);
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
        return host.fail(MLFF_ERR_DEVICE, "%s: the GPU was lost (%s); restart the program", what, cudaGetErrorString(error));
    case cudaErrorLaunchTimeout:
        return host.fail(
            MLFF_ERR_DEVICE,
            "%s: the GPU did not finish in time: a kernel does not end; restart the program, or, for long steps, set "
            "MLFF_GPU_TIMEOUT to more seconds",
            what);
    default: return host.fail(MLFF_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
    }
}

mlff_status cuda_use(int index)
{
    if (cuda_stuck()) return cuda_failed(cudaErrorLaunchTimeout, "selecting the GPU");
    cudaError_t error = cudaSetDevice(index);
    return error == cudaSuccess ? MLFF_OK : cuda_failed(error, "selecting the GPU");
}

// ---- memory -------------------------------------------------------------------------------------------------------------

// A list of allocated blocks: few, large ones.
typedef struct held_block {
    void *memory;
    size_t bytes;
    int device;
    struct held_block *next;
} held_block;

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static held_block *blocks;
static int64_t live[MAX_DEVICES], peak[MAX_DEVICES];

mlff_status cuda_allocate(int index, size_t bytes, const char *what, void **memory_out)
{
    mlff_status status = MLFF_OK;
    void *memory = NULL;
    if (cuda_stuck()) return cuda_failed(cudaErrorLaunchTimeout, what);
    held_block *entry = malloc(sizeof *entry);
    if (!entry) return host.fail(MLFF_ERR_MEMORY, "out of memory: %s", what);
    PLUGIN_TRY(cuda_use(index));
    CUDA_TRY(cudaMalloc(&memory, bytes ? bytes : 1), what);
    CUDA_TRY(cudaMemset(memory, 0, bytes), what);
    CUDA_TRY(cuda_wait(0, 0), what); // streams that do not block would not wait for the zeros
    *entry = (held_block){memory, bytes, index, NULL};
    pthread_mutex_lock(&blocks_lock);
    entry->next = blocks;
    blocks = entry;
    live[index] += (int64_t)bytes;
    if (live[index] > peak[index]) peak[index] = live[index];
    pthread_mutex_unlock(&blocks_lock);
    *memory_out = memory;
    return MLFF_OK;
done:
    if (memory && !cuda_stuck()) cudaFree(memory);
    free(entry);
    return status;
}

void cuda_release(int index, void *memory)
{
    if (!memory) return;
    held_block *entry = NULL;
    pthread_mutex_lock(&blocks_lock);
    for (held_block **at = &blocks; *at; at = &(*at)->next)
        if ((*at)->memory == memory) {
            entry = *at;
            *at = entry->next;
            live[entry->device] -= (int64_t)entry->bytes;
            break;
        }
    pthread_mutex_unlock(&blocks_lock);
    if (!entry) return;
    free(entry);
    if (cuda_stuck()) return;
    if (cudaSetDevice(index) == cudaSuccess) cudaFree(memory);
    cudaGetLastError();
}

// cudaMemcpy may return while the bytes are on their way (from pageable memory, and inside the device), and streams that do
// not block do not wait for them.
cudaError_t cuda_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (cuda_stuck()) return cudaErrorLaunchTimeout;
    cudaError_t error = cudaMemcpy(to, from, bytes, kind);
    return error == cudaSuccess ? cuda_wait(0, 0) : error;
}

static mlff_status check_index(int index)
{
    int n = 0;
    if (cuda_stuck()) return cuda_failed(cudaErrorLaunchTimeout, "using the GPU");
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess) return cuda_failed(error, "looking for GPUs");
    if (n > MAX_DEVICES) n = MAX_DEVICES;
    if (index < 0 || index >= n) return host.fail(MLFF_ERR_DEVICE, "there is no device cuda:%d; this machine has %d", index, n);
    return cuda_use(index);
}

static mlff_status device_memory(int index, mlff_device_memory *memory_out)
{
    mlff_status status = MLFF_OK;
    size_t free_bytes = 0, total_bytes = 0;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), "querying GPU memory");
    pthread_mutex_lock(&blocks_lock);
    *memory_out = (mlff_device_memory){.allocated = live[index],
                                       .reserved = live[index], // blocks go back to the driver when they are released
                                       .peak = peak[index],
                                       .free = (int64_t)free_bytes,
                                       .total = (int64_t)total_bytes};
    pthread_mutex_unlock(&blocks_lock);
done:
    return status;
}

static mlff_status peak_reset(int index)
{
    mlff_status status = check_index(index);
    if (status != MLFF_OK) return status;
    pthread_mutex_lock(&blocks_lock);
    peak[index] = live[index];
    pthread_mutex_unlock(&blocks_lock);
    return MLFF_OK;
}

// Only the driver's own pool caches memory.
static mlff_status cache_empty(int index)
{
    mlff_status status = MLFF_OK;
    cudaMemPool_t pool;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, index), "emptying the GPU's cache");
    CUDA_TRY(cudaMemPoolTrimTo(pool, 0), "emptying the GPU's cache");
done:
    return status;
}

static mlff_status allocate(int index, size_t bytes, void **memory_out)
{
    mlff_status status = check_index(index);
    return status == MLFF_OK ? cuda_allocate(index, bytes, "an array", memory_out) : status;
}

static mlff_status copy(int index, void *to, const void *from, size_t bytes)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cuda_copy(to, from, bytes, cudaMemcpyDefault), "copying to or from the GPU");
done:
    return status;
}

// ---- information ----------------------------------------------------------------------------------------------------------

static mlff_status device_count(int *n_out)
{
    cudaError_t error = cudaGetDeviceCount(n_out);
    if (error != cudaSuccess) return cuda_failed(error, "looking for GPUs");
    if (*n_out > MAX_DEVICES) *n_out = MAX_DEVICES;
    return MLFF_OK;
}

static mlff_status device_info(int index, mlff_device_info *info_out)
{
    mlff_status status = MLFF_OK;
    struct cudaDeviceProp p;
    int clock = 0, memory_clock = 0, driver = 0, runtime = 0;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cudaGetDeviceProperties(&p, index), "querying the GPU");
    CUDA_TRY(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, index), "querying the GPU");
    CUDA_TRY(cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, index), "querying the GPU");
    CUDA_TRY(cudaDriverGetVersion(&driver), "querying the driver version");
    CUDA_TRY(cudaRuntimeGetVersion(&runtime), "querying the runtime version");
    mlff_device_info info = {.struct_size = sizeof info,
                             .capability_major = p.major,
                             .capability_minor = p.minor,
                             .memory_bytes = (int64_t)p.totalGlobalMem,
                             .n_multiprocessors = p.multiProcessorCount,
                             .clock_mhz = clock / 1e3,
                             .memory_clock_mhz = memory_clock / 1e3,
                             .l2_bytes = p.l2CacheSize,
                             .shared_memory_bytes = (int)p.sharedMemPerBlockOptin,
                             .driver_version = driver,
                             .runtime_version = runtime,
                             .driver_version_required = DRIVER_REQUIRED};
    snprintf(info.name, sizeof info.name, "%.100s", p.name);
    snprintf(info.pci, sizeof info.pci, "%04x:%02x:%02x.0", p.pciDomainID, p.pciBusID, p.pciDeviceID);
    *info_out = info;
done:
    return status;
}

// ---- streams and events ---------------------------------------------------------------------------------------------------

static mlff_status synchronize(int index)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cuda_wait_device(), "waiting for the GPU");
done:
    return status;
}

static mlff_status warm_up(int index)
{
    mlff_status status = MLFF_OK;
    void *memory = NULL;
    const size_t bytes = 64 << 20;
    PLUGIN_TRY(check_index(index));
    // Context, allocator and copy engines once; then enough work for the clocks to rise.
    PLUGIN_TRY(cuda_allocate(index, bytes, "warming up", &memory));
    for (int k = 0; k < 200; k++) CUDA_TRY(cudaMemsetAsync(memory, k, bytes, 0), "warming up");
    CUDA_TRY(cuda_wait(0, 0), "warming up");
done:
    cuda_release(index, memory);
    return status;
}

static mlff_status stream_create(int index, void **stream_out)
{
    mlff_status status = MLFF_OK;
    cudaStream_t stream;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
    *stream_out = stream;
done:
    return status;
}

static mlff_status stream_synchronize(int index, void *stream)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cuda_wait(stream, 0), "waiting for a stream");
done:
    return status;
}

static void stream_destroy(int index, void *stream)
{
    if (stream && !cuda_stuck() && cudaSetDevice(index) == cudaSuccess) cudaStreamDestroy(stream);
}

static mlff_status event_create(int index, void **event_out)
{
    mlff_status status = MLFF_OK;
    cudaEvent_t event;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cudaEventCreate(&event), "creating an event");
    *event_out = event;
done:
    return status;
}

static mlff_status event_record(int index, void *event, void *stream)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cudaEventRecord(event, stream), "recording an event");
done:
    return status;
}

static mlff_status event_elapsed(int index, void *start, void *end, double *time_ns_out)
{
    mlff_status status = MLFF_OK;
    float milliseconds = 0;
    PLUGIN_TRY(check_index(index));
    CUDA_TRY(cuda_wait_event(end), "waiting for an event");
    CUDA_TRY(cudaEventElapsedTime(&milliseconds, start, end), "reading events");
    *time_ns_out = 1e6 * milliseconds;
done:
    return status;
}

static void event_destroy(int index, void *event)
{
    if (event && !cuda_stuck() && cudaSetDevice(index) == cudaSuccess) cudaEventDestroy(event);
}

// ---- the entry --------------------------------------------------------------------------------------------------------------

static const device_plugin plugin = {
    .count = device_count,
    .info = device_info,
    .memory = device_memory,
    .peak_reset = peak_reset,
    .cache_empty = cache_empty,
    .synchronize = synchronize,
    .warm_up = warm_up,
    .stream_create = stream_create,
    .stream_synchronize = stream_synchronize,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_record = event_record,
    .event_elapsed = event_elapsed,
    .event_destroy = event_destroy,
    .allocate = allocate,
    .release = cuda_release,
    .copy = copy,
    .peers_connect = cuda_peers_connect,
    .stream_wait = cuda_stream_wait,
    .rows_exchange = cuda_rows_exchange,
    .zero = cuda_zero,
    .memory_share = cuda_memory_share,
    .memory_open = cuda_memory_open,
    .memory_close = cuda_memory_close,
    .move_domain = cuda_move_domain,
    .allocate_host = cuda_allocate_host,
    .release_host = cuda_release_host,
    .evaluator_create = gpu_evaluator_create,
    .trainer_create = gpu_trainer_create,
    .kernel_stage = gpu_evaluator_kernel_stage,
    .select_member = gpu_evaluator_select_member,
    .compute = gpu_evaluator_compute,
    .stages = gpu_evaluator_stages,
    .stage_clock_set = gpu_evaluator_stage_clock_set,
    .stage_times = gpu_evaluator_stage_times,
    .evaluator_info = gpu_evaluator_info,
    .destroy = gpu_evaluator_destroy,
    .dynamics_create = gpu_dynamics_create,
    .dynamics_run = gpu_dynamics_run,
    .dynamics_get = gpu_dynamics_get,
    .dynamics_destroy = gpu_dynamics_destroy,
};

MLFF_API mlff_status mlff_cuda_plugin(const char *build_id, const device_host *library, const device_plugin **plugin_out);

mlff_status mlff_cuda_plugin(const char *build_id, const device_host *library, const device_plugin **plugin_out)
{
    char own[128];
    int driver = 0, n = 0;
    host = *library;
    device_build_id(own, sizeof own);
    if (strcmp(build_id, own) != 0)
        return host.fail(MLFF_ERR_DEVICE,
                         "no GPU support: libmlff is build \"%s\", libmlff_cuda.so is \"%s\"; install both from one build",
                         build_id, own);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return host.fail(MLFF_ERR_DEVICE, "no GPU: there is no NVIDIA driver on this machine");
    if (driver < DRIVER_REQUIRED)
        return host.fail(MLFF_ERR_DEVICE,
                         "the GPU driver is for CUDA %d.%d, this build needs one for CUDA %d.0 or newer; update the driver",
                         driver / 1000, driver % 1000 / 10, DRIVER_REQUIRED / 1000);
    mlff_status status = device_count(&n);
    if (status != MLFF_OK) return status;
    if (n == 0) return host.fail(MLFF_ERR_DEVICE, "no GPU: the driver sees none");
    *plugin_out = &plugin;
    return MLFF_OK;
}
