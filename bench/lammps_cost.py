#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a step of MD costs through LAMMPS: `mlff md` on one thread or GPU, `pair_style kim` and `lmp_mlff` on 1, 2, … ranks of one thread,
silicon at 300 K, float32, untrained weights, lists with a skin of 0.5 Å. All routes run one after the other in each round, so that other load on
the machine falls on all; ratios are taken within a round, and their median over the rounds is quoted. Times are of steps alone: LAMMPS's
"Loop time" of the second run of an input, and for `mlff md` a long run's time less a short one's. Processor time, which other load changes less,
is a long run's less a short one's, without waits inside MPI only on one rank.

Usage: bench/lammps_cost.py --bin build/bin [--cells 8] [--rounds 5] [--steps 10] [--ranks 1,2] [--device cpu]
    [--features 64] [--layers 3] [--short 2] [-o OUT.json]
`lmp` (with the KIM package) and `mpirun` are on PATH."""
import argparse, datetime, json, os, re, resource, statistics, subprocess, tempfile

from cpu_peer import processor

GOALS = {"kim_1_over_md": 1.1, "kim_1_over_2": 1.7, "mlff_1_over_2": 1.7}


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command, env):
    before = processor_seconds()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout, processor_seconds() - before


def last_loop(text, steps):
    """Of the last run of LAMMPS's output: ms of a step, and LAMMPS's parts of them."""
    text = text[text.rindex("Loop time of") :]
    parts = {name: re.search(name + r"\s*\|[^|]*\|\s*([\d.e-]+)", text) for name in ("Pair", "Neigh", "Comm", "Modify", "Other")}
    ms = 1e3 / steps
    return {"ms": ms * float(text.split()[3]), "ms_of": {name: ms * float(m[1]) for name, m in parts.items() if m}}


def lammps_input(route, steps, a, boxes=1, lists=""):
    """A run of a.short steps, and one of `steps`, 0 for none, of `boxes` cubes of a.cells cells side by side along x.
    lists: lines on LAMMPS's neighbor lists beyond its defaults."""
    model = ("units metal", f"pair_style mlff precision float32 device {a.device} threads 1\npair_coeff * * model.safetensors Si")
    if route == "kim":
        model = ("kim init Cost_PaiNN metal", "kim interactions Si")
    return f"""{model[0]}
atom_style atomic
lattice diamond 5.431
region box block 0 {boxes * a.cells} 0 {a.cells} 0 {a.cells}
create_box 1 box
create_atoms 1 box
mass 1 28.085
displace_atoms all random 0.02 0.02 0.02 4711
{model[1]}
neighbor 0.5 bin
{lists}velocity all create 300 4711
fix move all nve
timestep 0.0005
thermo 1000
run {a.short}
""" + (f"run {steps}\n" if steps else "")


def new_model(a, env):
    sizes = ["--features", str(a.features), "--layers", str(a.layers), "--rbf", "20", "--cutoff", "5.0", "--elements", "Si", "--seed", "3"]
    run([os.path.join(a.bin, "mlff"), "new", "--arch", "painn", *sizes, "-o", "model.safetensors"], env)


def lammps(a, route, ranks, env):
    """ms of a step, and of processor time of a step over all ranks; ghosts of a rank."""
    used = {}
    program = [os.path.join(a.bin, "lmp_mlff")] if route == "mlff" else ["lmp"]
    for steps in (0, a.steps):
        with open("in.cost", "w") as file:
            file.write(lammps_input(route, steps, a))
        launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
        text, used[steps] = run([*launch, *program, "-in", "in.cost"], env)
    ghosts = float(re.findall(r"Nghost:\s+(\S+) ave", text)[-1])
    return {**last_loop(text, a.steps), "processor_ms": 1e3 / a.steps * (used[a.steps] - used[0]), "ghosts": ghosts}


def md(a, env):
    times, used = {}, {}
    for steps in (a.short, a.short + a.steps):
        command = [os.path.join(a.bin, "mlff"), "md", "model.safetensors", "--system", "silicon", "--n-atoms", str(8 * a.cells**3), "--device", a.device]
        text, used[steps] = run([*command, "--threads", "1", "--n-steps", str(steps), "--json"], env)
        times[steps] = json.loads(text)["summary"]["total_time_s"]
    ms, long = 1e3 / a.steps, a.short + a.steps
    return {"ms": ms * (times[long] - times[a.short]), "processor_ms": ms * (used[long] - used[a.short])}


def prepare(a):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MLFF_DEVICE": a.device, "MLFF_PRECISION": "float32", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "KIM_API_MODEL_DRIVERS_DIR": os.path.abspath("drivers"), "KIM_API_PORTABLE_MODELS_DIR": os.path.abspath("models")}
    new_model(a, env)
    run([os.path.join(a.bin, "mlff"), "kim", "install", "model.safetensors", "--name", "Cost_PaiNN"], env)
    return env


def summary(rounds):
    def ratio(above, below, key):
        found = [r[above][key] / r[below][key] for r in rounds]
        return {"median": statistics.median(found), "smallest": min(found), "largest": max(found)}

    found = {f"{route}_1_over_md": ratio(f"{route}-1", "md", "ms") for route in ("kim", "mlff")}
    found |= {f"{route}_1_over_md_processor": ratio(f"{route}-1", "md", "processor_ms") for route in ("kim", "mlff")}
    for name in rounds[0]:
        route, _, ranks = name.partition("-")
        if ranks not in ("", "1"):
            found[f"{route}_1_over_{ranks}"] = ratio(f"{route}-1", name, "ms")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    for name, default in (("cells", 8), ("rounds", 5), ("steps", 10), ("features", 64), ("layers", 3), ("short", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    a.bin = os.path.abspath(a.bin)
    output = a.output and os.path.abspath(a.output)
    ranks = [int(n) for n in a.ranks.split(",")]
    rounds, loads = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        env = prepare(a)
        for _ in range(a.rounds):
            loads.append(os.getloadavg()[0])
            rounds.append({"md": md(a, env), **{f"{route}-{n}": lammps(a, route, n, env) for n in ranks for route in ("kim", "mlff")}})
            print(json.dumps(rounds[-1]), flush=True)
        os.chdir("/")
    result = {"date": datetime.date.today().isoformat(), "processor": processor(), "cores": os.cpu_count(), "loads": loads, "atoms": 8 * a.cells**3}
    result |= {"device": a.device, "features": a.features, "layers": a.layers, "steps": a.steps, "goals": GOALS, "ratios": summary(rounds), "rounds": rounds}
    for name, ratio in result["ratios"].items():
        print(f"{name:26} {ratio['median']:.2f} ({ratio['smallest']:.2f} to {ratio['largest']:.2f})" + (f", goal {GOALS[name]}" if name in GOALS else ""))
    if output:
        with open(output, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
