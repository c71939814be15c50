#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Relaxation on the CPU or a GPU: mlff_distiller.relax against ASE's optimizers and TorchSim's with the same model, interleaved.

Each round relaxes the same structures by our L-BFGS and FIRE, many at once, by ASE's FIRE, BFGS and L-BFGS, one after the other, with
StudentCalculator in the same precision on the same device, and, on a GPU where TorchSim is installed, by its FIRE and L-BFGS, all at once, with
our forces taken from torch's arrays by their pointers: what differs is the loop around the forces. The model is loaded and the device
is used once before the clock starts. Quoted: medians over rounds, steps, and the energies of the minima.

Usage: bench/relax_peers.py FILE.extxyz MODEL [--device cuda] [--structures 40] [--copies-to 0] [--most-atoms 40] [--rounds 3]
           [--threads 2] [--precision float32] [--peers ase-fire,ase-lbfgs,torchsim-fire] [--peer-structures N] [-o OUT.json]
--copies-to 1000 repeats the structures up to that number for what relaxes many at once; --peer-structures gives ASE's optimizers only that many,
evenly chosen. A structure counts as "lower" or "higher" where our minimum differs from ASE's by more than 1e-4 eV: from far away, optimizers may find
different minima."""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import time

import numpy as np
from ase.io import read
from ase.optimize import BFGS, FIRE, LBFGS
from cpu_peer import processor

from mlff_distiller import Model, StudentCalculator, relax

OURS = ("lbfgs", "fire")
ASE = {"ase-fire": FIRE, "ase-bfgs": BFGS, "ase-lbfgs": LBFGS}
TORCHSIM = ("torchsim-fire", "torchsim-lbfgs")
SAME_EV = 1e-4
MAX_STEPS = 1000


def by_us(frames, a, optimizer):
    start = time.perf_counter()
    relaxed = relax(frames, a.loaded, fmax=a.fmax, optimizer=optimizer, max_steps=MAX_STEPS, batch=a.batch, device=a.device,
                    precision=a.precision, n_threads=a.threads)  # fmt: skip
    seconds = time.perf_counter() - start
    energies = [r.atoms.get_potential_energy() for r in relaxed]
    return seconds, [r.n_steps for r in relaxed], energies, sum(r.end == "converged" for r in relaxed)


def by_ase(frames, a, optimizer):
    calculator = StudentCalculator(a.loaded, device=a.device, precision=a.precision, n_threads=a.threads)
    steps, energies, n_converged = [], [], 0
    first = frames[0].copy()
    first.calc = calculator
    first.get_forces()
    start = time.perf_counter()
    for frame in frames:
        atoms = frame.copy()
        atoms.calc = calculator
        run = optimizer(atoms, logfile=None)
        n_converged += bool(run.run(fmax=a.fmax, steps=MAX_STEPS))
        steps.append(run.nsteps)
        energies.append(atoms.get_potential_energy())
    return time.perf_counter() - start, steps, energies, n_converged


def torchsim_model(a):
    """Our evaluator as a model of TorchSim's. Species and first atoms change only where it exchanges structures, with new arrays."""
    import torch
    from torch_sim.models.interface import ModelInterface

    from mlff_distiller.engine import Evaluator

    class Forces(ModelInterface):
        def __init__(self):
            super().__init__()
            self._device, self._dtype, self._compute_forces, self._compute_stress = torch.device("cuda:0"), torch.float64, True, False
            self.evaluator, self.seen, self.n_calls = Evaluator(a.loaded, a.device, a.precision), None, 0

        def forward(self, state, **_):
            if self.seen is None or self.seen[0] is not state.system_idx or self.seen[1] is not state.atomic_numbers:
                first = np.zeros(state.n_systems + 1, np.int32)
                first[1:] = torch.cumsum(torch.bincount(state.system_idx, minlength=state.n_systems), 0).cpu().numpy()
                self.seen, self.first, self.numbers = (state.system_idx, state.atomic_numbers), first, state.atomic_numbers.int().contiguous()
            self.n_calls += 1
            found = self.evaluator.compute_on_device(self.numbers, state.positions.detach().contiguous(), first_atom=self.first)
            return {"energy": found["energies"], "forces": found["forces"]}

    return Forces()


def by_torchsim(frames, a, optimizer):
    import torch
    import torch_sim as ts

    model = torchsim_model(a)
    model(ts.io.atoms_to_state(frames[:1], model.device, model.dtype))
    torch.cuda.synchronize()
    model.n_calls = 0
    start = time.perf_counter()
    # More atoms at once than there are: the choice of a batch, which probes the memory, costs nothing here.
    batcher = ts.InFlightAutoBatcher(model, memory_scales_with="n_atoms", max_memory_scaler=1.0 + sum(len(f) for f in frames))
    state = ts.optimize(frames, model, optimizer=ts.Optimizer(optimizer), convergence_fn=ts.generate_force_convergence_fn(a.fmax),
                        max_steps=MAX_STEPS, autobatcher=batcher)  # fmt: skip
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    converged = int((ts.system_wise_max_force(state) <= a.fmax).sum())
    return seconds, [model.n_calls], state.energy.cpu().tolist(), converged


def compared(ours, theirs):
    difference = np.array(ours) - np.array(theirs)
    return {"same": int((abs(difference) <= SAME_EV).sum()), "lower": int((difference < -SAME_EV).sum()), "higher": int((difference > SAME_EV).sum())}


def chosen(a):
    """Structures of at most `most_atoms`, evenly from the file, without what their calculators knew."""
    frames = [f for f in read(a.file, index=":") if len(f) <= a.most_atoms]
    picked = [frames[k] for k in np.linspace(0, len(frames) - 1, min(a.structures, len(frames))).astype(int)]
    for frame in picked:
        frame.calc = None
    return picked


def has_torchsim():
    try:
        import torch_sim  # noqa: F401
    except ImportError:
        return False
    return True


def methods(a):
    """(name, function, optimizer) of all that run."""
    found = [(name, by_us, name) for name in OURS] + [(name, by_ase, optimizer) for name, optimizer in ASE.items()]
    if a.device != "cpu" and has_torchsim():
        found += [(name, by_torchsim, name.split("-")[1]) for name in TORCHSIM]
    wanted = a.peers.split(",") if a.peers else [name for name, _, _ in found]
    return [m for m in found if m[0] in OURS or m[0] in wanted]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("model")
    parser.add_argument("--structures", type=int, default=40)
    parser.add_argument("--most-atoms", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--copies-to", type=int, default=0)
    parser.add_argument("--peers", default="")
    parser.add_argument("--peer-structures", type=int, default=0)
    parser.add_argument("--precision", default="float32", choices=("float32", "float64"))
    parser.add_argument("--fmax", type=float, default=0.05)
    parser.add_argument("-o", "--output")
    return parser.parse_args()


def device_name(a):
    if a.device == "cpu":
        return processor()
    return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "-i", "0"], stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    a = arguments()
    frames = chosen(a)
    many = [frames[k % len(frames)] for k in range(max(a.copies_to, len(frames)))]
    few = np.linspace(0, len(frames) - 1, min(a.peer_structures or len(frames), len(frames))).astype(int)
    a.loaded = Model.load(a.model)
    by_us(frames[:4], a, "lbfgs")  # the device's start
    runs = {}
    for number in range(a.rounds):
        for name, method, optimizer in methods(a):
            given = [frames[k] for k in few] if method is by_ase else many
            runs.setdefault(name, []).append((len(given), *method(given, a, optimizer)))
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    ours = runs["lbfgs"][0][3]
    rows = {}
    for name, rounds in runs.items():
        n, _, steps, energies, n_converged = rounds[0]
        seconds = statistics.median(r[1] for r in rounds)
        mean_steps = None if name in TORCHSIM else statistics.mean(steps)
        rows[name] = {"structures_per_second": n / seconds, "n_structures": n, "seconds": [r[1] for r in rounds], "mean_steps": mean_steps,
                      "n_converged": n_converged, "lbfgs_against_it": compared([ours[k] for k in few] if name in ASE else ours, energies)}  # fmt: skip
        if name in TORCHSIM:
            rows[name]["n_batched_steps"] = steps[0]
        print(f"{name:14s} {n / seconds:9.2f} structures/s  {statistics.mean(steps):7.1f} steps  {n_converged} of {n} converged  "
              f"our L-BFGS against it: {rows[name]['lbfgs_against_it']}")  # fmt: skip
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        report = {"what": "relaxation to fmax, ours in batches against ASE's optimizers and TorchSim's with the same model", "commit": commit,
                  "date": str(datetime.date.today()), "device": device_name(a), "processor": processor(), "threads": a.threads,
                  "precision": a.precision, "model": a.model.split("/")[-1], "fmax_ev_per_ang": a.fmax, "n_structures": len(many),
                  "n_distinct": len(frames), "most_atoms": max(len(f) for f in frames), "methods": rows}  # fmt: skip
        with open(a.output, "w") as f:
            json.dump(report, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
