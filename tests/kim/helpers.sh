# SPDX-License-Identifier: MIT
# helpers.sh: for the tests with LAMMPS (tests/kim, tests/lammps): a work folder, failures, comparison of numbers. $bin, $mlff: the build's
# programs.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mlff=$bin/mlff
export HOME=$work OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset MLFF_MODEL_PATH

fail() {
    echo "FAILED: $*" >&2
    for file in out err log.lammps; do
        [ -s $file ] && { echo "--- $file" >&2; tail -c 2000 $file >&2; }
    done
    exit 1
}

needs() { # PROGRAM…
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "skipped: no $program on PATH; install the Debian packages lammps, openmpi-bin and python3"; exit 77; }
    done
}

run() { # STATUS ARGUMENTS…
    local expected=$1
    shift
    "$mlff" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$expected" ] || fail "exit status $status, expected $expected: mlff $*"
}

is_close() { # A B RELATIVE
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; exit !(d <= t * m) }' || fail "$1 and $2 differ"
}

# Forces against numerical derivatives through LAMMPS: system.data, four atoms along three axes. is_derivative RANKS MODEL ARGUMENTS…
is_derivative() {
    local ranks=$1 model=$2
    shift 2
    rm -f energies.txt
    python3 "$here/../kim/systems.py" displacements 4 || fail "systems.py displacements"
    lammps "$ranks" ../kim/derivatives.in -var forces "$here/forces.in" -var model "$model" "$@"
    # 1e-6 of the largest force: 1.4e-7 measured, of the second order in steps of 1e-4 Å.
    python3 "$here/../kim/systems.py" derivatives 1e-6 >differences || { cat differences; fail "forces of $model on $ranks ranks are not the derivative"; }
    echo "$model, $ranks ranks: $(cat differences)"
}

# Files of a run of 40 steps after the first with MLFF_PROFILE=run.json, and the page of all ranks. has_profile RANKS EXCHANGES(yes|no)
has_profile() {
    python3 - "$1" "$2" <<'END' || fail "profile of $1 ranks"
import json, sys
ranks, exchanges = int(sys.argv[1]), sys.argv[2] == "yes"
owned = 0
for rank in range(ranks):
    run = json.load(open(f"run.rank{rank}.json" if rank else "run.json"))
    times = {(stage["name"], stage["phase"]): stage["mean_ms"] for stage in run["stages"]}
    found = all(times[key] > 0 for key in (("neighbors", "forward"), ("gather", ""), ("message", "backward")))
    exchanged = times.get(("exchange", ""), 0) > 0
    said = run["workload"].get("rank") == (f"{rank} of {ranks}" if ranks > 1 else None)
    owned += run["n_atoms"]
    if not (run["n_steps"] == 40 and found and exchanged == exchanges and said and run["counters"]["n_rebuilds"] >= 0):
        sys.exit(f"rank {rank}: {run['n_steps']} steps, {times}, {run['workload']}, {run['counters']}")
    if ("integrate", "") in times:
        sys.exit("the simulator's time is called an integrator's")
sys.exit(owned != 64 and f"{owned} atoms")
END
    run 0 report run.json -o run.html
    if [ "$1" -gt 1 ]; then
        grep -q '<h2>Ranks</h2>' run.html || fail "no table of ranks"
        run 0 report run.json --text
        [ "$(grep -ciE 'load imbalance' out)" = 1 ] || fail "load imbalance is not judged once"
        grep -q 'not judged' out || fail "40 steps are too few for a judgement"
    fi
}

# A run of events.in against mlff eval of each of its steps, with the lammps function of the test. compare_events RANKS FILE PAIR MODEL
compare_events() {
    rm -f events.dump
    lammps "$1" ../lammps/events.in -var pair "$3" -var model "$4"
    python3 "$here/../kim/systems.py" structures || fail "systems.py structures"
    run 0 eval "$2" events.extxyz --precision float64 --device cpu -o expected.extxyz
    # Steps of some 60 atoms and 5 eV/Å, both in float64.
    python3 "$here/../kim/systems.py" events 1e-11 >out || { cat out; fail "events of $3 on $1 ranks differ from mlff eval"; }
    echo "$3, $1 ranks: $(cat out)"
}
