// SPDX-License-Identifier: MIT
// rapl.c: energy of processor packages by the kernel's powercap files. Most systems let only the administrator read them.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "power.h"

static const char *folder(void)
{
    const char *wanted = getenv("MLFF_POWERCAP"); // tests have one of their own
    return wanted && *wanted ? wanted : "/sys/class/powercap";
}

static bool read_line(const char *domain, const char *file, char text[64])
{
    char path[512];
    snprintf(path, sizeof path, "%.300s/%s/%s", folder(), domain, file);
    FILE *stream = fopen(path, "r");
    if (!stream) return false;
    const bool found = fgets(text, 64, stream) != NULL;
    if (found) text[strcspn(text, "\r\n")] = 0;
    fclose(stream);
    return found;
}

static double read_number(const char *domain, const char *file)
{
    char text[64];
    double value;
    return read_line(domain, file, text) && base_parse_double(text, &value) ? value : NAN;
}

// Beside the packages many laptops count the whole platform ("psys"), with the packages in it.
static bool is_package(const char *domain)
{
    char text[64];
    return !read_line(domain, "name", text) || strncmp(text, "package", 7) == 0;
}

mlff_status rapl_open(power_meter *meter)
{
    enum { DOMAINS_MAX = sizeof meter->domains / sizeof *meter->domains };
    meter->last_joules = base_alloc(DOMAINS_MAX, sizeof *meter->last_joules, "energy counters");
    if (!meter->last_joules) return MLFF_ERR_MEMORY;
    errno = 0;
    for (int k = 0; k < DOMAINS_MAX; k++) { // packages; what lies inside them is counted in them
        char name[64];
        snprintf(name, sizeof name, "intel-rapl:%d", k);
        double energy = read_number(name, "energy_uj"), range = read_number(name, "max_energy_range_uj");
        if (isnan(energy) || !is_package(name)) continue;
        snprintf(meter->domains[meter->n_domains], sizeof meter->domains[0], "%s", name);
        meter->last_joules[meter->n_domains] = energy * 1e-6;
        meter->range_joules[meter->n_domains++] = isnan(range) ? 0.0 : range * 1e-6;
    }
    if (meter->n_domains > 0) {
        meter->source = "RAPL";
        return MLFF_OK;
    }
    base_free(meter->last_joules);
    meter->last_joules = NULL;
    return mlff_fail(MLFF_ERR_DEVICE, "the processor's energy cannot be read here (%s/intel-rapl:0/energy_uj: %s)", folder(),
                     errno == EACCES ? "the administrator's only" : "there is none");
}

void rapl_read(power_meter *meter, power_sample *s)
{
    for (int k = 0; k < meter->n_domains; k++) {
        double now = read_number(meter->domains[k], "energy_uj") * 1e-6;
        if (isnan(now)) return;
        double grown = now - meter->last_joules[k];
        if (grown < 0.0) grown += meter->range_joules[k]; // it began again
        meter->joules += grown > 0.0 ? grown : 0.0;
        meter->last_joules[k] = now;
    }
    s->joules = meter->joules;
}
