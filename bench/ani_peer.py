#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ANI-2x (8 members) on the CPU, ours against TorchANI, in short turns: for each structure our bench and then the peer, each with 1
and 2 threads, positions moved before each call, energy and forces, neighbor list included in both. The peer runs in both forms
it offers on a CPU: its plain ensemble, and the one it makes for inference (to_infer_model: the members' layers as batched
products). Quoted is the fastest of all the peer's against ours, each a median over rounds. A turn in which other programs used more
than a tenth of the machine is taken again while --patience lasts, and is not quoted beside quiet ones; their share is in the file.

Usage: bench/ani_peer.py --bench build/bin/bench_ani [--info ani-2x_8x.info --model ani2x.safetensors] [--rounds 3]
         [--python PYTHON] [--patience SECONDS] [-o OUT.json]
PYTHON has torch and torchani. With --info (NeuroChem's files) and --model (mlff import of the same) both have the same weights and
energies are compared; without, both have random weights of the same shape."""
import argparse, datetime, json, os, resource, statistics, subprocess, sys, tempfile, time

from cpu_peer import lines, processor

CASES = ["benzene", "hcno64", "water64"]
FORMS = ["ensemble", "infer"]
GOAL_RATIO = 10
QUIET = 0.1  # of the machine: what other programs may have used in a turn
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
    """For each line {"case", "form", "threads"} one line with the time and the energy."""
    os.environ["TORCHANI_NO_WARN_EXTENSIONS"] = "1"
    import torch, torchani

    torch.manual_seed(0)
    numbers = {"H": 1, "C": 6, "N": 7, "O": 8}
    models = {}
    for form in FORMS:
        model = make_model(torchani, arguments.info)
        model.requires_grad_(False)
        model = model.to("cpu", torch.float32)
        models[form] = model.to_infer_model(use_mnp=False) if form == "infer" else model
    print(json.dumps({"torch": torch.__version__, "torchani": torchani.__version__}), flush=True)
    for line in sys.stdin:
        turn = json.loads(line)
        torch.set_num_threads(turn["threads"])
        symbols, positions, lattice = read_xyz(open(os.path.join(arguments.structures, turn["case"] + ".xyz")).read())
        species = torch.tensor([[numbers[s] for s in symbols]])
        base = torch.tensor([positions], dtype=torch.float64)
        cell = torch.tensor(lattice, dtype=torch.float32) if lattice else None
        pbc = torch.tensor([True] * 3) if lattice else None

        def call(x):
            x = x.to(torch.float32).requires_grad_(True)
            energy = models[turn["form"]]((species, x), cell=cell, pbc=pbc).energies
            return energy, torch.autograd.grad(energy.sum(), x)[0]

        energy = call(base)[0].item() * torchani.units.HARTREE_TO_EV
        times, begun = [], time.perf_counter()
        while len(times) < 20 or len(times) < 200 and time.perf_counter() - begun < arguments.seconds:
            x = base + 0.02 * (torch.rand(base.shape, dtype=torch.float64) - 0.5)
            start = time.perf_counter()
            call(x)
            times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps({"calls": len(times), "median_ms": statistics.median(times), "energy_ev": energy}), flush=True)


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


class Turns:
    """Takes turns and knows what other programs used meanwhile."""

    def __init__(self, patience, process):
        self.until, self.process = time.monotonic() + patience, process

    def used(self):
        """Seconds of processor time: of all programs, and of this one and those it starts."""
        tick = os.sysconf("SC_CLK_TCK")
        fields = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        peer = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        mine = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return (sum(fields) - fields[3] - fields[4]) / tick, mine + (int(peer[11]) + int(peer[12])) / tick

    def others(self, work):
        """What `work` returns, and the share of the machine that others used meanwhile."""
        (all_before, mine_before), start = self.used(), time.monotonic()
        result = work()
        (all_after, mine_after), seconds = self.used(), time.monotonic() - start
        return result, max(0.0, (all_after - all_before - mine_after + mine_before) / (seconds * os.cpu_count()))

    def take(self, work):
        """The quietest result of `work`: the first that is quiet, else the best there is when patience is out."""
        kept = None
        while True:
            while self.others(lambda: time.sleep(0.3))[1] > QUIET and time.monotonic() < self.until:
                time.sleep(0.7)
            result, share = self.others(work)
            if kept is None or share < kept[1]:
                kept = (result, share)
            if kept[1] <= QUIET or time.monotonic() >= self.until:
                return dict(kept[0], others=round(kept[1], 3))


def quoted(rows):
    """Median time of the quiet turns, or of all where none was."""
    quiet = [r["median_ms"] for r in rows if r["others"] <= QUIET]
    return statistics.median(quiet or [r["median_ms"] for r in rows])


def measure(a, folder):
    """Rows of ours by (case, threads), rows of the peer by (case, form, threads), the peer's versions."""
    command = [a.python, os.path.abspath(__file__), "--peer", "--structures", folder, "--seconds", str(a.seconds)]
    command += ["--info", a.info] if a.info else []
    ours, theirs = {}, {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        versions = json.loads(process.stdout.readline())
        turns = Turns(a.patience, process)

        def ask(**turn):
            process.stdin.write(json.dumps(turn) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        for number in range(a.rounds):
            for case in CASES:
                for threads in (1, 2):
                    bench = [a.bench, "--threads", str(threads)] + (["--model", a.model] if a.model else []) + [case]
                    ours.setdefault((case, threads), []).append(turns.take(lambda: lines(bench)[0]))
                    for form in FORMS:
                        row = turns.take(lambda: ask(case=case, form=form, threads=threads))
                        theirs.setdefault((case, form, threads), []).append(row)
            print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
        process.stdin.close()
    return ours, theirs, versions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", help="our bench_ani")
    parser.add_argument("--info")
    parser.add_argument("--model")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="at most, of one turn of the peer (but 20 calls)")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that turns are taken again for others' load")
    parser.add_argument("-o", "--output")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--structures", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        return peer(a)
    if not a.bench or bool(a.info) != bool(a.model):
        parser.error("--bench is needed; --info and --model go together")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            text = subprocess.run([a.bench, "--xyz", case], stdout=subprocess.PIPE, text=True, check=True).stdout
            with open(os.path.join(folder, case + ".xyz"), "w") as f:
                f.write(text)
        ours, theirs, versions = measure(a, folder)
    rows = []
    for case in CASES:
        mine = {t: quoted(ours[case, t]) for t in (1, 2)}
        forms = {f"{form}, {t} thread{'s' if t > 1 else ''}": quoted(theirs[case, form, t])
                 for form in FORMS for t in (1, 2)}
        best = min(forms, key=forms.get)
        row = {"case": case, "ours_ms": mine, "peer_ms": forms, "peer_best": best, "ratio": forms[best] / mine[2],
               "goal_ratio": GOAL_RATIO, "goal_ms": GOALS_MS[case],
               "rounds_ms_and_others_share": {name: [[r["median_ms"], r["others"]] for r in found] for name, found in
                                              [(f"ours {t}", ours[case, t]) for t in (1, 2)]
                                              + [(f"{form} {t}", theirs[case, form, t]) for form in FORMS for t in (1, 2)]}}
        if a.info:
            row["energy_difference_ev"] = {form: theirs[case, form, 1][0]["energy_ev"] - ours[case, 1][0]["energy_ev"] for form in FORMS}
        rows.append(row)
        print(f"{case:8s} ours {mine[1]:7.3f} / {mine[2]:7.3f} ms (1 / 2 threads; goal {GOALS_MS[case]})   peer "
              + ", ".join(f"{name} {ms:.2f}" for name, ms in forms.items()) + f"   ratio {row['ratio']:.1f} (goal {GOAL_RATIO})")
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        with open(a.output, "w") as f:
            json.dump({"what": "ANI-2x, 8 members, energy + forces, neighbor list included in both", "date": str(datetime.date.today()),
                       "weights": "ANI-2x" if a.info else "random, of ANI-2x's shape", "processor": processor(), "cores": os.cpu_count(),
                       "commit": commit, "peer": versions, "command": f"bench/ani_peer.py --rounds {a.rounds}", "cases": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
