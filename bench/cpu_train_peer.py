#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training step of PaiNN (128 features, 3 layers) on the CPU, ours against PyTorch, interleaved: each round runs our bench, then the
peer, one thread each. Quoted is processor time, which other work on the machine disturbs little: medians over rounds, structures a
second and core, and the ratio to the peer's best batch.

Usage: bench/cpu_train_peer.py --bench build/bin/bench_train --peer PAINN_TRAIN_TORCH.py [--rounds 3] [--python python3] [-o OUT.json]
The peer prints one JSON line a batch: {"case", "copies", "eager_ms"}; its time.perf_counter is replaced by time.process_time."""
import datetime
import json
import os
import statistics
import subprocess
import sys

from cpu_peer import arguments, lines, processor

BATCHES = ["ethanol10", "ethanol100"]
GOAL = 7
PEER = """import os, runpy, sys, time
import torch
torch.set_flush_denormal(True)  # as our steps do; 9 % faster on an Intel Xeon
time.perf_counter = time.process_time
sys.argv = [sys.argv[1], "--cpu", "1"]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")"""


def main():
    a = arguments(__doc__)
    with open("/proc/cpuinfo") as f:
        wide = "avx512f" in f.read()  # OpenBLAS does not know of itself that some processors have it
    environment = dict(os.environ, OPENBLAS_CORETYPE="SKYLAKEX" if wide else "HASWELL")
    ours, peer = {}, {}
    for number in range(a.rounds):
        for r in lines([a.bench, "--threads", "1"] + BATCHES):
            ours.setdefault(f"{r['case']}, {r['features']} features, {r['layers']} layers", []).append(r["structures_per_cpu_s"])
        for r in lines([a.python, "-c", PEER, a.peer], environment):
            peer.setdefault(f"{r['case']}{r['copies']}", []).append(r["copies"] / r["eager_ms"] * 1e3)
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    best = max(statistics.median(rates) for rates in peer.values())
    rows = []
    for case, rates in ours.items():
        rows.append({"case": case, "structures_per_core_s": round(statistics.median(rates)), "rounds": rates})
        if "128 features" in case:
            rows[-1].update(ratio=round(statistics.median(rates) / best, 2), goal=GOAL)
        print(rows[-1])
    for case, rates in peer.items():
        print(f"peer {case}: {statistics.median(rates):.0f} structures a second and core")
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        with open(a.output, "w") as f:
            json.dump({"what": "PaiNN training step, structures per second of one core's processor time, one thread",
                       "date": str(datetime.date.today()), "processor": processor(), "cores": os.cpu_count(), "commit": commit,
                       "command": f"bench/cpu_train_peer.py --rounds {a.rounds}", "cases": rows,
                       "peer_structures_per_core_s": {case: [round(x, 1) for x in rates] for case, rates in peer.items()}}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
