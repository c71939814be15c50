# SPDX-License-Identifier: MIT
"""Purpose: other programs and mlff read each other's files: structures written by ASE are read alike, trajectories of `mlff md` are
read by ASE and MDAnalysis with the positions, cells and velocities of the extended XYZ of the same run."""

import inspect
import subprocess
import sys
import unittest

import ase.io
import ase.units
import numpy as np
from ase.build import bulk, molecule
from ase.io.lammpsdata import write_lammps_data
from ase.io.netcdftrajectory import NetCDFTrajectory

import support

try:
    import MDAnalysis
except ImportError:
    MDAnalysis = None
try:
    import netCDF4
except ImportError:
    netCDF4 = None

SINGLE = 2e-6  # Å: float32 of some 20 Å


def mlff(*words):
    done = subprocess.run([sys.executable, "-m", "mlff_distiller", *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise AssertionError(done.stderr)


def distances(atoms):
    return atoms.get_all_distances(mic=atoms.pbc.any())


def tilted_crystal():
    atoms = bulk("Si", cubic=True) * (2, 1, 1)
    atoms.rattle(0.05, seed=3)
    atoms.set_cell(atoms.cell.array @ np.array([[1, 0.02, -0.03], [0.1, 1, 0.05], [-0.05, 0.04, 1]]), scale_atoms=True)
    return atoms


class Reading(unittest.TestCase):
    """mlff reads what ASE writes: its own extended XYZ of the structure is compared with the original."""

    def read_back(self, path):
        output = support.scratch("back.extxyz")
        mlff("eval", support.untrained_path(), path, "-o", output)
        return ase.io.read(output)

    def check(self, atoms, name, tolerance, **how):
        path = support.scratch(name)
        ase.io.write(path, atoms, **how)
        back = self.read_back(path)
        self.assertEqual(sorted(back.get_chemical_symbols()), sorted(atoms.get_chemical_symbols()))
        self.assertEqual(back.pbc.all(), atoms.pbc.all())
        np.testing.assert_allclose(back.cell.cellpar(), atoms.cell.cellpar(), rtol=0, atol=tolerance)
        if back.get_chemical_symbols() == atoms.get_chemical_symbols():
            np.testing.assert_allclose(distances(back), distances(atoms), rtol=0, atol=tolerance)

    def test_formats(self):
        crystal = tilted_crystal()
        self.check(crystal, "POSCAR", 1e-9, format="vasp")
        self.check(crystal, "a.cif", 4e-4)  # ASE writes 5 digits of fractions: 5e-6 of 11 Å, several times
        if "masses" in inspect.signature(write_lammps_data).parameters:  # older ASE writes no elements
            self.check(crystal, "a.data", 1e-6, format="lammps-data", masses=True)
        self.check(crystal, "a.pdb", 2e-2)  # 3 decimals of Å; angles with 2
        self.check(molecule("CH3CH2OH"), "b.pdb", 2e-3)
        self.check(molecule("CH3CH2OH"), "b.xyz", 1e-8)


class Trajectories(unittest.TestCase):
    """The same run, once for each format."""

    @classmethod
    def setUpClass(cls):
        cls.start = support.scratch("start.extxyz")
        ase.io.write(cls.start, tilted_crystal())
        cls.truth = cls.frames_of("truth.extxyz")

    @classmethod
    def run_md(cls, name):
        path = support.scratch(name)
        mlff("md", support.untrained_path(), cls.start, "--ensemble", "scr", "--n-steps", 6, "--every", 2, "--seed", 4, "-o", path)
        return path

    @classmethod
    def frames_of(cls, name):
        return ase.io.read(cls.run_md(name), index=":")

    def compare(self, positions, cellpar, k):
        truth = self.truth[k]
        np.testing.assert_allclose(cellpar, truth.cell.cellpar(), rtol=0, atol=1e-4)
        there = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
        np.testing.assert_allclose(there, truth.get_all_distances(), rtol=0, atol=4 * SINGLE)

    def test_dump_in_ase(self):
        frames = self.frames_of("a.lammpstrj")
        self.assertEqual(len(frames), len(self.truth))
        for k, frame in enumerate(frames):
            self.compare(frame.positions, frame.cell.cellpar(), k)

    @unittest.skipUnless(netCDF4, "no netCDF4")
    def test_netcdf_in_ase(self):
        with NetCDFTrajectory(str(self.run_md("a.nc")), "r") as frames:
            self.assertEqual(len(frames), len(self.truth))
            for k, frame in enumerate(frames):
                self.compare(frame.positions, frame.cell.cellpar(), k)

    @unittest.skipUnless(MDAnalysis, "no MDAnalysis")
    def test_binary_files_in_mdanalysis(self):
        for name in ("b.dcd", "b.ncdf"):
            universe = MDAnalysis.Universe.empty(len(self.truth[0]), trajectory=False)
            universe.load_new(str(self.run_md(name)))
            self.assertEqual(len(universe.trajectory), len(self.truth))
            for k, frame in enumerate(universe.trajectory):
                self.compare(frame.positions.astype(float), frame.dimensions, k)
                if name.endswith(".ncdf"):
                    momenta = np.linalg.norm(self.truth[k].get_momenta(), axis=1) / self.truth[k].get_masses()  # Å, eV, u
                    speeds = momenta * 1000 * ase.units.fs  # Å/ps
                    self.assertGreater(speeds.min(), 0)
                    np.testing.assert_allclose(np.linalg.norm(frame.velocities, axis=1), speeds, rtol=1e-5)
                    self.assertAlmostEqual(frame.time, 1e-3 * self.truth[k].info["time_fs"], places=6)


if __name__ == "__main__":
    unittest.main()
