#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Orb on the CPU, ours against orb-models, interleaved: in each round, for each model and structure, `mlff eval` and then the package, both
with --threads threads, energy and forces of the same frames, ours in each of --precisions, random weights of the published sizes,
the package's first call left out. The package runs eager, float32, with graphs made beforehand and not counted; ours includes the neighbor
search. Quoted are the median and the smallest
of the times: ours of whole runs, the package's of single calls.

Usage: bench/orb_peer.py --mlff build/bin/mlff --python PYTHON [--models orb-v2,…] [--rounds 3] [--frames 6] [--threads 2]
[--precisions float32,tf32,bf16] [-o OUT.json]
PYTHON has orb-models, which runs this file with --peer. Structures: benzene (12 atoms) and silicon (64 atoms, displaced by 0.1 Å)."""
import argparse, datetime, json, os, statistics, subprocess, sys, tempfile, time

from cpu_peer import lines, processor

MODELS = ["orb-v2", "orb-v3-direct", "orb-v3-conservative"]
CASES = ["benzene", "si64"]
GOAL = 4


def structures(case, n_frames):
    import ase.build, numpy as np

    made = ase.build.molecule("C6H6") if case == "benzene" else ase.build.bulk("Si", "diamond", 5.43, cubic=True) * (2, 2, 2)
    random, frames = np.random.default_rng(0), []
    for _ in range(n_frames):
        frames.append(made.copy())
        frames[-1].positions += random.normal(0, 0.03 if case == "benzene" else 0.1, made.positions.shape)
    return frames


def peer(a):
    """One line: the time of each frame but the first, ms, and the number of edges of the last."""
    import torch
    from orb_models.forcefield import pretrained
    from orb_models.forcefield.atomic_system import SystemConfig, ase_atoms_to_atom_graphs

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    config = SystemConfig(radius=6.0, max_num_neighbors=20)
    model = getattr(pretrained, a.peer.replace("-", "_") + "_architecture")(device="cpu", system_config=config).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    times = []
    for atoms in structures(a.case, a.frames + 1):
        graph = ase_atoms_to_atom_graphs(atoms, model.system_config, device=torch.device("cpu"))
        begun = time.perf_counter()
        if a.peer.endswith("conservative"):
            model.predict(graph)
        else:
            with torch.no_grad():
                model.predict(graph)
        times.append(1e3 * (time.perf_counter() - begun))
    from importlib.metadata import version

    print(json.dumps({"times_ms": times[1:], "edges": int(graph.n_edge.sum()), "torch": torch.__version__, "orb-models": version("orb-models")}))


def ours(a, folder, model, case, precision):
    """Time of a frame, the mean over a run of `mlff eval`, its first call included."""
    path, out = os.path.join(folder, model + ".safetensors"), os.path.join(folder, "out.json")
    if not os.path.exists(path):
        subprocess.run([a.mlff, "new", "--arch", model, "-o", path], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([a.mlff, "eval", path, os.path.join(folder, case + ".xyz"), "--device", "cpu", "--threads", str(a.threads), "--precision", precision,
                    "--json", out],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    summary = json.load(open(out))["summary"]
    return 1e3 * summary["compute_time_s"] / summary["n_frames"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlff", default="build/bin/mlff")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", default="float32", help="of mlff; orb-models always in float32")
    parser.add_argument("-o", "--output")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    a = arguments()
    if a.peer:
        return peer(a)
    if a.write:
        import ase.io as ase_io

        return [ase_io.write(os.path.join(a.write, case + ".xyz"), structures(case, 2 * a.frames), format="extxyz") for case in CASES]
    models, mine, theirs, about = a.models.split(","), {}, {}, {}
    this = [a.python, os.path.abspath(__file__), "--frames", str(a.frames), "--threads", str(a.threads)]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(this + ["--write", folder], check=True)
        for number in range(a.rounds):
            for model, case in ((m, c) for m in models for c in CASES):
                for precision in a.precisions.split(","):
                    mine.setdefault((model, case, precision), []).append(ours(a, folder, model, case, precision))
                about[case] = lines(this + ["--peer", model, "--case", case])[0]
                theirs.setdefault((model, case), []).extend(about[case].pop("times_ms"))
            print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    rows = []
    for (model, case, precision), x in mine.items():
        y = theirs[model, case]
        ratios = [statistics.median(y) / statistics.median(x), min(y) / min(x)]
        rows.append({"model": model, "case": case, "precision": precision, "edges": about[case]["edges"], "ours_ms": x, "peer_ms": y, "ratio": ratios[0],
                     "ratio_of_smallest": ratios[1], "goal": GOAL})  # fmt: skip
        print(f"{model:20s} {case:8s} {precision:8s} ours {statistics.median(x):8.2f} (smallest {min(x):8.2f}) ms   orb-models {statistics.median(y):8.1f} "
              f"({min(y):8.1f}) ms   ratio {ratios[0]:5.1f} ({ratios[1]:5.1f}), goal {GOAL}")  # fmt: skip
    if a.output:
        with open(a.output, "w") as f:
            json.dump({"what": "Orb on the CPU, energy + forces, 20 neighbors, random weights; ours with neighbor search, orb-models "
                               "eager in float32 with its graph given", "date": str(datetime.date.today()), "processor": processor(), "threads": a.threads,
                       "command": " ".join(["bench/orb_peer.py", f"--rounds {a.rounds} --frames {a.frames} --threads {a.threads} --precisions {a.precisions}"]),
                       "packages": {k: about[CASES[0]][k] for k in ("torch", "orb-models")}, "rows": rows}, f, indent=1)  # fmt: skip
            f.write("\n")


if __name__ == "__main__":
    main()
