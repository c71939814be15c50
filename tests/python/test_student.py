# SPDX-License-Identifier: MIT
"""Purpose: the student keeps ASE's rules (caching, Voigt order, refusals), drops into ASE's own dynamics, optimizers and vibrations,
gives the bits that `mlff eval` gives, and does not grow."""

import copy
import json
import os
import pickle
import subprocess
import tempfile
import unittest

import numpy as np
from ase import Atoms, units
from ase.build import molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.io import write
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS
from ase.vibrations import Vibrations

import support
from mlff_distiller import _library as lib
from mlff_distiller import _structs
from mlff_distiller._command import command_path
from mlff_distiller.dynamics import Dynamics
from mlff_distiller.engine import Model
from mlff_distiller.errors import MlffElementError, MlffUnsupportedError, MlffUsageError, MlffValueError, MlffWarning
from mlff_distiller.models import OrbCalculator, StudentCalculator


def resident_mb():
    raw = _structs.mlff_process_memory()
    lib.profile.mlff_process_memory_get(raw)
    return raw.resident_bytes / 2**20


class Doubled(StudentCalculator):
    def get_property(self, name, atoms=None, allow_calculation=True):
        return 2 * super().get_property(name, atoms, allow_calculation)


class Rules(unittest.TestCase):
    def setUp(self):
        self.calc = StudentCalculator(support.untrained(), device="cpu", precision="float64", n_threads=1)
        self.atoms = support.ethanol_frames(1)[0]
        self.atoms.calc = self.calc

    def computed(self):
        return self.calc.evaluator.info["n_computes"]

    def test_nothing_is_computed_twice(self):
        self.atoms.get_forces()
        self.atoms.get_potential_energy()
        self.atoms.get_potential_energy(force_consistent=True)
        self.atoms.get_potential_energies()
        self.assertEqual(self.computed(), 1)
        self.atoms.positions[0, 0] += 1e-12
        self.atoms.get_forces()
        self.assertEqual(self.computed(), 2)
        self.atoms.set_initial_charges(np.ones(len(self.atoms)))  # nothing depends on them
        self.atoms.get_forces()
        self.assertEqual(self.computed(), 2)

    def test_every_change_is_seen(self):
        atoms = support.silicon(1)
        atoms.calc = self.calc
        seen = [atoms.get_potential_energy()]
        atoms.set_cell(atoms.cell[:] * 1.01)
        seen.append(atoms.get_potential_energy())
        atoms.pbc = [True, True, False]
        seen.append(atoms.get_potential_energy())
        atoms.numbers[0] = 6
        seen.append(atoms.get_potential_energy())
        atoms.positions[3] += 0.1
        seen.append(atoms.get_potential_energy())
        del atoms[5]
        seen.append(atoms.get_potential_energy())
        self.assertEqual(len(set(seen)), 6)

    def test_results_are_the_callers(self):
        forces = self.atoms.get_forces()
        kept = forces.copy()
        forces[:] = 0
        np.testing.assert_array_equal(self.atoms.get_forces(), kept)

    def test_types_and_shapes(self):
        self.assertIs(type(self.atoms.get_potential_energy()), float)
        self.assertEqual(self.atoms.get_forces().shape, (9, 3))
        one = Atoms("C", calculator=self.calc)
        self.assertEqual(one.get_forces().shape, (1, 3))
        self.assertAlmostEqual(self.atoms.get_potential_energies().sum(), self.atoms.get_potential_energy(), delta=1e-9)

    def test_forces_and_stress_are_derivatives(self):
        atoms = support.silicon(1)
        atoms.calc = self.calc
        forces, stress = atoms.get_forces(), atoms.get_stress()
        h = 1e-4  # Å and strain: with h² errors and an energy good to 1e-12 of some eV, 1e-6
        for i, c in ((0, 0), (3, 1), (7, 2)):
            energies = []
            for sign in (1, -1):
                moved = atoms.copy()
                moved.calc = self.calc
                moved.positions[i, c] += sign * h
                energies.append(moved.get_potential_energy())
            self.assertAlmostEqual(forces[i, c], -(energies[0] - energies[1]) / (2 * h), delta=1e-5)
        voigt = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))  # xx yy zz yz xz xy
        for k, (a, b) in enumerate(voigt):
            energies = []
            for sign in (1, -1):
                strain = np.eye(3)
                strain[a, b] += sign * h / 2
                strain[b, a] += sign * h / 2
                moved = atoms.copy()
                moved.calc = self.calc
                moved.set_cell(atoms.cell[:] @ strain, scale_atoms=True)
                energies.append(moved.get_potential_energy())
            slope = (energies[0] - energies[1]) / (2 * h) / atoms.get_volume()
            self.assertAlmostEqual(stress[k], slope, delta=1e-6, msg=f"stress component {k}")
        self.assertEqual(atoms.get_stress(voigt=False).shape, (3, 3))

    def test_refusals(self):
        with self.assertRaisesRegex(PropertyNotImplementedError, "all three axes"):
            self.atoms.get_stress()
        with self.assertRaises(PropertyNotImplementedError):
            self.atoms.get_dipole_moment()
        gold = Atoms("Au", calculator=self.calc)
        with self.assertRaisesRegex(MlffElementError, "Au"):
            gold.get_potential_energy()

    def test_charge_that_the_model_does_not_read(self):
        neutral = self.atoms.get_potential_energy()
        for _ in range(2):  # refused again, and then over
            self.atoms.info["charge"] = np.array([1, 2])
            with self.assertRaisesRegex(MlffUsageError, "expected a number"):
                self.atoms.get_potential_energy()
        self.atoms.info["charge"] = 1
        with self.assertWarnsRegex(MlffWarning, "a charge of 1 e, which the model .* does not depend on"):
            self.assertEqual(self.atoms.get_potential_energy(), neutral)

    def test_charge_and_spin_of_a_structure(self):
        calc = StudentCalculator(
            Model.create("orb-v3-direct", conditioned=True, n_layers=1, n_features=32, hidden=32), device="cpu", precision="float64",
        )  # fmt: skip
        atoms = molecule("H2O")
        atoms.calc = calc
        with self.assertRaisesRegex(MlffValueError, "charge and spin"):
            atoms.get_potential_energy()
        energies = {}
        for charge, spin in ((0, 1), (1, 2), (-1, 2)):
            atoms.info.update(charge=charge, spin=spin)
            energies[charge] = atoms.get_potential_energy()  # a change of info alone is seen
        self.assertEqual(len(set(energies.values())), 3)
        other = atoms.copy()
        other.info.update(charge=0, spin=1)
        rows = calc.calculate_batch([atoms, other])
        for row, charge in zip(rows, (-1, 0)):
            self.assertAlmostEqual(row["energy"], energies[charge], delta=1e-9)  # batches sum in another order
        atoms.info["charge"] = "+1"
        with self.assertRaisesRegex(MlffUsageError, "charge"):
            atoms.get_potential_energy()

    def test_a_model_without_energies_of_atoms(self):
        calc = StudentCalculator(Model.create("orb-v3-direct", n_layers=1, n_features=32, hidden=32), device="cpu")
        info = calc.evaluator.model.info
        self.assertFalse(info.conservative or info.has_atom_energies)
        self.assertNotIn("energies", calc.implemented_properties)
        atoms = molecule("H2O")
        atoms.calc = calc
        self.assertTrue(np.all(np.isfinite(atoms.get_forces())))
        self.assertNotIn("energies", calc.results)
        with self.assertRaises(PropertyNotImplementedError):
            atoms.get_potential_energies()
        with self.assertRaisesRegex(MlffUnsupportedError, "no energies of atoms"):
            calc.calculate_batch([atoms], ["energies"])

    def test_a_failure_leaves_nothing_stale(self):
        self.atoms.get_forces()
        self.atoms.positions[2, 2] = np.nan
        for _ in range(2):  # and again: a NaN never equals the one before
            with self.assertRaises(MlffValueError):
                self.atoms.get_forces()
        self.atoms.positions[2, 2] = 0.1
        self.assertTrue(np.all(np.isfinite(self.atoms.get_forces())))

    def test_positions_of_another_shape_come_first(self):
        calc, flat = StudentCalculator(support.untrained(), device="cpu", precision="float64", n_threads=1), self.atoms.copy()
        flat.arrays["positions"] = flat.arrays["positions"][:, :2].copy()
        with self.assertRaises(ValueError):
            calc.get_potential_energy(flat)
        self.assertEqual(calc.get_potential_energy(self.atoms), self.atoms.get_potential_energy())

    def test_a_call_of_calculate_keeps_nothing_of_other_atoms(self):
        """As programs call it that have no get_property: forces of atoms before must not be those of the next ones."""
        self.calc.calculate(self.atoms, ["forces"])
        first = self.calc.results["forces"]
        self.calc.calculate(self.atoms, ["energy"])
        self.assertIs(self.calc.results["forces"], first)  # of the same atoms
        moved = self.atoms.copy()
        moved.positions[0] += 0.1
        self.calc.calculate(moved, ["energy"])
        self.assertNotIn("forces", self.calc.results)
        forces = self.calc.get_property("forces", moved)
        other = StudentCalculator(support.untrained(), device="cpu", precision="float64", n_threads=1)
        np.testing.assert_array_equal(forces, other.get_forces(moved))
        energy = self.calc.get_potential_energy(self.atoms)
        self.calc.calculate(moved, ["energy"], [])  # a caller that says that nothing changed
        self.assertEqual(self.calc.get_potential_energy(self.atoms), energy)

    def test_energy_alone_leaves_forces_out(self):
        self.atoms.get_potential_energy()
        self.assertNotIn("forces", self.calc.results)

    def test_a_barostat_computes_once_a_step(self):
        atoms = support.silicon(1)
        atoms.calc = self.calc
        atoms.get_forces(), atoms.get_stress()
        before = self.computed()
        for _ in range(5):
            atoms.positions += 1e-3
            atoms.get_forces(), atoms.get_stress(), atoms.get_potential_energy()
        self.assertEqual(self.computed() - before, 5)

    def test_copies(self):
        energy = self.atoms.get_potential_energy()
        for other in (copy.deepcopy(self.calc), pickle.loads(pickle.dumps(self.calc))):
            self.assertEqual(other.get_potential_energy(self.atoms), energy)

    def test_copies_of_a_subclass(self):
        calc = Doubled(support.untrained(), device="cpu", precision="float64", n_threads=1)
        calc.note = "mine"
        energy = calc.get_potential_energy(self.atoms)
        self.assertEqual(energy, 2 * self.atoms.get_potential_energy())
        for other in (copy.copy(calc), copy.deepcopy(calc), pickle.loads(pickle.dumps(calc))):
            self.assertEqual((type(other), other.note, other.get_potential_energy(self.atoms)), (Doubled, "mine", energy))
        self.assertIs(copy.deepcopy(calc).model, calc.model)
        for alone in (calc.evaluator, Dynamics(self.atoms, calc.model, device="cpu")):
            with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                pickle.dumps(alone)

    def test_settings_without_effect_are_refused(self):
        """A calculator of ASE would keep them among its parameters, which files of results then tell."""
        with self.assertRaisesRegex(TypeError, "no setting precison; it has device, precision"):
            StudentCalculator(support.untrained(), device="cpu", precison="float64")
        for calc in (self.calc, OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True)):
            before = dict(calc.parameters)
            with self.assertRaisesRegex(MlffUsageError, "precision: .* when it is made"):
                calc.set(precision="float32")
            self.assertEqual(calc.set(), {})
            self.assertEqual(calc.parameters, before)

    def test_threads_share_a_calculator(self):
        frames = support.ethanol_frames(6)
        expected = [self.calc.get_forces(atoms) for atoms in frames]
        wrong = support.wrong_in_threads(6, 40, lambda i: np.array_equal(self.calc.get_forces(frames[i]), expected[i]))
        self.assertEqual(wrong, [])

    def test_batches(self):
        frames = support.ethanol_frames(4) + [support.silicon(1), molecule("H2O")]
        rows = self.calc.calculate_batch(frames, ["energy", "forces", "stress", "energies"])
        for atoms, row in zip(frames, rows):
            self.assertEqual(row["energy"], self.calc.get_potential_energy(atoms))
            np.testing.assert_array_equal(row["forces"], self.calc.get_forces(atoms))
            np.testing.assert_array_equal(row["energies"], self.calc.get_property("energies", atoms))
            self.assertEqual("stress" in row, bool(atoms.pbc.all()))
            if "stress" in row:
                np.testing.assert_array_equal(row["stress"], self.calc.get_stress(atoms))
        self.assertEqual(self.calc.calculate_batch([]), [])
        self.assertGreater(self.calc.memory()["host_bytes"], 0)
        with self.assertRaises(PropertyNotImplementedError):
            self.calc.calculate_batch(frames, ["dipole"])
        for one in (self.calc.calculate_batch(frame for frame in frames[:2]), self.calc.calculate_batch(frames[:2], "energy")):
            self.assertEqual([row["energy"] for row in one], [row["energy"] for row in rows[:2]])
        self.assertEqual(self.calc.calculate_batch(frames[0])[0]["energy"], rows[0]["energy"])
        for wrong in ("abc", [frames[0], None]):
            with self.assertRaisesRegex(TypeError, "in place of ASE's Atoms"):
                self.calc.calculate_batch(wrong)


class Ensembles(unittest.TestCase):
    def test_uncertainty(self):
        atoms = support.ethanol_frames(1)[0]
        calc = StudentCalculator(Model.create("ani", n_members=3), device="cpu", n_threads=1)
        found = calc.ensemble(atoms)
        self.assertEqual(found["member_energies"].shape, (3,))
        self.assertGreater(found["energy_deviation"], 0)
        self.assertEqual(found["force_deviations"].shape, (9, 3))
        self.assertAlmostEqual(found["member_energies"].mean(), calc.get_potential_energy(atoms), delta=1e-3)
        self.assertNotIn("member_energies", calc.results)
        calc = pickle.loads(pickle.dumps(StudentCalculator(calc.model, device="cpu", n_threads=1, members=[0, 2], uncertainty=True)))
        calc.get_potential_energy(atoms)
        np.testing.assert_array_equal(calc.results["member_energies"], found["member_energies"][[0, 2]])
        self.assertNotIn("member_forces", calc.results)
        calc.get_forces(atoms)
        np.testing.assert_array_equal(calc.results["member_forces"], found["member_forces"][[0, 2]])
        self.assertEqual(calc.results["force_deviations"].shape, (9, 3))


class DropIn(unittest.TestCase):
    def test_parity_with_the_command_to_the_bit(self):
        command = command_path()
        frames = support.ethanol_frames(3) + [support.silicon(1)]
        path, model = support.scratch("parity.extxyz"), support.untrained_path()
        write(path, frames, format="extxyz")
        # What both read: the file's digits.
        from ase.io import read

        frames = read(path, ":")
        for precision in ("float32", "float64"):
            out = support.scratch(f"parity-{precision}.json")
            subprocess.run(
                [command, "eval", str(model), str(path), "--stress", "--precision", precision, "--device", "cpu", "--threads", "1",
                 "--json", str(out)],
                check=True, capture_output=True,
            )  # fmt: skip
            calc = StudentCalculator(model, device="cpu", precision=precision, n_threads=1)
            for atoms, row in zip(frames, json.loads(out.read_text())["frames"]):
                self.assertEqual(calc.get_potential_energy(atoms), row["energy_ev"])
                np.testing.assert_array_equal(calc.get_forces(atoms), np.array(row["forces_ev_per_ang"]))
                if atoms.pbc.all():
                    np.testing.assert_array_equal(calc.get_stress(atoms), np.array(row["stress_ev_per_ang3"]))

    def md(self, model, n_steps, timestep_fs):
        atoms = molecule("CH3CH2OH")
        atoms.calc = StudentCalculator(model, device="cpu", n_threads=1)
        BFGS(atoms, logfile=os.devnull).run(fmax=0.05, steps=200)
        MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.default_rng(1))
        Stationary(atoms)
        dynamics = VelocityVerlet(atoms, timestep_fs * units.fs)
        energies = []
        dynamics.attach(lambda: energies.append(atoms.get_total_energy()), interval=10)
        dynamics.run(n_steps)
        return np.array(energies)

    def test_md_of_ethanol_conserves_energy(self):
        # 10 ps at 0.5 fs where MLFF_LONG_TESTS is set, else 1 ps. NVE of a smooth force field at this step oscillates by some meV and
        # does not drift: the means of the two halves differ by less than 1 meV (measured: a few 0.01 meV).
        n_steps = 20000 if os.environ.get("MLFF_LONG_TESTS") else 2000
        energies = self.md(support.trained_ethanol(), n_steps, 0.5)
        half = len(energies) // 2
        drift = energies[half:].mean() - energies[:half].mean()
        print(f"NVE of ethanol, {n_steps / 2000:g} ps: drift {drift * 1e3:+.3f} meV, std {energies.std() * 1e3:.3f} meV")
        self.assertLess(abs(drift), 1e-3)
        self.assertLess(np.ptp(energies), 0.03)

    def test_vibrations_of_ethanol(self):
        atoms = molecule("CH3CH2OH")
        atoms.calc = StudentCalculator(support.trained_ethanol(), device="cpu", precision="float64", n_threads=1)
        BFGS(atoms, logfile=os.devnull).run(fmax=1e-4, steps=500)
        with tempfile.TemporaryDirectory() as folder:
            vibrations = Vibrations(atoms, name=f"{folder}/vib")
            vibrations.run()
            frequencies = np.sort(np.abs(vibrations.get_frequencies()))
        # A molecule: 21 vibrations; the O-H stretch of ethanol is near 3700 /cm, six modes are (numerically) zero.
        self.assertGreater(frequencies[6], 100)
        self.assertLess(frequencies[5], 100)
        self.assertTrue(3400 < frequencies[-1] < 4100, frequencies)

    def test_ten_thousand_calls_do_not_grow(self):
        # 10⁶ where MLFF_LONG_TESTS is set.
        calc = StudentCalculator(support.untrained(), device="cpu", n_threads=1)
        atoms = molecule("H2O")
        atoms.calc = calc
        n_calls = 10**6 if os.environ.get("MLFF_LONG_TESTS") else 10**4

        def run(n):
            for i in range(n):
                atoms.arrays["positions"][0, 0] += 1e-4 * (-1) ** i
                atoms.get_forces()

        run(1000)
        before, growths = resident_mb(), calc.evaluator.info["n_growths"]
        run(n_calls)
        grown = resident_mb() - before
        print(f"{n_calls} calls: resident memory {grown:+.2f} MB")
        self.assertLess(grown, 2.0)
        self.assertEqual(calc.evaluator.info["n_growths"], growths)

    def test_calculators_go_away_whole(self):
        atoms = molecule("H2O")
        model = support.untrained()

        def make(n):
            for _ in range(n):
                StudentCalculator(model, device="cpu", n_threads=1).get_forces(atoms)

        make(20)
        before = resident_mb()
        make(300)
        self.assertLess(resident_mb() - before, 4.0)


if __name__ == "__main__":
    unittest.main()
