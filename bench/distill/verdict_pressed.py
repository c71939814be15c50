#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bar `pressed` of the shipped students beside ANI-2x, and why its structures are displaced by little (NumPy).

`bars`: of two seeds each. `displaced`: in how many structures of `mlff sample` at a temperature a student is wrong as the bar counts it, by more
than the teacher's largest force component and 10 eV/Å; `above_largest`: by more than the former. `thermal` has no atoms that were pressed together.
`rates`: of a student that is wrong in a share of all structures, the probabilities that the bar passes and fails, by the binomial distribution.
    verdict_pressed.py MLFF ANI2X [--seeds N] [-o RESULT.json]
"""
import argparse
import json
import math
import pathlib
import subprocess
import tempfile

import numpy as np
from record import write_record

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
WATER, LARGE = ("water", "--n-atoms", "96"), ("water", "--n-atoms", "999")
BARS = {
    "ethanol": [("ethanol",)],
    "ethanol-large": [("ethanol",)],
    "organic-small": [("ethanol",), ("benzene",), ("aspirin",), WATER],
    "organic": [("ethanol",), ("benzene",), ("aspirin",)],
    "water": [WATER, LARGE, ("h2o",)],
    "water-small": [WATER, LARGE, ("h2o",)],
}
DISPLACED = [("water-small", system) for system in (("h2o",), WATER, LARGE)] + [("water", WATER), ("organic", ("ethanol",))]


def forces(path):
    """Of each frame of an extended XYZ file."""
    lines, frames = path.read_text().splitlines(), []
    while lines:
        n = int(lines[0])
        frames.append(np.array([line.split()[4:7] for line in lines[2 : n + 2]], float))
        lines = lines[n + 2 :]
    return frames


def binomial(n, share):
    """Probabilities of 0 to n."""
    return np.array([math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)])


def rates(share, most, limit=0.1, error=0.002):
    """Probabilities, %, that the bar passes and fails: looks at 64, 128, ... structures, as pressed.c has them."""
    passes, fails, n, open_ = 0.0, 0.0, 0, np.ones(1)
    for end in (64 << look for look in range(12)):
        if end > most:
            break
        open_ = np.convolve(open_, binomial(end - n, share))
        n, below = end, np.cumsum(binomial(end, limit))  # of the limit: at most so many are wrong
        is_pass, is_fail = below <= error, 1 - np.concatenate(([0], below[:-1])) < error
        passes, fails = passes + open_[is_pass].sum(), fails + open_[is_fail].sum()
        open_[is_pass | is_fail] = 0
    return {"wrong": share, "most": most, "passes": round(100 * passes, 2), "fails": round(100 * fails, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mlff")
    parser.add_argument("teacher")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    bars, displaced = [], []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)

        def run(*words, check=True):
            subprocess.run([arguments.mlff, *map(str, words)], check=check, stdout=subprocess.DEVNULL)

        def labels(model, structures, output):
            run("label", model, structures, "--device", "cpu", "-q", "-o", work / output)
            return work / output

        def structures(system, *words):
            (work / "structures.extxyz").unlink(missing_ok=True)
            run("sample", MODELS / "organic-small.safetensors", "--system", *system, "--no-relax", "--oversample", 1, *words, "--device", "cpu", "-q", "-o", work / "structures.extxyz")
            return work / "structures.extxyz"

        for student, systems in BARS.items():
            for system in systems:
                test = work / f"{student}-{'-'.join(system)}.extxyz"
                labels(arguments.teacher, structures(system, "--methods", "thermal", "--n-samples", 12), test.name)
                for seed in range(arguments.seeds):
                    command = ["verdict", MODELS / f"{student}.safetensors", "--test", test, "--teacher", arguments.teacher, "--system", *system, "--seed", seed]
                    command += ["--nve", 0, "--hot", 0, "--compare", 0, "--speed-time", 0.05, "--device", "cpu", "--threads", 1, "-q", "-o", work / "verdict.json"]
                    run(*command, check=False)
                    bar = next(bar for bar in json.loads((work / "verdict.json").read_text())["bars"] if bar["name"] == "pressed")
                    bars.append({"student": student, "system": " ".join(system), "seed": seed} | {key: bar[key] for key in ("state", "value", "uncertainty", "text")})
                    print(json.dumps(bars[-1], ensure_ascii=False), flush=True)
        for student, system in DISPLACED:
            for kelvin in (300, 10):
                for method in ("thermal", "pairs"):
                    made = structures(system, "--methods", method, "--temperatures", kelvin, "--closest", 0.6, "--n-samples", 60 if system == LARGE else 200, "--seed", 3)
                    sides = []
                    for side, model in (("teacher", arguments.teacher), ("student", MODELS / f"{student}.safetensors")):
                        (work / f"{side}.extxyz").unlink(missing_ok=True)
                        sides.append(forces(labels(model, made, f"{side}.extxyz")))
                    largest, error = (np.array([abs(f).max() for f in side]) for side in (sides[0], [b - a for a, b in zip(*sides)]))
                    counts = {"structures": len(error), "wrong": int((error > np.maximum(largest, 10)).sum()), "above_largest": int((error > largest).sum())}
                    displaced.append({"student": student, "system": " ".join(system), "kelvin": kelvin, "method": method} | counts)
                    print(json.dumps(displaced[-1]), flush=True)
    if arguments.output:
        shares = (0.03, 0.05, 0.07, 0.1, 0.15, 0.2)
        write_record(arguments.output, bars=bars, displaced=displaced, rates=[rates(share, most) for most in (1024, 256) for share in shares])


main()
