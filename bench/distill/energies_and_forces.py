#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How energies of near structures change, against what their forces say: right labels, and labels with planted errors.

Usage: energies_and_forces.py MLFF OUT.json     (needs NumPy; MLFF is the command; xtb where there is one)

src/train/data/dataset_forces.c refuses labels by these numbers. Pairs are chosen as there: of each structure the nearest of the 20
before it, if no atom moved by 0.5 A; of all pairs the half with the larger changes. `beyond` is the share of pairs whose energy changes
by more than 5 times, or less than a fifth, of what the forces say; `deciles` are the first and last decile of the ratio over its
median. Planted are other units in a third of the structures, forces of other atoms, gradients, positions in Bohr and forces in
eV/Bohr."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

BOHR, KCAL = 0.529177, 23.0605
MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
SAMPLED = ["--n-samples", "600", "--seed", "1"]
CASES = {  # teacher, arguments of `mlff sample`
    "ethanol, all methods": (MODELS / "ethanol.safetensors", ["--system", "ethanol", *SAMPLED]),
    "three molecules": (MODELS / "organic-small.safetensors",
                        ["--system", "ethanol", "--system", "benzene", "--system", "aspirin", *SAMPLED]),
    "liquid water": (MODELS / "water-small.safetensors", ["--system", "water", "--n-atoms", "96", "--n-samples", "200", "--seed", "1"]),
    "ethanol, dynamics every 5 fs": (MODELS / "ethanol.safetensors",
                                     ["--system", "ethanol", "--methods", "md", "--interval", "5", "--oversample", "1", *SAMPLED]),
    "ethanol, pairs": (MODELS / "ethanol.safetensors", ["--system", "ethanol", "--methods", "pairs", *SAMPLED]),
    "ethanol, pairs, GFN2-xTB": ("xtb:gfn2", ["--system", "ethanol", "--methods", "pairs", *SAMPLED]),
    "ethanol, all methods, GFN2-xTB": ("xtb:gfn2", ["--system", "ethanol", *SAMPLED]),
}  # fmt: skip


def read_frames(path):
    """Symbols, positions, forces, energy and cell (or None) of each frame of extended XYZ as mlff writes it."""
    lines = pathlib.Path(path).read_text().splitlines()
    at, frames = 0, []
    while at < len(lines):
        n, comment = int(lines[at]), lines[at + 1]
        columns, start = {}, 0
        words = comment.split("Properties=")[1].split()[0].split(":")
        for name, width in zip(words[::3], words[2::3]):
            columns[name] = slice(start, start + int(width))
            start += int(width)
        rows = [line.split() for line in lines[at + 2 : at + 2 + n]]
        cell = np.array(comment.split('Lattice="')[1].split('"')[0].split(), float).reshape(3, 3) if "Lattice" in comment else None
        energy = float(next(word for word in comment.split() if word.startswith("energy=")).split("=")[1])
        numbers = {name: np.array([row[columns[name]] for row in rows], float) for name in ("pos", "forces")}
        frames.append((tuple(row[0] for row in rows), numbers["pos"], numbers["forces"], energy, cell))
        at += 2 + n
    return frames


def find_pairs(frames, limit=0.5):
    """(frame before, frame, moves) of each structure's nearest one before it, where all atoms moved by less than the limit."""
    pairs = []
    for b in range(len(frames)):
        best, nearest = None, limit
        for a in range(max(0, b - 20), b):
            if frames[a][0] != frames[b][0]:
                continue
            moves, cell = frames[b][1] - frames[a][1], frames[b][4]
            if cell is not None:
                moves = moves - np.round(moves @ np.linalg.inv(cell)) @ cell
            longest = np.sqrt((moves**2).sum(axis=1).max())
            if longest < nearest:
                best, nearest = (a, b, moves), longest
        if best:
            pairs.append(best)
    return pairs


def measure(frames, pairs, forces, length=1.0):
    energy = np.array([frames[b][3] - frames[a][3] for a, b, _ in pairs])
    said = np.array([-0.5 * length * ((forces[a] + forces[b]) * moves).sum() for a, b, moves in pairs])
    kept = np.abs(energy) + np.abs(said) > 0.02
    energy, said = energy[kept], said[kept]
    larger = np.argsort(-(np.abs(energy) + np.abs(said)), kind="stable")[: (len(energy) + 1) // 2]
    ratio = np.sort(energy[larger] / said[larger])
    n = len(ratio)
    median = ratio[n // 2]
    return {
        "pairs": n,
        "median": round(float(median), 3),
        "deciles": [round(float(ratio[n // 10] / median), 3), round(float(ratio[n - 1 - n // 10] / median), 3)],
        "beyond": round(float(np.mean(~((ratio > 0.2) & (ratio < 5)))), 4),
    }


def shuffled(forces, rng):
    return [f[rng.permutation(len(f))] for f in forces]


def main():
    mlff, out = sys.argv[1:]
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (teacher, arguments) in CASES.items():
            samples, labels = f"{folder}/samples.extxyz", f"{folder}/labels.extxyz"
            made = subprocess.run([mlff, "sample", str(teacher), *arguments, "-o", samples], capture_output=True, text=True)
            if made.returncode == 0:
                made = subprocess.run([mlff, "label", str(teacher), samples, "-o", labels], capture_output=True, text=True)
            if made.returncode != 0:
                cases[name] = {"left_out": made.stderr.strip().splitlines()[-1]}
                continue
            frames, rng = read_frames(labels), np.random.default_rng(0)
            pairs, right = find_pairs(frames), [frame[2] for frame in frames]
            third = rng.random(len(frames)) < 1 / 3
            cases[name] = {
                "structures": len(frames),
                "right": measure(frames, pairs, right),
                "a third of the forces in kcal/mol/A": measure(frames, pairs, [f * KCAL if t else f for f, t in zip(right, third)]),
                "forces of atoms in random order": measure(frames, pairs, shuffled(right, rng)),
                "gradients": measure(frames, pairs, [-f for f in right]),
                "positions in Bohr": measure(frames, find_pairs(frames, 0.5 * BOHR), right, 1 / BOHR),
                "forces in eV/Bohr": measure(frames, pairs, [f * BOHR for f in right]),
            }
            pathlib.Path(labels).unlink()
            print(name, cases[name]["right"], flush=True)
    rows = [
        f"  {json.dumps(name)}: {{\n" + ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in case.items()) + "\n  }"
        for name, case in cases.items()
    ]
    command = "bench/distill/energies_and_forces.py MLFF OUT.json"
    pathlib.Path(out).write_text(f'{{\n "command": "{command}",\n "cases": {{\n' + ",\n".join(rows) + "\n }\n}\n")


if __name__ == "__main__":
    main()
