#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command from outside: exit status, what is said on stderr, which files are left. One function a test, in files by subject
# (*_tests.sh), which use the functions here.
#   test_cli.sh MLFF JSON_GET NAME
set -uo pipefail
mlff=$(realpath "$1")
json_get=$(realpath "$2")
name=$3
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
shared=${MLFF_SHARED:-$source_folder/../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    for file in out err; do
        [ -s $file ] && { echo "--- $file" >&2; head -c 3000 $file >&2; }
    done
    exit 1
}

# run STATUS ARGUMENTS…: runs the command, checks its exit status; out and err hold what it said.
run() {
    local expected=$1
    shift
    "$mlff" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$expected" ] || fail "exit status $status, expected $expected: mlff $*"
}

# refused STATUS PATTERN ARGUMENTS…: fails with one line on stderr that matches, and leaves no file behind.
refused() {
    local expected=$1 pattern=$2
    shift 2
    local before after
    before=$(ls -A)
    run "$expected" "$@"
    after=$(ls -A)
    grep -aqE -- "$pattern" err || fail "stderr does not match '$pattern': mlff $*"
    [ "$(grep -avc '^mlff: warning: ' err)" = 1 ] || fail "stderr is not one line: mlff $*"
    grep -aq '^mlff: ' err || fail "stderr does not begin with 'mlff: '"
    [ "$(grep -v -e '^out$' -e '^err$' <<<"$before")" = "$(grep -v -e '^out$' -e '^err$' <<<"$after")" ] ||
        fail "files were left behind: $after"
}

says() { # PATTERN [FILE]
    grep -aqE -- "$1" "${2:-out}" || fail "no '$1' in ${2:-out}"
}

value() { # FILE PATH
    "$json_get" "$1" "$2" || fail "$1 holds no $2"
}

is() { # VALUE EXPECTED WHAT
    [ "$1" = "$2" ] || fail "$3 is '$1', expected '$2'"
}

# close_to A B TOLERANCE
close_to() {
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= t) }' || fail "$1 and $2 differ by more than $3"
}

# alike FILE FILE PATH…: numbers of two JSON files within 0.2 %: positions in float32 put a pair into another bin, and are 1e-4 of a
# displacement in 0.5 fs.
alike() {
    local a=$1 b=$2 path
    shift 2
    for path in "$@"; do
        awk -v a="$(value "$a" "$path")" -v b="$(value "$b" "$path")" 'BEGIN { d = a - b; exit !(d * d <= 4e-6 * a * a) }' ||
            fail "$path of $a and $b: $(value "$a" "$path") and $(value "$b" "$path")"
    done
}

model() { # a small untrained model in model.safetensors; ARGUMENTS… add options
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 4.0 --seed 3 -o model.safetensors "$@" >/dev/null 2>err || fail "mlff new"
}

water() {
    printf '3\nProperties=species:S:1:pos:R:3 pbc="F F F"\nO 0 0 0.119\nH 0 0.763 -0.477\nH 0 -0.763 -0.477\n' >water.xyz
}

commands="import new info eval md relax analyze vibrations phonons profile report compare bench check devices kim sample label train distill verdict serve completion manual"

# interrupted ARGUMENTS…: starts a run that would last hours, waits until `ready` (a function) says it goes, sends SIGINT,
# twice at once, as `timeout` does.
interrupted() {
    : >out # the background process empties it only once it has started: `ready` would see an earlier command's lines
    "$mlff" "$@" >out 2>err </dev/null &
    local pid=$! status
    for _ in $(seq 600); do
        ready && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    ready || fail "it never got going"
    kill -INT $pid $pid 2>/dev/null || fail "it was gone before the signal"
    wait $pid
    status=$?
    [ $status = 130 ] || fail "exit status $status, expected 130"
    [ "$(wc -l <err)" = 1 ] || fail "stderr is not one line"
    ls | grep -E '\.[A-Za-z0-9]{6}$' | grep -vE '\.(extxyz|restart)$' && fail "temporary files were left"
    return 0
}

for file in "$source_folder"/tests/cli/*_tests.sh; do
    # shellcheck source=/dev/null
    . "$file"
done

if ! declare -F "test_$name" >/dev/null; then
    echo "test_cli.sh: no test '$name'" >&2
    exit 2
fi
"test_$name"
echo "test_cli $name: good"
