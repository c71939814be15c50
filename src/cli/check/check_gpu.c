// SPDX-License-Identifier: MIT
// check_gpu.c: driver, GPUs and CUDA libraries. Nothing of them is linked or included: a machine without any is the usual case.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "check_probe.h"
#include "cli/support/cli.h"

// The functions of the driver that are called, by their documented C signatures; 0 is success.
typedef struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*device_count)(int *n);
    int (*device_get)(int *device, int index);
    int (*device_name)(char *name, int name_bytes, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);
} driver;
enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76, MULTIPROCESSOR_COUNT = 16 };

static bool driver_open(void *library, driver *d)
{
    const struct {
        const char *name;
        void *slot;
    } symbols[] = {{"cuInit", &d->init},
                   {"cuDriverGetVersion", &d->version},
                   {"cuDeviceGetCount", &d->device_count},
                   {"cuDeviceGet", &d->device_get},
                   {"cuDeviceGetName", &d->device_name},
                   {"cuDeviceTotalMem_v2", &d->device_memory},
                   {"cuDeviceGetAttribute", &d->device_attribute}};
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) return false;
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    return true;
}

static void describe_gpu(check_table *table, const driver *d, int index)
{
    static const char *const names[] = {"GPU 0", "GPU 1", "GPU 2", "GPU 3", "GPU 4", "GPU 5", "GPU 6", "GPU 7"};
    int device = 0, major = 0, minor = 0, n_multiprocessors = 0;
    size_t bytes = 0;
    char name[128] = "unknown";
    if (d->device_get(&device, index) != 0) return;
    d->device_name(name, sizeof name, device);
    d->device_memory(&bytes, device);
    d->device_attribute(&major, COMPUTE_CAPABILITY_MAJOR, device);
    d->device_attribute(&minor, COMPUTE_CAPABILITY_MINOR, device);
    d->device_attribute(&n_multiprocessors, MULTIPROCESSOR_COUNT, device);
    check_add(table, "gpu", names[index], major >= 7 ? CHECK_PASS : CHECK_FAIL, false,
              "%s, compute capability %d.%d%s, %d SMs, %.1f GB", name, major, minor, major >= 7 ? "" : " (7.0 is the least)",
              n_multiprocessors, (double)bytes / 1073741824.0);
}

// The driver is left as it was found: cuInit makes no context. Returns the number of GPUs.
static int check_driver(check_table *table)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    driver d;
    int version = 0, n = 0;
    if (!library) {
        check_add(table, "gpu", "driver", CHECK_NOT_NEEDED, false, "libcuda.so.1 is not here; everything runs on the CPU");
        return 0;
    }
    if (!driver_open(library, &d)) {
        check_add(table, "gpu", "driver", CHECK_FAIL, false, "libcuda.so.1 lacks functions that every driver has");
        return 0;
    }
    d.version(&version);
    int failure = d.init(0);
    if (failure != 0 || d.device_count(&n) != 0) {
        check_add(table, "gpu", "driver", CHECK_NOT_NEEDED, false, "for CUDA %d.%d, but no GPU answers (cuInit says %d)",
                  version / 1000, version % 1000 / 10, failure);
        return 0;
    }
    check_add(table, "gpu", "driver", CHECK_PASS, false, "for CUDA up to %d.%d, %d GPU%s", version / 1000, version % 1000 / 10, n,
              base_plural(n));
    for (int i = 0; i < n && i < 8; i++) describe_gpu(table, &d, i);
    return n;
}

static void check_library(check_table *table, const char *name, const char *const *files)
{
    for (int i = 0; files[i]; i++) {
        void *library = dlopen(files[i], RTLD_LAZY | RTLD_LOCAL);
        if (!library) continue; // what opens stays open: some leave memory behind when closed
        check_add(table, "cuda", name, CHECK_PASS, false, "%s", files[i]);
        return;
    }
    check_add(table, "cuda", name, CHECK_NOT_NEEDED, false, "not found by the loader (%s)", files[0]);
}

void check_gpu(check_table *table)
{
    static const char *const runtime[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so", NULL};
    static const char *const cublas[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so", NULL};
    static const char *const cupti[] = {"libcupti.so.13",
                                        "libcupti.so.12",
                                        "libcupti.so.11.8",
                                        "libcupti.so",
                                        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                                        NULL};
    static const char *const nvml[] = {"libnvidia-ml.so.1", NULL};

    int n_gpus = check_driver(table);
    mlff_device device;
    mlff_device_info info = {.struct_size = sizeof info};
    if (mlff_device_parse("cuda", &device) == MLFF_OK && mlff_device_info_get(device, &info) == MLFF_OK)
        check_add(table, "gpu", "GPU engine", CHECK_PASS, false, "ready; built for CUDA %d.%d, needs a driver for %d.%d or newer",
                  info.runtime_version / 1000, info.runtime_version % 1000 / 10, info.driver_version_required / 1000,
                  info.driver_version_required % 1000 / 10);
    else
        check_add(table, "gpu", "GPU engine", n_gpus ? CHECK_FAIL : CHECK_NOT_NEEDED, false, "%s", mlff_last_error());
    check_library(table, "CUDA runtime", runtime);
    check_library(table, "cuBLAS", cublas);
    check_library(table, "CUPTI", cupti);
    check_library(table, "NVML", nvml);
}
