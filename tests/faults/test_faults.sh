#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every command with one allocation or one system call that fails: it must end with an exit status of its own (no signal), say why
# when it fails, leave a right file or none, or, named by it, the part that was whole under another name, and no temporary file.
#   test_faults.sh memory|calls|kills MLFF FOLDER_OF_INJECTORS
# kills: label and distill are killed at random times until one run ends; the result must have the bits of a run without a kill.
# MLFF_FAULTS_ONLY is a pattern of the commands that are tried (all).
# MLFF_FAULTS is the number of places tried for each command and call (memory 16, calls 3; "all": every one), spread evenly.
set -uo pipefail
kind=$1
mlff=$(realpath "$2")
injectors=$(realpath "$3")
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
limit=${MLFF_FAULTS:-$([ "$kind" = memory ] && echo 16 || echo 3)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
shopt -s dotglob nullglob
export OMP_NUM_THREADS=1 XDG_DATA_HOME=$work/data # where import --install writes
export MLFF_CUDA_PLUGIN=/nonexistent # CUDA's runtime, linked into the plugin, crashes where memory runs out
n_faults=0 n_failures=0 n_good=0
last=0 # so many places at the end are tried as well
prepare= # before each run of check
searched= # PATH of the command; empty: the same

failure() {
    echo "FAILED: $*" >&2
    [ -s err ] && head -c 600 err >&2
    n_failures=$((n_failures + 1))
}

# injected KIND N COMMAND…: runs the command with fault number N, or, with 0, without one, and counts its calls; out and err hold what it said.
injected() {
    local what=$1 at=$2
    shift 2
    if [ "$2" = serve ]; then
        "$injectors/ipi_server" socket &
        server=$!
    fi
    if [ "$what" = memory ]; then
        PATH=${searched:-$PATH} MLFF_FAIL_COUNT=count MLFF_FAIL_AT=$at LD_PRELOAD="$injectors/libfail_allocation.so" "$@" >out 2>err </dev/null
    else
        local where="${what/:/ } $at"
        [ "$at" != 0 ] || where=count
        # shellcheck disable=SC2086
        PATH=${searched:-$PATH} MLFF_FAIL_COUNT=count "$injectors/fail_call" $where "$@" >out 2>err </dev/null
    fi
    local status=$?
    if [ "$2" = serve ]; then
        { kill -KILL $server; wait $server; } 2>/dev/null # where the client did not come
        rm -f socket
    fi
    return $status
}

# The places tried of $1: evenly spread, at most $limit, the first and the last among them.
places() {
    if [ "$limit" = all ] || [ "$1" -le "$limit" ]; then
        seq "$1"
    else
        awk -v n="$1" -v k="$limit" 'BEGIN { for (i = 0; i < k; i++) print 1 + int(i * (n - 1) / (k - 1)) }'
        [ "$last" = 0 ] || seq $(($1 > last ? $1 - last + 1 : 1)) "$1"
    fi
}

without_times() { # of a verdict
    grep -vE 'seconds|_s"|speed|per_second|us"'
}

# Is the file the one that the command writes without a fault?
right() { # HOW FILE
    case $1 in
    same | samples) cmp -s "$2" "expected" ;;
    relaxed) # without memory for the model Hessian other steps are taken
        [ "$(wc -l <"$2")" = "$(wc -l <expected)" ] && "$mlff" eval model.safetensors "$2" --device cpu >/dev/null 2>&1
        ;;
    report) "$mlff" report "$2" --text >/dev/null 2>&1 ;; # has times: it must be read back
    timed) cmp -s <(grep -vE '_s"|per_second' "$2") <(grep -vE '_s"|per_second' expected) ;;
    restart) # the last one or the one before it, whole
        "$mlff" md model.safetensors frames.xyz --device cpu --n-steps 0 --timestep 0.1 --restart "$2" >/dev/null 2>&1
        ;;
    whole) # has times: as many lines, the last the same; one less where a warning says that training data could not be read
        local n_less=0
        grep -q 'a test is not compared with them' err && n_less=1
        [ "$(wc -l <"$2")" = "$(($(wc -l <expected) - n_less))" ] && cmp -s <(tail -1 "$2") <(tail -1 expected)
        ;;
    lines) [ "$(wc -l <"$2")" = "$(wc -l <expected)" ] && right some_lines "$2" ;; # JSON objects with times
    some_lines) ! grep -qv '^{.*}$' "$2" && [ -z "$(tail -c 1 "$2" | tr -d '\n')" ] ;;
    resumed) # a folder: the same command goes on with it, to the same bits
        "$mlff" "${command[@]}" >/dev/null 2>&1
        cmp -s "$2/student.safetensors" expected/student.safetensors &&
            [ "$(ls -A "$2")" = "$(ls -A expected)" ]
        ;;
    complete) # a folder with all results, which are the same but for times
        [ "$(ls -A "$2")" = "$(ls -A expected)" ] && cmp -s "$2/student.safetensors" expected/student.safetensors &&
            cmp -s <(without_times <"$2/verdict.json") <(without_times <expected/verdict.json)
        ;;
    tree) diff -r "$2" expected >/dev/null ;;
    files) [ -z "$(diff -r "$2" expected | grep -v '^Only in expected')" ] ;; # a folder: what is there is whole
    prefixes) # a folder of trajectories, which grow in place
        for grown in $(ls "$2"); do cmp -s -n "$(stat -c %s "$2/$grown")" "$2/$grown" "expected/$grown" || return 1; done
        ;;
    models) # a KIM collection: the model is there whole, or it is not there and the same command is not refused
        [ -z "$(find "$2" -name '.mlff*')" ] && listed=$("$mlff" kim list 2>&1) || return 1
        if [ "$listed" ]; then diff -r "$2/models" whole_kim/models >/dev/null; else [ ! -e "$2/models/Water" ]; fi
        ;;
    prefix) cmp -s -n "$(stat -c %s "$2")" "$2" expected ;; # a trajectory grows in place
    esac
}

# Is this what a command that failed may keep of the file?
right_part() { # HOW PART
    grep -qE "kept(: .*)? in $2(;|$)" err || return 1
    case $1 in
    same) if [[ $2 == *.safetensors ]]; then "$mlff" info "$2" >/dev/null 2>&1; else right prefix "$2"; fi ;;
    relaxed | samples) "$mlff" eval model.safetensors "$2" --device cpu >/dev/null 2>&1 ;; # of samples all candidates
    whole) grep -q '"verdict": "not finished"' "$2" && [ "$(tail -c 2 "$2")" = '}' ] ;;
    timed) grep -q '"partial": true' "$2" && [ "$(tail -c 2 "$2")" = '}' ] ;;
    *) return 1 ;;
    esac
}

# Did the command report an error?
told() {
    local line
    while IFS= read -r line || [ "$line" ]; do
        [[ $line == 'mlff: '* && $line != 'mlff: warning: '* ]] && return
    done <err
    return 1
}

# Sets `names` to what lies in the folder beside the result.
list_folder() {
    local name
    names=
    for name in *; do [ "$name" = "$file" ] || [ "$name" = "$file.labels" ] || names+="$name "; done
}

# check KINDS HOW FILE ARGUMENTS…: all faults of these kinds in one command, which writes FILE.
check() {
    local kinds=$1 how=$2 file=$3 what n wanted
    shift 3
    command=("$@")
    [[ "$*" =~ ${MLFF_FAULTS_ONLY:-.} ]] || return
    rm -rf -- "$file" "$file.labels" expected
    eval "$prepare"
    injected "${kinds%% *}" 0 "$mlff" "$@"
    wanted=$?
    { [ $wanted = 0 ] || [ -e "$file/verdict.json" ] || [[ $1 = compare || $1 = verdict || "$1 ${2:-}" = "bench compare" ]]; } && ! told || { failure "without a fault: exit status $wanted: $*"; return; }
    cp count counts
    if [ "$file" = - ]; then cp out expected; else cp -r "$file" expected; fi
    for what in $kinds; do
        if [ "$what" = memory ]; then n=$(cat counts); else n=$(sed -n "s/^${what%:*} //p" counts); fi
        [ "$n" = 0 ] || faults "$@" # else the command makes no such call
    done
}

# faults ARGUMENTS…: those of kind $what, of $n, in the command of `check`.
faults() {
    local at status before said
    for at in $(places "$n"); do
        [ "${what/ */}/$at" != mmap:ENOMEM/1 ] || continue # the loader's own first mapping: glibc crashes before main
        [ ! -e "$file" ] && [ ! -e "$file.labels" ] || rm -rf -- "$file" "$file.labels" # label keeps what it has for --resume
        eval "$prepare"
        list_folder
        before=$names
        injected "$what" "$at" "$mlff" "$@"
        status=$?
        n_faults=$((n_faults + 1))
        [ $status != $wanted ] || told || status=0 # a student that does not pass (1), slower runs (3): no errors
        [[ "$1 ${2:-}" != "bench compare" || ! $status =~ ^[34]$ ]] || told || status=0 # slower or unclear: these differ from run to run
        case $status in
        0)
            n_good=$((n_good + 1))
            local accepted=$how
            [ "$how" = prefix ] && accepted=same
            [[ "$how" = files || "$how" = prefixes ]] && accepted=tree
            [ "$how" = resumed ] && accepted=complete
            [ "$how" = models ] && accepted=tree
            if [ "$file" = - ]; then
                [ "$how" = any ] || cmp -s out expected || failure "$what $at of $n: exit status 0 and wrong output: $*"
            else
                right "$accepted" "$file" || failure "$what $at of $n: exit status 0 and a wrong file: $*"
            fi
            ;;
        1 | 2 | 127)
            [ -s err ] || failure "$what $at of $n: exit status $status without a word: $*"
            read -r -d '' said <err
            [[ $what != memory || ${said,,} =~ memory|allocate ]] || failure "$what $at of $n: wrong cause: $*"
            local part="${file%.*}-partial.${file##*.}"
            if [ -e "$part" ]; then
                right_part "$how" "$part" || failure "$what $at of $n: kept a wrong part: $*"
                rm -f "$part"
            fi
            if [ -e "$file.parts" ]; then # bars of a verdict, for the same command
                grep -qF "in $file.parts" err || failure "$what $at of $n: kept bars without a word: $*"
                rm -f "$file.parts"
            fi
            [ ! -e "$file" ] || right "${how/#lines/some_lines}" "$file" || failure "$what $at of $n: failed and left a wrong file: $*"
            ;;
        *) failure "$what $at of $n: exit status $status: $*" ;;
        esac
        list_folder
        [ "$names" = "$before" ] || { failure "$what $at of $n: left files: $*: $names"; rm -f ./*.????????; }
    done
}

# The program mlff-kim is there where the KIM API is.
kim_commands() {
    [ -x "$(dirname "$mlff")/mlff-kim" ] || return
    export KIM_API_MODEL_DRIVERS_DIR=$work/kim/drivers KIM_API_PORTABLE_MODELS_DIR=$work/kim/models
    rm -rf kim whole_kim
    "$mlff" kim install model.safetensors --name Water >/dev/null 2>&1 || { failure "mlff kim install"; return; }
    cp -a kim whole_kim
    check "$1" models kim kim install model.safetensors --name Water
    prepare="cp -a whole_kim kim"
    check "$1" models kim kim list
    check "$1" models kim kim remove Water
    prepare=
    rm -rf kim whole_kim
}

# Seconds of processor time a run: only where memory or writing fails, at few places. What they read, all other commands read. Both write
# their profiles by the same functions: where writing fails, run stands for both.
slow_commands() {
    local example="bench example --n-calls 2 --n-trajectory-steps 2 -o bench.json" run="bench run aspirin --n-calls 2 -o bench.json"
    # shellcheck disable=SC2086
    if [ "$limit" = all ]; then
        check "$1" report bench.json $example
        check "$1" report bench.json $run
    elif [ "$1" = memory ]; then
        limit=2 check memory report bench.json $example
        limit=4 check memory report bench.json $run
    else
        limit=2 check write:ENOSPC report bench.json $run
    fi
}

commands() { # KINDS
    check "$1" same new.safetensors new --arch painn --features 8 --layers 1 --elements H,O -o new.safetensors
    check "$1" same new.safetensors new --arch ani --members 1 --hidden 4,4,4 --elements H,O -o new.safetensors
    check "$1" any - info model.safetensors
    check "$1" same results.extxyz eval model.safetensors frames.xyz --device cpu -o results.extxyz
    last=12 check "$1" relaxed relaxed.extxyz relax model.safetensors frames.xyz --device cpu --max-steps 3 -o relaxed.extxyz
    check "$1" timed results.json eval model.safetensors frames.xyz --device cpu --json results.json
    check "$1" prefix md.extxyz md model.safetensors frames.xyz --device cpu --n-steps 4 --every 2 --timestep 0.1 -o md.extxyz
    check "$1" restart first.restart md model.safetensors frames.xyz --device cpu --n-steps 2 --timestep 0.1 --checkpoint first.restart
    check "$1" prefix md.extxyz md model.safetensors frames.xyz --device cpu --n-steps 4 --every 2 --timestep 0.1 --restart start.restart -o md.extxyz
    check "$1" same page.html report report.json -o page.html
    check "$1" report other.json profile model.safetensors --system h2o --device cpu --runs 2 --n-steps 2 -o other.json
    check "$1" report profile.json profile model.safetensors frames.xyz --device cpu --n-steps 2 --warmup 1 -o profile.json
    check "$1" any - devices
    check "$1" same - analyze path.extxyz --frame-time 0.2 --geometry --json
    check "$1" same page.html analyze path.extxyz --frame-time 0.2 --html page.html
    check "$1" same - vibrations model.safetensors frames.xyz --device cpu --precision float64 --json
    check "$1" same - manual md
    check "$1" files pages manual -o pages
    check "$1" same - completion bash
    check "$1" files data import best_model --install imported --energy-unit eV --elements H,C
    prepare="mkdir replicas"
    check "$1" prefixes replicas md model.safetensors frames.xyz --device cpu --replicas 2 --n-steps 4 --every 2 --timestep 0.1 -o replicas/r.extxyz
    prepare=
    check "$1" same imported.safetensors import best_model -o imported.safetensors --energy-unit eV --elements H,C
    check "$1" samples seeds.extxyz sample model.safetensors --system h2o --n-samples 4 --device cpu -o seeds.extxyz
    check "$1" prefix frames.labels label model.safetensors frames.xyz --device cpu -o frames.labels
    check "$1" same labels.extxyz label model.safetensors frames.xyz --device cpu -o labels.extxyz
    check "$1" same student.safetensors train start.labels $small --device cpu -o student.safetensors
    check "$1" lines history.jsonl train start.labels $small --device cpu -o /dev/null --history history.jsonl
    check "$1" whole verdict.json verdict trained.safetensors --test start.extxyz --teacher trained.safetensors $lenient --device cpu -o verdict.json
    check "$1" resumed run distill model.safetensors --system h2o --config config.json --device cpu -o run
    check "$1" resumed run distill --labels sixty.labels --config labels.json --device cpu -o run
    check "$1" report bench.json bench compare --model model.safetensors --model model.safetensors:float64 --system h2o --rounds 6 --frames 1 -o bench.json
    check "$1" any - bench batch model.safetensors --system h2o --batch-sizes 1,2 --n-calls 2
    check "$1" any - bench precision model.safetensors --system h2o --rounds 6 --frames 1
    searched=/nonexistent # compilers and Python, which it asks for their versions, would inherit the fault
    check "$1" any check.json check --export-json check.json
    searched=
    check "$1" any - compare runs.json more_runs.json
    kim_commands "$1"
    slow_commands "$1"
    check "$1" any - serve model.safetensors frames.xyz --device cpu --unix ./socket --wait 5
}

"$mlff" new --arch painn --features 8 --layers 1 --elements H,O -o model.safetensors >/dev/null || exit 1
for k in 1 2 3; do
    printf '3\nProperties=species:S:1:pos:R:3 energy=-%s\nO 0 0 0\nH 0.96 0 0.0%s\nH -0.24 0.93 0\n' $k $k
done >frames.xyz
"$mlff" profile model.safetensors frames.xyz --device cpu --n-steps 5 -o report.json >/dev/null || exit 1
"$mlff" profile model.safetensors frames.xyz --device cpu --n-steps 5 -o other.json >/dev/null || exit 1
"$mlff" profile model.safetensors frames.xyz --device cpu --n-steps 5 --runs 4 -o runs.json >/dev/null || exit 1
cp runs.json more_runs.json
"$mlff" md model.safetensors frames.xyz --device cpu --n-steps 240 --every 2 --timestep 0.1 -o path.extxyz >/dev/null 2>&1 || exit 1
"$mlff" md model.safetensors frames.xyz --device cpu --n-steps 2 --timestep 0.1 --checkpoint start.restart >/dev/null || exit 1
cp "$source_folder/tests/fuzz/corpus/schnetpack/good" best_model
small="--features 4 --layers 1 --rbf 2 --steps 3"
lenient="--nve 0 --hot 0 --compare 0 --speed-time 0.05 --max-force-error 1000 --max-energy-error 1000 --min-speed 0"
echo '{"n_structures": 20, "n_features": 4, "n_layers": 1, "n_radial": 2, "n_steps": 10, "nve_ps": 0, "hot_ps": 0, "compare_ps": 0, "speed_s": 0.05,
"max_force_error": 1000, "max_energy_error": 1000, "max_drift": 1000, "min_speed": 0, "n_pressed": 0}' >config.json
"$mlff" label model.safetensors frames.xyz --device cpu -o start.labels >/dev/null 2>&1 || exit 1
"$mlff" label model.safetensors frames.xyz --device cpu -o start.extxyz >/dev/null 2>&1 || exit 1
sed 's/"n_structures": 20, //' config.json >labels.json
"$mlff" sample model.safetensors --system h2o --n-samples 60 --methods rattle --no-relax --oversample 1 --device cpu -o sixty.extxyz >/dev/null 2>&1 || exit 1
"$mlff" label model.safetensors sixty.extxyz --device cpu -o sixty.labels >/dev/null 2>&1 || exit 1
"$mlff" train start.labels $small --device cpu -o trained.safetensors >/dev/null 2>&1 || exit 1

# killed STATUS FILE ARGUMENTS…: the command, killed at random times of the time that it takes, until it ends.
killed() {
    local wanted=$1 file=$2 begin taken at status=0 n=0
    shift 2
    rm -rf "$file"* expected
    begin=$(date +%s%N)
    "$mlff" "$@" >out 2>err
    status=$?
    [ $status = "$wanted" ] || { failure "without a kill: exit status $status: $*"; return; }
    taken=$(($(date +%s%N) - begin))
    cp -r "$file" expected
    for _ in $(seq "${MLFF_KILLS:-4}"); do
        rm -rf "$file"*
        for n in $(seq 20) without; do
            at=$(awk -v t="$taken" -v r="$RANDOM" 'BEGIN { printf "%.4f", t * 1e-9 * r / 32768 }')
            [ "$n" != without ] || at=600
            (timeout -s KILL "$at" "$mlff" "$@" >out 2>err; exit $?) 2>/dev/null # the shell names what was killed
            status=$?
            [ $status = 137 ] || break
            n_faults=$((n_faults + 1))
        done
        [ $status = "$wanted" ] || failure "after kills: exit status $status: $*"
        if [ -d "$file" ]; then
            cmp -s "$file/student.safetensors" expected/student.safetensors && [ "$(ls -A "$file")" = "$(ls -A expected)" ] ||
                failure "after kills another result: $* ($(ls -A "$file" | tr '\n' ' '))"
        else
            cmp -s "$file" expected || failure "after kills another result: $*"
        fi
    done
}

if [ "$kind" = memory ]; then
    commands memory
elif [ "$kind" = kills ]; then
    # No student meets this limit of the verdict: exit status 1.
    strict='s/"n_steps": 10/"n_steps": 4000/; s/"max_force_error": 1000/"max_force_error": 1e-9/'
    sed "s/\"n_structures\": 20/\"n_structures\": 200/; $strict" config.json >longer.json
    killed 1 run distill model.safetensors --system h2o --config longer.json --device cpu -o run
    sed "$strict" labels.json >longer.json
    killed 1 run distill --labels sixty.labels --config longer.json --device cpu -o run
    "$mlff" sample model.safetensors --system h2o --n-samples 3000 --methods rattle --no-relax --oversample 1 --device cpu -o many.extxyz >/dev/null 2>&1 || exit 1
    killed 0 many.labels label model.safetensors many.extxyz --device cpu -o many.labels --resume
else
    commands "open:EMFILE read:EIO write:ENOSPC fsync:EIO rename:EIO mmap:ENOMEM ftruncate:EIO"
fi
echo "$kind: $n_faults faults injected, $n_good without effect on the result, $n_failures failures"
[ $n_failures = 0 ] || exit 1
least=$([ "$kind" = kills ] && echo 3 || echo 100) # fewer: the injector is not in effect
[ "${MLFF_FAULTS_ONLY:-}" ] || [ $n_faults -gt "$least" ]
