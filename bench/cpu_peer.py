#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PaiNN on the CPU, ours against PyTorch eager, interleaved: each round runs our bench with 1 and 2 threads, then the
peer with 1 and 2 threads. Quoted are medians over rounds and their ratio, the peer's better thread count against ours. Ours runs in each of
--precisions (float32; tf32 on processors with AMX, which has 16 bits there), the peer in float32.

Usage: bench/cpu_peer.py --bench build/bin/bench_painn --peer PAINN_TORCH.py [--rounds 3] [--python python3] [--precisions float32,tf32] [-o OUT.json]
The peer prints one JSON line a case: {"case", "copies", "threads", "eager_ef_ms"}."""
import argparse, datetime, json, os, platform, statistics, subprocess, sys

CASES = ["benzene", "si64", "si512"]
GOALS = {"benzene": 30, "si64": 45, "si512": 60}


def lines(command, environment=None):
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def common_arguments(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output")
    return parser


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--precisions", default="float32")
    a = parser.parse_args()
    precisions = a.precisions.split(",")
    environment = dict(os.environ, OPENBLAS_CORETYPE="SKYLAKEX")
    ours, peer = {}, {}
    for number in range(a.rounds):
        for threads in (1, 2):
            for precision in precisions:
                for r in lines([a.bench, "--threads", str(threads), "--precision", precision] + CASES, environment):
                    ours.setdefault((r["case"], precision, threads), []).append(r["median_ms"])
            for r in lines([a.python, a.peer, "--cpu", str(threads)], environment):
                if r["copies"] == 1:
                    peer.setdefault((r["case"], threads), []).append(r["eager_ef_ms"])
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    rows = []
    for case, precision in ((case, precision) for case in CASES for precision in precisions):
        mine = {t: statistics.median(ours[case, precision, t]) for t in (1, 2)}
        theirs = {t: statistics.median(peer[case, t]) for t in (1, 2)}
        best = min(theirs.values())
        rows.append({"case": case, "precision": precision, "ours_ms": mine, "peer_ms": theirs, "ratio": best / mine[2],
                     "ratio_one_thread": theirs[1] / mine[1], "goal": GOALS[case], "ours_rounds": [ours[case, precision, t] for t in (1, 2)],
                     "peer_rounds": [peer[case, t] for t in (1, 2)]})  # fmt: skip
        print(f"{case:8s} {precision:8s} ours {mine[1]:8.3f} / {mine[2]:8.3f} ms (1 / 2 threads)   peer {theirs[1]:8.2f} / {theirs[2]:8.2f} ms   "
              f"ratio {best / mine[2]:5.1f} (goal {GOALS[case]})")  # fmt: skip
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
        with open(a.output, "w") as f:
            json.dump({"what": "PaiNN F=128 L=3, energy + forces, neighbor list included in ours", "date": str(datetime.date.today()),
                       "processor": processor(), "cores": os.cpu_count(), "commit": commit,
                       "command": f"bench/cpu_peer.py --rounds {a.rounds} --precisions {a.precisions}", "cases": rows}, f, indent=1)


if __name__ == "__main__":
    main()
