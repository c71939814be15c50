#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weak and strong scaling of `lmp_mlff` and of `mlff md` from one GPU to two: silicon at 300 K, float32, untrained PaiNN, one rank a GPU.
Runs follow one another in each round; ratios are taken within a round and their median over the rounds is quoted. Times are of steps
alone: the "Loop time" of the second run of a LAMMPS input, and for `mlff md` a long run's time less a short one's.

strong: ms on one GPU over ms on two, the same atoms. weak: ms on one GPU over ms of twice the atoms on two.

Usage: bench/lammps_scaling.py --bin build/bin [--cells 23] [--features 128] [--layers 3] [--rounds 5] [--short 40]
    [--steps 120] [-o OUT.json]
`mpirun` is on PATH."""
import argparse, datetime, json, os, re, statistics, tempfile

from lammps_cost import lammps_input, last_loop, new_model, run

GOALS = {"lmp_mlff_strong": 1.6, "lmp_mlff_weak": 0.9, "md_strong": 1.6, "md_weak": 0.9}


def lmp_mlff(a, ranks, boxes):
    with open("in.scaling", "w") as file:
        file.write(lammps_input("mlff", a.steps, a, boxes, "neigh_modify every 1 delay 0\n"))
    text, _ = run(["mpirun", "--bind-to", "none", "-np", str(ranks), os.path.join(a.bin, "lmp_mlff"), "-in", "in.scaling"], os.environ)
    route = re.search(r"by route (\w+)", text)
    return {**last_loop(text, a.steps), "route": route and route[1]}


def md(a, device, boxes):
    def seconds(steps):
        atoms = str(boxes * 8 * a.cells**3)
        command = [os.path.join(a.bin, "mlff"), "md", "model.safetensors", "--system", "silicon", "--n-atoms", atoms, "--device", device]
        return json.loads(run([*command, "--n-steps", str(steps), "--json"], os.environ)[0])["summary"]["total_time_s"]

    return {"ms": 1e3 * (seconds(a.short + a.steps) - seconds(a.short)) / a.steps}


def ratios(rounds):
    def of(above, below):
        found = [r[above]["ms"] / r[below]["ms"] for r in rounds]
        return {"median": statistics.median(found), "smallest": min(found), "largest": max(found)}

    return {f"{route}_{kind}": of(f"{route} 1", f"{route} {on}") for route in ("lmp_mlff", "md") for kind, on in (("strong", "2"), ("weak", "2, twice the atoms"))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    for name, default in (("cells", 23), ("features", 128), ("layers", 3), ("rounds", 5), ("short", 40), ("steps", 120)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    a.device = "cuda"
    a.bin = os.path.abspath(a.bin)
    output = a.output and os.path.abspath(a.output)
    os.environ |= {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        new_model(a, os.environ)
        for _ in range(a.rounds):
            found = {}
            for n, boxes, name in ((1, 1, "1"), (2, 1, "2"), (2, 2, "2, twice the atoms")):
                found[f"lmp_mlff {name}"] = lmp_mlff(a, n, boxes)
                found[f"md {name}"] = md(a, ",".join(["cuda:0", "1"][:n]), boxes)
            rounds.append(found)
            print(json.dumps(found), flush=True)
        os.chdir("/")
    result = {"what": __doc__.split("\n\n")[0], "date": datetime.date.today().isoformat(), "atoms": 8 * a.cells**3, "features": a.features, "layers": a.layers}
    result |= {"steps": a.steps, "goals": GOALS, "ratios": ratios(rounds), "rounds": rounds}
    for name, ratio in result["ratios"].items():
        print(f"{name:18} {ratio['median']:.2f} ({ratio['smallest']:.2f} to {ratio['largest']:.2f}), goal {GOALS[name]}")
    if output:
        with open(output, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
