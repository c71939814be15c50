# SPDX-License-Identifier: MIT
"""Purpose: an object of the C library exists as long as anything in Python uses it and is destroyed once: for copies, cycles, objects
whose owner is gone, failed constructors and ends called by hand. Each case runs in a process of its own, since it may crash."""

import gc
import os
import subprocess
import sys
import unittest
from unittest import mock

import support
from mlff_distiller import MlffError
from mlff_distiller import _library as lib
from mlff_distiller._bridge import system_from_atoms
from mlff_distiller._handles import Handle

BEGIN = """
import copy, gc, threading
import support
from mlff_distiller.distill import Dataset, Teacher
from mlff_distiller.dynamics import Dynamics, Replicas
from mlff_distiller.engine import Evaluator, Model
from mlff_distiller.errors import MlffError
atoms = support.ethanol_frames(1)[0]

def model():
    return Model.create("painn", elements="H,C,O", n_features=16, n_layers=1, cutoff=4.0, seed=7)

def evaluator():
    return Evaluator(model(), device="cpu", n_threads=1)

def dynamics():
    return Dynamics(atoms, model(), device="cpu", n_threads=1)

def end(thing):
    try:
        thing.__del__()
    except AttributeError:
        pass  # nothing to be ended by hand
"""


def run(case):
    """The case's exit status and its last line. Freed memory is overwritten, so that its use is seen."""
    environment = dict(os.environ, MALLOC_PERTURB_="165", MALLOC_CHECK_="3", PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", BEGIN + case], env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


class Lifetimes(unittest.TestCase):
    def good(self, case):
        self.assertEqual(run(case), (0, ""))

    def test_ended_by_hand(self):
        for make, use in (
            ("model()", "x.info, x.metadata"),
            ("evaluator()", "x.info, x.stages, x.compute(atoms.numbers, atoms.positions)"),
            ("dynamics()", "x.run(2)"),
            ("Replicas([atoms, atoms], model(), device='cpu', n_threads=1)", "x.run(2)"),
            ("Dataset([])", "len(x)"),
            ("Teacher(model(), device='cpu', n_threads=1)", "x.name"),
        ):
            with self.subTest(make):
                self.good(f"x = {make}\nend(x)\n{use}\nend(x)\ndel x\n")

    def test_lent_object_ended_by_hand(self):
        self.good("x = dynamics()\nend(x.evaluator.model)\nend(x.evaluator)\nx.run(2)\n")

    def test_copies(self):
        self.good("x = evaluator()\ny = copy.copy(x)\ndel x\ngc.collect()\ny.compute(atoms.numbers, atoms.positions)\n")
        self.good("x = dynamics()\ny = copy.copy(x)\ndel x\ngc.collect()\ny.run(2)\n")
        self.good("x = model()\ny, z = copy.copy(x), copy.deepcopy(x)\ndel x\ny.info, z.info\n")

    def test_replica_without_its_owner(self):
        self.good("x = Replicas([atoms, atoms], model(), device='cpu', n_threads=1)[1]\ngc.collect()\nx.positions, x.step, x.error\n")

    def test_cycles(self):
        self.good("for _ in range(20):\n    x = dynamics()\n    x.run(2)\n    x.evaluator.me = x.evaluator.model.me = x\n    del x\ngc.collect()\n")

    def test_alive_at_the_end_of_the_interpreter(self):
        self.good("support.kept = [dynamics(), evaluator()]\nsupport.kept.append(support.kept)\n")

    def test_failed_constructor(self):
        self.good(
            "for make in (lambda: Dynamics(atoms, model(), device='cpu', timestep_fs=-1),\n"
            "             lambda: Evaluator(model(), device='cpu', cpu_path='none')):\n"
            "    try:\n        make()\n        raise SystemExit('no error')\n    except MlffError:\n        gc.collect()\n"
        )

    def test_ended_while_another_thread_computes(self):
        self.good(
            "x = evaluator()\nnumbers, positions = list(atoms.numbers) * 100, []\n"
            "for k in range(100):\n    positions += (atoms.positions + [10.0 * k, 0, 0]).tolist()\n"
            "def work():\n    for _ in range(5):\n        x.compute(numbers, positions)\n"
            "t = threading.Thread(target=work)\nt.start()\nend(x)\nt.join()\n"
        )


class Handles(unittest.TestCase):
    def test_borrowed_objects_end_last(self):
        ended = []
        lent = Handle(ended.append, address=1)
        middle = Handle(ended.append, lent, address=2)
        user = Handle(ended.append, lent, middle, address=3)
        lent.__del__()  # as the collector may for a cycle: the lent one first
        middle.__del__()
        self.assertEqual(ended, [])
        del user, middle, lent
        gc.collect()
        self.assertEqual(ended, [3, 2, 1])

    def test_system_of_atoms_that_are_refused(self):
        atoms = support.ethanol_frames(1)[0]
        atoms.info["charge"] = "a"
        destroy = lib.core.mlff_system_destroy
        with mock.patch.object(lib.core, "mlff_system_destroy", side_effect=destroy) as ended:
            with self.assertRaises(MlffError):
                system_from_atoms(atoms, 0)
            gc.collect()
        self.assertEqual(ended.call_count, 1)

    def test_empty_handle_ends_nothing(self):
        ended = []
        Handle(ended.append)
        gc.collect()
        self.assertEqual(ended, [])


if __name__ == "__main__":
    unittest.main()
