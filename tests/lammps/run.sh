#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lmp_mlff, LAMMPS with pair_style mlff, against mlff eval. Skipped (77), with the reason, where MPI or python3 are absent.
#   run.sh BIN_FOLDER NAME
set -uo pipefail
bin=$(cd "$1" && pwd)
name=$2
here=$(cd "$(dirname "$0")" && pwd)
systems=$here/../kim/systems.py
. "$here/../kim/helpers.sh"
export MLFF_DEVICE=cpu
needs mpirun python3

models() { # small untrained models: PaiNN of three layers for silicon, PaiNN and ANI for water
    "$mlff" new --arch painn --features 16 --layers 3 --rbf 8 --cutoff 4.0 --elements Si --seed 3 -o silicon.safetensors >/dev/null || fail "mlff new"
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 3.5 --elements H,O --seed 5 -o water.safetensors >/dev/null || fail "mlff new"
    "$mlff" new --arch ani --members 2 --hidden 16,8 --elements H,O --seed 7 -o ani.safetensors >/dev/null || fail "mlff new"
}

lammps() { # RANKS INPUT ARGUMENTS…
    local ranks=$1 input=$2
    shift 2
    rm -f log.lammps
    timeout 200 mpirun --oversubscribe -np "$ranks" "$bin/lmp_mlff" -in "$here/$input" "$@" >out 2>err </dev/null || fail "lmp_mlff on $ranks ranks: $input $*"
    cp out out.run
}

# compare MODEL_FILE RANKS SYSTEM_ARGUMENTS…: energies of atoms and forces of LAMMPS against mlff eval.
compare() {
    local file=$1 ranks=$2
    shift 2
    python3 "$systems" make "$@" || fail "systems.py make $*"
    run 0 eval "$file" system.extxyz --precision float64 --device cpu --stress -o expected.extxyz
    lammps "$ranks" forces.in -var model "$file" -var precision ${precision:-float64} -var virials ${virials:-yes} -var processors "${processors:-* * *}" -var tiled ${tiled:-no}
    python3 "$systems" compare ${tolerance:-1e-11} "$file-$*-${precision:-float64}" >out || { cat out; fail "$file on $ranks ranks differs from mlff eval: $*"; }
    echo "$file, $ranks ranks, $*: $(cat out)"
}

test_forces() {
    models
    for ranks in 1 2 4; do
        compare silicon.safetensors $ranks silicon 1 # a box smaller than the cutoff
        compare silicon.safetensors $ranks silicon 3
        compare silicon.safetensors $ranks triclinic 2
        compare water.safetensors $ranks water 3
        compare water.safetensors $ranks molecule 1 # ranks without atoms
        compare ani.safetensors $ranks water 3
    done
    compare silicon.safetensors 8 silicon 3
    compare water.safetensors 8 molecule 1
    # 1e-5 eV, eV/Å: sums of float32.
    precision=float32 tolerance=1e-5 compare silicon.safetensors 2 silicon 3
}

# What the engine repeats and what ghosts are for: axes that ranks divide, tiles, a surface, two dimensions.
test_layouts() {
    models
    local grid
    for grid in "2 1 1" "1 2 1" "1 1 2"; do
        processors=$grid compare silicon.safetensors 2 triclinic 2
        processors=$grid compare silicon.safetensors 2 silicon 1
    done
    for ranks in 1 2 4; do
        compare silicon.safetensors $ranks slab 2
        compare silicon.safetensors $ranks sheet 5
        tiled=yes compare silicon.safetensors $ranks silicon 2
    done
}

# Atoms that come and go and boxes that change.
test_events() {
    models
    for ranks in 1 2 3; do compare_events $ranks silicon.safetensors mlff silicon.safetensors; done
}

# Forces against numerical derivatives of LAMMPS's energy.
test_derivatives() {
    models
    local ranks
    for ranks in 1 4; do
        python3 "$systems" make triclinic 1 || fail "systems.py"
        is_derivative $ranks silicon.safetensors -var precision float64
        python3 "$systems" make water 2 || fail "systems.py"
        is_derivative $ranks water.safetensors -var precision float64
        is_derivative $ranks ani.safetensors -var precision float64
    done
}

# The same trajectory on one and four ranks, energy conserved while atoms cross between ranks.
test_nve() {
    models
    python3 "$systems" make silicon 3 || fail "systems.py"
    for ranks in 1 4; do
        lammps $ranks nve.in -var model silicon.safetensors -var precision float32 -var temperature 1000 -var every 10 -var steps 300
        # 1e-5 eV/atom: 1e-6 measured, the integrator at 0.5 fs and 1000 K.
        python3 "$systems" drift 300 1e-5 >drift.$ranks || { cat drift.$ranks; fail "energy drifts on $ranks ranks"; }
        echo "$ranks ranks: $(cat drift.$ranks)"
    done
    is_close "$(sed 's/.* //' drift.1)" "$(sed 's/.* //' drift.4)" 1e-6 # sums of float32 in another order, over 150 fs
}

# Energy of a liquid, whose atoms move from rank to rank. MLFF_TEST_STEPS=10000 is the run that docs/guide/lammps.md reports.
test_melt() {
    local steps=${MLFF_TEST_STEPS:-1000}
    models
    python3 "$systems" make silicon 2 || fail "systems.py"
    for ranks in 1 2; do
        lammps $ranks melt.in -var model silicon.safetensors -var steps $steps
        # 5e-4 eV/atom: 2.2e-4 measured on one rank over 10,000 steps of 0.5 fs at 5000 K, 2.9e-4 on two.
        python3 "$systems" drift $steps 5e-4 >drift.$ranks || { cat drift.$ranks; fail "energy drifts on $ranks ranks"; }
        echo "$ranks ranks: $(cat drift.$ranks)"
    done
}

test_runs() {
    models
    python3 "$systems" make silicon 2 || fail "systems.py"
    lammps 2 more.in -var model silicon.safetensors
    grep -q 'Minimization stats' out || fail "minimize"
    lammps 2 resume.in -var model silicon.safetensors
    is_close "$(cut -d' ' -f1 straight.txt)" "$(cut -d' ' -f1 resumed.txt)" 1e-12 # LAMMPS sorts atoms at a restart
}

# pair_style mlff is known after `clear`, and a second evaluator gives the same energy.
test_clear() {
    models
    python3 "$systems" make silicon 2 || fail "systems.py"
    lammps 2 clear.in -var forces "$here/forces.in" -var model silicon.safetensors -var precision float64
    [ -s before.txt ] && [ "$(cat before.txt)" = "$(cut -d" " -f1 energy.txt)" ] || fail "energy after clear: $(cat energy.txt), before: $(cat before.txt)"
    # A pair_style that comes again, without pair_coeff, has the model of before and its own settings.
    printf '%s\n' 'include system.in' 'units metal' 'atom_style atomic' 'read_data system.data' 'pair_style mlff precision float32' \
        'pair_coeff * * silicon.safetensors ${species}' 'run 0' 'pair_style mlff precision float64' 'run 0' 'print "$(pe:%.17g)" file again.txt' >again.in
    timeout 60 mpirun --oversubscribe -np 2 "$bin/lmp_mlff" -in again.in >out 2>err </dev/null || fail "pair_style again"
    [ "$(cat again.txt)" = "$(cat before.txt)" ] || fail "pair_style again in float64: $(cat again.txt), expected $(cat before.txt): $(grep '^mlff' out)"
}

# The water of the model plus Lennard-Jones pairs of the atom without an element.
test_hybrid() {
    models
    printf '3\nLattice="12 0 0 0 12 0 0 0 12" pbc="T T T"\nH 5 5 5\nH 5.7 5.6 5\nO 5 4.9 5.97\n' >three.xyz
    run 0 eval water.safetensors three.xyz --precision float64 --device cpu --stress -o three.extxyz
    for ranks in 1 2; do
        lammps $ranks hybrid.in -var model water.safetensors
        python3 - <<'END' || fail "hybrid on $ranks ranks: $(cat hybrid.txt)"
import re, sys
header = open("three.extxyz").read()
energy = float(re.search(r"energy=(\S+)", header)[1])
stress = [float(x) for x in re.search('stress="([^"]*)"', header)[1].split()]
he = (8, 5, 5)
virial = [-stress[k] * 12**3 for k in (0, 4, 8)]
for atom in ((5, 5, 5), (5.7, 5.6, 5), (5, 4.9, 5.97)):
    d = [a - b for a, b in zip(atom, he)]
    r2 = sum(x * x for x in d)
    energy += 4 * 0.01 * ((6.25 / r2) ** 6 - (6.25 / r2) ** 3)
    virial = [w + 24 * 0.01 * (2 * (6.25 / r2) ** 6 - (6.25 / r2) ** 3) / r2 * x * x for w, x in zip(virial, d)]
found, *pressure = [float(x) for x in open("hybrid.txt").read().split()]
worst = max(abs(p / 1.6021765e6 * 12**3 - w) for p, w in zip(pressure, virial))
print(f"hybrid: energy off by {abs(found - energy):.1e} eV, virial by {worst:.1e} eV")
sys.exit(abs(found - energy) > 1e-9 or worst > 1e-9)
END
    done
}

# Types that change between two of LAMMPS's lists: the exchange of rows follows, on all ranks.
test_types() {
    models
    printf 'python probe here "import lammps"\n' >probe.in
    "$bin/lmp_mlff" -in probe.in >probe.out 2>&1
    grep -q 'No module' probe.out && { echo "skipped: LAMMPS's Python has no module lammps"; exit 77; }
    python3 "$systems" make silicon 2 || fail "systems.py"
    for ranks in 1 2 4; do
        lammps $ranks types.in -var model silicon.safetensors -var swap no -var functions "$here/types.py"
        energies >functions.$ranks
        [ $ranks = 1 ] || python3 - $ranks <<'END' || fail "types change on $ranks ranks: energies $(cat functions.$ranks), on one $(cat functions.1)"
import sys
one, several = ([float(x) for x in open(f"functions.{n}").read().split()] for n in (1, sys.argv[1]))
# 1e-9 eV: sums in another order; the changes are of some eV
sys.exit(not (len(one) == len(several) == 10 and abs(one[4] - one[3]) > 0.1 and max(abs(a - b) for a, b in zip(one, several)) < 1e-9))
END
        lammps $ranks types.in -var model silicon.safetensors -var swap yes
        is_close "$(energies | tail -2 | head -1)" "$(energies | tail -1)" 1e-12
    done
}

# Atoms that are excluded from pairs with all others are as if deleted, also while fix gcmc tries that, in its first run and the next.
test_exclusions() {
    models
    python3 "$systems" make silicon 2 || fail "systems.py"
    for ranks in 1 2 4; do
        lammps $ranks exclude.in -var model silicon.safetensors
        awk 'NR <= 2 { for (k = 1; k <= 3; k++) { d = $k - found[k]; if (NR == 2 && d * d > 1e-18 * $k * $k) exit 1; found[k] = $k } }
             NR == 3 && !($1 > 0 && $2 > 0) { exit 1 } END { if (NR != 3) exit 1 }' energies.txt || fail "exclusions on $ranks ranks: $(cat energies.txt)"
        echo "$ranks ranks: $(tail -1 energies.txt) deletions tried and made"
    done
}

# comm_modify group: with a group of all atoms of the model the result is that without it, on any number of ranks; where an atom of the model
# is not in the group, also later, ghosts would be missing and the energy wrong without a word, and it is refused.
test_ghost_groups() {
    models
    local ranks tiles model line
    python3 "$systems" make water 3 || fail "systems.py"
    for model in water ani; do # with an exchange of rows and without
        for ranks in 1 2 4; do
            [ $ranks = 4 ] && tiles=yes || tiles=no
            lammps $ranks ghosts.in -var model $model.safetensors -var tiled $tiles
            python3 - <<'END' || fail "$model, $ranks ranks, tiled $tiles: $(cat energies.txt)"
import sys
without, grouped = ([float(x) for x in line.split()] for line in open("energies.txt"))
# 1e-11 of them: sums in another order
sys.exit(not (len(without) == 4 and all(abs(a - b) <= 1e-11 * abs(a) for a, b in zip(without, grouped))))
END
        done
        sed 's/^group model .*/group model type 1/' "$here/ghosts.in" >part.in
        lacks_ghosts part.in $model
        # A type that gets an element: in the next run, and between two of LAMMPS's lists.
        for line in 'run 0' 'run 1 pre no'; do
            { cat "$here/ghosts.in" && printf '%s\n' 'set atom 73 type 2' "$line"; } >later.in
            lacks_ghosts later.in $model
            [ "$(wc -l <energies.txt)" = 2 ] || fail "not the last run was refused: $line"
        done
    done
    { cat part.in && printf '%s\n' 'comm_modify group all' 'run 0'; } >all.in
    sed -i '/^comm_modify group model/d' all.in
    timeout 60 mpirun --oversubscribe -np 2 "$bin/lmp_mlff" -in all.in -var model ani.safetensors >out 2>err </dev/null || fail "comm_modify group all"
}

lacks_ghosts() { # INPUT MODEL
    rm -f energies.txt
    input=$work/$1 fails once 'comm_modify group leaves ghost atoms .*must have every atom.*remove it' -var model "$2.safetensors"
}

energies() { # of the steps of log.lammps
    awk '$1 ~ /^[0-9]+$/ && $2 ~ /[.]/ && NF == 2 { print $2 }' log.lammps
}

# compute mlff/deviation against eval --uncertainty.
test_deviation() {
    models
    python3 "$systems" make water 3 || fail "systems.py"
    run 0 eval ani.safetensors system.extxyz --precision float64 --device cpu --uncertainty --json expected.json
    for ranks in 1 2 4; do
        lammps $ranks deviation.in -var model ani.safetensors
        python3 - <<'END' || fail "$ranks ranks: deviations differ"
import json, math, sys
frame = json.load(open("expected.json"))["frames"][0]
atoms = [math.hypot(*row) for row in frame["force_deviations_ev_per_ang"]]
rows = [float(line.split()[1]) for line in open("deviation.dump").read().split("\n")[9:] if line]
energy, largest = map(float, open("deviation.txt").read().split())
worst = max(abs(a - b) for a, b in zip(atoms, rows))
off = abs(energy - frame["energy_deviation_ev"]) / energy
print(f"deviation of forces off by {worst:.1e} of {max(atoms):.2g} eV/A, of the energy by {off:.1e} of it")
# float64 sums in another order
sys.exit(not (len(rows) == len(atoms) == 81 and min(atoms) > 0 and worst <= 1e-11 and abs(largest - max(atoms)) <= 1e-11 and off <= 1e-11))
END
    done
    lammps 2 halt.in -var model ani.safetensors -var limit 1
    grep -q '^Fix halt condition for fix-id stop met on step 10 ' out || fail "a run of members that differ by 70 eV/A went on"
    lammps 2 halt.in -var model ani.safetensors -var limit 1000
    grep -q '^Loop time .* for 40 steps' out || fail "a run below the limit stopped"
}

# One warning in a run, of all ranks, where forces are extrapolated: hotter than the training data, closer than they reach.
test_extrapolation() {
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 4.0 --elements Si --core-repulsion 0.7 -o silicon.safetensors >/dev/null || fail "mlff new"
    python3 "$systems" trained silicon.safetensors 400
    local hot='at [0-9.]+ K its forces are extrapolated' near="within the model's core repulsion, .* forces may be extrapolated" ranks
    for ranks in 1 2 4; do
        python3 "$systems" make silicon 2 || fail "systems.py"
        warns $ranks 0 "$hot|$near" 400 5
        warns $ranks 1 "$hot" 1000 5
        python3 "$systems" close 1.4 # covalent distance: 2.22 Angstrom
        warns $ranks 1 "$near" 1 1
    done
}

warns() { # RANKS TIMES PATTERN TEMPERATURE STEPS
    lammps "$1" nve.in -var model silicon.safetensors -var precision float32 -var temperature "$4" -var every 1 -var steps "$5"
    [ "$(grep -cE "^WARNING: .*($3)" out)" = "$2" ] || fail "$1 ranks, $4 K: not $2 lines of $3: $(cat out)"
}

# MLFF_PROFILE: one file a rank, one page for all; a file that cannot be written is told before the run.
test_profile() {
    models
    python3 "$systems" make silicon 2 || fail "systems.py"
    local ranks arguments=(-var model silicon.safetensors -var precision float32 -var temperature 300 -var every 10 -var steps 40)
    for ranks in 1 2; do
        MLFF_PROFILE=run.json lammps $ranks nve.in "${arguments[@]}"
        has_profile $ranks $([ $ranks = 1 ] && echo no || echo yes)
    done
    rm run*.json
    MLFF_PROFILE=run.json lammps 2 nve.in "${arguments[@]}" -partition 2x1
    grep -q '"rank": *"0 of 2"' run.json && grep -q '"rank": *"1 of 2"' run.rank1.json || fail "not a file of each partition: $(ls run*.json)"
    rm run.rank1.json
    run 1 report run.json -o run.html
    grep -q 'run.json: rank 0 of 2; that of rank 1 cannot be read: run.rank1.json' err || fail "a rank without a file"
    input=$here/nve.in MLFF_PROFILE=absent/run.json fails once 'MLFF_PROFILE: absent/run.json: No such file' "${arguments[@]}"
}

# LAMMPS's exit status is not 0, the reason is there, and no rank waits for another. What all ranks learn together is one line.
test_failures() {
    models
    python3 "$systems" make silicon 2 || fail "systems.py"
    fails once 'does not know Si' -var model water.safetensors -var precision float64
    fails once 'absent.safetensors' -var model absent.safetensors -var precision float64
    fails once 'precision float16 is not' -var model silicon.safetensors -var precision float16
    head -c 1000 silicon.safetensors >cut.safetensors
    fails once 'cut.safetensors' -var model cut.safetensors -var precision float64
    "$mlff" new --arch orb-v3-direct --layers 1 --features 16 --elements Si -o direct.safetensors >/dev/null || fail "mlff new"
    fails once 'is not a sum over atoms' -var model direct.safetensors -var precision float64
    MLFF_DEVICE=tpu fails once 'device "tpu" is not known' -var model silicon.safetensors -var precision float32
    sed 's/ani.safetensors/silicon.safetensors/' "$here/deviation.in" >deviation.in
    input=$work/deviation.in fails once 'the model is not an ensemble' -var model silicon.safetensors
    python3 - <<'END'
lines = open("system.data").read().split("\n")
at = lines.index("Atoms # atomic") + 2
lines[at + 1] = " ".join(["2"] + lines[at].split()[1:])
open("system.data", "w").write("\n".join(lines))
END
    fails '' 'mlff: atoms .* are on one point' -var model silicon.safetensors -var precision float64
}

fails() { # once|'' PATTERN ARGUMENTS…: once: one line of error, of all ranks
    local once=$1 pattern=$2
    shift 2
    timeout 60 mpirun --oversubscribe -np 2 "$bin/lmp_mlff" -in "${input:-$here/forces.in}" "$@" >out 2>err </dev/null
    local status=$?
    [ $status != 0 ] && [ $status != 124 ] || fail "exit status $status (124: it hung): $*"
    grep -qE -- "$pattern" out err || fail "no '$pattern': $*"
    [ -z "$once" ] || [ "$(cat out err | grep -c '^ERROR')" = 1 ] || fail "not one line of error: $*"
}

# attack PATTERN PAIR_STYLE PAIR_COEFF [LINE…]: an input file of these lines and a step ends with one line of error that has the pattern
# and no control character; with the pattern "runs" it ends well.
attack() {
    local pattern=$1 status
    shift
    { printf 'include system.in\nunits %s\natom_style atomic\nread_data system.data\n' "${units:-metal}"; printf '%s\n' "$@" "run 1"; } >attack.in
    timeout 60 "$bin/lmp_mlff" -in attack.in >out 2>err </dev/null
    status=$?
    if [ "$pattern" = runs ]; then
        [ $status = 0 ] && grep -q '^Loop time' out || { tail -3 out; fail "exit status $status: $*"; }
        return
    fi
    [ $status = 1 ] || fail "exit status $status, not 1 (124: it hung): $*"
    [ "$(cat out err | grep -ac '^ERROR')" = 1 ] || fail "not one line of error: $*"
    grep -aqE "^ERROR.*($pattern)" out || { grep -a '^ERROR' out; fail "no '$pattern': $*"; }
    ! grep -aqP '^ERROR.*[\x00-\x08\x0e-\x1f\x7f]' out || fail "a control character in an error: $*"
}

# Words, counts and files that cannot be meant, of pair_style, pair_coeff and compute; runs that leave what can be computed.
test_hostile() {
    models
    python3 "$systems" make molecule 1 || fail "systems.py"
    local escape=$'\033[31mred' long style="pair_style mlff" water='pair_coeff * * water.safetensors ${species}' ani='pair_coeff * * ani.safetensors ${species}' bytes
    long=$(printf 'x%.0s' {1..3000})
    attack runs "$style" "$water"
    attack 'the keyword precision needs a value' "$style precision" "$water"
    attack 'the keyword precision needs a value' "$style precision float64 precision" "$water"
    attack 'precision float16 is not' "$style precision float16" "$water"
    attack 'PaiNN has no bf16 on the CPU' "$style precision bf16" "$water"
    attack 'foo is not one of precision' "$style foo bar" "$water"
    attack 'red is not one of precision' "$style $escape 1" "$water"
    attack 'device "tpu" is not known' "$style device tpu" "$water"
    attack 'device "cuda:99999999999999999999" is not known' "$style device cuda:99999999999999999999" "$water"
    for word in 0 -3 99999999999999999999; do attack "threads $word is not a positive" "$style threads $word" "$water"; done
    for word in abc 1.5; do attack "threads $word is not a positive" "$style threads $word" "$water"; done
    attack '2147483647 threads' "$style threads 2147483647" "$water"
    attack 'pair coeffs' "$style"
    for word in '' water.safetensors 'water.safetensors H' 'water.safetensors H O O'; do attack 'an element or NULL for each of the 2' "$style" "pair_coeff * * $word"; done
    for word in Xx h 1; do attack "$word is not an element" "$style" "pair_coeff * * water.safetensors $word O"; done
    attack 'red is not an element' "$style" "pair_coeff * * water.safetensors $escape O"
    attack 'does not know Si' "$style" "pair_coeff * * water.safetensors Si Si"
    attack 'pair coeffs' "$style" "pair_coeff * * water.safetensors NULL NULL"
    attack 'xxx' "$style" "pair_coeff * * $long H O"
    attack 'red: no such file' "$style" "pair_coeff * * $escape H O"
    for bytes in 7 300 3000 $(($(stat -c %s water.safetensors) - 1)); do
        head -c "$bytes" water.safetensors >cut.safetensors
        attack 'cut.safetensors: .*(too few|too short|truncated|not a model file)' "$style" "pair_coeff * * cut.safetensors H O"
    done
    : >cut.safetensors
    attack 'is empty' "$style" "pair_coeff * * cut.safetensors H O"
    mkdir -p folder
    attack 'is a folder' "$style" "pair_coeff * * folder H O"
    attack 'the model is not an ensemble' "$style" "$water" "compute d all mlff/deviation"
    attack 'expected compute ID GROUP mlff/deviation' "$style" "$ani" "compute d all mlff/deviation 3"
    attack 'out-of-range' "$style" "$ani" "compute d all mlff/deviation" 'thermo_style custom step c_d[3]'
    attack 'no pair_style mlff, or more than one' "pair_style lj/cut 5" "pair_coeff * * 1 1" "compute d all mlff/deviation"
    attack 'no pair_style mlff, or more than one' "pair_style hybrid/overlay mlff mlff" 'pair_coeff * * mlff 1 ani.safetensors ${species}' \
        'pair_coeff * * mlff 2 ani.safetensors ${species}' "compute d all mlff/deviation"
    attack 'neigh_modify exclude has no effect' "$style" "$water" "neigh_modify exclude type 1 1"
    attack 'neigh_modify exclude has no effect' "$style" "$water" "group a id 1:2" "neigh_modify exclude group a a"
    attack runs "$style" "$water" "neigh_modify exclude type 1 1" "neigh_modify exclude none"
    units=lj attack 'units lj are not metal or real' "$style" "$water"
    attack 'a coordinate of .*correct its position' "$style" "$water" "velocity all set 1e300 0 0" "fix 1 all nve"
    attack 'Lost atoms' "$style" "$water" "velocity all create 1e12 4" "fix 1 all nve" "run 50"
    attack runs "$style" "$water" "$style precision float64" "$water"
    attack runs "$style" "$water" "delete_atoms group all"
    sed -i 's/^\(1 [12]\) [^ ]*/\1 nan/' system.data
    attack 'atom 0 .*nan|Expected floating point|not a valid|did not assign all|Did not assign all' "$style" "$water"
}

# An emulated GPU (MLFF_CUDA_PLUGIN): images are copied there, rows of other ranks by each route; each rank has its own device.
test_gpu() {
    [ -n "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin"; exit 77; }
    export MLFF_DEVICE=cuda MLFF_EMULATE_DEVICES=2
    "$mlff" new --arch painn --features 64 --layers 2 --rbf 8 --cutoff 3.5 --elements H,O --seed 5 -o water.safetensors >/dev/null || fail "mlff new"
    tolerance=1e-5 precision=float32 virials=no # eV, eV/Å: float32 sums
    compare water.safetensors 1 molecule 1
    compare water.safetensors 2 molecule 1
    MLFF_EMULATE_DEVICES=1 compare water.safetensors 2 molecule 1 # more ranks than GPUs
    "$mlff" new --arch painn --features 32 --layers 3 --rbf 8 --cutoff 3.0 --elements Si --seed 3 -o silicon.safetensors >/dev/null || fail "mlff new"
    for ranks in 1 2 4; do compare silicon.safetensors $ranks silicon 1; done # periodic images, of own atoms and of others'
    for route in peer host mpi; do # mpi: an MPI that reads device memory, which is the host's here
        MLFF_EXCHANGE=$route compare silicon.safetensors 2 silicon 1
        grep -q "by route $route" out.run || fail "not by route $route"
    done
    test_sorting_bins
    MLFF_EXCHANGE=post fails once 'MLFF_EXCHANGE=post: expected host, mpi or peer' -var model silicon.safetensors -var precision float32 -var virials no
    # Activations of 1e9, beyond the range of halves: all ranks repeat the step with float32's range. Energies and forces are brought to some 50 eV/Å.
    cp water.safetensors large.safetensors
    python3 "$systems" scale large.safetensors representation.embedding.weight 100 && python3 "$systems" scale large.safetensors output_modules.0.outnet.1.weight 1e-9 || fail "systems.py scale"
    for ranks in 1 2 4; do tolerance=1e-4 compare large.safetensors $ranks molecule 1; done # four: ranks without atoms
    fails once 'virials of atoms on the CPU only' -var model water.safetensors -var precision float32
    MLFF_DEVICE=cuda:5 fails once 'device cuda:5: this machine has 2 GPUs' -var model water.safetensors -var precision float32
    MLFF_EMULATE_DEVICES=0 fails once 'no GPU' -var model water.safetensors -var precision float32
    sed 's/mlff %s layout/mlff %s LAYOUT/' "$MLFF_CUDA_PLUGIN" >other.so
    MLFF_CUDA_PLUGIN=$PWD/other.so fails once 'install both from one build' -var model water.safetensors -var precision float32
    # A device that was chosen and not asked for: the CPU, and the log says why.
    export MLFF_DEVICE=auto
    compare water.safetensors 2 molecule 1
    grep -q '^mlff: water on cuda:0, float32$' out.run || fail "auto: no GPU: $(grep ^mlff out.run)"
    "$mlff" new --arch painn --features 16 --layers 2 --rbf 8 --cutoff 3.5 --elements H,O -o narrow.safetensors >/dev/null || fail "mlff new"
    compare narrow.safetensors 2 molecule 1
    grep -q '^mlff: narrow on cpu, float32, 1 CPU thread (device auto: narrow: on the GPU a PaiNN has 32, 64 or 128 features .*wide)$' out.run ||
        fail "auto, no GPU path: $(grep ^mlff out.run)"
    precision=float64 tolerance=1e-11 compare water.safetensors 1 molecule 1
    grep -q '^mlff: water on cpu, float64, .*device auto: float64' out.run || fail "auto, float64: $(grep ^mlff out.run)"
    MLFF_CUDA_PLUGIN=$PWD/other.so compare water.safetensors 2 molecule 1
    grep -q '^mlff: water on cpu, .*device auto: no GPU support: .*install both from one build)$' out.run || fail "auto, plugin: $(grep ^mlff out.run)"
}

# The bins by which LAMMPS sorts atoms: 1.5 cutoffs beside pair_style mlff on a GPU, LAMMPS's own after it, and always those of the input.
test_sorting_bins() {
    python3 "$systems" make silicon 2 || fail "systems.py"
    for size in 0 2; do
        lammps 1 sorted.in -var model silicon.safetensors -var size $size
        python3 - $size <<'END' || fail "atoms are not sorted by their bins (atom_modify sort 1000 $size)"
import sys
size, length = float(sys.argv[1]), 2 * 5.431
for file, own in (("beside.dump", 1.5 * 3.0), ("after.dump", 0.5 * (3.0 + 2.0))):  # cutoffs, a skin of 2
    n = max(int(length / (size or own)), 1)
    lines = open(file).read().split("\n")[9:]
    atoms = [[min(max(int(float(x) * n / length), 0), n - 1) for x in line.split()] for line in lines if line]
    bins = [x + n * y + n * n * z for x, y, z in atoms]
    if len(set(bins)) < n**3 / 3 or bins != sorted(bins):
        sys.exit(f"{file}: {bins}")
END
    done
}

declare -F "test_$name" >/dev/null || fail "no test $name"
"test_$name"
