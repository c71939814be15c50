# SPDX-License-Identifier: MIT
"""Purpose: wrong types, shapes, numbers and texts end in a Python exception of one line; nothing wraps around, nothing is cut off,
nothing crashes, also where several threads use one object."""

import json
import os
import subprocess
import sys
import unittest

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator

import support
from mlff_distiller.analysis import analyze, vibrations
from mlff_distiller.cuda.md_profiler import MDProfiler
from mlff_distiller.distill import Dataset, Teacher, label, sample, select
from mlff_distiller.dynamics import Dynamics, Replicas
from mlff_distiller.engine import Evaluator, Model
from mlff_distiller.errors import MlffError, MlffFormatError, MlffUsageError, MlffValueError
from mlff_distiller.models import StudentCalculator
from mlff_distiller.relaxation import relax
from mlff_distiller.training import Trainer, distill, read_history

NAN, INF = float("nan"), float("inf")
BIG = (2**70, 2**63, -(2**63) - 1)  # beyond every whole number of C


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.atoms = support.ethanol_frames(1)[0]
        cls.model = support.untrained()
        cls.evaluator = Evaluator(cls.model, device="cpu", n_threads=1)
        cls.wild = cls.atoms.copy()
        cls.wild.positions[1, 1] = NAN

    def refused(self, function, *arguments, **named):
        with self.subTest(f"{getattr(function, '__qualname__', function)} {str(arguments)[:60]} {str(named)[:60]}"):
            with self.assertRaises((MlffError, TypeError, ValueError, IndexError, OSError)) as caught:
                function(*arguments, **named)
            self.assertRegex(str(caught.exception), r"^[^\n]+\Z")

    def test_arrays(self):
        n, p = self.atoms.numbers, self.atoms.positions
        for numbers in ([], None, "abc", n.astype(complex), n.astype(object), n[:3], -n, n * 0, n + 200, n * 0 + 2**40,
                        n.astype(np.uint64) + np.uint64(2**63), n.astype(float), [[1, 2], [3]]):  # fmt: skip
            self.refused(self.evaluator.compute, numbers, p)
        for positions in (None, "abc", p[:3], p.T, p.astype(complex), p * NAN, p * INF, p * 1e300, p * 0, [[1, 2], [3]], np.zeros((0, 3))):
            self.refused(self.evaluator.compute, n, positions)
        for cells in (5, np.eye(4), np.zeros((0, 3, 3)), np.zeros((3, 3)), np.eye(3) * NAN, np.eye(3) * 1e308, np.eye(3) * 1e-300, np.eye(3) * 1e-3):
            self.refused(self.evaluator.compute, n, p, cells=cells, periodic=[True] * 3)
        for periodic in ("xyz", [1, 1], [1, 1, 1]):
            self.refused(self.evaluator.compute, n, p, periodic=periodic)
        for first in ([0, 3, 2, 9], [0, 2**31 - 1], [0, 2**40], [-5, 9], [0, -9], [0], [], [0, 0, 9, 9], [0, 100], [1, 9], 9, [0.0, 9.0],
                      [0] + [9] * 100000):  # fmt: skip
            self.refused(self.evaluator.compute, n, p, first_atom=first)
        for wrong in ("a", [1, 2], [[1]]):
            self.refused(self.evaluator.compute, n, p, charges=wrong)
            self.refused(self.evaluator.compute, n, p, spins=wrong)
        self.refused(self.evaluator.compute_on_device, n, p)

    def test_masked_arrays(self):
        """Numbers below a mask mean nothing; an array of numpy.ma without masked entries is one like others."""

        def masked(array, at=1):
            out = np.ma.array(array, copy=True)
            out[at] = np.ma.masked
            return out

        n, p = self.atoms.numbers, self.atoms.positions
        whole = self.evaluator.compute(n, p)["forces"]
        given = self.evaluator.compute(np.ma.array(n), np.ma.array(p), charges=np.ma.array([0.0]))["forces"]
        self.assertTrue((given == whole).all())
        held = self.atoms.copy()
        held.arrays["positions"] = masked(p, (1, 2))
        heavy = self.atoms.copy()
        heavy.set_masses(heavy.get_masses())
        heavy.arrays["masses"] = masked(heavy.arrays["masses"])

        class Lacking(Calculator):  # whose forces have a gap
            implemented_properties = ["energy", "forces"]

            def calculate(self, atoms=None, properties=(), system_changes=()):
                super().calculate(atoms, properties, system_changes)
                self.results = {"energy": 0.0, "forces": masked(whole)}

        gap = self.atoms.copy()
        gap.calc = Lacking()
        gap.get_potential_energy()
        for what, function, arguments, named in (
            ("numbers: 1 of 9", self.evaluator.compute, (masked(n), p), {}),
            ("positions: 3 of 27", self.evaluator.compute, (n, masked(p)), {}),
            ("positions: 1 of 3", self.evaluator.compute, (n, [*p[:8], masked(p[8])]), {}),
            ("positions: 1 of 27", StudentCalculator(self.model, device="cpu").get_potential_energy, (held,), {}),
            ("positions: 1 of 27", Dataset().add, (held, 1.0), {}),
            ("masses: 1 of 9", Dynamics, (heavy, self.model), {"device": "cpu"}),
            ("cells: 3 of 9", self.evaluator.compute, (n, p), {"cells": masked(np.eye(3) * 20), "periodic": [True] * 3}),
            ("periodic: 1 of 3", self.evaluator.compute, (n, p), {"cells": np.eye(3) * 20, "periodic": masked([True] * 3)}),
            ("charges: 1 of 1", self.evaluator.compute, (n, p), {"charges": masked([0.0], 0)}),
            ("first_atom: 1 of 2", self.evaluator.compute, (n, p), {"first_atom": masked([0, 9])}),
            ("forces: 3 of 27", Dataset().add, (self.atoms, 1.0, masked(whole)), {}),
            ("forces: 3 of 27", Dataset().add, (gap,), {}),
            ("stress: 1 of 6", Dataset().add, (self.atoms, 1.0, whole, masked(np.zeros(6))), {}),
            ("temperature: 1 of 2", Replicas, ([self.atoms] * 2, self.model), {"temperature": masked([300.0, 400.0]), "device": "cpu"}),
            ("Lacking gave forces: 3 of 27", MDProfiler("cpu", warmup_steps=0).profile_calculator, (gap.calc, [self.atoms] * 2), {}),
        ):
            with self.subTest(what):
                with self.assertRaisesRegex((MlffUsageError, MlffValueError), f"^{what} numbers are masked; fill them in .*, or leave them out"):
                    function(*arguments, **named)

    def test_models(self):
        for path in (None, 3, "", "\0abc", "/", "/proc/self/mem", "/dev/null", "/dev/zero", "a" * 100000, "\ud800"):
            self.refused(Model.load, path)
            self.refused(Model.import_ani, path)
            self.refused(Evaluator, path)
        for name in (None, 5, "", "painn\0"):
            self.refused(Model.create, name)
        for setting in ({"n_features": BIG[0]}, {"n_features": -1}, {"n_features": NAN}, {"n_layers": 10**9}, {"cutoff": NAN}, {"cutoff": 1e300},
                        {"elements": "Xx"}, {"elements": "H\0C"}, {"elements": ["H"] * 1000}, {"seed": BIG[0]}, {"n\0layers": 1},
                        {"x" * 10000: 1}, {f"k{k}": 1 for k in range(1000)}):  # fmt: skip
            self.refused(Model.create, "painn", **setting)
        for unit in (None, 5, "furlong", "eV\0"):
            self.refused(Model.import_schnetpack, support.untrained_path(), unit)
        for path in (None, "/", "/nonexistent/x.safetensors", ""):
            self.refused(self.model.save, path)
        for wrong in ({"device": "cuda:99999999999999999999"}, {"device": ""}, {"device": "cpu\0"}, {"precision": None}, {"precision": ["float32"]},
                      {"skin": NAN}, {"skin": "a"}, {"skin": None}, {"skin": 1e6}, {"n_threads": 1.5}, {"n_threads": "2"}, {"n_threads": None},
                      {"n_threads": 2**32}, {"cpu_path": 5}, {"cpu_path": "\0"}, {"cpu_path": "x" * 10000}, {"members": []}, {"members": 5},
                      {"members": "abc"}, {"members": [2**63]}):  # fmt: skip
            self.refused(Evaluator, self.model, **{"device": "cpu", **wrong})

    def test_a_text_is_not_cut_off(self):
        folder = support.scratch("nul")
        folder.mkdir()
        self.refused(self.model.save, folder / "model.safetensors\0.txt")
        self.refused(label, self.model, [self.atoms], f"{folder}/x\0.labels")
        self.refused(distill, self.model, "h2o", f"{folder}/run\0")
        self.assertEqual(os.listdir(folder), [])

    def test_dynamics(self):
        for wrong in ({"timestep_fs": NAN}, {"timestep_fs": "a"}, {"timestep_fs": -1}, {"timestep_fs": 1e300}, {"temperature": NAN},
                      {"temperature": -5}, {"temperature": None}, {"seed": -1}, {"seed": BIG[0]}, {"seed": "a"}, {"ensemble": "abc"},
                      {"ensemble": ["nve"]}, {"ramp": 5}, {"ramp": (1,)}, {"ramp": (NAN, 10), "ensemble": "langevin"},
                      {"ramp": (300, 2**80), "ensemble": "langevin"}, {"ramp": (500, 0), "ensemble": "langevin"}, {"ramp": (500, -5), "ensemble": "langevin"}, {"friction_per_fs": NAN}, {"friction_per_fs": -1},
                      {"ensemble": "bussi", "thermostat_fs": NAN}, {"ensemble": "scr"}):  # fmt: skip
            self.refused(Dynamics, self.atoms, self.model, **{"device": "cpu", **wrong})
        for atoms in (None, Atoms(), self.wild):
            self.refused(Dynamics, atoms, self.model, device="cpu")
            self.refused(Replicas, [atoms], self.model, device="cpu")
            self.refused(vibrations, atoms, self.model)
        self.refused(Replicas, [], self.model, device="cpu")
        self.refused(Replicas, None, self.model, device="cpu")
        self.refused(Replicas, [self.atoms], self.model, temperature=[300, 400], device="cpu")
        one = Dynamics(self.atoms, self.model, device="cpu", n_threads=1)
        many = Replicas([self.atoms] * 2, self.model, device="cpu", n_threads=1)
        for steps in (-1, *BIG, 1.5, "a", None):
            self.refused(one.run, steps)
            self.refused(many.run, steps)
        for index in (-3, 2, *BIG, "a", slice(1)):
            self.refused(many.__getitem__, index)
        for path in (None, "", "/", "\0", "/dev/null"):
            self.refused(one.restore, path)
        self.assertEqual(one.step, 0)

    def test_relaxation(self):
        for wrong in ({"max_steps": -1}, {"max_steps": BIG[0]}, {"max_steps": "a"}, {"fmax": NAN}, {"fmax": "a"}, {"batch": 2**40}, {"batch": -3},
                      {"pressure": NAN}, {"optimizer": "abc"}):  # fmt: skip
            self.refused(relax, [self.atoms], self.model, **{"device": "cpu", **wrong})
        self.refused(relax, None, self.model)
        self.refused(relax, [None], self.model)
        failed = relax([self.wild], self.model, device="cpu")[0]
        self.assertEqual(failed.end, "failed")
        self.assertIn("atom 1", failed.error)

    def test_data(self):
        for teacher in (None, 5, object(), "", "xtb:", "xtb:abc"):
            self.refused(Teacher, teacher)
        for wrong in ({"n_threads": 2**40}, {"n_threads": -1}, {"n_threads": "a"}, {"timeout": "a"}, {"precision": None}):
            self.refused(Teacher, self.model, **{"device": "cpu", **wrong})
        teacher = Teacher(self.model, device="cpu", n_threads=1)
        for frames in (None, [None], [self.wild], [Atoms()], self.atoms):
            self.refused(teacher.compute, frames)
            self.refused(label, teacher, frames, support.scratch("refused.labels"))
        for wrong in ({"n_samples": -1}, {"n_samples": BIG[0]}, {"n_samples": "a"}, {"n_samples": 1.5}, {"temperatures": []}, {"temperatures": [NAN]},
                      {"temperatures": ["a"]}, {"temperatures": 5}, {"methods": ["abc"]}, {"methods": 5}, {"seed": BIG[0]}, {"rattle_angstrom": NAN},
                      {"rattle_angstrom": "a"}, {"oversample": 1e300}):  # fmt: skip
            self.refused(sample, teacher, [self.atoms], **{"n_samples": 4, **wrong})
        for seeds in (None, [], [None], [self.wild]):
            self.refused(sample, teacher, seeds, n_samples=4)
        for n in (-1, BIG[0], "a"):
            self.refused(select, [self.atoms], n)
        for share in (NAN, -1, 2, "a"):
            self.refused(Dataset([]).split, share)
        for index in (0, -1, BIG[0], "a"):
            self.refused(Dataset([]).__getitem__, index)
        for path in (None, "", "/", "/dev/null", "\0"):
            self.refused(Dataset.read, path)
            self.refused(analyze, path)
        self.refused(analyze, [self.wild] * 4, frame_fs=0.5)
        for frames in (None, [None], ["a"], 5):
            self.refused(Dataset, frames)
        for data in (None, [self.atoms], Dataset([])):
            self.refused(Trainer, self.model, data)
        self.refused(Trainer, "model.safetensors", Dataset([]))
        for wrong in ({"charge": NAN}, {"spin": INF}, {"charge": "a"}):
            charged = self.atoms.copy()
            charged.info.update(wrong)
            self.refused(Teacher(self.model, device="cpu", n_threads=1).compute, [charged])
        for wrong in ({"n_structures": 2**40}, {"n_structures": NAN}, {"nonsense": 1}, {"struct_size": 1}, {"preset": "abc"}, {"optimizer": 5}):
            self.refused(distill, self.model, "h2o", support.scratch("refused.run"), **wrong)

    def test_numbers_beyond_those_of_c(self):
        for number in BIG[:2]:
            numbered = self.atoms.copy()
            numbered.info["group"] = number
            self.refused(Dataset().add, numbered, 1.0)
        data = Dataset()
        data.add(self.atoms, 1.0, np.zeros((9, 3)))
        trainer = Trainer(self.model, data, n_steps=1, device="cpu", n_threads=1)
        for frame in (2**64, 0.0, "a"):
            self.refused(trainer.gradient, [frame])

    def test_history(self):
        path = support.scratch("history.jsonl")
        good = json.dumps({"step": 1, "training": {"loss": 1.0, "force_mae_ev_per_ang": None}, "validation": {}})
        path.write_text(f"{good}\n{good}\n")
        self.assertEqual(read_history(path)["training_loss"].tolist(), [1, 1])
        # A run that began on a GPU, which does not tell elements apart, and went on on a CPU.
        of_cpu = good.replace('"validation": {}', '"validation": {"force_mae_H_ev_per_angstrom": 2}')
        path.write_text(good + "\n" + of_cpu + "\n")
        np.testing.assert_array_equal(read_history(path)["validation_force_mae_H"], [np.nan, 2])
        for line in ("{", "[]", "1", "{}", '{"step": 2, "training": 5, "validation": {}}', '{"step": [1], "training": {}, "validation": {}}',
                     '{"step": "x", "training": {}, "validation": {}}', "[" * 100000, "\udcff", '{"step": 2, "training": {}, "validation": {}}'):  # fmt: skip
            path.write_bytes(f"{good}\n{line}\n".encode("utf-8", "surrogateescape"))
            with self.subTest(line[:60]), self.assertRaisesRegex(MlffFormatError, "history.jsonl:2: not "):
                read_history(path)

    def test_calculators_that_answer_nonsense(self):
        class Calculator:
            def __init__(self, energy, forces):
                self.energy, self.forces = energy, forces

            def get_potential_energy(self, atoms):
                return self.energy

            def get_forces(self, atoms):
                return self.forces

        good = np.zeros((9, 3))
        for energy, forces in ((NAN, good), (1.0, good * NAN), (1.0, good[:5]), (1.0, None), (None, good), ("a", good), ([1.0, 2.0], good), (1.0, good + 1j), (1.0, 0.0)):
            found = Teacher(Calculator(energy, forces)).compute([self.atoms])[0]
            self.assertRegex(found.problem, r"^[^\n]+\Z")
            self.assertIsNone(found.forces)

        class Raises:
            def get_potential_energy(self, atoms):
                raise RuntimeError("one\0two\nthree")

            get_forces = get_potential_energy

        self.assertIn("one two three", Teacher(Raises()).compute([self.atoms])[0].problem)

    def test_a_calculator_of_ours(self):
        calculator = StudentCalculator(self.model, device="cpu")
        for atoms in (None, Atoms(), self.wild):
            self.refused(calculator.get_potential_energy, atoms)


# Dynamics, replicas, teachers and trainers that several threads use at once; a process of its own each, since it may crash.
THREADS = """
import sys, threading
import support
from ase.calculators.singlepoint import SinglePointCalculator
from mlff_distiller.distill import Dataset, Teacher
from mlff_distiller.dynamics import Dynamics, Replicas
from mlff_distiller.training import Trainer
model, atoms = support.untrained(), support.ethanol_frames(1)[0]
failed = []

def together(*functions):
    def repeat(function):
        try:
            for _ in range(20):
                function()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=repeat, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def simulations(one, all, path):
    compute = lambda: all.evaluator.compute(atoms.numbers, atoms.positions)
    together(lambda: all.run(10), lambda: all.run(10), lambda: one.positions, lambda: one.forces, lambda: one.save(path), compute)
    assert one.step == 400, one.step

def labeled(k):
    frame = atoms.copy()
    frame.positions[0] += 0.001 * k
    frame.calc = SinglePointCalculator(frame, energy=1.0, forces=0.1 * frame.positions)
    return frame

"""


class Threads(unittest.TestCase):
    def good(self, case):
        environment = dict(os.environ, MALLOC_PERTURB_="165", MALLOC_CHECK_="3", PYTHONPATH=os.pathsep.join(sys.path))
        done = subprocess.run(
            [sys.executable, "-c", THREADS + case + "\nassert not failed, failed"], env=environment, capture_output=True, text=True, timeout=300
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_dynamics(self):
        self.good("x = Dynamics(atoms, model, device='cpu', n_threads=2, timestep_fs=0.01)\nsimulations(x, x, support.scratch('x.restart'))")

    def test_replicas(self):
        self.good(
            "x = Replicas([atoms] * 3, model, device='cpu', n_threads=2, timestep_fs=0.01)\nsimulations(x[1], x, support.scratch('x.restart'))"
        )

    def test_teacher(self):
        self.good("x = Teacher(model, device='cpu', n_threads=2)\ntogether(*[lambda: x.compute([atoms] * 3)] * 4)")

    def test_trainer(self):
        self.good(
            "data = Dataset([labeled(k) for k in range(8)])\nx = Trainer(model, data, n_steps=40, n_threads=1, batch_size=2)\n"
            "together(lambda: x.run(1), lambda: x.run(1), lambda: x.model().info, lambda: x.validate(data), lambda: x.save(support.scratch('x')))\n"
            "assert x.step == 40, x.step"
        )


if __name__ == "__main__":
    unittest.main()
