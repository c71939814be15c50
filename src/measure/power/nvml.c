// SPDX-License-Identifier: MIT
// nvml.c: one GPU's counters by NVML.
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "power.h"

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0 }; // nvmlClockType_t, nvmlTemperatureSensors_t

typedef struct nvml_memory_info { // nvmlMemory_t
    unsigned long long total, free, used;
} nvml_memory_info;
typedef struct nvml_process { // nvmlProcessInfo_t, of the calls that end in _v2 and _v3
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvml_process;

static struct {
    int (*init)(void);
    const char *(*error)(int result);
    int (*by_pci)(const char *pci, void **device);
    int (*by_index)(unsigned index, void **device);
    int (*by_uuid)(const char *uuid, void **device);
    // These may be missing, or say "not supported".
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*power)(void *device, unsigned *milliwatts);
    int (*clock)(void *device, int type, unsigned *mhz);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*reasons)(void *device, unsigned long long *reasons);
    int (*memory)(void *device, nvml_memory_info *memory);
    int (*processes)(void *device, unsigned *n, nvml_process *processes);
} library;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char library_problem[400];

static void find(void *handle, void *function, const char *name, const char *older)
{
    void *symbol = dlsym(handle, name);
    if (!symbol && older) symbol = dlsym(handle, older);
    memcpy(function, &symbol, sizeof symbol); // POSIX: a function pointer fits
}

static void open_once(void)
{
    const char *wanted = getenv("MLFF_NVML");
    void *handle = dlopen(wanted && *wanted ? wanted : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        snprintf(library_problem, sizeof library_problem, "NVML cannot be opened (%.200s); it comes with the driver",
                 reason ? reason : "not found");
        return;
    }
    find(handle, &library.init, "nvmlInit_v2", NULL);
    find(handle, &library.error, "nvmlErrorString", NULL);
    find(handle, &library.by_pci, "nvmlDeviceGetHandleByPciBusId_v2", NULL);
    find(handle, &library.by_index, "nvmlDeviceGetHandleByIndex_v2", NULL);
    find(handle, &library.by_uuid, "nvmlDeviceGetHandleByUUID", NULL);
    find(handle, &library.energy, "nvmlDeviceGetTotalEnergyConsumption", NULL);
    find(handle, &library.power, "nvmlDeviceGetPowerUsage", NULL);
    find(handle, &library.clock, "nvmlDeviceGetClockInfo", NULL);
    find(handle, &library.temperature, "nvmlDeviceGetTemperature", NULL);
    find(handle, &library.reasons, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(handle, &library.memory, "nvmlDeviceGetMemoryInfo", NULL);
    find(handle, &library.processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
    if (!library.init || !library.error || !library.by_index) {
        snprintf(library_problem, sizeof library_problem, "the NVML that was found lacks what every driver since 2013 has");
        return;
    }
    int result = library.init();
    if (result != 0) snprintf(library_problem, sizeof library_problem, "NVML does not start: %.200s", library.error(result));
}

// CUDA counts the GPUs that CUDA_VISIBLE_DEVICES leaves, NVML counts all.
static int by_number(int index, void **device)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char entry[96];
    int64_t number;
    for (int k = 0; visible && k < index; k++) {
        visible = strchr(visible, ',');
        visible = visible ? visible + 1 : NULL;
    }
    if (visible && *visible) {
        snprintf(entry, sizeof entry, "%.*s", (int)strcspn(visible, ","), visible);
        if (base_parse_int64(entry, &number) && number >= 0 && number < 4096) return library.by_index((unsigned)number, device);
        if (library.by_uuid) return library.by_uuid(entry, device);
    }
    return library.by_index((unsigned)index, device);
}

mlff_status nvml_open(const char *device, const char *pci, power_meter *meter)
{
    pthread_once(&once, open_once);
    if (*library_problem) return mlff_fail(MLFF_ERR_DEVICE, "%s", library_problem);
    const char *colon = strchr(device, ':');
    int64_t index = 0;
    if (colon && (!base_parse_int64(colon + 1, &index) || index < 0 || index > 4095))
        return mlff_fail(MLFF_ERR_DEVICE, "'%s' is not a GPU that NVML could know", device);
    int result = *pci && library.by_pci ? library.by_pci(pci, &meter->device) : -1;
    if (result != 0) result = by_number((int)index, &meter->device);
    if (result != 0) return mlff_fail(MLFF_ERR_DEVICE, "NVML does not find %s: %.200s", device, library.error(result));
    meter->source = "NVML";
    return MLFF_OK;
}

static void read_memory(const power_meter *meter, power_sample *s)
{
    enum { PROCESSES_MAX = 64 };
    nvml_memory_info info = {0};
    nvml_process processes[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;
    if (library.memory && library.memory(meter->device, &info) == 0) s->whole_bytes = (int64_t)info.used;
    if (!library.processes || library.processes(meter->device, &n, processes) != 0) return;
    for (unsigned k = 0; k < n && k < PROCESSES_MAX; k++) // in a container the numbers may be those outside: then none is ours
        if (processes[k].pid == (unsigned)getpid() && processes[k].used < 1ull << 60)
            s->process_bytes = (int64_t)processes[k].used;
}

void nvml_read(power_meter *meter, power_sample *s)
{
    unsigned long long wide = 0;
    unsigned value = 0;
    if (library.energy && library.energy(meter->device, &wide) == 0) s->joules = (double)wide * 1e-3;
    if (library.power && library.power(meter->device, &value) == 0) s->watts = (double)value * 1e-3;
    if (library.clock && library.clock(meter->device, CLOCK_SM, &value) == 0) s->sm_mhz = (int)value;
    if (library.clock && library.clock(meter->device, CLOCK_MEMORY, &value) == 0) s->memory_mhz = (int)value;
    if (library.temperature && library.temperature(meter->device, TEMPERATURE_GPU, &value) == 0) s->temperature_c = (int)value;
    if (library.reasons && library.reasons(meter->device, &wide) == 0) s->reasons = (uint32_t)wide;
    read_memory(meter, s);
}
