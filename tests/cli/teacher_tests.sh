# SPDX-License-Identifier: MIT
# Tests of mlff sample and label, and of what mlff train and verdict make of the structures; read by test_cli.sh, whose functions they
# use.

# N displaced ethanols in samples.extxyz, made without asking the model.
displaced() {
    run 0 sample model.safetensors --system ethanol -o samples.extxyz --n-samples "$1" --methods thermal --oversample 1 --no-relax
}

test_sample() {
    model
    run 0 sample model.safetensors --system ethanol --system h2o -o a.extxyz --n-samples 40 --methods thermal,rattle,pairs \
        --no-relax --json
    is "$(value out n_samples)" 40 "structures"
    is "$(value out n_by_method.seed)" 2 "seeds among them"
    is "$(grep -c Properties a.extxyz)" 40 "frames written"
    is "$(grep -c '^9$' a.extxyz)" "$((40 - $(grep -c '^3$' a.extxyz)))" "frames of two systems"
    run 0 sample model.safetensors --system ethanol --system h2o -o b.extxyz --n-samples 40 --methods thermal,rattle,pairs --no-relax
    cmp a.extxyz b.extxyz || fail "the same seed gives other structures"
    run 0 sample model.safetensors a.extxyz -o c.extxyz --n-samples 50 --methods thermal --temperatures 100 --seed 1 --no-relax
    is "$(grep -c Properties c.extxyz)" 50 "frames around seeds of a file"

    refused 2 'o FILE is missing' sample model.safetensors --system ethanol
    refused 2 'SEEDS or --system' sample model.safetensors -o x.extxyz
    refused 2 "'guess' is not a method" sample model.safetensors --system ethanol -o x.extxyz --methods md,guess
    refused 2 "temperatures '300,-1'" sample model.safetensors --system ethanol -o x.extxyz --temperatures 300,-1
    refused 2 'xtb:gfn9' sample xtb:gfn9 --system ethanol -o x.extxyz
    refused 1 'nowhere.safetensors' sample nowhere.safetensors --system ethanol -o x.extxyz
    printf '1\ncharge=1 Properties=species:S:1:pos:R:3\nH 0 0 0\n' >charged.xyz
    refused 1 'seed 0: a charge of 1 e' sample model.safetensors charged.xyz -o x.extxyz
    printf '2\nProperties=species:S:1:pos:R:3:initial_charges:R:1\nO 0 0 0 -1\nH 0 0 1 0\n' >hydroxide.xyz # as ASE writes it
    refused 1 'seed 0: a charge of -1 e' sample model.safetensors hydroxide.xyz -o x.extxyz
    model --elements H,O
    refused 1 'seed 0: the teacher model does not know C' sample model.safetensors --system ethanol -o x.extxyz
}

# Labels that training refuses are kept and counted, by the number that the refusal has.
test_label_far() {
    model --core-repulsion 0.7
    displaced 30
    awk '/^9$/ { n++; k = 0 } { k++; if (n == 8 && (k == 3 || k == 5)) { $2 = $3 = 0; $4 = k / 1000 } print }' \
        samples.extxyz >pressed.extxyz
    local output
    for output in pressed.labels pressed-labels.extxyz; do
        run 0 label model.safetensors pressed.extxyz -o $output
        says "warning: $output: 1 of 30 labels cannot be trained on, the first is structure 7: energies more than 20 eV/atom.*; where .*, mlff train --largest-force 50 leaves these" err
        refused 1 "structure 7: its .*mlff train --largest-force 50 leaves it out" train $output -o student.safetensors --steps 2 --device cpu
        run 0 train $output -o $output.safetensors --steps 2 --device cpu --features 8 --layers 1 --largest-force 50
    done
    run 0 label model.safetensors samples.extxyz -o good.labels
    grep -q 'trained on' err && fail "a warning about good labels"
    return 0
}

test_label() {
    model
    displaced 30
    run 0 label model.safetensors samples.extxyz -o l.labels --json
    is "$(value out n_labelled)" 30 "labels"
    is "$(value out teacher_sha256)" "$(sha256sum model.safetensors | cut -d' ' -f1)" "the teacher's hash"
    refused 2 'is there already; --resume' label model.safetensors samples.extxyz -o l.labels
    run 0 label model.safetensors samples.extxyz -o l.labels --resume --json
    is "$(value out n_before)" 30 "labels that were there"
    is "$(value out n_labelled)" 0 "labels made again"
    run 0 label model.safetensors samples.extxyz -o l.labels --resume
    says '^l.labels: nothing to do, all 30 structures were done before; train on them'

    # A writer that is about to end is waited for, one that goes on is not.
    flock -x l.labels sleep 0.7 &
    sleep 0.2
    run 0 label model.safetensors samples.extxyz -o l.labels --resume
    wait $!
    exec 8<l.labels
    flock -x 8
    refused 1 'another process is writing labels there' label model.safetensors samples.extxyz -o l.labels --resume
    exec 8<&-
    [ -s l.labels ] || fail "labels are lost"

    refused 1 'l.labels: is a file of labels, which train, distill, verdict .* read' eval model.safetensors l.labels
    refused 1 'l.labels: is a file of labels, not a model; mlff train' info l.labels
    refused 1 'no model of this name.*; other teachers are xtb:gfn2' label gfn2 samples.extxyz -o other.labels

    # As text, the same as mlff eval gives.
    run 0 label model.safetensors samples.extxyz -o l.extxyz
    cp l.extxyz labelled.extxyz # labels of another run are not written over, in this form either
    head -11 samples.extxyz >other.extxyz
    refused 2 'l.extxyz: is there already, and may hold labels; give another name, or remove it' label model.safetensors other.extxyz -o l.extxyz
    head -22 samples.extxyz | sed -E '3s/^(\S+ +)[-0-9.]+/\11.25/' >moved.extxyz
    refused 2 'l.extxyz: is of a run that ended, with labels of [01] of the 2 structures; label the others into another file' label model.safetensors moved.extxyz -o l.extxyz --resume
    for more in other samples; do
        run 0 label model.safetensors $more.extxyz -o l.extxyz --resume
        says '^l.extxyz: nothing to do, (the 1 structure was|all 30 structures were) done before; train on them: mlff train l.extxyz'
    done
    run 0 label model.safetensors samples.extxyz -o l.extxyz --resume --json
    is "$(value out n_before)" 30 "labels that were there"
    cmp l.extxyz labelled.extxyz || fail "labels of another run"
    [ -e l.extxyz.labels ] && fail "the file the text was made from is left"
    run 0 eval model.safetensors l.extxyz --json errors.json --device cpu
    is "$(value errors.json summary.n_frames)" 30 "frames of the text"
    close_to "$(value errors.json summary.forces_mae_ev_per_ang)" 0 1e-6
    # With Hessian probes, two more labels each.
    run 0 label model.safetensors samples.extxyz -o p.labels --hvp 2 --json
    is "$(value out n_structures)" 150 "structures with probes"
    # Both structures of a probe are one of a batch, so that passes over the data have fewer steps.
    run 0 train p.labels --epochs 2 --batch 10 --features 8 --layers 1 --device cpu --history epochs.jsonl -o probed.safetensors
    says '^\{"step": [0-9]+, "epoch": 2, ' <(tail -1 epochs.jsonl)
    refused 2 'no Hessian-vector products' label model.safetensors samples.extxyz -o p.extxyz --hvp 2

    # Another teacher, a file that is something else, structures that cannot be labelled.
    mv model.safetensors first.safetensors
    model --seed 9
    refused 1 'of another teacher, first|of another teacher, model' label model.safetensors samples.extxyz -o l.labels --resume
    echo hello >hello.labels
    refused 1 'not a file of labels' label model.safetensors samples.extxyz -o hello.labels --resume
    is "$(cat hello.labels)" hello "a file of others"
    printf '1\ncharge=1 Properties=species:S:1:pos:R:3\nH 0 0 0\n' >charged.xyz
    cat charged.xyz samples.extxyz >mixed.xyz
    run 0 label model.safetensors mixed.xyz -o mixed.labels --json
    is "$(value out n_failed)" 1 "structures that failed"
    is "$(value out n_labelled)" 30 "structures beside it"
    says 'skipped structure 0: a charge of 1 e' err
    run 0 label model.safetensors mixed.xyz -o mixed.labels --resume
    says '^mixed.labels: nothing to do, all 31 structures were done before, 1 in the file could not be labelled; train on them'
    run 1 label model.safetensors charged.xyz -o none.labels
    says 'could not label any structure' err
    # Structures that fail alike are one line.
    cat charged.xyz charged.xyz charged.xyz samples.extxyz charged.xyz >mixed.xyz
    sed -i '5s/charge=1/charge=2/; 8s/.*/H 0 0 1/; 11s/.*/H 0 0 2/' mixed.xyz
    run 0 label model.safetensors mixed.xyz -o alike.labels
    says 'skipped structure 0: a charge of 1 e' err && says 'skipped structure 1: a charge of 2 e' err
    cat charged.xyz charged.xyz charged.xyz >three.xyz
    sed -i '6s/.*/H 0 0 1/; 9s/.*/H 0 0 2/' three.xyz
    run 1 label model.safetensors three.xyz -o three.labels
    says 'skipped structure 0: a charge of 1 e' err && says 'skipped 2 more structures: a charge of 1 e' err
    is "$(grep -c skipped err)" 2 "lines about structures that fail alike"
    [ -e /dev/full ] && refused 1 '/dev/full' label model.safetensors samples.extxyz -o /dev/full --resume
    return 0
}

# Killed, stopped by Ctrl-C and on a disk that is full, the file goes on to the same bytes.
test_label_resume() {
    model
    displaced 3000
    run 0 label model.safetensors samples.extxyz -o whole.labels --device cpu
    for signal in KILL INT TERM KILL; do
        "$mlff" label model.safetensors samples.extxyz -o cut.labels --resume --threads 1 --device cpu >out 2>err </dev/null &
        local pid=$! tries=0 before
        before=$(stat -c %s cut.labels 2>/dev/null || echo 0)
        while [ "$(stat -c %s cut.labels 2>/dev/null || echo 0)" -le "$((before + 1000))" ] && [ $tries -lt 500 ]; do
            sleep 0.01
            tries=$((tries + 1))
        done
        kill -$signal $pid 2>/dev/null
        wait $pid
        local status=$?
        [ $status = 0 ] && break # done before the signal
        [ $signal = INT ] && { is $status 130 "exit status after Ctrl-C"; says 'what was labelled is kept; go on with --resume' err; }
    done
    if [ "$(stat -c %s cut.labels)" -gt 100000 ]; then # a torn end, as after a power failure
        truncate -s -333 cut.labels
        run 0 label model.safetensors samples.extxyz -o cut.labels --resume --device cpu
        says 'dropped an incomplete last label' err
    fi
    (ulimit -f 200; trap '' XFSZ; "$mlff" label model.safetensors samples.extxyz -o full.labels --device cpu >out 2>err)
    is $? 1 "exit status with a full disk"
    says 'cannot be written: File too large; kept: [0-9]+ labels; free space; go on with --resume$' err
    run 0 label model.safetensors samples.extxyz -o full.labels --resume --device cpu
    run 0 label model.safetensors samples.extxyz -o cut.labels --resume --device cpu
    cmp whole.labels cut.labels || fail "a run that was stopped ends in other bytes"
    cmp whole.labels full.labels || fail "a run on a full disk ends in other bytes"
}

test_label_xtb() {
    "$mlff" sample xtb:gfn2 --system ethanol -o s.extxyz --n-samples 30 --methods modes,rattle >out 2>err || {
        grep -q 'libxtb' err && { echo "skipped: libxtb is not here"; return; }
        fail "mlff sample xtb:gfn2"
    }
    run 0 label xtb:gfn2 s.extxyz -o two.labels --threads 2
    run 0 label xtb:gfn2 s.extxyz -o one.labels --threads 1
    cmp one.labels two.labels || fail "labels depend on the number of processes"
    refused 1 'of another teacher, xtb:gfn2' label xtb:gfn1 s.extxyz -o one.labels --resume
    run 0 train two.labels -o student.safetensors --features 64 --layers 1 --steps 20 --device cpu
    says 'structures trained'
}

# A method that computes in a process of its own is profiled like a model, without stages.
test_profile_xtb() {
    refused 2 "'many' is not a whole number" profile xtb:gfn2 --threads many
    "$mlff" profile xtb:gfn2 --n-steps 5 -o teacher.json >out 2>err || {
        grep -q 'libxtb' err && { echo "skipped: libxtb is not here"; return; }
        fail "mlff profile xtb:gfn2"
    }
    says 'xtb:gfn2: ethanol, 9 atoms'
    run 0 profile xtb:gfn2 --system h2o --trajectory md --n-steps 20 --threads 1 -o md.json
    is "$(value md.json model_name)" xtb:gfn2 "the profiled model"
    says 'ns/day'
    model
    run 0 profile model.safetensors --system h2o --device cpu --n-steps 20 -o student.json
    run 0 report md.json student.json -o both.html
    says '2 runs' && says 'xtb:gfn2' both.html
    refused 2 'xtb:gfn2 computes on the CPU; --device cuda:0 is for models' profile xtb:gfn2 --device cuda:0
    refused 1 'knows no periodic systems' profile xtb:gfn2 --system silicon
    refused 2 'not a method of xtb' profile xtb:gfn7
    refused 1 'xtb:gfn2 is a teacher, for sample, label' md xtb:gfn2 --system ethanol
}

test_train_leaves_out_strain() {
    printf '%s\n' 2 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 pbc="F F F"' 'H 0 0 0 9 0 0' 'H 0 0 0.8 -9 0 0' \
        2 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-2.5 pbc="F F F"' 'H 0 0 0 0 0.5 0' 'H 0 0 0.9 0 -0.5 0' >labels.xyz
    run 0 train labels.xyz --validation labels.xyz --largest-force 5 --steps 2 --features 8 --layers 1 --device cpu -o kept.safetensors
    says '2 structures left out, with a force above 5 eV' out # one of each file
    says '1 structure trained, 1 validated' out
    refused 1 'labels.xyz: all of its structures .2. have a force above 0.01 eV' train labels.xyz --largest-force 0.01 --steps 2 -o none.safetensors
    sed '1,4d; s/0.5/0.01/' labels.xyz >small.xyz
    refused 1 'labels.xyz: all of its structures .2.' train small.xyz --validation labels.xyz --largest-force 0.1 --steps 2 -o none.safetensors
    # What is said of labels that structures for validation lack does not call them learned from.
    printf '%s\n' 2 'Properties=species:S:1:pos:R:3 energy=-2.5 pbc="F F F"' 'H 0 0 0' 'H 0 0 0.95' >energies.xyz
    refused 1 'the structures for validation have no forces; give forces' train labels.xyz --validation energies.xyz --steps 2 -o none.safetensors
    cat small.xyz energies.xyz >some.xyz
    run 0 train labels.xyz --validation some.xyz --steps 2 --features 8 --layers 1 --device cpu -o some.safetensors
    says '1 of 2 structures for validation has no forces: of these energies alone count' err
    # Two hydrogen atoms at 0.44 Å are pressed together, at 0.9 Å they are not.
    sed 's/H 0 0 0.8 -9/H 0 0 0.44 -9/' labels.xyz >pressed.xyz
    local nearer="train pressed.xyz --validation labels.xyz --core-repulsion 0.7 --steps 2 --features 8 --layers 1 --device cpu -o nearer.safetensors"
    run 0 $nearer --nearer 1
    says '^2 structures added: copies of labelled ones in which two atoms are moved nearer$' && says '2 structures trained, 2 validated'
    run 0 $nearer --nearer 0.5 --json
    is "$(value out nearer_structures)" 1 "structures added"
    run 0 $nearer
    grep -q added out && fail "3 % of two structures"
    refused 2 'nearer' $nearer --nearer 1.5
    run 0 info kept.safetensors
    says 'training.data_hash +[0-9a-f]{64}' out
}

# A structure that is trained on and turned about (1, 1, 1), its atoms in another order, is no new one.
test_copies() {
    local columns='Properties=species:S:1:pos:R:3:forces:R:3'
    printf '%s\n' 3 "$columns energy=-1.5" 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >train.xyz
    printf '%s\n' 3 "$columns energy=-1.5" 'H 0 0.96 0 0 0 0' 'O 0 0 0 0 0 0' 'H 0.93 -0.24 0 0 0 0' >turned.xyz
    printf '%s\n' 3 "$columns energy=-1.5" 'O 0 0 0 0 0 0' 'H 0 0 0.97 0 0 0' 'H 0 0.93 -0.24 0 0 0' >other.xyz
    local train="train train.xyz --steps 2 --features 8 --layers 1 --device cpu -o student.safetensors"
    run 0 $train --validation turned.xyz
    says '1 of 1 structure of turned.xyz is in train.xyz too.*structure 0, in train.xyz 0' err
    run 0 $train --validation other.xyz
    is "$(wc -c <err)" 0 "bytes of warnings about another structure"
    local judge="verdict student.safetensors --trained-on train.xyz --nve 0 --hot 0 --compare 0"
    run 1 $judge --test turned.xyz
    says 'held_out +FAILED +100 '
    run 1 $judge --test train.xyz
    says 'held_out +FAILED +100 '
    grep -q 'held-out' out && fail "training structures are called held-out"
    run 1 $judge --test other.xyz
    says 'held_out +passed +0 '
    says 'against the labels of 1 held-out structure;'
    says '^not judged, since there is no --teacher to compare with: speed, pressed, error.dynamics$'
    grep -q '^speed' out && fail "a speed without a teacher"
    run 1 $judge --test other.xyz --min-speed 2
    says 'speed +NOT MEASURED +- .*name one, or ask for a speed of 0' && says '^not judged, .*: pressed, error.dynamics$'
    # Without --trained-on: by the file that the student's metadata name, wherever both are moved to, as long as it is the same.
    judge="--nve 0 --hot 0 --compare 0"
    mkdir moved stored
    ln -s stored/student.safetensors link.safetensors
    run 0 $train --validation turned.xyz -o link.safetensors
    run 1 verdict link.safetensors $judge --test turned.xyz
    says 'compared with the 1 structures? that the student was trained on'
    mv student.safetensors train.xyz moved
    run 1 verdict moved/student.safetensors $judge --test turned.xyz
    says 'compared with the 1 structures? that the student was trained on'
    says 'held_out +FAILED +100 '
    run 1 verdict moved/student.safetensors $judge --test other.xyz
    says 'against the labels of 1 held-out structure;'
    sed -i 's/energy=-1.5/energy=-1.6/' moved/train.xyz
    run 1 verdict moved/student.safetensors $judge --test other.xyz
    says 'warning: moved/student.safetensors: the structures that it was trained on are not found again.*train.xyz has changed' err
    grep -q 'held' out && fail "structures are called held-out that are compared with nothing"
    rm moved/train.xyz
    run 1 verdict moved/student.safetensors $judge --test turned.xyz
    is "$(grep -cv "tell little of the errors" err)" 0 "warnings without a file"
    says 'against the labels of 1 structure, not compared with the training data;'
    grep -q 'held' out && fail "structures are called held-out that are compared with nothing"
    # The part that was trained on, of a file that was split.
    local k
    for ((k = 0; k < 20; k++)); do
        printf '%s\n' 3 "$columns energy=-1.5" "O 0 0 0 0 0 0" "H 0 0 0.9$((k + 10)) 0 0 0" 'H 0 0.93 -0.24 0 0 0'
    done >twenty.xyz
    run 0 train twenty.xyz --split 0.2 --steps 2 --features 8 --layers 1 --device cpu -o student.safetensors
    run 1 verdict student.safetensors $judge --test twenty.xyz
    says 'held_out +FAILED +80 .*16 of 20 structures'
    mkdir -p models data
    cp twenty.xyz data
    run 0 train data/twenty.xyz --split 0.2 --largest-force 9.5 --steps 2 --features 8 --layers 1 --device cpu -o models/student.safetensors
    run 0 info models/student.safetensors
    says 'training.data_file +\.\./data/twenty.xyz$' && says 'training.data_split +0.2$' && says 'training.data_largest_force +9.5$'
    run 1 verdict models/student.safetensors $judge --test twenty.xyz
    says 'held_out +FAILED +80 '
    # A model that was trained before: its data count too, and where they are not found, a test is called held-out by no part of the data.
    head -50 twenty.xyz >ten.xyz
    run 0 train ten.xyz --validation other.xyz --student student.safetensors --steps 2 --device cpu -o models/again.safetensors
    run 0 info models/again.safetensors
    says 'training.begun_with +\.\./student.safetensors$' && says 'training.data_file +\.\./ten.xyz$'
    run 1 verdict models/again.safetensors $judge --test twenty.xyz
    says 'compared with the 26 structures that the student was trained on'
    says 'held_out +FAILED +([89][0-9]|100) '
    run 1 verdict models/again.safetensors $judge --test other.xyz
    says 'held_out +passed +0 '
    cp models/again.safetensors models/alone.safetensors
    mv student.safetensors first.safetensors
    run 1 verdict models/alone.safetensors $judge --test twenty.xyz
    says 'held_out +FAILED +50 '
    run 1 verdict models/alone.safetensors $judge --test other.xyz
    says 'warning: the student was trained several times, and .* not found: .* 10 structures, of which the test has no copies; name all files with --trained-on' err
    grep -q 'held' out && fail "a test is held out of a part of the training data"
    run 1 verdict models/alone.safetensors $judge --test twenty.xyz --trained-on ten.xyz --trained-on twenty.xyz
    says 'held_out +FAILED +100 '
    cp models/alone.safetensors student.safetensors # another model of this name
    run 1 verdict models/again.safetensors $judge --test other.xyz
    says 'trained several times' err
    mv first.safetensors student.safetensors
    # Once more on the same file: its structures are counted once. What --largest-error leaves out is in the file, so that it is not named.
    run 0 train ten.xyz --validation other.xyz --student models/again.safetensors --steps 2 --device cpu -o third.safetensors
    run 1 verdict third.safetensors $judge --test other.xyz
    says 'compared with the 26 structures'
    sed -i '3s/0 0 0$/15 0 0/' ten.xyz
    run 0 train ten.xyz --validation other.xyz --student student.safetensors --largest-error 10 --steps 2 --device cpu -o fourth.safetensors
    says '^1 structure left out'
    run 0 info fourth.safetensors
    says 'training.begun_with +student' && ! grep -q 'training.data_file' out || fail "a file of which a part was left out"
    # Labels of another method begin at another zero.
    sed 's/energy=-1.5/energy=-7.5/' twenty.xyz >other-zero.xyz
    run 0 train other-zero.xyz --student student.safetensors --steps 2 --device cpu -o other.safetensors --json
    says 'warning: the energies of the labels are [12][0-9.]* eV/atom off those of the model .student.*that fit the labels$' err
    awk -v e="$(value out energy_mae_ev_per_atom)" 'BEGIN { exit !(e < 1) }' || fail "energies of the elements are those of other labels"
    # Some structures, at which the student is far off, are not another zero.
    awk '/energy/ && ++n % 3 == 0 { sub(/energy=-1.5/, "energy=-13.5") } { print }' twenty.xyz >some-far.xyz
    run 0 train some-far.xyz --student student.safetensors --steps 2 --device cpu -o mended.safetensors
    if grep -q 'off those of the model' err; then fail "the zero of the energy by a few structures"; fi
    # Structures at which the student diverges.
    refused 1 'the loss stopped being finite.*; --largest-error 1000 leaves out structures at which student.safetensors diverges$' train twenty.xyz \
        --student student.safetensors --learning-rate 10 --steps 400 --validate-every 20 --device cpu -o none.safetensors
    awk '/^H 0 0 0.9/ && ++n % 4 == 0 { $7 = 150 } { print }' twenty.xyz >diverging.xyz
    run 0 train diverging.xyz --validation twenty.xyz --student student.safetensors --largest-error 100 --steps 2 --device cpu -o mended.safetensors
    says '^5 structures left out, at which student.safetensors is off by more than 100 eV/Å$' && says '15 structures trained'
    refused 1 'at all of its structures \(20\) student.safetensors is off by more than 1e-09 eV/Å; raise --largest-error' train twenty.xyz --student student.safetensors \
        --validation diverging.xyz --largest-error 1e-9 --steps 2 --device cpu -o none.safetensors
    refused 2 '--largest-error needs --student' train twenty.xyz --largest-error 5 --steps 2 --device cpu -o none.safetensors
}

# N ethanols in trajectories of ten, labelled by a model, in FILE.
labelled() {
    run 0 sample model.safetensors --system ethanol -o structures.extxyz --n-samples "$1" --methods thermal --oversample 1 --no-relax
    run 0 label model.safetensors structures.extxyz -o plain.extxyz --device cpu
    awk '/Properties/ { sub(/group=[0-9]+/, "group=" int((n++) / 10)) } { print }' plain.extxyz >"$2"
    rm structures.extxyz plain.extxyz
}

# Ctrl-C: what is kept, and what to do.
test_train_interrupted() {
    model --elements H,C,O
    labelled 60 labels.extxyz
    local train="train labels.extxyz -o student.safetensors --features 8 --layers 1 --steps 100000000 --device cpu --threads 1"
    local first wait more
    for more in "" "--checkpoint run.checkpoint"; do
        rm -f run.history
        # shellcheck disable=SC2086
        "$mlff" $train --validate-every 100 --history run.history $more >out 2>err </dev/null &
        first=$!
        for wait in $(seq 400); do [ -s run.history ] && break; sleep 0.02; done
        kill -INT $first
        wait $first
        is $? 130 "exit status"
        is "$(wc -l <err)" 1 "lines of errors"
        [ -e student.safetensors ] && fail "a student of an unfinished training"
        says "training stopped after step [0-9]+ of 100000000; ${more:+the checkpoint holds it; the same command continues}" err
        [ -n "$more" ] || says '; kept: the best student so far .step [0-9]+00. in student-partial.safetensors; go on from it with --student$' err
    done
    # A history that cannot be written is told before the training.
    refused 1 '^mlff: absent/run.history: cannot write in its folder: No such file' $train --history absent/run.history
    # The same command again after its end has the same errors.
    train="train labels.extxyz -o student.safetensors --features 8 --layers 1 --steps 60 --device cpu --threads 1 --checkpoint done.checkpoint"
    # shellcheck disable=SC2086
    run 0 $train
    tail -1 out >whole
    says '50 structures trained, 10 validated: forces [1-9][0-9.]* meV' whole
    run 0 info student.safetensors
    grep training.error out >error
    run 0 $train
    says '^nothing to do: done.checkpoint is at the end of this training, step 60; ' && is "$(wc -l <out)" 2 "lines"
    tail -1 out | cmp - whole || fail "the same training has other errors"
    run 0 info student.safetensors
    grep training.error out | cmp - error || fail "the same student has other errors"
    # What differs from the run of a checkpoint is named.
    local option
    for option in "--steps 70:steps 60 where this has steps 70" "--learning-rate 0.25:rate 0.001 to 1e-06 where this has rate 0.25 to 1e-06" \
        "--features 16:8 features where this has 16 features" "--precision float64:precision float32 where this has precision float64" "--seed 1:other training data .50 structures." "--energy-boost 5:boost 100 where this has boost 5" "--huber 0.5:loss .* 0 where this has loss .* 0.5"; do
        # shellcheck disable=SC2086
        refused 1 "^mlff: done.checkpoint: is of another run, with ${option#*:}; resume with " $train ${option%%:*}
    done
    # The best student so far must be that of the training.
    mv done.best.safetensors kept.best
    # shellcheck disable=SC2086
    refused 1 '^mlff: done.best.safetensors: is not there; .* done.checkpoint is of, .* to train again$' $train
    cp model.safetensors done.best.safetensors
    cp student.safetensors before.safetensors
    # shellcheck disable=SC2086
    refused 1 'done.best.safetensors: is not the best student of the training that done.checkpoint is of .PaiNN, 8 features' $train
    cmp student.safetensors before.safetensors || fail "a student of another training"
    mv kept.best done.best.safetensors
    # shellcheck disable=SC2086
    run 0 $train
    # What a checkpoint is: no model.
    refused 1 'done.checkpoint: is a checkpoint of a training, not a model; mlff info tells of it' eval done.checkpoint labels.extxyz
    run 0 info done.checkpoint
    says '^  student +PaiNN, 8 features, 1 layer, .*, silu; [0-9]+ parameters$' && says '^  training data +50 structures$'
    says '^  step +60 of 60, its end, in ' && says '^  errors +forces [0-9.]+ meV/Å, energy .*10 structures for validation, step [0-9]+\)$'
    says '^  best student +done.best.safetensors' && says '^  goes on +mlff train … --checkpoint done.checkpoint, with the options'
    run 0 info run.checkpoint --json
    is "$(value out n_steps)" 100000000 "steps of the training that was interrupted"
    [ "$(value out step)" -ge 100 ] && [ "$(value out best_step)" -ge 100 ] || fail "steps of the training that was interrupted"
    is "$(value out best_student)" run.best.safetensors "best student"
    mkdir folder && cp done.checkpoint folder/student.checkpoint && touch folder/made-with.json folder/{student,mine,other.v2}.best.safetensors
    cp done.checkpoint folder/mine.v2 # whose student is not mine.best.safetensors
    run 0 info folder/mine.v2
    ! grep -q 'best student' out || fail "the student of another training"
    cp done.checkpoint folder/other.v2
    run 0 info folder/other.v2
    says '^  best student +folder/other.v2.best.safetensors'
    run 0 info folder/student.checkpoint
    says '^  best student +folder/student.best.safetensors' && says '^  goes on +mlff distill --resume -o folder$'
    dd if=/dev/zero of=done.checkpoint bs=1 seek=9000 count=8 conv=notrunc 2>/dev/null
    refused 1 'done.checkpoint: its checksum does not match its content' info done.checkpoint
    run 0 info student-partial.safetensors
    says 'training.data +50 structures$' && says 'training.error +validation: forces [0-9.]+ meV'
    # A seed that no teacher takes is named.
    printf '2\ncharge=1\nO 0 0 0\nH 0 0 1\n' >ion.xyz
    refused 1 'ion.xyz: a charge of 1 e' distill model.safetensors --system ion.xyz -o ion.run
}

# From labels that are there to a judged student; stopped and gone on with, the same bits.
test_distill_labels() {
    model --elements H,C,O
    labelled 120 labels.extxyz
    local distill="distill --labels labels.extxyz --preset demo --features 8 --layers 1 --steps 800 --device cpu --threads 1"
    run 1 $distill -o whole.run
    says 'against the labels of 10 held-out structures'
    says 'held_out +passed' && says 'stability.hot' && says 'core'
    says '^train .* structures/s, best [0-9.]+ meV/Å \(last: H [0-9.]+, C [0-9.]+, O [0-9.]+ meV/Å\), [0-9]+ s left'
    says '"force_mae_H_ev_per_angstrom": [0-9.]+, "force_mae_C_ev_per_angstrom": [0-9.]+, "force_mae_O_ev' whole.run/history.jsonl
    grep -q '^verdict.* speed' out && fail "a speed without a teacher"
    says 'stability.hot .*at least 1' && not_plural "a run with one hot run" out whole.run/report.html
    run 0 info whole.run/student.safetensors
    says 'training.data +100 structures of labels.extxyz$' && says 'training.data_hash +[0-9a-f]{64}'
    grep -q 'training.teacher' out && fail "a teacher of labels"
    run 1 verdict whole.run/student.safetensors --test labels.extxyz --nve 0 --hot 0 --compare 0 --min-speed 0
    says 'compared with the 100 structures' && says 'held_out +FAILED +83.33 .*100 of 120'
    run 1 distill model.safetensors --labels labels.extxyz --structures 60 --preset demo --features 8 --layers 1 --steps 40 --device cpu -o beside.run
    says '60 of 120 labelled structures are used' && says 'verdict.*speed'
    # A single atom has no pair to press: a bar without a value, and no number that is none.
    for k in $(seq 60); do printf '%s\n' 1 'energy=-1 Properties=species:S:1:pos:R:3:forces:R:3' "He 0.$k 0 0 0 0 0"; done >atoms.extxyz
    run 1 distill --labels atoms.extxyz --preset demo --features 8 --layers 1 --steps 5 --device cpu -o atom.run
    says '^verdict.* core +FAILED \(not measured\) +- eV'
    says '^verdict.* stability.hot .* 1 run of 5 ps at 500 K; no bonds, so that explosions alone are judged'
    # Kept bars are of this build of the library; another one of the same version measures them.
    run 1 distill --resume -o whole.run
    says 'bars were measured before, with the same settings'
    mkdir other
    sed 's/measures these bars again/MEASURES THESE BARS AGAIN/' "${mlff%/bin/mlff}/lib/libmlff.so.0" >other/libmlff.so.0
    LD_LIBRARY_PATH=$PWD/other:${LD_LIBRARY_PATH-} run 1 distill --resume -o whole.run
    ! grep 'bars were measured before' out || fail "bars of another build"
    LD_LIBRARY_PATH=$PWD/other:${LD_LIBRARY_PATH-} run 1 distill --resume -o whole.run
    says 'bars were measured before'
    # Ctrl-C in the midst of training, then the same bits.
    "$mlff" $distill --steps 10000 -o long.run >out 2>err </dev/null || true
    "$mlff" $distill --steps 10000 -o pieces.run >first.out 2>first.err </dev/null &
    local first=$! k
    for ((k = 0; k < 200; k++)); do [ -s pieces.run/history.jsonl ] && break; sleep 0.02; done
    kill -INT $first
    wait $first
    [ $? = 130 ] || { cat first.err; fail "the run did not end as an interrupted one"; }
    says 'stopped after step [0-9]+ of 10000.*; mlff distill --resume -o pieces.run continues$' first.err
    run 1 distill --resume -o pieces.run
    cmp pieces.run/student.safetensors long.run/student.safetensors || fail "an interrupted run ends in other bits"
    sed -i 's/"seed": 0/"seed": 1/' pieces.run/config.json
    refused 1 'pieces.run/config.json: has "seed": 1 in place of 0, with which the files of this run were made' distill --resume -o pieces.run
    sed -i '2s/energy=-/energy=-1/' labels.extxyz
    refused 1 'labels.extxyz: its labels are not those that the run in whole.run began with' distill --resume -o whole.run
}

# A teacher's file is found from other directories, and under other names.
test_distill_elsewhere() {
    printf '{"nve_ps": 0, "hot_ps": 0, "min_speed": 0, "n_structures": 20, "n_steps": 20, "n_features": 8, "n_layers": 1, "n_pressed": 0}' >small.json
    mkdir models other
    cp "$source_folder/models/ethanol.safetensors" models/own.safetensors
    run 1 distill models/own.safetensors --system h2o --preset demo --config small.json --device cpu -o away.run
    says '^verdict: FAILED'
    rm away.run/student.safetensors
    cd other
    run 1 distill --resume -o ../away.run
    says '^verdict: FAILED'
    run 1 distill ../models/own.safetensors --system h2o --preset demo --config ../small.json --device cpu -o ../away.run
    says '^verdict: FAILED'
    cp ../models/own.safetensors copy.safetensors
    refused 1 'is of another run: asked for is "teacher"' distill copy.safetensors --system h2o --preset demo --config ../small.json --device cpu -o ../away.run
    cd ..
}

# Labels of which no run can be made: one line, and nothing is left behind.
# A folder's run is of the structures that its file had, in whatever form it has them.
test_distill_other_seeds() {
    printf '3\n\nO 0 0 0\nH 0.96 0 0\nH -0.24 0.93 0\n' >seed.xyz
    printf '{"nve_ps": 0, "hot_ps": 0, "min_speed": 0, "n_structures": 20, "n_steps": 20, "n_features": 8, "n_layers": 1}' >small.json
    local again="distill ethanol --system seed.xyz --preset demo --config small.json --device cpu -o seed.run"
    # shellcheck disable=SC2086
    run 1 $again
    ! grep -q compositions err || fail "one structure has several compositions"
    printf '3\npbc="F F F"\nO 0.0 0.0 0.0\nH 9.6e-1 0 0\nH -.24 .930 0\n' >seed.xyz
    run 1 distill --resume -o seed.run
    says '^verdict: FAILED'
    printf '3\n\nO 0 0 0\nH 0.97 0 0\nH -0.24 0.93 0\n' >seed.xyz
    # shellcheck disable=SC2086
    refused 1 'seed.xyz: the structures are not those that the run in seed.run began with; restore the file, or give another' $again
    refused 1 'seed.xyz: the structures are not those' distill --resume -o seed.run
    printf '2\n\nH 0 0 0\nH 0 0 0.74\n' | cat seed.xyz - >mixed.xyz
    run 1 distill ethanol --system mixed.xyz --preset demo --config small.json --device cpu -o mixed.run
    says 'mixed.xyz: has structures of several compositions; .* of the first alone \(H2O\): give others, as H2, by files' err
    # Structures with nearer atoms that the training adds are told.
    sed -i 's/"n_structures": 20,/"n_structures": 60, "nearer": 0.5, "n_pressed": 0, "speed_s": 0.05,/' small.json
    run 1 distill organic-small --system h2o --preset demo --config small.json --device cpu -o nearer.run
    says '^train .* 20 steps on [0-9]+ structures and [0-9]+ with nearer atoms: forces'
    run 0 info nearer.run/student.safetensors
    says 'training.nearest_of_covalent +0\.[67]'
    # A run of before has no hash.
    sed -i '/systems_hash/d' seed.run/config.json seed.run/made-with.json
    run 1 distill --resume -o seed.run
}

test_distill_labels_refused() {
    model --elements H,C,O
    labelled 60 good.extxyz
    local small="--preset demo --features 8 --layers 1 --steps 20 --device cpu -o refused.run"
    mkdir own.run && "$mlff" distill --print-config >own.run/config.json
    refused 2 'config.json is where the run keeps its own settings' distill ethanol --system ethanol --config own.run/config.json -o own.run
    refused 1 'nowhere.extxyz: No such file' distill --labels nowhere.extxyz $small
    refused 2 'each file of labels needs its own --labels: --labels a.extxyz --labels b.labels;' distill --labels a.extxyz b.labels $small
    refused 2 'own --labels: --labels a.extxyz --labels c.xyz;' distill --labels a.extxyz b.xyz c.xyz $small
    refused 2 "'ani2x' is one argument too many" distill ethanol ani2x --labels a.extxyz $small
    refused 2 'a.extxyz: labelled structures are not a teacher; mlff train and mlff distill --labels train on them' distill a.extxyz --system ethanol $small
    head -33 good.extxyz >three.extxyz
    refused 1 'three.extxyz: 3 labelled structures; .* 50 at least' distill --labels three.extxyz $small
    sed 's/:forces:R:3//; s/^\([A-Z][a-z]* *[^ ]* *[^ ]* *[^ ]*\) .*/\1/' good.extxyz >energies.extxyz
    refused 1 'energies.extxyz: no structure has forces' distill --labels energies.extxyz $small
    sed 's/energy=[^ ]*/energy=nan/' good.extxyz >nan.extxyz
    refused 1 'nan.extxyz: no structure has an energy' distill --labels nan.extxyz $small
    sed 's/energy=[^ ]*//' good.extxyz >forces.extxyz
    refused 1 'forces.extxyz: no structure has an energy' distill --labels forces.extxyz $small
    awk '/energy=/ && n++ == 41 { sub(/energy=[^ ]*/, "energy=1e20") } { print }' good.extxyz >far.extxyz
    refused 1 'far.extxyz: structure 41: its energy' distill --labels far.extxyz $small
    head -c 3000 /dev/urandom >noise.extxyz
    refused 1 'noise.extxyz' distill --labels noise.extxyz $small
    refused 1 'good.extxyz: is a file; a run needs a folder' distill --labels good.extxyz --steps 20 --device cpu -o good.extxyz
    refused 2 'give a file' distill --labels - $small
    refused 2 'commas separate names; .* rename a file with one' distill --labels good.extxyz,three.extxyz $small
    refused 2 '\-\-system goes without --labels' distill --labels good.extxyz --system h2o $small
    refused 2 '\-\-rounds goes without --labels' distill --labels good.extxyz --rounds 2 $small
    refused 2 '\-\-hvp goes without --labels' distill --labels good.extxyz --hvp 1 $small
    refused 2 "structures '49'" distill --labels good.extxyz --structures 49 $small
    refused 2 'or --labels FILE' distill $small
    run 0 distill --preset standard --print-config
    cp out standard.json
    refused 2 'set n_rounds, min_speed, compare_ps to 0: .*; mlff distill --labels FILE --print-config' distill --labels good.extxyz --config standard.json $small
    refused 2 'with labels set n_rounds to 0: .*labels; mlff' distill model.safetensors --labels good.extxyz --config standard.json $small
    run 0 distill --labels good.extxyz --preset standard --print-config
    cp out labels.json
    is "$(value labels.json n_rounds)$(value labels.json n_structures)$(value labels.json min_speed)" 000 "settings of a run from labels"
    printf '{"labels": "good.extxyz"}' >short.json
    run 0 distill --config short.json --print-config
    is "$(value out n_rounds)$(value out n_structures)$(value out min_speed)" 000 "settings of a run from labels of a file"
    refused 2 'own settings' distill --resume --labels good.extxyz -o refused.run
    refused 2 'own settings' distill --resume --steps 7 -o refused.run
    if [ "$(id -u)" != 0 ]; then
        mkdir closed
        chmod 555 closed
        refused 1 'closed/run: cannot make this folder' distill --labels good.extxyz --steps 20 --device cpu -o closed/run
        chmod 000 three.extxyz
        refused 1 'three.extxyz: ' distill --labels three.extxyz $small
    fi
    refused 1 'good.extxyz/run: ' distill --labels good.extxyz --steps 20 --device cpu -o good.extxyz/run
}

# A verdict on water says nothing about carbon.
test_verdict_elements() {
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5' 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >water.xyz
    model --elements H,C,O
    run 1 verdict model.safetensors --test water.xyz --nve 0 --hot 0 --compare 0 -o verdict.json
    says 'the student knows C, of which no usual test structure' err
    is "$(value verdict.json elements_not_judged.0)" C "an element that was not judged"
    model --elements H,O
    run 1 verdict model.safetensors --test water.xyz --nve 0 --hot 0 --compare 0 -o verdict.json
    grep -q 'the student knows' err && fail "a warning without an element"
    grep -q '"elements_not_judged": \[\]' verdict.json || fail "elements that were judged"
    refused 1 'verdict.json: a verdict on a student, not a profile; ' report verdict.json
}

# What a verdict says of limits and lengths is what was asked for and what was done: runs are whole samples of 8 steps.
test_verdict_words() {
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-2078.5' 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >water.xyz
    local judge="verdict ethanol --test water.xyz --system ethanol --nve 0 --speed-time 0.05"
    run 1 $judge --teacher ethanol-large --hot 0.0001 --compare 0.0001 --min-speed 1000
    says 'speed +FAILED .* >= +1000 '
    grep -q 'no faster than' out && fail "a student that is faster is called no faster"
    says 'stability.hot .* 3 runs of 0.004 ps'
    says 'structure .* over 4 x 0.004 ps'
    says 'pressed +passed .* of (64|128) structures? with two atoms pressed to 0.6 of their covalent distance (is|are) wrong'
    run 1 $judge --hot 0 --pressed 64 --compare 1
    says '^not judged, since there is no --teacher to compare with: speed, error.dynamics$'
    says 'structure +NOT MEASURED +- <= +-  '
    says 'pressed +NOT MEASURED +- <= +10 +%: no teacher to measure beside'
    run 1 $judge --hot 0
    says '^not judged, since there is no --teacher to compare with: speed, pressed, error.dynamics, structure, spectrum$'
    grep -q 'NOT MEASURED' out && fail "a bar that was not asked for"
    # What cannot be decided is continued, of a small system for longer: a limit within any interval.
    run 1 verdict ethanol --test water.xyz --system ethanol --nve 0.2 --hot 0 --compare 0 --min-speed 0 --max-drift 1e-12
    says 'stability.nve +(NOT MEASURED.* over 3.2 ps of NVE|FAILED)'
    # Names of systems are cut at whole characters, at any byte of them; a teacher's name that is no UTF-8 does not make JSON none.
    cp water.xyz aääääääääääää.xyz
    cat water.xyz water.xyz >ääääääääääää.xyz
    cp "$source_folder/models/ethanol.safetensors" $'teacher\xff.safetensors'
    run 1 verdict ethanol --test water.xyz --teacher ./$'teacher\xff.safetensors' --system aääääääääääää.xyz --system ääääääääääää.xyz \
        --nve 0 --hot 0 --compare 0 --speed-time 0.05 -o verdict.json
    iconv -f UTF-8 -t UTF-8 verdict.json >/dev/null || fail "a verdict's JSON is no UTF-8"
    close_to "$(value verdict.json speed_s)" 0.05 1e-9
    says 'aäääääääääää: ' && says 'äääääää 1: '
    # A rough molecule is relaxed first, by the teacher or by the student.
    run 0 relax ethanol --system ethanol -o rest.extxyz
    awk 'NR > 2 { $2 *= 1.3; $3 *= 1.3; $4 *= 1.3 } { print $1, $2, $3, $4 }' rest.extxyz | sed '2s/.*//' >rough.xyz
    for by in "" "--teacher ethanol-large"; do
        # shellcheck disable=SC2086
        run 1 verdict ethanol --test water.xyz --system rough.xyz --nve 0 --hot 0.004 --compare 0 --pressed 0 --min-speed 0 $by
        says 'stability.hot .* 8 bonds'
    done
}

# Names that are no UTF-8: a student of such labels is a model file as others are, and the page and the verdict are UTF-8.
test_names_without_utf8() {
    model --elements H,C,O
    labelled 60 good.extxyz
    local labels=$'labels\xff.extxyz' small="--features 8 --layers 1 --device cpu" file
    mv good.extxyz "$labels"
    run 0 train "$labels" --steps 2 $small -o student.safetensors
    run 0 info student.safetensors
    run 1 distill --labels "$labels" --preset demo --steps 5 $small -o names.run
    run 1 distill --resume -o names.run
    grep -q 'labels.udcff' names.run/config.json || fail "a byte that is no UTF-8 is not escaped"
    for file in config.json made-with.json verdict.json report.html; do iconv -f UTF-8 -t UTF-8 names.run/$file >/dev/null || fail "$file is no UTF-8"; done
    run 1 verdict names.run/student.safetensors --test "$labels" --nve 0 --hot 0 --compare 0 --min-speed 0
    says 'compared with the [0-9]* structures that the student was trained on'
}

# The student of ethanol diverges where atoms of methane are pressed together: its energy is thousands of eV before pairs attract. The user did
# nothing for which to be warned.
test_verdict_pressed() {
    printf '%s\n' 3 'Properties=species:S:1:pos:R:3:forces:R:3 energy=-2078.5' 'O 0 0 0 0 0 0' 'H 0 0 0.96 0 0 0' 'H 0 0.93 -0.24 0 0 0' >water.xyz
    run 1 verdict ethanol --test water.xyz --system methane --nve 0 --hot 0 --compare 0 --teacher organic-small --speed-time 0.05
    says 'core +passed'
    says 'pressed +FAILED .* structures with two atoms pressed to 0.6 .* eV/Å off where the teacher has '
    grep -q 'besides its offsets' err && fail "a warning of structures that the verdict made"
    return 0
}
