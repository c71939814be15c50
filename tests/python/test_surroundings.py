# SPDX-License-Identifier: MIT
"""What surrounds the engine in Python: a locale with a decimal comma, Ctrl-C, atoms at rest, constraints of ASE."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import unittest
import warnings
from unittest import mock

import numpy as np
import support
from ase.build import molecule
from ase.constraints import FixAtoms, FixBondLength
from ase.units import fs

from mlff_distiller import Dynamics, MlffWarning, Model, Replicas, StudentCalculator, analyze, relax, vibrations
from mlff_distiller import _library as lib
from mlff_distiller.cuda.md_profiler import MDProfiler, save_html
from mlff_distiller.distill import Dataset, sample
from mlff_distiller.training import Trainer, distill

COMMA = """
import json, locale, sys
import numpy as np
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.str(1.5) == "1,5"
from ase.build import molecule
from mlff_distiller import Model
from mlff_distiller.distill import Teacher, label, sample
from mlff_distiller.cuda.md_profiler import MDProfiler
from mlff_distiller import StudentCalculator

folder = sys.argv[1]
model = Model.create("painn", elements="H,C,O", n_features=16, n_layers=1, cutoff=4.5, core_repulsion=0.7, seed=3)
model.save(folder + "/painn.safetensors")
Model.create("ani", elements="H,C,N,O", n_members=1, hidden="8,8,8", seed=3).save(folder + "/ani.safetensors")
seeds = [molecule("CH3CH2OH")]
label(Teacher(model), sample(Teacher(model), seeds, n_samples=12, methods=["thermal"], relax=False), folder + "/a.labels")
result = MDProfiler(device="cpu").profile_md(StudentCalculator(model, device="cpu"), molecule("CH3CH2OH"), n_steps=30)
load = result.data["environment"]["load_average_at_start"]
assert "," not in load, load
"""

# A student of labels and its verdict: argument 1 is the folder, 2 the locale.
STUDENT = """
import locale, sys
locale.setlocale(locale.LC_ALL, sys.argv[2])
from ase.build import molecule
from mlff_distiller import Model
from mlff_distiller.distill import Teacher, label, sample
from mlff_distiller.training import distill

folder = sys.argv[1]
model = Model.create("painn", elements="H,C,O", n_features=16, n_layers=1, cutoff=4.5, seed=3)
found = sample(Teacher(model), [molecule("CH3CH2OH")], n_samples=60, methods=["thermal"], relax=False)
label(Teacher(model), found, folder + "/a.labels")
distill(labels=folder + "/a.labels", out=folder + "/run", preset="demo", device="cpu", n_features=16, n_layers=1, n_steps=20,
        cutoff_angstrom=4.3, core_repulsion=0.7, nve_ps=0.02, hot_ps=0.02, speed_s=0.05)
"""


def comma_locale(folder):
    """Environment in which de_DE.UTF-8 exists, or a skipped test."""
    if not shutil.which("localedef"):
        raise unittest.SkipTest("no localedef, which makes a locale with a decimal comma")
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", f"{folder}/de_DE.UTF-8"], capture_output=True)
    if not os.path.exists(f"{folder}/de_DE.UTF-8"):
        raise unittest.SkipTest(f"localedef: {made.stderr.decode()[:200]}")
    return {**os.environ, "LOCPATH": str(folder)}


class TestLocale(unittest.TestCase):
    def test_decimal_comma(self):
        folder = support.scratch("locale")
        folder.mkdir()
        made = subprocess.run([sys.executable, "-c", COMMA, str(folder)], env=comma_locale(folder), capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr[-2000:])
        # What was written there is read here.
        same = Model.create("painn", elements="H,C,O", n_features=16, n_layers=1, cutoff=4.5, core_repulsion=0.7, seed=3)
        same.save(support.scratch("painn-here.safetensors"))
        self.assertEqual((folder / "painn.safetensors").read_bytes(), support.scratch("painn-here.safetensors").read_bytes())
        self.assertIn("ANI", str(Model.load(folder / "ani.safetensors")))

    def test_student(self):
        """The same bits, and no decimal comma in the verdict and the page."""
        made = support.scratch("locales")
        made.mkdir()
        environment = comma_locale(made)
        students = []
        for name in ("C", "de_DE.UTF-8"):
            folder = made / name / "here"  # the student names its data by the way from it
            folder.mkdir(parents=True)
            ran = subprocess.run([sys.executable, "-c", STUDENT, str(folder), name], env=environment, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr[-2000:])
            students.append((folder / "run" / "student.safetensors").read_bytes())
        self.assertEqual(*students)
        for file in ("verdict.json", "report.html"):
            found = re.findall(r"\d,\d+ (?:meV|eV|Å|K|ps|%)", (folder / "run" / file).read_text(encoding="utf-8"))
            self.assertEqual(found, [], file)


class TestInterrupt(unittest.TestCase):
    def test_relax(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        self.addCleanup(signal.signal, signal.SIGINT, before)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), 2))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            relax([molecule("CH3CH2OH")], support.untrained(), fmax=1e-9, max_steps=10**12, device="cpu")


    def stopped(self, run):
        """After 0.2 s; steps that take longer than a second altogether end before the last one."""
        support.heed_ctrl_c(self)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), 2))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            run()

    def test_dynamics(self):
        atoms, steps = molecule("CH3CH2OH"), 200000
        one = Dynamics(atoms, support.untrained(), timestep_fs=0.01, device="cpu", n_threads=1)
        self.stopped(lambda: one.run(steps))
        made = one.step
        self.assertTrue(0 < made < steps, made)
        self.assertEqual(len(one.run(3)), 3)
        self.assertEqual(one.step, made + 3)
        many = Replicas([atoms] * 2, support.untrained(), timestep_fs=0.01, device="cpu", n_threads=1)
        self.stopped(lambda: many.run(steps))
        self.assertTrue(0 < many[0].step < steps, many[0].step)

    def test_pieces_are_one_run(self):
        """To the bit, with the time of each step."""
        runs = [Dynamics(molecule("CH3CH2OH"), support.untrained(), friction_per_fs=0.01, device="cpu", n_threads=1) for _ in range(2)]
        times = runs[0].run(137)
        self.assertTrue((times > 0).all())
        for _ in range(137):
            runs[1].run(1)
        self.assertEqual((runs[0].step, runs[1].step), (137, 137))
        np.testing.assert_array_equal(runs[0].positions, runs[1].positions)

    def test_training(self):
        data, steps = Dataset(), 20000
        for atoms in support.ethanol_frames(20):
            data.add(atoms, energy=1.0, forces=0.1 * atoms.positions)
        trainer = Trainer(support.untrained(), data, n_steps=steps, device="cpu", n_threads=1)
        self.stopped(lambda: trainer.run(steps))
        made = trainer.step
        self.assertTrue(0 < made < steps, made)
        errors = trainer.run(5)
        self.assertEqual(trainer.step, made + 5)
        self.assertGreater(errors.n_frames, 0)

    def test_analysis(self):
        """Noted in the middle of a frame, which is then in all results or in none."""
        support.heed_ctrl_c(self)
        add, calls = lib.core.mlff_msd_add, []

        def interrupted(*arguments):
            calls.append(arguments)
            if len(calls) == 3:
                signal.raise_signal(signal.SIGINT)
            return add(*arguments)

        with mock.patch.object(lib.core, "mlff_msd_add", interrupted), self.assertRaises(KeyboardInterrupt) as caught:
            analyze(support.ethanol_frames(6), frame_fs=1.0)
        self.assertEqual(caught.exception.analysis.n_frames, 3)


class TestFiles(unittest.TestCase):
    def test_whole_or_not_at_all(self):
        """A limit of the size of files stands for a full disk: no part of a file is left, and an older file stays as it was."""
        folder = support.scratch("limited")
        folder.mkdir(exist_ok=True)
        calculator = StudentCalculator(support.untrained(), device="cpu")
        result = MDProfiler("cpu", warmup_steps=2).profile_calculator(calculator, molecule("CH3CH2OH"), n_steps=20)
        (folder / "page.html").write_text("before")
        seeds = [molecule("C6H6") for _ in range(20)]
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for write in (
            lambda: save_html([result], folder / "page.html"),
            lambda: distill(support.untrained(), seeds, folder / "run", preset="demo"),
        ):
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
            try:
                self.assertRaises(OSError, write)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(sorted(path.name for path in folder.rglob("*")), ["page.html"])
        self.assertEqual((folder / "page.html").read_text(), "before")


class TestAtoms(unittest.TestCase):
    def test_momenta_of_zero_are_momenta(self):
        """Atoms with momenta, all zero, are at rest: nothing is drawn, and frames have a temperature."""
        atoms = molecule("CH3CH2OH")
        drawn = Dynamics(atoms, support.untrained(), temperature=300, device="cpu")
        self.assertGreater(drawn.temperature, 200)
        atoms.set_momenta(np.zeros((9, 3)))
        self.assertEqual(Dynamics(atoms, support.untrained(), temperature=300, device="cpu").temperature, 0)
        frames = []
        for k in range(120):
            atoms.set_velocities(np.full((9, 3), 1e-3 / fs) * np.sin(0.1 * k) * np.arange(9)[:, None])
            frames.append(atoms.copy())
        found = analyze(frames, frame_fs=1.0)
        self.assertEqual(found.temperatures[0], 0)
        self.assertIsNotNone(found.vdos)

    def test_temperature_with_fixed_atoms(self):
        atoms = molecule("CH3CH2OH")
        atoms.set_constraint(FixAtoms([0, 1, 2, 3, 4, 5]))
        atoms.set_momenta(np.ones((9, 3)))
        (temperature,) = analyze([atoms], geometry=True).temperatures
        self.assertAlmostEqual(temperature, atoms.get_temperature(), delta=1e-4 * temperature)  # of 9 degrees, as ASE's

    def test_one_structure_in_place_of_a_list(self):
        atoms = molecule("CH3CH2OH")
        (relaxed,) = relax(atoms, support.untrained(), max_steps=1, device="cpu")
        self.assertEqual(len(relaxed.atoms), 9)
        self.assertEqual(analyze(atoms, geometry=True).n_frames, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(len(sample(support.untrained(), atoms, n_samples=3, methods="thermal", relax=False)), 3)

    def test_constraints_that_are_left_out(self):
        atoms = molecule("CH3CH2OH")
        atoms.set_constraint(FixBondLength(0, 1))
        calls = (
            lambda: Dynamics(atoms, support.untrained(), device="cpu"),
            lambda: relax([atoms], support.untrained(), max_steps=1, device="cpu"),
            lambda: vibrations(atoms, support.untrained(), device="cpu"),
        )
        for call in calls:
            with self.assertWarnsRegex(MlffWarning, "FixBondLengths?: only FixAtoms is obeyed"):
                call()
        atoms.set_constraint(FixAtoms([0]))
        with warnings.catch_warnings():
            warnings.simplefilter("error", MlffWarning)
            calls[0]()


if __name__ == "__main__":
    unittest.main()
