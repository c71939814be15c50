#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Structures at which a student is likely to diverge, of many in which two atoms are pressed together.

Usage: organic_pressed.py STUDENT OTHER POOL.extxyz OUT.extxyz [--largest 90] [--difference 55] [--others 10000] [--seed 3] [--device cpu]

POOL is of `mlff sample --no-relax --methods pairs --oversample 1 --closest 0.55`. OUT has those at which STUDENT gives a force component above --largest,
eV/Å, or differs by more than --difference in one from OTHER, a student that does not diverge, and --others more, at random. `mlff label` labels them."""
import argparse
import json

import numpy as np
from ase.io import iread, write
from batches import computed

from mlff_distiller import Evaluator


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("student", "other", "pool", "output"):
        parser.add_argument(name)
    parser.add_argument("--largest", type=float, default=90)
    parser.add_argument("--difference", type=float, default=55)
    parser.add_argument("--others", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    frames = list(iread(options.pool, index=":"))
    student, other = (Evaluator(model, device=options.device) for model in (options.student, options.other))
    hard = np.array([abs(a).max() > options.largest or abs(a - b).max() > options.difference
                     for (_, a), (_, b) in zip(computed(student, frames), computed(other, frames))])
    draw = np.random.default_rng(options.seed)
    rest = np.flatnonzero(~hard)
    chosen = draw.permutation(np.r_[np.flatnonzero(hard), draw.choice(rest, min(options.others, len(rest)), replace=False)])
    write(options.output, [frames[k] for k in chosen], format="extxyz")
    print(json.dumps({"structures": len(frames), "hard": int(hard.sum()), "chosen": len(chosen)}))


if __name__ == "__main__":
    main()
