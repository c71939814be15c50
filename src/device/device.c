// SPDX-License-Identifier: MIT
// device.c: devices by name and their properties; GPUs through the plugin, the CPU from the system.
#include "device/device.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "mlff_exchange.h"

// ---- names --------------------------------------------------------------------------------------------------------------

static mlff_status count_gpus(int *n_out)
{
    const device_plugin *gpu;
    const mlff_status status = device_plugin_get(&gpu);
    return status == MLFF_OK ? gpu->count(n_out) : status;
}

static mlff_status parse_cuda(const char *text, int index, mlff_device *device_out)
{
    int n = 0;
    const mlff_status status = count_gpus(&n);
    if (status != MLFF_OK) // some reasons have a remedy of their own
        return mlff_fail(status, "%s%s use device cpu", mlff_last_error(), strchr(mlff_last_error(), ';') ? ", or" : ";");
    if (index >= n)
        return mlff_fail(MLFF_ERR_DEVICE, "device %s: this machine has %d GPU%s, numbered from 0", text, n, base_plural(n));
    *device_out = (mlff_device){MLFF_CUDA, index};
    return MLFF_OK;
}

mlff_status mlff_device_parse(const char *text, mlff_device *device_out)
{
    int64_t index = 0;
    int n_gpus = 0;
    if (!text || !device_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_parse: text and device_out must be given");
    if (strcmp(text, "cpu") == 0) {
        *device_out = (mlff_device){.kind = MLFF_CPU};
        return MLFF_OK;
    }
    if (strcmp(text, "auto") == 0) {
        const bool has_gpu = count_gpus(&n_gpus) == MLFF_OK;
        if (!has_gpu) base_warn("device auto: %s; using the CPU", mlff_last_error());
        *device_out = (mlff_device){.kind = has_gpu ? MLFF_CUDA : MLFF_CPU};
        return MLFF_OK;
    }
    if (strcmp(text, "cuda") == 0 ||
        (strncmp(text, "cuda:", 5) == 0 && base_parse_int64(text + 5, &index) && index >= 0 && index < 1024))
        return parse_cuda(text, (int)index, device_out);
    return mlff_fail(MLFF_ERR_USAGE, "device \"%.40s\" is not known; use auto, cpu, cuda or cuda:INDEX", text);
}

void mlff_device_text(mlff_device device, char *text, size_t text_bytes)
{
    if (device.kind == MLFF_CPU)
        snprintf(text, text_bytes, "cpu");
    else
        snprintf(text, text_bytes, "cuda:%d", device.index);
}

// "cuda:0,1"
static mlff_status parse_several(const char *text, mlff_device *devices, int capacity, int *n_out)
{
    char number[16];
    int n = 0;
    for (const char *at = text + 5;; at++) {
        const size_t length = strcspn(at, ",");
        int64_t index = -1;
        snprintf(number, sizeof number, "%.*s", (int)(length < sizeof number ? length : 0), at);
        if (!base_parse_int64(number, &index) || index < 0 || index >= 1024)
            return mlff_fail(MLFF_ERR_USAGE, "devices \"%.40s\": expected numbers of GPUs, as cuda:0,1", text);
        if (n == capacity) return mlff_fail(MLFF_ERR_LIMIT, "devices \"%.40s\": at most %d are possible here", text, capacity);
        mlff_status status = parse_cuda(text, (int)index, &devices[n++]);
        if (status != MLFF_OK) return status;
        at += length;
        if (!*at) break;
    }
    *n_out = n;
    return MLFF_OK;
}

mlff_status mlff_devices_parse(const char *text, mlff_device *devices, int capacity, int *n_out)
{
    int64_t n = 0;
    if (!text || !devices || !n_out || capacity < 1)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_devices_parse: text, devices and n_out must be given, with room for one device");
    if (strncmp(text, "cuda:", 5) == 0 && strchr(text, ',')) return parse_several(text, devices, capacity, n_out);
    if (strncmp(text, "cpu:", 4) == 0) {
        if (!base_parse_int64(text + 4, &n) || n < 1)
            return mlff_fail(MLFF_ERR_USAGE, "devices \"%.40s\": expected a number of domains, as cpu:4", text);
        if (n > capacity) return mlff_fail(MLFF_ERR_LIMIT, "devices \"%.40s\": at most %d are possible here", text, capacity);
        for (int k = 0; k < n; k++) devices[k] = (mlff_device){.kind = MLFF_CPU};
        *n_out = (int)n;
        return MLFF_OK;
    }
    const mlff_status status = mlff_device_parse(text, devices);
    if (status == MLFF_OK) *n_out = 1;
    return status;
}

void mlff_devices_text(const mlff_device *devices, int n_devices, char *text, size_t text_bytes)
{
    if (n_devices == 1) {
        mlff_device_text(devices[0], text, text_bytes);
    } else if (devices[0].kind == MLFF_CPU) {
        snprintf(text, text_bytes, "cpu:%d", n_devices);
    } else {
        size_t length = (size_t)snprintf(text, text_bytes, "cuda:%d", devices[0].index);
        for (int k = 1; k < n_devices && length < text_bytes; k++)
            length += (size_t)snprintf(text + length, text_bytes - length, ",%d", devices[k].index);
    }
}

int mlff_device_count(mlff_device_kind kind)
{
    int n = 0;
    if (kind == MLFF_CPU) return 1;
    return count_gpus(&n) == MLFF_OK ? n : 0;
}

const char *mlff_device_problem(void)
{
    return mlff_device_count(MLFF_CUDA) > 0 ? "" : mlff_last_error();
}

// ---- the CPU ------------------------------------------------------------------------------------------------------------

// Value of the first line of a /proc file that begins with `key`, after its colon.
static bool proc_value(const char *path, const char *key, char *value, size_t value_bytes)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, value_bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    if (file) fclose(file);
    return found;
}

static int64_t proc_kilobytes(const char *path, const char *key)
{
    char value[64];
    return proc_value(path, key, value, sizeof value) ? 1024 * (int64_t)strtoll(value, NULL, 10) : 0;
}

static void cpu_info(mlff_device_info *info)
{
    char value[64];
    cpu_set_t allowed;
    if (!proc_value("/proc/cpuinfo", "model name", info->name, sizeof info->name)) snprintf(info->name, sizeof info->name, "CPU");
    if (proc_value("/proc/cpuinfo", "cpu MHz", value, sizeof value)) info->clock_mhz = strtod(value, NULL);
    info->memory_bytes = proc_kilobytes("/proc/meminfo", "MemTotal");
    info->n_multiprocessors =
        sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    info->l2_bytes = l2 > 0 ? l2 : 0;
}

static void cpu_memory(mlff_device_memory *memory)
{
    *memory = (mlff_device_memory){.allocated = base_allocated_bytes(),
                                   .reserved = proc_kilobytes("/proc/self/status", "VmRSS"),
                                   .peak = proc_kilobytes("/proc/self/status", "VmHWM"),
                                   .free = proc_kilobytes("/proc/meminfo", "MemAvailable"),
                                   .total = proc_kilobytes("/proc/meminfo", "MemTotal")};
}

// ---- one or the other ---------------------------------------------------------------------------------------------------

#define GPU_CALL(call)                                                                                                           \
    do {                                                                                                                         \
        const device_plugin *gpu;                                                                                                \
        mlff_status gpu_status_ = device_plugin_get(&gpu);                                                                       \
        return gpu_status_ == MLFF_OK ? gpu->call : gpu_status_;                                                                 \
    } while (0)

static mlff_status gpu_info(int index, mlff_device_info *info)
{
    GPU_CALL(info(index, info));
}

mlff_status mlff_device_info_get(mlff_device device, mlff_device_info *info_out)
{
    if (!info_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_info_get: info_out must be given");
    size_t size = info_out->struct_size;
    if (size < sizeof size || size > sizeof *info_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_device_info_get: struct_size is %zu; set it to sizeof(mlff_device_info)", size);
    mlff_device_info info = {0};
    if (device.kind == MLFF_CPU) {
        cpu_info(&info);
    } else {
        mlff_status status = gpu_info(device.index, &info);
        if (status != MLFF_OK) return status;
    }
    info.struct_size = size;
    memcpy(info_out, &info, size); // a caller built with an earlier header has less room
    return MLFF_OK;
}

mlff_status mlff_device_memory_get(mlff_device device, mlff_device_memory *memory_out)
{
    if (!memory_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_memory_get: memory_out must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(memory(device.index, memory_out));
    cpu_memory(memory_out);
    return MLFF_OK;
}

mlff_status mlff_device_peak_reset(mlff_device device)
{
    if (device.kind != MLFF_CPU) GPU_CALL(peak_reset(device.index));
    // The kernel resets its high-water mark of the resident set; where it does not let us, the peak stays.
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file) {
        fputs("5", file);
        fclose(file);
    }
    return MLFF_OK;
}

mlff_status mlff_memory_scope_begin(mlff_device device, mlff_device_memory *before_out)
{
    if (!before_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_memory_scope_begin: before_out must be given");
    mlff_status status = mlff_device_peak_reset(device);
    return status == MLFF_OK ? mlff_device_memory_get(device, before_out) : status;
}

mlff_status mlff_memory_scope_end(mlff_device device, const mlff_device_memory *before, mlff_device_memory *after_out,
                                  int64_t *grown_out)
{
    mlff_device_memory after;
    if (!before || !grown_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_memory_scope_end: before and grown_out must be given");
    mlff_status status = mlff_device_synchronize(device);
    if (status == MLFF_OK) status = mlff_device_memory_get(device, &after);
    if (status != MLFF_OK) return status;
    if (after_out) *after_out = after;
    *grown_out = device.kind == MLFF_CPU ? after.reserved - before->reserved : after.allocated - before->allocated;
    return MLFF_OK;
}

mlff_status mlff_device_cache_empty(mlff_device device)
{
    if (device.kind != MLFF_CPU) GPU_CALL(cache_empty(device.index));
    return MLFF_OK; // the library has no memory pool
}

mlff_status mlff_device_synchronize(mlff_device device)
{
    if (device.kind != MLFF_CPU) GPU_CALL(synchronize(device.index));
    return MLFF_OK;
}

mlff_status mlff_device_warm_up(mlff_device device)
{
    if (device.kind != MLFF_CPU) GPU_CALL(warm_up(device.index));
    // Some 20 ms of arithmetic: governors have raised the clock by then.
    volatile double sum = 0;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int k = 1; k < 10000; k++) sum = sum + 1.0 / k;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) < 0.02);
    return MLFF_OK;
}

mlff_status mlff_stream_create(mlff_device device, void **stream_out)
{
    if (!stream_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_stream_create: stream_out must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(stream_create(device.index, stream_out));
    *stream_out = NULL;
    return MLFF_OK;
}

mlff_status mlff_stream_synchronize(mlff_device device, void *stream)
{
    if (device.kind != MLFF_CPU) GPU_CALL(stream_synchronize(device.index, stream));
    return MLFF_OK;
}

void mlff_stream_destroy(mlff_device device, void *stream)
{
    const device_plugin *gpu;
    if (device.kind != MLFF_CPU && stream && device_plugin_get(&gpu) == MLFF_OK) gpu->stream_destroy(device.index, stream);
}

mlff_status mlff_event_create(mlff_device device, void **event_out)
{
    if (!event_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_event_create: event_out must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(event_create(device.index, event_out));
    struct timespec *event = base_alloc(1, sizeof *event, "an event");
    if (!event) return MLFF_ERR_MEMORY;
    *event_out = event;
    return MLFF_OK;
}

mlff_status mlff_event_record(mlff_device device, void *event, void *stream)
{
    if (!event) return mlff_fail(MLFF_ERR_USAGE, "mlff_event_record: no event");
    if (device.kind != MLFF_CPU) GPU_CALL(event_record(device.index, event, stream));
    clock_gettime(CLOCK_MONOTONIC, event);
    return MLFF_OK;
}

mlff_status mlff_event_elapsed(mlff_device device, void *start, void *end, double *time_ns_out)
{
    if (!start || !end || !time_ns_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_event_elapsed: start, end and time_ns_out must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(event_elapsed(device.index, start, end, time_ns_out));
    const struct timespec *a = start, *b = end;
    if (!(a->tv_sec || a->tv_nsec) || !(b->tv_sec || b->tv_nsec))
        return mlff_fail(MLFF_ERR_USAGE, "mlff_event_elapsed: an event that was not recorded");
    *time_ns_out = 1e9 * (double)(b->tv_sec - a->tv_sec) + (double)(b->tv_nsec - a->tv_nsec);
    return MLFF_OK;
}

void mlff_event_destroy(mlff_device device, void *event)
{
    const device_plugin *gpu;
    if (!event) return;
    if (device.kind == MLFF_CPU)
        base_free(event);
    else if (device_plugin_get(&gpu) == MLFF_OK)
        gpu->event_destroy(device.index, event);
}

mlff_status mlff_device_allocate(mlff_device device, size_t bytes, void **memory_out)
{
    if (!memory_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_allocate: memory_out must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(allocate(device.index, bytes, memory_out));
    void *memory = base_alloc(bytes, 1, "an array");
    if (!memory) return MLFF_ERR_MEMORY;
    *memory_out = memory;
    return MLFF_OK;
}

void mlff_device_release(mlff_device device, void *memory)
{
    const device_plugin *gpu;
    if (!memory) return;
    if (device.kind == MLFF_CPU)
        base_free(memory);
    else if (device_plugin_get(&gpu) == MLFF_OK)
        gpu->release(device.index, memory);
}

mlff_status mlff_device_copy(mlff_device device, void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && (!to || !from)) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_copy: to and from must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(copy(device.index, to, from, bytes));
    if (bytes > 0) memmove(to, from, bytes);
    return MLFF_OK;
}

mlff_status mlff_device_zero(mlff_device device, void *memory, size_t bytes, void *stream)
{
    if (bytes > 0 && !memory) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_zero: memory must be given");
    if (bytes == 0) return MLFF_OK;
    if (device.kind != MLFF_CPU) GPU_CALL(zero(device.index, memory, bytes, stream));
    memset(memory, 0, bytes);
    return MLFF_OK;
}

mlff_status mlff_host_allocate(mlff_device device, size_t bytes, void **memory_out)
{
    if (!memory_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_host_allocate: memory_out must be given");
    if (device.kind != MLFF_CPU) GPU_CALL(allocate_host(device.index, bytes, memory_out));
    return mlff_device_allocate(device, bytes, memory_out);
}

void mlff_host_release(mlff_device device, void *memory)
{
    const device_plugin *gpu;
    if (device.kind == MLFF_CPU)
        base_free(memory);
    else if (memory && device_plugin_get(&gpu) == MLFF_OK)
        gpu->release_host(memory);
}

mlff_status mlff_memory_share(mlff_device device, void *memory, mlff_memory_handle *handle_out)
{
    if (!memory || !handle_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_memory_share: memory and handle_out must be given");
    if (device.kind == MLFF_CPU) return mlff_fail(MLFF_ERR_UNSUPPORTED, "mlff_memory_share: memory of a GPU is expected");
    GPU_CALL(memory_share(device.index, memory, handle_out));
}

mlff_status mlff_memory_open(mlff_device device, const mlff_memory_handle *handle, void **memory_out)
{
    if (!handle || !memory_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_memory_open: handle and memory_out must be given");
    if (device.kind == MLFF_CPU) return mlff_fail(MLFF_ERR_UNSUPPORTED, "mlff_memory_open: memory of a GPU is expected");
    GPU_CALL(memory_open(device.index, handle, memory_out));
}

void mlff_memory_close(mlff_device device, void *memory)
{
    const device_plugin *gpu;
    if (memory && device.kind != MLFF_CPU && device_plugin_get(&gpu) == MLFF_OK) gpu->memory_close(device.index, memory);
}

#define SUM_ROWS(type)                                                                                                           \
    for (int64_t j = begin; j < end; j++) {                                                                                      \
        const type *addend = (const type *)rows->from + (rows->from_row ? rows->from_row[j] : j) * rows->width;                  \
        for (int c = 0; c < rows->width; c++) ((type *)to)[c] += addend[c];                                                      \
    }

static void rows_on_cpu(const mlff_rows *rows)
{
    const size_t bytes = (size_t)rows->width * (size_t)rows->element_bytes;
    for (int k = 0; k < rows->n_rows; k++) {
        void *const to = (char *)rows->to + (size_t)(rows->to_row ? rows->to_row[k] : k) * bytes;
        if (!rows->first && !rows->add) {
            memcpy(to, (const char *)rows->from + (size_t)(rows->from_row ? rows->from_row[k] : k) * bytes, bytes);
            continue;
        }
        const int64_t begin = rows->first ? rows->first[k] : k, end = rows->first ? rows->first[k + 1] : k + 1;
        if (!rows->add) memset(to, 0, bytes);
        if (rows->element_bytes == 4)
            SUM_ROWS(float)
        else
            SUM_ROWS(double)
    }
}

mlff_status mlff_device_rows(mlff_device device, const mlff_rows *rows, void *stream)
{
    if (!rows || rows->width < 0 || rows->n_rows < 0 || (rows->n_rows > 0 && (!rows->to || !rows->from)))
        return mlff_fail(MLFF_ERR_USAGE, "mlff_device_rows: to, from and their sizes must be given");
    if (rows->element_bytes != 4 && (rows->element_bytes != 8 || device.kind != MLFF_CPU))
        return mlff_fail(MLFF_ERR_USAGE, "mlff_device_rows: elements of %d bytes; expected 4, or 8 on the CPU",
                         rows->element_bytes);
    if (rows->n_rows == 0 || rows->width == 0) return MLFF_OK;
    if (device.kind == MLFF_CPU) {
        rows_on_cpu(rows);
        return MLFF_OK;
    }
    if (rows->width % 4 != 0)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_device_rows: rows of %d floats; a GPU needs a multiple of 4", rows->width);
    const device_rows on_gpu = {.to = rows->to,
                                .from = {rows->from},
                                .width = rows->width,
                                .n_rows = rows->n_rows,
                                .add = rows->add,
                                .to_row = rows->to_row,
                                .first = rows->first,
                                .row = rows->from_row};
    GPU_CALL(rows_exchange(device.index, &on_gpu, stream));
}
