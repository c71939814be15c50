# SPDX-License-Identifier: MIT
# Tests of models and of mlff eval; read by test_cli.sh, whose functions they use.

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
    run 0 info model.safetensors
    says '^  precisions +float64 and float32; --precisions tells which others there are' # an ANI has none on a GPU
    run 0 info model.safetensors --precisions
    says '^    CPU bf16 +not available: PaiNN has no bf16 on the CPU$'
    run 0 new --arch painn --features 16 --layers 1 --cutoff 0.1 -o alone.safetensors # no atom has neighbors
    run 0 info alone.safetensors --precisions
    says '^    CPU float32 +no relative error: the forces of float64 are all 0$'
    refused 2 'does not know all elements' info model.safetensors --precisions --system silicon
    refused 2 'a model has an empty name; give the path' info ''
    printf '\200\024%098d' 0 >random.safetensors # the first byte of a pickle, of no protocol
    refused 1 'random.safetensors: not a model file' info random.safetensors
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
    MLFF_CPU=portable refused 1 'tf32 is a fast mode of GPUs and of processors with AMX \(path amx, not portable\); on the CPU use float32' eval model.safetensors water.xyz --device cpu --precision tf32
    refused 1 'PaiNN has no bf16 on the CPU' eval model.safetensors water.xyz --device cpu --precision bf16
    run 0 new --arch orb-v2 --features 16 --hidden 16 --layers 1 -o orb.safetensors
    MLFF_CPU=portable refused 1 'bf16 on the CPU takes AVX-512 .*, which (portable|this processor) lacks; use float32' \
        eval orb.safetensors water.xyz --device cpu --precision bf16
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
    sed 's/Properties/charge=1 Properties/' result.extxyz >charged.extxyz
    run 0 eval model.safetensors charged.extxyz # said once, and the results are the same
    says 'a charge of 1 e, which the model model does not depend on' err
    is "$(grep -c 'a charge of' err)" 1 "warnings of a charge"
    run 0 relax model.safetensors charged.extxyz --max-steps 1
    says 'a charge of 1 e' err
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
    # Times of frames go into the results.
    printf '1\ntime_fs=%s Properties=species:S:1:pos:R:3\nSi 0 0 0\n' 2.5 5 >times.xyz
    run 0 eval model.safetensors times.xyz -o times.extxyz
    is "$(grep -o 'time_fs=[^ ]*' times.extxyz | tr '\n' ' ')" "time_fs=2.5 time_fs=5.0 " "times of frames"
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
    # The force of 0 that a constraint makes of a fixed atom is no label.
    printf '%s\n' 2 'Properties=species:S:1:pos:R:3:forces:R:3:move_mask:L:1 pbc="F F F"' 'H 0 0 0 0 0 0 F' 'H 0 0 0.8 -1 0 0 T' >fixed.xyz
    run 0 eval model.safetensors fixed.xyz --json fixed.json
    is "$(value fixed.json summary.n_labelled_force_components)" 3 "force components of the free atom"
    # Of each element, against labels that are 0: the mean absolute forces themselves.
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 pbc="F F F"' 'O 0 0 0.119 0 0 0' 'H 0 0.763 -0.477 0 0 0' \
        'H 0 -0.763 -0.477 0 0 0' >zero.xyz
    cat zero.xyz zero.xyz >zeros.xyz
    run 0 eval model.safetensors zeros.xyz --json zeros.json --precision float64
    says '^ +O +MAE [0-9.]+ eV/Å, RMSE [0-9.]+ eV/Å \(2 atoms\)' && says '^ +H +MAE .*\(4 atoms\)'
    is "$(value zeros.json summary.forces_by_element.H.n_atoms)" 4 "atoms of hydrogen"
    ! grep -q composition zeros.json out || fail "one composition needs no list"
    # Of each composition, those of the largest force error first: their own errors in runs of their own.
    cat labels.xyz zeros.xyz >mixed.xyz
    run 0 eval model.safetensors mixed.xyz --json mixed.json --precision float64
    says '^by composition, largest errors first:'
    is "$(value mixed.json summary.errors_by_composition)" 2 compositions
    local k alone errors=""
    for k in 0 1; do
        alone=result.json
        [ "$(value mixed.json summary.errors_by_composition.$k.composition)" = H2 ] || alone=zeros.json
        is "$(value mixed.json summary.errors_by_composition.$k.n_frames)" 2 "frames of a composition"
        for key in forces_mae_ev_per_ang forces_rmse_ev_per_ang; do
            close_to "$(value mixed.json summary.errors_by_composition.$k.$key)" "$(value $alone summary.$key)" 1e-9
        done
        errors="$errors $(value mixed.json summary.errors_by_composition.$k.forces_mae_ev_per_ang)"
    done
    echo "$errors" | awk '{ exit !($1 >= $2) }' || fail "not the largest first: $errors"
    local element atoms sum
    for element in "O 0" "H 1 2"; do
        sum=0 atoms=${element#? }
        for atom in $atoms; do
            for c in 0 1 2; do sum="$sum $(value zeros.json frames.0.forces_ev_per_ang.$atom.$c)"; done
        done
        close_to "$(value zeros.json "summary.forces_by_element.${element%% *}.mae_ev_per_ang")" \
            "$(awk -v n="$(wc -w <<<"$atoms")" '{ for (k = 1; k <= NF; k++) s += $k < 0 ? -$k : $k; printf "%.12g", s / 3 / n }' <<<"$sum")" 1e-9
    done
    run 0 eval model.safetensors labels.xyz --json result.json --precision float64
    is "$(grep -c 'RMSE' out)" 3 "lines of errors of one element" # energies twice
    says 'after removing the mean difference'
    sed 's/energy=-1.5/energy=998.5/; s/energy=-2.5/energy=997.5/' labels.xyz >other_zero.xyz
    run 0 eval model.safetensors other_zero.xyz --json shifted.json --precision float64
    says 'another zero of energy'
    close_to "$(value shifted.json summary.energy_mae_shifted_ev_per_atom)" "$half" 1e-9
    close_to "$(value shifted.json summary.energy_mae_ev_per_atom)" "$(awk -v s="$(value shifted.json summary.energy_shift_ev_per_atom)" 'BEGIN { printf "%.12g", -s }')" 1e-9
    close_to "$(awk -v a="$(value shifted.json summary.energy_shift_ev_per_atom)" -v b="$(value result.json summary.energy_shift_ev_per_atom)" 'BEGIN { printf "%.12g", b - a }')" 500 1e-9
}

# Stress, against labels of zero: the mean and the root mean square of the components themselves; without --stress nothing is said.
test_eval_stress_labels() {
    model
    printf '%s\n' 2 'Lattice="6 0 0 0 6 0 0 0 6" Properties=species:S:1:pos:R:3 stress="0 0 0 0 0 0 0 0 0" pbc="T T T"' 'H 0 0 0' 'H 0.3 0.2 0.8' >box.xyz
    run 0 eval model.safetensors box.xyz --stress --json box.json --precision float64
    says '^stress +MAE [0-9.]+ meV/Å³, RMSE .*\(6 labelled components\)'
    local k sum=
    for k in 0 1 2 3 4 5; do sum="$sum $(value box.json frames.0.stress_ev_per_ang3.$k)"; done
    close_to "$(value box.json summary.stress_mae_ev_per_ang3)" "$(awk '{ for (k = 1; k <= 6; k++) s += $k < 0 ? -$k : $k; printf "%.12g", s / 6 }' <<<"$sum")" 1e-9
    close_to "$(value box.json summary.stress_rmse_ev_per_ang3)" "$(awk '{ for (k = 1; k <= 6; k++) s += $k * $k; printf "%.12g", sqrt(s / 6) }' <<<"$sum")" 1e-9
    run 0 eval model.safetensors box.xyz --json plain.json --precision float64
    ! grep -q '^stress' out || fail "errors of a stress that was not requested"
    # A verdict tells it of the structures that it judges; the random student fails other bars.
    run 0 eval model.safetensors box.xyz --stress -o labels.extxyz
    sed -i 's/stress="[^"]*"/stress="0 0 0 0 0 0 0 0 0"/' labels.extxyz
    "$mlff" verdict model.safetensors --test labels.extxyz --nve 0 --hot 0 --compare 0 --min-speed 0 -o verdict.json >out 2>err || true
    says 'a component of the stress differs by [0-9.]+ GPa \([0-9.]+ meV/Å³\)'
    close_to "$(value verdict.json stress_mae_ev_per_angstrom3)" "$(value box.json summary.stress_mae_ev_per_ang3)" 1e-6
    # So does a training, of those for validation.
    run 0 train labels.extxyz --validation labels.extxyz --steps 2 --features 8 --layers 1 --device cpu -o student.safetensors --json
    cp out trained.json
    run 0 eval student.safetensors labels.extxyz --stress --json student.json
    close_to "$(value trained.json stress_mae_ev_per_angstrom3)" "$(value student.json summary.stress_mae_ev_per_ang3)" 1e-8
}

# ANI-2x by name: what is said where it is absent, random weights, members and their deviation; with the shared data at
# hand the import of the real one into the search path.
test_ani() {
    water
    export XDG_DATA_HOME=$work/data MLFF_MODEL_PATH=
    refused 1 'github.com/aiqm/ani-model-zoo.*mlff import .*--install fennol-ani2x; .*mlff new --arch fennol-ani2x -o FILE$' eval fennol-ani2x water.xyz
    refused 1 'forcefields/orb-v2-20241011.ckpt; then: mlff import THAT_FILE --install orb-v2; .*mlff new --arch orb-v2 -o FILE$' info orb-v2
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
    run 0 new --arch orb-v3-direct-inf-omat --features 16 --layers 1 --hidden 32 -o inf.safetensors
    says 'Orb-v3 direct, 1 layer, 16 features, hidden 32, 120 neighbors within 6 Å'
    refused 2 'members does not go with --arch orb-v3-conservative-omol' new --arch orb-v3-conservative-omol --members 2 -o omol.safetensors
    run 0 eval v3.safetensors water.xyz --uncertainty --json results.json --device cpu
    grep -q '"atom_energies_ev": null' results.json || fail "energies of atoms of a model that has none"
    awk -v e="$(value results.json frames.0.force_errors_ev_per_ang.2)" 'BEGIN { exit !(e > 0 && e < 0.3) }' ||
        fail "an expected error outside of the head's bins, 0 to 0.3 eV/Å"
    if grep -q energy_deviation_ev results.json; then fail "deviations of an ensemble that is none"; fi
    run 0 info v3.safetensors --json
    says force_errors
    refused 1 'not an ensemble and does not estimate the error of its forces' eval v2.safetensors water.xyz --uncertainty --json refused.json --device cpu
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
    run 0 sample omol.safetensors --system h2o -o samples.extxyz --n-samples 8 --device cpu
    [ "$(grep -c 'charge=0.0 spin=1.0' samples.extxyz)" = 8 ] || fail "structures without charge and spin: $(sed -n 2p samples.extxyz)"
    run 0 label omol.safetensors samples.extxyz -o labels.extxyz --device cpu
    [ "$(grep -c 'charge=0.0 spin=1.0' labels.extxyz)" = 8 ] || fail "labels without charge and spin: $(sed -n 2p labels.extxyz)"
    run 0 sample v3.safetensors --system h2o -o samples.extxyz --n-samples 8 --device cpu
    if grep -q charge= samples.extxyz; then fail "a charge for a teacher that does not read it"; fi
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
    run 0 label v2.safetensors water.xyz -o direct.extxyz --device cpu
    says "$warning" err
    if grep -q 'energies' direct.extxyz; then fail "labels with energies of atoms of a model that has none"; fi
    run 0 profile v2.safetensors water.xyz --n-steps 5 --warmup 1 --device cpu -o report.json
    says 'not the derivative of its energy' report.json
    refused 1 'no virial, which the i-PI protocol .* it predicts a stress only for systems' serve v2.safetensors water.xyz --unix none-$$ --device cpu

    # A predicted stress strains the cell, in relaxations and at constant pressure.
    printf '2\nLattice="3.9 0.1 0 0 4 0 0 0 4.1" pbc="T T T"\nSi 0 0 0\nSi 2 2.1 2\n' >crystal.xyz
    run 0 relax v2.safetensors crystal.xyz -o relaxed.extxyz --cell --max-steps 3 --device cpu
    says "$warning" err
    if grep -q 'Lattice="3.9 0.1 0' relaxed.extxyz; then fail "a cell that was not relaxed"; fi
    run 0 md v2.safetensors crystal.xyz --ensemble mtk --n-steps 3 --timestep 0.1 --device cpu
    says 'mean volume [0-9.]+ .*, mean pressure -?[0-9.]+ bar'
    run 0 md v2.safetensors crystal.xyz --ensemble scr --replicas 2 --n-steps 3 --timestep 0.1 --device cpu
    run 0 new --arch orb-v3-direct --conditioned --features 16 --layers 1 --hidden 32 -o molecules.safetensors
    sed -i 's/pbc=/charge=0 spin=1 pbc=/' crystal.xyz
    refused 1 'no stress, which relaxing a cell needs' relax molecules.safetensors crystal.xyz --cell -o relaxed.extxyz --device cpu
    refused 1 'no stress, which constant pressure needs' md molecules.safetensors crystal.xyz --ensemble mtk --n-steps 1 --device cpu

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
