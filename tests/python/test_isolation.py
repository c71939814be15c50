# SPDX-License-Identifier: MIT
"""Calculators in a process of their own: the same results, and a crash or a hang costs one structure."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import unittest
import warnings
from unittest import mock

import numpy as np
from ase.build import bulk
from ase.calculators.emt import EMT
from support import scratch, wrong_in_threads

from mlff_distiller.distill import Dataset, Teacher, label_with_calculator
from mlff_distiller.errors import MlffUsageError
from mlff_distiller.isolation import IsolatedCalculator


class Fragile(EMT):
    """EMT that crashes, hangs, ends or raises at structures that `info` names, or crashes and hangs far from the origin."""

    def calculate(self, atoms=None, *arguments, **keywords):
        x = atoms.positions[0, 0]
        fault = atoms.info.get("fault", "crash" if x > 50 else "hang" if x < -50 else None)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "hang":
            time.sleep(1000)
        elif fault == "end":
            os._exit(3)
        elif fault == "raise":
            raise ValueError("not this one")
        super().calculate(atoms, *arguments, **keywords)


FAULTS = {
    "crash": r"ended at this structure, with signal 11 \(Segmentation fault\)",
    "hang": "no answer of the calculator within 4 s",
    "end": "ended at this structure, with status 3",
    "raise": "ValueError: not this one",
}


def copper(faults):
    frames = []
    for seed, fault in enumerate(faults):
        atoms = bulk("Cu", cubic=True)
        atoms.rattle(0.05, seed=seed)
        if fault:
            atoms.info["fault"] = fault
        frames.append(atoms)
    return frames


class Isolation(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(multiprocessing.active_children(), [])  # none is left behind

    def test_results_are_the_calculators(self):
        (atoms,) = copper([None])
        atoms.calc = EMT()
        expected = atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()
        calculator = IsolatedCalculator(EMT(), timeout=60)
        atoms.calc = calculator
        self.assertEqual(atoms.get_potential_energy(), expected[0])
        np.testing.assert_array_equal(atoms.get_forces(), expected[1])
        np.testing.assert_array_equal(atoms.get_stress(), expected[2])
        (process,) = multiprocessing.active_children()
        for other in (copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
            self.assertEqual(other.get_potential_energy(atoms), expected[0])
            other.close()
        self.assertIn(process, multiprocessing.active_children())
        calculator.close()

    def test_ctrl_c_ends_the_process_without_a_word(self):
        case = """
import signal, time
from ase.build import bulk
from ase.calculators.emt import EMT
from mlff_distiller.isolation import IsolatedCalculator
class Slow(EMT):
    def calculate(self, *arguments):
        time.sleep(0.2)
        super().calculate(*arguments)
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
calculator = IsolatedCalculator(Slow())
atoms = bulk("Cu", cubic=True)
calculator.get_forces(atoms)
signal.setitimer(signal.ITIMER_REAL, 0.15)
try:
    atoms.rattle()
    calculator.get_forces(atoms)
except KeyboardInterrupt:
    print("interrupted")
"""
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        done = subprocess.run([sys.executable, "-c", case], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "interrupted\n", ""))

    def test_threads_share_it(self):
        calculator, frames = IsolatedCalculator(EMT()), copper([None] * 4)
        expected = [EMT().get_forces(atoms) for atoms in frames]
        wrong = wrong_in_threads(4, 30, lambda i: np.allclose(calculator.get_forces(frames[i]), expected[i], rtol=0, atol=1e-12))
        calculator.close()
        self.assertEqual(wrong, [])

    def test_a_fault_costs_one_structure(self):
        order = [None, "crash", None, "hang", "end", "raise", None]
        frames, path = copper(order), scratch("fragile.labels")
        calculator = IsolatedCalculator(Fragile(), timeout=4)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            done = label_with_calculator(calculator, frames, path, stress=True)
        self.assertEqual((done.n_labels, done.n_failed), (3, 4))
        told = [str(w.message) for w in caught if "skipped a structure" in str(w.message)]
        for fault, text in zip([fault for fault in order if fault], told):
            self.assertRegex(text, FAULTS[fault])
        data = Dataset.read(path)
        for found, atoms in zip(data, [atoms for atoms in frames if "fault" not in atoms.info]):
            atoms.calc = EMT()
            np.testing.assert_allclose(found.get_forces(), atoms.get_forces(), atol=1e-12)
            np.testing.assert_allclose(found.get_stress(), atoms.get_stress(), atol=1e-12)
        # The same teacher as without a process: nothing is left to be labelled.
        self.assertEqual(label_with_calculator(Fragile(), frames, path, stress=True).n_new, 0)
        calculator.close()

    def test_a_failure_leaves_nothing_stale(self):
        good, bad = copper([None, "raise"])
        calculator = IsolatedCalculator(Fragile(), timeout=60)
        calculator.calculate(good, ["energy"])
        self.assertIn("energy", calculator.results)
        with self.assertRaisesRegex(RuntimeError, "not this one"):
            calculator.calculate(bad, ["energy"])
        self.assertEqual(calculator.results, {})
        with self.assertRaisesRegex(RuntimeError, "not this one"):
            calculator.get_property("energy", bad)
        calculator.close()

    def test_labels_are_not_locked(self):
        path = scratch("twice.labels")
        with open(__file__, "rb"):  # whose descriptor the file of labels gets
            calculator = IsolatedCalculator(EMT(), timeout=60)
        frames = copper([None, None])
        self.assertEqual(label_with_calculator(calculator, frames[:1], path).n_new, 1)
        self.assertEqual(label_with_calculator(calculator, frames, path).n_new, 1)
        calculator.close()

    def test_as_teacher(self):
        frames = copper([None] * 4)
        frames[1].positions += 100
        frames[2].positions -= 100
        calculator = IsolatedCalculator(Fragile(), timeout=4)
        teacher = Teacher(calculator)
        self.assertEqual(teacher.hash, Teacher(Fragile()).hash)
        found = teacher.compute(frames)
        self.assertEqual([one.problem == "" for one in found], [True, False, False, True])
        self.assertRegex(found[1].problem, FAULTS["crash"])
        self.assertRegex(found[2].problem, FAULTS["hang"])
        for one, atoms in zip((found[0], found[3]), (frames[0], frames[3])):
            atoms.calc = EMT()
            np.testing.assert_allclose(one.forces, atoms.get_forces(), atol=1e-12)
        calculator.close()

    def test_no_process(self):
        (atoms,) = copper([None])
        atoms.calc = IsolatedCalculator(EMT(), timeout=60)
        with mock.patch("os.fork", side_effect=BlockingIOError("no more processes")), self.assertRaises(BlockingIOError):
            atoms.get_potential_energy()
        self.assertTrue(np.isfinite(atoms.get_potential_energy()))
        atoms.calc.close()

    def test_bad_input(self):
        with self.assertRaisesRegex(TypeError, "ASE calculator"):
            IsolatedCalculator("EMT")
        for timeout in (0, -1, float("nan")):
            with self.assertRaisesRegex(MlffUsageError, "timeout"):
                IsolatedCalculator(EMT(), timeout=timeout)


if __name__ == "__main__":
    unittest.main()
