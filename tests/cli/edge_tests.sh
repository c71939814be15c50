# SPDX-License-Identifier: MIT
# Tests of standard output by name, signals, limits of the system, and files of replicas; read by test_cli.sh, whose helpers they use.

# /dev/stdout and its other names are -: with --quiet too, and not beside another output there.
test_standard_output() {
    model
    water
    run 0 eval model.safetensors water.xyz -o -
    cp out frames
    run 0 eval model.safetensors water.xyz --json -
    grep -v compute_time_s out >results
    local name
    for name in /dev/stdout /dev/fd/1 /proc/self/fd/1; do
        run 0 eval model.safetensors water.xyz -o $name
        cmp out frames || fail "-o $name and -o - differ"
        run 0 eval model.safetensors water.xyz -q -o $name
        cmp out frames || fail "with --quiet -o $name and -o - differ"
        run 0 eval model.safetensors water.xyz -q --json $name
        grep -v compute_time_s out | cmp - results || fail "with --quiet --json $name and --json - differ"
        refused 2 'cannot both have standard output' eval model.safetensors water.xyz -o $name --json -
        refused 2 'cannot both have standard output' md model.safetensors water.xyz --n-steps 2 -o $name --json
        refused 2 'needs a file, not standard output' md model.safetensors water.xyz --n-steps 2 --checkpoint $name
    done
    refused 2 '-o needs a folder, not standard output' distill model.safetensors --system ethanol -o -
    # What would stand among text for people, or in a file named "-", is refused.
    run 0 profile model.safetensors --n-steps 5 -o report.json
    local line
    while read -r line; do
        # shellcheck disable=SC2086
        refused 2 '-(o|-[a-z]+) needs a file, not standard output' $line
    done <<'END'
new --arch painn -o -
import model.safetensors -o -
sample model.safetensors --system ethanol --n-samples 2 -o -
label model.safetensors water.xyz -o -
train water.xyz -o -
train water.xyz -o student.safetensors --history -
train water.xyz -o student.safetensors --checkpoint -
verdict model.safetensors --test water.xyz -o -
analyze water.xyz --geometry --html -
md model.safetensors water.xyz --n-steps 2 --profile -
profile model.safetensors --n-steps 5 --trace -
bench compare model.safetensors model.safetensors --html -
bench compare model.safetensors model.safetensors -o -
bench example -o -
END
}

# A limit on the size of files is a failed write, not the end of the process by a signal.
test_file_size_limit() {
    model
    run 0 md model.safetensors --system ethanol --n-steps 100 --every 2 --timestep 0.1 -o run.extxyz
    (
        ulimit -f 4
        refused 1 'o.json: .*File too large' eval model.safetensors run.extxyz -q --json o.json
        run 1 eval model.safetensors run.extxyz -q -o o.extxyz
        says '^mlff: o.extxyz: .*File too large; kept: [0-9]+ frames in o-partial.extxyz; go on with --skip [0-9]+' err
        refused 1 'n.safetensors: .*File too large' new --arch painn -q -o n.safetensors
        run 1 md model.safetensors --system ethanol --n-steps 100 --every 2 --timestep 0.1 -q -o grown.extxyz --checkpoint grown.restart
        says 'grown.extxyz: .*File too large; the frames before it are kept' err
    ) || exit 1
    [ -s grown.restart ] || fail "the restart file of a run whose trajectory cannot grow is missing"
}

# begin PATTERN ARGUMENTS…: starts the command, $process, and waits until its output matches.
begin() {
    local pattern=$1
    shift
    : >out # the background process empties it only once it has started: an earlier command's lines would match
    "$mlff" "$@" >out 2>err </dev/null &
    process=$!
    for _ in $(seq 600); do
        grep -qE "$pattern" out && break
        sleep 0.05
    done
}

# ends_well SIGNAL ARGUMENTS…: the command, once it has printed a line of a step, ends by itself after the signal.
ends_well() {
    local signal=$1 process
    shift
    begin '^ +10 ' "$@"
    kill -"$signal" $process
    wait $process
    is "$?" 130 "exit status after SIG$signal"
}

# A terminal that is closed sends SIGHUP twice, by its shell and by the kernel.
test_hangup() {
    model
    local endless="md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10"
    ends_well HUP $endless -o run.extxyz --checkpoint run.restart
    says 'interrupted after [0-9]+ of 1000000000 steps' err
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 5 --restart run.restart
    run 0 eval model.safetensors run.extxyz
    # Steps long enough that the second signal meets the one in which the first came.
    local process
    begin '^ +1 ' md model.safetensors --system silicon --n-atoms 200000 --n-steps 1000000 --every 1 --threads 1 --checkpoint twice.restart
    kill -HUP $process
    sleep 0.02
    kill -HUP $process
    wait $process
    is "$?" 130 "exit status after two SIGHUP"
    [ -s twice.restart ] || fail "the second SIGHUP ended the run without its restart file"
    # nohup, whose process ignores it: only SIGTERM ends the run.
    (
        trap '' HUP
        begin '^ +10 ' $endless
        kill -HUP $process
        sleep 0.3
        kill -0 $process || fail "an ignored SIGHUP ended the run"
        kill -TERM $process
        wait $process
        is "$?" 130 "exit status after SIGTERM"
    ) || exit 1
}

# A second signal that comes at once, as from `timeout`, is the first one; a later one kills.
test_signal_twice() {
    model
    local endless="--system silicon --n-atoms 8 --n-steps 1000000000" signal process
    for signal in TERM INT TERM INT TERM INT TERM INT TERM INT; do
        rm -f run.json
        begin '"step": 10,' md model.safetensors $endless --every 10 --json
        kill -$signal $process $process
        wait $process
        is "$?" 130 "exit status of mlff md after two SIG$signal"
        says '"partial": true'
        begin '.' profile model.safetensors $endless -o run.json
        kill -$signal $process $process
        wait $process
        is "$?" 130 "exit status of mlff profile after two SIG$signal"
        says '^mlff: interrupted ' err
    done
    # A command of compare that SIGTERM does not end.
    "$mlff" compare --run "trap '' TERM; touch started; sleep 2" --run true >out 2>err </dev/null &
    process=$!
    for _ in $(seq 200); do [ -e started ] && break; sleep 0.05; done
    kill -TERM $process $process
    sleep 0.7
    kill -0 $process || fail "two signals at once ended mlff compare"
    kill -TERM $process
    wait $process
    is "$?" 143 "exit status after a later SIGTERM"
}

# Commands that compare starts have the usual SIGPIPE: `yes` would say "Broken pipe" otherwise.
test_compare_pipe() {
    "$mlff" compare --run 'yes | head -1' --run 'yes | head -1' --rounds 5 --repeat 1 --margin 100 >out 2>err </dev/null
    [ -s out ] && [ ! -s err ] || fail "a command that compare started saw an ignored SIGPIPE"
}

# An untrained model that pulls two atoms onto each other: the metric of L-BFGS stays finite, and the other structure is kept.
test_relax_collapse() {
    "$mlff" new --arch painn --features 16 --layers 1 --rbf 8 --cutoff 4 -o pulls.safetensors >/dev/null 2>err || fail "mlff new"
    cat >two.xyz <<'END'
9

C -4.92196480914482 1.53680877549233 -0.06612792847094
C -3.41079303549336 1.45138155063184 -0.14009009720834
H -5.22648850340463 2.28202241947302 0.66236410391492
H -5.34004680800574 0.57895313793668 0.22257334141131
H -5.33193076526251 1.80898014947387 -1.03229511269262
H -3.00368348713509 1.18933429199764 0.83479697695625
H -2.99557504133053 2.41817570143478 -0.41886385105291
O -3.07553304550781 0.47652256654287 -1.09348059854212
H -2.13350450471551 0.40432140701697 -1.15817683431555
3

O 0 0 0.119
H 0 0.763 -0.477
H 0 -0.763 -0.477
END
    run 0 relax pulls.safetensors two.xyz --max-steps 200 -o relaxed.extxyz
    is "$(grep -c 'relax_end=converged' relaxed.extxyz)" 1 "structures that converged"
    is "$(grep -c 'relax_end=max_steps' relaxed.extxyz)" 1 "structures that did not"
}

# Two atoms that overlap are pushed apart by every student of more than one molecule, the harder the nearer they are, and find their minimum. At
# 0.2 Å the repulsion of their nuclei alone is 2065 eV/Å.
test_shipped_students_repel() {
    local student distance
    for distance in 0.2 0.3 0.4 0.5 0.96; do
        printf '3\n\nO 0 0 0\nH 0 0 %s\nH 0 0.93 -0.24\n' $distance
    done >water.xyz
    for student in organic organic-small water water-small; do
        run 0 eval $student water.xyz
        awk 'NF == 7 && $1 ~ /^[0-3]$/ { if ($1 == 0 ? $5 < 1800 || $5 > 2300 : $5 > last / 2) wrong = 1; last = $5; n++ } END { exit wrong || n != 4 }' \
            out || fail "$student does not repel as the nuclei do"
        run 0 relax $student water.xyz -o relaxed.extxyz --fmax 0.01
        is "$(grep -c 'relax_end=converged' relaxed.extxyz)" 5 "structures that converged with $student"
        awk '/energy=/ { sub(/.*energy=/, ""); if (n++ && ($1 - first) ^ 2 > 1e-4) exit 1; first = $1 }' relaxed.extxyz ||
            fail "$student relaxes one molecule to several energies"
    done
}

# Ctrl-C ends a relaxation within a structure that does not converge.
test_relax_interrupted() {
    model
    "$mlff" relax model.safetensors --fmax 1e-9 --max-steps 1000000000 - >out 2>err < <(
        printf '9\n\nC -4.92 1.54 -0.07\nC -3.41 1.45 -0.14\nH -5.23 2.28 0.66\nH -5.34 0.58 0.22\nH -5.33 1.81 -1.03\n'
        printf 'H -3.00 1.19 0.83\nH -3.00 2.42 -0.42\nO -3.08 0.48 -1.09\nH -2.13 0.40 -1.16\n'
    ) &
    local process=$!
    for _ in $(seq 200); do
        grep -q 'max |F|' out && break
        sleep 0.05
    done
    sleep 0.3
    kill -TERM $process
    for _ in $(seq 200); do
        kill -0 $process 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL $process 2>/dev/null && fail "SIGTERM did not end a relaxation within 10 s"
    wait $process
    is "$?" 130 "exit status of an interrupted relaxation"
    says '^mlff: interrupted after' err && says 'stopped$'
}

# Files of replicas, whose names get a number, are compared with every input.
test_replicas_overwrite() {
    model
    water
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 4 --every 2 -o run.dcd
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 2 --replicas 2 --checkpoint r.restart
    cp water.xyz top-1.xyz
    ln -s model.safetensors m-0.xyz
    ln -s r-1.restart t-1.xyz
    sha256sum ./*.* >before.sums
    refused 2 "would overwrite the input 'top-1.xyz'" md model.safetensors run.dcd --topology top-1.xyz --replicas 2 -o top.xyz
    refused 2 "would overwrite the input 'top-1.xyz'" md model.safetensors top-1.xyz --replicas 2 --checkpoint top.xyz
    refused 2 "would overwrite the input 'model.safetensors'" md model.safetensors water.xyz --replicas 2 -o m.xyz
    refused 2 "t-1.xyz would overwrite the restart file 'r-1.restart'" md model.safetensors water.xyz --replicas 2 --restart r.restart -o t.xyz
    sha256sum -c --quiet before.sums || fail "a file was changed"
}

# The temperature of a trajectory with fixed atoms is that of the table: of 3 degrees of freedom for each atom that may move.
test_analyze_fixed() {
    model
    printf '3\nProperties=species:S:1:pos:R:3:move_mask:L:1\nO 0 0 0.119 F\nH 0 0.763 -0.477 F\nH 0 -0.763 -0.477 T\n' >held.xyz
    run 0 md model.safetensors held.xyz --timestep 0.1 --n-steps 400 --every 2 -o held.extxyz --json
    cp out table
    run 0 analyze held.extxyz --frame-time 0.2 --json
    local k
    for k in 0 100 200; do
        close_to "$(value table thermo.$k.temperature_kelvin)" "$(value out temperature.values.$k)" 1e-6
    done
    sed -i 's/ T$/ F/' held.xyz # of atoms none of which moves there is no temperature
    run 0 md model.safetensors held.xyz --n-steps 10 --every 2 -o held.extxyz
    run 0 analyze held.extxyz
    ! grep -q -e temperature -e nan out || fail "a temperature of atoms that are held"
}

# A structure that fails after some steps, here a crystal that is pressed to nothing, is written as it came.
test_relax_failed() {
    model --cutoff 2.5
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 0 -o crystal.extxyz
    run 1 relax model.safetensors crystal.extxyz --cell --pressure 1e8 -o relaxed.extxyz
    says 'frame 0: after [0-9]+ steps: system 0 repeats too often' err
    says 'relax_end=failed' relaxed.extxyz
    local file
    for file in crystal relaxed; do
        grep -o 'Lattice="[^"]*"' $file.extxyz >$file.numbers
        grep '^Si' $file.extxyz | cut -d' ' -f1-4 >>$file.numbers
    done
    cmp crystal.numbers relaxed.numbers || fail "a structure that failed was changed"
}

# The best weights beside a checkpoint, NAME.best.safetensors, replace no input and no other output.
test_train_best() {
    model
    run 0 sample model.safetensors --system ethanol -o samples.extxyz --n-samples 20 --methods thermal --oversample 1 --no-relax
    run 0 label model.safetensors samples.extxyz -o ethanol.labels
    cp model.safetensors run.best.safetensors
    sha256sum ./*.* >before.sums
    local line="train ethanol.labels --steps 2 --checkpoint run"
    refused 2 "would overwrite the input 'run.best.safetensors'" $line --student run.best.safetensors -o s.safetensors
    refused 2 "are one file, 'run.best.safetensors'" $line -o ./run.best.safetensors
    refused 2 "are one file, 'run.best.safetensors'" $line -o s.safetensors --history run.best.safetensors
    refused 2 '--features is of a new student' $line --student model.safetensors --features 8 -o s.safetensors
    sha256sum -c --quiet before.sums || fail "a file was changed"
    # A long name is not cut, into a file of another folder.
    local deep=d
    for _ in 1 2 3 4 5; do deep=$deep/$(printf 'd%.0s' $(seq 220)); done
    mkdir -p $deep
    run 0 train ethanol.labels --steps 2 --checkpoint $deep/run -o s.safetensors
    [ -s $deep/run.best.safetensors ] || fail "the best weights are not beside a checkpoint with a long name"
}

# A folder with files of the user: none is removed, changed or taken for one of a round.
test_distill_foreign_files() {
    model
    mkdir run
    echo mine | tee run/labels-water.20261128 run/round-1.20261128 run/config.json.20261128 >run/young-0-1.safetensors
    sha256sum run/* >before.sums
    local line="distill model.safetensors --system ethanol --preset demo --structures 60 --rounds 1 --steps 2 -o run"
    refused 1 'absent' distill absent.safetensors --system ethanol -o run
    refused 1 'run/young-0-1.safetensors: is of another run' $line
    for name in explored-1.extxyz labels-1.mlff round-1.json student.checkpoint student.best.safetensors baseline.checkpoint young-1-1.checkpoint; do
        mv run/young-0-1.safetensors run/$name
        refused 1 "run/$name: is of another run" $line
        mv run/$name run/young-0-1.safetensors
    done
    sha256sum -c --quiet before.sums || fail "a file was changed"
    # What a killed run was writing is removed, of trainings too, and nothing else.
    mkdir killed
    touch killed/{made-with.json,student.checkpoint.0123abcd,baseline.best.safetensors.0123abcd,verdict.json.0123abcd,mine.checkpoint.0123abcd}
    run 1 distill --resume -o killed
    is "$(ls -A killed | xargs)" "made-with.json mine.checkpoint.0123abcd" "files of a folder of a killed run"
}

small_distill() { # config.json of a run of a second
    echo '{"n_structures": 40, "n_features": 4, "n_layers": 1, "n_radial": 2, "n_steps": 40, "nve_ps": 0, "hot_ps": 0, "compare_ps": 0, "speed_s": 0.05, "n_pressed": 8}' >config.json
}

# Nothing follows the object of settings, and an empty checkpoint beside its best student is named as such.
test_settings_and_checkpoint() {
    small_distill
    echo '}' >>config.json
    refused 1 '^mlff: config.json: something follows the JSON object: "}' distill ethanol --system ethanol --config config.json -o c.run
    model --elements H,C,O
    labelled 60 labels.extxyz
    local train="train labels.extxyz -o s.safetensors --features 8 --layers 1 --steps 2 --device cpu --checkpoint run"
    # shellcheck disable=SC2086
    run 0 $train
    : >run
    # shellcheck disable=SC2086
    refused 2 '^mlff: run.best.safetensors: is there, .* as run is empty, with nothing to go on from; move it away' $train
    [ -e run ] || fail "a file of the user was removed"
    rm run
    # shellcheck disable=SC2086
    refused 2 '^mlff: run.best.safetensors: is there, .* as run is not there to go on from; move it away' $train
}

# Files of a run that are lost are made again, with the same bits; of damaged ones the remedy is told.
test_distill_damaged() {
    small_distill
    run 1 distill ethanol --system ethanol --config config.json --rounds 1 --device cpu --threads 1 -o c.run
    sha256sum c.run/*.safetensors c.run/*.mlff c.run/*.extxyz c.run/round-1.json >before.sums
    local file
    rm c.run/explored-1.extxyz
    run 1 distill --resume --device cpu --threads 1 -o c.run
    says 'c.run/explored-1.extxyz is gone: round 1 runs again'
    sha256sum -c --quiet before.sums || fail "the round has other results"
    for file in student.safetensors labels.mlff labels-1.mlff; do
        cp c.run/$file kept
        head -c 100 kept >c.run/$file
        [ $file = student.safetensors ] || { head -c 40; printf '\0\0\0\0\0\0\0\0'; tail -c +49; } <kept >c.run/$file
        run 1 distill --resume --device cpu --threads 1 -o c.run
        says "^mlff: c.run/$file: .*(remove it, and it is trained again|without this file its structures are labelled again)$" err
        rm c.run/$file # as it says
        run 1 distill --resume --device cpu --threads 1 -o c.run
        sha256sum -c --quiet before.sums || fail "a run without $file has other results"
    done
}

# A run that finds the folder of an equal one, which was not there when it began, goes on with it; another one tells what differs.
test_distill_together() {
    small_distill
    run 0 sample ethanol --system ethanol -o frame.extxyz --n-samples 1 --methods rattle --no-relax
    local options="--config config.json --rounds 0 --device cpu --threads 1" process late
    for late in "" "--seed 5"; do
        rm -rf d.run seeds.xyz
        mkfifo seeds.xyz
        exec 3<>seeds.xyz
        # shellcheck disable=SC2086
        "$mlff" distill ethanol --system seeds.xyz $options $late -o d.run >late.out 2>late.err </dev/null 3>&- & # waits for its structures
        process=$!
        for _ in $(seq 100); do grep -q 'teacher ethanol' late.out && break; sleep 0.05; done
        mv seeds.xyz pipe
        cp frame.extxyz seeds.xyz
        # shellcheck disable=SC2086
        run 1 distill ethanol --system seeds.xyz $options -o d.run
        cp d.run/verdict.json before.json
        cat seeds.xyz >&3
        exec 3>&-
        wait $process
        is "$?" 1 "exit status of the later run"
        cmp d.run/verdict.json before.json || fail "the later run changed the verdict"
        cp late.err err
        if [ -z "$late" ]; then
            ! grep -q 'another run' err || fail "an equal run is refused"
            says '^verdict: FAILED' late.out
        else
            says '^mlff: d.run/config.json: is of another run: asked for is "?seed"?' err
        fi
    done
}

# Compressed files are named as such; a pipe gives what is in them.
test_compressed() {
    command -v gzip >/dev/null || { echo "skipped: no gzip"; return; }
    model
    water
    gzip -k water.xyz
    cp water.xyz.gz hidden.xyz
    refused 1 'water.xyz.gz: is compressed by gzip; decompress it first' eval model.safetensors water.xyz.gz
    refused 1 'hidden.xyz: is compressed by gzip' eval model.safetensors hidden.xyz
    refused 1 'hidden.xyz: is compressed by gzip' analyze hidden.xyz --geometry
    printf 'BZh91AY&SY' >water.xyz.bz2
    refused 1 'water.xyz.bz2: is compressed by bzip2' eval model.safetensors water.xyz.bz2
    printf 'BZh, a title\n1.0\n5 0 0\n0 5 0\n0 0 5\nO\n1\nDirect\n0 0 0\n' >POSCAR
    run 0 eval model.safetensors POSCAR
}

# A restart file that another model wrote: its energy and forces are not this model's.
test_restart_other_model() {
    model
    water
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 5 --checkpoint w.restart
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 5 --restart w.restart
    [ ! -s err ] || fail "a run that continues warns"
    refused 2 "--restart 'w.restart' needs the INPUT, or the --system, of its run too: a restart file holds neither elements nor" \
        md model.safetensors --timestep 0.1 --n-steps 5 --restart w.restart
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 5 --restart w.restart --precision float64
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 4.0 --seed 4 -o other.safetensors >/dev/null 2>err || fail "mlff new"
    refused 1 'w.restart: was written by a run of another model: its energy is -?[0-9.]+ eV, that of other -?[0-9.]+ eV' \
        md other.safetensors water.xyz --timestep 0.1 --n-steps 5 --restart w.restart -o other.extxyz
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 5 --replicas 2 --checkpoint r.restart
    run 0 md model.safetensors water.xyz --timestep 0.1 --n-steps 5 --replicas 2 --restart r.restart
    refused 1 'r-0.restart: was written by a run of another model' \
        md other.safetensors water.xyz --timestep 0.1 --n-steps 5 --replicas 2 --restart r.restart -o other.extxyz
    # Students of one teacher have nearly the same energy.
    run 0 md organic --system ethanol --timestep 0.1 --n-steps 5 --checkpoint e.restart
    run 0 md ethanol --system ethanol --timestep 0.1 --n-steps 5 --restart e.restart
    says 'e.restart: its forces, .* differ from those of ethanol by [0-9.]+ %' err
    refused 2 'excludes --thermalize' md model.safetensors water.xyz --restart w.restart --thermalize
}

# The number of warnings of forces that are extrapolated, and of those that match.
extrapolated() { # NUMBER PATTERN
    is "$(grep -cE 'forces (are|may be) extrapolated' err)" "$1" "warnings of forces that are extrapolated"
    [ "$1" = 0 ] || says "$2" err
}

# Outside of what a student was trained on a run warns once: as it is asked for, as hot as it becomes, as close as atoms come.
test_md_far_from_training() {
    local short="--system ethanol --device cpu --timestep 0.5 --n-steps 40"
    run 0 md ethanol $short --temperature 1200 --ensemble langevin
    extrapolated 0
    run 0 md ethanol $short --temperature 2000 --ensemble langevin -o hot.extxyz
    extrapolated 1 'trained at up to 1000 K; at 2000 K'
    run 0 md ethanol hot.extxyz --device cpu --timestep 0.5 --n-steps 40 --temperature 300
    extrapolated 0 # of nine atoms this may be a fluctuation from 1100 K
    run 0 md ethanol $short --temperature 6000 -o hot.extxyz --every 1
    head -11 hot.extxyz >start.extxyz
    run 0 md ethanol start.extxyz --device cpu --timestep 0.1 --n-steps 40
    extrapolated 1 'step [0-9]+: the model was trained at up to 1000 K; at [0-9.]+ K'
    # One atom of nine moves: the temperature of its three degrees of freedom has a standard deviation of 0.8 of itself.
    awk 'NR == 2 { print "Properties=species:S:1:pos:R:3:move_mask:L:1" } NR > 2 { print $1, $2, $3, $4, NR == 11 ? "T" : "F" } NR == 1' \
        start.extxyz >one.extxyz
    run 0 md ethanol one.extxyz --device cpu --timestep 0.5 --n-steps 6000 --every 6000 --temperature 600 --ensemble langevin
    extrapolated 0
    run 0 md organic-small --system h2o --device cpu --timestep 0.5 --n-steps 40
    extrapolated 0
    printf '3\n\nO 0 0 0\nH 0.55 0 0\nH -0.24 0.93 0\n' >pressed.xyz
    run 0 md organic-small pressed.xyz --device cpu --timestep 0.05 --n-steps 4 --temperature 300 # few steps: it becomes hot, which is another warning
    extrapolated 1 'step 1: atoms are within the model.s core repulsion, and its file does not say'
    # A student that says how near its training structures come: not within its core repulsion, but nearer than these.
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1' 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >water.xyz
    local train="train water.xyz --validation water.xyz --steps 2 --features 8 --layers 1 --device cpu"
    run 0 $train --core-repulsion 1 -o student.safetensors
    run 0 info student.safetensors
    says 'training.nearest_of_covalent +0.9896$' # 0.96 Å of 0.97
    run 0 md student.safetensors water.xyz --device cpu --timestep 0.05 --n-steps 4 --temperature 10
    extrapolated 0
    run 0 md student.safetensors pressed.xyz --device cpu --timestep 0.05 --n-steps 4 --temperature 300
    extrapolated 1 'step [01]: atoms are nearer than in any training structure of the model \(0.99 of the sum of their covalent radii\)'
    # Trained on: what it was trained on before counts, where that is known.
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1' 'O 0 0 0 0 0 0' 'H 0 0 0.98 0 0 0' 'H 0 0.98 -0.24 0 0 0' >longer.xyz
    run 0 ${train/water.xyz/longer.xyz} -o longer.safetensors && run 0 info longer.safetensors
    says 'training.nearest_of_covalent +1$'
    run 0 train longer.xyz --validation water.xyz --student student.safetensors --steps 2 --device cpu -o both.safetensors
    run 0 info both.safetensors
    says 'training.nearest_of_covalent +0.9896$'
    run 0 train longer.xyz --validation water.xyz --student organic-small --steps 1 --device cpu -o after.safetensors
    run 0 info after.safetensors
    ! grep -q nearest out || fail "the distances of a part of the training structures"
}

# One bond has no standard deviation, and one neighbor is no plural.
test_analyze_one_pair() {
    printf '2\nLattice="5 0 0 0 5 0 0 0 5" pbc="T T T"\nH 0 0 0\nH 0.74 0 0\n' >pair.xyz
    run 0 analyze pair.xyz --geometry
    says '^H-H +1 +0.74 Å +- +0.74 Å' && says ': 1 neighbor up to there'
    ! grep -q nan out || fail "a number that is none is printed"
    local k
    for k in $(seq 100); do printf '1\nLattice="5 0 0 0 5 0 0 0 5" pbc="T T T"\nHe %s 0 0\n' "$k.1"; done >atom.xyz
    run 0 analyze atom.xyz --frame-time 1 --json # one atom: no pairs, but it moves
    value out msd.diffusion_cm2_per_s >number || fail "no diffusion of one atom"
    run 2 analyze atom.xyz --pair He-He
    says 'no pair of an atom of He and one of He; choose elements' err
}

# headed STATUS ARGUMENTS…: a command whose reader leaves after its first line ends by SIGPIPE (141) and says nothing.
headed() {
    local expected=$1 status
    shift
    timeout 60 "$mlff" "$@" 2>err </dev/null | head -1 >out
    status=${PIPESTATUS[0]}
    is "$status" "$expected" "exit status of '$*' whose reader has left"
    [ ! -s err ] || fail "'$*' whose reader has left says something"
}

# A run whose reader has left ends where nothing else is written, and goes on where there is a file.
test_reader_leaves() {
    model
    water
    for _ in $(seq 3000); do cat water.xyz; done >many.xyz
    local line="md model.safetensors --system silicon --n-atoms 8 --every 10"
    # shellcheck disable=SC2086
    headed 141 $line --n-steps 1000000000
    # shellcheck disable=SC2086
    headed 141 $line --n-steps 1000000000 --replicas 2
    # shellcheck disable=SC2086
    headed 141 $line --n-steps 1000000000 --format extxyz -o -
    headed 141 eval model.safetensors many.xyz
    headed 141 eval model.safetensors many.xyz -o -
    headed 141 eval model.safetensors many.xyz --json -
    headed 141 bench batch model.safetensors --system silicon --n-atoms 8 --batch-sizes 1,1,1,60000 --n-calls 200 --device cpu
    headed 141 bench run --n-calls 500 --threads 1
    headed 141 relax model.safetensors many.xyz --max-steps 1 --batch 2
    headed 141 relax model.safetensors many.xyz --max-steps 1 --batch 2 -o -
    # shellcheck disable=SC2086
    headed 141 $line --n-steps 1000 -o run.extxyz
    is "$(grep -c Properties run.extxyz)" 101 "frames of a run whose reader has left"
    # Output of one write: the reader may have left before it or not.
    "$mlff" manual 2>err | true
    [ ! -s err ] || fail "a page without a reader says something"
    # A caller that ignores SIGPIPE is told, as by other programs; another failure keeps its text and status.
    (trap '' PIPE && timeout 60 "$mlff" eval model.safetensors many.xyz 2>err | head -1 >out; exit "${PIPESTATUS[0]}")
    is $? 1 "exit status where SIGPIPE is ignored"
    says 'standard output: Broken pipe' err
    echo 1 >>many.xyz
    "$mlff" eval model.safetensors many.xyz -o all.extxyz 2>err | head -1 >out
    is "${PIPESTATUS[0]}" 1 "exit status of a failure whose reader has left"
    says 'many.xyz' err
}
