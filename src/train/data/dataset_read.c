// SPDX-License-Identifier: MIT
// dataset_read.c: labelled structures from files: extended XYZ, and files of labels (shard.h).
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dataset.h"
#include "frames_read.h"
#include "shard.h"

mlff_read_options mlff_read_options_default(void)
{
    return (mlff_read_options){
        .struct_size = sizeof(mlff_read_options), .largest_force = INFINITY, .largest_force_deviation = INFINITY};
}

// A file being read.
typedef struct reading {
    mlff_dataset *dataset;
    const char *path;
    mlff_read_options options;
    int64_t n_frames, n_left_out, n_failed; // failed: structures without a label
    base_text name;                         // "path: frame 3"
    double probe_step;                      // of a probe's first half, which is the dataset's last frame; 0
    bool lacks_label;                       // the last frame
    int64_t n_stress_dropped;               // structures that do not repeat along all axes
} reading;

static mlff_status name_frame(reading *r)
{
    r->name.length = 0;
    base_text_add(&r->name, "%s: frame %" PRId64, r->path, r->n_frames);
    return r->name.status;
}

static bool is_wanted(const reading *r, const mlff_system *system, double deviation)
{
    const double limit = r->options.largest_force;
    if (deviation > r->options.largest_force_deviation) return false;
    for (int i = 0; system->label_forces && i < system->n_atoms; i++) {
        const double *f = system->label_forces + 3 * (size_t)i;
        if (f[0] * f[0] + f[1] * f[1] + f[2] * f[2] > limit * limit) return false;
    }
    return true;
}

static mlff_status take_frame(reading *r, const mlff_system *system, const double *atom_energies, double weight, double deviation)
{
    mlff_status status = name_frame(r);
    r->n_frames++;
    if (status != MLFF_OK) return status;
    if (!is_wanted(r, system, deviation)) {
        r->n_left_out++;
        return MLFF_OK;
    }
    return dataset_add_named(r->dataset, system, atom_energies, weight, r->name.text);
}

static bool has_label(const mlff_system *system)
{
    return !isnan(system->label_energy) || system->label_forces || !isnan(system->label_stress[0]);
}

static mlff_status take_system(void *context, const mlff_system *system)
{
    reading *r = context;
    const mlff_status status = take_frame(r, system, NULL, 1, NAN);
    const bool is_periodic = system->periodic[0] && system->periodic[1] && system->periodic[2];
    r->lacks_label = status == MLFF_ERR_VALUE && !has_label(system);
    r->n_stress_dropped += !isnan(system->label_stress[0]) && !is_periodic;
    return status;
}

// The last frame taken has no label; its file may have some of other names, which the error then says.
static mlff_status tell_other_labels(const reading *r, mlff_status cause)
{
    mlff_reader *reader = NULL;
    mlff_system *system = NULL;
    char error[900], unused[256];
    if (base_is_stream(r->path)) return cause;
    snprintf(error, sizeof error, "%s", mlff_last_error());
    mlff_status status = mlff_reader_open(r->path, NULL, &reader);
    if (status == MLFF_OK) reader->held_warning = unused;
    for (int64_t k = 0; k < r->n_frames && status == MLFF_OK; k++) {
        mlff_system_destroy(system);
        system = NULL;
        status = mlff_reader_next(reader, &system);
    }
    if (status == MLFF_OK && reader->other_labels[0])
        status = mlff_fail(cause, "%s: no label of the names that are read; rename %s", r->name.text, reader->other_labels);
    else
        status = mlff_fail(cause, "%s", error);
    mlff_system_destroy(system);
    mlff_reader_destroy(reader);
    return status;
}

// A probe is one where its second half follows its first; halves alone are structures like others.
static mlff_status take_label(void *context, shard_label *label)
{
    reading *r = context;
    const shard_head *head = &label->head;
    const size_t before = r->dataset->n_frames;
    if (head->flags & SHARD_FAILED) {
        r->n_failed++;
        r->probe_step = 0;
        return MLFF_OK;
    }
    mlff_status status = take_frame(r, label->system, label->atom_energies, label->weight, head->force_deviation);
    if (status != MLFF_OK) return status;
    const bool added = r->dataset->n_frames > before;
    if (added && head->flags & SHARD_MINUS && r->probe_step > 0 && head->probe_step == r->probe_step)
        r->dataset->frames[before - 1].probe_step = r->probe_step;
    r->probe_step = added && head->flags & SHARD_PLUS ? head->probe_step : 0;
    return MLFF_OK;
}

// Those of this file and of the ones before; the file's own were compared as it was read.
static mlff_status note_energies(mlff_dataset *dataset, const char *path, atoms_energy_lines lines)
{
    base_text names[2] = {{0}};
    const int64_t numbers[2] = {lines.free, lines.alone};
    for (int k = 0; k < 2; k++)
        if (numbers[k] > 0) base_text_add(&names[k], "%s:%" PRId64, path, numbers[k]);
    mlff_status status = names[0].status == MLFF_OK ? names[1].status : names[0].status;
    if (status == MLFF_OK)
        status = energy_kinds_join(&dataset->kinds, &(energy_kinds){.free = names[0].text, .alone = names[1].text});
    for (int k = 0; k < 2; k++) base_text_free(&names[k]);
    return status;
}

mlff_status mlff_dataset_read_some(mlff_dataset *dataset, const char *path, const mlff_read_options *given,
                                   int64_t *n_left_out_out)
{
    mlff_status status = MLFF_OK;
    const size_t before = dataset->n_frames;
    reading r = {.dataset = dataset, .path = path, .options = mlff_read_options_default()};
    int64_t good_bytes, file_bytes;

    MLFF_TRY(base_take_options(__func__, "mlff_read_options", given, sizeof r.options, &r.options));
    if (!(r.options.largest_force >= 0 && r.options.largest_force_deviation >= 0))
        MLFF_FAIL(MLFF_ERR_USAGE,
                  "structures with forces above %g eV/Å and deviations above %g eV/Å left out; give numbers from 0 on",
                  r.options.largest_force, r.options.largest_force_deviation);
    dataset->n_threads = r.options.n_threads;
    if (shard_is_file(path)) {
        MLFF_TRY(shard_visit(path, take_label, &r, NULL, &good_bytes, &file_bytes));
    } else {
        atoms_energy_lines energies = {0};
        status = frames_visit(path, r.options.n_threads, take_system, &r, &energies);
        MLFF_TRY(r.lacks_label ? tell_other_labels(&r, status) : status);
        MLFF_TRY(note_energies(dataset, path, energies));
        if (r.n_stress_dropped > 0)
            base_warn("%s: the stress of %" PRId64 " structure%s does not count, as pbc is not T along all three axes", path,
                      r.n_stress_dropped, base_plural(r.n_stress_dropped));
        MLFF_TRY(dataset_warn_of_forces(dataset, before, path)); // files of mlff label are in its units
    }
    if (r.n_frames == 0 && r.n_failed > 0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: holds no label; its teacher failed at all %" PRId64 " structure%s", path, r.n_failed,
                  base_plural(r.n_failed));
    if (r.n_frames == 0) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: holds no frame", path);
    if (n_left_out_out) *n_left_out_out = r.n_left_out;
done:
    if (status != MLFF_OK) dataset_truncate(dataset, before);
    base_text_free(&r.name);
    return status;
}

mlff_status mlff_dataset_read(mlff_dataset *dataset, const char *path)
{
    return mlff_dataset_read_some(dataset, path, NULL, NULL);
}

void mlff_dataset_center_atom_energies(mlff_dataset *dataset)
{
    dataset_changed(dataset);
    double sums[MLFF_MAX_ATOMIC_NUMBER + 1] = {0}, counts[MLFF_MAX_ATOMIC_NUMBER + 1] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (size_t f = 0; f < dataset->n_frames; f++) {
            const dataset_frame *frame = &dataset->frames[f];
            for (int i = 0; frame->atom_energies && i < frame->system->n_atoms; i++) {
                const int z = frame->system->species[i];
                if (pass == 0) {
                    sums[z] += frame->atom_energies[i];
                    counts[z]++;
                } else {
                    frame->atom_energies[i] -= sums[z] / counts[z];
                }
            }
        }
}

// ---- labels for people

mlff_status mlff_labels_warn(const char *path, int n_threads)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *labels = NULL;
    mlff_read_options options = mlff_read_options_default();
    int64_t n = 0, first = -1;
    options.n_threads = n_threads;
    MLFF_TRY(mlff_dataset_create(&labels));
    MLFF_TRY(mlff_dataset_read_some(labels, path, &options, NULL));
    MLFF_TRY(mlff_dataset_outliers(labels, &n, &first));
    if (n > 0)
        mlff_warn(
            "%s: %" PRId64 " of %" PRId64 " label%s cannot be trained on, the first is structure %" PRId64
            ": energies more than 20 eV/atom, and 20 times the median (the median alone if it is above 20), from the sum "
            "of their elements' energies, or "
            "forces above 100 eV/Å (root mean square) and 100 times the median; where the teacher fails for atoms that are too "
            "close, mlff train --largest-force 50 leaves these structures out",
            path, n, mlff_dataset_size(labels), base_plural(mlff_dataset_size(labels)), first);
done:
    mlff_dataset_destroy(labels);
    if (status != MLFF_ERR_VALUE && status != MLFF_ERR_UNSUPPORTED) return status;
    mlff_warn("%s", mlff_last_error()); // charged structures, for example
    return MLFF_OK;
}

typedef struct export
{
    mlff_writer *writer;
}
export;

static mlff_status write_label(void *context, shard_label *label)
{
    const export *to = context;
    const mlff_system *system = label->system;
    if (label->head.flags & SHARD_FAILED) return MLFF_OK;
    const mlff_frame_results results = {.energy = system->label_energy,
                                        .forces = system->label_forces,
                                        .stress = isnan(system->label_stress[0]) ? NULL : system->label_stress,
                                        .step = -1,
                                        .time_fs = NAN};
    return mlff_writer_write(to->writer, system, &results);
}

mlff_status mlff_shard_export(const char *path, const char *extxyz_path)
{
    mlff_status status = MLFF_OK;
    export to = {0};
    int64_t good_bytes, file_bytes;
    MLFF_TRY(mlff_writer_open(extxyz_path, "extxyz", 0, &to.writer));
    MLFF_TRY(shard_visit(path, write_label, &to, NULL, &good_bytes, &file_bytes));
    status = mlff_writer_close(to.writer);
    to.writer = NULL;
done:
    mlff_writer_destroy(to.writer);
    return status;
}
