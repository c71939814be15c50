# SPDX-License-Identifier: MIT
# Tests of mlff profile, compare and bench; read by test_cli.sh, whose functions they use.

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
    (cat water.xyz && printf '1\n\nO 0 0 0\n') >mixed.xyz # times an atom are of the atoms of all steps
    run 0 profile model.safetensors mixed.xyz --n-steps 10 -o mixed.json
    says 'O and others: .* on cpu, 1 to [0-9]+ atoms, [0-9.]+ on average'
    awk -v atoms="$(value mixed.json mean_atoms)" -v first="$(value mixed.json n_atoms)" -v an_atom="$(value mixed.json us_per_atom)" \
        -v mean="$(value mixed.json mean_latency_ms)" \
        'BEGIN { exit !(atoms == (first + 1) / 2 && an_atom * atoms / (1000 * mean) > 0.999 && an_atom * atoms / (1000 * mean) < 1.001) }' ||
        fail "the time an atom is not that of the mean number of atoms"
    run 0 report mixed.json -o mixed.html
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
    refused 2 'excludes --json and --quiet' profile model.safetensors --what-if message=2x --json
    refused 2 'excludes --json and --quiet' profile model.safetensors --what-if message=2x -q -o lost.json
    refused 2 'trace needs a single run' profile model.safetensors --trace lost.json --runs 2
    refused 2 'trace needs a single run' profile model.safetensors --trace lost.json --system-sizes 8,16
    refused 2 'ensemble needs --trajectory md' profile model.safetensors --ensemble langevin
    refused 2 'INPUT has the frames' profile model.safetensors water.xyz --temperature 500
    refused 2 'would overwrite the input' profile model.safetensors water.xyz -o ./water.xyz
    refused 2 'would overwrite the input' profile model.safetensors water.xyz --trace model.safetensors
    run 0 profile model.safetensors --system water --n-steps 5 --what-if message=2x -o kept.json
    says 'a step would take' && value kept.json n_steps >/dev/null
    # An error of writing names the output, and what was measured is printed all the same.
    run 1 profile model.safetensors water.xyz --n-steps 5 --trace /dev/full
    says '^mlff: /dev/full' err && says 'median'
    # Where matrices are multiplied in bfloat16, the limits are those of what multiplies them. A stage that was faster than they allow says so.
    run 0 new --arch orb-v2 --features 64 --layers 1 --hidden 64 -o orb.safetensors
    if "$mlff" profile orb.safetensors --system silicon --n-atoms 8 --n-steps 20 --threads 1 --device cpu --precision bf16 --full -o bf16.json >out 2>err; then
        local limit
        if grep -q 'How near to the machine' out; then
            tr '\n' ' ' <out >line
            grep -qE 'Gflop/s in float32 by vectors, [0-9.e+]+ Gflop/s in bf16 by (AVX512-BF16|AMX tiles), .* all of it at the faster rate' line ||
                fail "limits of bf16"
            run 0 report bf16.json --text
            tr '\n' ' ' <out >line
            grep -qE 'in bf16 by (AVX512-BF16|AMX)' line || fail "limits of bf16 from a file"
        else
            says "not compared with this machine's limits"
        fi
        limit=$(value bf16.json ceilings.product_gflops)
        awk -v limit="$limit" 'BEGIN { exit !(limit > 1) }' || fail "the limit of products in bf16: $limit"
    else
        says 'bf16 on the CPU takes AVX-512' err
    fi
    # None are measured for float64, and the report says so.
    run 0 profile model.safetensors --system h2o --n-steps 20 --threads 1 --device cpu --precision float64 --full -o float64.json
    grep -q 'How near to the machine' out && fail "limits of float64"
    says "not compared with this machine's limits: none are measured for float64, the reference" float64.json
    tr '\n' ' ' <out | tr -s ' ' >line
    says "Notes: .*not compared with this machine's limits: none are measured for float64" line
    # A molecule has one size: it is measured once.
    model --elements H,C,O
    run 0 profile model.safetensors --system ethanol --system-sizes 32,64 --n-steps 5
    is "$(grep -cE '^ +9 ' out)" 1 "rows of ethanol"
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
    is "$(value out failures)" 0 "failures where there are none"
    grep -q 'Different models: difference shown, not judged' page.html || fail "the page does not say that models differ"
    is "$(value runs.json runs)" 3 "profiles beside the comparison"
    grep -q 'On the same frames, interleaved' page.html || fail "the page has no comparison"
    # An untrained Orb ends its trajectory, as atoms are pushed: the next model's is taken, and all are on the page.
    "$mlff" new --arch orb-v2 --features 256 --layers 2 --hidden 512 -o orb.safetensors >out 2>err || fail "mlff new"
    local name
    name=o$(printf 'å%.0s' {1..60})rb.safetensors # longer than 80 bytes, and 80 is within a character
    mv orb.safetensors "$name"
    run 1 bench compare "$name" model.safetensors --system h2o --trajectory md --rounds 40 --threads 1 --html page.html
    says "mlff: $name makes no trajectory, .*: step [0-9]+: the simulation has exploded" err
    says '^oå{16}  ' && says '^model.safetensors  .*faster'
    grep -q "<title>2 implementations on h2o.*; $name makes no trajectory.*exploded" page.html || fail "the page does not say what failed"
    run 1 bench compare "$name" model.safetensors --system h2o --trajectory md --rounds 6 --threads 1 --json
    is "$(value out failures.0.name)" "$name" "what failed"
    value out failures.0.consequence >consequence && grep -q '^makes no trajectory' consequence || fail "consequence of a failure"
    value out failures.0.problem >problem && grep -q 'the simulation has exploded' problem || fail "why it failed"
    refused 2 'trajectory goes with --system' bench compare model.safetensors other.safetensors --input x.xyz --trajectory md
    refused 2 'temperature goes with --system' bench compare model.safetensors other.safetensors --input x.xyz --temperature 500
    refused 2 'seed goes with --system' bench precision model.safetensors --input x.xyz --seed 1
    refused 2 'batch has no option --temperature' bench batch model.safetensors --temperature 500
    refused 2 'batch has no option --seed' bench batch model.safetensors --seed 5
    refused 2 "'hot' is not a number" bench compare model.safetensors other.safetensors --temperature hot
    refused 2 "'walk' is not one of thermal, md" bench compare model.safetensors other.safetensors --trajectory walk
    refused 2 '17 models are given; compare takes 16 at most' bench compare {1..17}
    refused 2 'is not a number of structures' bench batch model.safetensors --batch-sizes 1,0
    [ ! -s out ] || fail "a list with a number that is none: something was printed before the error"
    run 0 bench batch model.safetensors --n-atoms 8 --batch-sizes 1,4 --n-calls 5
    says 'structures/s'
    run 0 bench batch model.safetensors --n-atoms 8 --batch-sizes 1,4 --n-calls 5 --json
    awk -v d="$(value out batches.1.force_difference_ev_per_angstrom)" 'BEGIN { exit !(d < 1e-4) }' || fail "a batch differs from one by one"
    run 0 bench precision model.safetensors --n-atoms 8 --rounds 6 --frames 2 --threads 1
    says 'float64   CPU' && says 'float32   CPU' && says 'reference'
    says '^bf16 on the CPU is not available: PaiNN has no bf16 on the CPU$'
    run 0 bench precision model.safetensors --n-atoms 8 --rounds 6 --frames 2 --threads 1 --json
    is "$(value out precisions.0.precision)" float64 "the reference's precision"
    awk -v d="$(value out precisions.1.force_difference_ev_per_angstrom)" 'BEGIN { exit !(d > 0 && d < 1e-4) }' ||
        fail "forces in float32 differ from float64 by none, or too much"
    refused 2 'precision needs a model' bench precision
    # Without --system one that the model knows: no silicon for a student of molecules.
    run 0 bench precision water-small --n-atoms 6 --rounds 6 --frames 1 --threads 1
    says '^water-small: water, 6 atoms'
    run 0 bench batch ethanol:float64 --batch-sizes 1 --n-calls 1
    says '^ethanol:float64 on cpu: ethanol, 9 atoms'
    run 0 bench batch ethanol --n-atoms 24 --batch-sizes 1 --n-calls 1 # of a size that no molecule has
    says '^ethanol on cpu: water, 24 atoms'
    "$mlff" bench compare ethanol:float64 ethanol --rounds 6 --frames 1 --threads 1 >out 2>err # 0, 3 or 4
    says '^ethanol, 9 atoms'
    run 0 profile organic-small --n-steps 1
    says 'caffeine, 24 atoms'
    refused 1 'no_such' bench batch no_such.safetensors
    run 0 bench list
    says 'si64'
    run 0 bench run aspirin --n-calls 3 -o runs.json
    is "$(value runs.json runs.0.n_steps)" 3 "steps of the first run"
    run 0 bench run aspirin --n-calls 3 --json -o runs.json
    is "$(value out runs.0.name)" "$(value runs.json runs.0.name)" "the first run, printed beside a file"
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
