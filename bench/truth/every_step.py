#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How often the profiler says what a calculator does in every step: every_step.py [RUNS] [LOAD] [RESULTS.json].

Each run profiles 120 steps of 2 ms of processor time, in which every step (or, of controls, none or every tenth) also does what is
planted. LOAD is the number of other programs that compute meanwhile. Printed for each plant: runs, those in which what was planted was
said, those in which something else was, and what was said of waits for a CPU.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import machine
import numpy as np
from ase.build import molecule
from ase.calculators.calculator import Calculator, all_changes
from plant import compute

from mlff_distiller.cuda.md_profiler import MDProfiler

SAID = {"off": "neither ran nor waited for a CPU", "child": "a child process ended", "files": "read or written"}
# What is to be said, and what may be.
PLANTS = {
    "sleep": ({"off"}, set()), "child": ({"child"}, {"off"}), "fsync": ({"files"}, {"off"}), "log": ({"files"}, set()),
    "lock": ({"off"}, set()), "thread": (set(), {"off"}),
    "clean": (set(), set()), "arrays": (set(), set()), "product": (set(), set()),
    "sleep-tenth": (set(), set()), "child-tenth": (set(), set()), "fsync-tenth": (set(), set()),
}  # fmt: skip


class Planted(Calculator):
    implemented_properties = ["energy", "forces"]

    def __init__(self, plant):
        super().__init__()
        self.plant, _, self.tenth = plant.partition("-")
        self.n_calls, self.stop, self.file = 0, False, tempfile.TemporaryFile("w")
        self.held = threading.Lock()
        if self.plant in ("thread", "lock"):
            self.thread = threading.Thread(target=getattr(self, f"run_{self.plant}"), daemon=True)
            self.thread.start()

    def run_thread(self):
        while not self.stop:
            sum(range(1000))

    def run_lock(self):
        while not self.stop:
            with self.held:
                time.sleep(4e-3)
            time.sleep(1e-4)

    def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
        super().calculate(atoms, properties, system_changes)
        self.n_calls += 1
        compute(2)
        if not self.tenth or self.n_calls % 10 == 0:
            getattr(self, f"plant_{self.plant}", lambda: None)()
        self.results = {"energy": 0.0, "forces": np.zeros((len(atoms), 3))}

    def plant_sleep(self):
        time.sleep(3e-3)

    def plant_lock(self):
        with self.held:
            pass

    def plant_child(self):
        os.system("true")

    def plant_fsync(self):
        self.file.write("x" * 4096)
        self.file.flush()
        os.fsync(self.file.fileno())

    def plant_log(self):
        for _ in range(400):
            self.file.write(f"step {self.n_calls} energy {np.pi!r}\n")
        self.file.flush()

    def plant_arrays(self):
        np.ones(1 << 20).copy()

    def plant_product(self):
        matrix = np.ones((200, 200))
        matrix @ matrix


def waits(sentences):
    for sentence in sentences:
        if "waited for a CPU in" in sentence:
            return "busy" if sentence.startswith("the machine is busy") else "own" if "hardly did" in sentence else "either"
    return "none"


def run(plant):
    calculator = Planted(plant)
    frames = [molecule("H2O") for _ in range(120)]
    for k, atoms in enumerate(frames):
        atoms.rattle(0.02, seed=k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = MDProfiler(device="cpu").profile_calculator(calculator, frames, split=False).data
    calculator.stop = True
    if hasattr(calculator, "thread"):
        calculator.thread.join()
    sentences = data["recommendations"]
    every = [sentence for sentence in sentences if sentence.startswith("in every step")]
    return {name for name, words in SAID.items() if every and words in every[0]}, waits(sentences)


def main():
    runs, load = int(sys.argv[1]) if len(sys.argv) > 1 else 20, int(sys.argv[2]) if len(sys.argv) > 2 else 0
    burners = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(load)]
    rows = {plant: {"runs": 0, "right": 0, "false": 0, "waits": collections.Counter()} for plant in PLANTS}
    try:
        for _ in range(runs):
            for plant, (expected, allowed) in PLANTS.items():
                said, wait = run(plant)
                row = rows[plant]
                row["runs"] += 1
                row["right"] += expected <= said
                row["false"] += bool(said - expected - allowed)
                row["waits"][wait] += 1
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    for plant, row in rows.items():
        print(f"{plant:12} {row['runs']:3} runs, right {row['right']:3}, false {row['false']:3}, waits {dict(row['waits'])}")
    if len(sys.argv) > 3:
        result = {**machine.described("shared"), "load": load, "load_average": os.getloadavg()[0], "rows": rows}
        pathlib.Path(sys.argv[3]).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
