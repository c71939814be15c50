#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How often a verdict's bars `speed` and `speed.batch` are on the wrong side of their limit.

models/ethanol.safetensors beside itself, a ratio of 1, with limits of 0.9 and 0.95, which it should pass, and 1.05 and 1.1, which it should
fail, while BUSY programs compute. Other programs may run too.
    speed_sides.py MLFF [--verdicts N] [--busy N] [-o RESULT.json]
"""
import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

from record import write_record

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/ethanol.safetensors"
LIMITS = (0.9, 0.95, 1.05, 1.1)


def bars_of(mlff, labels, limit, output):
    command = [mlff, "verdict", MODEL, "--test", labels, "--teacher", MODEL, "--system", "ethanol", "--nve", 0, "--hot", 0, "--compare", 0]
    command += ["--min-speed", limit, "--device", "cpu", "--threads", 1, "-q", "-o", output]
    subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, check=False)
    return [bar for bar in json.loads(output.read_text())["bars"] if bar["name"].startswith("speed")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mlff")
    parser.add_argument("--verdicts", type=int, default=12, help="for each limit")
    parser.add_argument("--busy", type=int, default=0, help="programs that compute beside")
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(arguments.busy)]
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            run = lambda *words: subprocess.run([arguments.mlff, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
            run("md", MODEL, "--system", "ethanol", "--n-steps", 100, "--every", 10, "--device", "cpu", "-q", "-o", work / "frames.extxyz")
            run("label", MODEL, work / "frames.extxyz", "--device", "cpu", "-q", "-o", work / "labels.extxyz")
            for limit in LIMITS:
                states, farthest = collections.Counter(), 0
                for _ in range(arguments.verdicts):
                    for bar in bars_of(arguments.mlff, work / "labels.extxyz", limit, work / "verdict.json"):
                        states[bar["state"]] += 1
                        farthest = max(farthest, abs(bar["value"] - 1))
                rows.append({"limit": limit, "busy": arguments.busy, **states, "ratio_off_by_at_most": round(farthest, 3)})
                print(json.dumps(rows[-1]), flush=True)
    finally:
        for program in busy:
            program.kill()
    if arguments.output:
        write_record(arguments.output, rows=rows)


main()
