// SPDX-License-Identifier: MIT
// fuzz_round.c: any bytes as the record of a round of exploration that a distillation goes on from: refused, or a count that can be one.
#include "fuzz/fuzz_file.h"
#include "train/running/distill.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    int64_t n_structures = -1;
    double upper_deviation;
    if (length > 1 << 16) return 0;
    const mlff_status status = distill_round_read(fuzz_file(bytes, length), &n_structures, &upper_deviation);
    fuzz_demand_text(status);
    if (status == MLFF_OK)
        fuzz_demand(n_structures >= 0 && n_structures <= 1000000000, "a round has a number of structures");
    else
        fuzz_demand(n_structures == -1, "a record that is refused gives no number");
    return 0;
}
