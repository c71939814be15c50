# SPDX-License-Identifier: MIT
# Tests of mlff md on the CPU, relax, vibrations and analyze; read by test_cli.sh, whose functions they use.

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
    refused 2 "give the file 'a.extxyz' without --system" md model.safetensors --system a.extxyz
    refused 2 "give the file 'a.extxyz' without --system" vibrations model.safetensors --system a.extxyz
    refused 2 'topology needs INPUT' vibrations model.safetensors --system h2o --topology water.xyz
    refused 2 'input-format needs INPUT' phonons model.safetensors --system silicon --input-format poscar
    # A label by another name is of the structure of INPUT alone.
    sed 's/ pbc=/ REF_energy=-3 name=first pbc=/' a.extxyz >labelled.extxyz
    run 0 md model.safetensors labelled.extxyz --n-steps 4 --every 2 -o -
    is "$(grep -c 'name=first' out) $(grep -c 'REF_energy' out)" "3 0" "frames with the pairs of INPUT's comment line, and with its label"
    run 0 relax model.safetensors labelled.extxyz --fmax 0.0001 --max-steps 1 -o -
    is "$(grep -c 'name=first' out) $(grep -c 'REF_energy' out)" "5 1" "relaxed structures, and those that did not move, with their label"
    run 0 eval model.safetensors labelled.extxyz -o -
    is "$(grep -c 'REF_energy' out)" 5 "frames that did not move"
    # Velocities of a file are used: a frame of the first run goes on at its own temperature.
    run 0 md model.safetensors a.extxyz --n-steps 1
    says 'velocities of the file'
    run 0 md model.safetensors a.extxyz --n-steps 1 --thermalize
    says 'velocities drawn'
    run 0 md model.safetensors a.extxyz --n-steps 2 --every 1 -o -
    says '^8$' && says 'Lattice'
    grep -aq 'steps/s' out && fail "the table is among the frames"
    # A run that waits for its output tells how long it took with it.
    mkfifo slow.extxyz
    (sleep 1 && cat) <slow.extxyz >frames &
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 200 --every 1 -o slow.extxyz
    wait
    says '^200 steps in .* ns/day; with output [1-9][0-9.]* s, '
    # A run that cannot be believed ends with a warning that names the remedy; a good one with none.
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 100
    [ ! -s err ] || fail "a good run warns"
    for ensemble in nve langevin; do # an exploded run stops; its last good step is kept as a frame and as a restart file
        rm -f exploded.*
        run 1 md model.safetensors --system silicon --n-atoms 8 --n-steps 100 --timestep 100 --ensemble $ensemble \
            -o exploded.extxyz --checkpoint exploded.restart
        is "$(grep -c . err)" 1 "lines on stderr"
        says 'step [0-9]+: the simulation has exploded.*atom [0-9]+ .*halve the timestep.*relax the start$' err # no student
        local stopped=$(sed -n 's/.*step \([0-9]*\):.*/\1/p' err)
        is "$(sed -n 's/.* step=\([0-9]*\).*/\1/p' exploded.extxyz | tail -1)" $((stopped - 1)) "last frame's step"
        run 0 eval model.safetensors exploded.extxyz
        run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 2 --timestep 0.1 --restart exploded.restart
    done
    printf '3\n\nH 0 0 -0.05\nO 0 0 0\nH 0 0 0.97\n' >pressed.xyz # 100000 eV in the first step, of which the chains make infinity
    run 1 md $source_folder/models/ethanol.safetensors pressed.xyz --n-steps 5 --ensemble nose-hoover
    says 'step 1: the simulation has exploded: the conserved energy is not finite any more' err
    says 'relax the start; or the student does not know such structures: judge it with mlff verdict, and train it with labels of them$' err
    says '^0 steps .stopped.$'
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 0 --json
    is "$(value out summary.ns_per_day)" null "the speed of no steps"
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
    grep -q '^left out.* -[0-9]' out && fail "an imaginary frequency of the whole with a minus sign"
    says '^ *21 +3[0-9]{3}\.' # the hydroxyl group
    [ ! -s err ] || fail "a warning for a minimum: $(cat err)"
    run 0 vibrations $ethanol minimum.extxyz --json
    [ "$(value out rigid_names.2)-$(value out rigid_names.3)" = translation-rotation ] || fail "names of the zero modes"
    awk -v w="$(value out wavenumbers_per_cm.20)" 'BEGIN { exit !(w > 3500 && w < 4000) }' || fail "stretching of the hydroxyl group"
    run 0 md $source_folder/models/organic.safetensors --system methane --n-steps 0 -o methane.extxyz
    run 0 relax $source_folder/models/organic.safetensors methane.extxyz -o methane-minimum.extxyz --fmax 0.001
    run 0 vibrations $source_folder/models/organic.safetensors methane-minimum.extxyz --precision float64
    says 'warning: [3-9] of 9 wavenumbers depend on the step, most that of mode [0-9].*kink' err
    printf '2\n\nH 0 0 0\nH 0 0 0.74\n' >pair.xyz # twice the step brings both to one point
    run 0 vibrations $source_folder/models/organic-small.safetensors pair.xyz --step 0.185
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
    ! grep -q 'fs apart' err || fail "a warning with the right --frame-time"
    says 'warning: between 1 and 5.5 fs the mean square displacement grows as t.[12]' err # nothing diffuses in 55 fs
    is "$(value out n_frames)" 111 frames
    is "$(value out msd.lag_fs.0)" 0.5 "first lag"
    awk -v d="$(value out msd.msd_angstrom2.0)" 'BEGIN { exit !(d > 0 && d < 0.01) }' || fail "displacement of oxygen in 0.5 fs"
    awk -v t="$(value out temperature.mean_kelvin)" 'BEGIN { exit !(t > 50 && t < 500) }' || fail "temperature"
    is "$(value out vdos.wavenumber_per_cm.0)" 0 "first wavenumber"
    run 0 analyze run.extxyz --frame-time 5 --element O --json
    says 'warning: the frames are 0.5 fs apart by their own times .*, and 5 fs by --frame-time' err
    (cat run.extxyz && sed 's/time_fs=[0-9.]*/time_fs=60/' run.extxyz | head -11) >gap.extxyz
    run 0 analyze gap.extxyz --frame-time 0.5 --json
    says 'warning: the frames are 0.5 to 5 fs apart .*equal intervals' err
    run 0 analyze run.extxyz --geometry --html page.html
    says 'energy: mean -4[0-9.]* eV'
    says '^H-O  *1  *0.9'
    grep -q '<svg.*</html>' page.html || grep -q '</html>' page.html || fail "the page is not whole"
    if grep -qE 'class="tick"[^>]*>(-?[0-9.]{6,}<|[^<]*e[-+])' page.html; then fail "an axis has a number that is not round"; fi
    run 0 analyze run.extxyz
    says '^111 frames, 0.5 fs apart: --frame-time 0.5 adds displacements, diffusion'
    run 0 analyze gap.extxyz
    says '^112 frames$'
    # Frames before equilibrium are left out.
    run 0 analyze run.extxyz --skip 11 --json
    is "$(value out n_frames)" 100 "frames"
    cp out whole
    sed -n '122,$p' run.extxyz >rest.extxyz # 11 frames of 11 lines
    run 0 analyze rest.extxyz --json
    cmp -s out whole || fail "skipped frames count"
    # What can be read of a run that was killed.
    head -c 20000 run.extxyz >cut.extxyz
    run 1 analyze cut.extxyz --json --html part.html
    says '^mlff: cut.extxyz:[0-9]*: .*; the [0-9]+ frames before it are shown, and no page is written$' err
    [ ! -e part.html ] || fail "a page of a part"
    local n
    n=$(value out n_frames)
    is "$(value out partial)" true "partial"
    cp out cut
    head -$((11 * n)) run.extxyz >whole.extxyz
    run 0 analyze whole.extxyz --json
    is "$(value out partial)" false "partial"
    cmp <(grep -v partial out) <(grep -v partial cut) || fail "frames before one that cannot be read"
    run 2 analyze run.extxyz --skip 111
    says 'run.extxyz: holds 111 frames, all of which --skip leaves out' err
    run 2 analyze run.extxyz --skip 112
    says 'run.extxyz: holds 111 frames, all of which --skip leaves out' err
    # The mean has the digits of its error.
    awk '/energy=/ { sub(/energy=[^ ]*/, "energy=" (-66538 + 0.01 * (n++ % 7))) } { print }' run.extxyz >large.extxyz
    run 0 analyze large.extxyz
    says '^energy: mean -66537.97[0-9]* eV . 0.0'
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
    says 'density: mean 2.8002436 g/cm³$' # 4 · 26.9815385 amu in 64 Å³; one frame has no error
    (cat lattice.extxyz && sed 's/="4 0 0/="8 0 0/' lattice.extxyz) >stretched.extxyz
    run 0 analyze stretched.extxyz --html page.html --json
    is "$(value out density.mean_g_per_cm3 | cut -c1-7)" 2.10018 "mean density of two cells"
    grep -q '<td>density</td><td>2.1001827 g/cm³' page.html || fail "density on the page"
    run 0 analyze lattice.extxyz
    says '^ *2.825 .* 12.000'
    says 'all atoms: highest at 2.825 Å .g = [0-9.]*., lowest beyond at 2.875 Å .g = 0.: 12 neighbors up to there'
    [ "$(grep -c ' 0.000$' out)" -eq 1 ] || fail "empty bins before the nearest pair"
    run 0 analyze lattice.extxyz --range 2
    says 'all atoms: no pairs up to 2 Å'
    # A table without rows has no heading: of atoms that fly apart, whose spectrum has no peak, and of one frame.
    for k in $(seq 100); do
        printf '2\nProperties=species:S:1:pos:R:3:vel:R:3\nH %s 0 0 0.1 0 0\nH -%s 0 0 -0.1 0 0\n' "0.$((1000 + k))" "0.$((1000 + k))"
    done >apart.extxyz
    run 0 analyze apart.extxyz --frame-time 1
    says 'vibrational density of states, all atoms: no peak between its 10 points' && says '^resolution 1.67e.03 /cm'
    ! grep -q '^ *1/cm' out || fail "a heading of peaks without a row"
    head -4 apart.extxyz >one.extxyz
    run 0 analyze one.extxyz --frame-time 1 --geometry
    says 'mean square displacement, all atoms: needs 2 frames' && says 'diffusion: needs 100 frames'
    ! grep -q 'lag, fs' out || fail "a heading of displacements without a row"
    sed -i 's/^H -/H -9/' one.extxyz
    run 0 analyze one.extxyz --geometry
    says 'no bonds in the first frame'
    ! grep -q 'std.dev' out || fail "a heading of bonds without a row"
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
        [ ! -s err ] || fail "a warning of run.$suffix: $(cat err)" # the topology has a time, frames of NetCDF their own
        alike molecule out n_frames msd.msd_angstrom2.0 msd.msd_angstrom2.9 geometry.0.mean geometry.3.standard_deviation
        [ $suffix = dcd ] || alike molecule out temperature.mean_kelvin
        run 0 analyze run.$suffix --topology ethanol --geometry # of --system
        run 0 analyze box.$suffix --topology box.extxyz --frame-time 0.5 --pair O-H --range 3 --json
        alike liquid out n_frames msd.msd_angstrom2.9 rdf.g.39 rdf.coordination.39 rdf.coordination.119
        "$mlff" analyze - --topology box.extxyz --frame-time 0.5 >out 2>err <box.$suffix || fail "box.$suffix from a pipe"
        says '^21 frames|21 frames'
    done
    run 0 analyze run.nc --topology run.extxyz --frame-time 5
    says 'the frames are 0.5 fs apart by their own times .*, and 5 fs by --frame-time' err
    run 0 analyze box.lammpstrj --pair O-H --range 3 # has its elements
    run 2 analyze run.dcd --frame-time 1
    says 'run.dcd: a DCD names no elements; .* as topology: --topology FILE$' err
    local command
    for command in "analyze run.nc --frame-time 1 --skip 1" "eval $ethanol run.dcd" "eval $ethanol run.dcd --skip 1" "relax $ethanol run.nc" \
        "md $ethanol run.dcd" "vibrations $ethanol run.nc" "profile $ethanol run.dcd" "profile $ethanol run.dcd --trajectory thermal" \
        "bench compare --model $ethanol --model $ethanol:portable --input run.dcd" "bench precision $ethanol --input run.nc" \
        "bench batch $ethanol --input run.dcd" "label $ethanol run.dcd -o no.labels" "label $ethanol run.extxyz run.nc -o no.labels" \
        "sample $ethanol run.nc -o no.extxyz" "serve $ethanol run.dcd --unix $PWD/none"; do
        # shellcheck disable=SC2086
        run 2 $command
        says ': --topology FILE$' err
    done
    run 2 analyze run.dcd --frame-time 1 --topology run.nc # itself without elements
    says 'run.nc: an AMBER NetCDF trajectory names no elements; .* as topology$' err
    # Where there is no such option a command that makes frames with elements is named, which is that of the labels here.
    for command in "train run.dcd -o no.safetensors" "verdict $ethanol --test run.nc" "distill --labels run.dcd -o no.run"; do
        # shellcheck disable=SC2086
        run 2 $command
        says ': its frames have neither elements nor energies; label them: mlff label TEACHER run\..* --topology FILE -o NAME.labels$' err
    done
    for command in "distill $ethanol --system ./run.dcd -o no.run" "verdict $ethanol --test run.extxyz --system ./run.nc"; do
        # shellcheck disable=SC2086
        run 2 $command
        says ': its frames have no elements; .* mlff eval MODEL \./run\..* --topology FILE -o NAME.extxyz$' err
    done
    run 0 label $ethanol run.dcd --topology ethanol -o dcd.labels --json
    is "$(value out n_labelled)" 21 "labels of a DCD"
    run 0 label $ethanol run.nc run.nc --topology run.extxyz --input-format netcdf -o nc.extxyz
    is "$(grep -c Properties nc.extxyz)" 42 "labels of two NetCDF files"
    run 2 label $ethanol run.dcd run.extxyz --topology ethanol -o no.labels
    says 'run.extxyz: the format names its elements' err
    run 2 label $ethanol run.dcd --topology run.nc -o no.labels
    says 'run.nc: an AMBER NetCDF trajectory names no elements; .* as topology$' err
    run 0 sample $ethanol run.dcd --topology ethanol -o seeds.extxyz --n-samples 30 --methods thermal --oversample 1 --no-relax
    is "$(grep -c Properties seeds.extxyz)" 30 "structures around frames of a DCD"
    run 2 sample $ethanol --system ethanol --topology ethanol -o no.extxyz
    says 'topology needs a file of SEEDS' err
    run 1 serve $ethanol run.dcd --topology ethanol --unix $PWD/none --wait 0
    says '^run.dcd, 9 atoms'
    [ ! -e no.labels ] && [ ! -e no.extxyz ] && [ ! -e no.safetensors ] && [ ! -e no.run ] || fail "something is left of a refused command"
    # Of the profile, whose frames are read again from the first after the last.
    run 0 profile $ethanol run.dcd --topology ethanol --n-steps 30 --device cpu --json
    is "$(value out trajectory)" file "frames of a DCD"
    run 0 profile $ethanol run.nc --topology run.extxyz --input-format netcdf --n-steps 5 --runs 2 --device cpu
    # Exit status 3 tells that one is faster.
    "$mlff" bench compare --model $ethanol --model $ethanol:portable --input run.dcd --topology ethanol --rounds 6 >out 2>err || true
    says '^6 rounds of 5 frames'
    run 0 bench precision $ethanol --input run.nc --topology ethanol --rounds 6 --frames 1
    run 0 bench batch $ethanol --input run.dcd --topology ethanol --batch-sizes 1,2 --n-calls 1
    run 2 bench batch $ethanol --system ethanol --topology ethanol
    says 'needs --input' err
    run 1 profile $ethanol run.dcd --topology water.missing
    says '^mlff: water.missing: ' err
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
    [ ! -s out ] || fail "a heading above an error"
    : >empty.extxyz
    refused 1 'empty.extxyz: empty, no frame' relax $ethanol empty.extxyz -o nothing.extxyz
    [ ! -s out ] || fail "a heading above an error"
    printf '1\n\nO 0 0 0\n' >atom.xyz
    run 0 vibrations $ethanol atom.xyz
    says '^1 atom, 0 vibrations'
    ! grep -q wavenumber out || fail "a heading of vibrations without a row"
    refused 2 'needs --cell' relax $ethanol hot.extxyz --pressure 1
    refused 2 'needs --cell' relax $ethanol hot.extxyz --no-symmetry
    run 1 relax $ethanol hot.extxyz --cell
    says 'frame 5: .*periodic along three axes' err
    refused 1 'no frame in it' relax $ethanol /dev/null
    refused 2 'relax: an INPUT file or --system NAME is missing; see' relax $ethanol
    run 0 relax $ethanol --system ethanol --fmax 0.01 -o built.extxyz
    says '^ +0 +9 .* converged' && says '1 structure in'
    is "$(sed -n 1p built.extxyz)" 9 "atoms of the built-in system"
    refused 2 'exclude each other' relax $ethanol built.extxyz --system ethanol
    refused 2 'built.extxyz. has its own atoms' relax $ethanol built.extxyz --n-atoms 9
    refused 1 'does not know Si' relax $ethanol --system silicon
    model # a cell under pressure, and the same written twice
    run 0 relax model.safetensors <("$mlff" md model.safetensors --system silicon --n-atoms 8 --n-steps 0 -o -) --cell --pressure 20000 \
        --max-steps 5 -o cell.extxyz
    grep -q 'Lattice' cell.extxyz || fail "no cell"
    grep -q '5.431 0.0 0.0' cell.extxyz && fail "the cell has not moved"
    says 'max .F. max .stress. +volume +steps end$'
    local volume
    volume=$(sed -n 2p cell.extxyz | sed 's/.*Lattice="\([^ ]*\) .*/\1/' | awk '{ printf "%.3f", $1 ^ 3 }')
    says "^ +0 +8 .* [0-9.]+ +$volume +5 max_steps$"
    run 0 relax model.safetensors cell.extxyz --cell --max-steps 0 --json
    close_to "$(value out structures.0.volume_ang3)" "$volume" 1e-3
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
    # Constant volume goes on behind constant pressure, each with its own cell.
    run 0 md model.safetensors --system silicon --n-atoms 8 --replicas 2 --ensemble scr --pressure 5000 --n-steps 20 --checkpoint npt.restart
    run 0 md model.safetensors --system silicon --n-atoms 8 --replicas 2 --n-steps 5 --restart npt.restart --checkpoint nve.restart
    for k in 0 1; do is "$(grep '^cell' nve-$k.restart)" "$(grep '^cell' npt-$k.restart)" "the cell of replica $k behind constant pressure"; done
    cmp -s <(grep '^cell' npt-0.restart) <(grep '^cell' npt-1.restart) && fail "replicas 0 and 1 have one cell"
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
        rm -f half.restart
        run 0 md model.safetensors "${how[@]}" --n-steps 20 --checkpoint half.restart
        run 0 md model.safetensors "${how[@]}" --n-steps 20 --restart half.restart
        is "$(value whole.json summary.ensemble)" $ensemble ensemble
        close_to "$(value whole.json thermo.0.temperature_kelvin)" 250 1e-9
        for key in potential_energy_ev kinetic_energy_ev temperature_kelvin; do
            is "$(value out thermo.2.$key)" "$(value whole.json thermo.4.$key)" "$key after a restart of $ensemble"
        done
        [ ! -s err ] || fail "a restart of $ensemble warns: $(cat err)"
    done
    # Constant volume goes on behind constant pressure with its cell, and then from its own restart files.
    local -a nve=("${silicon[@]}" --every 10)
    run 0 md model.safetensors "${silicon[@]}" --ensemble scr --pressure 5000 --n-steps 40 --checkpoint npt.restart
    run 0 md model.safetensors "${nve[@]}" --n-steps 20 --restart npt.restart --checkpoint whole.restart -o whole.extxyz
    says 'was written by a run with scr' err
    run 0 md model.safetensors "${nve[@]}" --n-steps 10 --restart npt.restart --checkpoint half.restart -o half.extxyz
    run 0 md model.safetensors "${nve[@]}" --n-steps 10 --restart half.restart --checkpoint half.restart -o half.extxyz
    says 'half.restart: its cell is not that of the input; this run continues with that of the file' err
    cmp half.restart whole.restart && cmp half.extxyz whole.extxyz || fail "another run behind one of constant pressure"
    printf '2\nLattice="9 0 0 0 9 0 0 0 9"\nSi 0 0 0\nSi 0 0 2.3\n' >pair.extxyz
    sed 's/Lattice.*//' pair.extxyz >alone.xyz
    run 0 md model.safetensors alone.xyz --n-steps 1 --checkpoint alone.restart
    refused 1 'is of a system with another periodicity' md model.safetensors pair.extxyz --n-steps 1 --restart alone.restart
    is "$(grep '^cell' whole.restart)" "$(grep '^cell' npt.restart)" "the cell behind a run of constant pressure"
    is "$(value whole.json summary.mean_volume_ang3 | cut -d. -f1)" 160 "volume of mtk" # 8 atoms of silicon: 160.2 Å³
    # A profile changes nothing of the trajectory: the virial is that of the stress, times the volume, to the bits of the frames.
    for ensemble in scr mtk; do
        for profile in "" "--profile run.json"; do
            run 0 md model.safetensors "${silicon[@]}" --ensemble $ensemble --pressure 5000 --n-steps 40 -o frames.extxyz $profile
            [ -n "$profile" ] && { cmp -s frames.extxyz plain.extxyz || fail "a profile changes a trajectory of $ensemble"; }
            mv frames.extxyz plain.extxyz
        done
        is "$(value run.json n_steps)" 40 "steps of the profile of $ensemble"
    done
    run 0 md model.safetensors "${silicon[@]}" --ensemble langevin --n-steps 0 --json
    close_to "$(value out thermo.0.temperature_kelvin)" 250 1e-9 # with the 3 degrees of freedom of the whole
    run 0 md model.safetensors "${silicon[@]}" --ensemble scr --anisotropic --pressure 5000 --n-steps 30
    says 'NPT .stochastic cell rescaling' && says 'pressure' && says 'meV/atom/ps .fitted slope' && says 'mean volume [0-9.]* Å³ .[0-9.]* g/cm³.'
    printf '2\nProperties=species:S:1:pos:R:3\nSi 0 0 0\nSi 0 0 2.3\n' >pair.xyz
    refused 1 'periodic along three axes' md model.safetensors pair.xyz --ensemble scr
    refused 2 'needs --ensemble scr or mtk' md model.safetensors pair.xyz --pressure 3
    refused 2 'compressibility needs --ensemble scr;' md model.safetensors pair.xyz --compressibility 1e-5 --ensemble mtk
    refused 2 'friction needs --ensemble langevin' md model.safetensors pair.xyz --friction 0.1 --ensemble bussi
    refused 2 'needs a thermostat' md model.safetensors pair.xyz --ramp-to 400
    run 0 md model.safetensors pair.xyz --ensemble langevin --n-steps 20 --checkpoint ramp.restart
    run 0 md model.safetensors pair.xyz --ensemble langevin --n-steps 20 --ramp-to 400 --restart ramp.restart
    says 'warning: the ramp ends at step 20, as --ramp-steps, by default --n-steps, counts from step 0, and .* begins at step 20: ' err
    run 0 md model.safetensors pair.xyz --ensemble langevin --n-steps 20 --ramp-to 400 --ramp-steps 20 --restart ramp.restart
    [ ! -s err ] || fail "a warning of a ramp whose steps are given: $(cat err)"
    refused 2 'needs --ramp-to' md model.safetensors pair.xyz --ramp-steps 400
    refused 2 'thermostat-time needs' md model.safetensors pair.xyz --thermostat-time 50
    refused 2 'temperature above 0' md model.safetensors pair.xyz --ensemble bussi --temperature 0
}

test_md_restart() {
    model
    local -a common=(--system silicon --n-atoms 8 --ensemble langevin --timestep 0.5 --every 10 --seed 2 --json)
    run 0 md model.safetensors "${common[@]}" --n-steps 40
    cp out whole.json
    run 0 md model.safetensors "${common[@]}" --n-steps 20 --checkpoint half.restart -o half.extxyz
    cp half.restart kept.restart
    cp half.extxyz kept.extxyz # a forgotten --restart loses neither of them
    refused 2 "'half.restart' is there already.*--restart half.restart" md model.safetensors "${common[@]}" --n-steps 20 --checkpoint half.restart -o half.extxyz
    cp half.restart twice-1.restart
    refused 2 "'twice-1.restart' is there already.*--restart twice.restart" md model.safetensors "${common[@]}" --replicas 2 --n-steps 20 --checkpoint twice.restart
    cmp half.restart kept.restart && cmp half.extxyz kept.extxyz || fail "a refused run changed files"
    run 0 md model.safetensors "${common[@]}" --n-steps 20 --restart half.restart -o half.extxyz
    cp out rest.json
    is "$(value rest.json thermo.0.step)" 20 "first step after the restart"
    is "$(value rest.json thermo.2.step)" 40 "last step after the restart"
    for key in potential_energy_ev kinetic_energy_ev temperature_kelvin; do
        is "$(value rest.json thermo.2.$key)" "$(value whole.json thermo.4.$key)" "$key after a restart"
    done
    # A DCD has one interval of frames: another is refused before the first step, and the file stays.
    run 0 md model.safetensors "${common[@]}" --n-steps 40 -o whole.dcd
    run 0 md model.safetensors "${common[@]}" --n-steps 25 --checkpoint part.restart -o part.dcd
    cp part.dcd kept.dcd
    run 1 md model.safetensors "${common[@]}" --n-steps 15 --restart part.restart -o part.dcd --every 5
    says '^mlff: part.dcd: its frames up to step 20 and those of every 5 steps from step 25 on are not at one interval.*; give this run another -o$' err
    cmp part.dcd kept.dcd || fail "a DCD that is refused was changed"
    run 0 md model.safetensors "${common[@]}" --n-steps 15 --restart part.restart -o part.dcd
    cmp part.dcd whole.dcd || fail "a DCD that a run goes on with differs from that of a whole run"
    run 0 eval model.safetensors part.dcd --topology half.extxyz -o no-steps.dcd
    run 1 md model.safetensors "${common[@]}" --n-steps 15 --restart part.restart -o no-steps.dcd
    says '^mlff: no-steps.dcd:.*not a frame of a trajectory of 8 atoms with its step; give this run another -o$' err
    is "$(grep -c Lattice half.extxyz)" 5 "frames of both parts"
    refused 1 'no_such_file' md model.safetensors "${common[@]}" --restart no_such_file
    head -c 40 half.restart >cut.restart
    run 1 md model.safetensors "${common[@]}" --restart cut.restart
    says 'cut.restart' err
    run 1 md model.safetensors --system silicon --n-atoms 64 --n-steps 1 --restart half.restart
    says 'half.restart' err
}

# ends_full OPTIONS…: a run in small/ that cannot write its trajectory any more, with one restart file so far, that of step 0. What it
# leaves goes on, byte for byte as a whole run; `last_step` is where it ended.
ends_full() {
    "$mlff" md model.safetensors "$@" --n-steps 100000 --checkpoint small/run.restart --checkpoint-every 1000000 -q >out 2>err </dev/null
    local status=$?
    cp small/run* kept/
    return $status
}

goes_on() { # TRAJECTORY OPTIONS…
    local name=$1 last_step
    shift
    last_step=$(sed -n 's/^mlff: .*; then small\/run[-0-9]*.restart was written, of step \([0-9]*\).*/\1/p; s/.*; then restart files were written, of step \([0-9]*\).*/\1/p' err)
    [ "${last_step:-0}" -gt 10 ] || fail "no restart file of a later step"
    run 0 md model.safetensors "$@" --n-steps 20 --restart kept/run.restart -o kept/run.${name##*.}
    ! grep -q removed err || fail "frames were removed"
    run 0 md model.safetensors "$@" --n-steps $((last_step + 20)) -o whole.${name##*.}
}

# A trajectory that cannot grow: the run ends with a restart file of its last step, from which it goes on without a gap.
test_md_full_disk() {
    model
    water
    local name options="water.xyz --timestep 0.1 --every 2 --ensemble langevin --device cpu --threads 1"
    for name in run.extxyz run.lammpstrj run.nc; do # a limit of the file's size: the frame of the last step is missing
        rm -rf small kept
        mkdir small kept
        (
            ulimit -f 32
            # shellcheck disable=SC2086
            ends_full $options -o small/$name
        ) && fail "a run whose trajectory cannot grow ends well"
        says "^mlff: small/$name: .*File too large; the frames before it are kept; then small/run.restart was written, of step [0-9]*, whose frame is missing" err
        # shellcheck disable=SC2086
        goes_on $name $options
        cmp kept/$name whole.${name##*.} || fail "$name has a gap"
    done
    rm -rf small kept
    mkdir small kept
    (
        ulimit -f 32
        # shellcheck disable=SC2086
        ends_full $options --replicas 2 -o small/run.extxyz
    ) && fail "replicas whose trajectories cannot grow end well"
    says '; then restart files were written, of step [0-9]*, of which [12] frames? (is|are) missing' err
    # shellcheck disable=SC2086
    goes_on run.extxyz $options --replicas 2
    for k in 0 1; do cmp kept/run-$k.extxyz whole-$k.extxyz || fail "replica $k has a gap"; done
    # A full disk has room for the last step, which was reserved.
    unshare -Urm true 2>/dev/null || { echo "skipped: no file system of its own size"; return; }
    export -f ends_full
    export mlff options
    for name in run.extxyz run.nc; do
        rm -rf small kept
        mkdir small kept
        export name
        unshare -Urm bash -c 'mount -t tmpfs -o size=128k none small && ends_full $options -o small/$name' && fail "a full disk is no failure"
        says "^mlff: small/$name: .*No space left on device; the frames before it are kept; then small/run.restart was written, of step [0-9]*, and" err
        # shellcheck disable=SC2086
        goes_on $name $options
        cmp kept/$name whole.${name##*.} || fail "$name of a full disk has a gap"
    done
    rm -rf small kept
    mkdir small kept
    options="$options --replicas 3"
    unshare -Urm bash -c 'mount -t tmpfs -o size=192k none small && ends_full $options -o small/run.extxyz' && fail "a full disk is no failure"
    says '^mlff: small/run-[012].extxyz: .*No space left on device; .*; then restart files were written, of step [0-9]*, and' err
    # shellcheck disable=SC2086
    goes_on run.extxyz $options
    for k in 0 1 2; do cmp kept/run-$k.extxyz whole-$k.extxyz || fail "replica $k of a full disk has a gap"; done
}

# As below, of replicas: restart files of all are of one step, wherever the run is killed.
test_md_replicas_killed() {
    model
    local options="--system h2o --timestep 0.1 --replicas 6 --ensemble langevin --every 3 --device cpu --threads 1" n_steps process k
    for ((kill = 0; kill < ${MLFF_KILLS:-6}; kill++)); do
        rm -f killed* whole*
        # shellcheck disable=SC2086
        "$mlff" md model.safetensors $options --n-steps 100000000 --checkpoint killed.restart --checkpoint-every 1 -o killed.extxyz >/dev/null 2>&1 </dev/null &
        process=$!
        for wait in $(seq 200); do [ -s killed-5.restart ] && break; sleep 0.05; done
        sleep 0.$((RANDOM % 3))$((RANDOM % 10))
        kill -9 $process
        wait $process 2>/dev/null
        goes_on_from_one_step
    done
    # Killed between the names of two restart files: the others wait for theirs.
    for k in 2 3 4 5; do
        cp killed-$k.restart killed-$k.restart.next
        cp whole-$k.restart killed-$k.restart
    done
    is "$(grep -h '^step ' killed-*.restart | sort -u | wc -l)" 2 "steps of restart files"
    goes_on_from_one_step
    [ ! -e killed-2.restart.next ] || fail "a restart file did not get its name"
    # Of a set that is not whole none is taken.
    for k in 2 3 4 5; do
        cp killed-$k.restart killed-$k.restart.next
        sed -i 's/^step .*/step 1000000/' killed-$k.restart.next
    done
    goes_on_from_one_step
    # One that ended early goes on from its own step, with frames at their steps.
    # shellcheck disable=SC2086
    run 0 md model.safetensors $options --n-steps 7 --checkpoint late.restart
    # shellcheck disable=SC2086
    run 0 md model.safetensors $options --n-steps 5 --checkpoint early.restart
    cp early-1.restart late-1.restart
    # shellcheck disable=SC2086
    run 0 md model.safetensors $options --n-steps 10 --restart late.restart -o late.extxyz
    is "$(cat err)" "mlff: replica 1 goes on from step 5, replica 0 from step 7: their restart files are of different steps, as after an early end; each makes --n-steps steps from its own" "what is said"
    is "$(grep -oE 'step=[0-9]+' late-0.extxyz | xargs)" "step=9 step=12 step=15" "frames of replica 0"
    is "$(grep -oE 'step=[0-9]+' late-1.extxyz | xargs)" "step=6 step=9 step=12 step=15" "frames of replica 1"
}

goes_on_from_one_step() { # …and its frames are those of a whole run
    # shellcheck disable=SC2086
    run 0 md model.safetensors $options --n-steps 30 --restart killed.restart --checkpoint killed.restart -o killed.extxyz
    [ ! -s err ] || fail "restart files are not of one step"
    n_steps=$(sed -n 's/^step //p' killed-0.restart)
    rm -f whole-?.restart
    # shellcheck disable=SC2086
    run 0 md model.safetensors $options --n-steps $((n_steps - 1)) --checkpoint whole.restart
    # shellcheck disable=SC2086
    run 0 md model.safetensors $options --n-steps "$n_steps" -o whole.extxyz
    for k in 0 1 2 3 4 5; do cmp killed-$k.extxyz whole-$k.extxyz || fail "replica $k, killed before step $n_steps, differs from that of a whole run"; done
}

# kill -9 at a random time, restart: the trajectory is byte for byte that of a whole run, in every ensemble and in every format that a restart continues.
test_md_killed() {
    model
    local formats=(extxyz lammpstrj nc dcd) ensembles=(nve langevin bussi nose-hoover scr mtk) options n_steps
    for ((kill = 0; kill < ${MLFF_KILLS:-6}; kill++)); do
        local trajectory=killed.${formats[(kill + kill / 6) % 4]} ensemble=${ensembles[kill % 6]}
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
