#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Models as KIM portable models, in collections of their own: mlff kim, and LAMMPS (pair_style kim) against mlff eval. Skipped (77),
# with the reason, where LAMMPS, MPI or python3 are absent.
#   run.sh BIN_FOLDER NAME
set -uo pipefail
bin=$(cd "$1" && pwd)
name=$2
here=$(cd "$(dirname "$0")" && pwd)
. "$here/helpers.sh"
export KIM_API_MODEL_DRIVERS_DIR=$work/drivers KIM_API_PORTABLE_MODELS_DIR=$work/models
export MLFF_PRECISION=float64 MLFF_DEVICE=${MLFF_TEST_DEVICE:-cpu}

refused() { # STATUS PATTERN ARGUMENTS…: one line on stderr that matches; nothing is installed
    local expected=$1 pattern=$2
    shift 2
    run "$expected" "$@"
    grep -qE -- "$pattern" err || fail "stderr does not match '$pattern': mlff $*"
    [ "$(grep -c . err)" = 1 ] || fail "stderr is not one line: mlff $*"
    [ -z "$(ls -A models 2>/dev/null)" ] || fail "left behind: $(ls -A models)"
}

models() { # small untrained models: PaiNN of three layers for silicon, PaiNN and ANI for water; installed
    "$mlff" new --arch painn --features 16 --layers 3 --rbf 8 --cutoff 4.0 --elements Si --seed 3 -o silicon.safetensors >/dev/null || fail "mlff new"
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 3.5 --elements H,O --seed 5 -o water.safetensors >/dev/null || fail "mlff new"
    "$mlff" new --arch ani --members 2 --hidden 16,8 --elements H,O --seed 7 -o ani.safetensors >/dev/null || fail "mlff new"
    run 0 kim install silicon.safetensors --name Silicon_PaiNN
    run 0 kim install water.safetensors --name Water_PaiNN
    run 0 kim install ani.safetensors --name Water_ANI
}

# compare MODEL_FILE KIM_NAME RANKS SYSTEM_ARGUMENTS…: energies of atoms and forces of LAMMPS against mlff eval.
compare() {
    local file=$1 kim_name=$2 ranks=$3
    shift 3
    python3 "$here/systems.py" make "$@" || fail "systems.py make $*"
    run 0 eval "$file" system.extxyz --precision float64 --device cpu --stress -o expected.extxyz
    lammps "$ranks" forces.in -var model "$kim_name" -var virials ${virials:-yes}
    python3 "$here/systems.py" compare ${tolerance:-1e-11} "$kim_name-$*" >out || { cat out; fail "$kim_name on $ranks ranks differs from mlff eval: $*"; }
    echo "$kim_name, $ranks ranks, $*: $(cat out)"
}

lammps() { # RANKS INPUT ARGUMENTS…
    local ranks=$1 input=$2
    shift 2
    local launch=()
    [ "$ranks" = 1 ] || launch=(mpirun --oversubscribe -np "$ranks")
    rm -f log.lammps
    timeout 200 "${launch[@]}" lmp -in "$here/$input" "$@" >out 2>err </dev/null || fail "lmp on $ranks ranks: $input $*"
}

# ---- tests ----------------------------------------------------------------------------------------------------------------

test_install() {
    models
    [ -L drivers/MLFF_Distiller_Driver/libkim-api-model-driver.so ] || fail "no driver"
    run 0 kim list
    [ "$(grep -cE '^(Silicon_PaiNN|Water_PaiNN|Water_ANI) .*(PaiNN|ANI)' out)" = 3 ] || fail "list"
    run 2 kim install silicon.safetensors --name Silicon_PaiNN
    grep -q 'Silicon_PaiNN is the name of an installed KIM item' err || fail "installed twice"
    run 0 kim remove Silicon_PaiNN
    [ ! -e models/Silicon_PaiNN ] || fail "not removed"
    # A model whose file is gone holds its name until it is removed; a model of others is not touched.
    rm models/Water_ANI/model.safetensors
    mkdir models/Other && cp "$bin/../lib/kim_stub_model.so" models/Other/libkim-api-portable-model.so && touch models/Other/model.safetensors
    run 0 kim list
    grep -qE '^Water_ANI .*model.safetensors: ' out && [ ! -s err ] || fail "a model without its file: $(cat out err)"
    ! grep -q Other out || fail "a model of others is listed"
    run 2 kim remove Other
    rm -r models/Other
    run 0 kim remove Water_ANI
    run 0 kim install ani.safetensors --name Water_ANI
    # Files of the user's in a model's folder stay where they are.
    echo mine >models/Water_ANI/notes.txt
    run 2 kim remove Water_ANI
    grep -q 'models/Water_ANI/notes.txt is not a file of the model' err || fail "notes: $(cat err)"
    [ "$(ls -A models/Water_ANI | wc -l)" = 3 ] && [ "$(ls -A models | wc -l)" = 2 ] || fail "removed in part: $(ls -AR models)"
    rm models/Water_ANI/notes.txt
    # The driver leads nowhere, as when mlff was moved; models are listed, and an install mends it.
    ln -sfn /nowhere/driver.so drivers/MLFF_Distiller_Driver/libkim-api-model-driver.so
    run 0 kim list
    [ "$(grep -c . out)" = 2 ] && grep -q '^mlff: kim: warning: the driver .*libkim-api-model-driver.so: No such file' err || fail "no driver: $(cat err)"
    run 0 kim install silicon.safetensors --name Silicon_PaiNN
    run 0 kim list
    [ ! -s err ] || fail "the driver is not restored: $(cat err)"
    run 0 kim remove Silicon_PaiNN
    run 0 kim remove Water_PaiNN
    run 0 kim remove Water_ANI
    [ -z "$(ls -A models drivers | grep -v :)" ] || fail "left behind: $(ls -A models drivers)"
    run 0 kim list
    [ ! -s out ] || fail "list of nothing"
}

test_refusals() {
    "$mlff" new --arch painn --features 16 --layers 1 --rbf 8 --elements Si -o silicon.safetensors >/dev/null || fail "mlff new"
    refused 2 '^mlff: kim: .*mlff kim --help' kim install silicon.safetensors
    refused 2 "'sing' is not install" kim sing
    refused 2 "'Si-model' is not a KIM name" kim install silicon.safetensors --name Si-model
    refused 2 "'../x' is not a KIM name" kim install silicon.safetensors --name ../x
    refused 1 'absent.safetensors' kim install absent.safetensors --name Absent
    "$mlff" new --arch orb-v3-direct --layers 1 --features 16 -o direct.safetensors >/dev/null || fail "mlff new"
    refused 1 'no energies of atoms' kim install direct.safetensors --name Direct
    refused 2 'NAME is not a model that mlff kim installed' kim remove NAME
    refused 2 'is not a model that mlff kim installed' kim remove ../drivers
    mkdir -p full && chmod 555 full
    if [ ! -w full ]; then
        KIM_API_PORTABLE_MODELS_DIR=$work/full/models refused 1 'full/models: Permission denied' kim install silicon.safetensors --name Si
    fi
}

test_simulator() {
    models
    "$bin/test_kim_model" || fail "test_kim_model"
    grep -q 'ghosts are periodic images and are not computed' kim.log || fail "no ghosts were images: kim.log: $(grep 'on cpu' kim.log)"
    # A sanitized library cannot be opened by KIM's own program.
    if [ -x /usr/libexec/kim-api/kim-api-shared-library-test ] && ! grep -q libasan <(ldd "$bin/test_kim_model"); then
        for library in models/*/libkim-api-portable-model.so drivers/*/libkim-api-model-driver.so; do
            /usr/libexec/kim-api/kim-api-shared-library-test "$library" >out 2>err || fail "kim-api-shared-library-test $library"
        done
    fi
}

# Models as teachers: test_kim_teacher, and labels that a changed model does not continue.
test_teacher() {
    models
    mkdir -p models/Stub_Model && cp "$bin/../lib/kim_stub_model.so" models/Stub_Model/libkim-api-portable-model.so || fail "stub_model"
    [ ! -e kim.log ] || fail "mlff kim wrote a log of KIM"
    "$bin/test_kim_teacher" || fail "test_kim_teacher"
    run 0 sample kim:Water_PaiNN --system h2o -o samples.extxyz --n-samples 8 --threads 1
    run 0 label kim:Water_PaiNN samples.extxyz -o water.labels --threads 1
    run 0 label water.safetensors samples.extxyz -o expected.extxyz --device cpu --precision float64
    run 0 label kim:Water_PaiNN samples.extxyz -o labels.extxyz --threads 1
    [ ! -e kim.log ] || fail "KIM's log was written"
    # 1e-9 eV of 10^2 eV: extended XYZ has 16 digits.
    for file in labels expected; do sed -n 's/.* energy=\([^ ]*\).*/\1/p' $file.extxyz >$file.energies; done
    [ "$(wc -l <labels.energies)" = 8 ] || fail "labels: $(cat labels.energies)"
    paste labels.energies expected.energies | awk '{ d = $1 - $2; if (d < -1e-9 || d > 1e-9) exit 1 }' || fail "kim:Water_PaiNN labels other energies than its file"
    run 0 profile kim:Water_PaiNN --system h2o --n-steps 5 -o profile.json
    grep -q "in the model's own precision" out || fail "the precision of a KIM model: $(cat out)"
    run 0 kim remove Water_PaiNN
    run 0 kim install silicon.safetensors --name Water_PaiNN
    refused_teacher 'of another teacher' label kim:Water_PaiNN samples.extxyz -o water.labels --resume --threads 1
    run 0 kim remove Water_PaiNN
    refused_teacher 'no such KIM model is installed' label kim:Water_PaiNN samples.extxyz -o other.labels --threads 1
}

refused_teacher() { # PATTERN ARGUMENTS…: one line on stderr that matches
    local pattern=$1
    shift
    "$mlff" "$@" >out 2>err </dev/null && fail "not refused: mlff $*"
    grep -qE -- "$pattern" err && [ "$(grep -c . err)" = 1 ] || fail "stderr is not one line with '$pattern': mlff $*"
}

test_lammps() {
    needs lmp python3
    models
    compare silicon.safetensors Silicon_PaiNN 1 silicon 1
    compare silicon.safetensors Silicon_PaiNN 1 silicon 3
    compare silicon.safetensors Silicon_PaiNN 1 triclinic 2
    compare silicon.safetensors Silicon_PaiNN 1 repeated 3
    grep -q 'ghosts are computed' kim.log || fail "a structure that repeats: kim.log: $(grep 'on cpu' kim.log)"
    compare silicon.safetensors Silicon_PaiNN 1 slab 2
    compare water.safetensors Water_PaiNN 1 water 3
    compare water.safetensors Water_PaiNN 1 molecule 1
    compare ani.safetensors Water_ANI 1 molecule 1
    compare ani.safetensors Water_ANI 1 water 3
    grep -q 'ghosts are periodic images and are not computed' kim.log || fail "kim.log: $(grep 'on cpu' kim.log)"
    export MLFF_KIM_GHOSTS=atoms # of their own: all are computed
    rm kim.log
    compare silicon.safetensors Silicon_PaiNN 1 silicon 1
    compare silicon.safetensors Silicon_PaiNN 1 triclinic 2
    compare ani.safetensors Water_ANI 1 water 3
    grep -q 'ghosts are computed' kim.log || fail "kim.log: $(grep 'on cpu' kim.log)"
    lammps_fails "mlff: kim: .*MLFF_KIM_GHOSTS both is not images or atoms" MLFF_KIM_GHOSTS=both -var model Water_ANI
}

test_mpi() {
    needs lmp python3 mpirun
    models
    for ranks in 2 4; do
        compare silicon.safetensors Silicon_PaiNN $ranks silicon 3
        compare silicon.safetensors Silicon_PaiNN $ranks triclinic 2
        compare water.safetensors Water_PaiNN $ranks molecule 1
        compare ani.safetensors Water_ANI $ranks water 3
    done
    # Asked for, images are looked for on several ranks too: not found where the ranks share a system, and found where each has its own.
    export MLFF_KIM_GHOSTS=images
    rm kim.log
    compare silicon.safetensors Silicon_PaiNN 2 silicon 3
    compare silicon.safetensors Silicon_PaiNN 2 repeated 3
    ! grep -q 'are not computed' kim.log || fail "images on two ranks: $(cat kim.log)"
    lammps 2 nve.in -var model Silicon_PaiNN -var temperature 300 -var every 1 -var steps 2 -partition 2x1
    [ "$(grep -c 'are not computed' kim.log)" = 2 ] || fail "no images in partitions: $(cat kim.log)"
}

# Atoms that come and go and boxes that change, on one rank without ghosts and on two.
test_events() {
    needs lmp python3 mpirun
    models
    compare_events 2 silicon.safetensors kim Silicon_PaiNN
    rm kim.log
    compare_events 1 silicon.safetensors kim Silicon_PaiNN
    grep -q 'are not computed' kim.log || fail "no images: $(cat kim.log)"
}

# The same trajectory on one and two ranks, energy conserved. Velocity Verlet's error falls with the square of the timestep.
test_nve() {
    needs lmp python3 mpirun
    models
    export MLFF_PRECISION=float32
    python3 "$here/systems.py" make silicon 3 || fail "systems.py"
    for ranks in 1 2; do
        lammps $ranks nve.in -var model Silicon_PaiNN -var temperature 1000 -var every 10 -var steps 200
        # 1e-5 eV/atom: 1e-6 measured, the integrator at 0.5 fs and 1000 K.
        python3 "$here/systems.py" drift 200 1e-5 >drift.$ranks || { cat drift.$ranks; fail "energy drifts on $ranks ranks"; }
        echo "$ranks ranks: $(cat drift.$ranks)"
    done
    # float32 sums in another order, over 100 fs.
    is_close "$(sed 's/.* //' drift.1)" "$(sed 's/.* //' drift.2)" 1e-6
}

# An emulated GPU (MLFF_CUDA_PLUGIN): water with ghosts, and each rank its own device.
test_gpu() {
    needs lmp python3 mpirun
    [ -n "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin"; exit 77; }
    export MLFF_PRECISION=float32 MLFF_DEVICE=cuda MLFF_EMULATE_DEVICES=2
    "$mlff" new --arch painn --features 64 --layers 2 --rbf 8 --cutoff 3.5 --elements H,O --seed 5 -o water.safetensors >/dev/null || fail "mlff new"
    run 0 kim install water.safetensors --name Water_PaiNN
    tolerance=1e-5 virials=no # eV, eV/Å: float32 sums
    compare water.safetensors Water_PaiNN 1 molecule 1
    compare water.safetensors Water_PaiNN 1 water 2
    compare water.safetensors Water_PaiNN 2 molecule 1
    grep -q 'on cuda:0' kim.log && grep -q 'on cuda:1' kim.log || fail "the ranks' devices: $(grep -o 'on cuda:.' kim.log | sort | uniq -c)"
    MLFF_EMULATE_DEVICES=1 compare water.safetensors Water_PaiNN 2 molecule 1 # more ranks than GPUs
    lammps_fails "mlff: kim: .*virials of atoms are computed on one CPU only" X=0 -var model Water_PaiNN
    MLFF_EMULATE_DEVICES=0 lammps_fails "mlff: kim: " X=0 -var model Water_PaiNN
    sed 's/mlff %s layout/mlff %s LAYOUT/' "$MLFF_CUDA_PLUGIN" >other.so
    MLFF_CUDA_PLUGIN=$PWD/other.so lammps_fails "mlff: kim: .*install both from one build" X=0 -var model Water_PaiNN
    rm kim.log
    export MLFF_DEVICE=auto
    MLFF_CUDA_PLUGIN=$PWD/other.so compare water.safetensors Water_PaiNN 1 molecule 1
    grep -q 'rank 0 on cpu, float32, .*device auto: no GPU support: .*install both from one build' kim.log || fail "auto: $(grep 'rank 0' kim.log)"
}

# ASE's KIM calculator, where ASE and kimpy are.
test_ase() {
    local python=
    for candidate in ${MLFF_PYTHON:-} python3 /usr/bin/python3; do
        "$candidate" -c 'import ase.calculators.kim, kimpy' 2>/dev/null && python=$candidate && break
    done
    [ -n "$python" ] || { echo "skipped: no python3 with ase and kimpy"; exit 77; }
    models
    python3 "$here/systems.py" make triclinic 1 || fail "systems.py"
    run 0 eval silicon.safetensors system.extxyz --precision float64 --device cpu --stress -o expected.extxyz
    "$python" - <<'END' || fail "ASE's KIM calculator differs from mlff eval"
import ase.io
import numpy as np
from ase.calculators.kim import KIM

expected = ase.io.read("expected.extxyz")
atoms = ase.io.read("system.extxyz")
atoms.calc = KIM("Silicon_PaiNN")
for name, value in [("energy", atoms.get_potential_energy()), ("forces", atoms.get_forces()), ("stress", atoms.get_stress())]:
    error = np.abs(value - expected.calc.results[name]).max()
    print(name, error)
    assert error <= 1e-11, name
END
}

# Forces against numerical derivatives of LAMMPS's energy.
test_derivatives() {
    needs lmp mpirun python3
    models
    local ranks
    for ranks in 1 2; do
        python3 "$here/systems.py" make triclinic 1 || fail "systems.py"
        is_derivative $ranks Silicon_PaiNN
        python3 "$here/systems.py" make water 2 || fail "systems.py"
        is_derivative $ranks Water_PaiNN
        is_derivative $ranks Water_ANI
    done
}

# The guide's blocks, as they stand: sh is run, with the input files of lammps: in.silicon, in.mlff, and a run that stops.
test_guide() {
    needs lmp mpirun
    local guide=$here/../../docs/guide/lammps.md
    awk '/^```lammps/ { on = ++n; next } /^```/ { on = 0 } on { print >("block." on) }' "$guide"
    awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' "$guide" >guide.sh
    mv block.1 in.silicon && mv block.2 in.mlff || fail "blocks of the guide"
    [ "$(grep -cE '^(m|MLFF)' guide.sh)" -ge 7 ] && [ ! -e block.4 ] || fail "blocks of the guide"
    local expected=4
    [ -x "$bin/lmp_mlff" ] || { sed -i '/lmp_mlff\|report/d' guide.sh && expected=2; }
    PATH=$bin:$PATH MLFF_PRECISION=float32 timeout 500 bash -euo pipefail guide.sh >out 2>err </dev/null || fail "guide.sh"
    [ "$(grep -c '^Loop time .* for 100 steps with 216 atoms' out)" = $expected ] || fail "$expected runs of 100 steps"
    if [ $expected = 4 ]; then
        grep -q '<h2>Ranks</h2>' run.html || fail "page of the guide"
        guide_stops
    fi
    echo "neighbor 5.0 bin" | sed '/^kim interactions/r /dev/stdin' in.silicon >in.skin
    lmp -in in.skin >out 2>err </dev/null && fail "a skin beyond the cutoff"
    grep -q 'force cutoff <= skin' out || fail "message of a skin beyond the cutoff"
}

# A run with an ensemble whose members differ by 70 eV/A, with the guide's lines in place of those of halt.in.
guide_stops() {
    "$mlff" new --arch ani --members 2 --hidden 16,8 --elements H,O --seed 7 -o ani.safetensors >/dev/null || fail "mlff new"
    python3 "$here/systems.py" make water 2 || fail "systems.py"
    sed -e '/^compute deviation/,/^fix stop/d' -e '/^thermo 10$/{r block.3
N}' -e 's/^run 40/run 100/' "$here/../lammps/halt.in" >in.halt
    mpirun --oversubscribe -np 2 "$bin/lmp_mlff" -in in.halt -var model ani.safetensors >out 2>err </dev/null || fail "block of fix halt"
    grep -q '^Fix halt condition for fix-id stop met on step 100 ' out || fail "a run of members that differ went on"
}

# Two atoms in metal, real, electron, si and cgs units against metal, by CODATA 2014.
test_units() {
    needs lmp
    models
    local metal_energy metal_force units length energy_factor energy force
    while read -r units length energy_factor; do
        # boxes of 40 Å, in the unit
        lammps 1 units.in -var model Water_PaiNN -var units "$units" -var length "$(awk -v l="$length" 'BEGIN { printf "%.15g", 40 * l }')"
        read -r energy force <units.txt
        [ "$units" = metal ] && metal_energy=$energy && metal_force=$force
        is_close "$energy" "$(awk -v e="$metal_energy" -v f="$energy_factor" 'BEGIN { printf "%.15g", e * f }')" 1e-8
        is_close "$force" "$(awk -v e="$metal_force" -v f="$energy_factor" -v l="$length" 'BEGIN { printf "%.15g", e * f / l }')" 1e-8
        echo "$units: energy $energy, force $force"
    done <<'END'
metal 1 1
real 1 23.060548012
electron 1.88972612584 0.03674932247496
si 1e-10 1.6021766208e-19
cgs 1e-8 1.6021766208e-12
END
}

# One line on stderr, of one process, where atoms are closer than a model was trained on; none where they are not.
test_extrapolation() {
    needs lmp python3 mpirun
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 4.0 --elements Si --core-repulsion 0.7 -o silicon.safetensors >/dev/null || fail "mlff new"
    run 0 kim install silicon.safetensors --name Silicon_PaiNN
    local ranks
    for ranks in 1 2 4; do
        python3 "$here/systems.py" make silicon 2 || fail "systems.py"
        lammps $ranks nve.in -var model Silicon_PaiNN -var temperature 300 -var every 1 -var steps 2
        grep -q extrapolated err && fail "$ranks ranks: a warning of a usual structure"
        python3 "$here/systems.py" close 1.4
        lammps $ranks nve.in -var model Silicon_PaiNN -var temperature 1 -var every 1 -var steps 1
        [ "$(grep -c '^mlff: kim: warning: atoms are within .* extrapolated' err)" = 1 ] || fail "$ranks ranks: not one warning"
    done
}

# MLFF_PROFILE: one file a rank, one page for all.
test_profile() {
    needs lmp python3 mpirun
    models
    python3 "$here/systems.py" make silicon 2 || fail "systems.py"
    local ranks
    export MLFF_PRECISION=float32
    for ranks in 1 2; do
        MLFF_PROFILE=run.json lammps $ranks nve.in -var model Silicon_PaiNN -var temperature 300 -var every 10 -var steps 40
        has_profile $ranks no
    done
    lammps_fails "mlff: kim: .*MLFF_PROFILE: absent/run.json: No such file" MLFF_PROFILE=absent/run.json -var model Silicon_PaiNN
}

# LAMMPS's exit status is not 0, the reason stands once on stderr, and no rank waits for another.
test_failures() {
    needs lmp python3 mpirun
    models
    python3 "$here/systems.py" make silicon 2 || fail "systems.py"
    lammps_fails "mlff: kim: .*MLFF_PRECISION float16 is not" MLFF_PRECISION=float16 -var model Silicon_PaiNN
    lammps_fails "mlff: kim: .*device \"tpu\" is not known" MLFF_DEVICE=tpu -var model Silicon_PaiNN
    lammps_fails "symbol not found: Si" X=0 -var model Water_PaiNN
    python3 - <<'END'
lines = open("system.data").read().split("\n")
at = lines.index("Atoms # atomic") + 2
lines[at + 1] = " ".join(["2"] + lines[at].split()[1:])
open("system.data", "w").write("\n".join(lines))
END
    lammps_fails "mlff: kim: .*atoms .* are on one point" X=0 -var model Silicon_PaiNN
    # One rank of two fails, and the other does not know.
    python3 "$here/systems.py" make silicon 2 || fail "systems.py"
    timeout 60 mpirun --oversubscribe -np 1 lmp -in "$here/forces.in" -var model Silicon_PaiNN : \
        -np 1 env MLFF_PRECISION=float16 lmp -in "$here/forces.in" -var model Silicon_PaiNN >out 2>err </dev/null
    local status=$?
    [ $status != 0 ] && [ $status != 124 ] || fail "exit status $status where one rank fails (124: it hung)"
    [ "$(grep -c '^mlff: kim: rank 1: MLFF_PRECISION' err)" = 1 ] || fail "reason of rank 1"
    # A model whose file is gone or cut.
    : >models/Silicon_PaiNN/model.safetensors
    lammps_fails "^mlff: kim: the installed model's file: is empty; mlff kim list says" X=0 -var model Silicon_PaiNN
}

lammps_fails() { # PATTERN NAME=VALUE ARGUMENTS…: on one rank and on two, where the reason is one line of one rank
    local pattern=$1 setting=$2
    shift 2
    for ranks in 1 2; do
        timeout 60 mpirun --oversubscribe -np $ranks env "$setting" lmp -in "$here/forces.in" "$@" >out 2>err </dev/null
        local status=$?
        [ $status != 0 ] && [ $status != 124 ] || fail "exit status $status on $ranks ranks (124: it hung): $setting $*"
        grep -qE -- "$pattern" out err || fail "no '$pattern' on $ranks ranks: $setting $*"
        [ "$(cat out err | grep -c 'mlff: kim: ')" -le 1 ] || fail "more than one line on $ranks ranks: $setting $*"
    done
}

declare -F "test_$name" >/dev/null || fail "no test $name"
"test_$name"
