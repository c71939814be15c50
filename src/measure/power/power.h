/* SPDX-License-Identifier: MIT */
/* power.h: energy, power, clocks and temperature along a run: of an NVIDIA GPU by NVML ($MLFF_NVML, else
 * libnvidia-ml.so.1; opened at run time, no header is needed), of processor packages by the kernel's RAPL counters. */
#ifndef POWER_H
#define POWER_H

#include "base/base.h"

/* Bits of `reasons`, as NVML numbers them: why a GPU's clock is below what it could be. */
enum { POWER_CAP = 0x4, POWER_SLOWDOWN = 0x8, POWER_THERMAL_SOFT = 0x20, POWER_THERMAL = 0x40, POWER_BRAKE = 0x80 };

typedef struct power_sample {
    int64_t time_ns, step;
    double joules;                         /* of a counter that only grows, from somewhere on; NaN: not known */
    double watts;                          /* now; NaN */
    int sm_mhz, memory_mhz, temperature_c; /* -1: not known */
    uint32_t reasons;
    int64_t whole_bytes, process_bytes; /* of device memory: the whole GPU, this process; -1: not known */
} power_sample;

typedef struct power_meter {
    const char *source;                            /* "NVML", "RAPL" */
    void *device;                                  /* NVML's handle */
    double *last_joules, joules, range_joules[16]; /* RAPL: of each package, and where its counter begins again */
    char domains[16][64];
    int n_domains;
} power_meter;

/* device: "cpu", "cuda:0"; pci: the GPU's address where it is known ("0000:18:00.0"), or "". MLFF_ERR_DEVICE, and why, where
 * nothing can be read. */
mlff_status power_open(const char *device, const char *pci, power_meter *meter_out);
void power_read(power_meter *meter, power_sample *sample_out);
void power_close(power_meter *meter);

/* ---- samples along a run: at most POWER_SAMPLES, then every second one is dropped */

enum { POWER_SAMPLES = 512 };
typedef struct power_series {
    power_meter meter;
    bool open;
    int n;
    int64_t next_ns, interval_ns;
    power_sample *samples; /* [POWER_SAMPLES] */
    char problem[512];     /* why there is none */
} power_series;
/* Not being able to is no failure: it is kept in `problem`. */
mlff_status power_series_open(power_series *s, const char *device, const char *pci);
/* Reads if it is time: so seldom that reading takes no more than 0.2 % of it. */
void power_series_look(power_series *s, int64_t step, bool always);
void power_series_close(power_series *s);

/* nvml.c, rapl.c */
mlff_status nvml_open(const char *device, const char *pci, power_meter *meter_out);
void nvml_read(power_meter *meter, power_sample *sample_out);
mlff_status rapl_open(power_meter *meter_out);
void rapl_read(power_meter *meter, power_sample *sample_out);

#endif
