#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every command with one allocation or one system call that fails: it must end with an exit status of its own (no signal), say why
# when it fails, leave a right file or none, and no temporary file.
#   test_faults.sh memory|calls MLFF FOLDER_OF_INJECTORS
# MLFF_FAULTS is the number of places tried for each command and call (memory 40, calls 6; "all": every one), spread evenly.
set -uo pipefail
kind=$1
mlff=$(realpath "$2")
injectors=$(realpath "$3")
limit=${MLFF_FAULTS:-$([ "$kind" = memory ] && echo 40 || echo 6)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1
export MLFF_CUDA_PLUGIN=/nonexistent # CUDA's runtime, linked into the plugin, crashes where memory runs out
n_faults=0 n_failures=0 n_good=0

failure() {
    echo "FAILED: $*" >&2
    [ -s err ] && head -c 600 err >&2
    n_failures=$((n_failures + 1))
}

# injected KIND N COMMAND…: runs the command with fault number N; out and err hold what it said.
injected() {
    local what=$1 at=$2
    shift 2
    if [ "$what" = memory ]; then
        MLFF_FAIL_COUNT=count MLFF_FAIL_AT=$at LD_PRELOAD="$injectors/libfail_allocation.so" "$@" >out 2>err </dev/null
    else
        MLFF_FAIL_COUNT=count "$injectors/fail_call" ${what/:/ } "$at" "$@" >out 2>err </dev/null
    fi
}

# The places tried of $1: evenly spread, at most $limit, the first and the last among them.
places() {
    if [ "$limit" = all ] || [ "$1" -le "$limit" ]; then
        seq "$1"
    else
        awk -v n="$1" -v k="$limit" 'BEGIN { for (i = 0; i < k; i++) print 1 + int(i * (n - 1) / (k - 1)) }'
    fi
}

# Is the file the one that the command writes without a fault?
right() { # HOW FILE
    case $1 in
    same) cmp -s "$2" "expected" ;;
    report) "$mlff" report "$2" --text >/dev/null 2>&1 ;; # has times: it must be read back
    timed) cmp -s <(grep -vE '_s"|per_second' "$2") <(grep -vE '_s"|per_second' expected) ;;
    restart) # the last one or the one before it, whole
        "$mlff" md model.safetensors frames.xyz --device cpu --n-steps 0 --timestep 0.1 --restart "$2" >/dev/null 2>&1
        ;;
    prefix) cmp -s -n "$(stat -c %s "$2")" "$2" expected ;; # a trajectory grows in place
    esac
}

# check KIND HOW FILE ARGUMENTS…: all faults of one kind in one command, which writes FILE.
check() {
    local what=$1 how=$2 file=$3 n at status before
    shift 3
    rm -f "$file"
    injected "$what" 0 "$mlff" "$@" || { failure "without a fault: exit status $?: $*"; return; }
    n=$(cat count)
    [ "$n" -gt 0 ] || return # this command makes no such call
    if [ "$file" = - ]; then cp out expected; else cp "$file" expected; fi
    for at in $(places "$n"); do
        [ "${what/ */}/$at" != mmap:ENOMEM/1 ] || continue # the loader's own first mapping: glibc crashes before main
        rm -f "$file"
        before=$(ls -A)
        injected "$what" "$at" "$mlff" "$@"
        status=$?
        n_faults=$((n_faults + 1))
        case $status in
        0)
            n_good=$((n_good + 1))
            local accepted=$how
            [ "$how" = prefix ] && accepted=same
            if [ "$file" = - ]; then
                [ "$how" = any ] || cmp -s out expected || failure "$what $at of $n: exit status 0 and wrong output: $*"
            else
                right "$accepted" "$file" || failure "$what $at of $n: exit status 0 and a wrong file: $*"
            fi
            ;;
        1 | 2 | 127)
            [ -s err ] || failure "$what $at of $n: exit status $status without a word: $*"
            [ "$what" != memory ] || grep -qiE 'memory|allocate' err || failure "$what $at of $n: wrong cause: $*"
            [ ! -e "$file" ] || right "$how" "$file" || failure "$what $at of $n: failed and left a wrong file: $*"
            ;;
        *) failure "$what $at of $n: exit status $status: $*" ;;
        esac
        [ "$(ls -A | grep -vxF -e "$file")" = "$(grep -vxF -e "$file" <<<"$before")" ] ||
            { failure "$what $at of $n: left files: $*: $(ls -A | tr '\n' ' ')"; rm -f ./*.????????; }
    done
}

commands() { # KIND
    check "$1" same new.safetensors new --arch painn --features 8 --layers 1 --elements H,O -o new.safetensors
    check "$1" same new.safetensors new --arch ani --members 1 --hidden 4,4,4 --elements H,O -o new.safetensors
    check "$1" any - info model.safetensors
    check "$1" same results.extxyz eval model.safetensors frames.xyz --device cpu -o results.extxyz
    check "$1" same relaxed.extxyz relax model.safetensors frames.xyz --device cpu --max-steps 3 -o relaxed.extxyz
    check "$1" timed results.json eval model.safetensors frames.xyz --device cpu --json results.json
    check "$1" prefix md.extxyz md model.safetensors frames.xyz --device cpu --n-steps 4 --every 2 --timestep 0.1 -o md.extxyz
    check "$1" restart first.restart md model.safetensors frames.xyz --device cpu --n-steps 2 --timestep 0.1 --checkpoint first.restart
    check "$1" prefix md.extxyz md model.safetensors frames.xyz --device cpu --n-steps 4 --every 2 --timestep 0.1 --restart start.restart -o md.extxyz
    check "$1" same page.html report report.json -o page.html
    check "$1" report other.json profile model.safetensors --system h2o --device cpu --runs 2 --n-steps 2 -o other.json
    check "$1" report profile.json profile model.safetensors frames.xyz --device cpu --n-steps 2 --warmup 1 -o profile.json
    check "$1" any - devices
}

"$mlff" new --arch painn --features 8 --layers 1 --elements H,O -o model.safetensors >/dev/null || exit 1
for k in 1 2 3; do
    printf '3\nProperties=species:S:1:pos:R:3 energy=-%s\nO 0 0 0\nH 0.96 0 0.0%s\nH -0.24 0.93 0\n' $k $k
done >frames.xyz
"$mlff" profile model.safetensors frames.xyz --device cpu --n-steps 5 -o report.json >/dev/null || exit 1
"$mlff" profile model.safetensors frames.xyz --device cpu --n-steps 5 -o other.json >/dev/null || exit 1
"$mlff" md model.safetensors frames.xyz --device cpu --n-steps 2 --timestep 0.1 --checkpoint start.restart >/dev/null || exit 1

if [ "$kind" = memory ]; then
    commands memory
else
    for call in open:EMFILE read:EIO write:ENOSPC fsync:EIO rename:EIO mmap:ENOMEM ftruncate:EIO; do commands $call; done
fi
echo "$kind: $n_faults faults injected, $n_good without effect on the result, $n_failures failures"
[ $n_failures = 0 ] && [ $n_faults -gt 100 ] # none at all: the injector is not in effect
