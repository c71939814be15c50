#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How energies change with the cell, against what stresses say: right labels, and labels with planted errors.

Usage: energies_and_stress.py OUT.json     (needs NumPy and ASE, whose EMT labels copper)

src/train/data/dataset_stress.c refuses labels by these numbers. Pairs are chosen as there: of each structure the one of the 20 before
it whose atoms moved least beside the strain, where the strain or what the forces leave of the change weighs more than the forces.
`beyond` is the share of pairs whose energy changes by more than 5 times, or less than a fifth, of what the stress says; `deciles` are
the first and last decile of the ratio and its median, and `ev_per_atom` is the median of the largest component of the stress times volume."""
import json
import sys

import numpy as np
from ase import units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.md.nptberendsen import NPTBerendsen
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from record import write_record

GPA = 160.21766
CASES = {  # structures, largest strain, displacement of atoms (standard deviation, Å), lattice constant, isotropic
    "volumes, 6 %": (60, 0.06, 0.0, 3.6, True),
    "volumes, 1 %": (60, 0.01, 0.0, 3.6, True),
    "strains, 3 %": (60, 0.03, 0.0, 3.6, False),
    "strains, 3 %, compressed": (60, 0.03, 0.05, 3.3, False),
    "strains, 3 %, 0.03 Å": (400, 0.03, 0.03, 3.6, False),
    "strains, 3 %, 0.1 Å": (400, 0.03, 0.1, 3.6, False),
    "volumes, 6 %, 0.1 Å": (400, 0.06, 0.1, 3.6, True),
}
ERRORS = {"right": lambda f: 1, "other sign": lambda f: -1, "GPa": lambda f: GPA, "kbar, other sign": lambda f: -10 * GPA,
          "eV/Å³ over GPa": lambda f: 1 / GPA, "virial": lambda f: -f["volume"]}  # fmt: skip


def label(atoms):
    atoms.calc = EMT()
    return {"positions": atoms.positions.copy(), "cell": atoms.cell.array.copy(), "energy": atoms.get_potential_energy(),
            "forces": atoms.get_forces(), "stress": atoms.get_stress(voigt=False), "volume": atoms.get_volume()}  # fmt: skip


def strained(n, strain, displacement, length, isotropic):
    random, frames = np.random.default_rng(1), []
    for _ in range(n):
        atoms = bulk("Cu", "fcc", a=length, cubic=True).repeat(2)
        change = random.uniform(-strain, strain) * np.eye(3) if isotropic else random.uniform(-strain, strain, (3, 3))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + change), scale_atoms=True)
        atoms.positions += random.normal(0, displacement, atoms.positions.shape)
        frames.append(label(atoms))
    return frames


def dynamics(n):
    atoms, frames = bulk("Cu", "fcc", a=3.6, cubic=True).repeat(2), []
    atoms.calc = EMT()
    MaxwellBoltzmannDistribution(atoms, temperature_K=600, rng=np.random.default_rng(1))
    run = NPTBerendsen(atoms, 4 * units.fs, temperature_K=300, pressure_au=0, compressibility_au=1.2, taup=400 * units.fs)
    for _ in range(n):
        run.run(10)
        frames.append(label(atoms.copy()))
    return frames


def pairs_of(frames):
    """(what the forces leave of the change of energy, the two structures, strain, sum of the sizes of the forces' work)"""
    pairs = []
    for k, b in enumerate(frames):
        best, nearest = None, 0.5
        for a in frames[max(0, k - 20) : k][::-1]:
            deform = np.linalg.solve(a["cell"], b["cell"])
            if not 1e-4 < abs(deform - np.eye(3)).max() < 0.1:
                continue
            part = (b["positions"] - a["positions"] @ deform) @ np.linalg.inv(b["cell"])
            move = (part - np.round(part)) @ b["cell"]
            if np.linalg.norm(move, axis=1).max() >= nearest:
                continue
            nearest = np.linalg.norm(move, axis=1).max()
            work = 0.5 * (a["forces"] + b["forces"]) * move
            best = (b["energy"] - a["energy"] + work.sum(), a, b, deform - np.eye(3), abs(work).sum())
        if best:
            pairs.append(best)
    return pairs


def judge(frames, pairs, scale):
    sizes, ratios = [abs(scale(f) * f["stress"]).max() * f["volume"] / len(f["positions"]) for f in frames], []
    typical = {"ev_per_atom": float(f"{np.median(sizes):.3g}")}
    for left, a, b, strain, size in pairs:
        work = 0.5 * sum(scale(f) * f["volume"] * (f["stress"] * strain).sum() for f in (a, b))
        if max(abs(left), abs(work)) > max(0.02, size):
            ratios.append(left / work)
    if not ratios:
        return {"pairs": 0} | typical
    ratios = np.array(ratios)
    beyond = round(float(((ratios < 0.2) | (ratios > 5)).mean()), 3)
    return {"pairs": len(ratios), "beyond": beyond, "deciles": [float(f"{x:.3g}") for x in np.percentile(ratios, [10, 50, 90])]} | typical


def main():
    sets = {name: strained(*case) for name, case in CASES.items()}
    sets["dynamics at constant pressure, 40 fs apart"] = dynamics(400)
    results = {}
    for name, frames in sets.items():
        pairs = pairs_of(frames)
        results[name] = {error: judge(frames, pairs, scale) for error, scale in ERRORS.items()}
        print(name, json.dumps(results[name], ensure_ascii=False))
    write_record(sys.argv[1], calculator="EMT of ASE, copper, 32 atoms", results=results)


main()
