#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training step of PaiNN (128 features, 3 layers) on the CPU, ours against PyTorch, interleaved: each round runs our bench, then the
peer, one thread each and then with all cores. Of one thread processor time is quoted, which other work on the machine disturbs little: medians
over rounds, structures a second and core, and the ratio to the peer's best batch. Of all cores it is wall time, which needs an idle machine, and the
peer's best batch and number of threads.

Usage: bench/cpu_train_peer.py --bench build/bin/bench_train --peer PAINN_TRAIN_TORCH.py [--rounds 3] [--python python3] [-o OUT.json]
The peer prints one JSON line a batch: {"case", "copies", "eager_ms"}; its time.perf_counter is replaced by time.process_time."""
import datetime
import json
import os
import statistics
import subprocess
import sys

from cpu_peer import common_arguments, lines, processor

BATCHES = ["ethanol10", "ethanol100"]
GOAL = 7
PEER = """import os, runpy, sys, time
import torch
torch.set_flush_denormal(True)  # as our steps do; 9 % faster on an Intel Xeon
if sys.argv[2] == "1":
    time.perf_counter = time.process_time
sys.argv = [sys.argv[1], "--cpu", sys.argv[2]]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")"""


def name_of(row):
    return f"{row['case']}, {row['features']} features, {row['layers']} layers"


def best_of(rates_of_cases):
    return max(statistics.median(rates) for rates in rates_of_cases.values())


def rounded(rates_of_cases):
    return {case: [round(x, 1) for x in rates] for case, rates in rates_of_cases.items()}


def main():
    a = common_arguments(__doc__).parse_args()
    with open("/proc/cpuinfo") as f:
        wide = "avx512f" in f.read()  # OpenBLAS does not know of itself that some processors have it
    # OpenBLAS's own threads beside PyTorch's: half as fast with two of each.
    environment = dict(os.environ, OPENBLAS_CORETYPE="SKYLAKEX" if wide else "HASWELL", OPENBLAS_NUM_THREADS="1")
    cores = len(os.sched_getaffinity(0))
    ours, peer, machine, machine_peer = {}, {}, {}, {}
    for number in range(a.rounds):
        for r in lines([a.bench, "--threads", "1"] + BATCHES):
            ours.setdefault(name_of(r), []).append(r["structures_per_cpu_s"])
        for r in lines([a.python, "-c", PEER, a.peer, "1"], environment):
            peer.setdefault(f"{r['case']}{r['copies']}", []).append(r["copies"] / r["eager_ms"] * 1e3)
        for r in lines([a.bench, "--threads", str(cores)] + BATCHES):
            machine.setdefault(name_of(r), []).append(r["structures_per_s"])
        for r in lines([a.python, "-c", PEER, a.peer, str(cores)], environment):
            machine_peer.setdefault(f"{r['case']}{r['copies']}", []).append(r["copies"] / r["eager_ms"] * 1e3)
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    best = best_of(peer)
    best_of_machine = max(best, best_of(machine_peer))
    rows = []
    for case, rates in ours.items():
        rows.append({"case": case, "structures_per_core_s": round(statistics.median(rates)), "rounds": rates,
                     "structures_per_s": round(statistics.median(machine[case])), "rounds_of_all_cores": machine[case]})
        if "128 features" in case:
            rows[-1].update(ratio_per_core=round(statistics.median(rates) / best, 2),
                            ratio=round(rows[-1]["structures_per_s"] / best_of_machine, 2), goal=GOAL)
        print(rows[-1])
    for threads, all_rates in ((1, peer), (cores, machine_peer)):
        for case, rates in all_rates.items():
            print(f"peer {case}, {threads} threads: {statistics.median(rates):.0f} structures a second")
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        with open(a.output, "w") as f:
            json.dump({"what": "PaiNN training step: structures per second of one core's processor time, one thread, and per second with all cores",
                       "date": str(datetime.date.today()), "processor": processor(), "cores": cores, "commit": commit,
                       "command": f"bench/cpu_train_peer.py --rounds {a.rounds}", "cases": rows,
                       "peer_structures_per_core_s": rounded(peer), "peer_structures_per_s": rounded(machine_peer)}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
