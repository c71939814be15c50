#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mean squares of forces against the spread of energies: right labels, and forces in kcal/mol/A beside energies in eV.

Usage: forces_and_spread.py MLFF OUT.json     (needs NumPy; MLFF is the command)

src/train/data/dataset_stiffness.c warns by these numbers. `spring` is <F^2> sqrt(n/2) / sigma(E) of a whole set, eV/A^2, with the median of
structures and the quartiles of energies; `of_20` is the range over parts of 20 structures, one after the other; `told` says whether `mlff train`
warns of the set, and of the one whose forces are in kcal/mol/A. Relaxed sets are those of the samples above them, to 0.05 eV/A."""
import collections
import subprocess
import sys
import tempfile

import numpy as np
from energies_and_forces import KCAL, MODELS, read_frames
from record import write_record

LARGEST, FEWEST, LEAST_SPREAD = 700.0, 20, 5e-3


def spring(frames):
    """Of the structures of the same atoms that are most; None where it is not judged."""
    groups = collections.defaultdict(list)
    for symbols, _, forces, energy, _ in frames:
        groups[tuple(sorted(symbols))].append((energy, (forces**2).mean(), forces.size))
    group = sorted(max(groups.values(), key=len))
    n, energies = len(group), [energy for energy, _, _ in group]
    if 1 + (np.diff(energies) > 1e-5).sum() < FEWEST:
        return None
    spread = (energies[n - 1 - n // 4] - energies[n // 4]) / 1.349
    if spread < LEAST_SPREAD:
        return None
    return sorted(square for _, square, _ in group)[n // 2] * np.sqrt(group[0][2] / 2) / spread


def write_frames(path, frames, scale):
    with open(path, "w") as out:
        for symbols, positions, forces, energy, cell in frames:
            lattice = f'Lattice="{" ".join(map(repr, map(float, cell.ravel())))}" ' if cell is not None else ""
            out.write(f"{len(symbols)}\n{lattice}Properties=species:S:1:pos:R:3:forces:R:3 energy={float(energy)!r}\n")
            for symbol, row in zip(symbols, np.hstack([positions, scale * forces])):
                out.write(f"{symbol} {' '.join(repr(float(x)) for x in row)}\n")


def is_told(mlff, path):
    words = [mlff, "train", path, "-o", path + ".safetensors", "--steps", "1", "--features", "8", "--layers", "1", "--device", "cpu"]
    return "its forces seem too large" in subprocess.run(words, capture_output=True, text=True).stderr


def measure(mlff, folder, name, frames):
    parts = [spring(frames[k : k + FEWEST]) for k in range(0, len(frames) - FEWEST + 1, FEWEST)]
    parts, whole, told = [part for part in parts if part is not None], spring(frames), []
    for scale in (1.0, KCAL):
        write_frames(folder + "/set.extxyz", frames, scale)
        told.append(is_told(mlff, folder + "/set.extxyz"))
    row = {"set": name, "n": len(frames), "spring": whole and float(f"{whole:.3g}"),
           "of_20": [float(f"{part:.3g}") for part in (min(parts), max(parts))] if parts else None, "n_parts": len(parts),
           "n_parts_told": sum(bool(part > LARGEST) for part in parts), "n_parts_told_kcal": sum(bool(part * KCAL**2 > LARGEST) for part in parts),
           "told": told[0], "told_kcal": told[1]}  # fmt: skip
    print(row, flush=True)
    return row


def main():
    mlff, out = sys.argv[1:3]
    cases, rows = [], []
    for model, system in (("ethanol", "ethanol"), ("organic-small", "benzene"), ("organic", "aspirin"), ("organic", "caffeine")):
        for method, kelvin in [(m, t) for m in ("modes", "thermal", "md") for t in (300, 1000)] + [("rattle", 300), ("pairs", 300)]:
            cases.append((model, ["--system", system, "--methods", method, "--temperatures", str(kelvin)]))
        cases.append((model, ["--system", system, "--methods", "md", "--temperatures", "300", "--interval", "1"]))
        cases.append((model, ["--system", system]))
    for atoms in ("48", "96"):
        for method, kelvin in (("thermal", 300), ("md", 300), ("md", 800)):
            cases.append(("water-small", ["--system", "water", "--n-atoms", atoms, "--methods", method, "--temperatures", str(kelvin)]))
    with tempfile.TemporaryDirectory() as folder:

        def run(*words, check=True):
            subprocess.run([mlff, *words, "--device", "cpu"], check=check, capture_output=True)

        for model, words in cases:
            teacher, name = str(MODELS / f"{model}.safetensors"), " ".join(word.strip("-") for word in words[1:])
            samples, labels = folder + "/samples.extxyz", folder + "/labels.extxyz"
            run("sample", teacher, *words, "--n-samples", "100", "--oversample", "1", "--seed", "1", "-o", samples)
            run("label", teacher, samples, "-o", labels)
            rows.append(measure(mlff, folder, name, read_frames(labels)))
            if "md" in words and "300" in words or "rattle" in words:
                run("relax", teacher, samples, "-o", folder + "/relaxed.extxyz", "--fmax", "0.05", check=False)  # some fail
                run("label", teacher, folder + "/relaxed.extxyz", "-o", labels)
                rows.append(measure(mlff, folder, name + ", relaxed", read_frames(labels)))
    write_record(out, rows=rows)


if __name__ == "__main__":
    main()
