/* SPDX-License-Identifier: MIT */
/* distill.h: a distillation run and its parts: folder and order of the stages (distill.c), structures and labels (distill_data.c), labels
 * of other origin (distill_labels.c), students (distill_students.c), rounds of exploration (distill_rounds.c), settings, page. */
#ifndef DISTILL_H
#define DISTILL_H

#include <limits.h>

#include "base/base.h"
#include "base/sha256.h"
#include "mlff_distill.h"

enum { DISTILL_TEXT_BYTES = 16384, DISTILL_DIFFERENCE_BYTES = 200, DISTILL_MAX_COMMITTEE = 8 };
/* Structures to be labelled, and labelled ones that are there: of fewer, a tenth tests nothing. */
enum { DISTILL_FEWEST_SAMPLES = 20, DISTILL_FEWEST_LABELS = 50 };

/* The files of a run's folder that there is one of, without those of trainings (distill_students.c). */
typedef enum distill_file {
    DISTILL_CONFIG,
    DISTILL_MADE_WITH,
    DISTILL_SAMPLES_RECORDED,
    DISTILL_SAMPLES,
    DISTILL_LABELS,
    DISTILL_HISTORY,
    DISTILL_STUDENT,
    DISTILL_BASELINE_RECORDED,
    DISTILL_BASELINE_SAMPLES,
    DISTILL_BASELINE_LABELS,
    DISTILL_BASELINE,
    DISTILL_VERDICT_PARTS,
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
    bool is_late;                        /* the folder was empty, and then another process began a run there */
    mlff_teacher *teacher, *own_teacher; /* own: opened here; NULL of a run from labels without one */
    const char *given_systems;           /* the caller's names, relative to the working directory; NULL: the folder's */
    base_text system_names;              /* those that a new run keeps */
    char teacher_path[PATH_MAX];         /* as well */
    char systems_hash[SHA256_TEXT_BYTES];
    mlff_samples *seeds; /* every structure of the systems; NULL of a run from labels */
    mlff_samples
        *systems; /* what the dynamics of the verdict begin with: the first structure of each system, relaxed, named by its
                                            origin, or some of the test's */
    mlff_dataset *labelled; /* of a run from labels: all structures, until they are divided */
    base_text labels,
        labels_hash; /* their files by absolute paths (a dataset, until it has a file, by the caller's name for it), and
                                      the hashes of these */
    distill_data data;
    double core_repulsion;          /* of students: the configuration's, or less where labels have closer atoms */
    int n_rounds;                   /* made */
    int64_t n_explored;             /* structures that they added */
    mlff_model *student, *baseline; /* baseline: NULL where none was asked for */
    mlff_verdict *verdict;
} distill;

/* Reads the settings and the labels of the run in a folder, all of whose rounds are made, into `d`: its data, and no more. */
mlff_status distill_data_read(distill *d, const char *folder);
void distill_release(distill *d);
/* Reports progress; MLFF_ERR_INTERRUPTED if the caller asks to stop. */
mlff_status distill_tell(const distill *d, double fraction, int milestone, const char *format, ...) MLFF_PRINTF(4, 5);
bool distill_is_there(const distill *d, distill_file file);
/* Fails with MLFF_ERR_VALUE where this file is there, which a new run would take for its own. */
mlff_status distill_refuse_found(const char *path);
/* "FOLDER/name-K.suffix", to be freed; NULL without memory. */
char *distill_path(const distill *d, const char *name, int k, const char *suffix);

/* ---- distill_data.c */

/* Structures around the seeds into the file `file`, unless it is there, with n_probes Hessian probes each; until then the teacher's calls
 * are in the file `recorded`, from which an interrupted sampling goes on. Then their labels into the file of labels. */
mlff_status distill_sample(distill *d, distill_file file, distill_file recorded, int64_t n, int n_probes, uint64_t seed,
                           mlff_samples *samples);
mlff_status distill_label(distill *d, const mlff_samples *samples, const char *labels_path);
/* Adds a file's labels: a tenth each to the test and the validation, by trajectory. Structures of which the teacher is less sure
 * than the configuration allows are left out. */
mlff_status distill_add_labels(distill *d, const char *labels_path, uint64_t seed, distill_data *data);
mlff_status distill_data_create(distill_data *data);
void distill_data_free(distill_data *data);
/* Adds the structures of `all` to the parts, a tenth each to the test and the validation, by trajectory. */
mlff_status distill_divide(const mlff_dataset *all, uint64_t seed, distill_data *data);
/* Labels that a round takes; those of the first sampling are what is left of n_structures. */
int64_t distill_round_size(const mlff_distill_config *config);

/* ---- distill_labels.c */

/* Reads and checks the labels of the configuration, which get the paths and hashes of its files. Fails with MLFF_ERR_VALUE where these
 * are not those of the folder. */
mlff_status distill_labels_read(distill *d);
/* Writes labels that the caller gave as a dataset to a file in the folder of a new run, which the configuration then names. Fails as
 * mlff_dataset_save, and with MLFF_ERR_VALUE where a file of this name holds others. */
mlff_status distill_labels_save(distill *d);
/* Divides them into d->data, and chooses the onset of the students' core and the structures of the test that dynamics begin with. */
mlff_status distill_labels_divide(distill *d);

/* ---- trained_on.c */

/* Notes in the metadata how near two atoms come in the training structures. `begun_with`: those of its training before count too. Fails with
 * MLFF_ERR_MEMORY. */
mlff_status distill_note_nearest(const mlff_dataset *train, bool begun_with, mlff_model *model);
/* Fails with MLFF_ERR_VALUE where the metadata of a model, which is in the file `path`, say that it was trained on other structures, as by a
 * version that held out others; MLFF_ERR_MEMORY. */
mlff_status distill_check_trained_on(const mlff_dataset *train, const mlff_model *model, const char *path);

/* ---- distill_students.c */

/* Whether the first `length` bytes of `name` are a file of the training that writes a model of this name: NAME.safetensors itself,
 * NAME.checkpoint or NAME.best.safetensors. */
bool distill_is_of_training(const char *name, size_t length, const char *model_name);
/* Fails with MLFF_ERR_VALUE where one of them is there, as distill_refuse_found; MLFF_ERR_MEMORY. */
mlff_status distill_training_check_absent(const char *model_path);
/* Trains a new student of the configured size for n_steps and writes it to `path`; loads it where it is there. `history`: file of
 * learning curves, or NULL. */
mlff_status distill_train(distill *d, const distill_data *data, const char *path, uint64_t seed, int64_t n_steps,
                          bool with_probes, const char *history, mlff_model **model_out);
/* The student of the run, and the baseline if one is asked for. */
mlff_status distill_train_student(distill *d);
mlff_status distill_train_baseline(distill *d);

/* ---- distill_rounds.c */

/* Fails with MLFF_ERR_VALUE where a file that a round would write is there, as distill_refuse_found; MLFF_ERR_MEMORY. */
mlff_status distill_rounds_check_absent(const distill *d);
/* Explores with young students and adds what they met to the data, round by round. */
mlff_status distill_rounds(distill *d);
/* Adds what the rounds that were made met. */
mlff_status distill_rounds_read(distill *d);
/* What the record of an earlier round, round-K.json, says: structures labelled, and the 90th percentile of the committee's deviation,
 * eV/Å (NaN: absent). Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY, MLFF_ERR_FORMAT for what is no record. */
mlff_status distill_round_read(const char *path, int64_t *n_structures_out, double *upper_deviation_out);

/* ---- distill_config.c, distill_report.c */

/* Fails with MLFF_ERR_USAGE for settings that exclude each other, or where something is missing. */
mlff_status distill_config_check(const mlff_distill_config *config);
/* The optimizer that a configuration names. Fails with MLFF_ERR_USAGE for another name. */
mlff_status distill_optimizer(const mlff_distill_config *config, mlff_trainer_optimizer *optimizer_out);
/* Whether the settings of `asked` are those of `made`: `difference` names the first that is not ("seed": 8 in place of 7), else it is
 * "". `files_alone`: only those that the files of a run are made with, not those of its verdict. Fails with MLFF_ERR_MEMORY. */
mlff_status distill_config_same(const mlff_distill_config *asked, const mlff_distill_config *made, bool files_alone,
                                char difference[DISTILL_DIFFERENCE_BYTES]);
/* Writes the page of a run: verdict, rounds, learning curves (where there is a history), parity of the held-out structures. Needs
 * nothing from elsewhere. */
mlff_status distill_report(const distill *d);

/* Adds the names of a list of files, separated by commas, without their folders: "a.extxyz, b.mlff". */
void distill_add_names(const char *list, base_text *text);

#endif
