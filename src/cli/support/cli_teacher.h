// SPDX-License-Identifier: MIT
// cli_teacher.h: what the commands that ask a teacher share.
#ifndef CLI_TEACHER_H
#define CLI_TEACHER_H

#include "cli.h"
#include "mlff_label.h"

#define CLI_TEACHER_OPTIONS                                                                                                      \
    {"device", 0, "DEVICE", "of a model: auto, cpu, cuda:0 or cuda:0,1 (auto: a GPU if one works, else the CPU)"},               \
        {"precision", 0, "PRECISION",                                                                                            \
         "of a model: float32, float64 (CPU), on a GPU tf32, bf16; CPU: tf32 with AMX, bf16 of Orb (float32)"},                  \
        {"threads", 0, "N", "CPU threads of a model, processes of xtb and KIM (all cores this process may use)"},                \
    {                                                                                                                            \
        "timeout", 0, "SECONDS", "xtb and KIM: longest time for one structure, s (120)"                                          \
    }
#define CLI_TEACHER_DETAILS                                                                                                      \
    "TEACHER is a model (file or name; an ensemble such as ANI-2x also gives its uncertainty), xtb:gfn2 or xtb:gfn1\n"           \
    "(libxtb 6.5, Debian's libxtb6), or kim:MODEL (a portable model of the KIM API 2.3, Debian's openkim-models has some).\n"    \
    "Other calculators teach through Python: mlff_distiller.distill.\n"

// Opens the teacher `name` with these options. An exit status; CLI_GOOD has set the teacher.
int cli_teacher_open(cli_arguments *arguments, const char *name, mlff_teacher **teacher_out);
// "300,600,1000" into values; the option's value must have 1 to `most` numbers above 0. Sets `failed` and says so if not.
int cli_teacher_numbers(cli_arguments *arguments, const char *option, double *values, int most, int n_otherwise);

#endif
