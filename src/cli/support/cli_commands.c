// SPDX-License-Identifier: MIT
// cli_commands.c: the table of subcommands.
#include "cli.h"

// In the order of the help: models, simulation, distillation, measurement, other programs, the command itself.
const cli_command *const cli_commands[] = {
    &import_command, &new_command,     &info_command,       &eval_command,    &md_command,
    &relax_command,  &analyze_command, &vibrations_command, &phonons_command, &distill_command,
    &sample_command, &label_command,   &train_command,      &verdict_command, &profile_command,
    &report_command, &compare_command, &bench_command,      &serve_command,   &kim_command,
    &check_command,  &devices_command, &completion_command, &manual_command,  NULL};
