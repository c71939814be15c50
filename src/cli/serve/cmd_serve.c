// SPDX-License-Identifier: MIT
// cmd_serve.c: mlff serve: forces for a program that runs the dynamics, over the i-PI protocol.
#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "ipi.h"

static const cli_option options[] = {{"unix", 0, "NAME", "the server's UNIX socket, /tmp/ipi_NAME (or a path); faster than TCP"},
                                     {"host", 0, "H", "the server's host, for TCP (localhost)"},
                                     {"port", 0, "P", "the server's port, for TCP (31415)"},
                                     {"wait", 0, "S", "seconds to wait for a server that is not there yet (10)"},
                                     CLI_SYSTEM_OPTIONS,
                                     CLI_READER_OPTIONS,
                                     CLI_EVALUATOR_OPTIONS,
                                     {0}};

static mlff_status compute(void *context, const mlff_system *system, double *energy, double *forces, double *virial)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    mlff_results results = {.energies = energy, .forces = forces, .virials = virial};
    mlff_status status = mlff_system_check(system, "what the server sent");
    return status == MLFF_OK ? mlff_evaluator_compute(context, &batch, &results) : status;
}

// The protocol carries a virial with every answer. A predicted stress gives one where there is a volume.
static mlff_status check_virials(const mlff_model *model, const mlff_system *system)
{
    mlff_model_info info;
    const unsigned outputs = mlff_model_outputs(model);
    const bool repeats = system->periodic[0] && system->periodic[1] && system->periodic[2];
    if (outputs & MLFF_OUTPUT_VIRIALS || (outputs & MLFF_OUTPUT_STRESS && repeats)) return MLFF_OK;
    mlff_model_info_get(model, &info);
    return mlff_fail(
        MLFF_ERR_UNSUPPORTED,
        "%s (%s) has no virial, which the i-PI protocol carries with every step: its forces are not the derivative of "
        "its energy, and %s; use mlff md",
        info.name, info.architecture,
        outputs & MLFF_OUTPUT_STRESS ? "it predicts a stress only for systems that repeat along three axes"
                                     : "it predicts no stress");
}

static int run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    const char *path = arguments->n_positional > 1 ? arguments->positional[1] : NULL;
    cli_setup setup = {0};
    cli_input input = {0};
    int socket = -1;
    int64_t n_steps = 0;
    ipi_address address = {
        .unix_name = cli_text(arguments, "unix", NULL),
        .host = cli_text(arguments, "host", "localhost"),
        .port = (int)cli_int(arguments, "port", 1, 65535, 31415),
        .wait_s = cli_number(arguments, "wait", 0, 1e6, 10),
    };

    if (arguments->failed) return CLI_USAGE;
    if (address.unix_name && (cli_given(arguments, "host") || cli_given(arguments, "port")))
        return cli_usage_error(arguments, "--unix and --host or --port exclude each other");
    int exit_status = cli_setup_make(arguments, &setup);
    if (exit_status == CLI_GOOD) exit_status = cli_input_make(arguments, path, NULL, 0, &input);
    if (exit_status != CLI_GOOD) {
        cli_setup_free(&setup);
        return exit_status;
    }
    MLFF_TRY(cli_input_check(setup.model, &input));
    MLFF_TRY(check_virials(setup.model, input.system));
    cli_interrupt_catch();
    cli_setup_print(&setup);
    cli_print("%s; waiting for a server\n", input.text);
    fflush(stdout);
    MLFF_TRY(ipi_connect(&address, &socket));
    puts("connected");
    fflush(stdout);
    int64_t start = mlff_clock_ns();
    status = ipi_serve(socket, input.system, compute, setup.evaluator, &n_steps);
    double seconds = (double)(mlff_clock_ns() - start) * 1e-9;
    printf("%" PRId64 " step%s in %.3f s", n_steps, base_plural(n_steps), seconds);
    if (n_steps > 0) printf(", %.4g ms a step with the server's own time", 1e3 * seconds / (double)n_steps);
    putchar('\n');
done:
    if (socket >= 0) close(socket);
    cli_input_free(&input);
    cli_setup_free(&setup);
    return cli_exit(status);
}

const cli_command serve_command = {
    .name = "serve",
    .summary = "energies and forces for another program's dynamics (i-PI protocol)",
    .usage = "MODEL [INPUT | --system NAME] [--unix NAME | --host H --port P] [OPTIONS]",
    .details = "Connects to a server of the i-PI protocol (i-PI itself, ASE's SocketIOCalculator). Computes energy, forces and "
               "virial of\n"
               "the positions that it sends, until it sends EXIT or closes the connection. The protocol does not contain the "
               "elements of\n"
               "the atoms, their order, or the periodic axes; these are taken from the first frame of INPUT.\n"
               "From Python, on the same atoms:  SocketIOCalculator(unixsocket=\"NAME\")",
    .examples = "mlff serve ethanol.safetensors ethanol.xyz --unix mlff\n"
                "mlff serve silicon.safetensors silicon.extxyz --host localhost --port 31415 --device cuda",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run,
};
