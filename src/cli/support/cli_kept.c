// SPDX-License-Identifier: MIT
// cli_kept.c: a run that ends early keeps what is done, and tells where it is and how it goes on.
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"

cli_kept cli_kept_begin(mlff_status cause)
{
    cli_kept kept = {.cause = cause};
    snprintf(kept.error, sizeof kept.error, "%s", mlff_last_error());
    return kept;
}

void cli_kept_thing(cli_kept *kept, const char *path, const char *what)
{
    const size_t length = strlen(kept->text);
    snprintf(kept->text + length, sizeof kept->text - length, "%s%s in %s", length ? " and " : "", what, path);
}

void cli_kept_add(cli_kept *kept, const char *path, int64_t n, const char *what)
{
    char counted[64];
    if (!kept->any_output || n < kept->n_least) kept->n_least = n;
    kept->any_output = true;
    snprintf(counted, sizeof counted, "%" PRId64 " %s%s", n, what, base_plural(n));
    if (n > 0) cli_kept_thing(kept, path, counted);
}

void cli_kept_frames(cli_kept *kept, mlff_writer *writer, const char *what)
{
    char path[PATH_MAX];
    int64_t n = 0;
    if (!writer) return;
    if (mlff_writer_keep(writer, path, sizeof path, &n) != MLFF_OK) cli_say("no %s could be kept: %s", what, mlff_last_error());
    cli_kept_add(kept, path, n, what);
}

mlff_status cli_kept_tell(const cli_kept *kept, const char *remedy)
{
    if (!*kept->text) return mlff_fail(kept->cause, "%s", kept->error);
    return mlff_fail(kept->cause, "%s; kept: %s; %s", kept->error, kept->text, remedy);
}

mlff_status cli_kept_tell_skip(const cli_kept *kept, int64_t n_before)
{
    char remedy[96];
    snprintf(remedy, sizeof remedy, "go on with --skip %" PRId64 " and another -o", n_before + kept->n_least);
    return cli_kept_tell(kept, remedy);
}
