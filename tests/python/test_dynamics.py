# SPDX-License-Identifier: MIT
"""MD by the engine from Python: the integrator's promises, restart files, failures."""

import os
import tempfile
import unittest

import numpy as np
from ase.build import bulk, molecule
from ase.constraints import FixAtoms

from mlff_distiller import Dynamics, MlffError, MlffWarning, Model, Replicas
from mlff_distiller.errors import MlffUsageError


class TestDynamics(unittest.TestCase):
    def setUp(self):
        self.model = Model.create("painn", elements=["H", "C", "O"], n_features=16, n_layers=2)
        self.atoms = molecule("CH3CH2OH")

    def make(self, **settings):
        return Dynamics(self.atoms, self.model, device="cpu", seed=3, **settings)

    def test_nve(self):
        dynamics = self.make(timestep_fs=0.25)
        self.assertEqual(dynamics.device, "cpu")
        self.assertAlmostEqual(dynamics.temperature, 300.0, places=9)
        before = dynamics.conserved_energy
        times = dynamics.run(200)
        self.assertEqual(times.shape, (200,))
        self.assertTrue(np.all(times > 0))
        self.assertEqual(dynamics.step, 200)
        self.assertAlmostEqual(dynamics.time_fs, 50.0, places=9)
        self.assertLess(abs(dynamics.conserved_energy - before), 0.01)  # eV, of a kinetic energy of 0.3
        self.assertEqual(dynamics.forces.shape, (9, 3))
        self.assertGreater(np.abs(dynamics.positions - self.atoms.positions).max(), 0.01)

    def test_restart(self):
        self.atoms.set_constraint(FixAtoms([2]))
        whole, first, second = (self.make(friction_per_fs=0.02) for _ in range(3))
        whole.run(40)
        first.run(15)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.restart")
            first.save(path)
            second.restore(path)
        second.run(25)
        self.assertEqual(second.step, 40)
        np.testing.assert_array_equal(second.positions, whole.positions)
        np.testing.assert_array_equal(second.velocities, whole.velocities)
        np.testing.assert_array_equal(whole.positions[2], self.atoms.positions[2])

    def test_restart_of_another_model(self):
        other = Model.create("painn", elements=["H", "C", "O"], n_features=16, n_layers=2, seed=9)
        first, second = self.make(), Dynamics(self.atoms, other, device="cpu")
        first.run(2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.restart")
            first.save(path)
            with self.assertRaisesRegex(MlffError, "run.restart: was written by a run of another model"):
                second.restore(path)

    def test_ensembles(self):
        crystal = bulk("Si", cubic=True) * (2, 1, 1)
        crystal.rattle(0.02, seed=1)
        model = Model.create("painn", elements=["Si"], n_features=16, n_layers=1)
        for ensemble in ("langevin", "bussi", "nose-hoover", "scr", "mtk"):
            with self.subTest(ensemble=ensemble):
                constant_pressure = ensemble in ("scr", "mtk")
                pressure = 0.01 if constant_pressure else 0.0
                dynamics = Dynamics(crystal, model, device="cpu", ensemble=ensemble, timestep_fs=0.25, pressure=pressure, barostat_fs=100)
                self.assertAlmostEqual(dynamics.temperature, 300.0, places=9)
                before = dynamics.conserved_energy
                dynamics.run(40)
                self.assertLess(abs(dynamics.conserved_energy - before), 0.02)  # eV, of a kinetic energy of 0.6
                self.assertEqual(np.isfinite(dynamics.pressure), constant_pressure)
                self.assertEqual(abs(dynamics.volume - crystal.get_volume()) > 1e-6, constant_pressure)
                self.assertAlmostEqual(abs(np.linalg.det(dynamics.cell)), dynamics.volume, places=9)
        ramped = self.make(ensemble="bussi", temperature=200.0, thermostat_fs=1.0, ramp=(600.0, 50))
        ramped.run(200)
        self.assertGreater(ramped.temperature, 300.0)
        for wrong in ({"ensemble": "npt"}, {"ensemble": "mtk", "friction_per_fs": 0.1}, {"pressure": 0.01}, {"anisotropic": True}, {"ramp": (600, 5)}):
            with self.subTest(**wrong), self.assertRaises(MlffUsageError):
                self.make(**wrong)
        with self.assertRaisesRegex(MlffError, "periodic"):
            self.make(ensemble="scr")

    def test_constant_volume_behind_constant_pressure(self):
        crystal = bulk("Si", cubic=True)
        model = Model.create("painn", elements=["Si"], n_features=16, n_layers=1)
        pressed = Dynamics(crystal, model, device="cpu", ensemble="scr", pressure=0.05, barostat_fs=100)
        pressed.run(20)
        self.assertGreater(np.abs(pressed.cell - crystal.cell[:]).max(), 1e-3)
        after = Dynamics(crystal, model, device="cpu")
        replicas = Replicas([crystal] * 2, model, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "npt.restart")
            pressed.save(path)
            for one in (after, replicas[1]):
                with self.assertWarnsRegex(MlffWarning, "was written by a run with scr"):
                    one.restore(path)
        after.run(5)
        replicas.run(5)
        np.testing.assert_array_equal(after.cell, pressed.cell)
        np.testing.assert_array_equal(replicas[1].cell, pressed.cell)
        np.testing.assert_array_equal(replicas[0].cell, crystal.cell[:])
        np.testing.assert_allclose(replicas[1].positions, after.positions, atol=1e-6)  # Å: float32, 5 steps

    def test_replicas(self):
        kelvin = [200.0, 300.0, 400.0]
        replicas = Replicas([self.atoms] * 3, self.model, temperature=kelvin, seed=3, device="cpu", ensemble="bussi", precision="float64")
        self.assertEqual(len(replicas), 3)
        self.assertEqual(replicas.run(30).shape, (30,))
        for k, replica in enumerate(replicas):
            alone = Dynamics(self.atoms, self.model, temperature=kelvin[k], seed=3 + k, device="cpu", ensemble="bussi", precision="float64")
            alone.run(30)
            np.testing.assert_allclose(replica.positions, alone.positions, atol=1e-9)  # float64: sums in the same order
            self.assertEqual(replica.step, 30)
            self.assertEqual(replica.error, "")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "one.restart")
            replicas[1].save(path)
            replicas.run(5)
            there = replicas[1].positions
            replicas[1].restore(path)
            replicas.run(5)
            np.testing.assert_array_equal(replicas[1].positions, there)
        with self.assertRaises(IndexError):
            replicas[3]

    def test_replica_that_explodes(self):
        wild = self.atoms.copy()
        wild.set_velocities(np.full((9, 3), 1e9))
        replicas = Replicas([self.atoms, wild], self.model, seed=3, device="cpu", timestep_fs=1.0)
        with self.assertWarnsRegex(MlffWarning, "replica 1 has ended"):
            replicas.run(20)
        self.assertEqual(replicas[0].step, 20)
        self.assertLess(replicas[1].step, 20)
        self.assertIn("step", replicas[1].error)

    def test_failure(self):
        self.atoms.set_velocities(np.full((9, 3), 1e8))
        dynamics = self.make(timestep_fs=100.0)
        with self.assertRaisesRegex(MlffError, "step [0-9]+"):
            dynamics.run(100)
        self.assertLess(dynamics.step, 100)
        with self.assertRaises(MlffError):
            dynamics.run(-1)


if __name__ == "__main__":
    unittest.main()
