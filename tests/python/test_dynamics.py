# SPDX-License-Identifier: MIT
"""MD by the engine from Python: the integrator's promises, restart files, failures."""

import os
import tempfile
import unittest

import numpy as np
from ase.build import molecule
from ase.constraints import FixAtoms

from mlff_distiller import Dynamics, Model, MlffError


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
