/* SPDX-License-Identifier: MIT */
/* distill.h: a distillation run and its parts: folder and order of the stages (distill.c), structures and labels (distill_data.c),
 * students (distill_students.c), rounds of exploration (distill_rounds.c), settings, page. */
#ifndef DISTILL_H
#define DISTILL_H

#include "base/base.h"
#include "mlff_train.h"

enum { DISTILL_TEXT_BYTES = 8192, DISTILL_DIFFERENCE_BYTES = 200, DISTILL_MAX_COMMITTEE = 8 };

/* The files of a run's folder that there is one of. */
typedef enum distill_file {
    DISTILL_CONFIG,
    DISTILL_MADE_WITH,
    DISTILL_SAMPLES,
    DISTILL_LABELS,
    DISTILL_CHECKPOINT,
    DISTILL_BEST,
    DISTILL_HISTORY,
    DISTILL_STUDENT,
    DISTILL_BASELINE_SAMPLES,
    DISTILL_BASELINE_LABELS,
    DISTILL_BASELINE,
    DISTILL_VERDICT,
    DISTILL_REPORT,
    DISTILL_N_FILES
} distill_file;

/* Labelled structures by use; whole trajectories are held out. */
typedef struct distill_data {
    mlff_dataset *train, *validation, *test;
} distill_data;

typedef struct distill {
    mlff_distill_config config;
    mlff_distill_options options;
    char text[DISTILL_TEXT_BYTES]; /* strings of the configuration */
    const char *folder;
    int lock; /* descriptor of the locked folder; -1 before */
    char *path[DISTILL_N_FILES];
    const char *stage;
    bool is_new;                         /* the folder holds no configuration yet */
    mlff_teacher *teacher, *own_teacher; /* own: opened here */
    mlff_samples *seeds;                 /* every structure of the systems */
    mlff_samples *systems;               /* the first structure of each system, named by its origin */
    distill_data data;
    int n_rounds;                   /* made */
    int64_t n_explored;             /* structures that they added */
    mlff_model *student, *baseline; /* baseline: NULL where none was asked for */
    mlff_verdict *verdict;
} distill;

/* Reports progress; MLFF_ERR_INTERRUPTED if the caller asks to stop. */
mlff_status distill_tell(const distill *d, double fraction, int milestone, const char *format, ...) MLFF_PRINTF(4, 5);
bool distill_is_there(const distill *d, distill_file file);
/* "FOLDER/name-K.suffix", to be freed; NULL without memory. */
char *distill_path(const distill *d, const char *name, int k, const char *suffix);

/* ---- distill_data.c */

/* Structures around the seeds into the file of samples, unless it is there; then their labels into the file of labels. */
mlff_status distill_sample(distill *d, const char *samples_path, int64_t n, uint64_t seed, mlff_samples *samples);
mlff_status distill_label(distill *d, const mlff_samples *samples, const char *labels_path);
/* Adds a file's labels: a tenth each to the test and the validation, by trajectory. Structures of which the teacher is less sure
 * than the configuration allows are left out. */
mlff_status distill_add_labels(distill *d, const char *labels_path, uint64_t seed, distill_data *data);
mlff_status distill_data_create(distill_data *data);
void distill_data_free(distill_data *data);
/* Labels that a round takes; those of the first sampling are what is left of n_structures. */
int64_t distill_round_size(const mlff_distill_config *config);

/* ---- distill_students.c */

/* Trains a new student of the configured size for n_steps and writes it to `path`; loads it where it is there. `history`: file of
 * learning curves, or NULL. */
mlff_status distill_train(distill *d, const distill_data *data, const char *path, uint64_t seed, int64_t n_steps,
                          bool with_probes, const char *history, mlff_model **model_out);
/* The student of the run, and the baseline if one is asked for. */
mlff_status distill_train_student(distill *d);
mlff_status distill_train_baseline(distill *d);

/* ---- distill_rounds.c */

/* Explores with young students and adds what they met to the data, round by round. */
mlff_status distill_rounds(distill *d);
/* What the record of an earlier round, round-K.json, says: structures labelled, and the 90th percentile of the committee's deviation,
 * eV/Å (NaN: absent). Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY, MLFF_ERR_FORMAT for what is no record. */
mlff_status distill_round_read(const char *path, int64_t *n_structures_out, double *upper_deviation_out);

/* ---- distill_config.c, distill_report.c */

/* The optimizer that a configuration names. Fails with MLFF_ERR_USAGE for another name. */
mlff_status distill_optimizer(const mlff_distill_config *config, mlff_trainer_optimizer *optimizer_out);
/* Whether the settings of `asked` are those of `made`: `difference` names the first that is not ("seed": 8 in place of 7), else it is
 * "". `files_alone`: only those that the files of a run are made with, not those of its verdict. Fails with MLFF_ERR_MEMORY. */
mlff_status distill_config_same(const mlff_distill_config *asked, const mlff_distill_config *made, bool files_alone,
                                char difference[DISTILL_DIFFERENCE_BYTES]);
/* Writes the page of a run: verdict, rounds, learning curves (where there is a history), parity of the held-out structures. Needs
 * nothing from elsewhere. */
mlff_status distill_report(const distill *d);

#endif
