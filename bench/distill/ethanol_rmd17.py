#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Students of rMD17's ethanol: 950 structures train, 50 validate, 90,000 steps.

Usage: ethanol_rmd17.py TRAIN.extxyz TEST.extxyz [--seeds 1 2 3] [--steps 90000] [--device cuda:0] [-o STUDENT]

Both files hold 1000 frames in eV and eV/Å. The seed chooses the 50 frames, the first weights and the order of structures. Energies and forces
are trained on in kcal/mol, in which the two weights of the loss are given. Prints mean absolute errors on TEST, one JSON object a line; with -o
writes STUDENT-SEED.safetensors, whose unit is kcal/mol."""
import argparse
import json
import random
import re
import tempfile
import time

from mlff_distiller import Model
from mlff_distiller.distill import Dataset
from mlff_distiller.training import Trainer

KCAL = 23.060547830619026  # kcal/mol of one eV
LOSS = {"energy_weight": 0.81, "forces_weight": 99}  # 0.01 : 0.99 of ΔE² of nine atoms and ΔF², once the energy's is raised by 100


def frames_in_kcal(path):
    """Each frame's text."""
    with open(path) as file:
        lines = file.read().splitlines()
    frames, at = [], 0
    while at < len(lines):
        end = at + 2 + int(lines[at])
        header = re.sub(r"energy=(\S+)", lambda found: f"energy={KCAL * float(found[1]):.9f}", lines[at + 1])
        rows = [line.split() for line in lines[at + 2:end]]
        rows = [" ".join(row[:4] + [f"{KCAL * float(force):.9f}" for force in row[4:7]]) for row in rows]
        frames.append("\n".join([lines[at], header, *rows]) + "\n")
        at = end
    return frames


def dataset(frames):
    with tempfile.NamedTemporaryFile("w", suffix=".extxyz") as file:
        file.write("".join(frames))
        file.flush()
        return Dataset.read(file.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=90000)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    frames, test = frames_in_kcal(options.train), dataset(frames_in_kcal(options.test))
    for seed in options.seeds:
        order = list(range(len(frames)))
        random.Random(seed).shuffle(order)
        validation, training = (dataset([frames[k] for k in sorted(part)]) for part in (order[:50], order[50:]))
        student = Model.create("painn", n_features=128, n_layers=3, elements="H,C,O", cutoff_function="mollifier", seed=seed)
        trainer = Trainer(student, training, n_steps=options.steps, device=options.device, seed=seed, batch_size=10, learning_rate=1e-3, **LOSS)
        started = time.time()
        trainer.run(options.steps)
        seconds = time.time() - started
        line = {"seed": seed, "seconds": round(seconds, 1)}
        for name, data in (("test", test), ("validation", validation)):
            errors = trainer.validate(data)
            line[name] = {"forces_mev_per_angstrom": round(1e3 * errors.force_mae / KCAL, 3), "energy_mev_per_atom": round(1e3 * errors.energy_mae / KCAL, 3)}
        print(json.dumps(line), flush=True)
        if options.output:
            trainer.model().save(f"{options.output}-{seed}.safetensors")


if __name__ == "__main__":
    main()
