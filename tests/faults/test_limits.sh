#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Commands where something is always absent: no large block of memory, no /proc; and where memory leaks.
#   test_limits.sh MLFF FOLDER_OF_INJECTORS
set -uo pipefail
mlff=$(realpath "$1")
injectors=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1 MLFF_CUDA_PLUGIN=/nonexistent
n_failures=0

expect() { # PATTERN FILE WHAT
    grep -qE "$1" "$2" && return
    echo "FAILED: $3: no \"$1\" in $2:" >&2
    head -c 2000 "$2" >&2
    n_failures=$((n_failures + 1))
}

"$mlff" new --arch painn --features 8 --layers 1 --elements H,O -o model.safetensors >/dev/null || exit 1

# The bandwidth test takes 96 MB; a profile without it has its times and says what it lacks.
MLFF_FAIL_ABOVE=33554432 LD_PRELOAD=$injectors/libfail_allocation.so \
    "$mlff" profile model.safetensors --system h2o --device cpu --n-steps 20 -o small.json >out 2>err </dev/null
expect '^0$' <(echo $?) "exit status with at most 32 MB in one block"
expect '"notes": .*no memory for the bandwidth test' small.json "a profile without a bandwidth test"
"$mlff" report small.json --text >text 2>&1
expect 'no memory for the bandwidth test' text "its report"

# Without /proc/self/statm the growth of memory is not known, and not said to be small.
LD_PRELOAD=$injectors/libhide_files.so MLFF_HIDE=/proc \
    "$mlff" profile model.safetensors --system h2o --device cpu --n-steps 20 -o blind.json >out 2>err </dev/null
expect '^0$' <(echo $?) "exit status without /proc"
for key in memory_stable memory_initial_gb memory_final_gb memory_peak_gb memory_delta_gb; do
    expect "\"$key\": null" blind.json "$key without /proc"
done
for form in --text "-o page.html"; do
    "$mlff" report blind.json $form >text 2>&1
    expect '^0$' <(echo $?) "exit status of report $form"
    [ "$form" = "-o page.html" ] && cp page.html text
    expect 'not measured' text "report $form"
done

# A leak is the exit status, also in processes of their own; the reports are kept.
for kind in "" "--runs 2" "--system-sizes 3"; do
    LD_PRELOAD=$injectors/libleak_memory.so \
        "$mlff" profile model.safetensors --system h2o --device cpu --n-steps 1000 -o leak.json $kind >out 2>err </dev/null
    expect '^1$' <(echo $?) "exit status of a leak, $kind"
    expect '^mlff: memory leaks' <(tail -n 1 err) "a leak, $kind"
    expect '"leak": "growing"' leak.json "the report of a leak, $kind"
done
exit $((n_failures > 0))
