# SPDX-License-Identifier: MIT
"""Teachers, sampling, labels and datasets from Python. Expected numbers are those of ASE's EMT and of the engine."""

import sys
import unittest
import warnings
from unittest import mock

import numpy as np
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.mixing import MixedCalculator, SumCalculator
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.db import connect
from ase.io import write
from support import scratch, untrained, untrained_path

from mlff_distiller.analysis import analyze
from mlff_distiller.distill import Dataset, Teacher, _parts_apart, label, label_with_calculator, sample, seeds_from_smiles, select
from mlff_distiller.engine import Evaluator, Model
from mlff_distiller.errors import MlffError, MlffUnsupportedError, MlffUsageError, MlffValueError, MlffWarning
from mlff_distiller.isolation import IsolatedCalculator
from mlff_distiller.models import StudentCalculator
from mlff_distiller.training import distill


class Moody(EMT):
    """EMT that cannot compute structures of more than eight atoms."""

    n_calls = 0

    def calculate(self, atoms=None, *arguments, **keywords):
        Moody.n_calls += 1
        if len(atoms) > 8:
            raise RuntimeError("too large")
        super().calculate(atoms, *arguments, **keywords)


class Smeared(EMT):
    """EMT whose free energy is that of EMT's forces, and whose energy another, as of DFT with electrons at a temperature."""

    def calculate(self, *arguments, **keywords):
        super().calculate(*arguments, **keywords)
        self.results["energy"] += 0.25


def copper(n=4):
    frames = []
    for seed in range(n):
        atoms = bulk("Cu", cubic=True)
        atoms.rattle(0.05, seed=seed)
        atoms.info["group"] = seed
        frames.append(atoms)
    return frames


def label_of(atoms):
    atoms = atoms.copy()
    atoms.calc = EMT()
    atoms.calc = SinglePointCalculator(atoms, energy=atoms.get_potential_energy(), forces=atoms.get_forces())
    return atoms


class Teachers(unittest.TestCase):
    def test_model(self):
        teacher = Teacher(untrained(), device="cpu")
        other = Teacher(untrained_path(), device="cpu")
        self.assertEqual(len(teacher.hash), 64)
        self.assertEqual(teacher.elements, other.elements)
        atoms = molecule("CH3CH2OH")
        found = teacher.compute([atoms, molecule("H2O")])
        expected = Evaluator(untrained(), device="cpu").compute(atoms.numbers, atoms.positions)
        self.assertAlmostEqual(found[0].energy, expected["energies"][0], places=5)
        np.testing.assert_allclose(found[0].forces, expected["forces"], atol=1e-5)
        self.assertEqual(found[0].problem, "")
        self.assertIsNone(found[0].stress)

    def test_calculator(self):
        teacher = Teacher(Moody())
        self.assertIn("Moody", teacher.name)
        frames = [*copper(2), bulk("Cu", cubic=True) * (2, 2, 1)]
        found = teacher.compute(frames)
        for atoms, one in zip(frames[:2], found):
            atoms.calc = EMT()
            self.assertAlmostEqual(one.energy, atoms.get_potential_energy(), places=10)
            np.testing.assert_allclose(one.forces, atoms.get_forces(), atol=1e-12)
        self.assertIn("too large", found[2].problem)
        self.assertIsNone(found[2].forces)

    def test_interrupted(self):
        class Stopped(Calculator):
            implemented_properties = ["energy", "forces"]

            def calculate(self, *arguments, **keywords):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            Teacher(Stopped()).compute(copper(1))

    def test_unknown(self):
        with self.assertRaises(MlffUsageError):
            Teacher("xtb:gfn9")
        with self.assertRaises(MlffUsageError):
            Teacher(untrained(), precision="float16")


class Sampling(unittest.TestCase):
    def test_sample(self):
        teacher = Teacher(EMT())
        keywords = dict(n_samples=20, methods=["thermal", "rattle", "md"], temperatures=[300.0], interval_fs=5.0)
        frames = sample(teacher, copper(1), **keywords)
        again = sample(teacher, copper(1), **keywords)
        self.assertEqual(len(frames), 20)
        for a, b in zip(frames, again):
            np.testing.assert_allclose(a.positions, b.positions, atol=1e-10)  # EMT itself repeats to 1e-15 only
            self.assertTrue(all(a.pbc))
            self.assertGreaterEqual(a.info["group"], 0)
        self.assertEqual(frames[0].info["origin"], "seed")
        self.assertIn("md 300 K", {atoms.info["origin"] for atoms in frames})
        with self.assertWarnsRegex(MlffWarning, "^1 structure in place of 4: [1-9][0-9]* candidates rejected"):
            self.assertEqual(len(sample(teacher, copper(1), n_samples=4, methods=["thermal"], closest=0.99, relax=False)), 1)
        self.assertEqual(len(select(frames, 5)), 5)
        for atoms in frames:
            atoms.info["origin"] = "é" * 12  # 24 bytes, of which 23 are kept
        self.assertEqual(select(frames, 1)[0].info["origin"], "é" * 11)
        with self.assertRaises(MlffUsageError):
            sample(teacher, copper(1), methods=["guess"])
        with self.assertRaises(MlffUsageError):
            sample(teacher, copper(1), n_sample=3)

    def test_fixed_atoms_stay(self):
        atoms = copper(1)[0]
        atoms.set_constraint(FixAtoms(indices=[0, 2]))
        teacher = Teacher(EMT())
        for found in sample(teacher, [atoms], n_samples=20, methods=["rattle", "thermal"], relax=False):
            np.testing.assert_allclose(found.positions[[0, 2]], atoms.positions[[0, 2]], atol=1e-12)
            np.testing.assert_array_equal(found.constraints[0].index, [0, 2])

    def test_stopped(self):
        """What was made before Ctrl-C is in the exception."""

        class Tired(EMT):
            n_left = 0

            def calculate(self, *arguments, **keywords):
                Tired.n_left -= 1
                if Tired.n_left == 0:
                    raise KeyboardInterrupt
                super().calculate(*arguments, **keywords)

        keywords = dict(n_samples=20, methods=["rattle", "md"], temperatures=[300.0], interval_fs=2.0, oversample=1)
        whole = sample(Teacher(Tired()), copper(1), **keywords)
        Tired.n_left = -Tired.n_left * 7 // 10  # ASE asks once or twice for a structure, by its version
        with self.assertRaises(KeyboardInterrupt) as caught:
            sample(Teacher(Tired()), copper(1), **keywords)
        found = caught.exception.samples
        self.assertGreater(len(found), 5)
        self.assertLess(len(found), 20)
        for a, b in zip(found, whole):
            np.testing.assert_allclose(a.positions, b.positions, atol=1e-10)

    def test_refused(self):
        atoms = molecule("H2O")
        atoms.info["charge"] = 1
        with self.assertRaisesRegex(MlffUnsupportedError, "charge of 1 e"):
            sample(Teacher(EMT()), [atoms])

    def test_charge_and_spin_stay(self):
        """Of structures and of their labels, for teachers that depend on them, by their file and as ASE calculators."""
        model = Model.create("orb-v3-direct", conditioned=True, n_layers=1, n_features=32, hidden=32)
        seed = molecule("H2O")
        seed.info.update(charge=0, spin=3)
        for k, teacher in enumerate((Teacher(model, device="cpu"), Teacher(StudentCalculator(model, device="cpu")))):
            frames = sample(teacher, [seed], n_samples=8, methods=["rattle", "md"], temperatures=[300.0])
            path = scratch(f"spin{k}.labels")
            self.assertEqual(label(teacher, frames, path).n_failed, 0)
            labelled = list(Dataset.read(path))
            for atoms in [*frames, *labelled]:
                self.assertEqual((atoms.info["charge"], atoms.info["spin"]), (0, 3))
            expected = teacher.compute(labelled)
            for atoms, found in zip(labelled, expected):
                self.assertAlmostEqual(atoms.get_potential_energy(), found.energy, places=5)

    def test_moments_of_atoms_are_told(self):
        """The calculator of a teacher gets structures without them, so that a spin-polarized one would compute another state."""
        atoms, told = bulk("Fe", cubic=True), "initial magnetic moments of the atoms are left out"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Teacher(EMT()).compute([bulk("Cu")])
        atoms.set_initial_magnetic_moments([2.2, 2.2])
        with self.assertWarnsRegex(MlffWarning, told):
            sample(Teacher(EMT()), [atoms], n_samples=2, methods=["thermal"], relax=False)
        with self.assertWarnsRegex(MlffWarning, told):
            Teacher(EMT()).compute([atoms])
        with self.assertWarnsRegex(MlffWarning, told), self.assertRaisesRegex(MlffError, "at all 1"):
            label(EMT(), [atoms], scratch("moments.labels"))
        with self.assertWarnsRegex(MlffWarning, told), self.assertRaisesRegex(MlffError, "no seed is left"):
            distill(EMT(), [atoms], scratch("moments.run"), preset="demo")

    def test_charges_of_atoms_make_an_ion(self):
        """As ASE's calculators read them, and as the command reads them in extended XYZ. Students have no charge."""
        ion, neutral = molecule("H2O"), molecule("H2O")
        ion.set_initial_charges([0.75, 0.27, 0])
        neutral.set_initial_charges([-0.7, 0.34, 0.35])  # as computed
        told = "a charge of 1 e; students know neutral systems only"
        for begin in (
            lambda: sample(Teacher(EMT()), [ion], n_samples=2, methods=["thermal"], relax=False),
            lambda: distill(EMT(), [ion], scratch("ion.run"), preset="demo"),
            lambda: Dataset().add(ion, energy=-1.0),
        ):
            with self.assertRaisesRegex(MlffError, told.replace("students", "(students|models)")):
                begin()
        first, second = Teacher(EMT()).compute([ion, neutral])
        self.assertIn(told, first.problem)
        self.assertEqual(second.problem, "")
        with self.assertWarnsRegex(UserWarning, told):
            done = label(EMT(), [ion, neutral], scratch("ions.labels"))
        self.assertEqual((done.n_labels, done.n_failed), (1, 1))
        half, unknown, columns = molecule("H2O"), molecule("H2O"), molecule("H2O")
        half.set_initial_charges([0.5, 0, 0])
        unknown.set_initial_charges([np.inf, 0, 0])
        columns.set_array("initial_charges", np.ones((3, 2)))
        told = [label.problem for label in Teacher(EMT()).compute([half, unknown, columns])]
        self.assertIn("a charge of 1 e", told[0])
        self.assertEqual(told[1:], ["", ""])

    def test_smiles_without_rdkit(self):
        with mock.patch.dict(sys.modules, {"rdkit": None}), self.assertRaisesRegex(ImportError, "needs RDKit .*apt-get install python3-rdkit"):
            seeds_from_smiles("CCO")

    def test_smiles(self):
        try:
            import rdkit  # noqa: F401
        except ImportError:
            self.skipTest("RDKit is not installed")
        frames = seeds_from_smiles("CCO", n_conformers=3, seed=1)
        self.assertEqual([atoms.get_chemical_formula() for atoms in frames], ["C2H6O"] * 3)
        distances = frames[0].get_all_distances()[np.triu_indices(9, 1)]
        self.assertGreater(distances.min(), 0.9)
        for seed in (0, -1):
            frames = seeds_from_smiles("OCC(O)CN", n_conformers=4, seed=seed)
            lengths = [np.sort(atoms.get_all_distances(), axis=None) for atoms in frames]
            for k in range(1, len(frames)):
                self.assertGreater(np.abs(lengths[k] - lengths[k - 1]).max(), 0.01)
            again = seeds_from_smiles("OCC(O)CN", n_conformers=4, seed=seed)
            self.assertEqual([atoms.positions.tolist() for atoms in frames], [atoms.positions.tolist() for atoms in again])
        for bad in ("C(", "C[NH3+]"):
            with self.assertRaisesRegex(MlffUsageError, "C"):
                seeds_from_smiles(bad)
        for pair in ("CC(=O)[O-].[Na+]", "O.O", "[Ar].[Ar]"):
            for atoms in seeds_from_smiles(pair, n_conformers=2, seed=-1):
                distances = atoms.get_all_distances()[np.triu_indices(len(atoms), 1)]
                self.assertGreater(distances.min(), 0.9, pair)

    def test_parts_of_a_complex_are_apart(self):
        """Whatever program embeds each of them about the origin."""
        water = molecule("H2O").positions
        positions = np.concatenate([water, water, [[0.0, 0.0, 0.0]]])
        parts = ((0, 1, 2), (3, 4, 5), (6,))
        moved = _parts_apart(positions, parts, np.random.default_rng(0))
        for k, part in enumerate(parts):
            np.testing.assert_allclose(np.diff(moved[list(part)], axis=0), np.diff(positions[list(part)], axis=0), atol=1e-12)
            for other in parts[:k]:
                distances = np.linalg.norm(moved[list(part)][:, None] - moved[list(other)][None], axis=2)
                self.assertGreaterEqual(distances.min(), 3.0)
        self.assertLess(np.ptp(moved, axis=0).max(), 12.0)


class Labels(unittest.TestCase):
    def test_charges_of_atoms_make_an_ion(self):
        ion, path = molecule("H2O"), scratch("ion.labels")
        ion.set_initial_charges([0, 0, 1])
        with self.assertWarnsRegex(UserWarning, "a charge of 1 e"):
            done = label_with_calculator(EMT(), [ion, molecule("CH4")], path)
        self.assertEqual((done.n_labels, done.n_failed, done.n_new), (1, 1, 2))

    def test_label_and_go_on(self):
        path = scratch("moody.labels")
        frames = [*copper(3), bulk("Cu", cubic=True) * (2, 2, 1), *copper(6)[3:]]
        Moody.n_calls = 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            done = label_with_calculator(Moody(), frames[:5], path)
            self.assertTrue(any("too large" in str(w.message) for w in caught))
            self.assertEqual((done.n_labels, done.n_failed, done.n_new), (4, 1, 5))
            done = label_with_calculator(Moody(), frames, path, stress=True)
        self.assertEqual((done.n_labels, done.n_failed, done.n_new), (6, 1, 2))
        data = Dataset.read(path)
        self.assertEqual(len(data), 6)
        for atoms, found in zip(copper(6), data):
            atoms.calc = EMT()
            self.assertAlmostEqual(found.get_potential_energy(), atoms.get_potential_energy(), places=10)
            np.testing.assert_allclose(found.get_forces(), atoms.get_forces(), atol=1e-10)
            np.testing.assert_allclose(found.get_stress(), atoms.get_stress(), atol=1e-10)
            self.assertEqual(found.info["group"], atoms.info["group"])
        with self.assertRaisesRegex(MlffValueError, "of another teacher"):
            label_with_calculator(EMT(), frames, path)
        # The same calculator by the C library's loop: the file has all of it already.
        self.assertEqual(label(Moody(), frames, path).n_new, 0)

    def test_forces_of_another_shape(self):
        class Short(EMT):
            def calculate(self, *arguments, **keywords):
                super().calculate(*arguments, **keywords)
                self.results["forces"] = np.zeros((2, 3))

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with self.assertRaisesRegex(MlffError, "its teacher failed at all 2 structures"):
                label_with_calculator(Short(), copper(2), scratch("short.labels"))
        self.assertIn("forces: shape (2, 3), (4, 3) is needed", str(caught[0].message))

    def test_spins_and_charges_of_one_geometry(self):
        class Spins(EMT):
            """Its cache is ASE's, which does not see a change of `info`."""

            def calculate(self, atoms=None, *arguments, **keywords):
                super().calculate(atoms, *arguments, **keywords)
                for name in ("energy", "free_energy"):
                    self.results[name] += atoms.info.get("spin", 1)

        frames = copper(1) * 3
        frames = [atoms.copy() for atoms in frames]
        for atoms, spin in zip(frames, (1, 3, 1)):
            atoms.info["spin"] = spin
        frames[2].info["charge"] = 1
        for k, calculator in enumerate((Spins(), IsolatedCalculator(Spins()))):
            path = scratch(f"spins{k}.labels")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                label_with_calculator(calculator, frames, path)
            # The third has atoms, positions and spin of the first, whose label the file has.
            self.assertEqual(caught, [])
            one, three = (atoms.get_potential_energy() for atoms in Dataset.read(path))
            self.assertAlmostEqual(three - one, 2, places=10)
        calculator.close()
        with self.assertWarnsRegex(UserWarning, "a charge of 1 e; students know neutral"):
            with self.assertRaisesRegex(MlffError, "failed at all 1"):
                label_with_calculator(Spins(), frames[2:], scratch("charged.labels"))

    def test_constraints_are_no_part_of_labels(self):
        atoms = copper(1)[0]
        expected = EMT().get_forces(atoms)
        atoms.set_constraint(FixAtoms([0, 1]))
        path = scratch("fixed.labels")
        label_with_calculator(EMT(), [atoms], path)
        np.testing.assert_allclose(Dataset.read(path)[0].get_forces(), expected, atol=1e-10)

    def test_energy_is_that_of_the_forces(self):
        frames = copper(2)
        for by, path in ((label, "smeared.labels"), (label_with_calculator, "smeared-python.labels")):
            with self.assertWarnsRegex(MlffWarning, "leave free_energy out if energy is meant"):
                by(Smeared(), frames, scratch(path))
        for path in ("smeared.labels", "smeared-python.labels"):
            for atoms, labelled in zip(frames, Dataset.read(scratch(path)), strict=True):
                atoms.calc = EMT()
                # energies of elements are taken out and added again, which rounds
                self.assertAlmostEqual(labelled.get_potential_energy(), atoms.get_potential_energy(), delta=1e-9)

    def test_labels_that_cannot_be_trained_on(self):
        class Wrong(EMT):
            def get_potential_energy(self, atoms=None, force_consistent=False):
                energy = super().get_potential_energy(atoms, force_consistent)
                return 1e20 if np.allclose(atoms.positions, frames[11].positions) else energy

        frames = copper(20)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            path = scratch("far.labels")
            label(Teacher(Wrong(), "wrong"), frames, path)
            label_with_calculator(Wrong(), frames, scratch("far-ase.labels"), name="wrong")
        told = [str(warning.message) for warning in caught]
        self.assertEqual(len(told), 2)
        for text in told:
            self.assertRegex(text, "1 of 20 labels cannot be trained on, the first is structure 11: energies more than 20 eV/atom")
        with self.assertRaisesRegex(MlffValueError, "structure 11: its energy"):
            Dataset.read(path).check()

    def test_probes(self):
        path = scratch("probes.labels")
        teacher = Teacher(untrained(), device="cpu")
        done = label(teacher, [molecule("H2O"), molecule("CH4")], path, hvp=2)
        self.assertEqual(done.n_labels, 2 + 2 * 2 * 2)
        self.assertEqual(len(Dataset.read(path)), 10)
        self.assertLess(len(Dataset.read(path, largest_force=0.0001)), 10)

    def test_stress_of_a_teacher(self):
        """EMT's, against differences of its energy at strains of a sheared cell, from the file of labels."""
        atoms, path, h = copper(1)[0], scratch("teacher_stress.labels"), 1e-4
        atoms.set_cell(atoms.cell[:] @ (np.eye(3) + [[0.04, 0.02, 0.0], [0.0, 0.0, 0.03], [0.01, 0.0, -0.03]]), scale_atoms=True)
        slab = copper(1)[0]
        slab.pbc = True, True, False
        label(EMT(), [atoms, slab], path)
        labelled, without = Dataset.read(path)
        stress = labelled.get_stress(voigt=False)
        self.assertNotIn("stress", without.calc.results)
        for a, b in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)):
            energies = []
            for sign in (1, -1):
                strain = np.eye(3)
                strain[a, b] += sign * h / 2
                strain[b, a] += sign * h / 2
                strained = atoms.copy()
                strained.set_cell(atoms.cell[:] @ strain, scale_atoms=True)
                strained.calc = EMT()
                energies.append(strained.get_potential_energy())
            self.assertAlmostEqual(stress[a, b], (energies[0] - energies[1]) / (2 * h) / atoms.get_volume(), delta=1e-6)
        self.assertGreater(np.abs(stress).min(), 2e-4)
        compared = Teacher(IsolatedCalculator(EMT())).compute([atoms])[0].stress
        np.testing.assert_allclose(compared, labelled.get_stress(), atol=1e-12)

    def test_calculators_and_their_stress(self):
        six = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

        class Planted(Calculator):
            implemented_properties = ["energy", "forces", "stress"]

            def __init__(self, stress):
                super().__init__()
                self.stress = stress

            def calculate(self, atoms=None, properties=("energy",), system_changes=()):
                super().calculate(atoms, properties, system_changes)
                self.results = {"energy": 1.0, "forces": np.zeros((len(atoms), 3))}
                if self.stress is not None:
                    self.results["stress"] = self.stress

        class Without(Planted):
            implemented_properties = ["energy", "forces"]

        class Unasked(Planted):
            def get_stress(self, atoms=None):
                return None

        matrix = six[[0, 5, 4, 5, 1, 3, 4, 3, 2]].reshape(3, 3)
        for calculator in (Planted(six), Planted(matrix), IsolatedCalculator(Planted(six))):
            np.testing.assert_allclose(Teacher(calculator).compute(copper(1))[0].stress, six, rtol=1e-12)
        # One that raises PropertyNotImplementedError has none, though it says that it has one.
        for calculator in (Without(six), Planted(None), IsolatedCalculator(Planted(None)), Unasked(six)):
            found = Teacher(calculator).compute(copper(1))[0]
            self.assertEqual((found.energy, found.problem), (1.0, ""))
            self.assertIsNone(found.stress)
        for wrong in (np.full(6, np.nan), np.full(6, np.inf)):
            self.assertIn("a stress that is not finite", Teacher(Planted(wrong)).compute(copper(1))[0].problem)

    def test_stress_that_is_not_finite(self):
        class Nameless(EMT):
            def get_stress(self, *arguments, **keywords):
                stress = super().get_stress(*arguments, **keywords)
                return np.where(self.atoms.info["group"] == 0, np.nan, stress)

        path = scratch("stress.labels")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            done = label_with_calculator(Nameless(), copper(2), path, stress=True)
        self.assertTrue(any("a stress that is not finite" in str(w.message) for w in caught))
        self.assertEqual((done.n_labels, done.n_failed), (1, 1))
        self.assertEqual(len(Dataset.read(path)), 1)


class Datasets(unittest.TestCase):
    def test_energy_is_asked_for_once(self):
        class Counting(EMT):
            n_energies = 0

            def get_potential_energy(self, *arguments, **keywords):
                Counting.n_energies += 1
                return super().get_potential_energy(*arguments, **keywords)

        # Calculators that keep nothing compute in each call, and a verdict times them so.
        label_with_calculator(Counting(), copper(3), scratch("counted.labels"))
        self.assertEqual(Counting.n_energies, 3)

    def test_limits(self):
        path = scratch("limits.extxyz")
        write(path, [label_of(atoms) for atoms in copper(3)])
        self.assertEqual(len(Dataset.read(path, largest_force=1e-9)), 0)
        for wrong in ({"largest_force": -1}, {"largest_force": float("nan")}, {"largest_force_deviation": -1}):
            with self.assertRaisesRegex(MlffUsageError, "give numbers from 0 on"):
                Dataset.read(path, **wrong)
        with self.assertRaisesRegex(MlffValueError, "the dataset has no structure"):
            Dataset().check()

    def test_stress_as_a_matrix(self):
        atoms = bulk("Cu", cubic=True)
        voigt, dataset = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], Dataset()
        matrix = [[0.01, 0.06, 0.05], [0.06, 0.02, 0.04], [0.05, 0.04, 0.03]]
        atoms.calc = SinglePointCalculator(atoms, energy=1.0, forces=np.zeros((4, 3)), stress=np.array(matrix))
        dataset.add(atoms)
        dataset.add(atoms, energy=1.0, forces=np.zeros((4, 3)), stress=voigt)
        for found in dataset:
            np.testing.assert_array_equal(found.get_stress(), voigt)
        with self.assertRaisesRegex(MlffUsageError, r"stress: shape \(5,\)"):
            dataset.add(atoms, energy=1.0, stress=voigt[:5])

    def test_add(self):
        data = Dataset()
        atoms = molecule("H2O")
        with self.assertRaisesRegex(MlffValueError, "no label"):
            data.add(atoms)
        # Labels outside of a calculator are named.
        atoms.info["REF_energy"], atoms.info["kinetic_energy"] = -10.0, 1.0
        atoms.arrays["forces"] = np.zeros((3, 3))
        said = r"energy=atoms.info\['REF_energy'\], forces=atoms.arrays\['forces'\]"
        with self.assertRaisesRegex(MlffValueError, rf"structure 0: no label in a calculator.*SinglePointCalculator\(atoms, {said}\)"):
            Dataset([atoms])
        data.add(atoms, energy=-10.0, forces=np.zeros((3, 3)))
        with self.assertRaisesRegex(TypeError, "in place of the name of a file"):
            Dataset.read([atoms])
        with self.assertRaisesRegex(MlffValueError, "not finite"):
            data.add(atoms, energy=-10.0, forces=np.full((3, 3), np.nan))
        self.assertEqual(len(data), 1)
        self.assertEqual(data[-1].get_potential_energy(), -10.0)
        with self.assertRaises(IndexError):
            data[1]
        # one molecule: the solution of least norm, E n / |n|²
        self.assertEqual(data.copies(data), {0: 0})
        others = Dataset()
        for distance in (0.9, 1.2):
            others.add(Atoms("H2", [[0, 0, 0], [0, 0, distance]]), energy=-3.0)
        atoms.rotate(70, "x")
        others.add(atoms, energy=-10.0)
        self.assertEqual(others.copies(data), {2: 0})
        self.assertEqual(data.copies(others), {0: 2})
        self.assertEqual(Dataset().copies(data), {})
        with self.assertRaises(TypeError):
            data.copies(None)  # type: ignore[arg-type]
        shifts = data.shifts()
        self.assertAlmostEqual(shifts[1], -10.0 * 2 / 5)
        self.assertAlmostEqual(shifts[8], -10.0 * 1 / 5)

    def test_results_of_other_atoms(self):
        shared, data = EMT(), Dataset()
        first, second = copper(2)
        for atoms in (first, second):
            atoms.calc = shared
            atoms.get_forces()
        data.add(second)
        with self.assertRaisesRegex(MlffUsageError, "results of EMT are of other positions"):
            data.add(first)  # the calculator has those of the second
        second.rattle(0.01)
        with self.assertRaisesRegex(MlffUsageError, "of other positions"):
            data.add(second)
        with self.assertRaisesRegex(MlffUsageError, r"forces: shape \(3, 4\)"):
            data.add(second, energy=0.0, forces=np.zeros((3, 4)))
        self.assertEqual(len(data), 1)
        self.assertIsNone(analyze([first, second]).energies)

    def test_results_with_two_energies(self):
        data, atoms = Dataset(), copper(1)[0]
        atoms.calc = Smeared()
        forces, free_energy = atoms.get_forces(), atoms.calc.results["free_energy"]
        with self.assertWarnsRegex(MlffWarning, "leave free_energy out if energy is meant"):
            data.add(atoms)
        data.add(atoms, energy=free_energy + 0.25, forces=forces)
        atoms.calc = EMT()
        atoms.get_forces()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            data.add(atoms)  # its two energies are the same
        self.assertEqual([frame.get_potential_energy() - free_energy for frame in data], [0.0, 0.25, 0.0])

    def test_combinations_of_calculators(self):
        class EnergyAlone(Calculator):
            implemented_properties = ["energy", "forces"]

            def calculate(self, atoms=None, properties=("energy",), system_changes=()):
                super().calculate(atoms, properties, system_changes)
                self.results = {"energy": 1.0, "forces": np.zeros((len(atoms), 3))}

        atoms = copper(1)[0]
        atoms.calc = EMT()
        one = atoms.get_potential_energy()
        for n, (calculator, expected) in enumerate(
            [
                (SumCalculator([Smeared(), EMT()]), 2 * one),
                (SumCalculator([Smeared(), EnergyAlone()]), one + 1),
                (MixedCalculator(Smeared(), EMT(), 0.3, 0.2), 0.5 * one),
                (SumCalculator([EMT(), SumCalculator([Smeared(), EnergyAlone()])]), 2 * one + 1),
            ]
        ):
            path = scratch(f"combined{n}.labels")
            with self.assertWarnsRegex(MlffWarning, "free_energy, to which forces belong, is the label"):
                label_with_calculator(calculator, [atoms], path, name=f"combined{n}")
            self.assertAlmostEqual(Dataset.read(path)[0].get_potential_energy(), expected, delta=1e-9)
            isolated = IsolatedCalculator(calculator)
            with self.assertWarnsRegex(MlffWarning, "free_energy, to which forces belong, is the label"):
                label_with_calculator(isolated, [atoms], scratch(f"isolated{n}.labels"), name=f"combined{n}")
            isolated.close()
            self.assertAlmostEqual(Dataset.read(scratch(f"isolated{n}.labels"))[0].get_potential_energy(), expected, delta=1e-9)
            atoms.calc = calculator
            atoms.get_forces(), atoms.get_potential_energy()
            with self.assertWarnsRegex(MlffWarning, "free_energy, to which forces belong, is the label"):
                data = Dataset([atoms])
            self.assertAlmostEqual(data[0].get_potential_energy(), expected, delta=1e-9)

        atoms.calc = SumCalculator([calculator, EMT()])  # has computed nothing, unlike a part of it
        with self.assertRaisesRegex(MlffValueError, "no label"):
            Dataset([atoms])

    def test_two_kinds_of_energies(self):
        def labelled(**results):
            atoms = copper(1)[0]
            atoms.calc = SinglePointCalculator(atoms, forces=np.zeros((len(atoms), 3)), **results)
            return atoms

        both, alone, same = labelled(energy=-1, free_energy=-2), labelled(energy=-2), labelled(energy=-2, free_energy=-2)
        path = str(scratch("kinds.db"))
        with connect(path) as database:
            for atoms in (same, both, alone, alone):
                database.write(atoms)
        for make, told in (
            (lambda: Dataset([same, alone, both, alone]), "structure 1: a structure without free_energy, which is the label of structure 2"),
            (lambda: Dataset.read(path), "kinds.db: row 3: a structure without free_energy, which is the label of .*kinds.db: row 2"),
            (lambda: Dataset([same, alone]), None),
            (lambda: Dataset([same, both]), None),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                make()
            mixed = [str(warning.message) for warning in caught if "two kinds" in str(warning.message)]
            self.assertEqual(len(mixed), told is not None)
            if told:
                self.assertRegex(mixed[0], told)

    def test_database(self):
        path = str(scratch("frames.db"))
        with connect(path) as database:
            for atoms, keys in zip(copper(3), ({"group": 7}, {}, {"group": 0})):
                atoms.calc = EMT()
                atoms.get_forces()
                database.write(atoms, **keys)
        data = Dataset.read(path)
        self.assertEqual(len(data), 3)
        self.assertEqual([found.info.get("group") for found in data], [7, None, 0])
        self.assertAlmostEqual(data[2].get_potential_energy(), atoms.get_potential_energy())
        self.assertEqual(len(Dataset.read(path, largest_force=1e-6)), 0)
        with connect(path) as database:
            database.write(copper(1)[0])
        with self.assertRaisesRegex(MlffValueError, "no label"):
            Dataset.read(path)

    def test_texts_are_groups(self):
        data, path = Dataset(), scratch("groups.extxyz")
        frames = [copper(1)[0] for _ in range(40)]
        for k, atoms in enumerate(frames):
            atoms.info["group"] = f"run {k % 4}"
            atoms.info["energy"] = -14.0 + 0.01 * k
            data.add(atoms, energy=-14.0 + 0.01 * k)
        write(path, frames)
        read = Dataset.read(path)
        self.assertEqual([atoms.info["group"] for atoms in read], [atoms.info["group"] for atoms in data])
        for either in (data, read):
            training, validation = either.split(0.25, seed=1)
            groups = [{atoms.info["group"] for atoms in part} for part in (training, validation)]
            self.assertEqual([len(g) for g in groups], [3, 1])
            self.assertFalse(groups[0] & groups[1])

    def test_split_and_units(self):
        data = Dataset()
        for k in range(40):
            atoms = copper(1)[0]
            atoms.info["group"] = k // 4
            data.add(atoms, energy=-14.0 + 0.01 * k)
        training, validation = data.split(0.2, seed=1)
        self.assertEqual((len(training), len(validation)), (32, 8))
        groups = [{atoms.info["group"] for atoms in part} for part in (training, validation)]
        self.assertFalse(groups[0] & groups[1])
        data.check()
        data.add(copper(1)[0], energy=-14.0 * 23.06)
        with self.assertRaisesRegex(MlffError, "structure 40"):
            data.check()


if __name__ == "__main__":
    unittest.main()
