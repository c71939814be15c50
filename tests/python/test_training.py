# SPDX-License-Identifier: MIT
"""Training and distillation from Python, on copper by ASE's EMT: errors fall, gradients agree with the loss, runs go on."""

import pathlib
import tempfile
import unittest
import warnings

import numpy as np
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.db import connect
from ase.io import read, write

from mlff_distiller.distill import Dataset, Teacher
from mlff_distiller.engine import Evaluator, Model
from mlff_distiller.errors import MlffUnsupportedError, MlffUsageError, MlffValueError, MlffWarning
from mlff_distiller.training import Trainer, _name_seeds, distill, read_history


def copper(n, first=0):
    data = Dataset()
    for seed in range(first, first + n):
        atoms = bulk("Cu", cubic=True)
        atoms.rattle(0.1, seed=seed)
        atoms.calc = EMT()
        data.add(atoms, energy=atoms.get_potential_energy(), forces=atoms.get_forces())
    return data


def student(seed=0):
    return Model.create("painn", n_features=8, n_layers=1, n_radial=8, cutoff=3.5, elements="Cu", seed=seed)


def energy(model, atoms):
    evaluator = Evaluator(model, device="cpu")
    return float(evaluator.compute(atoms.numbers, atoms.positions, atoms.cell[:], atoms.pbc)["energies"][0])


class Training(unittest.TestCase):
    def test_errors_fall_and_runs_go_on(self):
        data, other = copper(12), copper(4, 100)
        settings = dict(n_steps=120, batch_size=4, learning_rate=5e-3, device="cpu", n_threads=1)
        whole = Trainer(student(), data, **settings)
        before = whole.validate(other)
        whole.run(60)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.checkpoint"
            whole.save(path)
            errors = whole.run(1000)
            self.assertEqual(whole.step, 120)
            after = whole.validate(other)
            self.assertLess(after.force_mae, 0.7 * before.force_mae)
            self.assertTrue(np.isnan(errors.stress_mae) and errors.n_frames > 0)
            by_element = whole.element_errors()
            self.assertEqual(list(by_element), ["Cu"])
            self.assertAlmostEqual(by_element["Cu"], after.force_mae, delta=1e-12)
            again = Trainer(student(), data, **settings)
            again.restore(path)
            self.assertEqual(again.step, 60)
            again.run(60)
            frame = other[0]
            energies = [energy(t.model(), frame) for t in (whole, again)]
            self.assertEqual(*energies)  # to the bit
            with self.assertRaises(MlffValueError):
                Trainer(student(1), copper(3), **settings).restore(path)

    def test_errors_of_no_steps(self):
        trainer = Trainer(student(), copper(4), n_steps=3, batch_size=2, device="cpu", n_threads=1)
        self.assertGreater(trainer.run(10).force_mae, 0)
        for n in (10, 0):
            errors = trainer.run(n)  # the run is at its end
            self.assertEqual((errors.n_frames, errors.n_atoms), (0, 0))
            self.assertTrue(np.isnan([errors.loss, errors.energy_mae, errors.force_mae, errors.force_rmse]).all())

    def test_soap_is_named(self):
        data = copper(6)
        settings = dict(n_steps=30, batch_size=3, device="cpu", n_threads=1)
        adamw, soap = Trainer(student(), data, **settings), Trainer(student(), data, optimizer="soap", soap_interval=3, **settings)
        frame = data[0]
        for trainer in (adamw, soap):
            trainer.run(30)
        self.assertNotEqual(energy(adamw.model(), frame), energy(soap.model(), frame))
        with self.assertRaisesRegex(MlffUsageError, "'adamw', 'soap'"):
            Trainer(student(), data, optimizer="sophia", **settings)

    def test_begins_with_the_energies_of_a_trained_model(self):
        data, settings = copper(12), dict(n_steps=400, batch_size=4, learning_rate=5e-3, device="cpu", n_threads=1, stress_weight=0.0)
        first = Trainer(student(), data, **settings)
        first.run(400)
        model, frame = first.model(), data[0]
        near, moved = Dataset(), Dataset()
        for atoms in data:
            energies, forces = atoms.get_potential_energy(), atoms.get_forces()
            near.add(atoms, energy=energies + 0.5 * len(atoms), forces=forces)
            moved.add(atoms, energy=energies + 5 * len(atoms), forces=forces)

        def begun(labels, **choice):
            return energy(Trainer(model, labels, **choice, **settings).model(raw=True), frame)

        kept = begun(near, shifts=False)
        self.assertEqual(kept, energy(model, frame))
        self.assertAlmostEqual(begun(near, shifts=True) - kept, 0.5 * len(frame), delta=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(begun(near), kept)
        with self.assertWarnsRegex(MlffWarning, r"energies of the labels are [45]\.\d+ eV/atom off those of the model"):
            self.assertEqual(begun(moved), begun(moved, shifts=True))
        self.assertEqual(begun(moved, shifts=False), kept)
        new = [Trainer(student(), data, **choice, **settings).model(raw=True) for choice in ({}, {"shifts": True})]
        self.assertEqual(*(energy(model, frame) for model in new))

    def test_structures_at_which_the_student_is_far_off(self):
        frames, begun = copper(20), student()
        data = Dataset(frames)
        errors = [float(np.linalg.norm(one.get_forces() - Evaluator(begun, device="cpu").compute(
            one.numbers, one.positions, one.cell.array, one.pbc)["forces"], axis=1).max()) for one in frames]
        limit = sorted(errors)[14] * 1.001
        self.assertEqual(data.remove_far(begun, limit, device="cpu"), 5)
        self.assertEqual([float(one.get_potential_energy()) for one in data],
                         [float(one.get_potential_energy()) for one, error in zip(frames, errors) if error <= limit])
        with self.assertRaisesRegex(MlffUsageError, "largest error above 0"):
            data.remove_far(begun, 0, device="cpu")

    def test_gradient_is_the_derivative_of_the_loss(self):
        data = copper(2)
        trainer = Trainer(student(), data, precision="float64", energy_per_atom=0, forces_weight=1.0)
        loss, gradient = trainer.gradient([0, 1])
        one, first = trainer.gradient([0])
        other, second = trainer.gradient([1])
        self.assertAlmostEqual(loss, 0.5 * (one + other), delta=1e-12 * loss)  # equal sizes: the mean of both
        self.assertLess(np.abs(gradient - 0.5 * (first + second)).max(), 1e-12 * np.abs(gradient).max())
        self.assertEqual(len(gradient), len(first))

    def test_bad_input(self):
        with self.assertRaisesRegex(MlffUnsupportedError, "ANI .*cannot be trained here"):
            Trainer(Model.create("ani"), copper(1))
        with self.assertRaisesRegex(MlffUsageError, "batchsize"):
            Trainer(student(), copper(1), batchsize=3)
        with self.assertRaisesRegex(MlffUsageError, "batch_size"):
            Trainer(student(), copper(1), batch_size=0)


class Distilling(unittest.TestCase):
    def test_fixed_atoms_of_seeds(self):
        atoms = bulk("Cu", cubic=True)
        atoms.set_constraint(FixAtoms(indices=[0, 2]))
        with tempfile.TemporaryDirectory() as folder:
            _name_seeds(pathlib.Path(folder), [bulk("Cu", cubic=True), atoms, bulk("Cu", cubic=True)])
            found = read(pathlib.Path(folder) / "seeds.extxyz", ":")
        self.assertEqual([len(one.constraints) for one in found], [0, 1, 0])
        np.testing.assert_array_equal(found[1].constraints[0].index, [0, 2])

    def test_whole_run_by_an_ase_calculator(self):
        atoms = bulk("Cu", cubic=True)
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "copper.run"
            settings = dict(n_structures=40, n_features=8, n_layers=1, n_radial=8, cutoff_angstrom=3.5, n_steps=60,
                            nve_ps=0.05, hot_ps=0.05, speed_s=0.05, highest_kelvin=600)  # fmt: skip

            def tell(stage, fraction, text):
                seen.append(stage)
                if len(seen) == 20:
                    raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                distill(Teacher(EMT(), "emt"), [atoms], out, "demo", device="cpu", n_threads=1, progress=tell, **settings)
            run = distill(Teacher(EMT(), "emt"), [atoms], out, "demo", device="cpu", n_threads=1, progress=tell, **settings)
            self.assertFalse(run.passed)  # 60 steps
            self.assertIn("error.forces", [bar["name"] for bar in run.verdict["bars"]])
            self.assertRegex(str(run), r"^failed: .*error\.energy.*report\.html$")
            self.assertLess(len(repr(run)), 200)
            self.assertEqual(run.history["step"][-1], 60)
            self.assertTrue(np.isfinite(run.history["validation_force_mae"]).all())
            self.assertEqual(read_history(out / "history.jsonl").keys(), run.history.keys())
            np.testing.assert_allclose(run.history["validation_force_mae_Cu"], run.history["validation_force_mae"], rtol=1e-8)
            self.assertTrue(np.isfinite(energy(run.student(), atoms)))
            with self.assertRaises(MlffValueError):  # other settings
                distill(Teacher(EMT(), "emt"), [atoms], out, "demo", device="cpu", **{**settings, "n_steps": 61})
            with self.assertRaisesRegex(MlffUsageError, "other seeds"):
                distill(Teacher(EMT(), "emt"), [atoms, atoms], out, "demo", device="cpu", **settings)
            with self.assertRaisesRegex(MlffUsageError, "steps is not a setting of distill; .*n_steps"):
                distill(Teacher(EMT(), "emt"), [atoms], out / "new", steps=3)
            self.assertFalse((out / "new").exists())
            self.assertIn('"systems": "seeds.extxyz"', (out / "config.json").read_text())
            moved = out.rename(pathlib.Path(folder) / "moved.run")
            distill(Teacher(EMT(), "emt"), [atoms], moved, "demo", device="cpu", n_threads=1, **settings)
            with self.assertRaisesRegex(MlffUsageError, "this folder has one in its name; give another folder"):
                distill(Teacher(EMT(), "emt"), [atoms], pathlib.Path(folder) / "a,b", "demo", device="cpu", n_threads=1, **settings)
            self.assertFalse((pathlib.Path(folder) / "a,b").exists())
            with self.assertRaisesRegex(MlffUsageError, "seed is"):
                distill(Teacher(EMT(), "emt"), [atoms], out, "demo", device="cpu", n_threads=1, seed=2**53 + 1, **settings)
            self.assertFalse(out.exists())

    def test_from_labels(self):
        def trajectories(n):
            frames = []
            for k in range(n):
                atoms = bulk("Cu", cubic=True) if k // 10 % 2 else bulk("Cu", cubic=True) * (2, 1, 1)
                atoms.rattle(0.08, seed=k)
                atoms.calc = EMT()
                atoms.get_stress(), atoms.get_forces()
                atoms.info["group"] = k // 10
                frames.append(atoms)
            return frames

        settings = dict(n_features=8, n_layers=1, n_radial=8, cutoff_angstrom=3.5, n_steps=60, nve_ps=0.05, hot_ps=0.05, speed_s=0.05)
        frames = trajectories(80)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write(folder / "emt.extxyz", frames, format="extxyz")
            with connect(folder / "emt.db") as database:
                for atoms in frames:
                    database.write(atoms)
            sources = {"files": [folder / "emt.extxyz"], "one": str(folder / "emt.extxyz"), "database": folder / "emt.db", "data": frames}
            told = []
            for key, labels in sources.items():
                run = distill(labels=labels, out=folder / key, preset="demo", device="cpu", n_threads=1, progress=lambda *row: told.append(row), **settings)
                bars = {bar["name"]: bar for bar in run.verdict["bars"]}
                self.assertEqual(sorted({"held_out", "error.forces", "error.energy", "error.pressure", "stability.nve", "stability.hot", "core"}), sorted(bars))
                self.assertIsNone(run.verdict["teacher"])
                self.assertRegex(bars["error.forces"]["text"], "against the labels of [0-9]+ held-out structures")
                self.assertTrue(np.isfinite(run.history["validation_stress_mae"]).all())
                again = distill(labels=labels, out=folder / key, preset="demo", device="cpu", n_threads=1, **settings)
                self.assertEqual(again.verdict, run.verdict)
            self.assertEqual((folder / "files/student.safetensors").read_bytes(), (folder / "one/student.safetensors").read_bytes())
            self.assertFalse([row for row in told if "best 0.00" in row[2]])
            self.assertTrue([row for row in told if ", best " in row[2]])
            # A run keeps a dataset as a file, and goes on with it.
            for key in ("database", "data"):
                again = distill(labels=folder / key / "labels.mlff", out=folder / key, preset="demo", device="cpu", n_threads=1, **settings)
                self.assertEqual(len(Dataset.read(folder / key / "labels.mlff")), 80)
                self.assertIn('"labels":', (folder / key / "config.json").read_text())
                self.assertIn(f'{key}/labels.mlff"', (folder / key / "config.json").read_text())
            # A teacher beside the labels is measured.
            beside = distill(Teacher(EMT(), "emt"), labels=folder / "emt.extxyz", out=folder / "beside", preset="demo", device="cpu", n_structures=60,
                             n_threads=1, **settings)  # fmt: skip
            self.assertIn("speed", [bar["name"] for bar in beside.verdict["bars"]])
            with self.assertRaisesRegex(MlffValueError, "began with"):
                distill(labels=Dataset(trajectories(79)), out=folder / "data", preset="demo", device="cpu", n_threads=1, **settings)
            with self.assertRaisesRegex(MlffValueError, "40 labelled structures; .* 50 at least"):
                distill(labels=Dataset(frames[:40]), out=folder / "few", preset="demo", device="cpu")
            with self.assertRaisesRegex(MlffUsageError, "rounds"):
                distill(labels=Dataset(frames), out=folder / "few", preset="demo", n_rounds=1)
            for wrong in (dict(out=folder / "few"), dict(labels="a.extxyz"), dict(labels="a.extxyz", seeds="h2o", out="b"), dict(seeds="h2o", out="b")):
                with self.assertRaisesRegex(MlffUsageError, "a teacher and seeds, or labels"):
                    distill(**wrong)
            with self.assertRaisesRegex(TypeError, "in place of a Dataset"):
                distill(labels=[frames[0], "a.extxyz"], out=folder / "few")
            with self.assertRaisesRegex(MlffUsageError, "comma"):
                distill(labels="a,b.extxyz", out=folder / "few")
            self.assertFalse((folder / "few").exists())


if __name__ == "__main__":
    unittest.main()
