#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Labelled structures around many different molecules, for a student of all of them.

Usage: organic_structures.py TEACHER SAMPLER SEEDS.extxyz ... -o LABELS [--runs 3] [--displaced 1] [--device cuda]

TEACHER labels, the model SAMPLER (an earlier student) moves the molecules: each one makes RUNS runs of Langevin dynamics from where it
stands, with a frame at 150 and at 250 fs, and gives DISPLACED frames with every atom moved at random by 0.02 to 0.07 Å. Temperatures are
20 to 900 K, the root of the temperature drawn evenly, so that typical forces are. Molecules run in batches on one device. Frames of a
run that exploded and those with a force component above 25 eV/Å are left out.
Writes LABELS.train.extxyz and LABELS.valid.extxyz; molecules whose number is 24 modulo 25 validate."""
import argparse
import concurrent.futures
import json
import sys
import time

import numpy as np
from ase import Atoms
from ase.io import read

from mlff_distiller import Evaluator, Model, Replicas

HOTTEST_FORCE = 25.0
MOLECULES_AT_ONCE = 1000


def frame_text(frame):
    """A frame as extended XYZ: energies in eV, forces in eV/Å."""
    group, symbols, positions, energy, forces = frame
    lines = [f'{len(symbols)}\nProperties=species:S:1:pos:R:3:forces:R:3 energy={energy:.8f} group={group} pbc="F F F"']
    lines += ["%s %.6f %.6f %.6f %.6f %.6f %.6f" % (s, *x, *f) for s, x, f in zip(symbols, positions.tolist(), forces.tolist())]
    return "\n".join(lines) + "\n"


def texts(frames):
    return "".join(map(frame_text, frames))


def write(file, text):
    file.write(text.result())
    file.flush()


def sampled(molecules, sampler, options, random):
    """(number of its molecule, atoms) of each frame."""
    frames = []
    for _ in range(options.displaced):
        for group, atoms in molecules:
            moved = atoms.positions + random.uniform(0.02, 0.07) * random.normal(size=atoms.positions.shape)
            frames.append((group, Atoms(atoms.numbers, moved)))
    for _ in range(options.runs):
        temperatures = random.uniform(np.sqrt(20), np.sqrt(900), len(molecules)) ** 2
        dynamics = Replicas([atoms for _, atoms in molecules], sampler, timestep_fs=1.0, friction_per_fs=0.05,
                            temperature=list(temperatures), seed=int(random.integers(1 << 30)), device=options.device, n_threads=1,
                            ensemble="langevin")
        for n_steps in (150, 100):
            dynamics.run(n_steps)
            frames += [(group, Atoms(atoms.numbers, one.positions)) for (group, atoms), one in zip(molecules, dynamics)
                       if not one.error]
    return frames


def labelled(frames, teacher):
    """Frames with the teacher's energy and forces, without those that are too hot."""
    first = np.concatenate([[0], np.cumsum([len(atoms) for _, atoms in frames])])
    out = teacher.compute(np.concatenate([atoms.numbers for _, atoms in frames]), np.concatenate([atoms.positions for _, atoms in frames]),
                          first_atom=first)
    energies, forces = np.asarray(out["energies"]), np.asarray(out["forces"])
    made = []
    for i, (group, atoms) in enumerate(frames):
        own = forces[first[i]:first[i + 1]]
        if np.isfinite(own).all() and np.abs(own).max() <= HOTTEST_FORCE:
            made.append((group, atoms.get_chemical_symbols(), atoms.positions, energies[i], own))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher")
    parser.add_argument("sampler")
    parser.add_argument("seeds", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--displaced", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=4, help="that write text")
    options = parser.parse_args()
    started, random = time.time(), np.random.default_rng(options.seed)
    with concurrent.futures.ProcessPoolExecutor(options.processes) as writers:
        seeds = [atoms for part in writers.map(read, options.seeds, [":"] * len(options.seeds)) for atoms in part]
        molecules = list(enumerate(seeds))
        print(f"{len(molecules)} molecules, {time.time() - started:.0f} s", file=sys.stderr)
        teacher, sampler = Evaluator(options.teacher, device=options.device, n_threads=1), Model.load(options.sampler)
        files = [open(f"{options.output}.{kind}.extxyz", "w") for kind in ("train", "valid")]
        pending, n_hot, n_frames = [], 0, 0
        for begin in range(0, len(molecules), MOLECULES_AT_ONCE):
            frames = sampled(molecules[begin:begin + MOLECULES_AT_ONCE], sampler, options, random)
            made = []
            for k in range(0, len(frames), MOLECULES_AT_ONCE):
                made += labelled(frames[k:k + MOLECULES_AT_ONCE], teacher)
            n_hot += len(frames) - len(made)
            n_frames += len(made)
            for valid, file in enumerate(files):
                pending.append((file, writers.submit(texts, [frame for frame in made if (frame[0] % 25 == 24) == valid])))
            while len(pending) > 2 * options.processes:
                write(*pending.pop(0))
            print(f"{begin + MOLECULES_AT_ONCE} molecules, {n_frames} frames, {time.time() - started:.0f} s", file=sys.stderr)
        for file, text in pending:
            write(file, text)
        for file in files:
            file.close()
    print(json.dumps({"molecules": len(molecules), "frames": n_frames, "left_out": n_hot, "seconds": round(time.time() - started, 1)}))


if __name__ == "__main__":
    main()
