// SPDX-License-Identifier: MIT
// samples.c: structures to be labelled: collected, read, written, and doubled into Hessian probes.
#include "samples.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "train/teachers/teacher.h"

enum { STREAM_PROBE = 0x70726f62, OWN_SEED = 0x6f776e };

mlff_status mlff_samples_create(mlff_samples **samples_out)
{
    mlff_samples *samples = base_alloc(1, sizeof *samples, "samples");
    if (!samples) return MLFF_ERR_MEMORY;
    *samples_out = samples;
    return MLFF_OK;
}

void samples_truncate(mlff_samples *samples, size_t n)
{
    while (samples->n > n) mlff_system_destroy(samples->samples[--samples->n].system);
}

void mlff_samples_destroy(mlff_samples *samples)
{
    if (!samples) return;
    samples_truncate(samples, 0);
    base_free(samples->samples);
    base_free(samples);
}

uint64_t sample_seed(uint64_t seed, uint64_t stream)
{
    return (uint64_t)(0x1p53 * base_random_uniform(seed, stream, OWN_SEED));
}

mlff_status sample_perturbed(const mlff_system *system, double kelvin, uint64_t seed, uint64_t stream, mlff_system **copy_out)
{
    mlff_system *copy;
    mlff_status status = mlff_system_copy(system, &copy);
    if (status != MLFF_OK) return status;
    status = mlff_system_perturb(copy, kelvin, sample_seed(seed, stream));
    if (status != MLFF_OK) {
        mlff_system_destroy(copy);
        return status;
    }
    *copy_out = copy;
    return MLFF_OK;
}

mlff_status samples_take(mlff_samples *samples, mlff_system *system, const char *origin)
{
    sample added = {.system = system};
    snprintf(added.origin, sizeof added.origin, "%s", origin ? origin : ""); // may be one of these samples', which move now
    added.origin[base_whole_length(added.origin, sizeof added.origin)] = 0;
    mlff_status status = base_grow(&samples->samples, &samples->capacity, samples->n + 1, sizeof *samples->samples, "samples");
    if (status != MLFF_OK) {
        mlff_system_destroy(system);
        return status;
    }
    samples->samples[samples->n++] = added;
    return MLFF_OK;
}

mlff_status mlff_samples_add(mlff_samples *samples, const mlff_system *system, const char *origin)
{
    mlff_system *copy;
    mlff_status status = mlff_system_check(system, origin);
    if (status == MLFF_OK) status = mlff_system_copy(system, &copy);
    return status == MLFF_OK ? samples_take(samples, copy, origin) : status;
}

mlff_status mlff_samples_add_frames(mlff_samples *samples, mlff_reader *reader, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    const size_t before = samples->n;
    base_text name = {0};

    for (int64_t frame = 0;; frame++) {
        MLFF_TRY(mlff_reader_next(reader, &system));
        if (!system) break;
        name.length = 0;
        base_text_add(&name, "%s: frame %" PRId64, path, frame);
        MLFF_TRY(name.status);
        MLFF_TRY(mlff_system_check(system, name.text));
        status = samples_take(samples, system, system->config_type[0] ? system->config_type : "file");
        system = NULL;
        MLFF_TRY(status);
    }
    if (samples->n == before) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: holds no frame", path);
done:
    if (status != MLFF_OK) samples_truncate(samples, before);
    base_text_free(&name);
    mlff_system_destroy(system);
    return status;
}

mlff_status mlff_samples_read(mlff_samples *samples, const char *path)
{
    mlff_reader *reader = NULL;
    mlff_status status = mlff_reader_open(path, NULL, &reader);
    if (status == MLFF_OK) status = mlff_samples_add_frames(samples, reader, path);
    mlff_reader_destroy(reader);
    return status;
}

bool samples_is_built_in(const char *name)
{
    int n;
    const mlff_builder_info *builders = mlff_builders(&n);
    for (int k = 0; k < n; k++)
        if (strcmp(builders[k].name, name) == 0) return true;
    return !strpbrk(name, "./") && access(name, F_OK) != 0;
}

mlff_status mlff_samples_add_named(mlff_samples *samples, const mlff_teacher *teacher, const char *name, int n_atoms,
                                   uint64_t seed)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    const char *slash = strrchr(name, '/');
    const size_t first = samples->n;
    if (samples_is_built_in(name)) {
        MLFF_TRY(mlff_system_build(name, n_atoms, seed, &system));
        if (teacher && teacher->facts.of_charges) {
            system->charge = 0;
            system->spin = 1;
        }
        MLFF_TRY(mlff_samples_add(samples, system, name));
    } else {
        status = mlff_samples_read(samples, name);
        if (status == MLFF_ERR_USAGE) // of a reader: there is no topology
            MLFF_FAIL(status,
                      "%s: its frames have no elements; convert them to extended XYZ: mlff eval MODEL %s --topology FILE -o "
                      "NAME.extxyz",
                      name, name);
        MLFF_TRY(status);
        enum { NUMBER_BYTES = 9 }; // for the blank and a number
        const bool numbered = samples->n - first > 1;
        char shown[SAMPLE_ORIGIN_BYTES];
        snprintf(shown, numbered ? sizeof shown - NUMBER_BYTES : sizeof shown, "%s", slash ? slash + 1 : name);
        shown[base_whole_length(shown, sizeof shown)] = 0;
        for (size_t k = first; k < samples->n; k++)
            snprintf(samples->samples[k].origin, SAMPLE_ORIGIN_BYTES, numbered ? "%s %zu" : "%s", shown, k - first);
    }
done:
    mlff_system_destroy(system);
    return status;
}

mlff_status mlff_samples_write(const mlff_samples *samples, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_writer *writer = NULL;

    MLFF_TRY(mlff_writer_open(path, "extxyz", 0, &writer));
    for (size_t k = 0; k < samples->n; k++) {
        const mlff_frame_results results = {.energy = NAN, .step = -1, .time_fs = NAN};
        MLFF_TRY(mlff_writer_write(writer, samples->samples[k].system, &results));
    }
    status = mlff_writer_close(writer);
    writer = NULL;
done:
    mlff_writer_destroy(writer);
    return status;
}

int64_t mlff_samples_size(const mlff_samples *samples)
{
    return (int64_t)samples->n;
}

const mlff_system *mlff_samples_get(const mlff_samples *samples, int64_t index, const char **origin_out)
{
    if (index < 0 || index >= (int64_t)samples->n) return NULL;
    if (origin_out) *origin_out = samples->samples[index].origin;
    return samples->samples[index].system;
}

// The system displaced by `step` along a direction of length 1.
static mlff_status displaced(const mlff_system *system, const double *direction, double step, mlff_system **system_out)
{
    mlff_system *copy;
    mlff_status status = mlff_system_copy(system, &copy);
    if (status != MLFF_OK) return status;
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) copy->positions[k] += step * direction[k];
    *system_out = copy;
    return MLFF_OK;
}

// A random direction without the translation, of which every probe is 0.
static void random_direction(double *direction, int n_atoms, uint64_t seed, uint64_t stream)
{
    const size_t n = 3 * (size_t)n_atoms;
    double mean[3] = {0}, square = 0;
    for (size_t k = 0; k < n; k++) {
        direction[k] = base_random_normal(seed, stream, k);
        mean[k % 3] += direction[k] / n_atoms;
    }
    for (size_t k = 0; k < n; k++) {
        if (n_atoms > 1) direction[k] -= mean[k % 3];
        square += direction[k] * direction[k];
    }
    for (size_t k = 0; k < n; k++) direction[k] /= sqrt(square);
}

mlff_status mlff_samples_add_probes(mlff_samples *samples, int per_structure, double step_angstrom, uint64_t seed)
{
    mlff_status status = MLFF_OK;
    const size_t n_plain = samples->n;
    double *direction = NULL;

    if (per_structure < 0 || !(step_angstrom > 0 && step_angstrom < 0.5))
        return mlff_fail(MLFF_ERR_USAGE, "%d probes of %g Å; give 0 or more, of a step above 0 and below 0.5 Å", per_structure,
                         step_angstrom);
    for (size_t s = 0; s < n_plain; s++) {
        if (samples->samples[s].probe != SAMPLE_PLAIN) continue;
        const mlff_system *system = samples->samples[s].system;
        base_free(direction);
        if (!(direction = base_alloc(3 * (size_t)system->n_atoms, sizeof *direction, "a direction"))) MLFF_TRY(MLFF_ERR_MEMORY);
        for (int p = 0; p < per_structure; p++) {
            random_direction(direction, system->n_atoms, seed,
                             ((uint64_t)STREAM_PROBE << 32) + s * (size_t)per_structure + (size_t)p);
            for (int side = 0; side < 2; side++) {
                mlff_system *copy;
                MLFF_TRY(displaced(system, direction, side ? -step_angstrom : step_angstrom, &copy));
                MLFF_TRY(samples_take(samples, copy, samples->samples[s].origin));
                samples->samples[samples->n - 1].probe = side ? SAMPLE_MINUS : SAMPLE_PLUS;
                samples->samples[samples->n - 1].probe_step = step_angstrom;
            }
        }
    }
done:
    if (status != MLFF_OK) samples_truncate(samples, n_plain);
    base_free(direction);
    return status;
}
