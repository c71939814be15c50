// SPDX-License-Identifier: MIT
// identity.c: what a number belongs to. Two runs can be compared if they did the same work (workload) on the same machine
// (part of the environment); what did the work (implementation, version, compiler) is what one compares.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

enum { HASH_START_HIGH = 0xcbf29ce4, HASH_START_LOW = 0x84222325 };
static const uint64_t hash_start = (uint64_t)HASH_START_HIGH << 32 | HASH_START_LOW;

// Elements, cell and boundary, not positions: a thermal frame of another seed is the same work.
static uint64_t hash_system(const mlff_system *frame)
{
    uint64_t hash = hash_start;
    hash = hash_bytes(hash, frame->species, (size_t)frame->n_atoms * sizeof *frame->species);
    for (int i = 0; i < 9; i++) {
        int64_t rounded = llround(fmin(fmax(frame->cell[i], -1e9), 1e9) * 1e6);
        hash = hash_bytes(hash, &rounded, sizeof rounded);
    }
    return hash_bytes(hash, frame->periodic, sizeof frame->periodic);
}

static mlff_status add_device(environment *e, const char *text)
{
    mlff_status status = MLFF_OK;
    mlff_device device;
    mlff_device_info info = {.struct_size = sizeof info};
    char driver[32];
    if (strncmp(text, "cuda", 4) != 0) return MLFF_OK;
    if (mlff_device_parse(text, &device) != MLFF_OK || mlff_device_info_get(device, &info) != MLFF_OK) return MLFF_OK;
    snprintf(driver, sizeof driver, "%d", info.driver_version);
    MLFF_TRY(environment_add(e, "gpu", info.name));
    MLFF_TRY(environment_add(e, "gpu_driver", driver));
done:
    return status;
}

mlff_status identity_collect(mlff_profile *profile, const mlff_callable *callable, const mlff_system *frame, unsigned properties)
{
    mlff_status status = MLFF_OK;
    char text[96], formula[64];
    environment *w = &profile->workload;
    MLFF_TRY(callable_describe(callable, w, &profile->implementation));
    mlff_system_formula(frame, formula, sizeof formula);
    snprintf(text, sizeof text, "%s, %d atoms, %08llx", formula, frame->n_atoms,
             (unsigned long long)(hash_system(frame) & 0xffffffffu));
    MLFF_TRY(environment_add(w, "system", text));
    MLFF_TRY(environment_add(w, "trajectory", profile->trajectory));
    snprintf(text, sizeof text, "%s%s%s", properties & MLFF_ENERGY ? "energy " : "", properties & MLFF_FORCES ? "forces " : "",
             properties & MLFF_STRESS ? "stress" : "");
    MLFF_TRY(environment_add(w, "properties", text));
    MLFF_TRY(environment_add(&profile->implementation, "device", profile->device));
    MLFF_TRY(add_device(&profile->environment, profile->device));
done:
    return status;
}

static const char *const workload_keys[] = {"model", "system", "trajectory", "properties"};
static const char *const environment_keys[] = {"cpu", "cores_usable", "cores_online", "governor", "build", "gpu", "gpu_driver"};
enum { N_WORKLOAD_KEYS = sizeof workload_keys / sizeof *workload_keys };
enum { N_ENVIRONMENT_KEYS = sizeof environment_keys / sizeof *environment_keys };

static bool differs(const char *a, const char *b, const char *key, char *text, size_t text_bytes)
{
    a = a ? a : "not said";
    b = b ? b : "not said";
    if (strcmp(a, b) == 0) return false;
    size_t same = 0; // up to the last comma before the difference: long lists are cut at their beginning, not where they differ
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == ',') same = i;
    snprintf(text, text_bytes, "%s: %s%.150s against %s%.150s", key, same ? "…" : "", a + same, same ? "…" : "", b + same);
    return true;
}

bool identity_difference(const mlff_profile *a, const mlff_profile *b, char *text, size_t text_bytes)
{
    text[0] = 0;
    if (a->workload.n == 0 || b->workload.n == 0) { // files of other programs: what the contract has
        if (differs(a->model_name, b->model_name, "model", text, text_bytes)) return true;
        if (differs(a->system_size, b->system_size, "system", text, text_bytes)) return true;
    }
    for (int i = 0; i < N_WORKLOAD_KEYS && a->workload.n > 0 && b->workload.n > 0; i++)
        if (differs(environment_find(&a->workload, workload_keys[i]), environment_find(&b->workload, workload_keys[i]),
                    workload_keys[i], text, text_bytes))
            return true;
    for (int i = 0; i < N_ENVIRONMENT_KEYS && a->environment.n > 0 && b->environment.n > 0; i++)
        if (differs(environment_find(&a->environment, environment_keys[i]),
                    environment_find(&b->environment, environment_keys[i]), environment_keys[i], text, text_bytes))
            return true;
    return false;
}
