// SPDX-License-Identifier: MIT
// fake_nvml.c: a libnvidia-ml.so.1 without a GPU behind it: it answers what a test has planted. FAKE_NVML in the environment
// asks for misbehaviour: "sleeps" (does not start), "bare" (tells nothing but that there is a GPU), "blind" (finds none).
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, NO_DRIVER = 9, OTHER_PID = 7 };

typedef struct planted {
    unsigned long long millijoules, used, process_used, reasons;
    unsigned milliwatts, sm_mhz, memory_mhz, celsius;
} planted;
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;
typedef struct process_info {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_info;

static planted now;
static char asked_for[64];

EXPORT planted *fake_nvml_now(void);
EXPORT const char *fake_nvml_asked_for(void);
EXPORT int nvmlInit_v2(void);
EXPORT const char *nvmlErrorString(int result);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
EXPORT int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, process_info *processes);

static int asked(const char *misbehaviour)
{
    const char *text = getenv("FAKE_NVML");
    return text && strcmp(text, misbehaviour) == 0;
}

static int found(const char *by, void **device)
{
    size_t length = strlen(by) < sizeof asked_for - 1 ? strlen(by) : sizeof asked_for - 1;
    memcpy(asked_for, by, length);
    asked_for[length] = 0;
    if (asked("blind")) return NOT_FOUND;
    *device = &now;
    return 0;
}

planted *fake_nvml_now(void)
{
    return &now;
}

const char *fake_nvml_asked_for(void)
{
    return asked_for;
}

int nvmlInit_v2(void)
{
    return asked("sleeps") ? NO_DRIVER : 0;
}

const char *nvmlErrorString(int result)
{
    return result == NO_DRIVER ? "Driver Not Loaded" : "Not Found";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
{
    return found(pci, device);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    const char digit[2] = {(char)('0' + index % 10), 0};
    return found(digit, device);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    return found(uuid, device);
}

#define ANSWER(pointer, value)                                                                                                   \
    (void)device;                                                                                                                \
    if (asked("bare")) return NOT_SUPPORTED;                                                                                     \
    *(pointer) = (value);                                                                                                        \
    return 0

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    ANSWER(millijoules, now.millijoules);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    ANSWER(milliwatts, now.milliwatts);
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    ANSWER(mhz, type == 1 ? now.sm_mhz : now.memory_mhz);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    ANSWER(celsius, now.celsius);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    ANSWER(reasons, now.reasons);
}

int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory)
{
    (void)device;
    if (asked("bare")) return NOT_SUPPORTED;
    *memory = (memory_info){.total = 1ull << 37, .free = (1ull << 37) - now.used, .used = now.used};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, process_info *processes)
{
    (void)device;
    if (asked("bare") || *n < 2) return NOT_SUPPORTED;
    processes[0] = (process_info){.pid = OTHER_PID, .used = 1};
    processes[1] = (process_info){.pid = (unsigned)getpid(), .used = now.process_used};
    *n = 2;
    return 0;
}
