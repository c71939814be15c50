/* SPDX-License-Identifier: MIT */
/* mlff_distill.h: whether a student may stand in for its teacher, and the whole way from a teacher to a student with a verdict.
 * Conventions and the error contract: mlff_base.h.
 *
 *   mlff_distill_config config;
 *   mlff_distill_preset("quick", &config);
 *   config.teacher = "xtb:gfn2", config.systems = "ethanol";
 *   mlff_distill(&config, "ethanol.run", NULL, &passed); */
#ifndef MLFF_DISTILL_H
#define MLFF_DISTILL_H

#include "mlff_label.h"
#include "mlff_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- verdict: may the student stand in for its teacher? ----------------------------------------- */

/* Anything that gives energies and forces: a model's evaluator, a quantum chemistry program, a caller's own function. */
typedef struct mlff_force_field {
    const char *name;
    mlff_force_function forces;
    void *context;
} mlff_force_field;

typedef enum mlff_bar_state { MLFF_BAR_PASSED = 0, MLFF_BAR_FAILED = 1, MLFF_BAR_NOT_MEASURED = 2 } mlff_bar_state;

/* One requirement and what was measured. A bar that was asked for and could not be measured fails the verdict. */
typedef struct mlff_bar {
    const char *
        name; /* "held_out", "error.forces", "error.energy", "error.pressure", "baseline", "speed", "speed.batch", "stability.nve",
                           "stability.hot", "core", "pressed", "error.dynamics", "structure", "spectrum" */
    const char *unit; /* "meV/Å"; "" for a pure number */
    double value;     /* NaN: none; where the interval holds the limit there is a value, and the state is MLFF_BAR_NOT_MEASURED */
    /* Half width of the interval that decides: of "stability.nve" the one of 99 %, of "speed" and "speed.batch" all blocks of time but the
     * lowest and the highest, of "pressed" the larger side of Clopper and Pearson's one of 99.6 %; NaN where there is none. */
    double uncertainty;
    double limit;
    int at_least; /* 1: the value must reach the limit; 0: it must not exceed it */
    mlff_bar_state state;
    char text[448];  /* one line: what was done, or why it was not measured */
    char system[24]; /* that it was measured on, where there are several; "" */
} mlff_bar;

typedef struct mlff_verdict_options {
    size_t struct_size;
    mlff_device device; /* of the student */
    int n_threads;
    uint64_t seed;
    double timestep_fs;        /* 0.5 */
    double temperature_kelvin; /* 300: of the NVE run and of the comparison with the teacher */
    double hot_kelvin;         /* 500 */
    double nve_ps;             /* 20; 0 leaves the bar out */
    double hot_ps;             /* 50, in each of hot_runs runs; 0 leaves the bar out */
    int hot_runs;              /* 3 */
    double compare_ps;         /* 20: of student and teacher each, in four runs, for structure and spectrum; 0 leaves both out */
    double speed_s;            /* 1.2: of student and teacher together, for each of speed and speed.batch; at least 0.01 */
    double max_force_error;    /* eV/Å, mean absolute over structures without a force above 20 eV/Å; 0.05 */
    double max_energy_error;   /* eV/atom; 0.005 */
    double max_drift;          /* |slope| of the conserved energy, eV/atom/ps; 5e-5 */
    /* Teacher's time over the student's, of one structure a call and of many (32, on a GPU 256, or as many as have 2048, on a GPU 32,768
     * atoms; not of structures larger than half of that); 1; 0 leaves the bar out where there is no teacher. */
    double min_speed;
    int (*callback)(void *context, const char *what, double fraction); /* not 0: stop with MLFF_ERR_INTERRUPTED */
    void *context;
    const mlff_samples *systems; /* the bars but those of errors are measured on each (16 at most), named by its origin; NULL: on
                                    `start` alone */
    const mlff_model *baseline;  /* a model that the student's force error must not exceed on the same structures; NULL */
    const mlff_dataset *trained_on; /* the training data: the bar `held_out` counts structures of `test` that are in it; NULL */
    /* Structures with two atoms pressed together that the bar `pressed` counts, at most; of more than 128 atoms down to a quarter of them.
     * 1024; 0 leaves the bar out. */
    int n_pressed;
    /* Structures of new dynamics of the student (at temperature_kelvin and hot_kelvin) whose forces the bar `error.dynamics` compares with
     * the teacher's; its limit is max_force_error. At least 16, of more than 128 atoms down to a quarter of them. 64; 0 leaves the bar out. */
    int n_dynamics;
    double max_pressure_error; /* GPa: mean difference over a trajectory, of cells with labels of the stress; 0.1 */
} mlff_verdict_options;
MLFF_API mlff_verdict_options mlff_verdict_options_default(void);

typedef struct mlff_verdict mlff_verdict;
/* Judges a student on held-out labelled structures and in molecular dynamics from `start` (which may be NULL where
 * options->systems are given). `teacher` NULL: bars that need one
 * (speed, pressed, error.dynamics, structure, spectrum) are not measured and therefore fail if they are asked for. Fails as mlff_evaluator_create,
 * mlff_evaluator_compute, and with MLFF_ERR_INTERRUPTED; a student whose dynamics fail is a failed bar, no failure. After a failure
 * *verdict_out has the bars that were measured before it, where there are any, and else what it had. */
MLFF_API mlff_status mlff_verdict_create(const mlff_model *student, const mlff_force_field *teacher, const mlff_dataset *test,
                                         const mlff_system *start, const mlff_verdict_options *options,
                                         mlff_verdict **verdict_out);
/* As mlff_verdict_create. Bars of speed and dynamics, and runs beside the teacher, are written to the file `kept` as they are measured. What is
 * in it is not measured again where it is of the same `origin`, which names student and teacher by their content, such as hashes, and of the
 * same build of the library, processor, system and settings. Fails with MLFF_ERR_FORMAT where `kept` is another file, MLFF_ERR_IO,
 * and as mlff_verdict_create. */
MLFF_API mlff_status mlff_verdict_create_kept(const mlff_model *student, const mlff_force_field *teacher,
                                              const mlff_dataset *test, const mlff_system *start,
                                              const mlff_verdict_options *options, const char *kept, const char *origin,
                                              mlff_verdict **verdict_out);
/* 1: the file `kept` of mlff_verdict_create_kept has bars of this verdict, or runs beside its teacher, behind which the same call goes on. */
MLFF_API int mlff_verdict_is_kept(const mlff_verdict *verdict);
/* For a verdict of mlff_verdict_create_kept that is complete and saved: removes the bars of its `origin` from the file `kept`. Those of
 * other origins stay there; without any the file is removed. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY, MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_verdict_kept_finish(const mlff_verdict *verdict);
MLFF_API void mlff_verdict_destroy(mlff_verdict *verdict);
/* The bars. Borrowed until the verdict is destroyed. */
MLFF_API const mlff_bar *mlff_verdict_bars(const mlff_verdict *verdict, int *n_out);
/* 1 if every bar was measured and passed. */
MLFF_API int mlff_verdict_passed(const mlff_verdict *verdict);
/* Writes all bars and the settings as one JSON object. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_verdict_save(const mlff_verdict *verdict, const char *path);

/* ---- distillation: sample, label, train, judge -------------------------------------------------- */

/* All of a run's settings; config.json holds them by these names. Strings are borrowed for the call. */
typedef struct mlff_distill_config {
    size_t struct_size;
    const char *teacher; /* as mlff_teacher_open takes it */
    const char *systems; /* "ethanol,water.xyz": built-in systems and files, separated by commas */
    int n_atoms;         /* of built-in systems that have a choice; 0: their own default */
    uint64_t seed;
    /* Structures. n_structures are to be labelled, those of the rounds included (20 at least; 2000); of `labels` they are used at most,
     * chosen by the seed (50 at least; 0: all). */
    int n_structures;
    double lowest_kelvin, highest_kelvin; /* of the teacher's dynamics and the displacements; 300, 1000 */
    int n_probes;                         /* Hessian probes of each structure; 0 */
    int n_rounds; /* of active learning: dynamics by a committee of partly trained students, labels of the frames they agree on least; 0 */
    int committee;                /* students that explore, 1 to 8; 2 */
    double max_teacher_deviation; /* eV/Å: structures of which an ensemble of teachers is less sure are left out; 0: none */
    /* student */
    int n_features, n_layers, n_radial; /* 64, 2, 20 */
    double cutoff_angstrom;             /* 5 */
    /* Onset of a fixed repulsion of nuclei, as a part of the sum of covalent radii; 0: none; 0.7. Of `labels` (1): where a tenth of the
     * structures have closer atoms, and at most this. */
    double core_repulsion;
    /* training */
    int batch_size; /* 8 */
    int64_t n_steps;
    double learning_rate;  /* the peak */
    double huber_forces;   /* eV/Å, mlff_loss; 0.1, of standard and thorough 0.03 */
    const char *optimizer; /* "adamw" or "soap" (mlff_trainer_optimizer); NULL: "adamw"; of presets but demo "soap" */
    /* verdict */
    int baseline; /* 1: another student of the same size, steps and number of labels, without rounds and probes, must not be better */
    double nve_ps, hot_ps, compare_ps, speed_s; /* mlff_verdict_options */
    int hot_runs;
    double max_force_error, max_energy_error, max_drift, min_speed;
    /* Labels that are there, in place of systems that are sampled and labelled. `labels`: "a.extxyz,b.mlff", files as mlff_dataset_read
     * takes them, separated by commas; NULL: none. `labels_hash`: SHA-256 of each file's structures, labels and groups, separated by
     * commas, which mlff_distill sets. */
    const char *labels, *labels_hash;
    const char *systems_hash;  /* SHA-256 of the structures of `systems`, which mlff_distill sets; NULL: not known */
    int n_pressed;             /* mlff_verdict_options; without a teacher the bar is left out */
    double nearer;             /* mlff_trainer_options; 0.03 */
    int n_dynamics;            /* mlff_verdict_options; without a teacher the bar is left out */
    double max_pressure_error; /* mlff_verdict_options */
    double strain;             /* mlff_sample_options; 0.03 */
} mlff_distill_config;
/* "demo", "quick", "standard" or "thorough"; teacher and systems are NULL. Fails with MLFF_ERR_USAGE for another name. */
MLFF_API mlff_status mlff_distill_preset(const char *name, mlff_distill_config *config_out);
/* Makes a preset one of a run from labels that are there: all structures of `labels` (n_structures 0), no rounds, no probes, no baseline,
 * a core_repulsion of 1 at most, and, where the configuration names no teacher to measure beside, no bars that need one
 * (min_speed 0, compare_ps 0, n_pressed 0, n_dynamics 0). */
MLFF_API void mlff_distill_use_labels(mlff_distill_config *config, const char *labels);
/* Writes a configuration as JSON. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_distill_config_save(const mlff_distill_config *config, const char *path);
/* Reads one: keys that are absent keep what `config` has. Strings are stored in `text` of text_bytes. Fails with MLFF_ERR_IO,
 * MLFF_ERR_FORMAT (not JSON, an unknown key, a value out of range), MLFF_ERR_LIMIT for strings that `text` has no room for. */
MLFF_API mlff_status mlff_distill_config_read(const char *path, mlff_distill_config *config, char *text, size_t text_bytes);

typedef struct mlff_distill_progress {
    const char *stage; /* "sample", "label", or "read" of labels that are there; "round", "train", "baseline", "verdict" */
    double fraction;   /* of the stage, 0 to 1 */
    const char *text;  /* one line for people: counts, rates, errors, with units */
    int milestone;     /* 1: worth a line of its own */
} mlff_distill_progress;

typedef struct mlff_distill_options {
    size_t struct_size;
    mlff_device device;                                                    /* that trains and runs the student; CPU */
    int n_threads;                                                         /* 0: all */
    mlff_teacher *teacher;                                                 /* in place of the one config.teacher names; NULL */
    int (*callback)(void *context, const mlff_distill_progress *progress); /* not 0: stop with MLFF_ERR_INTERRUPTED */
    void *context;
    /* In place of the files that config.labels names, which is then any text; a new run writes them to labels.mlff, from which it goes on
     * without them; NULL. */
    const mlff_dataset *labels;
} mlff_distill_options;
MLFF_API mlff_distill_options mlff_distill_options_default(void);

/* Runs every stage in `folder`, which is made if it is not there: config.json and made-with.json, samples.extxyz, labels.mlff, of each
 * round K explored-K.extxyz, labels-K.mlff and round-K.json, checkpoint, history.jsonl, student.safetensors, verdict-parts.jsonl,
 * verdict.json, report.html. With config.labels nothing is sampled or labelled: their structures are checked as mlff_dataset_check
 * does, divided into training, validation and test by whole groups, and the student is judged against the labels of the test; a teacher
 * is measured beside it if one is named. A folder with a config.json is gone on with (and `config` may be NULL): finished stages and
 * bars of the verdict are kept, the others end in the same bits as without the interruption. *passed_out: the verdict. Fails with
 * MLFF_ERR_USAGE for settings that exclude each other, MLFF_ERR_VALUE where `config` is not that of the folder, where config.json was
 * edited but for settings of the verdict, where labels have changed or are too few (50 at least), MLFF_ERR_INTERRUPTED, and as the
 * stages. */
MLFF_API mlff_status mlff_distill(const mlff_distill_config *config, const char *folder, const mlff_distill_options *options,
                                  int *passed_out);

#ifdef __cplusplus
}
#endif
#endif
