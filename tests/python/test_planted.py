# SPDX-License-Identifier: MIT
"""Statements of a report about calculators whose faults are planted: memory that waits for the garbage collector, growing steps."""

import collections
import gc
import os
import re
import threading
import time
import unittest
import warnings

import numpy as np
from ase.build import molecule
from ase.calculators.calculator import Calculator, all_changes

from mlff_distiller.cuda.md_profiler import MDProfiler


class Planted(Calculator):
    implemented_properties = ["energy", "forces"]

    def __init__(self, fault):
        super().__init__()
        self.fault, self.n_calls = fault, 0

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        self.fault(self.n_calls)
        self.n_calls += 1
        self.results = {"energy": 0.0, "forces": np.zeros((len(atoms), 3))}


class Node:
    pass


def profile(fault, n_steps):
    frames = [molecule("H2O") for _ in range(10)]
    for k, atoms in enumerate(frames):
        atoms.rattle(0.02, seed=k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MDProfiler(device="cpu").profile_calculator(Planted(fault), frames * (n_steps // 10))


class TestGarbage(unittest.TestCase):
    """1000 steps keep 600 objects in cycles of 2 kB: old ones wait for a full collection, which these thresholds put off."""

    def setUp(self):
        self.thresholds = gc.get_threshold()
        gc.set_threshold(700, 10, 10**7)
        self.addCleanup(gc.set_threshold, *self.thresholds)
        self.recent = collections.deque(maxlen=600)

    def cycles(self, n_calls):
        for _ in range(5):
            node = Node()
            node.itself, node.bytes = node, bytes(2000)
            self.recent.append(node)

    def verdicts(self, fault):
        return {row["name"]: row["leak"] for row in profile(fault, 1000).data["memory_ledgers"]}

    def test_waiting_for_a_collection(self):
        self.assertEqual(self.verdicts(self.cycles)["heap"], "uncollected garbage")

    def test_beside_a_leak(self):
        """A leak of a third of the growth is told, whatever the collector frees."""
        kept = []

        def both(n_calls):
            self.cycles(n_calls)
            kept.append(bytes(5000))

        self.assertEqual(self.verdicts(both)["heap"], "growing")

    def test_never_collected(self):
        gc.disable()
        self.addCleanup(gc.enable)
        self.assertEqual(self.verdicts(self.cycles)["heap"], "growing")

    def test_leak(self):
        kept = []
        self.assertEqual(self.verdicts(lambda n_calls: kept.append(bytes(10000)))["heap"], "growing")


class TestShares(unittest.TestCase):
    def test_nothing_is_more_than_the_step(self):
        """Steps that grow: calls measured after the run take longer than the median step, of which the parts are shares."""
        result = profile(lambda n_calls: time.sleep(2e-6 * n_calls), 400)
        for sentence in re.findall(r"(?:is|takes) \D{0,20}(\d+) %", " ".join(result.summary(full=True).split())):
            self.assertLessEqual(int(sentence), 100)
        data = result.data
        self.assertGreater(data["energy_time_ms"], data["median_latency_ms"])  # or the test shows nothing
        parts = [row["median_ms"] for row in data["stages"] if row["name"] in ("energy", "forces")]
        self.assertEqual(len(parts), 2)
        self.assertLessEqual(sum(parts), data["median_latency_ms"] * (1 + 1e-6))


class TestEveryStep(unittest.TestCase):
    """What is done in every step is said, as far as it was seen, and no advice about the model beside it."""

    def said(self, fault):
        sentences = profile(fault, 100).data["recommendations"]
        self.assertNotIn("gets faster by", " ".join(sentences))
        found = [sentence for sentence in sentences if sentence.startswith("in every step")]
        if found:
            self.assertNotIn("a lower precision", " ".join(sentences))
        return found[0] if found else ""

    def test_sleep(self):
        said = self.said(lambda n_calls: time.sleep(3e-3))
        self.assertIn("neither ran nor waited for a CPU", said)
        self.assertNotIn("a child process ended", said)
        self.assertNotIn("files, pipes", said)

    def test_child(self):
        self.assertIn("a child process ended in 100 of 100 steps", self.said(lambda n_calls: os.system("true")))

    def test_nothing(self):
        self.assertEqual(self.said(lambda n_calls: sum(range(10000))), "")

    def test_own_thread(self):
        """A thread that holds the interpreter lock makes no machine busy."""
        stop = threading.Event()
        thread = threading.Thread(target=lambda: collections.deque(iter(stop.is_set, True), maxlen=0))
        thread.start()
        try:
            result = profile(lambda n_calls: sum(range(10000)), 20)
        finally:
            stop.set()
            thread.join()
        tail = result.data["tail"]
        if tail["own_threads_cores"] >= 0.5 * tail["cpu_wait_share"]:  # else other programs had the cores, too
            self.assertNotIn("the machine is busy", " ".join(result.data["recommendations"]))


if __name__ == "__main__":
    unittest.main()
