#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Relaxation on the CPU: mlff_distiller.relax against ASE's optimizers with the same calculator, interleaved.

Each round relaxes the same structures by our L-BFGS and FIRE, many at once, and by ASE's FIRE, BFGS and L-BFGS, one after the other,
with StudentCalculator in the same precision on the same threads. Quoted: medians over rounds, steps, and the energies of the minima.
TorchSim is not among them.

Usage: bench/relax_peers.py FILE.extxyz MODEL [--structures 40] [--most-atoms 40] [--rounds 3] [--threads 2] [--precision float32]
           [-o OUT.json]
A structure counts as "lower" or "higher" where our minimum differs from ASE's by more than 1e-4 eV: from far away, optimizers may find
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

from mlff_distiller import StudentCalculator, relax

OURS = ("lbfgs", "fire")
ASE = {"ase-fire": FIRE, "ase-bfgs": BFGS, "ase-lbfgs": LBFGS}
SAME_EV = 1e-4
MAX_STEPS = 1000


def by_us(frames, a, optimizer):
    start = time.perf_counter()
    relaxed = relax(frames, a.model, fmax=a.fmax, optimizer=optimizer, max_steps=MAX_STEPS, device="cpu", precision=a.precision, n_threads=a.threads)
    seconds = time.perf_counter() - start
    energies = [r.atoms.get_potential_energy() for r in relaxed]
    return seconds, [r.n_steps for r in relaxed], energies, sum(r.end == "converged" for r in relaxed)


def by_ase(frames, a, optimizer):
    calculator = StudentCalculator(a.model, device="cpu", precision=a.precision, n_threads=a.threads)
    steps, energies, n_converged = [], [], 0
    start = time.perf_counter()
    for frame in frames:
        atoms = frame.copy()
        atoms.calc = calculator
        run = optimizer(atoms, logfile=None)
        n_converged += bool(run.run(fmax=a.fmax, steps=MAX_STEPS))
        steps.append(run.nsteps)
        energies.append(atoms.get_potential_energy())
    return time.perf_counter() - start, steps, energies, n_converged


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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("model")
    parser.add_argument("--structures", type=int, default=40)
    parser.add_argument("--most-atoms", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32", choices=("float32", "float64"))
    parser.add_argument("--fmax", type=float, default=0.05)
    parser.add_argument("-o", "--output")
    return parser.parse_args()


def main():
    a = arguments()
    frames = chosen(a)
    runs = {}
    for number in range(a.rounds):
        for name in OURS:
            runs.setdefault(name, []).append(by_us(frames, a, name))
        for name, optimizer in ASE.items():
            runs.setdefault(name, []).append(by_ase(frames, a, optimizer))
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    rows = {}
    for name, rounds in runs.items():
        _, steps, energies, n_converged = rounds[0]
        seconds = statistics.median(r[0] for r in rounds)
        rows[name] = {"structures_per_second": len(frames) / seconds, "seconds": [r[0] for r in rounds], "mean_steps": statistics.mean(steps),
                      "n_converged": n_converged, "lbfgs_against_it": compared(runs["lbfgs"][0][2], energies)}
        print(f"{name:10s} {len(frames) / seconds:9.2f} structures/s  {statistics.mean(steps):7.1f} steps  {n_converged} of {len(frames)} converged  "
              f"our L-BFGS against it: {rows[name]['lbfgs_against_it']}")
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        report = {"what": "relaxation to fmax on the CPU, ours in batches against ASE's optimizers with the same calculator", "commit": commit,
                  "date": str(datetime.date.today()), "processor": processor(), "threads": a.threads, "precision": a.precision,
                  "fmax_ev_per_ang": a.fmax, "n_structures": len(frames), "most_atoms": a.most_atoms, "methods": rows}
        with open(a.output, "w") as f:
            json.dump(report, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
