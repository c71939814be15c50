#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command from outside: exit status, what is said on stderr, which files are left. One function a test.
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

test_help() {
    run 0 --help
    for command in $commands; do says "^  $command "; done
    run 0 help
    run 0 --version
    says '^mlff [0-9]+\.[0-9]+\.[0-9]+$'
    run 0 -v
    for command in $commands; do
        run 0 help $command
        cp out by_help
        run 0 $command --help
        cmp -s out by_help || fail "help $command and $command --help differ"
        run 0 $command -h
        says '^usage:' && says '^options:' && says '^examples:' && says "^  mlff $command "
        [ "$(awk '{ if (length($0) > 140) n++ } END { print n + 0 }' out)" = 0 ] || fail "help of $command has lines over 140 columns"
        [ ! -s err ] || fail "help of $command writes to stderr"
    done
    # The issue's flags are a contract.
    declare -A contract=(
        [import]="--energy-unit --length-unit --elements -o"
        [new]="--arch --features --layers --rbf --cutoff --seed -o"
        [eval]="--stress -o --json --device --precision"
        [md]="--system --n-atoms --ensemble --temperature --timestep --n-steps --seed -o --every --device --precision"
        [profile]="--system --n-atoms --trajectory --n-steps --warmup --properties -o --device --precision"
        [check]="--verbose --export-json"
    )
    for command in "${!contract[@]}"; do
        run 0 $command --help
        for flag in ${contract[$command]}; do says "(^|[ ,])$flag([ ,]|$)"; done
    done
}

test_usage() {
    run 2
    says '^usage:' err
    refused 2 "'nonsense' is not a command; see mlff --help" nonsense
    refused 2 "'nonsense' is not a command" help nonsense
    for command in $commands; do
        refused 2 "^mlff: $command: unknown option '--nonsense'; see mlff $command --help$" $command --nonsense
        refused 2 "^mlff: $command: unknown option '-Q'" $command -Q
    done
    for command in import info eval md profile; do refused 2 "argument is missing; see mlff $command --help" $command; done
    refused 2 "option '--n-steps' needs a value" profile model --n-steps
    refused 2 "option '-o' needs a value" new --arch painn -o
    refused 2 "takes no value" eval model water.xyz --stress=1
    refused 2 "'extra' is one argument too many" info model extra
    refused 2 "'extra' is one argument too many" eval model water.xyz extra
    refused 2 "one argument too many" check extra
    refused 2 "--arch NAME is missing" new -o x.safetensors
    refused 2 "-o FILE is missing" new --arch painn
    refused 2 "--arch 'gpt' is not one of" new --arch gpt -o x.safetensors
    refused 2 "n_layers is '0', not a whole number from 1 to 16" new --arch painn --layers 0 -o x.safetensors
    refused 2 "cutoff is 'nan', not a number" new --arch painn --cutoff nan -o x.safetensors
    refused 2 "--energy-unit 'erg' is not one of" import in -o out.safetensors --energy-unit erg
    refused 2 "give -o FILE or --install NAME" import in
    refused 2 "not both" import in -o out.safetensors --install out
    refused 2 "'a/b' is not a name of a model" import in --install a/b
    refused 2 "'fish' is not a shell" completion fish
    refused 2 "'nonsense' is not a command" manual nonsense
    model
    water
    refused 2 "--n-steps '1.5' is not a whole number" profile model.safetensors --n-steps 1.5
    refused 2 "--skin '-1' is not a number from 0 to 10" profile model.safetensors --skin -1
    refused 2 "--n-steps '' is not a whole number" profile model.safetensors --n-steps ''
    refused 2 "--n-steps '99999999999999999999' is not" profile model.safetensors --n-steps 99999999999999999999
    refused 2 "--precision 'float16' is not one of" eval model.safetensors water.xyz --precision float16
    refused 2 "abacus" eval model.safetensors water.xyz --device abacus
    refused 2 "not a list of energy, forces, stress" profile model.safetensors --properties energy,mass
    refused 2 "needs an INPUT" profile model.safetensors --trajectory file
    refused 2 "needs forces" profile model.safetensors --trajectory md --properties energy
    refused 2 "exclude each other" md model.safetensors water.xyz --system silicon
    refused 2 "--n-atoms goes with --system" md model.safetensors water.xyz --n-atoms 5
    refused 2 "INPUT file or --system NAME is missing" md model.safetensors
    refused 2 "unobtainium" md model.safetensors --system unobtainium
    refused 2 "cannot both have standard output" eval model.safetensors water.xyz --json - -o -
    refused 2 "cannot both have standard output" md model.safetensors water.xyz --json -o -
    refused 2 "needs --checkpoint" md model.safetensors water.xyz --checkpoint-every 5
}

test_new() {
    run 0 new --arch painn --features 32 --layers 2 --rbf 10 --cutoff 4.5 --seed 7 --elements H,O -o a.safetensors
    says 'untrained'
    run 0 new --arch painn --features 32 --layers 2 --rbf 10 --cutoff 4.5 --seed 7 --elements H,O -o b.safetensors
    cmp -s a.safetensors b.safetensors || fail "the same seed gives different files"
    run 0 new --arch painn --features 32 --layers 2 --rbf 10 --cutoff 4.5 --seed 8 --elements H,O -o b.safetensors
    cmp -s a.safetensors b.safetensors && fail "another seed gives the same file"
    refused 1 'no_such_folder' new --arch painn -o no_such_folder/a.safetensors
    refused 1 'folder' new --arch painn -o .
    run 0 new --arch painn --features 16 --radial-basis bessel --cutoff-function mollifier --shared-filters --shared-interactions -o c.safetensors
    refused 2 "n_features is '1025', not a whole number from 2 to 1024" new --arch painn --features 1025 -o d.safetensors
    refused 2 'features does not go with --arch ani' new --arch ani --features 64 -o d.safetensors
    refused 2 'members does not go with --arch painn' new --arch painn --members 2 -o d.safetensors
    refused 2 'such as 160,128,96' new --arch ani --hidden 10,,10 -o d.safetensors
    refused 2 'such as H,C,N,O' new --arch ani --elements H,Q -o d.safetensors
    run 0 new --arch painn --set n_features=32 --set n_layers=2 --rbf 10 --cutoff 4.5 --set seed=8 --set elements=H,O -o set.safetensors
    says 'seed 8'
    cmp -s set.safetensors b.safetensors || fail "--set and options give different files"
    refused 2 "no setting 'n_heads'; it has n_features" new --arch orb-v2 --set n_heads=16 -o d.safetensors
    refused 2 "'n_features' is given twice" new --arch painn --features 32 --set n_features=32 -o d.safetensors
    refused 2 'takes NAME=VALUE' new --arch painn --set n_features -o d.safetensors
    refused 2 'takes NAME=VALUE' new --arch painn --set =3 -o d.safetensors
    [ ! -e d.safetensors ] || fail "a refused setting left a file"
    run 0 new --arch ani --members 2 --elements H,C,O --hidden 32,16 --seed 3 -o ani.safetensors
    says 'untrained' && says '2 members' && says 'H,C,O'
    run 0 new --arch ani --members 2 --elements H,C,O --hidden 32,16 --seed 3 -o again.safetensors
    cmp -s ani.safetensors again.safetensors || fail "the same seed gives different files"
    water
    run 0 eval ani.safetensors water.xyz --device cpu
    says 'untrained'
}

test_info() {
    model --elements H,C,O
    run 0 info model.safetensors
    says 'painn' && says 'untrained' && says 'H, C, O' && says 'cutoff +4 Å'
    run 0 info model.safetensors --json
    cp out info.json
    is "$(value info.json architecture)" painn architecture
    is "$(value info.json trained)" false trained
    is "$(value info.json elements)" 3 "number of elements"
    is "$(value info.json n_layers)" 2 layers
    is "$(value info.json outputs.4)" virials "results of the model"
    is "$(value info.json cutoff_angstrom)" 4 cutoff
    run 0 info model.safetensors --precisions --json
    cp out info.json
    is "$(value info.json precisions.system)" C2H6O "the system measured on"
    is "$(value info.json precisions.force_errors.0.precision)" float32 "the first precision"
    awk "BEGIN { e = $(value info.json precisions.force_errors.0.relative_rms); exit !(e > 0 && e < 1e-4) }" || fail "float32's error"
    refused 2 'does not know all elements' info model.safetensors --precisions --system silicon
    refused 2 'needs --precisions' info model.safetensors --system benzene
    cp model.safetensors $'m\xff\xc3\xa9"\\.safetensors' # no UTF-8, UTF-8, and what JSON must quote
    run 0 info $'m\xff\xc3\xa9"\\.safetensors' --json
    cp out info.json
    is "$(value info.json path)" $'m\xef\xbf\xbd\xc3\xa9"\\.safetensors' "path"
    refused 1 'no_such_file' info no_such_file
    head -c 100 model.safetensors >cut.safetensors
    refused 1 'cut.safetensors' info cut.safetensors
    : >empty.safetensors
    refused 1 'empty.safetensors' info empty.safetensors
}

test_import() {
    refused 1 'no_such_file' import no_such_file -o out.safetensors --energy-unit eV
    printf 'PK\003\004 but no more' >cut.zip
    refused 1 'cut.zip' import cut.zip -o out.safetensors --energy-unit eV
    refused 1 'cut.zip' import cut.zip -o new/folder/out.safetensors --energy-unit eV
    export XDG_DATA_HOME=$work/data
    local good=$source_folder/tests/fuzz/corpus/schnetpack/good
    run 0 import "$good" -o new/folder/out.safetensors --energy-unit eV --elements H
    run 0 import "$good" --install installed --energy-unit eV --elements H
    cmp new/folder/out.safetensors data/mlff/models/installed.safetensors || fail "--install wrote another model"
    run 0 info installed
    refused 1 'cut.zip.*Not a directory' import "$good" -o cut.zip/out.safetensors --energy-unit eV
    refused 2 'would overwrite' import installed --install installed
    if [ ! -d "$shared/data/painn" ]; then
        echo "skipped: trained models (no $shared/data/painn)"
        return
    fi
    local data=$shared/data/painn
    refused 1 'so3net' import "$data/not-painn-so3net.model" -o out.safetensors --energy-unit eV
    head -c 200000 "$data/ethanol.best_model" >cut.zip
    refused 1 'cut.zip' import cut.zip -o out.safetensors --energy-unit eV
    run 0 import "$data/ethanol.best_model" -o ethanol.safetensors --energy-unit kcal/mol --elements H,C,O
    [ ! -s err ] || fail "import with --elements warns"
    run 0 info ethanol.safetensors --json
    cp out info.json
    is "$(value info.json trained)" true trained
    is "$(value info.json elements)" 3 "number of elements"
    run 0 import "$data/ethanol.best_model" -o unknown.safetensors --energy-unit kcal/mol
    is "$(grep -c '^mlff: warning: ' err)" 1 "number of warnings about unknown elements"
    run 0 eval ethanol.safetensors "$data/ethanol.xyz"
}

test_eval() {
    model
    water
    cat water.xyz water.xyz water.xyz >three.xyz
    run 0 eval model.safetensors three.xyz --json result.json -o result.extxyz
    says '3 frames' && says 'untrained'
    refused 1 'tf32 is a fast mode of GPUs' eval model.safetensors water.xyz --device cpu --precision tf32
    is "$(value result.json frames)" 3 "number of frames"
    is "$(value result.json frames.0.n_atoms)" 3 n_atoms
    is "$(value result.json frames.2.forces_ev_per_ang)" 3 "number of forces"
    is "$(value result.json frames.2.forces_ev_per_ang.1)" 3 "components of a force"
    is "$(value result.json frames.0.stress_ev_per_ang3)" null stress
    is "$(value result.json summary.n_frames)" 3 summary.n_frames
    is "$(value result.json summary.trained)" false summary.trained
    "$json_get" result.json summary.energy_mae_ev_per_atom >/dev/null 2>&1 && fail "an error without labels"
    local energy sum=0
    energy=$(value result.json frames.0.energy_ev)
    for i in 0 1 2; do sum=$(awk -v a="$sum" -v b="$(value result.json frames.0.atom_energies_ev.$i)" 'BEGIN { printf "%.17g", a + b }'); done
    close_to "$energy" "$sum" 1e-9 # the same doubles, summed in another order
    # What was written is read back: as labels, they agree with a second run.
    run 0 eval model.safetensors result.extxyz --json again.json
    is "$(value again.json summary.n_labelled_energies)" 3 "labelled frames"
    close_to "$(value again.json summary.energy_mae_ev_per_atom)" 0 1e-7 # digits of the file
    close_to "$(value again.json summary.forces_mae_ev_per_ang)" 0 1e-7
    run 0 eval model.safetensors water.xyz --json -
    cp out stdout.json
    is "$(value stdout.json frames.0.energy_ev)" "$energy" "energy on standard output"
    run 0 eval model.safetensors water.xyz --precision float64 --json double.json
    close_to "$(value double.json frames.0.energy_ev)" "$energy" 1e-3 # float32 against float64 for random weights
    "$mlff" eval model.safetensors - <water.xyz >out 2>err || fail "eval of standard input"
    # Stress where all axes repeat.
    printf '2\nLattice="5 0 0 0 5 0 0 0 5" pbc="T T T" Properties=species:S:1:pos:R:3\nSi 0 0 0\nSi 1.4 1.3 1.2\n' >cell.xyz
    run 0 eval model.safetensors cell.xyz --stress --json stress.json
    is "$(value stress.json frames.0.stress_ev_per_ang3)" 6 "components of the stress"
    run 0 eval model.safetensors cell.xyz --json stress.json
    is "$(value stress.json frames.0.stress_ev_per_ang3)" null "stress not asked for"
}

# Frames of different sizes and cells, several in a call: the results of one by one, to the bit; a frame that fails is named,
# and what stands before it is shown.
test_eval_batch() {
    model
    water
    printf '2\nLattice="5 0 0 0 5 0 0 0 5" pbc="T T T" Properties=species:S:1:pos:R:3\nSi 0 0 0\nSi 1.4 1.3 1.2\n' >cell.xyz
    printf '1\n\nO 0 0 0\n' >one.xyz
    printf '2\n\nO 0 0 0\nO 0 0 0\n' >point.xyz
    cat water.xyz cell.xyz one.xyz water.xyz cell.xyz cell.xyz one.xyz >many.xyz
    run 0 eval model.safetensors many.xyz --stress --json - --device cpu
    grep -v '"compute_time_s"\|"batch"' out >one_by_one
    for batch in 2 3 7 50; do
        run 0 eval model.safetensors many.xyz --stress --json - --batch $batch --device cpu
        is "$(value out summary.batch)" $batch "batch of the summary"
        grep -v '"compute_time_s"\|"batch"' out | cmp -s - one_by_one || fail "--batch $batch gives other results than one by one"
    done
    run 0 eval fennol-ani2x water.xyz --random-weights --uncertainty --device cpu --json alone.json
    cat water.xyz water.xyz >two.xyz
    run 0 eval fennol-ani2x two.xyz --random-weights --uncertainty --device cpu --batch 2 --json both.json
    for key in energy_ev member_energies_ev.5 energy_deviation_ev force_deviations_ev_per_ang.1.2; do
        is "$(value both.json frames.1.$key)" "$(value alone.json frames.0.$key)" "$key in a batch"
    done
    cat water.xyz one.xyz point.xyz water.xyz >bad.xyz
    run 1 eval model.safetensors bad.xyz --batch 4 --device cpu
    says 'bad.xyz, frame 2:' err
    says '^ +1 +1 ' out
    cat water.xyz one.xyz >cut.xyz
    printf '3\n\nO 0 0 0\n' >>cut.xyz
    run 1 eval model.safetensors cut.xyz --batch 4 --device cpu
    says '^ +1 +1 ' out
    refused 2 'batch' eval model.safetensors water.xyz --batch 0
}

test_train_leaves_out_strain() {
    printf '%s\n' 2 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 pbc="F F F"' 'H 0 0 0 9 0 0' 'H 0 0 0.8 -9 0 0' \
        2 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-2.5 pbc="F F F"' 'H 0 0 0 0 0.5 0' 'H 0 0 0.9 0 -0.5 0' >labels.xyz
    run 0 train labels.xyz --validation labels.xyz --largest-force 5 --steps 2 --features 8 --layers 1 --device cpu -o kept.safetensors
    says '2 structures left out, with a force above 5 eV' out # one of each file
    says '1 structure trained, 1 validated' out
    run 0 info kept.safetensors
    says 'training.data_hash +[0-9a-f]{64}' out
}

# A structure that is trained on and turned about (1, 1, 1), its atoms in another order, is no new one.
test_copies() {
    local columns='Properties=species:S:1:pos:R:3:forces:R:3'
    printf '%s\n' 3 "$columns energy=-1.5" 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >train.xyz
    printf '%s\n' 3 "$columns energy=-1.5" 'H 0 0.96 0 0 0 0' 'O 0 0 0 0 0 0' 'H 0.93 -0.24 0 0 0 0' >turned.xyz
    printf '%s\n' 3 "$columns energy=-1.5" 'O 0 0 0 0 0 0' 'H 0 0 0.97 0 0 0' 'H 0 0.93 -0.24 0 0 0' >other.xyz
    local train="train train.xyz --steps 2 --features 8 --layers 1 --device cpu -o student.safetensors"
    run 0 $train --validation turned.xyz
    says '1 of 1 structures of turned.xyz are in train.xyz too.*structure 0, in train.xyz 0' err
    run 0 $train --validation other.xyz
    is "$(wc -c <err)" 0 "bytes of warnings about another structure"
    local judge="verdict student.safetensors --trained-on train.xyz --nve 0 --hot 0 --compare 0"
    run 1 $judge --test turned.xyz
    says 'held_out +FAILED +100 '
    run 1 $judge --test train.xyz
    says 'held_out +FAILED +100 '
    grep -q 'held-out' out && fail "training structures are called held-out"
    run 1 $judge --test other.xyz
    says 'held_out +passed +0 '
    says 'mean absolute of 1 held-out structures'
    says 'speed +NOT MEASURED +- .*name one, or ask for a speed of 0'
    run 1 $judge --test other.xyz --min-speed 0
    grep -q '^speed' out && fail "a speed without a teacher"
    return 0
}

# A verdict on water says nothing about carbon.
test_verdict_elements() {
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5' 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >water.xyz
    model --elements H,C,O
    run 1 verdict model.safetensors --test water.xyz --nve 0 --hot 0 --compare 0 -o verdict.json
    says 'the student knows C, of which no usual test structure' err
    is "$(value verdict.json elements_not_judged.0)" C "an element that was not judged"
    model --elements H,O
    run 1 verdict model.safetensors --test water.xyz --nve 0 --hot 0 --compare 0 -o verdict.json
    grep -q 'the student knows' err && fail "a warning without an element"
    grep -q '"elements_not_judged": \[\]' verdict.json || fail "elements that were judged"
}

test_eval_labels() {
    model
    printf '%s\n' 2 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 pbc="F F F"' 'H 0 0 0 1 0 0' 'H 0 0 0.8 -1 0 0' \
        2 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-2.5 pbc="F F F"' 'H 0 0 0 0 0.5 0' 'H 0 0 0.9 0 -0.5 0' >labels.xyz
    run 0 eval model.safetensors labels.xyz --json result.json --precision float64
    says 'energy/atom +MAE' && says 'forces +MAE'
    is "$(value result.json summary.n_labelled_energies)" 2 "labelled energies"
    is "$(value result.json summary.n_labelled_force_components)" 12 "labelled force components"
    # The summary against the same sums made here from the frames.
    local e0 e1
    e0=$(value result.json frames.0.energy_ev)
    e1=$(value result.json frames.1.energy_ev)
    awk -v e0="$e0" -v e1="$e1" 'BEGIN {
        a = (e0 + 1.5) / 2; b = (e1 + 2.5) / 2; m = (-0.75 - 1.25) / 2
        mae = ((a < 0 ? -a : a) + (b < 0 ? -b : b)) / 2
        printf "%.12g %.12g %.12g\n", mae, sqrt((a * a + b * b) / 2), 1 - (a * a + b * b) / ((-0.75 - m) ^ 2 + (-1.25 - m) ^ 2)
    }' >expected
    read -r mae rmse r2 <expected
    close_to "$(value result.json summary.energy_mae_ev_per_atom)" "$mae" 1e-9
    close_to "$(value result.json summary.energy_rmse_ev_per_atom)" "$rmse" 1e-9
    close_to "$(value result.json summary.energy_r2)" "$r2" 1e-6
    for key in forces_mae_ev_per_ang forces_rmse_ev_per_ang forces_r2; do value result.json summary.$key >/dev/null; done
    # About their mean the two errors are half their difference, whatever zero of energy the labels have.
    local half key
    half=$(awk -v e0="$e0" -v e1="$e1" 'BEGIN { d = ((e0 + 1.5) - (e1 + 2.5)) / 4; printf "%.12g", d < 0 ? -d : d }')
    for key in energy_mae_shifted_ev_per_atom energy_rmse_shifted_ev_per_atom; do
        close_to "$(value result.json summary.$key)" "$half" 1e-9
    done
    says 'after removing the mean difference'
    sed 's/energy=-1.5/energy=998.5/; s/energy=-2.5/energy=997.5/' labels.xyz >other_zero.xyz
    run 0 eval model.safetensors other_zero.xyz --json shifted.json --precision float64
    says 'another zero of energy'
    close_to "$(value shifted.json summary.energy_mae_shifted_ev_per_atom)" "$half" 1e-9
    close_to "$(value shifted.json summary.energy_mae_ev_per_atom)" "$(awk -v s="$(value shifted.json summary.energy_shift_ev_per_atom)" 'BEGIN { printf "%.12g", -s }')" 1e-9
    close_to "$(awk -v a="$(value shifted.json summary.energy_shift_ev_per_atom)" -v b="$(value result.json summary.energy_shift_ev_per_atom)" 'BEGIN { printf "%.12g", b - a }')" 500 1e-9
}

test_md() {
    model
    run 0 md model.safetensors --system silicon --n-atoms 10 --n-steps 20 --every 5 --temperature 200 --timestep 0.25 -o a.extxyz
    says 'silicon, 8 atoms .*nearest to the 10 asked for' && says '^ +20 ' && says 'steps/s' && says 'ns/day' && says 'untrained'
    is "$(grep -c 'Lattice' a.extxyz)" 5 "number of frames written"
    run 0 md model.safetensors --system silicon --n-atoms 10 --n-steps 20 --every 5 --temperature 200 --timestep 0.25 -o b.extxyz
    cmp -s a.extxyz b.extxyz || fail "the same run gives another trajectory"
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 10 --every 5 --ensemble langevin --friction 0.02 --seed 5 --json
    cp out md.json
    is "$(value md.json thermo)" 3 "lines of the table"
    is "$(value md.json summary.n_steps)" 10 "steps"
    is "$(value md.json summary.partial)" false partial
    is "$(value md.json thermo.2.step)" 10 "last step"
    # Velocities of a file are used: a frame of the first run goes on at its own temperature.
    run 0 md model.safetensors a.extxyz --n-steps 1
    says 'velocities of the file'
    run 0 md model.safetensors a.extxyz --n-steps 1 --thermalize
    says 'velocities drawn'
    run 0 md model.safetensors a.extxyz --n-steps 2 --every 1 -o -
    says '^8$' && says 'Lattice'
    grep -aq 'steps/s' out && fail "the table is among the frames"
    # A run that cannot be believed ends with a warning that names the remedy; a good one with none.
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 100
    [ ! -s err ] || fail "a good run warns"
    for ensemble in nve langevin; do # an exploded run stops; its last good step is kept as a frame and as a restart file
        rm -f exploded.*
        run 1 md model.safetensors --system silicon --n-atoms 8 --n-steps 100 --timestep 100 --ensemble $ensemble \
            -o exploded.extxyz --checkpoint exploded.restart
        is "$(grep -c . err)" 1 "lines on stderr"
        says 'step [0-9]+: the simulation has exploded.*atom [0-9]+ .*halve the timestep.*relax' err
        local stopped=$(sed -n 's/.*step \([0-9]*\):.*/\1/p' err)
        is "$(sed -n 's/.* step=\([0-9]*\).*/\1/p' exploded.extxyz | tail -1)" $((stopped - 1)) "last frame's step"
        run 0 eval model.safetensors exploded.extxyz
        run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 2 --timestep 0.1 --restart exploded.restart
    done
    run 0 md model.safetensors --system water --n-atoms 24 --n-steps 100 --timestep 0.2 --temperature 0.5 # far from its minimum
    says 'warning: the temperature is .* K where .* was asked for.*relax' err
}

test_vibrations() {
    local ethanol=$source_folder/models/ethanol.safetensors
    run 0 md $ethanol --system ethanol --n-steps 1 --timestep 0.1 -o start.extxyz
    run 0 relax $ethanol start.extxyz -o minimum.extxyz --fmax 0.001
    run 0 vibrations $ethanol minimum.extxyz --precision float64
    says '9 atoms, 21 vibrations; largest force .* zero-point energy 2\.'
    says '3 translations, 3 rotations .*: 0.00 0.00 0.00'
    says '^ *21 +3[0-9]{3}\.' # the hydroxyl group
    [ ! -s err ] || fail "a warning for a minimum: $(cat err)"
    run 0 vibrations $ethanol minimum.extxyz --json
    [ "$(value out rigid_names.2)-$(value out rigid_names.3)" = translation-rotation ] || fail "names of the zero modes"
    awk -v w="$(value out wavenumbers_per_cm.20)" 'BEGIN { exit !(w > 3500 && w < 4000) }' || fail "stretching of the hydroxyl group"
    run 0 vibrations $ethanol --system ethanol # not relaxed
    says 'not a minimum.*mlff relax' err
    run 2 vibrations $ethanol
    says 'either a file or --system' err
    run 0 new --arch painn -o random.safetensors --elements Si --set n_features=16
    run 0 vibrations random.safetensors --system silicon --n-atoms 8
    says 'left out, 3 acoustic modes .translations.'
    cp out molecule
    run 0 phonons random.safetensors --system silicon --n-atoms 8
    cmp -s out molecule || fail "vibrations and phonons of a crystal differ"
    run 1 phonons $ethanol minimum.extxyz
    says 'no periodic cell.*mlff vibrations' err
    run 1 vibrations $ethanol --system silicon
    says "silicon" err
    run 2 vibrations $ethanol --system ethanol --step 0
}

test_analyze() {
    local ethanol=$source_folder/models/ethanol.safetensors
    run 0 md $ethanol --system ethanol --n-steps 110 --every 1 -o run.extxyz
    run 0 analyze run.extxyz --frame-time 0.5 --element O --json
    is "$(value out n_frames)" 111 frames
    is "$(value out msd.lag_fs.0)" 0.5 "first lag"
    awk -v d="$(value out msd.msd_angstrom2.0)" 'BEGIN { exit !(d > 0 && d < 0.01) }' || fail "displacement of oxygen in 0.5 fs"
    awk -v t="$(value out temperature.mean_kelvin)" 'BEGIN { exit !(t > 50 && t < 500) }' || fail "temperature"
    is "$(value out vdos.wavenumber_per_cm.0)" 0 "first wavenumber"
    run 0 analyze run.extxyz --geometry --html page.html
    says 'energy: mean -4[0-9.]* eV'
    says '^H-O  *1  *0.9'
    grep -q '<svg.*</html>' page.html || grep -q '</html>' page.html || fail "the page is not whole"
    if grep -qE 'class="tick"[^>]*>(-?[0-9.]{6,}<|[^<]*e[-+])' page.html; then fail "an axis has a number that is not round"; fi
    run 2 analyze run.extxyz --html run.extxyz
    printf '1\n\nH 0 0 0\n' >bare.xyz
    run 2 analyze bare.xyz
    says 'bare.xyz: .*no cell.*--frame-time' err
    run 2 analyze run.extxyz --frame-time 1 --element Ne
    says 'run.extxyz: frame 0: no atom of Ne' err
    run 2 analyze run.extxyz --pair O-Xx
    run 2 analyze run.extxyz --element O
    printf '4\nLattice="4 0 0 0 4 0 0 0 4"\nAl 0 0 0\nAl 0 2 2\nAl 2 0 2\nAl 2 2 0\n' >lattice.extxyz
    run 0 analyze lattice.extxyz --range 3 --bins 3 --json # 12 neighbors at 2.83 Å
    is "$(value out rdf.coordination.1)" 0 "neighbors within 2 Å"
    is "$(value out rdf.coordination.2)" 12 "neighbors within 3 Å"
    run 0 analyze lattice.extxyz
    says '^ *2.825 .* 12.000'
    says 'all atoms: highest at 2.825 Å .g = [0-9.]*., lowest beyond at 2.875 Å .g = 0.: 12 neighbors up to there'
    [ "$(grep -c ' 0.000$' out)" -eq 1 ] || fail "empty bins before the nearest pair"
    run 0 analyze lattice.extxyz --range 2
    says 'all atoms: no pairs up to 2 Å'
}

# What is found in each format is what is found in extended XYZ, within float32 of DCD and NetCDF.
test_analyze_formats() {
    local suffix ethanol=$source_folder/models/ethanol.safetensors water=$source_folder/models/water.safetensors
    local md="--n-steps 20 --every 1 --seed 3"
    for suffix in extxyz lammpstrj dcd nc; do
        run 0 md $ethanol --system ethanol $md -o run.$suffix
        run 0 md $water --system water --n-atoms 96 --ensemble scr $md -o box.$suffix
    done
    run 0 analyze run.extxyz --frame-time 0.5 --geometry --json && cp out molecule
    run 0 analyze box.extxyz --frame-time 0.5 --pair O-H --range 3 --json && cp out liquid
    for suffix in lammpstrj dcd nc; do
        run 0 analyze run.$suffix --topology run.extxyz --frame-time 0.5 --geometry --json
        alike molecule out n_frames msd.msd_angstrom2.0 msd.msd_angstrom2.9 geometry.0.mean geometry.3.standard_deviation
        [ $suffix = dcd ] || alike molecule out temperature.mean_kelvin
        run 0 analyze run.$suffix --topology ethanol --geometry # of --system
        run 0 analyze box.$suffix --topology box.extxyz --frame-time 0.5 --pair O-H --range 3 --json
        alike liquid out n_frames msd.msd_angstrom2.9 rdf.g.39 rdf.coordination.39 rdf.coordination.119
        "$mlff" analyze - --topology box.extxyz --frame-time 0.5 >out 2>err <box.$suffix || fail "box.$suffix from a pipe"
        says '^21 frames|21 frames'
    done
    run 0 analyze box.lammpstrj --pair O-H --range 3 # has its elements
    run 2 analyze run.dcd --frame-time 1
    says 'run.dcd: a DCD names no elements; .*--topology FILE' err
    run 2 analyze run.nc --frame-time 1 --topology box.extxyz
    says 'run.nc: frames of 9 atoms, but the topology has 96' err
    head -c 1500 run.nc >cut.nc
    run 1 analyze cut.nc --frame-time 1 --topology run.extxyz
    says 'cut.nc: the file ends in frame 3' err
    run 1 analyze run.dcd --frame-time 1 --topology nowhere.xyz
    run 0 eval $ethanol run.dcd --topology run.extxyz --json a.json
    run 0 eval $ethanol run.extxyz --json b.json
    alike a.json b.json frames.0.energy_ev frames.20.energy_ev # positions of float32: 1e-6 of the energy
}

test_relax() {
    local ethanol=$source_folder/models/ethanol.safetensors
    run 0 md $ethanol --system ethanol --temperature 400 --n-steps 100 --every 20 -o hot.extxyz
    run 0 relax $ethanol hot.extxyz -o relaxed.extxyz --fmax 0.01 --batch 4
    says 'L-BFGS to forces below 0.01' && says '6 structures in' && says '6 converged, 0 reached'
    is "$(grep -c 'relax_end=converged' relaxed.extxyz)" 6 "relaxed structures"
    grep -q momenta relaxed.extxyz && fail "velocities of other positions are written"
    run 0 eval $ethanol relaxed.extxyz --json relaxed.json # the energies written are those of the positions written
    awk -v e="$(value relaxed.json summary.energy_mae_ev_per_atom)" 'BEGIN { exit !(e < 1e-5) }' || fail "energies of other positions"
    cp relaxed.extxyz alone.extxyz
    run 0 relax $ethanol hot.extxyz -o relaxed.extxyz --fmax 0.01 --batch 1 --json
    is "$(value out summary.n_converged)" 6 converged
    is "$(value out structures)" 6 structures
    run 0 relax $ethanol alone.extxyz -o again.extxyz --fmax 0.02 --optimizer fire
    is "$(grep -c 'relax_steps=0 ' again.extxyz)" 6 "structures at their minimum already"
    run 0 relax $ethanol hot.extxyz -o - --max-steps 2 --fmax 0.001
    is "$(grep -c 'relax_end=max_steps relax_steps=2' out)" 6 "structures that were not given enough steps"
    # One that cannot be computed is named, the others are relaxed.
    { head -22 hot.extxyz; printf '2\n\nH 0 0 0\nH 0 0 0\n'; head -11 hot.extxyz; } >mixed.extxyz
    run 1 relax $ethanol mixed.extxyz -o mixed-relaxed.extxyz
    says 'mixed.extxyz, frame 2: .*atoms 0 and 1' err && says '1 of 4 structures could not be relaxed' err
    is "$(grep -o 'relax_end=[a-z]*' mixed-relaxed.extxyz | tr '\n' ' ')" \
        "relax_end=converged relax_end=converged relax_end=failed relax_end=converged " "order of the file"
    refused 1 'does not know' relax $ethanol <(printf '1\n\nAu 0 0 0\n')
    refused 2 'needs --cell' relax $ethanol hot.extxyz --pressure 1
    refused 2 'needs --cell' relax $ethanol hot.extxyz --no-symmetry
    run 1 relax $ethanol hot.extxyz --cell
    says 'frame 5: .*periodic along three axes' err
    refused 1 'no frame in it' relax $ethanol /dev/null
    refused 2 'another argument is missing' relax $ethanol
    model # a cell under pressure, and the same written twice
    run 0 relax model.safetensors <("$mlff" md model.safetensors --system silicon --n-atoms 8 --n-steps 0 -o -) --cell --pressure 20000 \
        --max-steps 5 -o cell.extxyz
    grep -q 'Lattice' cell.extxyz || fail "no cell"
    grep -q '5.431 0.0 0.0' cell.extxyz && fail "the cell has not moved"
}

test_md_replicas() {
    model
    local -a how=(--system silicon --n-atoms 8 --timestep 0.2 --temperatures 200,250,300 --ensemble bussi --every 10)
    run 0 md model.safetensors "${how[@]}" --n-steps 40 -o whole.extxyz --json
    is "$(value out summary.n_running)" 3 "replicas that run"
    is "$(value out replicas.2.seed)" 2 "seed of the last"
    is "$(value out replicas.1.temperature_kelvin)" 250 "its temperature"
    run 0 md model.safetensors "${how[@]}" --n-steps 20 -o half.extxyz --checkpoint half.restart
    run 0 md model.safetensors "${how[@]}" --n-steps 20 -o half.extxyz --restart half.restart
    for k in 0 1 2; do cmp whole-$k.extxyz half-$k.extxyz || fail "replica $k is another one over a restart"; done
    cmp -s whole-0.extxyz whole-1.extxyz && fail "replicas 0 and 1 are one"
    # Means are of states at equal intervals, here each second step, wherever the steps were interrupted to write.
    local mean often
    run 0 md model.safetensors "${how[@]}" --every 2 --n-steps 200 --json
    often=$(value out replicas.1.mean_temperature_kelvin)
    run 0 md model.safetensors "${how[@]}" --every 200 --n-steps 200 --json
    mean=$(value out replicas.1.mean_temperature_kelvin)
    is "$mean" "$often" "mean temperature of states at equal intervals"
    [ "$(value out replicas.1.drift_slope_half_width)" != null ] || fail "no slope of 100 states"
    # All explode: each is named, with its last good frame and restart file.
    run 1 md model.safetensors --system silicon --n-atoms 8 --replicas 2 --timestep 100 --n-steps 50 -o wild.extxyz --checkpoint wild.restart
    says 'replica 0 has ended: step' err && says 'replica 1 has ended: step' err && says '2 of 2 replicas ended early: 0, 1' err
    run 0 md model.safetensors --system silicon --n-atoms 8 --replicas 2 --timestep 0.1 --n-steps 2 --restart wild.restart
    # No file of a replica is an input.
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 1 --every 1 -o start.dcd
    cp whole-1.extxyz kept-1.extxyz
    refused 2 "-o would overwrite the input 'kept-1.extxyz'" md model.safetensors start.dcd --topology kept-1.extxyz --replicas 2 -o kept.extxyz --n-steps 1
    refused 2 "-o would overwrite the input './kept-1.extxyz'" md model.safetensors ./kept-1.extxyz --replicas 2 -o kept.extxyz --n-steps 1
    cmp whole-1.extxyz kept-1.extxyz || fail "an input was overwritten"
    refused 2 'lists 3, where --replicas is 2' md model.safetensors "${how[@]}" --replicas 2
    refused 2 'not a temperature' md model.safetensors --system silicon --temperatures 300,warm
    refused 2 'of one simulation' md model.safetensors --system silicon --replicas 2 --profile p.json
}

test_md_ensembles() {
    model
    local -a silicon=(--system silicon --n-atoms 8 --timestep 0.2 --temperature 250)
    run 2 md model.safetensors "${silicon[@]}" --ensemble nvt
    says 'needs its thermostat: bussi, nose-hoover or langevin' err
    run 2 md model.safetensors "${silicon[@]}" --ensemble npt
    says 'needs its barostat: scr or mtk' err
    for ensemble in bussi nose-hoover scr mtk; do # each restarts to the bit, also along a ramp
        local -a how=("${silicon[@]}" --ensemble $ensemble --ramp-to 300 --ramp-steps 30 --every 10 --json)
        run 0 md model.safetensors "${how[@]}" --n-steps 40
        cp out whole.json
        run 0 md model.safetensors "${how[@]}" --n-steps 20 --checkpoint half.restart
        run 0 md model.safetensors "${how[@]}" --n-steps 20 --restart half.restart
        is "$(value whole.json summary.ensemble)" $ensemble ensemble
        close_to "$(value whole.json thermo.0.temperature_kelvin)" 250 1e-9
        for key in potential_energy_ev kinetic_energy_ev temperature_kelvin; do
            is "$(value out thermo.2.$key)" "$(value whole.json thermo.4.$key)" "$key after a restart of $ensemble"
        done
        [ ! -s err ] || fail "a restart of $ensemble warns: $(cat err)"
    done
    is "$(value whole.json summary.mean_volume_ang3 | cut -d. -f1)" 160 "volume of mtk" # 8 atoms of silicon: 160.2 Å³
    run 0 md model.safetensors "${silicon[@]}" --ensemble langevin --n-steps 0 --json
    close_to "$(value out thermo.0.temperature_kelvin)" 250 1e-9 # with the 3 degrees of freedom of the whole
    run 0 md model.safetensors "${silicon[@]}" --ensemble scr --anisotropic --pressure 5000 --n-steps 30
    says 'NPT .stochastic cell rescaling' && says 'pressure' && says 'meV/atom/ps .fitted slope' && says 'mean volume'
    printf '2\nProperties=species:S:1:pos:R:3\nSi 0 0 0\nSi 0 0 2.3\n' >pair.xyz
    refused 1 'periodic along three axes' md model.safetensors pair.xyz --ensemble scr
    refused 2 'needs --ensemble scr or mtk' md model.safetensors pair.xyz --pressure 3
    refused 2 'needs a thermostat' md model.safetensors pair.xyz --ramp-to 400
    refused 2 'needs --ramp-to' md model.safetensors pair.xyz --ramp-steps 400
    refused 2 'thermostat-time needs' md model.safetensors pair.xyz --thermostat-time 50
    refused 2 'constant volume' md model.safetensors --system silicon --ensemble mtk --profile p.json
    refused 2 'temperature above 0' md model.safetensors pair.xyz --ensemble bussi --temperature 0
}

test_md_restart() {
    model
    local -a common=(--system silicon --n-atoms 8 --ensemble langevin --timestep 0.5 --every 10 --seed 2 --json)
    run 0 md model.safetensors "${common[@]}" --n-steps 40
    cp out whole.json
    run 0 md model.safetensors "${common[@]}" --n-steps 20 --checkpoint half.restart -o half.extxyz
    run 0 md model.safetensors "${common[@]}" --n-steps 20 --restart half.restart -o half.extxyz
    cp out rest.json
    is "$(value rest.json thermo.0.step)" 20 "first step after the restart"
    is "$(value rest.json thermo.2.step)" 40 "last step after the restart"
    for key in potential_energy_ev kinetic_energy_ev temperature_kelvin; do
        is "$(value rest.json thermo.2.$key)" "$(value whole.json thermo.4.$key)" "$key after a restart"
    done
    is "$(grep -c Lattice half.extxyz)" 5 "frames of both parts"
    refused 1 'no_such_file' md model.safetensors "${common[@]}" --restart no_such_file
    head -c 40 half.restart >cut.restart
    run 1 md model.safetensors "${common[@]}" --restart cut.restart
    says 'cut.restart' err
    run 1 md model.safetensors --system silicon --n-atoms 64 --n-steps 1 --restart half.restart
    says 'half.restart' err
}

# Several devices: domains of the CPU give one device's results, also after a restart; frames of a batch and of labelling are handed out.
test_several_devices() {
    local frames=$PWD/frames.extxyz key
    local -a common=(--system silicon --n-atoms 64 --ensemble langevin --temperature 600 --precision float64 --every 10 --seed 2 --json)
    model
    run 0 md model.safetensors "${common[@]}" --n-steps 20 --device cpu
    cp out one.json
    run 0 md model.safetensors "${common[@]}" --n-steps 10 --device cpu:2 --checkpoint half.restart
    run 0 md model.safetensors "${common[@]}" --n-steps 10 --device cpu:3 --restart half.restart
    for key in potential_energy_ev kinetic_energy_ev; do
        close_to "$(value out thermo.1.$key)" "$(value one.json thermo.2.$key)" 1e-9 "$key of three domains"
    done
    is "$(value out summary.device)" cpu:3 "device"
    close_to "$(value out summary.domains.1.n_owned)" 21 2 "atoms of a domain"
    run 0 md model.safetensors --system silicon --n-atoms 64 --n-steps 2 --device cpu:2
    says "$(awk '$1 ~ /^cpu/ { n = $2 + $3; sum += n; k++; if (n > most) most = n }
        END { printf "the largest domain has %d atoms with its ghosts, %.1f %% more than the mean", most, 100 * (most * k / sum - 1) }' out)"
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 20 --every 2 --device cpu -o "$frames"
    run 0 eval model.safetensors "$frames" --batch 4 --json one.json --device cpu
    run 0 eval model.safetensors "$frames" --batch 4 --json three.json --device cpu:3
    is "$(value three.json frames.10.energy_ev)" "$(value one.json frames.10.energy_ev)" "energy of the last frame"
    is "$(value three.json frames.2.energy_ev)" "$(value one.json frames.2.energy_ev)" "energy of a frame of a full batch"
    run 0 label model.safetensors "$frames" --device cpu:2 -o labels.extxyz
    is "$(grep -c Lattice labels.extxyz)" 11 "labelled frames"
    refused 2 'number of domains' md model.safetensors --system silicon --device cpu:x
    refused 1 "at most 64" md model.safetensors --system silicon --device cpu:65
    run 0 new --arch orb-v3-direct --features 32 --layers 1 --hidden 512 --elements Si -o orb.safetensors
    run 0 eval orb.safetensors "$frames" --device cpu:2
    says 'computed on one of the devices' err
}

# Dynamics on a GPU that is emulated on the CPU (MLFF_CUDA_PLUGIN): the CPU's trajectory within float32's rounding, restart
# files that go from one to the other, to the bit on the same device.
# A kernel that does not end: every command that waits for it ends by itself, with one line, and calls nothing that would wait again
# (the emulated GPU aborts there).
test_gpu_faults() {
    [ -r "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin for an emulated GPU"; return; }
    model --features 64 --layers 1
    water
    export MLFF_GPU_TIMEOUT=0.2
    local n
    for n in 1 2 3 4; do
        MLFF_EMULATE_FAIL=cudaStreamQuery:$n:600 refused 1 'a kernel does not end' eval model.safetensors water.xyz --device cuda -o out.extxyz
        MLFF_EMULATE_FAIL=cudaStreamQuery:$n:600 refused 1 'a kernel does not end' md model.safetensors water.xyz --device cuda --n-steps 5 --checkpoint a.restart
        MLFF_EMULATE_FAIL=cudaStreamQuery:$n:600 refused 1 'a kernel does not end' profile model.safetensors water.xyz --device cuda --n-steps 5 -o p.json
    done
    # Training waits for its queue to have room, for sums of errors and for weights.
    for n in 1 2 3 4; do printf '3\n\nO 0 0 0\nH 0.96 0 0.0%s\nH -0.24 0.93 0\n' $n; done >frames.xyz
    "$mlff" label model.safetensors frames.xyz -o labels.extxyz --device cpu >out 2>err || fail "mlff label"
    local call small="--features 32 --layers 1 --rbf 4 --steps 3 --batch 1"
    for call in cudaEventQuery:1 cudaStreamQuery:1 cudaStreamQuery:2 cudaStreamQuery:3; do
        MLFF_EMULATE_FAIL=$call:600 refused 1 'a kernel does not end' train labels.extxyz $small --device cuda -o student.safetensors
    done
    unset MLFF_GPU_TIMEOUT
    # The plugin of another build, and a file that is no plugin.
    cp "$mlff" other.so
    MLFF_CUDA_PLUGIN=$PWD/other.so refused 1 'libmlff_cuda.so cannot be opened' eval model.safetensors water.xyz --device cuda
    sed 's/mlff %s layout/mlff %s LAYOUT/' "$MLFF_CUDA_PLUGIN" >other.so
    MLFF_CUDA_PLUGIN=$PWD/other.so refused 1 'install both from one build' eval model.safetensors water.xyz --device cuda
    head -c 8192 "$MLFF_CUDA_PLUGIN" >other.so # the loader maps what is not there: a bus error
    MLFF_CUDA_PLUGIN=$PWD/other.so refused 1 'cannot be opened .*cut off' eval model.safetensors water.xyz --device cuda
}

test_md_cuda() {
    [ -r "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin for an emulated GPU"; return; }
    "$mlff" new --arch painn --features 64 --layers 1 --elements H,O --seed 2 -o model.safetensors >/dev/null 2>err || fail "mlff new"
    printf '3\nProperties=species:S:1:pos:R:3:move_mask:L:1\nO 0 0 0.119 F\nH 0 0.763 -0.477 T\nH 0 -0.763 -0.477 T\n' >fixed.xyz
    local langevin="--ensemble langevin --temperature 100 --seed 4 --every 10" device from
    for device in cpu cuda; do
        run 0 md model.safetensors fixed.xyz $langevin --n-steps 20 --device $device --json -o $device.extxyz
        cp out $device.json
        run 0 md model.safetensors fixed.xyz $langevin --n-steps 10 --device $device --checkpoint $device.restart
    done
    is "$(value cuda.json summary.integrated_on)" cuda:0 "where the steps were made"
    is "$(value cuda.json thermo)" 3 "lines of the table"
    is "$(grep -c '^3$' cuda.extxyz)" 3 "frames of the trajectory"
    is "$(sed -n '3p;8p;13p' cuda.extxyz | awk '{ print $2, $3, $4 }' | sort -u | wc -l)" 1 "places of the fixed atom"
    close_to "$(value cuda.json thermo.2.potential_energy_ev)" "$(value cpu.json thermo.2.potential_energy_ev)" 1e-5
    close_to "$(value cuda.json thermo.2.drift_mev_per_atom)" "$(value cpu.json thermo.2.drift_mev_per_atom)" 1e-2
    for device in cpu cuda; do
        for from in cpu cuda; do
            run 0 md model.safetensors fixed.xyz $langevin --n-steps 10 --device $device --restart $from.restart --json
            is "$(value out thermo.1.step)" 20 "last step after the restart"
            close_to "$(value out thermo.1.potential_energy_ev)" "$(value cpu.json thermo.2.potential_energy_ev)" 1e-5
            [ $device = $from ] && is "$(value out thermo.1.potential_energy_ev)" "$(value $device.json thermo.2.potential_energy_ev)" \
                "energy on $device after a restart from its own file"
        done
    done
    run 0 md model.safetensors --system h2o --n-steps 25 --every 25 --device cuda --profile md.json
    says 'integrated on cuda:0'
    is "$(value md.json n_steps)" 25 "steps of the profile"
    run 0 report md.json --text
    says 'all 25 steps timed by its own timer' && says 'forward/message/0' && says 'integrate'
}

test_profile() {
    model
    water
    run 0 profile model.safetensors --system silicon --n-atoms 10 --n-steps 12 --warmup 3 -o report.json
    says 'silicon, 8 atoms' && says 'UNTRAINED' && says 'unattributed'
    for key in name model_name n_steps device latencies_ms mean_latency_ms median_latency_ms std_latency_ms min_latency_ms \
        max_latency_ms p95_latency_ms p99_latency_ms energy_time_ms forces_time_ms stress_time_ms memory_initial_gb memory_final_gb \
        memory_peak_gb memory_per_step_gb n_atoms system_size total_time_s steps_per_second timestamp notes; do
        value report.json $key >/dev/null
    done
    is "$(value report.json n_steps)" 12 n_steps
    is "$(value report.json latencies_ms)" 12 "number of latencies"
    is "$(value report.json n_atoms)" 8 n_atoms
    is "$(value report.json system_size)" "8 atoms" system_size
    is "$(value report.json device)" cpu device
    is "$(value report.json stress_time_ms)" null stress_time_ms
    run 0 profile model.safetensors --system silicon --n-atoms 8 --trajectory md --n-steps 10 --properties energy,forces,stress --json
    cp out md.json
    is "$(value md.json n_steps)" 10 "n_steps of the MD"
    [ "$(value md.json stress_time_ms)" != null ] || fail "stress was asked for, and not measured"
    cat water.xyz water.xyz >two.xyz
    run 0 profile model.safetensors two.xyz --n-steps 10 --device cpu --precision float64 --threads 1
    says 'file trajectory'
    run 0 profile model.safetensors two.xyz --trajectory thermal --n-steps 5
    run 0 profile model.safetensors --n-steps 5
    says 'silicon, 64 atoms'
    model --elements H,O
    run 0 profile model.safetensors --n-steps 5
    says 'water|h2o'
    # The default report fits on a screen; --full has the tables, --quiet prints nothing.
    run 0 profile model.safetensors --n-steps 30
    [ "$(wc -l <out)" -le 36 ] || fail "the report has $(wc -l <out) lines"
    says 'median .*P95 .*longest' && says 'targets met' && says '█ .*%'
    run 0 profile model.safetensors --n-steps 30 --full
    says 'Where the time goes' && says 'Measured on'
    run 0 profile model.safetensors --n-steps 30 --quiet -o quiet.json
    [ ! -s out ] || fail "--quiet prints"
    is "$(value quiet.json n_steps)" 30 "steps of the quiet run"
    refused 2 'excludes --full' profile model.safetensors --quiet --full
    run 0 profile model.safetensors --n-steps 30 -q --json
    is "$(value out n_steps)" 30 "steps of the quiet run on standard output"
    # What is wrong with the command line is said before anything is measured, and nothing is written.
    refused 2 "no stage 'mesage'; known are .*message" profile model.safetensors --what-if mesage=2x -o lost.json
    refused 2 'excludes --runs' profile model.safetensors --what-if message=2x --runs 2
    refused 2 'would overwrite the input' profile model.safetensors water.xyz -o ./water.xyz
    refused 2 'would overwrite the input' profile model.safetensors water.xyz --trace model.safetensors
    run 0 profile model.safetensors --system water --n-steps 5 --what-if message=2x -o kept.json
    says 'a step would take' && value kept.json n_steps >/dev/null
    # An error of writing names the output, and what was measured is printed all the same.
    run 1 profile model.safetensors water.xyz --n-steps 5 --trace /dev/full
    says '^mlff: /dev/full' err && says 'median'
    # A molecule has one size: it is measured once.
    model --elements H,C,O
    run 0 profile model.safetensors --system ethanol --system-sizes 32,64 --n-steps 5
    is "$(grep -cE '^ +9 ' out)" 1 "rows of ethanol"
}

test_check() {
    run 0 check --export-json check.json
    says 'CPU engine' && says 'driver' && says 'threads' && says 'The CPU engine works'
    is "$(value check.json works)" true works
    run 0 check --json
    cp out check.json
    is "$(value check.json checks.0.name)" "CPU engine" "first row"
    is "$(value check.json checks.0.status)" pass "its status"
    local PATH=/nonexistent # an empty machine: no programs, no Python
    run 0 check
}

test_devices() {
    export MLFF_CUDA_PLUGIN=$work/none.so # no GPU, whatever the machine
    run 0 devices
    says '^cpu  ' && says 'memory  .* GB free' && says '^no GPU.*none.so'
    run 0 devices --json
    is "$(value out devices.0.device)" cpu "first device"
    [ "$(value out devices.0.memory.total_bytes)" -gt "$(value out devices.0.memory.free_bytes)" ] || fail "free memory"
    [ "$(value out devices.0.memory.peak_bytes)" -gt 0 ] || fail "peak memory"
    run 0 devices cpu
    refused 1 'none.so' devices cuda
    refused 2 'tpu' devices tpu
    refused 2 'one argument too many' devices cpu cpu
}

# The same on GPUs that are emulated: their number, driver and memory are settings (tests/emulate/emulate.h).
test_devices_cuda() {
    [ -r "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin for an emulated GPU"; return; }
    export MLFF_EMULATE_DEVICES=2 MLFF_EMULATE_MEMORY=1073741824
    run 0 devices
    says '^cuda:1  emulated GPU 1' && says 'capability  *9.0' && says 'memory  .*1.00 GB, 1.00 GB free' && says 'needs 12.0 or newer'
    run 0 devices cuda:1 --json
    is "$(value out devices.0.memory.total_bytes)" 1073741824 "memory"
    is "$(value out devices.0.index)" 1 index
    is "$(value out gpu_problem)" "" "why there is no GPU"
    refused 1 'cuda:2: this machine has 2 GPUs' devices cuda:2
    run 0 check
    says 'GPU engine  *ready; built for CUDA 12.8, needs a driver for 12.0 or newer'

    model --features 64 --layers 1
    water
    # Labels by two GPUs are those by one, to the byte.
    run 0 new --arch painn --features 32 --layers 1 --elements H,O -o teacher.safetensors
    run 0 sample teacher.safetensors --system h2o -o samples.extxyz --n-samples 5 --methods thermal --device cpu
    run 0 label teacher.safetensors samples.extxyz -o one.extxyz --device cuda:0
    run 0 label teacher.safetensors samples.extxyz -o two.extxyz --device cuda:0,1
    cmp one.extxyz two.extxyz || fail "labels by two GPUs differ"
    # A system divided between them stays there with a profile, of which each has a file.
    run 0 md teacher.safetensors --system water --n-atoms 24 --n-steps 6 --every 6 --device cuda:0,1 --profile two.json --profile-every 3
    says 'integrated in the domains of cuda:0,1'
    is "$(value two.rank1.json device)" cuda:1 "device of the second file"
    is "$(value two.json workload.rank)" "0 of 2" "rank of the first file"
    is "$(($(value two.json workload.owned) + $(value two.rank1.json workload.owned)))" 24 "atoms of both"
    run 0 report two.json --text
    says 'all 6 steps timed' && says '^Ranks' && says '^exchange'
    says 'Load imbalance: not judged, as it is not known how long rank 0'
    # The second GPU's file is checked before the run as the first one's is.
    local -a profiled=(--n-steps 2 --device cuda:0,1 --profile made.json)
    mkdir made.rank1.json
    refused 1 'made.rank1.json' md teacher.safetensors water.xyz "${profiled[@]}" -o made.extxyz
    rmdir made.rank1.json
    refused 2 "--profile and --checkpoint are one file, 'made.rank1.json'" md teacher.safetensors water.xyz "${profiled[@]}" --checkpoint made.rank1.json
    cp water.xyz made.rank1.json
    refused 2 "would overwrite the input './made.rank1.json'" md teacher.safetensors ./made.rank1.json --input-format extxyz "${profiled[@]}"
    cmp water.xyz made.rank1.json || fail 'the input was overwritten'
    refused 2 'writes a file of each' md teacher.safetensors water.xyz --n-steps 2 --device cuda:0,1 --profile /dev/null
    [ ! -e made.json ] && [ ! -e made.extxyz ] || fail 'files of a run that was refused'
    run 0 md teacher.safetensors --system water --n-atoms 24 --n-steps 2 --ensemble mtk --device cuda:0,1
    says 'integrated in the domains of cuda:0,1'
    MLFF_EMULATE_DEVICES=0 refused 1 'no GPU: the driver sees none; use --device cpu' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_DRIVER=0 refused 1 'no NVIDIA driver' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_DRIVER=11080 refused 1 'driver is for CUDA 11.8.* needs one for CUDA 12.0' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_DEVICES=0 run 0 eval model.safetensors water.xyz --device auto
    says 'device auto: .*driver sees none.*using the CPU' err
    MLFF_EMULATE_MEMORY=100000 refused 1 'out of GPU memory' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_FAIL=cudaGraphLaunch refused 1 'the GPU was lost' eval model.safetensors water.xyz --device cuda
    model --features 128 --layers 1 # Turing's 64 KB of shared memory hold it in one half a number, not in two
    MLFF_EMULATE_CAPABILITY=7.5 refused 1 '128 features .* 64 KB .*tf32' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_CAPABILITY=7.5 run 0 eval model.safetensors water.xyz --device cuda --precision tf32
    model --features 64 --layers 1
    MLFF_EMULATE_CAPABILITY=7.5 run 0 eval model.safetensors water.xyz --device cuda
    run 0 eval model.safetensors water.xyz --device cuda:1 --json cuda.json
    run 0 eval model.safetensors water.xyz --device cpu --json cpu.json
    close_to "$(value cuda.json frames.0.energy_ev)" "$(value cpu.json frames.0.energy_ev)" 1e-5
}

# interrupted ARGUMENTS…: starts a run that would last hours, waits until `ready` (a function) says it goes, sends SIGINT.
interrupted() {
    "$mlff" "$@" >out 2>err </dev/null &
    local pid=$! status
    for _ in $(seq 600); do
        ready && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    ready || fail "it never got going"
    kill -INT $pid || fail "it was gone before the signal"
    wait $pid
    status=$?
    [ $status = 130 ] || fail "exit status $status, expected 130"
    [ "$(wc -l <err)" = 1 ] || fail "stderr is not one line"
    ls | grep -E '\.[A-Za-z0-9]{6}$' | grep -vE '\.(extxyz|restart)$' && fail "temporary files were left"
    return 0
}

test_interrupt_md() {
    model
    ready() { grep -qE '^ +10 ' out 2>/dev/null; }
    interrupted md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 -o run.extxyz --checkpoint run.restart
    says 'interrupted after [0-9]+ of 1000000000 steps' err && says '(interrupted)' && says 'steps/s'
    run 0 eval model.safetensors run.extxyz # whole frames only
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 5 --restart run.restart
}

test_compare() {
    model
    local one="profile model.safetensors --system silicon --n-atoms 8 --n-steps 60 --threads 1"
    run 0 $one --runs 5 -o a.json
    says 'run to run'
    is "$(value a.json runs.4.n_steps)" 60 "steps of the last run"
    run 0 $one --runs 2 --json
    says '"runs"'
    "$mlff" $one --precision float64 --runs 5 -o b.json >/dev/null 2>err || fail "runs in float64"
    run 3 compare a.json b.json
    says 'median step: B is SLOWER'
    says 'precision float32 → float64'
    says 'smallest change'
    run 0 compare b.json a.json
    says 'median step: B is FASTER'
    run 0 compare b.json a.json --json
    is "$(value out verdict)" faster verdict
    run 0 $one -o one.json
    refused 2 'one file' compare one.json ./one.json
    cp one.json copy.json
    run 4 compare one.json copy.json
    says 'UNCLEAR'
    ! grep -q 'nan' out || fail "a number that is none is printed"
    refused 2 'would overwrite the input' report a.json one.json -o one.json
    # Two commands, interleaved: profiles are compared by their steps, others by their time; a command that fails is no answer.
    run 3 compare --run "$mlff $one --n-steps 20" --run "$mlff $one --n-steps 20 --precision float64" --rounds 5 --repeat 2
    says '(10 and 10 runs|signed-rank)'
    says 'median step: B is SLOWER' && says 'mean step: B is' && says 'ns/day:'
    run 3 compare --run "sleep 0.01" --run "sleep 0.2" --rounds 5 --repeat 1 --json
    is "$(value out wall_ms.verdict)" slower "verdict on the time"
    # Rounds go on where that narrows the interval to half of the margin (steps of 1 ms that scatter by 2.5 %), not where the interval
    # is narrow already (0.01 %), and not where no number of rounds would do (50 %).
    for spread in 0.0001 0.025 0.5; do
        echo 0 >n
        cat >step.sh <<'END'
n=$(($(cat n) + 1)); echo $n >n
awk -v n=$n -v spread=$1 'BEGIN {
    ms = 1 + spread * (n * 0.618034 % 1); mb = "\"memory_initial_gb\":1,\"memory_final_gb\":1,\"memory_peak_gb\":1,\"memory_per_step_gb\":[1,1]"
    printf "{\"name\":\"x\",\"model_name\":\"m\",\"n_steps\":2,\"device\":\"cpu\",\"latencies_ms\":[%.6f,%.6f],", ms, ms
    for (split("mean median min max p95 p99", keys); ++k in keys;) printf "\"%s_latency_ms\":%.6f,", keys[k], ms
    printf "\"std_latency_ms\":0,\"energy_time_ms\":null,\"forces_time_ms\":null,\"stress_time_ms\":null,%s,\"n_atoms\":8,", mb
    printf "\"system_size\":\"8 atoms\",\"total_time_s\":0.002,\"steps_per_second\":1000,\"timestamp\":\"2025-11-23 10:30:00\",\"notes\":\"\"}"
}' >"$MLFF_PROFILE_REPORT"
END
        "$mlff" compare --run "sh step.sh $spread" --run "sh step.sh $spread" --rounds 2 --repeat 4 --json >out 2>err
        says n_runs_a || fail "no comparison with a spread of $spread"
        local pairs
        pairs=$(value out n_runs_a)
        case $spread in
        0.025) [ "$pairs" -gt 8 ] && [ "$pairs" -le 32 ] || fail "$pairs pairs with a spread of $spread" ;;
        *) is "$pairs" 8 "pairs with a spread of $spread" ;;
        esac
    done
    # Pairs of executions, of which each second one begins with B, after one of each that is not counted.
    "$mlff" compare --run "printf A >>order" --run "printf B >>order" --rounds 2 --repeat 3 --json >out 2>err
    # 6 of each were asked for; where times scatter by a few percent more follow, as above.
    local expected=AB k
    pairs=$(value out n_runs)
    [ "$pairs" -ge 6 ] && [ "$pairs" -le 24 ] || fail "$pairs runs of each command"
    for k in $(seq "$pairs"); do expected+=$([ $((k % 2)) = 1 ] && echo AB || echo BA); done
    is "$(cat order)" "$expected" "order of the executions"
    refused 2 'at most' compare --run true --run true --rounds 200 --repeat 3
    refused 2 'two files of runs are compared' compare a.json b.json --repeat 2
    refused 1 'exit status 7' compare --run true --run "exit 7"
    refused 2 'given twice' compare --run true
    refused 2 'two files of runs are compared' compare a.json
    "$mlff" profile model.safetensors --system silicon --n-atoms 16 --n-steps 20 -o c.json >/dev/null 2>err || fail "another size"
    refused 1 'not comparable: system' compare a.json c.json
    run 0 report a.json b.json -o page.html
    says '</html>' page.html
    says 'B is .*SLOWER' page.html
    # A page tells what differs, names the runs by their side, and keeps a number and its unit on one line.
    says 'changed: precision float32 → float64' page.html && says '<td>A1 ' page.html && says '<td>B5 ' page.html
    says '[0-9]&nbsp;%' page.html
    run 0 report one.json --text
    says 'Where the time goes'
    refused 1 'no_such.json' report no_such.json
    refused 1 'no_such_folder' report a.json -o no_such_folder/page.html
    head -c 300 one.json >cut.json
    refused 1 'ends in the middle' compare cut.json one.json
}

test_bench() {
    model
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 4.0 --seed 4 -o other.safetensors >/dev/null 2>err || fail "mlff new"
    run 3 bench compare --model model.safetensors --model model.safetensors:float64 --n-atoms 8 --rounds 6 --threads 1
    says 'slower'
    ! grep -q WRONG out || fail "float64 is called wrong"
    # Which of two is faster is not asked here: 0, 3 and 4 are answers, 1 would be "wrong".
    "$mlff" bench compare model.safetensors other.safetensors --n-atoms 8 --rounds 6 --threads 1 >out 2>err
    [ $? != 1 ] || fail "another model is called wrong"
    says 'different models: difference shown, not judged' && says 'untrained'
    "$mlff" bench compare model.safetensors other.safetensors ./model.safetensors --n-atoms 8 --rounds 6 --json --threads 1 \
        --trajectory md --html page.html -o runs.json --device cpu >out 2>err
    [ $? != 1 ] || fail "comparison on a trajectory"
    is "$(value out rows.1.same_model)" false "sameness of two different models"
    is "$(value out rows.1.agrees)" null "judgement of two different models"
    is "$(value out rows.2.agrees)" true "agreement of a model with itself"
    grep -q 'Different models: difference shown, not judged' page.html || fail "the page does not say that models differ"
    is "$(value runs.json runs)" 3 "profiles beside the comparison"
    grep -q 'On the same frames, interleaved' page.html || fail "the page has no comparison"
    refused 2 'trajectory goes with --system' bench compare model.safetensors other.safetensors --input x.xyz --trajectory md
    refused 2 'is not a number of structures' bench batch model.safetensors --batch-sizes 1,0
    [ ! -s out ] || fail "a list with a number that is none: something was printed before the error"
    run 0 bench batch model.safetensors --n-atoms 8 --batch-sizes 1,4 --n-calls 5
    says 'structures/s'
    run 0 bench batch model.safetensors --n-atoms 8 --batch-sizes 1,4 --n-calls 5 --json
    awk -v d="$(value out batches.1.force_difference_ev_per_angstrom)" 'BEGIN { exit !(d < 1e-4) }' || fail "a batch differs from one by one"
    run 0 bench precision model.safetensors --n-atoms 8 --rounds 6 --frames 2 --threads 1
    says 'float64   CPU' && says 'float32   CPU' && says 'reference'
    run 0 bench precision model.safetensors --n-atoms 8 --rounds 6 --frames 2 --threads 1 --json
    is "$(value out precisions.0.precision)" float64 "the reference's precision"
    awk -v d="$(value out precisions.1.force_difference_ev_per_angstrom)" 'BEGIN { exit !(d > 0 && d < 1e-4) }' ||
        fail "forces in float32 differ from float64 by none, or too much"
    refused 2 'precision needs a model' bench precision
    run 0 bench list
    says 'si64'
    run 0 bench run aspirin --n-calls 3 -o runs.json
    is "$(value runs.json runs.0.n_steps)" 3 "steps of the first run"
    run 0 bench example --n-calls 3 --n-trajectory-steps 20 -o example.json
    says 'Where the time goes'
    run 0 report example.json -o example.html
    refused 2 'needs two models' bench compare model.safetensors
    refused 2 'is none of compare' bench nothing
    refused 2 'is not a workload' bench run nothing
    refused 1 'no_such' bench compare model.safetensors no_such.safetensors
    run 0 profile model.safetensors --system-sizes 8,16,32 --n-steps 10 -o sizes.json
    says 'µs an atom' && says '^ +8 +[0-9.]+ +– +– ' && says '^P95 needs 20 steps, P99 100' # no tail of ten steps
    is "$(value sizes.json runs.2.n_steps)" 10 "steps of the largest"
    run 0 profile model.safetensors --system-sizes 8 --n-steps 30
    says '^ +8 +[0-9.]+ +[0-9.]+ +– '
    run 0 profile model.safetensors --n-steps 10 --what-if message=2x,readout=0 --trace trace.json
    says 'a step would take'
    is "$(value trace.json displayTimeUnit)" ms "unit of the timeline"
    MLFF_CUPTI=/nowhere run 0 profile model.safetensors --n-steps 10 --kernels 5 -o kernels.json
    says 'kernels on the GPU were not traced: libcupti.so cannot be opened' kernels.json
    is "$(value kernels.json budget.traced)" false "whether the budget is of watched steps"
    refused 2 'needs --profile' md model.safetensors --system silicon --kernels 5
    run 0 profile model.safetensors --n-steps 10 --print-nsys
    says '^nsys profile .* mlff profile model.safetensors --n-steps 10$'
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 3000 --profile md.json
    says 'profile: md.json'
    is "$(value md.json n_steps)" 3000 "steps of the profile"
    is "$(value md.json trajectory)" md "trajectory of the profile"
    run 0 report md.json --text
    says 'measuring adds'
    refused 2 'needs --profile' md model.safetensors --system silicon --profile-every 5
    refused 2 'is not a number of atoms' profile model.safetensors --system-sizes 8,x
    refused 2 'no stage' profile model.safetensors --n-steps 5 --what-if nothing=2x
}

test_interrupt_profile() {
    model
    ready() { [ -s out ] && sleep 1; }
    interrupted profile model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 -o run.json
    is "$(value run.json partial)" true partial
    [ "$(value run.json n_steps)" -gt 0 ] || fail "nothing was kept"
    says 'PARTIAL|partial|interrupted'
}

test_interrupt_eval() {
    model
    water
    mkfifo endless
    { while cat water.xyz; do :; done >endless; } 2>/dev/null &
    local feeder=$!
    ready() { [ "$(wc -l <out)" -gt 5 ]; }
    interrupted eval model.safetensors endless --json run.json -o run.extxyz
    kill $feeder 2>/dev/null
    is "$(value run.json summary.partial)" true partial
    [ "$(value run.json frames)" = "$(value run.json summary.n_frames)" ] || fail "frames and their number differ"
    is "$(grep -c Properties run.extxyz)" "$(value run.json frames)" "frames written"
}

# Nothing comes down the pipe any more: one Ctrl-C is enough, and the frames before are kept.
test_interrupt_idle() {
    model
    water
    mkfifo idle.xyz
    sleep 60 >idle.xyz & # keeps the pipe open, and says nothing
    local silent=$!
    cat water.xyz >idle.xyz &
    ready() { grep -qE '^ +0 +3 ' out 2>/dev/null; }
    interrupted eval model.safetensors idle.xyz --json run.json
    kill $silent 2>/dev/null || fail "it waited until the pipe's writer left"
    says 'interrupted after 1 frame; what was computed is kept' err
    is "$(value run.json summary.partial)" true partial
    is "$(value run.json frames)" 1 frames
    # Not even a writer has come.
    mkfifo other
    local arguments number pid
    for arguments in "eval model.safetensors idle.xyz" "eval model.safetensors water.xyz -o other --format extxyz" \
        "profile model.safetensors --system water --n-steps 5 -o other" "md model.safetensors water.xyz --restart other" \
        "distill --resume -o run"; do
        mkdir -p run && { [ -p run/config.json ] || mkfifo run/config.json; }
        "$mlff" $arguments --device cpu >out 2>err </dev/null &
        pid=$!
        sleep 1
        kill -TERM $pid
        for number in $(seq 100); do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
        kill -KILL $pid 2>/dev/null && fail "SIGTERM did not end mlff $arguments"
        wait $pid
        is $? 130 "exit status of mlff $arguments"
    done
    refused 1 'is a pipe' eval other water.xyz
}

# through_pipe FILE COMMAND…: runs it with the pipe `live` as its output; what came through is in FILE, whole only if the
# pipe was opened once.
through_pipe() {
    local file=$1
    shift
    timeout 20 cat live >"$file" &
    local reader=$!
    timeout 20 "$mlff" "$@" >out 2>err </dev/null || fail "mlff $*"
    wait $reader
}

test_outputs() {
    model
    water
    local one="profile model.safetensors --system silicon --n-atoms 8 --n-steps 5"
    # -o - is --json: nothing but JSON.
    run 0 $one -o -
    cp out report.json
    is "$(value report.json n_steps)" 5 n_steps
    run 0 $one --json -o -
    is "$(value out n_steps)" 5 n_steps
    run 0 $one --runs 2 -o -
    is "$(value out runs)" 2 runs
    # Two outputs of one name.
    mkdir folder
    refused 2 'are one file' eval model.safetensors water.xyz --json x.xyz -o x.xyz
    refused 2 'are one file' eval model.safetensors water.xyz --json x.xyz -o folder/../x.xyz
    ln -s water.xyz link
    cp water.xyz copy.xyz; ln -sf copy.xyz link
    refused 2 'are one file' eval model.safetensors water.xyz --json link -o copy.xyz
    refused 2 'are one file' md model.safetensors water.xyz -o x.xyz --checkpoint ./x.xyz
    refused 2 'would overwrite the input' md model.safetensors water.xyz -o x.xyz --restart x.xyz
    refused 2 'needs a file' md model.safetensors water.xyz --checkpoint -
    refused 2 'are one file' $one -o x --trace x
    refused 2 'needs a file' $one --trace -
    run 0 eval model.safetensors water.xyz --json /dev/null -o /dev/null
    # JSON that went down a pipe is whole also where a later frame is bad.
    { cat water.xyz; printf '1\nProperties=species:S:1:pos:R:3\nH 0 nan 0\n'; } >second.xyz
    run 1 eval model.safetensors second.xyz --json -
    says 'second.xyz:8' err
    is "$(value out frames)" 1 frames
    is "$(value out summary.n_frames)" 1 n_frames
    is "$(value out summary.partial)" true partial
    [ -e /dev/full ] && {
        run 1 eval model.safetensors water.xyz --json - -o /dev/full
        is "$(value out summary.n_frames)" "$(value out frames)" "frames and their number"
        run 1 md model.safetensors water.xyz --n-steps 2 --json -o /dev/full
        [ ! -s out ] || fail "half a JSON of a run that did not begin"
    }
    # A named pipe is opened once.
    mkfifo live
    through_pipe got.extxyz eval model.safetensors water.xyz -o live
    is "$(grep -c Properties got.extxyz)" 1 "frames through a pipe"
    through_pipe got.extxyz md model.safetensors water.xyz --n-steps 4 --every 2 -o live
    is "$(grep -c Properties got.extxyz)" 3 "frames of MD through a pipe"
    through_pipe got.json $one -o live
    is "$(value got.json n_steps)" 5 n_steps
}

# SIGTERM to a profile of several runs ends the run's own process as well, and removes its folder.
test_interrupt_runs() {
    model
    cp model.safetensors "only$$.safetensors"
    "$mlff" profile "only$$.safetensors" --system silicon --n-atoms 8 --runs 3 --n-steps 100000000 --device cpu \
        >out 2>err </dev/null &
    local process=$! wait
    for wait in $(seq 200); do [ "$(pgrep -fc "only$$.safetensors")" = 2 ] && break; sleep 0.05; done
    is "$(pgrep -fc "only$$.safetensors")" 2 "processes"
    sleep 0.5
    kill -TERM $process
    for wait in $(seq 400); do pgrep -f "only$$.safetensors" >/dev/null || break; sleep 0.05; done
    ! pgrep -f "only$$.safetensors" >/dev/null || fail "the run's process goes on"
    wait $process
    is $? 130 "exit status"
    # What a command of compare --run started ends as well.
    "$mlff" compare --run "sleep 77$$; true" --run true >out 2>err </dev/null &
    process=$!
    for wait in $(seq 200); do pgrep -f "^sleep 77$$" >/dev/null && break; sleep 0.05; done
    pgrep -f "^sleep 77$$" >/dev/null || fail "the command was not started"
    kill -TERM $process
    for wait in $(seq 100); do pgrep -f "^sleep 77$$" >/dev/null || break; sleep 0.05; done
    ! pgrep -f "^sleep 77$$" >/dev/null || fail "what the command started goes on"
    wait $process
    is $? 130 "exit status of compare"
}

# What a file says must not reach the terminal as an escape sequence, nor a counter overflow.
test_hostile_texts() {
    model
    python3 - model.safetensors escapes.safetensors <<'PY' || { echo "skipped: no python3"; return; }
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
header["__metadata__"]["note\x1b[2J"] = "\x1b]0;title\x07"
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
PY
    run 0 info escapes.safetensors
    says 'title'
    ! grep -q $'\x1b' out || fail "an escape sequence reached the terminal"
    water
    local escape=$'\x1b[2J' options
    cp model.safetensors "m$escape.safetensors"
    cp water.xyz "w$escape.xyz"
    for options in "info m$escape.safetensors" "md m$escape.safetensors w$escape.xyz --timestep 0.1 --n-steps 2 -o t$escape.xyz" \
        "profile m$escape.safetensors w$escape.xyz --n-steps 3 -o p$escape.json" "report p$escape.json -o p$escape.html" \
        "sample m$escape.safetensors w$escape.xyz --n-samples 2 --methods rattle --no-relax -o s$escape.extxyz" \
        "label m$escape.safetensors s$escape.extxyz -o l$escape.extxyz" "eval m$escape.safetensors --unknown$escape" \
        "serve m$escape.safetensors w$escape.xyz --unix absent$escape" "unknown$escape" "new --arch p$escape" \
        "compare p$escape.json p$escape.json"; do
        "$mlff" $options >out 2>err </dev/null
        [ -s out ] || [ -s err ] || fail "mlff $options: no text"
        ! grep -q $'\x1b' out err || fail "an escape sequence reached the terminal: $(cat -v out err)"
    done
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 2 --checkpoint w.restart
    sed 's/^step .*/step 9223372036854775806/' w.restart >late.restart
    refused 1 'step' md model.safetensors water.xyz --timestep 0.1 --n-steps 2 --restart late.restart
}

# A second run with the same trajectory is refused while the first one writes there, also where it would replace the file.
test_two_writers() {
    model
    "$mlff" md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 --timestep 0.01 -o shared.extxyz >first.out 2>first.err </dev/null &
    local first=$! k
    for ((k = 0; k < 100; k++)); do [ -s shared.extxyz ] && break; sleep 0.1; done
    refused 1 'another process is writing frames there' md model.safetensors --system silicon --n-atoms 8 --n-steps 1 -o shared.extxyz
    kill -INT $first
    wait $first
    [ $? = 130 ] || { cat first.err; fail "the first run did not end as an interrupted one"; }
    [ "$(grep -c '^8$' shared.extxyz)" -gt 0 ] || fail "the first run's frames are gone"
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 1 -o shared.extxyz
    "$mlff" md model.safetensors --system silicon --n-atoms 8 --replicas 3 --n-steps 1000000000 --every 10 --timestep 0.01 -o many.extxyz >first.out 2>first.err </dev/null &
    first=$!
    for ((k = 0; k < 100; k++)); do [ -s many-2.extxyz ] && break; sleep 0.1; done
    refused 1 'another process is writing frames there' md model.safetensors --system silicon --n-atoms 8 --replicas 2 --n-steps 1 -o many.extxyz
    kill -INT $first
    wait $first
    [ $? = 130 ] || { cat first.err; fail "the replicas did not end as an interrupted run"; }
    [ "$(grep -c '^8$' many-0.extxyz)" = "$(grep -c '^8$' many-2.extxyz)" ] || fail "replicas have other numbers of frames"
    # A distillation: the second would remove files that the first has not finished.
    local distill="distill model.safetensors --system h2o --preset demo --structures 40 --features 8 --layers 1 --device cpu -o shared.run"
    "$mlff" $distill --steps 100000000 >first.out 2>first.err </dev/null &
    first=$!
    for ((k = 0; k < 100; k++)); do [ -s shared.run/history.jsonl ] && break; sleep 0.1; done
    refused 1 'shared.run: another process is writing a run there' distill --resume -o shared.run
    kill -STOP $first
    refused 1 'shared.run: another process is writing a run there' $distill --steps 100000000
    kill -CONT $first
    kill -INT $first
    wait $first
    [ $? = 130 ] || { cat first.err; fail "the distillation did not end as an interrupted one"; }
}

# No output may be an input or another output, whatever the names: refused before anything is read, and nothing is changed.
test_overwrites() {
    model
    water
    local one="profile model.safetensors --system silicon --n-atoms 8 --n-steps 5"
    run 0 $one -o r.json
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 2 --checkpoint w.restart
    cp model.safetensors kept.safetensors
    ln model.safetensors hard.xyz
    ln -s not-there.json dangling
    mkdir models
    cp model.safetensors models/byname.safetensors
    sha256sum ./*.* models/* >before.sums
    refused 2 'would overwrite' report r.json -o r.json
    refused 2 'would overwrite' eval model.safetensors water.xyz -o water.xyz
    refused 2 'would overwrite' eval model.safetensors water.xyz -o hard.xyz
    refused 2 'would overwrite' eval model.safetensors water.xyz --json model.safetensors
    refused 2 'would overwrite' md model.safetensors water.xyz -o ./water.xyz
    refused 2 'would overwrite' md model.safetensors water.xyz --checkpoint model.safetensors
    refused 2 'would overwrite' md model.safetensors water.xyz --profile water.xyz
    refused 2 'would overwrite' md model.safetensors water.xyz --restart w.restart --profile w.restart
    refused 2 'would overwrite' profile model.safetensors -o model.safetensors
    refused 2 'would overwrite' profile model.safetensors --trace ./model.safetensors
    refused 2 'would overwrite' bench compare model.safetensors:float64 model.safetensors -o model.safetensors
    refused 2 'would overwrite' bench compare --model model.safetensors:t1 --model model.safetensors --html model.safetensors
    refused 2 'would overwrite' import model.safetensors -o model.safetensors
    refused 2 'would overwrite' train water.xyz --validation r.json --history r.json -o new.safetensors
    MLFF_MODEL_PATH=models refused 2 'would overwrite' eval byname water.xyz --json models/byname.safetensors
    refused 2 'are one file' bench compare model.safetensors model.safetensors:float64 -o page --html page
    refused 2 'are one file' md model.safetensors water.xyz -o f.xyz --profile f.xyz
    refused 2 'are one file' md model.safetensors water.xyz --checkpoint f --profile models/../f
    refused 2 'are one file' $one -o dangling --trace not-there.json
    refused 2 'says no format that is written' eval model.safetensors water.xyz -o water.cif
    refused 2 'lammps-dump' md model.safetensors water.xyz -o water.pdb
    refused 2 "no format 'xtc' is written" md model.safetensors water.xyz -o water.xtc --format xtc
    refused 2 '--format needs -o' md model.safetensors water.xyz --format dcd
    refused 2 "no format 'xtc' is read" eval model.safetensors water.xyz --input-format xtc
    refused 1 'not a DCD' eval model.safetensors water.xyz --input-format dcd
    refused 2 'names its elements' eval model.safetensors water.xyz --topology water.xyz
    refused 2 '--topology needs INPUT' md model.safetensors --system water --topology water.xyz
    refused 2 'must end in .extxyz or .xyz' sample model.safetensors water.xyz -o water.dcd
    refused 2 'must end in .safetensors' new --arch painn -o model.pt
    refused 2 'list has no option --n-calls' bench list --n-calls x
    refused 2 'example takes no argument' bench example model.safetensors
    sha256sum -c --quiet before.sums || fail "a file was changed"
    # A run that continues may replace its own restart file; a dangling link is followed, not replaced.
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 2 --restart w.restart --checkpoint w.restart
    run 0 $one -o dangling
    [ -L dangling ] && is "$(value not-there.json n_steps)" 5 n_steps
}

test_full_disk() {
    [ -e /dev/full ] || { echo "skipped: no /dev/full"; return; }
    model
    water
    cat water.xyz >many.xyz
    refused 1 '^mlff: /dev/full.*No space' eval model.safetensors many.xyz --json /dev/full
    # The message names the file that is full, and not the input.
    refused 1 '^mlff: /dev/full.*No space' eval model.safetensors many.xyz -o /dev/full
    refused 1 '^mlff: /dev/full.*No space' relax model.safetensors many.xyz --max-steps 2 -o /dev/full
    refused 1 '^mlff: /dev/full.*No space' md model.safetensors many.xyz --n-steps 2 -o /dev/full
    refused 1 '^mlff: /dev/full.*No space' md model.safetensors --system silicon --n-atoms 8 --n-steps 2 -o /dev/full
    refused 1 '^mlff: /dev/full.*No space' md model.safetensors --system silicon --n-atoms 8 --n-steps 2 --checkpoint /dev/full
    refused 1 '^mlff: /dev/full.*No space' profile model.safetensors --system silicon --n-atoms 8 --n-steps 2 -o /dev/full
    refused 1 '^mlff: /dev/full.*No space' new --arch painn -o /dev/full
    refused 1 '^mlff: /dev/full.*No space' check --export-json /dev/full
    for arguments in --help "info model.safetensors" "check --json" "eval model.safetensors many.xyz" "eval model.safetensors many.xyz --json -" \
        "profile model.safetensors --system silicon --n-atoms 8 --n-steps 2"; do
        "$mlff" $arguments >/dev/full 2>err </dev/null
        is $? 1 "exit status with a full standard output of mlff $arguments"
        says 'standard output.*No space' err
        is "$(wc -l <err)" 1 "lines on stderr of mlff $arguments"
    done
    # A verdict (exit status 3 or 4) that was not written is a failure.
    run 0 profile model.safetensors water.xyz --n-steps 20 -o a.json
    run 0 profile model.safetensors water.xyz --n-steps 20 -o b.json
    "$mlff" compare a.json b.json >/dev/full 2>err </dev/null
    is $? 1 "exit status of mlff compare with a full standard output"
    says 'standard output.*No space' err
}

test_unreadable() {
    model
    water
    refused 1 'no_such_file' eval model.safetensors no_such_file
    refused 1 'no_such_file' eval no_such_file water.xyz
    refused 1 'is a folder; give a file' eval model.safetensors /
    refused 1 'is a folder; give a file' eval / water.xyz
    refused 1 'is a folder; give a file' info .
    refused 1 'is a folder; give a file' import / -o x.safetensors --energy-unit eV
    refused 1 'is a folder; give a file' md model.safetensors water.xyz --restart /
    refused 1 'is a folder; give a file' compare / .
    # The students that ship are found from any folder, after those of the user; `models` of the current folder is not looked into.
    export MLFF_MODEL_PATH= XDG_DATA_HOME=$work/nowhere
    run 0 info ethanol
    says 'training.teacher  *ani2x'
    run 0 md ethanol --system ethanol --n-steps 2 --temperature 500
    grep -q 'trained at' err && fail "a temperature that the student was trained at is warned about"
    run 0 md ethanol --system ethanol --n-steps 2 --timestep 0.1 --temperature 3000
    [ "$(grep -c 'trained at up to 1000 K' err)" = 1 ] || fail "one warning about 3000 K is expected"
    # A folder hides no model of its name.
    mkdir -p models named
    cp model.safetensors models/named.safetensors
    MLFF_MODEL_PATH=$work/models run 0 info named
    MLFF_MODEL_PATH=$work/nowhere refused 1 'named: is a folder' info named
    refused 1 'no_such_folder' eval model.safetensors water.xyz -o no_such_folder/out.extxyz
    refused 1 'no_such_folder' profile model.safetensors --n-steps 5 -o no_such_folder/report.json
    if [ "$(id -u)" != 0 ]; then
        chmod 000 water.xyz
        refused 1 'water.xyz.*[Pp]ermission' eval model.safetensors water.xyz
    fi
}

test_hostile() {
    model --elements H,C,O,Si
    water
    local huge="1000000000"
    printf '5\nProperties=species:S:1:pos:R:3\nO 0 0 0\nH 0 0 1\nH 0 1 0\n' >lying.xyz
    printf '2\nProperties=species:S:1:pos:R:3\nO 0 0 0\nH 0 0 1\nH 0 1 0\n' >short.xyz
    printf '%s\nProperties=species:S:1:pos:R:3\nO 0 0 0\n' $huge >huge.xyz
    printf -- '-3\n\nO 0 0 0\n' >negative.xyz
    printf '99999999999999999999\n\nO 0 0 0\n' >overflow.xyz
    printf '1\nLattice="1 0 0 2 0 0 0 0 1" pbc="T T T" Properties=species:S:1:pos:R:3\nSi 0 0 0\n' >flat.xyz
    printf '1\nLattice="0 0 0 0 0 0 0 0 0" pbc="T T T" Properties=species:S:1:pos:R:3\nSi 0 0 0\n' >zero.xyz
    printf '2\nProperties=species:S:1:pos:R:3\nH 0.5 0.5 0.5\nH 0.5 0.5 0.5\n' >same.xyz
    printf '2\nProperties=species:S:1:pos:R:3\nAu 0 0 0\nXe 0 0 3\n' >gold.xyz
    printf '1\nProperties=species:S:1:pos:R:3\nQq 0 0 0\n' >unknown.xyz
    printf '1\nProperties=species:S:1:pos:R:3\nH 0 nan 0\n' >nan.xyz
    printf '1\nProperties=species:S:1:pos:R:3\nH 0 1e400 0\n' >infinite.xyz
    : >empty.xyz
    head -c 4096 /dev/urandom >noise.xyz
    for file in lying short huge negative overflow flat zero same gold unknown nan infinite empty noise; do
        refused 1 "$file.xyz" eval model.safetensors $file.xyz --json out.json -o out.extxyz
        refused 1 "$file.xyz" profile model.safetensors $file.xyz --n-steps 3 -o out.json
        [ $file = short ] || refused 1 '.' md model.safetensors $file.xyz --n-steps 3 -o out.extxyz
    done
    run 1 eval model.safetensors gold.xyz
    says 'Au' err && says 'Xe' err && says 'H, C, O, Si' err
    refused 1 'does not know' md model.safetensors --system iron --n-steps 1
    refused 1 'does not know' profile model.safetensors --system iron --n-steps 1
    refused 1 '.' md model.safetensors --system silicon --n-atoms 2000000000 --n-steps 1
    # The second frame is bad: the first was shown, no file is left.
    cat water.xyz nan.xyz >second.xyz
    refused 1 'second.xyz' eval model.safetensors second.xyz --json out.json -o out.extxyz
    # Model files.
    local bytes
    bytes=$(stat -c %s model.safetensors)
    for n in 0 4 8 100 $((bytes / 2)) $((bytes - 1)); do
        head -c "$n" model.safetensors >cut.safetensors
        refused 1 'cut.safetensors' eval cut.safetensors water.xyz
    done
    { printf '\377\377\377\377\377\377\377\177'; tail -c +9 model.safetensors; } >cut.safetensors
    refused 1 'cut.safetensors' info cut.safetensors
    # All bits of the last weights set is NaN, also in float32.
    { head -c $((bytes - 8)) model.safetensors; printf '\377\377\377\377\377\377\377\377'; } >cut.safetensors
    refused 1 'cut.safetensors' info cut.safetensors
    refused 1 'noise.xyz' info noise.xyz
}

# ANI-2x by name: what is said where it is absent, random weights, members and their deviation; with the shared data at
# hand the import of the real one into the search path.
test_ani() {
    water
    export XDG_DATA_HOME=$work/data MLFF_MODEL_PATH=
    refused 1 'github.com/aiqm/ani-model-zoo.*mlff import' eval fennol-ani2x water.xyz
    refused 1 'data/mlff/models' info nonesuch
    refused 2 'nor a published model' eval nonesuch water.xyz --random-weights
    run 0 eval orb-d3-xs-v2 water.xyz --random-weights --device cpu --json orb.json
    says untrained
    is "$(value orb.json summary.trained)" false trained
    refused 2 'from 0 to 7' eval fennol-ani2x water.xyz --random-weights --members 8
    refused 2 'goes into --json' eval fennol-ani2x water.xyz --random-weights --uncertainty
    run 0 eval fennol-ani2x water.xyz --random-weights --members 0,3 --uncertainty --json results.json --device cpu
    says untrained
    is "$(value results.json summary.trained)" false trained
    local a b
    a=$(value results.json frames.0.member_energies_ev.0) b=$(value results.json frames.0.member_energies_ev.1)
    close_to "$(value results.json frames.0.energy_ev)" "$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.9g", (a + b) / 2 }')" 1e-4
    close_to "$(value results.json frames.0.energy_deviation_ev)" \
        "$(awk -v a="$a" -v b="$b" 'BEGIN { d = a - b; if (d < 0) d = -d; printf "%.9g", d / sqrt(2) }')" 1e-4
    value results.json frames.0.force_deviations_ev_per_ang.2.2 >/dev/null
    model
    refused 1 'not an ensemble' eval model.safetensors water.xyz --uncertainty --json refused.json --device cpu
    [ ! -s out ] || fail "a table above an error: $(head -3 out)"

    local info=$shared/data/ani2x/ani-2x_8x.info
    [ -r "$info" ] || { echo "skipped: $info is not at hand"; return; }
    mkdir -p models
    run 0 import "$info" -o models/fennol-ani2x.safetensors
    refused 1 'mlff import' info "$info"
    MLFF_MODEL_PATH=/nonesuch:$work/models run 0 eval ani2x water.xyz --json results.json
    close_to "$(value results.json frames.0.energy_ev)" -2079.2 1 # E(water) of ANI-2x: -76.41 Hartree
    MLFF_MODEL_PATH=models run 0 info fennol-ani2x
    says '^  members          8'
}

# Killed at random (MLFF_KILLS times, 6) and gone on with: every step is in the trajectory once, in order, no frame is cut off.
# Orb: the errors of its forces that a v3 expects, of which v2 knows nothing; ties at its cap, told once; the error of each precision.
test_orb() {
    water
    run 0 new --arch orb-v3-direct --features 16 --layers 1 --hidden 32 -o v3.safetensors
    run 0 new --arch orb-v2 --features 16 --layers 1 --hidden 32 -o v2.safetensors
    run 0 eval v3.safetensors water.xyz --uncertainty --json results.json --device cpu
    grep -q '"atom_energies_ev": null' results.json || fail "energies of atoms of a model that has none"
    awk -v e="$(value results.json frames.0.force_errors_ev_per_ang.2)" 'BEGIN { exit !(e > 0 && e < 0.3) }' ||
        fail "an expected error outside of the head's bins, 0 to 0.3 eV/Å"
    if grep -q energy_deviation_ev results.json; then fail "deviations of an ensemble that is none"; fi
    run 0 info v3.safetensors --json
    says force_errors
    refused 1 'not an ensemble' eval v2.safetensors water.xyz --uncertainty --json refused.json --device cpu
    printf '1\nLattice="0 2.025 2.025 2.025 0 2.025 2.025 2.025 0" pbc="T T T"\nAl 0 0 0\n' >fcc.xyz
    cat fcc.xyz fcc.xyz >twice.xyz
    run 0 eval v2.safetensors twice.xyz --device cpu
    is "$(grep -c 'same distance.*20 nearest' err)" 1 "warnings of ties"
    run 0 eval v2.safetensors water.xyz --device cpu
    if grep -q 'same distance' err; then fail "a warning of ties without one"; fi
    MLFF_CUDA_PLUGIN=$work/none.so run 0 info v2.safetensors --precisions
    says 'CPU float32 +[0-9.]+e-'
    says 'GPU tf32 +not measured: no GPU'
    run 0 new --arch orb-v3-conservative --features 16 --layers 1 --hidden 32 --conditioned -o omol.safetensors
    run 0 info omol.safetensors --precisions # a molecule without charge, in its singlet state
    says 'CPU float32 +[0-9.]+e-'
    run 0 md omol.safetensors --system h2o --n-steps 2 --device cpu -o omol.extxyz # built-in systems are neutral
    says 'charge=0.0 spin=1' omol.extxyz
    run 0 vibrations omol.safetensors --system h2o --device cpu
    run 0 md v3.safetensors --system h2o --n-steps 2 --device cpu -o plain.extxyz
    if grep -q charge= plain.extxyz; then fail "a charge for a model that does not read it"; fi
    run 1 eval omol.safetensors water.xyz --device cpu
    says 'depends on charge and spin' err

    # Forces that are no derivative of the energy are told wherever that matters, and what needs virials is refused.
    local warning='warning: .*not the derivative of its energy' model
    run 0 md v2.safetensors water.xyz --n-steps 2 --device cpu
    says "$warning" err
    says 'drift of the conserved energy'
    run 0 relax v2.safetensors water.xyz -o relaxed.xyz --max-steps 1 --device cpu
    says "$warning" err
    run 0 vibrations v2.safetensors water.xyz --device cpu
    says "$warning" err
    run 0 label v2.safetensors water.xyz -o labels.extxyz --device cpu
    says "$warning" err
    if grep -q 'energies' labels.extxyz; then fail "labels with energies of atoms of a model that has none"; fi
    run 0 profile v2.safetensors water.xyz --n-steps 5 --warmup 1 --device cpu -o report.json
    says 'not the derivative of its energy' report.json
    refused 1 'no virial, which the i-PI protocol' serve v2.safetensors water.xyz --unix none-$$ --device cpu

    # A crystal that repeats along two axes has no stress, of no kind of Orb.
    printf '2\nLattice="4 0 0 0 4 0 0 0 20" pbc="T T F"\nSi 0 0 5\nSi 2 2 6\n' >slab.xyz
    run 0 new --arch orb-v3-conservative --features 16 --layers 1 --hidden 32 -o v3c.safetensors
    for model in v2 v3 v3c; do
        run 0 eval $model.safetensors slab.xyz --stress --device cpu --json slab.json
        grep -q '"stress_ev_per_ang3": null' slab.json || fail "$model: a stress of a cell that repeats along two axes"
    done

    # As a teacher: its kind, and that it is untrained, are told at the start and kept in the student. This student cannot pass.
    run 1 distill v2.safetensors --system h2o --preset demo --structures 40 --steps 60 --features 16 --layers 1 --device cpu -o orb.run
    says 'teacher v2 predicts forces that are not the derivative' err
    says 'teacher v2 is untrained' err
    says 'verdict: FAILED'
    run 0 info orb.run/student.safetensors
    says 'training.teacher_description +Orb-v2, .*direct forces, untrained'

    # Teachers and students in one page: each is named, untrained ones and direct forces are told.
    run 0 new --arch ani --members 1 --hidden 16 --elements H,C,O -o ani.safetensors
    run 0 new --arch painn --features 32 --layers 1 -o painn32.safetensors
    run 0 new --arch painn --features 16 --layers 1 -o painn16.safetensors
    run 0 bench compare v2.safetensors ani.safetensors painn32.safetensors painn16.safetensors --system ethanol --device cpu --rounds 6 \
        --html page.html
    for model in v2 ani painn32 painn16; do
        says "^$model.safetensors: untrained" && says "$model.safetensors" page.html
    done
    says 'v2.safetensors: .*not the derivative of its energy'
    says 'painn16.safetensors and the first are different models: difference shown, not judged'
    says 'untrained' page.html
}

# kill -9 at a random time, restart: the trajectory is byte for byte that of a whole run, in every ensemble and in every format that a restart continues.
test_md_killed() {
    model
    local formats=(extxyz lammpstrj nc) ensembles=(nve langevin bussi nose-hoover scr mtk) options n_steps
    for ((kill = 0; kill < ${MLFF_KILLS:-6}; kill++)); do
        local trajectory=killed.${formats[(kill + kill / 6) % 3]} ensemble=${ensembles[kill % 6]}
        case $ensemble in # the cell of the crystal is kept from shrinking to nothing by random weights
            scr | mtk) options="--system silicon --n-atoms 8 --timestep 0.1 --pressure 1 --barostat-time 10000" ;;
            *) options="--system h2o --timestep 0.1" ;;
        esac
        options="$options --ensemble $ensemble --every 3 --device cpu --threads 1"
        rm -f killed.* whole.*
        "$mlff" md model.safetensors $options --n-steps 100000000 --checkpoint killed.restart --checkpoint-every 100 \
            -o $trajectory >/dev/null 2>&1 </dev/null &
        local process=$!
        for wait in $(seq 200); do [ -s killed.restart ] && [ -s $trajectory ] && break; sleep 0.05; done
        sleep 0.$((RANDOM % 4))$((RANDOM % 10))
        kill -9 $process
        wait $process 2>/dev/null
        run 0 md model.safetensors $options --n-steps 30 --restart killed.restart -o $trajectory --json
        n_steps=$(($(value out thermo.0.step) + 30))
        run 0 md model.safetensors $options --n-steps $n_steps -o whole.${trajectory#*.}
        echo "$ensemble, ${trajectory#*.}: $n_steps steps"
        cmp $trajectory whole.${trajectory#*.} || fail "$ensemble, killed before step $n_steps: $trajectory differs from that of a whole run"
    done
}

# Descriptors 0 to 2 that the caller closed are not given to files: the table would be written into the trajectory.
test_closed_descriptors() {
    model
    "$mlff" md model.safetensors --system h2o --n-steps 4 --every 2 --timestep 0.1 -o closed.extxyz --device cpu >&- 2>err </dev/null
    is $? 1 "exit status with standard output closed"
    says 'standard output' err
    "$mlff" md model.safetensors --system h2o --n-steps 4 --every 2 --timestep 0.1 -o open.extxyz --device cpu >out 2>&- <&-
    is $? 0 "exit status with the others closed"
    cmp -s closed.extxyz open.extxyz || fail "the trajectories differ"
}

# The loader searches no folder but the program's own: neither an empty nor a relative entry, and no plugin in the current folder.
test_search_paths() {
    command -v readelf >/dev/null || { echo "skipped: no readelf"; return; }
    readelf -d "$mlff" | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p' | tr ':' '\n' >paths
    [ -s paths ] || fail "no library path in the program"
    grep -qvE '^(\$ORIGIN|/)' paths && fail "a library path is relative or empty: $(tr '\n' ' ' <paths)"
    readelf -d "$mlff" | grep -E 'R.*PATH.*(:\]|\[:|::)' && fail "a library path is empty"
    printf 'not a library' >libmlff_cuda.so
    run 0 devices
    grep -q 'libmlff_cuda.so.*file too short\|invalid ELF header' out err && fail "the current folder was searched for the plugin"
    return 0
}

# Nothing but errors and warnings, whatever the command; files and what - asks for are written.
test_quiet() {
    model --elements H,O
    water
    for line in 'eval model.safetensors water.xyz' 'md model.safetensors water.xyz --n-steps 2' 'relax model.safetensors water.xyz' \
        'info model.safetensors' 'new --arch painn -o other.safetensors' devices 'bench list'; do
        # shellcheck disable=SC2086
        run 0 $line --quiet
        [ ! -s out ] || fail "$line --quiet prints"
    done
    [ -s other.safetensors ] || fail "--quiet left out the file"
    run 0 md ethanol --system ethanol --n-steps 200 -q
    [ ! -s err ] || fail "--quiet gives a hint"
    run 0 eval model.safetensors water.xyz -q -o -
    says 'Properties=.*forces'
    run 0 info model.safetensors --json -q
    is "$(value out n_layers)" 2 "layers"
    refused 1 'no_such_file' eval model.safetensors no_such_file -q
}

# No output has colors, on a terminal neither, and so none where NO_COLOR asks for that; the only control sequence erases the line of progress.
test_colors() {
    command -v script >/dev/null || { echo "skipped: no script"; return; }
    local line
    model --elements H,O
    water
    for line in 'help' 'md --help' 'md model.safetensors water.xyz --n-steps 20' 'relax model.safetensors water.xyz' \
        'profile model.safetensors --system h2o --n-steps 20' 'check' 'bench list' 'md nothing.safetensors'; do
        TERM=xterm-256color script -qec "$mlff $line" /dev/null >out </dev/null 2>&1
        sed 's/\x1b\[K//g' out >kept
        grep -q "$(printf '\033')" kept && fail "$line prints a control sequence: $(grep -m1 "$(printf '\033')" kept | cat -v)"
    done
    return 0
}

# One is not "1 steps".
test_plurals() {
    model --elements H,O
    water
    printf '1\n\nO 0 0 0\n' >atom.xyz
    local line
    for line in 'md model.safetensors water.xyz --n-steps 1 -o run.extxyz' 'md model.safetensors water.xyz --n-steps 1 --replicas 1' \
        'relax model.safetensors water.xyz' 'eval model.safetensors atom.xyz' 'eval model.safetensors water.xyz' \
        'vibrations model.safetensors water.xyz' 'analyze run.extxyz --geometry'; do
        run 0 $line
        grep -E '(^|[^0-9.])1 (steps|frames|atoms|structures|replicas|times|states)\b' out err && fail "$line: 1 of a plural"
    done
    run 0 md model.safetensors water.xyz --n-steps 1
    says '^1 step in' && says 'rebuilt 1 time$'
}

# What bash would offer for a command line: COMP_WORDS as it makes them.
offered() {
    # shellcheck disable=SC1090
    (
        . ./completion
        compopt() { :; }
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _mlff
        printf '%s\n' "${COMPREPLY[@]}"
    ) >offers
}

# What zsh makes of a command line when the Tab key is pressed, in a terminal of its own: Ctrl-X prints the line.
completed_in_zsh() {
    cat >press.zsh <<'END'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1='> '; fpath=($PWD/zsh \$fpath); autoload -Uz compinit; compinit -u -d $PWD/zsh/dump"
zpty -w z "show() { print -r -- \"<\$BUFFER\"; print 'E''ND'; exit }; zle -N show; bindkey '^X' show; print 'BE''GIN'"
zpty -r -m z text '*BEGIN*'
zpty -w -n z "$1"$'\t\C-X'
zpty -r -m z text '*END*'
print -r -- "$text"
END
    timeout 100 zsh -f press.zsh "$1" | tr -d '\r' | sed -n 's/.*<\(mlff .*\)/\1/p' | tail -1
}

test_completion_in_zsh() {
    command -v zsh >/dev/null || { echo "skipped: no zsh"; return; }
    export PATH
    PATH=$(dirname "$mlff"):$PATH
    mkdir zsh
    "$mlff" completion zsh >zsh/_mlff
    is "$(completed_in_zsh 'mlff rel')" 'mlff relax ' command
    is "$(completed_in_zsh 'mlff relax a.xyz --opt')" 'mlff relax a.xyz --optimizer ' option
    is "$(completed_in_zsh 'mlff md --ensemble nos')" 'mlff md --ensemble nose-hoover ' "value of an option"
    is "$(completed_in_zsh 'mlff md --input-format cif -o run.d --fo')" 'mlff md --input-format cif -o run.d --format ' "option after others"
    is "$(completed_in_zsh 'mlff help ver')" 'mlff help verdict ' "command after help"
    is "$(completed_in_zsh 'mlff manual rel')" 'mlff manual relax ' "command after manual"
    is "$(completed_in_zsh 'mlff completion z')" 'mlff completion zsh ' shell
    is "$(completed_in_zsh 'mlff relax zs')" 'mlff relax zsh/' file
}

# Every word that is offered for an option is one that its command takes.
test_completion_words() {
    run 0 completion bash
    cp out completion
    local n_offered=0 line word
    while read -r line; do
        offered $line ''
        while read -r word; do
            n_offered=$((n_offered + 1))
            "$mlff" ${line#mlff } "$word" >out 2>&1 # without its other arguments
            grep -qE 'one of|unknown|no format' out && fail "$line $word is refused: $(head -1 out)"
        done <offers
    done <<'END'
mlff md m --system h2o --ensemble
mlff profile m --system h2o --ensemble
mlff profile m --system h2o --trajectory
mlff profile m --system h2o --precision-of
mlff relax m a.xyz --optimizer
mlff relax m a.xyz --input-format
mlff relax m a.xyz -o b.dcd --format
mlff train a.extxyz -o b.safetensors --optimizer
mlff train a.extxyz -o b.safetensors --recipe
mlff distill m -o run --optimizer
mlff new -o m --arch
mlff import m -o m.safetensors --energy-unit
mlff import m -o m.safetensors --length-unit
END
    [ $n_offered -ge 40 ] || fail "only $n_offered words are offered"
}

test_completion() {
    run 0 completion bash
    cp out completion
    offered mlff re
    is "$(tr '\n' ' ' <offers)" "relax report " "commands with re"
    offered mlff md --ens
    is "$(cat offers)" --ensemble "options of md with --ens"
    offered mlff md --device cu
    is "$(cat offers)" cuda "devices with cu"
    offered mlff md --system etha
    is "$(cat offers)" ethanol "systems with etha"
    offered mlff md mod
    is "$(cat offers)" "" "offers for a file, which bash completes"
    offered mlff help ver
    is "$(cat offers)" verdict "commands after help"
    for command in $commands; do # every option of every command
        offered mlff "$command" --
        run 0 "$command" --help
        is "$(sed -n 's/^  ....--\([a-z-]*\).*/--\1/p' out | sort)" "$(sort offers)" "options of $command"
    done
    run 0 completion zsh
    says '^#compdef mlff$' && says "'relax:"
    if command -v zsh >/dev/null; then zsh -n out || fail "zsh does not read its script"; fi
}

test_manual() {
    run 0 manual -o man
    for command in $commands; do
        [ -s "man/mlff-$command.1" ] || fail "no page of $command"
        run 0 manual "$command"
        cmp -s out "man/mlff-$command.1" || fail "the pages of $command differ"
        says '^.SH SYNOPSIS' && says '^.SH OPTIONS' && says '^.SH EXAMPLES'
    done
    says 'mlff\\-relax' man/mlff.1
    grep -q '\\e' man/mlff.1 && fail "mlff.1 shows a backslash: $(grep -m1 '\\e' man/mlff.1)"
    if command -v groff >/dev/null; then
        for page in man/*.1; do
            groff -man -Kutf8 -Tutf8 -ww -z "$page" 2>warnings
            [ ! -s warnings ] || fail "groff on $page: $(head -1 warnings)"
        done
    fi
}

# docs/guide/start.md: its indented commands, one after the other, in an empty folder of a user who has nothing yet.
test_start() {
    export HOME=$work PATH
    unset XDG_DATA_HOME MLFF_MODEL_PATH
    PATH=$(dirname "$mlff"):$PATH
    sed -n 's/^    \(mlff .*\)/\1/p' "$source_folder/docs/guide/start.md" >lines
    [ "$(wc -l <lines)" -ge 10 ] || fail "start.md has few commands"
    while read -r line; do
        bash -c "$line" >out 2>err </dev/null || fail "start.md: $line"
    done <lines
    [ "$(grep -c Properties= run.extxyz)" = 41 ] || fail "the continued trajectory has not 41 frames"
}

# shellcheck source=teacher_tests.sh
. "$source_folder/tests/cli/teacher_tests.sh"

if ! declare -F "test_$name" >/dev/null; then
    echo "test_cli.sh: no test '$name'" >&2
    exit 2
fi
"test_$name"
echo "test_cli $name: good"
