#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How often a verdict's bars `structure` and `spectrum` are wrong.

The student is models/ethanol.safetensors; its teacher is the same model with energies and forces multiplied by a known factor, so that
vibrations are faster by its square root. With the factor 1 both bars should pass, with others fail. Other seeds give other runs.
    verdict_rates.py MLFF [--seeds N] [--jobs N] [-o RESULT.json]
"""
import argparse
import concurrent.futures
import json
import pathlib
import struct
import subprocess
import tempfile

from record import write_record

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
FACTORS = (1.0, 1.02, 1.05, 1.1)
LENGTHS_PS = (2, 6, 20)  # of each of the two


def scaled(source, factor, target):
    """A copy of a model whose energies are multiplied by `factor`."""
    data = source.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"]["energy_unit_ev"] = repr(float(header["__metadata__"]["energy_unit_ev"]) * factor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def judge(mlff, student, teacher, labels, length_ps, seed, output):
    """Bars of one verdict by name: (passed, value, limit)."""
    command = [mlff, "verdict", student, "--test", labels, "--teacher", teacher, "--system", "ethanol", "--nve", 0, "--hot", 0]
    command += ["--min-speed", 0, "--compare", length_ps, "--seed", seed, "--device", "cpu", "--threads", 1, "-q", "-o", output]
    subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, check=False)
    bars = json.loads(pathlib.Path(output).read_text())["bars"]
    return {bar["name"]: (bar["state"] == "passed", bar["value"], bar["limit"]) for bar in bars}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mlff")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    student = MODELS / "ethanol.safetensors"
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        work = pathlib.Path(folder)
        run = lambda *words: subprocess.run([arguments.mlff, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
        run("md", student, "--system", "ethanol", "--ensemble", "langevin", "--n-steps", 400, "--every", 40, "--device", "cpu", "-q", "-o", work / "frames.extxyz")
        run("label", student, work / "frames.extxyz", "--device", "cpu", "-q", "-o", work / "labels.extxyz")
        for factor in FACTORS:
            teacher = work / f"teacher-{factor}.safetensors"
            scaled(student, factor, teacher)
            for length in LENGTHS_PS:
                seeds = range(1, arguments.seeds + 1)
                results = list(
                    pool.map(lambda seed: judge(arguments.mlff, student, teacher, work / "labels.extxyz", length, 100 * seed, work / f"{seed}.json"), seeds)
                )
                row = {"factor": factor, "ps": length, "verdicts": len(results)}
                for name in ("structure", "spectrum"):
                    ratios = sorted(result[name][1] / result[name][2] for result in results)
                    row[name] = {"failed": sum(not result[name][0] for result in results), "median_of_limit": round(ratios[len(ratios) // 2], 3)}
                rows.append(row)
                print(json.dumps(row), flush=True)
    if arguments.output:
        write_record(arguments.output, permutation_test=rows)


main()
