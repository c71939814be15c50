// SPDX-License-Identifier: MIT
// cmd_devices.c: mlff devices: the processors models run on, what they are, and their memory now.
#include "cli/support/cli.h"

static const cli_option options[] = {{"json", 0, NULL, "for machines; bytes, MHz"}, {0}};

typedef struct device_row {
    char text[16];
    mlff_device device;
    mlff_device_info info;
    mlff_device_memory memory;
} device_row;

static mlff_status look(mlff_device device, device_row *row)
{
    *row = (device_row){.device = device, .info.struct_size = sizeof row->info};
    mlff_device_text(device, row->text, sizeof row->text);
    mlff_status status = mlff_device_info_get(device, &row->info);
    return status == MLFF_OK ? mlff_device_memory_get(device, &row->memory) : status;
}

static double gb(int64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

static void print_clock(const char *name, double mhz)
{
    if (mhz > 0) printf("  %-16s %.0f MHz\n", name, mhz);
}

static void print_row(const device_row *row)
{
    const mlff_device_info *i = &row->info;
    const mlff_device_memory *m = &row->memory;
    bool gpu = row->device.kind == MLFF_CUDA;
    printf("%s  %s\n", row->text, i->name);
    if (gpu) printf("  %-16s %d.%d\n", "capability", i->capability_major, i->capability_minor);
    printf("  %-16s %d\n", gpu ? "multiprocessors" : "cores", i->n_multiprocessors);
    print_clock("clock", i->clock_mhz);
    print_clock("memory clock", i->memory_clock_mhz);
    if (i->l2_bytes > 0) printf("  %-16s %.1f MB\n", "L2 cache", (double)i->l2_bytes / 1048576.0);
    if (gpu) {
        printf("  %-16s %.0f KB a block\n", "shared memory", i->shared_memory_bytes / 1024.0);
        printf("  %-16s for CUDA %d.%d; this build is for %d.%d and needs %d.%d or newer\n", "driver", i->driver_version / 1000,
               i->driver_version % 1000 / 10, i->runtime_version / 1000, i->runtime_version % 1000 / 10,
               i->driver_version_required / 1000, i->driver_version_required % 1000 / 10);
        printf("  %-16s %s\n", "PCI", i->pci);
    }
    printf("  %-16s %.2f GB, %.2f GB free\n", "memory", gb(m->total), gb(m->free));
    printf("  %-16s %.3f GB by the library, %.3f GB reserved, %.3f GB at most\n", "of this process", gb(m->allocated),
           gb(m->reserved), gb(m->peak));
}

static void json_row(cli_json *json, const device_row *row)
{
    const mlff_device_info *i = &row->info;
    const mlff_device_memory *m = &row->memory;
    cli_json_object(json, NULL);
    cli_json_text(json, "device", row->text);
    cli_json_text(json, "kind", row->device.kind == MLFF_CUDA ? "cuda" : "cpu");
    cli_json_int(json, "index", row->device.index);
    cli_json_text(json, "name", i->name);
    cli_json_int(json, "capability_major", i->capability_major);
    cli_json_int(json, "capability_minor", i->capability_minor);
    cli_json_int(json, "n_multiprocessors", i->n_multiprocessors);
    cli_json_number(json, "clock_mhz", i->clock_mhz);
    cli_json_number(json, "memory_clock_mhz", i->memory_clock_mhz);
    cli_json_int(json, "l2_bytes", i->l2_bytes);
    cli_json_int(json, "shared_memory_bytes", i->shared_memory_bytes);
    cli_json_int(json, "driver_version", i->driver_version);
    cli_json_int(json, "runtime_version", i->runtime_version);
    cli_json_int(json, "driver_version_required", i->driver_version_required);
    cli_json_text(json, "pci", i->pci);
    cli_json_object(json, "memory");
    cli_json_int(json, "total_bytes", m->total);
    cli_json_int(json, "free_bytes", m->free);
    cli_json_int(json, "allocated_bytes", m->allocated);
    cli_json_int(json, "reserved_bytes", m->reserved);
    cli_json_int(json, "peak_bytes", m->peak);
    cli_json_end(json, '}');
    cli_json_end(json, '}');
}

// Rows [first, end) of: the CPU, then the GPUs.
static mlff_status show(int first, int end, bool as_json)
{
    cli_json json = {.file = stdout};
    if (as_json) {
        cli_json_object(&json, NULL);
        cli_json_int(&json, "schema_version", 1);
        cli_json_array(&json, "devices");
    }
    mlff_status status = MLFF_OK;
    for (int k = first; k < end && status == MLFF_OK; k++) {
        device_row row;
        status = look(k ? (mlff_device){MLFF_CUDA, k - 1} : (mlff_device){.kind = MLFF_CPU}, &row);
        if (status != MLFF_OK) break;
        if (as_json) {
            json_row(&json, &row);
        } else {
            if (k > first) fputc('\n', stdout);
            print_row(&row);
        }
    }
    if (as_json) {
        cli_json_end(&json, ']');
        if (status == MLFF_OK) cli_json_text(&json, "gpu_problem", mlff_device_problem());
        cli_json_end(&json, '}');
    } else if (status == MLFF_OK && first == 0 && end == 1 && mlff_device_count(MLFF_CUDA) == 0) {
        printf("\n%s\n", mlff_device_problem());
    }
    return status;
}

static int run(cli_arguments *arguments)
{
    bool as_json = cli_given(arguments, "json");
    if (arguments->n_positional == 0) return cli_exit(show(0, 1 + mlff_device_count(MLFF_CUDA), as_json));
    mlff_device device;
    mlff_status status = mlff_device_parse(arguments->positional[0], &device);
    if (status != MLFF_OK) return cli_exit(status);
    int row = device.kind == MLFF_CPU ? 0 : 1 + device.index;
    return cli_exit(show(row, row + 1, as_json));
}

const cli_command devices_command = {
    .name = "devices",
    .summary = "processors and GPUs: what they are, their memory now",
    .usage = "[DEVICE] [--json]",
    .details =
        "Lists all devices that models run on, or DEVICE (cpu, cuda, cuda:1, auto). If there is no GPU, a line gives the "
        "reason.\n"
        "GB are 2^30 bytes. A GPU's free memory is what all processes leave. The last line is the memory of this process, which\n"
        "on a GPU is only what the driver needs.\n"
        "JSON: {\"devices\": [{\"device\", \"name\", \"capability_major\", ..., \"memory\": {\"total_bytes\", \"free_bytes\",\n"
        "\"allocated_bytes\", \"reserved_bytes\", \"peak_bytes\"}}, ...], \"gpu_problem\": \"\" or why there is no GPU}.",
    .examples = "mlff devices\n"
                "mlff devices cuda:0 --json",
    .options = options,
    .max_positional = 1,
    .run = run,
};
