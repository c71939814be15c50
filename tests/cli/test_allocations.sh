#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# One allocation fails, at each of many places of each command: no crash, and either the output of a good run or an exit status
# other than 0 with no output at all and a line on stderr.
#   test_allocations.sh MLFF LIBRARY [POINTS]     POINTS places of each command (40), spread over all its allocations; 0: every one
set -uo pipefail
mlff=$(realpath "$1")
library=$(realpath "$2")
points=${3:-${MLFF_ALLOCATION_POINTS:-40}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
n_bad=0
n_runs=0

complain() {
    echo "FAILED: $*" >&2
    [ -s err ] && head -c 600 err >&2
    n_bad=$((n_bad + 1))
}

# inject OUTPUT ARGUMENTS...: the command's output file ("" for none) and the command.
inject() {
    local output=$1 total step n status
    shift
    rm -f result*
    "$mlff" "$@" >good.out 2>err </dev/null || { complain "the command fails by itself: mlff $*"; return; }
    [ -z "$output" ] || mv "$output" good.file
    MLFF_COUNT_ALLOCATIONS=count LD_PRELOAD=$library "$mlff" "$@" >out 2>err </dev/null
    total=$(cat count)
    rm -f result*
    step=$((points == 0 || total <= points ? 1 : total / points))
    for ((n = 1; n <= total; n += step)); do
        n_runs=$((n_runs + 1))
        MLFF_FAIL_ALLOCATION=$n LD_PRELOAD=$library timeout 60 "$mlff" "$@" >out 2>err </dev/null
        status=$?
        if [ $status -ge 124 ]; then
            complain "exit status $status with allocation $n of $total: mlff $*"
        elif [ $status = 0 ]; then
            [ -z "$output" ] || cmp -s "$output" good.file || complain "success with another $output, allocation $n of $total: mlff $*"
        else
            [ -s err ] || complain "no word on stderr, allocation $n of $total: mlff $*"
            # A trajectory grows in place: the frames of a run that ended early stay.
            [ -z "$output" ] || [ ! -e "$output" ] || cmp -s "$output" good.file ||
                { [ "$1" = md ] && cmp -s -n "$(stat -c %s "$output")" "$output" good.file; } ||
                complain "failure leaves a different $output, allocation $n of $total: mlff $*"
        fi
        rm -f result*
    done
    echo "$1: $(((total + step - 1) / step)) of $total allocations failed one at a time"
}

"$mlff" new --arch painn --features 8 --layers 1 --rbf 4 --elements H,O --seed 1 -o model.safetensors >/dev/null || exit 1
printf '3\nProperties=species:S:1:pos:R:3\nO 0 0 0\nH 0.96 0 0\nH -0.24 0.93 0\n' >water.xyz
inject result.safetensors new --arch painn --features 8 --layers 1 --rbf 4 --elements H,O --seed 1 -o result.safetensors
inject "" info model.safetensors
inject result.extxyz eval model.safetensors water.xyz -o result.extxyz --device cpu --threads 1
inject result.json eval model.safetensors water.xyz --json result.json --device cpu --threads 1
inject result.extxyz md model.safetensors water.xyz --n-steps 3 --every 1 --timestep 0.1 -o result.extxyz --device cpu --threads 1
inject result.extxyz sample model.safetensors water.xyz --n-samples 4 -o result.extxyz --threads 1
inject result.extxyz label model.safetensors water.xyz -o result.extxyz --threads 1
echo "$n_runs runs, $n_bad bad"
[ $n_bad = 0 ]
