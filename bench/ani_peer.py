#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ANI-2x (8 members) on the CPU, ours against TorchANI, interleaved: each round runs our bench and then the peer, each with 1 and
2 threads, on the same structures, positions moved before each call, energy and forces, neighbour list included in both. The
peer runs in both forms it offers on a CPU: its plain ensemble, and the one it makes for inference (to_infer_model: the members'
layers as batched products). Quoted is the faster of all the peer's against ours, each a median over rounds.

Usage: bench/ani_peer.py --bench build/bin/bench_ani [--info ani-2x_8x.info --model ani2x.safetensors] [--rounds 3]
         [--python PYTHON] [-o OUT.json]
PYTHON has torch and torchani. With --info (NeuroChem's files) and --model (mlff import of the same) both have the same weights and
energies are compared; without, both have random weights of the same shape."""
import argparse, datetime, json, os, statistics, subprocess, sys, tempfile, time

from cpu_peer import lines, processor

CASES = ["benzene", "hcno64", "water64"]
GOAL_RATIO = 10
GOALS_MS = {"benzene": 0.5, "hcno64": 2.5, "water64": 2.5}


def read_xyz(text):
    """Symbols, positions and lattice (or None) of one frame."""
    lines = text.splitlines()
    n = int(lines[0])
    lattice = None
    if 'Lattice="' in lines[1]:
        numbers = [float(x) for x in lines[1].split('Lattice="')[1].split('"')[0].split()]
        lattice = [numbers[0:3], numbers[3:6], numbers[6:9]]
    rows = [line.split() for line in lines[2 : 2 + n]]
    return [row[0] for row in rows], [[float(x) for x in row[1:4]] for row in rows], lattice


def peer(arguments):
    """One JSON line a form and case: {"case", "form", "threads", "median_ms", "energy_ev"}."""
    os.environ["TORCHANI_NO_WARN_EXTENSIONS"] = "1"
    import torch, torchani

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    numbers = {"H": 1, "C": 6, "N": 7, "O": 8}
    for form in ("ensemble", "infer"):
        model = make_model(torchani, arguments.info)
        model.requires_grad_(False)
        model = model.to("cpu", torch.float32)
        if form == "infer":
            model = model.to_infer_model(use_mnp=False)
        for case in CASES:
            symbols, positions, lattice = read_xyz(open(os.path.join(arguments.structures, case + ".xyz")).read())
            species = torch.tensor([[numbers[s] for s in symbols]])
            base = torch.tensor([positions], dtype=torch.float64)
            cell = torch.tensor(lattice, dtype=torch.float32) if lattice else None
            pbc = torch.tensor([True] * 3) if lattice else None

            def call(x):
                x = x.to(torch.float32).requires_grad_(True)
                energy = model((species, x), cell=cell, pbc=pbc).energies
                return energy, torch.autograd.grad(energy.sum(), x)[0]

            energy = call(base)[0].item() * torchani.units.HARTREE_TO_EV
            times, begun = [], time.perf_counter()
            for k in range(-5, 200):
                x = base + 0.02 * (torch.rand(base.shape, dtype=torch.float64) - 0.5)
                start = time.perf_counter()
                call(x)
                if k >= 0:
                    times.append(1e3 * (time.perf_counter() - start))
                if len(times) >= 20 and time.perf_counter() - begun > arguments.seconds:
                    break
            print(json.dumps({"case": case, "form": form, "threads": arguments.threads, "calls": len(times),
                              "median_ms": statistics.median(times), "energy_ev": energy, "torch": torch.__version__,
                              "torchani": torchani.__version__}), flush=True)


def make_model(torchani, info):
    if info:
        from pathlib import Path
        from torchani import neurochem

        neurochem.neurochem_dir = lambda: Path(info).resolve().parent  # where the .info file's names are looked for
        return neurochem.load_model_from_info_file(info)
    from torchani.arch import Assembler
    from torchani.models import SYMBOLS_2X

    a = Assembler(periodic_table_index=True)
    a.set_symbols(SYMBOLS_2X)
    a.set_global_cutoff_fn("cosine")
    a.set_aev_computer(radial="ani2x", angular="ani2x", strategy="pyaev")
    a.set_atomic_networks(ctor="ani2x")
    a.set_neighborlist("all_pairs")
    a.set_gsaes_as_self_energies("wb97x-631gd")
    return a.assemble(8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", help="our bench_ani")
    parser.add_argument("--info")
    parser.add_argument("--model")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="at most, of one case of the peer")
    parser.add_argument("-o", "--output")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--structures", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        return peer(a)
    if not a.bench or bool(a.info) != bool(a.model):
        parser.error("--bench is needed; --info and --model go together")
    ours, theirs, versions, energies = {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            text = subprocess.run([a.bench, "--xyz", case], stdout=subprocess.PIPE, text=True, check=True).stdout
            with open(os.path.join(folder, case + ".xyz"), "w") as f:
                f.write(text)
        for number in range(a.rounds):
            for threads in (1, 2):
                command = [a.bench, "--threads", str(threads)] + (["--model", a.model] if a.model else []) + CASES
                for r in lines(command):
                    ours.setdefault((r["case"], threads), []).append(r["median_ms"])
                    energies["ours", r["case"]] = r["energy_ev"]
                command = [a.python, os.path.abspath(__file__), "--peer", "--threads", str(threads), "--structures", folder,
                           "--seconds", str(a.seconds)] + (["--info", a.info] if a.info else [])
                for r in lines(command):
                    theirs.setdefault((r["case"], r["form"], threads), []).append(r["median_ms"])
                    energies[r["form"], r["case"]] = r["energy_ev"]
                    versions = {"torch": r["torch"], "torchani": r["torchani"]}
            print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    rows = []
    for case in CASES:
        mine = {t: statistics.median(ours[case, t]) for t in (1, 2)}
        forms = {f"{form}, {t} thread{'s' if t > 1 else ''}": statistics.median(theirs[case, form, t])
                 for form in ("ensemble", "infer") for t in (1, 2)}
        best = min(forms, key=forms.get)
        row = {"case": case, "ours_ms": mine, "peer_ms": forms, "peer_best": best, "ratio": forms[best] / mine[2],
               "goal_ratio": GOAL_RATIO, "goal_ms": GOALS_MS[case], "ours_rounds": [ours[case, t] for t in (1, 2)],
               "peer_rounds": {f"{form} {t}": theirs[case, form, t] for form in ("ensemble", "infer") for t in (1, 2)}}
        if a.info:
            row["energy_difference_ev"] = {form: energies[form, case] - energies["ours", case] for form in ("ensemble", "infer")}
        rows.append(row)
        print(f"{case:8s} ours {mine[1]:7.3f} / {mine[2]:7.3f} ms (1 / 2 threads; goal {GOALS_MS[case]})   peer "
              + ", ".join(f"{name} {ms:.2f}" for name, ms in forms.items()) + f"   ratio {row['ratio']:.1f} (goal {GOAL_RATIO})")
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        with open(a.output, "w") as f:
            json.dump({"what": "ANI-2x, 8 members, energy + forces, neighbour list included in both", "date": str(datetime.date.today()),
                       "weights": "ANI-2x" if a.info else "random, of ANI-2x's shape", "processor": processor(), "cores": os.cpu_count(),
                       "commit": commit, "peer": versions, "command": f"bench/ani_peer.py --rounds {a.rounds}", "cases": rows}, f, indent=1)


if __name__ == "__main__":
    main()
