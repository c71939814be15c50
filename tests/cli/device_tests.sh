# SPDX-License-Identifier: MIT
# Tests of several devices and of emulated GPUs; read by test_cli.sh, whose functions they use.

# Several devices: domains of the CPU give one device's results, also after a restart; frames of a batch and of labelling are handed out.
test_several_devices() {
    local frames=$PWD/frames.extxyz key
    local -a common=(--system silicon --n-atoms 64 --ensemble langevin --temperature 600 --precision float64 --every 10 --seed 2 --json)
    model
    run 0 md model.safetensors "${common[@]}" --n-steps 20 --device cpu
    cp out one.json
    run 0 md model.safetensors "${common[@]}" --n-steps 10 --device cpu:2 --checkpoint half.restart
    run 0 md model.safetensors "${common[@]}" --n-steps 10 --device cpu:3 --restart half.restart
    for key in potential_energy_ev kinetic_energy_ev; do
        close_to "$(value out thermo.1.$key)" "$(value one.json thermo.2.$key)" 1e-9 "$key of three domains"
    done
    is "$(value out summary.device)" cpu:3 "device"
    close_to "$(value out summary.domains.1.n_owned)" 21 2 "atoms of a domain"
    run 0 md model.safetensors --system silicon --n-atoms 64 --n-steps 2 --device cpu:2
    says "$(awk '$1 ~ /^cpu/ { n = $2 + $3; sum += n; k++; if (n > most) most = n }
        END { printf "the largest domain has %d atoms with its ghosts, %.1f %% more than the mean", most, 100 * (most * k / sum - 1) }' out)"
    run 0 md model.safetensors --system silicon --n-atoms 8 --n-steps 20 --every 2 --device cpu -o "$frames"
    run 0 eval model.safetensors "$frames" --batch 4 --json one.json --device cpu
    run 0 eval model.safetensors "$frames" --batch 4 --json three.json --device cpu:3
    is "$(value three.json frames.10.energy_ev)" "$(value one.json frames.10.energy_ev)" "energy of the last frame"
    is "$(value three.json frames.2.energy_ev)" "$(value one.json frames.2.energy_ev)" "energy of a frame of a full batch"
    run 0 label model.safetensors "$frames" --device cpu:2 -o labels.extxyz
    is "$(grep -c Lattice labels.extxyz)" 11 "labelled frames"
    refused 2 'number of domains' md model.safetensors --system silicon --device cpu:x
    refused 1 "at most 64" md model.safetensors --system silicon --device cpu:65
    run 0 new --arch orb-v3-direct --features 32 --layers 1 --hidden 512 --elements Si -o orb.safetensors
    run 0 eval orb.safetensors "$frames" --device cpu:2
    says 'computed on one of the devices' err
}

# Dynamics on a GPU that is emulated on the CPU (MLFF_CUDA_PLUGIN): the CPU's trajectory within float32's rounding, restart
# files that go from one to the other, to the bit on the same device.
# A kernel that does not end: every command that waits for it ends by itself, with one line, and calls nothing that would wait again
# (the emulated GPU aborts there).
test_gpu_faults() {
    [ -r "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin for an emulated GPU"; return; }
    model --features 64 --layers 1
    water
    export MLFF_GPU_TIMEOUT=0.2
    local n
    for n in 1 2 3 4; do
        MLFF_EMULATE_FAIL=cudaStreamQuery:$n:600 refused 1 'a kernel does not end' eval model.safetensors water.xyz --device cuda -o out.extxyz
        MLFF_EMULATE_FAIL=cudaStreamQuery:$n:600 refused 1 'a kernel does not end' md model.safetensors water.xyz --device cuda --n-steps 5 --checkpoint a.restart
        MLFF_EMULATE_FAIL=cudaStreamQuery:$n:600 refused 1 'a kernel does not end' profile model.safetensors water.xyz --device cuda --n-steps 5 -o p.json
    done
    # Training waits for its queue to have room, for sums of errors and for weights.
    for n in 1 2 3 4; do printf '3\n\nO 0 0 0\nH 0.96 0 0.0%s\nH -0.24 0.93 0\n' $n; done >frames.xyz
    "$mlff" label model.safetensors frames.xyz -o labels.extxyz --device cpu >out 2>err || fail "mlff label"
    local call small="--features 32 --layers 1 --rbf 4 --steps 3 --batch 1"
    for call in cudaEventQuery:1 cudaStreamQuery:1 cudaStreamQuery:2 cudaStreamQuery:3; do
        MLFF_EMULATE_FAIL=$call:600 refused 1 'a kernel does not end' train labels.extxyz $small --device cuda -o student.safetensors
    done
    unset MLFF_GPU_TIMEOUT
    # The plugin of another build, and a file that is no plugin.
    cp "$mlff" other.so
    MLFF_CUDA_PLUGIN=$PWD/other.so refused 1 'libmlff_cuda.so cannot be opened' eval model.safetensors water.xyz --device cuda
    sed 's/mlff %s layout/mlff %s LAYOUT/' "$MLFF_CUDA_PLUGIN" >other.so
    MLFF_CUDA_PLUGIN=$PWD/other.so refused 1 'install both from one build' eval model.safetensors water.xyz --device cuda
    head -c 8192 "$MLFF_CUDA_PLUGIN" >other.so # the loader maps what is not there: a bus error
    MLFF_CUDA_PLUGIN=$PWD/other.so refused 1 'cannot be opened .*cut off' eval model.safetensors water.xyz --device cuda
}

test_md_cuda() {
    [ -r "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin for an emulated GPU"; return; }
    "$mlff" new --arch painn --features 64 --layers 1 --elements H,O --seed 2 -o model.safetensors >/dev/null 2>err || fail "mlff new"
    printf '3\nProperties=species:S:1:pos:R:3:move_mask:L:1\nO 0 0 0.119 F\nH 0 0.763 -0.477 T\nH 0 -0.763 -0.477 T\n' >fixed.xyz
    local langevin="--ensemble langevin --temperature 100 --seed 4 --every 10" device from
    for device in cpu cuda; do
        run 0 md model.safetensors fixed.xyz $langevin --n-steps 20 --device $device --json -o $device.extxyz
        cp out $device.json
        run 0 md model.safetensors fixed.xyz $langevin --n-steps 10 --device $device --checkpoint $device.restart
    done
    is "$(value cuda.json summary.integrated_on)" cuda:0 "where the steps were made"
    is "$(value cuda.json thermo)" 3 "lines of the table"
    is "$(grep -c '^3$' cuda.extxyz)" 3 "frames of the trajectory"
    is "$(sed -n '3p;8p;13p' cuda.extxyz | awk '{ print $2, $3, $4 }' | sort -u | wc -l)" 1 "places of the fixed atom"
    close_to "$(value cuda.json thermo.2.potential_energy_ev)" "$(value cpu.json thermo.2.potential_energy_ev)" 1e-5
    close_to "$(value cuda.json thermo.2.drift_mev_per_atom)" "$(value cpu.json thermo.2.drift_mev_per_atom)" 1e-2
    for device in cpu cuda; do
        for from in cpu cuda; do
            run 0 md model.safetensors fixed.xyz $langevin --n-steps 10 --device $device --restart $from.restart --json
            is "$(value out thermo.1.step)" 20 "last step after the restart"
            close_to "$(value out thermo.1.potential_energy_ev)" "$(value cpu.json thermo.2.potential_energy_ev)" 1e-5
            [ $device = $from ] && is "$(value out thermo.1.potential_energy_ev)" "$(value $device.json thermo.2.potential_energy_ev)" \
                "energy on $device after a restart from its own file"
        done
    done
    run 0 md model.safetensors --system h2o --n-steps 25 --every 25 --device cuda --profile md.json
    says 'integrated on cuda:0'
    is "$(value md.json n_steps)" 25 "steps of the profile"
    run 0 report md.json --text
    says 'all 25 steps timed by its own timer' && says 'forward/message/0' && says 'integrate'
    # Of two GPUs each has a file; those of a run that ends early take no other file's place, be it of the second GPU alone.
    "$mlff" new --arch painn --features 32 --layers 1 --rbf 4 --cutoff 3 --elements Si -o silicon.safetensors >/dev/null 2>err || fail "mlff new"
    local two="md silicon.safetensors --system silicon --n-atoms 8 --every 5 --device cuda:0,1 --profile two.json"
    export MLFF_EMULATE_DEVICES=2
    # shellcheck disable=SC2086
    run 0 $two --n-steps 5
    cp two.json before.json && cp two.rank1.json before.rank1.json
    echo mine >two-partial.rank1.json
    ready() { grep -qE '^ +5 ' out; }
    # shellcheck disable=SC2086
    interrupted $two --n-steps 1000000000
    says '; what was written is kept, the profile in two-partial-2.json$' err
    cmp two.json before.json && cmp two.rank1.json before.rank1.json || fail "profiles of a whole run"
    is "$(cat two-partial.rank1.json)" mine "a file that is not of this run"
    [ ! -e two-partial.json ] || fail "a part of a profile"
    run 0 report two-partial-2.json --text
    says 'partial: ended after [0-9]+ of 1000000000 steps'
    is "$(value two-partial-2.rank1.json workload.rank)" "1 of 2" "the file of the second GPU"
}

# The same on GPUs that are emulated: their number, driver and memory are settings (tests/emulate/emulate.h).
test_devices_cuda() {
    [ -r "${MLFF_CUDA_PLUGIN:-}" ] || { echo "skipped: MLFF_CUDA_PLUGIN names no plugin for an emulated GPU"; return; }
    export MLFF_EMULATE_DEVICES=2 MLFF_EMULATE_MEMORY=1073741824
    run 0 devices
    says '^cuda:1  emulated GPU 1' && says 'capability  *9.0' && says 'memory  .*1.00 GB, 1.00 GB free' && says 'needs 12.0 or newer'
    run 0 devices cuda:1 --json
    is "$(value out devices.0.memory.total_bytes)" 1073741824 "memory"
    is "$(value out devices.0.index)" 1 index
    is "$(value out gpu_problem)" "" "why there is no GPU"
    refused 1 'cuda:2: this machine has 2 GPUs' devices cuda:2
    run 0 check
    says 'GPU engine  *ready; built for CUDA 12.8, needs a driver for 12.0 or newer'

    model --features 64 --layers 1
    water
    # Labels by two GPUs are those by one, to the byte.
    run 0 new --arch painn --features 32 --layers 1 --elements H,O -o teacher.safetensors
    run 0 sample teacher.safetensors --system h2o -o samples.extxyz --n-samples 5 --methods thermal --device cpu
    run 0 label teacher.safetensors samples.extxyz -o one.extxyz --device cuda:0
    run 0 label teacher.safetensors samples.extxyz -o two.extxyz --device cuda:0,1
    cmp one.extxyz two.extxyz || fail "labels by two GPUs differ"
    # A system divided between them stays there with a profile, of which each has a file.
    run 0 md teacher.safetensors --system water --n-atoms 24 --n-steps 6 --every 6 --device cuda:0,1 --profile two.json --profile-every 3
    says 'integrated in the domains of cuda:0,1'
    is "$(value two.rank1.json device)" cuda:1 "device of the second file"
    is "$(value two.json workload.rank)" "0 of 2" "rank of the first file"
    is "$(($(value two.json workload.owned) + $(value two.rank1.json workload.owned)))" 24 "atoms of both"
    run 0 report two.json --text
    says 'all 6 steps timed' && says '^Ranks' && says '^exchange'
    says 'Load imbalance: not judged, as it is not known how long rank 0'
    # The second GPU's file is checked before the run as the first one's is.
    local -a profiled=(--n-steps 2 --device cuda:0,1 --profile made.json)
    mkdir made.rank1.json
    refused 1 'made.rank1.json' md teacher.safetensors water.xyz "${profiled[@]}" -o made.extxyz
    rmdir made.rank1.json
    refused 2 "--profile and --checkpoint are one file, 'made.rank1.json'" md teacher.safetensors water.xyz "${profiled[@]}" --checkpoint made.rank1.json
    cp water.xyz made.rank1.json
    refused 2 "would overwrite the input './made.rank1.json'" md teacher.safetensors ./made.rank1.json --input-format extxyz "${profiled[@]}"
    cmp water.xyz made.rank1.json || fail 'the input was overwritten'
    refused 2 'writes a file of each' md teacher.safetensors water.xyz --n-steps 2 --device cuda:0,1 --profile /dev/null
    [ ! -e made.json ] && [ ! -e made.extxyz ] || fail 'files of a run that was refused'
    run 0 md teacher.safetensors --system water --n-atoms 24 --n-steps 2 --ensemble mtk --device cuda:0,1
    says 'integrated in the domains of cuda:0,1'
    MLFF_EMULATE_DEVICES=0 refused 1 'no GPU: the driver sees none; use device cpu' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_DRIVER=0 refused 1 'no NVIDIA driver' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_DRIVER=11080 refused 1 'driver is for CUDA 11.8.* needs one for CUDA 12.0' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_DEVICES=0 run 0 eval model.safetensors water.xyz --device auto
    says 'device auto: .*driver sees none.*using the CPU' err
    says 'no GPU: the driver sees none; using the CPU' err
    # Both refuse: the GPU for the model, or since there is none, and the CPU for the precision.
    run 0 new --arch ani --members 1 --elements H,O --hidden 32,16 -o ani.safetensors
    MLFF_CPU=portable refused 1 'tf32 is a fast mode of GPUs and .*; on the CPU use .*device auto: ANI has no reduced-precision mode: its energies need float32\)' \
        eval ani.safetensors water.xyz --precision tf32
    MLFF_CPU=portable refused 1 'tf32 is a fast mode of GPUs and .*; on the CPU use .*device auto: ANI has no reduced-precision mode' \
        label ani.safetensors water.xyz --precision tf32 -o refused.labels
    MLFF_CPU=portable MLFF_EMULATE_DEVICES=0 refused 1 'tf32 is a fast mode of GPUs and .*device auto: no GPU: the driver sees none\)' eval model.safetensors water.xyz --precision tf32
    MLFF_EMULATE_MEMORY=100000 refused 1 'out of GPU memory' eval model.safetensors water.xyz --device cuda
    # Memory for the model and not for a step: the others are compared.
    MLFF_EMULATE_MEMORY=2000000 run 1 bench compare model.safetensors:cuda teacher.safetensors teacher.safetensors:float64 --system h2o --rounds 6 --threads 1
    says 'mlff: model.safetensors:cuda is left out: out of GPU memory: arrays of a step' err
    says '^teacher.safetensors  ' && says '^teacher.safetensors:float64'
    ! grep -q '^model.safetensors:cuda  ' out || fail "what was left out has a row"
    MLFF_EMULATE_MEMORY=2000000 run 1 bench compare model.safetensors:cuda teacher.safetensors teacher.safetensors:float64 --system h2o --rounds 6 --threads 1 --json
    is "$(value out rows)" 2 "implementations that were measured"
    is "$(value out failures.0.name) $(value out failures.0.consequence)" 'model.safetensors:cuda is left out' "what was left out"
    value out failures.0.problem >problem && grep -q 'out of GPU memory' problem || fail "why it was left out"
    MLFF_EMULATE_FAIL=cudaGraphLaunch refused 1 'the GPU was lost' eval model.safetensors water.xyz --device cuda
    model --features 128 --layers 1 # Turing's 64 KB of shared memory hold it in one half a number, not in two
    MLFF_EMULATE_CAPABILITY=7.5 refused 1 '128 features .* 64 KB .*tf32' eval model.safetensors water.xyz --device cuda
    MLFF_EMULATE_CAPABILITY=7.5 run 0 eval model.safetensors water.xyz --device cuda --precision tf32
    MLFF_EMULATE_CAPABILITY=7.5 run 0 profile model.safetensors water.xyz --device cuda --precision tf32 --n-steps 2 --warmup 0 -o run.json
    is "$(value run.json implementation.precision)" tf32 "the precision of a report"
    model --features 64 --layers 1
    MLFF_EMULATE_CAPABILITY=7.5 run 0 eval model.safetensors water.xyz --device cuda
    run 0 eval model.safetensors water.xyz --device cuda:1 --json cuda.json
    run 0 eval model.safetensors water.xyz --device cpu --json cpu.json
    close_to "$(value cuda.json frames.0.energy_ev)" "$(value cpu.json frames.0.energy_ev)" 1e-5
}
