# SPDX-License-Identifier: MIT
# Tests of the command line itself: help, usage, output, completion and manual pages; read by test_cli.sh, whose functions they use.

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
        # Texts of options begin in one column, also behind long names.
        awk '/^  (-., |    )--/ && substr($0, 32, 1) != " " && NF > 3 { exit 1 }' out || fail "an option of $command is not in the column of the others"
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
    for command in info eval md profile; do refused 2 "^mlff: $command: MODEL is missing; see mlff $command --help" $command; done
    refused 2 '^mlff: import: IN is missing; see' import
    refused 2 '^mlff: kim: an argument is missing; see' kim
    mkdir -p bare/bin && cp "$mlff" bare/bin && ln -s "${mlff%/bin/mlff}/lib" bare/lib # without the program of the KIM model driver beside it
    mlff=$PWD/bare/bin/mlff refused 1 'the KIM model driver is not built: install libkim-api-dev, then configure and build mlff again$' kim list
    refused 2 "unknown option '--nsteps'; there is --n-steps; see" md m.safetensors --nsteps 5
    refused 2 "unknown option '--n_steps=5'; there is --n-steps; see" md m.safetensors --n_steps=5
    refused 2 "option '--n-steps' needs a value" profile model --n-steps
    refused 2 "option '-o' needs a value" new --arch painn -o
    refused 2 "takes no value" eval model water.xyz --stress=1
    run 0 new --arch painn --elements H -o=equals.safetensors
    [ -f equals.safetensors ] || fail "-o=NAME did not write NAME"
    refused 2 "'extra' is one argument too many" info model extra
    refused 2 "'extra' is one argument too many" eval model water.xyz extra
    refused 2 "one argument too many" check extra
    refused 2 "--arch NAME is missing" new -o x.safetensors
    refused 2 "-o FILE is missing" new --arch painn
    refused 2 "architecture 'gpt' is not one of painn, ani, .*, nor a published model" new --arch gpt -o x.safetensors
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

test_check() {
    refused 2 'excludes the file' check --json --export-json other.json
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

# What --json prints is one JSON document, ended by one newline, of every command that has it.
test_json_documents() {
    export MLFF_CUDA_PLUGIN=$work/none.so
    model --elements H,O
    water
    printf '2\nLattice="4 0 0 0 4.1 0 0 0 4.2" pbc="T T T" Properties=species:S:1:pos:R:3\nO 0 0 0\nO 2 2 2.1\n' >crystal.xyz
    local line command small="--features 4 --layers 1 --rbf 2 --steps 3"
    local tiny='"n_features": 4, "n_layers": 1, "n_radial": 2, "n_steps": 3, "nve_ps": 0, "hot_ps": 0, "compare_ps": 0, "speed_s": 0.05'
    echo "{\"n_structures\": 20, $tiny}" >config.json
    run 0 md model.safetensors water.xyz --n-steps 240 --every 2 --timestep 0.1 -o path.extxyz
    run 0 profile model.safetensors water.xyz --n-steps 20 --runs 2 -o a.json
    cp a.json b.json
    local lines=('info model.safetensors' 'info model.safetensors --precisions --system h2o' 'devices' 'check'
        'check --export-json -' 'eval model.safetensors water.xyz --json -' 'relax model.safetensors water.xyz --max-steps 2'
        'md model.safetensors water.xyz --n-steps 2' 'md model.safetensors water.xyz --n-steps 2 --replicas 2'
        'analyze path.extxyz --frame-time 0.2 --geometry' 'vibrations model.safetensors water.xyz'
        'phonons model.safetensors crystal.xyz' 'profile model.safetensors water.xyz --n-steps 5'
        'profile model.safetensors water.xyz --n-steps 5 -o -' 'profile model.safetensors water.xyz --n-steps 5 --runs 2'
        'profile model.safetensors --n-steps 5 --system-sizes 8,16'
        'compare a.json b.json' 'compare --run true --run true --rounds 2 --repeat 1'
        'bench batch --model model.safetensors --system h2o --batch-sizes 1,2 --n-calls 2'
        'bench precision model.safetensors --system h2o --rounds 6 --frames 1'
        'bench compare --model model.safetensors --model model.safetensors:float64 --system h2o --rounds 6 --frames 1'
        'bench run aspirin --n-calls 2'
        'sample model.safetensors --system h2o -o structures.extxyz --n-samples 30 --methods thermal --oversample 1 --no-relax'
        'label model.safetensors structures.extxyz -o structures.labels' "train structures.labels $small -o student.safetensors"
        'distill model.safetensors --system h2o --config config.json -o run')
    for line in "${lines[@]}"; do
        read -r command _ <<<"$line"
        [[ $line =~ (--json|--export-json|-o)\ -$ ]] || line+=" --json"
        [[ $command =~ ^(check|devices|compare|bench|info|analyze)$ ]] || line+=" --device cpu"
        # shellcheck disable=SC2086
        "$mlff" $line >out 2>err </dev/null
        [ -s out ] || fail "$line prints nothing"
        "$json_get" out >/dev/null || fail "$line prints no JSON"
        is "$(tail -c 2 out | od -An -c | tr -d ' ')" '}\n' "the end of what $line prints"
    done
    # A command that gets --json is tested here.
    printf '%s\n' "${lines[@]}" >lines
    for command in $commands; do
        "$mlff" "$command" --help >help
        grep -q '^ *--json ' help || continue
        grep -q "^$command" lines || fail "what $command --json prints is not tested"
    done
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

test_small_stack() {
    model
    (ulimit -s 64 && run 1 md model.safetensors --system h2o --n-steps 1 -o stack.extxyz --device cpu) || exit 1
    says '^mlff: the stack is limited to 64 kB, and 256 are needed; raise the limit \(ulimit -s\)$' err
    (ulimit -S -s 64 && run 0 md model.safetensors --system h2o --n-steps 1 --timestep 0.1 -o stack.extxyz --device cpu) || exit 1
    (ulimit -s 256 && run 0 md model.safetensors --system h2o --n-steps 1 --timestep 0.1 -o stack.extxyz --device cpu) || exit 1
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
not_plural() { # WHAT FILE…
    local what=$1
    shift
    grep -E '(^|[^0-9.])1 ((labelled|warm-up|independent) )?(steps|frames|atoms|structures|replicas|times|states|runs|bonds|pairs|threads|cores|calls|labels|trajectories|systems)\b' "$@" &&
        fail "$what: 1 of a plural"
    return 0
}

test_plurals() {
    model --elements H,O
    water
    printf '1\n\nO 0 0 0\n' >atom.xyz
    local line
    for line in 'md model.safetensors water.xyz --n-steps 1 -o run.extxyz' 'md model.safetensors water.xyz --n-steps 1 --replicas 1' \
        'relax model.safetensors water.xyz' 'eval model.safetensors atom.xyz' 'eval model.safetensors water.xyz' \
        'vibrations model.safetensors water.xyz' 'analyze run.extxyz --geometry' \
        'profile model.safetensors atom.xyz --n-steps 1 --warmup 1 --full -o one.json' 'report one.json --text' 'check' \
        'sample model.safetensors --system h2o -o one.extxyz --n-samples 1 --methods thermal --oversample 1 --no-relax' \
        'label model.safetensors one.extxyz -o labels.extxyz'; do
        run 0 $line
        not_plural "$line" out err
    done
    "$mlff" bench compare model.safetensors model.safetensors:float64 --input atom.xyz --rounds 6 --frames 1 >out 2>err # 0, 3 or 4
    says '6 rounds of 1 frame,' && not_plural "bench compare" out
    run 0 report one.json -o one.html
    not_plural "the page" one.html
    run 1 verdict model.safetensors --test labels.extxyz --trained-on labels.extxyz --nve 0 --hot 0.01 --compare 0 --min-speed 0 -o verdict.json
    not_plural verdict out verdict.json
    says '1 of 1 structure is among the training data' && says '^stability.hot .*3 runs'
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
