#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Single wrong energies among labels, and right ones that are far from the others: which of them `mlff train` tells of.

Usage: single_energies.py MLFF OUT.json [LABELS.extxyz ...]     (needs ASE; MLFF is the command)

src/train/data/dataset_wrong_energies.c warns by what this measures. Sets of right labels by EMT hold 3 to 10 structures of another kind beside 200
displaced ones; `told` should be false. In others, and in the files that are given, the energy of one structure is shifted, 20 times: by a tenth
and two standard deviations more than the least that is told (15 standard deviations, 3 eV and 0.2 eV/atom), and by 20 eV and 20 standard
deviations; `n_told` counts how often the structure is named."""
import os
import subprocess
import sys
import tempfile

import numpy as np
from ase.build import bulk, fcc111, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write
from ase.optimize import FIRE
from record import write_record

TRIES = 20
rng = np.random.default_rng(0)


def labelled(atoms):
    atoms.calc = EMT()
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return atoms


def displaced(atoms, size):
    moved = atoms.copy()
    moved.positions += rng.normal(0, size, moved.positions.shape)
    return labelled(moved)


def strained(atoms, factor):
    other = atoms.copy()
    other.set_cell(other.cell * factor, scale_atoms=True)
    return other


def quenched(atoms):
    other = atoms.copy()
    other.positions += rng.normal(0, 0.8, other.positions.shape)
    other.calc = EMT()
    FIRE(other, logfile=None).run(fmax=0.3, steps=200)
    return labelled(other.copy())


def interstitial(atoms):
    other, i = atoms.copy(), rng.integers(len(atoms))
    other.positions[i] = atoms.positions[(i + 1) % len(atoms)] + [1.8, 0, 0]
    return displaced(other, 0.1)


def in_parts(atoms, n):
    other = atoms.copy()
    for i in rng.choice(len(other), n, replace=False):
        other.positions[i] += 8 * rng.normal(size=3)
    return displaced(other, 0.04)


def shuffled(atoms):
    other = atoms.copy()
    other.numbers = rng.permutation(other.numbers)
    return displaced(other, 0.1)


def three_acetylenes():
    parts = [molecule("C2H2") for _ in range(3)]
    for part, shift in zip(parts, ([0, 0, 0], [6, 0, 0], [0, 6, 0])):
        part.positions += shift
    return displaced(parts[0] + parts[1] + parts[2], 0.04)


def right_sets():
    cell, ethanol = bulk("Cu", cubic=True) * (2, 2, 2), molecule("CH3CH2OH")
    slab = fcc111("Cu", (4, 4, 2), vacuum=6)
    slab.pbc, slab.info = True, {}
    alloy = cell.copy()
    alloy.numbers[::2] = 79
    md, base = [displaced(cell, 0.1) for _ in range(200)], [displaced(ethanol, 0.04) for _ in range(200)]
    sets = {
        "copper and strained perfect cells": md + [labelled(strained(cell, x)) for x in np.linspace(0.85, 1.3, 10)],
        "copper and strained cells": md + [displaced(strained(cell, x), 0.1) for x in np.linspace(0.85, 1.3, 10)],
        "copper and gas": md + [displaced(strained(cell, x), 0.1) for x in (2, 2.5, 3)],
        "copper and bcc": md + [displaced(bulk("Cu", "bcc", a=2.89, cubic=True) * (4, 4, 1), 0.1) for _ in range(8)],
        "copper and a slab": md + [displaced(slab, 0.1) for _ in range(8)],
        "copper and hot copper": md + [displaced(cell, 0.25) for _ in range(8)],
        "copper and perfect copper": [displaced(cell, 0.15) for _ in range(200)] + [labelled(cell.copy()) for _ in range(3)],
        "copper and interstitials": md + [interstitial(cell) for _ in range(8)],
        "copper and quenched liquids": md + [quenched(cell) for _ in range(8)],
        "ordered and disordered CuAu": [displaced(alloy, 0.1) for _ in range(200)] + [shuffled(alloy) for _ in range(8)],
        "ethanol and dimethyl ether": base + [displaced(molecule("CH3OCH3"), 0.04) for _ in range(8)],
        "benzene and three acetylenes": [displaced(molecule("C6H6"), 0.04) for _ in range(100)] + [three_acetylenes() for _ in range(8)],
    }
    for n in (1, 2, 3, 9):
        sets[f"ethanol and {n} of its atoms away"] = base + [in_parts(ethanol, n) for _ in range(6)]
    return sets, {"copper": md, "copper, 30 structures": md[:30], "ethanol by EMT": base}


def warning(mlff, folder, frames):
    path = folder + "/set.extxyz"
    write(path, frames)
    words = [mlff, "train", path, "-o", path + ".safetensors", "--steps", "1", "--features", "8", "--layers", "1", "--device", "cpu"]
    lines = subprocess.run(words, capture_output=True, text=True).stderr.splitlines()
    return next((line for line in lines if "forces and distances are as theirs" in line), "")


def energies_of(frames):
    energies = np.array([atoms.get_potential_energy() for atoms in frames])
    return energies, 1.4826 * np.median(abs(energies - np.median(energies)))


def main():
    mlff, out, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    right, others = right_sets()
    others.update({os.path.basename(path): read(path, ":300") for path in paths})
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, frames in right.items():
            energies, deviation = energies_of(frames)
            rows.append({"set": name, "n": len(frames), "deviation_ev": round(float(deviation), 2),
                         "farthest_ev": round(float(abs(energies - np.median(energies)).max()), 1), "told": bool(warning(mlff, folder, frames))})  # fmt: skip
            print(rows[-1], flush=True)
        for name, frames in others.items():
            energies, deviation = energies_of(frames)
            rows.append({"set": name, "n": len(frames), "deviation_ev": round(float(deviation), 2), "told": bool(warning(mlff, folder, frames))})
            least = max(3, 15 * deviation, 0.2 * len(frames[0]))
            for shift in (1.1 * least + 2 * deviation, 20 + 20 * deviation):
                n_told = 0
                for _ in range(TRIES):
                    k = int(rng.integers(len(frames)))
                    wrong = frames[k].copy()
                    forces = frames[k].get_forces(apply_constraint=False)
                    wrong.calc = SinglePointCalculator(wrong, energy=energies[k] + shift * rng.choice([-1, 1]), forces=forces)
                    n_told += f"structure {k}: " in warning(mlff, folder, frames[:k] + [wrong] + frames[k + 1 :])
                rows.append({"set": name, "n": len(frames), "shifted_ev": round(float(shift), 1), "n_told": n_told, "of": TRIES})
                print(rows[-1], flush=True)
    write_record(out, rows=rows)


if __name__ == "__main__":
    main()
