// SPDX-License-Identifier: MIT
// distill_data.c: structures around the systems, their labels, and what of them trains, validates and tests.
#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "distill.h"
#include "train/data/dataset.h"
#include "train/judging/verdict.h"
#include "train/teachers/teacher_recorded.h"

enum { FEWEST_TO_SPLIT = 20 }; // labels; fewer all train

// ---- structures

static int while_sampling(void *context, const mlff_sample_progress *p)
{
    return distill_tell(context, (double)p->n_done / (double)p->n_total, 0,
                        "%s: %" PRId64 " of %" PRId64 " candidate%s, %" PRId64 " rejected", p->method, p->n_done, p->n_total,
                        base_plural(p->n_total), p->n_rejected) != MLFF_OK;
}

mlff_status distill_sample(distill *d, distill_file file, distill_file recorded, int64_t n, int n_probes, uint64_t seed,
                           mlff_samples *samples)
{
    mlff_status status = MLFF_OK;
    const char *samples_path = d->path[file];
    mlff_teacher *teacher = NULL;
    const mlff_distill_config *c = &d->config;
    mlff_sample_options options = mlff_sample_options_default();
    mlff_samples *made = NULL;
    if (access(samples_path, F_OK) == 0) {
        MLFF_TRY(mlff_samples_read(samples, samples_path));
        goto probes;
    }
    options.n_samples = n;
    options.n_temperatures = 3;
    options.temperatures[0] = c->lowest_kelvin;
    options.temperatures[1] = sqrt(c->lowest_kelvin * c->highest_kelvin);
    options.temperatures[2] = c->highest_kelvin;
    options.seed = seed;
    options.strain = c->strain;
    options.closest = VERDICT_PRESSED_TO; // nearer, teachers may fail
    options.callback = while_sampling;
    options.context = d;
    MLFF_TRY(mlff_samples_create(&made));
    MLFF_TRY(teacher_recorded_open(d->teacher, d->path[recorded], &teacher));
    MLFF_TRY(mlff_sample(teacher, d->seeds, &options, made));
    MLFF_TRY(mlff_samples_write(made, samples_path));
    MLFF_TRY(mlff_samples_read(samples, samples_path)); // as a run that goes on has them
    const int64_t n_seeds = mlff_samples_size(d->seeds);
    MLFF_TRY(distill_tell(d, 1, 1, "%" PRId64 " structure%s around %" PRId64 " seed%s, %g to %g K", mlff_samples_size(samples),
                          base_plural(mlff_samples_size(samples)), n_seeds, base_plural(n_seeds), c->lowest_kelvin,
                          c->highest_kelvin));
probes:
    unlink(d->path[recorded]);
    // The file has no place for their directions; they are drawn from the seed.
    if (n_probes > 0) MLFF_TRY(mlff_samples_add_probes(samples, n_probes, 0.01, seed));
done:
    mlff_teacher_destroy(teacher);
    mlff_samples_destroy(made);
    return status;
}

int64_t distill_round_size(const mlff_distill_config *config)
{
    return config->n_rounds > 0 ? config->n_structures / 10 : 0;
}

// ---- labels

static int while_labelling(void *context, const mlff_label_progress *p)
{
    const double rate = p->elapsed_s > 0 ? (double)(p->n_done - p->n_before) / p->elapsed_s : 0;
    return distill_tell(context, (double)p->n_done / (double)p->n_total, 0,
                        "%" PRId64 " of %" PRId64 " label%s, %.0f/s, %" PRId64 " failed", p->n_done, p->n_total,
                        base_plural(p->n_total), rate, p->n_failed) != MLFF_OK;
}

mlff_status distill_label(distill *d, const mlff_samples *samples, const char *labels_path)
{
    mlff_status status = MLFF_OK;
    mlff_shard *shard = NULL;
    mlff_shard_info info;
    mlff_label_progress progress = {0};
    mlff_label_options options = mlff_label_options_default();
    options.callback = while_labelling;
    options.context = d;
    status = mlff_shard_open(labels_path, d->teacher, &shard);
    if (status == MLFF_ERR_FORMAT)
        MLFF_FAIL(status, "%s; without this file its structures are labelled again", mlff_last_error());
    MLFF_TRY(status);
    MLFF_TRY(mlff_shard_label(shard, d->teacher, samples, &options, &progress));
    mlff_shard_info_get(shard, &info);
    const int is_news = progress.n_done > progress.n_before;
    MLFF_TRY(distill_tell(d, 1, is_news, "%" PRId64 " label%s; structures that could not be labelled: %" PRId64, info.n_labels,
                          base_plural(info.n_labels), info.n_failed));
    mlff_shard *closed = shard;
    shard = NULL;
    MLFF_TRY(mlff_shard_close(closed));
done:
    if (shard) (void)mlff_shard_close(shard);
    return status;
}

// ---- what is held out

mlff_status distill_data_create(distill_data *data)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(mlff_dataset_create(&data->train));
    MLFF_TRY(mlff_dataset_create(&data->validation));
    MLFF_TRY(mlff_dataset_create(&data->test));
done:
    return status;
}

void distill_data_free(distill_data *data)
{
    mlff_dataset_destroy(data->train);
    mlff_dataset_destroy(data->validation);
    mlff_dataset_destroy(data->test);
    *data = (distill_data){0};
}

// Validation chooses the best weights for dynamics, by the structures that the verdict judges: others would decide its mean.
static mlff_status append(mlff_dataset *to, const mlff_dataset *from, bool judged_alone)
{
    mlff_status status = MLFF_OK;
    const bool dynamics_alone = judged_alone && verdict_has_dynamics(from);
    for (size_t k = 0, n; k < from->n_frames; k += n) {
        bool judged = true;
        n = from->frames[k].probe_step > 0 ? 2 : 1; // of a Hessian probe both structures, or none
        for (size_t f = k; f < k + n; f++) judged = judged && verdict_judges(from->frames[f].system, dynamics_alone);
        for (size_t f = k; f < k + n && (judged || !judged_alone); f++) MLFF_TRY(dataset_add_copy(to, &from->frames[f]));
    }
done:
    return status;
}

mlff_status distill_divide(const mlff_dataset *all, uint64_t seed, distill_data *data)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *rest = NULL, *train = NULL, *validation = NULL, *test = NULL;
    MLFF_TRY(mlff_dataset_split(all, 0.1, seed, &rest, &test));
    MLFF_TRY(mlff_dataset_split(rest, 0.1, seed + 1, &train, &validation));
    MLFF_TRY(append(data->train, train, false));
    MLFF_TRY(append(data->validation, validation, true));
    MLFF_TRY(append(data->test, test, false));
done:
    mlff_dataset_destroy(rest);
    mlff_dataset_destroy(train);
    mlff_dataset_destroy(validation);
    mlff_dataset_destroy(test);
    return status;
}

mlff_status distill_add_labels(distill *d, const char *labels_path, uint64_t seed, distill_data *data)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *all = NULL;
    mlff_read_options options = mlff_read_options_default();
    int64_t n_unsure = 0, n_outliers = 0;
    options.n_threads = d->options.n_threads;
    if (d->config.max_teacher_deviation > 0) options.largest_force_deviation = d->config.max_teacher_deviation;
    MLFF_TRY(mlff_dataset_create(&all));
    MLFF_TRY(mlff_dataset_read_some(all, labels_path, &options, &n_unsure));
    if (n_unsure > 0)
        MLFF_TRY(distill_tell(d, 1, 1, "%" PRId64 " structure%s left out, of which the teacher is less sure than %g eV/Å",
                              n_unsure, base_plural(n_unsure), d->config.max_teacher_deviation));
    MLFF_TRY(dataset_drop_outliers(all, &n_outliers));
    if (n_outliers > 0)
        MLFF_TRY(distill_tell(d, 1, 1,
                              "%" PRId64 " structure%s left out, whose forces are above 100 eV/Å and 100 times the median, or "
                              "energies as far from those of the others: the teacher fails there",
                              n_outliers, base_plural(n_outliers)));
    if (all->n_frames < FEWEST_TO_SPLIT) {
        status = append(data->train, all, false);
        goto done;
    }
    MLFF_TRY(mlff_dataset_check(all));
    MLFF_TRY(distill_divide(all, seed, data));
done:
    mlff_dataset_destroy(all);
    return status;
}
