# SPDX-License-Identifier: MIT
# Tests of signals; read by test_cli.sh, whose functions they use.

test_interrupt_md() {
    model
    ready() { grep -qE '^ +10 ' out 2>/dev/null; }
    interrupted md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 -o run.extxyz --checkpoint run.restart
    says 'interrupted after [0-9]+ of 1000000000 steps' err && says '(interrupted)' && says 'steps/s'
    run 0 eval model.safetensors run.extxyz # whole frames only
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 5 --restart run.restart
    # A profile that is there stays; without one the file has the steps until then.
    interrupted md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 --profile run.json
    says '^mlff: interrupted after [0-9]+ of 1000000000 steps; what was written is kept, the profile in run.json$' err
    says 'partial: ended after [0-9]+ of 1000000000 steps' run.json
    cp run.json before.json
    interrupted md model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 --every 10 --profile run.json
    says '; what was written is kept, the profile in run-partial.json$' err && says '^profile: run-partial.json '
    cmp run.json before.json || fail "a profile that was there"
    run 0 report run-partial.json --text
    says 'partial: ended after'
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 20 --profile run.json # a whole run takes its place
    [ "$(grep -c 'partial: ended' run.json)" = 0 ] || fail "a whole run is marked partial"
}

test_interrupt_profile() {
    model
    ready() { [ -s out ] && sleep 1; }
    interrupted profile model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 -o run.json
    is "$(value run.json partial)" true partial
    [ "$(value run.json n_steps)" -gt 0 ] || fail "nothing was kept"
    says 'PARTIAL|partial|interrupted'
    says '^mlff: interrupted after [0-9]+ of 1000000000 steps; kept: what was measured in run.json, marked partial$' err
    # A report that is there stays.
    cp run.json before.json
    interrupted profile model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000 -o run.json
    says '; kept: what was measured in run-partial.json, marked partial$' err
    cmp run.json before.json || fail "a report that was there"
    is "$(value run-partial.json partial)" true partial
    interrupted profile model.safetensors --system silicon --n-atoms 8 --n-steps 1000000000
    says 'steps; what was measured is shown$' err
}

# What was computed is kept beside files of these names, which stay as they were; --skip goes on behind it.
test_interrupt_eval() {
    model
    water
    mkfifo endless
    { while cat water.xyz; do :; done >endless; } 2>/dev/null &
    local feeder=$! n
    echo mine >run.json
    echo mine >run.extxyz
    ready() { [ "$(wc -l <out)" -gt 5 ]; }
    interrupted eval model.safetensors endless --json run.json -o run.extxyz
    kill $feeder 2>/dev/null
    is "$(cat run.json run.extxyz | uniq)" mine "files that are not of this run"
    is "$(value run-partial.json summary.partial)" true partial
    n=$(value run-partial.json frames)
    is "$n" "$(value run-partial.json summary.n_frames)" "frames and their number"
    is "$(grep -c Properties run-partial.extxyz)" "$n" "frames written"
    says "^mlff: interrupted after $n frames?; kept: $n frames? in run-partial.extxyz and $n frames? in run-partial.json; go on with --skip $n and another -o$" err
}

# Structures under way are kept too, as stopped, and --skip goes on with the first of them. Atoms alone have no forces.
test_interrupt_relax() {
    { printf '1\n\nH 0 0 0\n1\n\nO 0 0 0\n'; printf '3\n\nO 0 0 0.119\nH 0 0.763 -0.477\nH 0 -0.763 -0.577\n'; } >all.xyz
    echo mine >run.extxyz
    ready() { [ "$(grep -c 'converged$' out)" = 2 ] && sleep 0.3; }
    interrupted relax ethanol all.xyz -o run.extxyz --batch 1 --fmax 1e-9 --max-steps 1000000000 --device cpu
    is "$(cat run.extxyz)" mine "the file that is not of this run"
    says '^mlff: interrupted after 2 structures; kept: 3 structures in run-partial.extxyz; go on with --skip 2 and another -o$' err
    is "$(grep -o 'relax_end=[a-z]*' run-partial.extxyz | xargs)" "relax_end=converged relax_end=converged relax_end=stopped" "ends"
    run 0 relax ethanol all.xyz --skip 2 -o rest.extxyz --device cpu
    is "$(grep -c Properties rest.extxyz)" 1 "structures of --skip"
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
    says 'interrupted after 1 frame; kept: 1 frame in run-partial.json; go on with --skip 1' err
    is "$(value run-partial.json summary.partial)" true partial
    is "$(value run-partial.json frames)" 1 frames
    { cat water.xyz water.xyz; exec sleep 60; } >idle.xyz &
    silent=$!
    ready() { sleep 0.5; } # reads both, and waits
    interrupted analyze idle.xyz --geometry
    kill $silent 2>/dev/null || fail "it waited until the pipe's writer left"
    says '^mlff: .*interrupted.*; the 2 frames before it are shown$' err
    says '^2 frames' && says '^H-O '
    # Before the first frame: the files of another run stay.
    local command pid
    for command in eval relax; do
        echo mine >mine.extxyz
        sleep 60 >idle.xyz &
        silent=$!
        head -3 water.xyz >idle.xyz & # a part of a frame
        "$mlff" $command model.safetensors idle.xyz -o mine.extxyz --device cpu >out 2>err </dev/null &
        pid=$!
        for _ in $(seq 200); do ls mine.extxyz.???????? >/dev/null 2>&1 && break; sleep 0.05; done
        sleep 0.2
        kill -INT $pid
        wait $pid
        is $? 130 "exit status of mlff $command that has read nothing"
        kill $silent
        is "$(cat mine.extxyz)" mine "the file of mlff $command that has read nothing"
        is "$(wc -l <err)" 1 "lines on stderr"
        says 'interrupted before a (frame|structure) was .*; no file is written' err
    done
    # Not even a writer has come.
    mkfifo other
    local arguments number
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

# A measurement tells at which part it was interrupted, and what is before it is shown or written.
test_interrupt_measurements() {
    model
    ready() { [ "$(wc -l <out)" -ge 2 ]; }
    interrupted bench batch model.safetensors --system silicon --n-atoms 8 --batch-sizes 100,1 --n-calls 1000000 --device cpu
    says '^mlff: interrupted at 100 structures, after 0 of 2 sizes$' err
    ready() { grep -q '^ *1 ' out; }
    interrupted bench batch model.safetensors --system silicon --n-atoms 8 --batch-sizes 1,5000,5001,5002 --n-calls 500 --device cpu
    says '^mlff: interrupted at 500. structures, after [1-3] of 4 sizes; their results are shown$' err
    ready() { grep -q '"batch": 1,' out; }
    interrupted bench batch model.safetensors --system silicon --n-atoms 8 --batch-sizes 1,5000,5001,5002 --n-calls 500 --device cpu --json
    is "$(value out partial)" true partial
    is "$(value out batches.0.batch)" 1 "the size before"
    ready() { grep -q 'si64, cpu float32 ' out; }
    interrupted bench run si64 aspirin --n-calls 500 -o run.json --threads 1
    says '^mlff: (si64|aspirin), cpu float.*: interrupted .*; kept: [0-9]+ profiles? in run.json$' err
    says '"name": "si64, cpu float32"' run.json
    echo mine >run.json
    interrupted bench run si64 aspirin --n-calls 500 -o run.json --threads 1
    says '^mlff: (si64|aspirin), cpu float.*: interrupted .*; kept: [0-9]+ profiles? in run-partial.json$' err
    is "$(cat run.json)" mine "profiles that were there"
    says '"name": "si64, cpu float32"' run-partial.json
    interrupted bench run si64 aspirin --n-calls 500 --threads 1
    says '^mlff: (si64|aspirin), cpu float.*: interrupted .*; what was measured is shown$' err
    ready() { sleep 2; }
    local kind
    for kind in compare precision; do
        local models=model.safetensors
        [ $kind = compare ] && models="model.safetensors model.safetensors:float64"
        # shellcheck disable=SC2086
        interrupted bench $kind $models --system silicon --n-atoms 64 --rounds 100000 --device cpu
        says '^mlff: interrupted after [0-9]+ of 100000 rounds, which are shown$' err
        says 'float64'
    done
    ready() { sleep 1; }
    interrupted bench example --n-calls 1000000 --threads 1
    says '^mlff: interrupted in the first part$' err
}

# Nothing is known of modes before all computations are done.
test_interrupt_vibrations() {
    model
    local command
    ready() { sleep 0.5; }
    for command in vibrations phonons; do
        interrupted $command model.safetensors --system silicon --n-atoms 400 --device cpu
        says '^mlff: silicon: interrupted after [0-9]+ of [0-9]+ computations of forces; the modes need all of them' err
        [ ! -s out ] || fail "something is printed of modes that are not known"
    done
}

# Without a checkpoint a training leaves nothing before its first validation, and says so. Of a sampling what was made is kept.
test_interrupt_before_end() {
    model
    run 0 sample model.safetensors --system ethanol -o structures.extxyz --n-samples 20 --methods thermal --oversample 1 --no-relax
    run 0 label model.safetensors structures.extxyz -o labels.extxyz --device cpu
    ready() { sleep 0.7; }
    interrupted train labels.extxyz --steps 100000000 --features 8 --layers 1 --device cpu --threads 1 -o student.safetensors
    says '^mlff: training stopped after step [0-9]+ of 100000000; nothing is kept without --checkpoint FILE$' err
    [ ! -e student.safetensors ] || fail "a student that is not trained"
    echo mine >many.extxyz
    local method many
    for method in rattle md; do
        many="--system ethanol --device cpu --n-samples 100000 --methods $method --oversample 1 --no-relax --seed 5"
        rm -f many-partial.extxyz
        # shellcheck disable=SC2086
        interrupted sample ethanol $many -o many.extxyz
        says "^mlff: sampling was interrupted in $method, at [0-9]+ of some 100000 candidates; kept: [0-9]+ structures? in many-partial.extxyz; the same" err
        is "$(wc -l <err)" 1 "lines on stderr"
        is "$(cat many.extxyz)" mine "the file that is not of this run"
        is "$(grep -c Properties many-partial.extxyz)" "$(grep -oE 'kept: [0-9]+' err | grep -oE '[0-9]+')" "structures kept"
    done
    run 0 label model.safetensors many-partial.extxyz -o kept.lab --device cpu
    # Bars of a verdict that were measured.
    run 0 sample ethanol --system ethanol -o test.extxyz --n-samples 20 --methods thermal --oversample 1 --no-relax --seed 3
    run 0 label ethanol test.extxyz -o test-labels.extxyz --device cpu
    echo mine >verdict.json
    local output
    ready() { sleep 1.5; }
    for output in "" "-o verdict.json"; do
        # shellcheck disable=SC2086
        interrupted verdict ethanol --test test-labels.extxyz --nve 100000 --hot 0 --compare 0 --min-speed 0 --device cpu --threads 1 $output
        says 'error.forces ' && says '^verdict: NOT FINISHED$'
        [ -n "$output" ] || says '^mlff: verdict stopped during .*; the bars before it are shown$' err
    done
    says '^mlff: verdict stopped during .*; kept: 2 bars in verdict-partial.json; the same command' err
    is "$(cat verdict.json)" mine "the verdict that is not of this run"
    is "$(value verdict-partial.json verdict)" "not finished" "a verdict that is kept"
    is "$(value verdict-partial.json bars.1.name)" error.energy "a bar that is kept"
    # Bars of dynamics are not measured again, until the verdict is written. A file that holds none stays.
    local judge="verdict ethanol --test test-labels.extxyz --nve 0.01 --compare 0 --min-speed 0 --device cpu --threads 1 -o judged.json"
    ready() { [ -s judged.json.parts ]; }
    # shellcheck disable=SC2086
    interrupted $judge --hot 100000
    says '; kept: [0-9]+ bars in judged-partial.json; the same command goes on behind those in judged.json.parts$' err
    sed -i 's/"text": "/&of before, /' judged.json.parts
    # A whole verdict of another student, which measures the same bars, leaves them.
    # shellcheck disable=SC2086
    "$mlff" ${judge/ethanol/organic-small} --hot 0.001 >out 2>err
    says 'judged.json.parts keeps bars of another student or teacher' err
    ! grep 'of before' out || fail "bars of another student"
    is "$(value judged.json student)" organic-small "the student of the verdict"
    is "$(grep -c . judged.json.parts) $(grep -c '"part": "nve".*of before' judged.json.parts)" "1 1" "bars of a verdict that is not finished"
    # One that ends before its first bar of dynamics has none of its own there.
    ready() { sleep 0.7; }
    interrupted verdict ethanol-large --test test-labels.extxyz --nve 100000 --hot 0 --compare 0 --min-speed 0 --device cpu --threads 1 -o judged.json
    says '; kept: 2 bars in judged-partial-2.json; the same command measures them again$' err
    # shellcheck disable=SC2086
    "$mlff" $judge --hot 0.001 >out 2>err
    says '^bars in judged.json.parts of the same student' && says '^stability.nve .*of before, ' && says '^stability.hot '
    is "$(grep -c 'of before' judged.json)" 1 "bars that were measured before"
    [ ! -e judged.json.parts ] || fail "bars of a verdict that is whole"
    # shellcheck disable=SC2086
    "$mlff" $judge --hot 0 >out 2>err
    ! grep 'of before' out || fail "a whole verdict is measured again"
    echo mine >judged.json.parts
    # shellcheck disable=SC2086
    refused 1 'judged.json.parts: holds no bars of a verdict' $judge --hot 0
    is "$(cat judged.json.parts)" mine "a file that is not of this run"
    ready() { sleep 0.7; }
    mkfifo pipe.extxyz # what comes down a pipe is taken for the whole
    cat pipe.extxyz >read &
    local reader=$!
    # shellcheck disable=SC2086
    interrupted sample ethanol $many -o pipe.extxyz
    says '^mlff: sampling was interrupted in md, at [0-9]+ of some 100000 candidates$' err
    kill $reader 2>/dev/null
    [ ! -s read ] || fail "structures that are not all"
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
    ! grep 'kept' err >/dev/null || fail "the run's own report is named, which ends with it: $(cat err)"
    # A run that dies of the signal, as one that does not catch it yet, is interrupted too.
    "$mlff" profile "only$$.safetensors" --system silicon --n-atoms 8 --runs 3 --n-steps 100000000 --device cpu \
        >out 2>err </dev/null &
    process=$!
    local child=
    for wait in $(seq 200); do child=$(pgrep -P $process) && break; sleep 0.05; done
    kill -STOP "$child"
    kill -TERM $process
    kill -KILL "$child"
    wait $process
    is $? 130 "exit status where the run was killed"
    says 'interrupted before a run was whole' err
    # A later run that fails, or is interrupted, costs none of those before it, and no file that is there. A size too large is no failure.
    local kind signal there expected told count last row
    while read -r kind signal there expected told; do
        rm -f kept*.json
        [ "$there" = new ] || echo mine >kept.json
        local more="--runs 200"
        [ "$kind" = sizes ] && more="--system-sizes $(seq -s, 8 8 400)"
        more+=" --n-steps ${MLFF_TEST_STEPS:-3000}" # half a second: time to find the run's process
        row="$kind, $signal, $there"
        # shellcheck disable=SC2086
        "$mlff" profile "only$$.safetensors" --system silicon --device cpu $more -o kept.json >out 2>err </dev/null &
        process=$!
        count=0
        last=
        for wait in $(seq 4000); do # the third run of its own
            child=$(pgrep -P $process) && [ "$child" != "$last" ] && last=$child && count=$((count + 1))
            [ $count = 3 ] && break
            sleep 0.01
        done
        [ "$signal" = KILL ] && kill -KILL "$child"
        [ "$signal" = TERM ] && kill -TERM $process
        wait $process
        is $? "$expected" "exit status of $row"
        says "^mlff: $told\$" err
        local file=kept.json
        [ "$there" = new ] || file=kept-partial.json
        [ "$there" = new ] || is "$(cat kept.json)" mine "the file that was there, of $row"
        says '"runs"' $file
        [ "$there" = there ] || [ ! -e kept-partial.json ] || fail "a second file of $row"
    done <<'ROWS'
runs KILL new 1 a run failed after [0-9]+ of 200 runs; kept: [0-9]+ runs? in kept.json
runs KILL there 1 a run failed after [0-9]+ of 200 runs; kept: [0-9]+ runs? in kept-partial.json
runs TERM there 130 interrupted after [0-9]+ of 200 runs; kept: [0-9]+ runs? in kept-partial.json
sizes KILL new 0 [0-9]+ atoms did not run; kept: [0-9]+ sizes? in kept.json
sizes KILL there 1 [0-9]+ atoms did not run; kept: [0-9]+ sizes? in kept-partial.json
sizes TERM new 130 interrupted at [0-9]+ atoms; kept: [0-9]+ sizes? in kept.json
sizes TERM there 130 interrupted at [0-9]+ atoms; kept: [0-9]+ sizes? in kept-partial.json
ROWS
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
