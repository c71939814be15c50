#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shares of energy and forces that the profiler tells of a calculator without stages, whose energy takes 0.6 ms of processor time and whose
forces take 0.3 ms more: some 70 % for the energy, with what Python and ASE do around it.

Usage: shares.py [RUNS] [BUSY]      PYTHONPATH and MLFF_LIBRARY_DIR as for the tests; BUSY: programs that compute beside it
Prints the shares of each run."""
import argparse
import subprocess
import sys

import numpy as np
from ase.build import molecule
from ase.calculators.calculator import Calculator

from mlff_distiller.cuda.md_profiler import MDProfiler
from plant import compute


class Planted(Calculator):
    implemented_properties = ["energy", "forces"]

    def calculate(self, atoms, properties, changes):
        super().calculate(atoms, properties, changes)
        compute(0.6)
        self.results = {"energy": 0.0}
        if "forces" in properties:
            compute(0.3)
            self.results["forces"] = np.zeros((len(atoms), 3))


def shares():
    frames = [molecule("H2O") for _ in range(300)]
    for k, atoms in enumerate(frames):
        atoms.positions += 1e-3 * k
    found = MDProfiler(device="cpu").profile_calculator(Planted(), frames, properties=["energy", "forces"]).to_dict()
    return {row["name"]: round(row["median_ms"] / found["median_latency_ms"], 3) for row in found["stages"] if row["name"] in ("energy", "forces")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=6)
    parser.add_argument("busy", type=int, nargs="?", default=0)
    options = parser.parse_args()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        for _ in range(options.runs):
            print(shares(), flush=True)
    finally:
        for other in others:
            other.kill()


if __name__ == "__main__":
    main()
