#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An ASE calculator with a known cause of slow steps, profiled: plant.py CAUSE REPORT.json [--steps N] [--every K] [--work US]
[--plant US] [--wait].

A usual step computes for --work µs (500) of processor time; every K-th (10) also does what CAUSE says, for --plant µs (5000) where it
is a matter of time. bench/truth/run counts what the profiler names.
"""

import argparse
import gc
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from mlff_distiller.cuda.md_profiler import MDProfiler


def compute(ms):
    """Computes for so long, in processor time of this thread."""
    end = time.thread_time() + 1e-3 * ms
    while time.thread_time() < end:
        pass


class Planted(Calculator):
    implemented_properties = ["energy", "forces"]

    def __init__(self, cause, every, work_ms, plant_ms):
        super().__init__()
        self.cause, self.every, self.n_calls, self.kept = cause, every, 0, []
        self.work_ms, self.plant_ms = work_ms, plant_ms
        self.garbage = [[i] for i in range(60000)] if cause == "gc" else []
        self.lock, self.wanted, self.taken = threading.Lock(), threading.Event(), threading.Event()
        if cause == "lock":
            threading.Thread(target=self.hold, daemon=True).start()

    def hold(self):
        while True:
            self.wanted.wait()
            self.wanted.clear()
            with self.lock:
                self.taken.set()
                compute(self.plant_ms)

    def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
        super().calculate(atoms, properties, system_changes)
        self.n_calls += 1
        compute(self.work_ms)
        if self.n_calls % self.every == 0:
            getattr(self, f"plant_{self.cause}", lambda: None)()
        getattr(self, f"always_{self.cause.replace('-', '_')}", lambda: None)()
        self.results = {"energy": 1.0, "forces": np.zeros((len(atoms), 3))}

    def plant_sleep(self):
        time.sleep(1e-3 * self.plant_ms)

    def plant_work(self):
        compute(self.plant_ms)

    def plant_gc(self):
        gc.collect()

    def plant_faults(self):
        with mmap.mmap(-1, 8 << 20) as block:
            for i in range(0, 8 << 20, mmap.PAGESIZE):
                block[i] = 1

    def plant_files(self):
        with tempfile.TemporaryFile() as file:
            file.write(bytes(2 << 20))
            file.flush()
            os.fsync(file.fileno())

    def plant_lock(self):
        self.taken.clear()
        self.wanted.set()
        self.taken.wait()
        with self.lock:
            pass

    def plant_threads(self):
        thread = threading.Thread(target=compute, args=(self.plant_ms,))
        thread.start()
        thread.join()

    def plant_arrays(self):
        np.ones(5 << 20)  # beyond what malloc keeps for reuse

    def plant_child(self):
        subprocess.run(["/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"], check=True)

    def always_leak(self):
        self.kept.append(bytearray(4096))

    # Clean controls differ in what a healthy calculator may do in every step.
    def always_clean_objects(self):
        [[i] for i in range(200)]

    def always_clean_arrays(self):
        np.ones(2000).sum()

    def always_clean_vary(self):
        compute(0.05 * self.work_ms * (self.n_calls * 7 % 5))

    def always_clean_dict(self):
        self.last = {"step": self.n_calls, "text": str(self.n_calls)}


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("cause")
    parser.add_argument("report")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--work", type=float, default=500)
    parser.add_argument("--plant", type=float, default=5000)
    parser.add_argument("--wait", action="store_true", help="begin at a line of input, once all modules are loaded")
    options = parser.parse_args(arguments)
    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    warnings.simplefilter("ignore")
    a = 3.6
    atoms = Atoms("Cu4", scaled_positions=[(0, 0, 0), (0, 0.5, 0.5), (0.5, 0, 0.5), (0.5, 0.5, 0)], cell=[a, a, a], pbc=True)
    calculator = Planted(options.cause, options.every, 1e-3 * options.work, 1e-3 * options.plant)
    MDProfiler(device="cpu").profile_calculator(calculator, atoms, n_steps=options.steps, split=False).save_json(options.report)


if __name__ == "__main__":
    main()
