# SPDX-License-Identifier: MIT
"""Purpose: programs of others are profiled for real: LAMMPS as a library inside the process, xtb as a program of its own, tblite;
whether each computes forces when only the energy is asked for is found out. What is not installed is skipped, and says so."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import numpy as np
from ase.build import bulk, molecule
from ase.calculators.calculator import Calculator, all_changes
from ase.io import write
from ase.units import Bohr, Hartree

import support
from mlff_distiller.cuda.md_profiler import MDProfiler

try:
    import lammps
except ImportError:
    lammps = None
try:
    from tblite.ase import TBLite
except ImportError:
    TBLite = None

KINDS = ["energy", "energy+forces", "energy+forces+stress"]


def lammps_library(path, mode):
    """Debian's python3-lammps asks for liblammps.so, a link that only liblammps-dev has, to the library that is there."""
    return ctypes.CDLL("liblammps.so.0" if path == "liblammps.so" else path, mode)


class Xtb(Calculator):
    """GFN2-xTB by the program xtb, one process for each question; gradients only where forces are asked for."""

    implemented_properties = ["energy", "forces"]

    def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
        super().calculate(atoms, properties, system_changes)
        command = ["xtb", "atoms.xyz", "--gfn", "2", *(["--grad"] if "forces" in properties else [])]
        with tempfile.TemporaryDirectory() as folder:
            write(f"{folder}/atoms.xyz", atoms, format="xyz", fmt="%20.12f")
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            line = next(line for line in done.stdout.splitlines() if "TOTAL ENERGY" in line)
            self.results["energy"] = float(line.split()[3]) * Hartree
            if "forces" in properties:
                rows = pathlib.Path(folder, "gradient").read_text().splitlines()[2 + len(atoms) : 2 + 2 * len(atoms)]
                self.results["forces"] = -np.array([row.split() for row in rows], dtype=float) * Hartree / Bohr


class ThirdParties(unittest.TestCase):
    def setUp(self):
        self.profiler = MDProfiler(device="cpu", warmup_steps=2)

    def matrix(self, calc, frames, kinds, n_steps=4):
        """Profiles a calculator, gives whether it is one-shot; what is measured are its own numbers."""
        result = self.profiler.profile_calculator(calc, frames, n_steps=n_steps, split=False)
        self.assertEqual((result.n_steps, result.partial), (n_steps, False))
        times = self.profiler.property_times(calc, frames, n_steps=n_steps)
        self.assertEqual([kind for kind in times if kind != "one_shot"], kinds)
        self.assertTrue(all(times[kind] > 0 for kind in kinds))
        return times["one_shot"]

    @unittest.skipIf(lammps is None, "LAMMPS for Python is not installed (python3-lammps)")
    def test_lammps(self):
        from ase.calculators.lammpslib import LAMMPSlib
        from ase.calculators.lj import LennardJones

        frames = []
        for seed in range(3):
            atoms = bulk("Ar", "fcc", a=5.26, cubic=True) * (2, 2, 2)
            atoms.rattle(0.05, seed=seed)
            frames.append(atoms)
        with mock.patch("lammps.core.CDLL", lammps_library):
            calc = LAMMPSlib(
                lmpcmds=["pair_style lj/cut 5.0", "pair_coeff * * 0.0104 3.4"], atom_types={"Ar": 1}, keep_alive=True
            )
            try:
                calc.get_potential_energy(frames[0])
            except OSError as problem:
                self.skipTest(f"LAMMPS's library cannot be loaded: {problem}")
            self.assertTrue(self.matrix(calc, frames, KINDS, n_steps=10))
            moved = self.profiler.profile_md(calc, frames[0], n_steps=10, timestep_fs=2.0)
        self.assertEqual(moved.n_steps, 10)
        # It computed what it was asked for: ASE's own Lennard-Jones has these forces too (sums in another order: 1e-9).
        theirs = LennardJones(sigma=3.4, epsilon=0.0104, rc=5.0)
        np.testing.assert_allclose(calc.get_forces(frames[1]), theirs.get_forces(frames[1]), atol=1e-9)

    @unittest.skipUnless(shutil.which("xtb"), "xtb is not installed")
    def test_xtb(self):
        frames = []
        for seed in range(3):
            atoms = molecule("H2O")
            atoms.rattle(0.02, seed=seed)
            frames.append(atoms)
        calc = Xtb()
        self.assertFalse(self.matrix(calc, frames, KINDS[:2], n_steps=3))
        forces = calc.get_forces(frames[0])
        h, i, axis = 1e-3, 1, 2
        energies = []
        for sign in (1, -1):
            moved = frames[0].copy()
            moved.positions[i, axis] += sign * h
            energies.append(calc.get_potential_energy(moved))
        # The program converges energies to 1e-6 Hartree: 3e-5 eV over 2e-3 Å.
        self.assertAlmostEqual(forces[i, axis], (energies[1] - energies[0]) / (2 * h), delta=0.02)

    @unittest.skipIf(TBLite is None, "tblite is not installed")
    def test_tblite(self):
        self.assertTrue(self.matrix(TBLite(method="GFN2-xTB", verbosity=0), support.ethanol_frames(3), KINDS[:2]))


if __name__ == "__main__":
    unittest.main()
