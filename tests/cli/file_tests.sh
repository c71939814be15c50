# SPDX-License-Identifier: MIT
# Tests of files: outputs, what is never overwritten, full disks, hostile input; read by test_cli.sh, whose functions they use.

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
    # Runs' reports lie below TMPDIR, and a name may be as long as file systems allow.
    TMPDIR=$PWD/absent refused 1 "cannot make a folder in $PWD/absent .* set TMPDIR" $one --runs 2 -o -
    mkdir scratch
    TMPDIR=$PWD/scratch run 0 $one --runs 2 -o -
    rmdir scratch || fail "a report of a run is left"
    local long
    long=$(printf 'Å%.0s' {1..124}).xyz_
    [ "$(printf %s "$long" | wc -c)" -gt 246 ] || fail "the name is not long"
    run 0 eval model.safetensors water.xyz -o "$long" --format extxyz
    run 0 eval model.safetensors "$long" --input-format extxyz
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

# full_at BYTES ARGUMENTS…: the command with a folder `small` that is full behind so many bytes; its files are then in `kept`.
full_at() {
    rm -rf small kept
    mkdir small kept
    export mlff
    unshare -Urm bash -c 'mount -t tmpfs -o size=$1 none small; shift
        "$mlff" "$@" >out 2>err </dev/null
        status=$?
        cp -a small/. kept
        exit $status' full_at "$@"
}

# What is written to a file that was removed meanwhile is lost: the run ends, and says so.
test_removed() {
    model
    displaced 20
    local line pid k
    for k in $(seq 200); do cat samples.extxyz; done >many.extxyz
    for line in "md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 -o gone/run.extxyz --checkpoint run.restart" \
        "md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 -o gone/run.dcd --checkpoint another.restart" \
        "label model.safetensors many.extxyz -o gone/l.labels --hvp 20 --device cpu --threads 1"; do
        mkdir gone
        # shellcheck disable=SC2086
        "$mlff" $line >out 2>err </dev/null &
        pid=$!
        for _ in $(seq 400); do [ -s "$(ls -d gone/* 2>/dev/null)" ] && break; sleep 0.02; done
        rm -r gone
        for _ in $(seq 1000); do kill -0 $pid 2>/dev/null || break; sleep 0.02; done
        kill -KILL $pid 2>/dev/null && fail "it goes on without its file: mlff $line"
        wait $pid
        is $? 1 "exit status where the file was removed"
        says '^mlff: gone/[a-z.]*: was removed while it was written, with its (frames|labels$)' err
    done
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 5 --restart run.restart
}

# What a run computed before the disk was full is kept under a name that says so, and --skip goes on behind it, to the frames of a whole run.
test_full_disk_keeps() {
    unshare -Urm true 2>/dev/null || { echo "skipped: no file system of its own size"; return; }
    model --elements H,C,O
    local k name command suffix topology
    for k in $(seq 200); do printf '3\nProperties=species:S:1:pos:R:3\nO 0 0 0.%s\nH 0 0.763 -0.477\nH 0 -0.763 -0.477\n' $((100 + k)); done >many.xyz
    for command in "eval --device cpu" "relax --max-steps 1 --device cpu"; do
        for suffix in extxyz nc; do
            name=whole.$suffix
            run 0 ${command%% *} model.safetensors many.xyz ${command#* } -o $name
            full_at $([ $suffix = nc ] && echo 8k || echo 20k) ${command%% *} model.safetensors many.xyz ${command#* } -o small/run.$suffix && fail "a full disk is no failure"
            is "$(ls -A kept)" run-partial.$suffix "what mlff $command leaves"
            says "^mlff: small/run.$suffix: cannot write: No space left on device; kept: [0-9]+ (frame|structure)s in small/run-partial.$suffix; go on with --skip [0-9]+ and another -o$" err
            is "$(wc -l <err)" 1 "lines on stderr"
            k=$(sed 's/.*--skip \([0-9]*\).*/\1/' err)
            [ "$k" -gt 10 ] && [ "$k" -lt 200 ] || fail "$k of 200 structures kept by mlff $command"
            topology=$([ $suffix = nc ] && echo "--topology h2o")
            # shellcheck disable=SC2086
            run 0 eval model.safetensors kept/run-partial.$suffix $topology --json kept.json --device cpu
            is "$(value kept.json frames)" "$k" "frames in what mlff $command keeps as $suffix"
            run 0 ${command%% *} model.safetensors many.xyz ${command#* } -o rest.$suffix --skip "$k"
            [ $suffix = extxyz ] || continue
            cat kept/run-partial.$suffix rest.$suffix >both.$suffix
            cmp both.$suffix $name || fail "the parts of mlff $command are not the whole"
        done
    done
    run 0 eval model.safetensors many.xyz --device cpu --json whole.json
    full_at 108k eval model.safetensors many.xyz --device cpu --json small/run.json -o many.nc && fail "a full disk is no failure"
    is "$(ls -A kept)" run-partial.json "what mlff eval --json leaves"
    says '^mlff: small/run.json: cannot write: No space left on device; kept: ([0-9]+) frames in many-partial.nc and [0-9]+ frames in small/run-partial.json; go on with --skip [0-9]+' err
    k=$(value kept/run-partial.json summary.n_frames)
    is "$(value kept/run-partial.json frames)" "$k" "frames of the JSON"
    is "$(value kept/run-partial.json summary.partial)" true "partial"
    is "$(value kept/run-partial.json frames.$((k - 1)).energy_ev)" "$(value whole.json frames.$((k - 1)).energy_ev)" "energy of the last frame"
    says "--skip $k and another -o$" err
    run 2 eval model.safetensors many.xyz --skip 200
    says 'many.xyz: holds 200 frames, all of which --skip leaves out' err
    run 2 relax model.safetensors many.xyz --skip 201
    says 'many.xyz: holds 200 frames, all of which --skip leaves out' err
    refused 2 '--skip needs INPUT' relax model.safetensors --system h2o --skip 1
    # Space for structures is reserved.
    local sample="sample model.safetensors --system ethanol --n-samples 100 --methods thermal --oversample 1 --no-relax --device cpu"
    full_at 64k $sample -o small/samples.extxyz && fail "samples without room"
    says '^mlff: small/samples.extxyz: 0.1 MB cannot be reserved for it: No space left on device$' err
    export command="$sample --n-samples 100 --methods md --no-relax"
    rm -rf small
    mkdir small
    unshare -Urm bash -c 'mount -t tmpfs -o size=256k none small
        "$mlff" $command -o small/samples.extxyz >out 2>err </dev/null &
        process=$!
        for _ in $(seq 600); do [ "$(stat -f -c %f small)" -lt 40 ] && break; sleep 0.05; done
        cat /dev/zero >small/fill 2>/dev/null
        kill -0 $process || exit 3
        wait $process || exit 1
        cp small/samples.extxyz samples.extxyz'
    is $? 0 "exit status of mlff sample on a disk that becomes full"
    is "$(grep -c Properties samples.extxyz)" 100 structures
}

# What was measured or computed is shown, and what can be gone on with is named, where a file does not fit.
test_full_disk_tells() {
    unshare -Urm true 2>/dev/null || { echo "skipped: no file system of its own size"; return; }
    model --elements H,C,O
    run 0 sample model.safetensors --system ethanol -o structures.extxyz --n-samples 60 --methods thermal --oversample 1 --no-relax
    run 0 label model.safetensors structures.extxyz -o labels.extxyz --device cpu
    run 0 md model.safetensors --system ethanol --n-steps 40 --every 1 --timestep 0.1 -o path.extxyz --device cpu
    local full='small/[a-z.]*: cannot be written whole: No space left on device; nothing was kept$'
    full_at 4k analyze path.extxyz --html small/page.html && fail "a full disk is no failure"
    says "^mlff: $full" err && says '^41 frames' && says '^energy: mean'
    full_at 4k profile model.safetensors --system ethanol --n-steps 20 --device cpu -o small/report.json && fail "a full disk is no failure"
    says "^mlff: $full" err && says '^  median '
    full_at 4k profile model.safetensors --system ethanol --n-steps 20 --device cpu --runs 2 -o small/report.json && fail "a full disk is no failure"
    says "^mlff: $full" err && says '^  median '
    full_at 4k profile model.safetensors --n-steps 20 --device cpu --system-sizes 8,16 -o small/report.json && fail "a full disk is no failure"
    says "^mlff: $full" err && says '^step = '
    "$mlff" verdict model.safetensors --test labels.extxyz --nve 0 --hot 0 --compare 0 --min-speed 0 -o /dev/full --device cpu >out 2>err </dev/null
    is $? 1 "exit status of a verdict that cannot be written"
    says '^mlff: /dev/full: .*No space left on device' err && says '^verdict: '
    # Labels are in the file that grows.
    full_at 60k label model.safetensors structures.extxyz -o small/x.extxyz --device cpu && fail "a full disk is no failure"
    says '^mlff: small/x.extxyz: cannot write: No space left on device; kept: the labels in small/x.extxyz.labels; go on with --resume$' err
    is "$(ls -A kept)" x.extxyz.labels "what mlff label leaves"
    run 0 label model.safetensors structures.extxyz -o kept/x.extxyz --device cpu --resume
    cmp kept/x.extxyz labels.extxyz || fail "labels that were gone on with"
    # A training without a checkpoint goes on without its history.
    full_at 16k train labels.extxyz --steps 100 --features 4 --layers 1 --rbf 4 --validate-every 1 --device cpu -o student.safetensors --history small/history &&
        fail "a full disk is no failure"
    says '^mlff: warning: small/history: .*No space left on device.*; the training goes on$' err
    says '^mlff: small/history: is not written; student.safetensors is$' err
    [ "$(wc -l <kept/history)" -gt 3 ] || fail "the history that fits"
    run 0 info student.safetensors
    echo '{"n_structures": 20, "n_features": 4, "n_layers": 1, "n_radial": 2, "n_steps": 10, "nve_ps": 0, "hot_ps": 0, "compare_ps": 0, "speed_s": 0.05}' >config.json
    full_at 24k distill model.safetensors --system h2o --config config.json --device cpu -o small/run && fail "a full disk is no failure"
    says '^mlff: small/run/labels.mlff: .*; mlff distill --resume -o small/run continues$' err
}

# A disk without room for the student is told before the training, and one that becomes full meanwhile does not cost it.
test_train_full_disk() {
    unshare -Urm true 2>/dev/null || { echo "skipped: no file system of its own size"; return; }
    model
    run 0 sample model.safetensors --system ethanol -o structures.extxyz --n-samples 30 --methods thermal --oversample 1 --no-relax
    run 0 label model.safetensors structures.extxyz -o labels.extxyz --device cpu
    mkdir small
    export mlff
    unshare -Urm bash -c 'mount -t tmpfs -o size=64k none small
        "$mlff" train labels.extxyz --steps 20 --features 8 --layers 1 --device cpu -o small/student.safetensors >out 2>err </dev/null' &&
        fail "a student without room"
    says '^mlff: small/student.safetensors: 0.[0-9] MB cannot be reserved for it: No space left on device$' err
    [ ! -s out ] || fail "a training whose student has no room"
    unshare -Urm bash -c 'mount -t tmpfs -o size=512k none small
        "$mlff" train labels.extxyz --steps 3000 --features 8 --layers 1 --device cpu -o small/student.safetensors --history history >out 2>err </dev/null &
        process=$!
        for _ in $(seq 600); do [ -s history ] && break; sleep 0.05; done
        cat /dev/zero >small/fill 2>/dev/null
        kill -0 $process || exit 3
        wait $process || exit 1
        cp small/student.safetensors student.safetensors'
    is $? 0 "exit status of a training during which the disk became full"
    run 0 info student.safetensors
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
        [ $file = short ] || refused 1 "$file.xyz" eval model.safetensors $file.xyz --json out.json -o out.extxyz
        refused 1 "$file.xyz" profile model.safetensors $file.xyz --n-steps 3 -o out.json
        [ $file = short ] || refused 1 '.' md model.safetensors $file.xyz --n-steps 3 -o out.extxyz
    done
    run 1 eval model.safetensors gold.xyz
    says 'Au' err && says 'Xe' err && says 'H, C, O, Si' err
    refused 1 'does not know' md model.safetensors --system iron --n-steps 1
    refused 1 'does not know' profile model.safetensors --system iron --n-steps 1
    refused 1 '.' md model.safetensors --system silicon --n-atoms 2000000000 --n-steps 1
    # The second frame is bad: the first was shown, and is kept, under a name that no file has.
    cat water.xyz nan.xyz >second.xyz
    echo mine >out-partial.extxyz
    for file in short second; do
        run 1 eval model.safetensors $file.xyz --json out.json -o out.extxyz
        says "^mlff: $file.xyz.*; kept: 1 frame in out-partial-2.extxyz and 1 frame in out-partial.json; go on with --skip 1 and another -o$" err
        is "$(value out-partial.json frames)" 1 "frames of the JSON"
        run 0 eval model.safetensors out-partial-2.extxyz
        is "$(cat out-partial.extxyz)" mine "a file that was there"
        rm out-partial-2.extxyz out-partial.json
        [ ! -e out.json ] && [ ! -e out.extxyz ] || fail "a part stands as if it were whole"
    done
    run 1 relax model.safetensors second.xyz -o out.extxyz --max-steps 2
    says '^mlff: second.xyz.*; kept: 1 structure in out-partial-2.extxyz; go on with --skip 1 and another -o$' err
    is "$(grep -c relax_end=max_steps out-partial-2.extxyz)" 1 "structures that were relaxed before one that is not valid"
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
