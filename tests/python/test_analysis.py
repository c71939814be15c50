# SPDX-License-Identifier: MIT
"""Analysis of trajectories and vibrations from Python: what mlff analyze finds, known frequencies, crystals, refusals."""

import json
import os
import signal
import subprocess
import unittest
import warnings
from unittest import mock

import numpy as np
import support
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.io import read, write
from ase.units import J, _hbar, fs, invcm, s

from mlff_distiller import MlffError, MlffWarning, Model, StudentCalculator, analyze, relax, vibrations
from mlff_distiller import _structs

ETHANOL = os.path.join(os.path.dirname(__file__), "..", "..", "models", "ethanol.safetensors")
WAVENUMBER = 1500.0  # 1/cm
LIGHT = 2.99792458e-5  # cm/fs


def oscillator(n=400, frame_fs=2.0):
    """A hydrogen molecule that vibrates along x with one frequency."""
    frames = []
    for k in range(n):
        phase = 2 * np.pi * LIGHT * WAVENUMBER * k * frame_fs
        atoms = Atoms("H2", [[-0.37 - 0.03 * np.sin(phase), 0, 0], [0.37 + 0.03 * np.sin(phase), 0, 0]])
        speed = 0.03 * 2 * np.pi * LIGHT * WAVENUMBER * np.cos(phase) / fs
        atoms.set_velocities([[-speed, 0, 0], [speed, 0, 0]])
        atoms.calc = SinglePointCalculator(atoms, energy=0.5 + 0.001 * k, forces=np.zeros((2, 3)))
        frames.append(atoms)
    return frames


class TestAnalyze(unittest.TestCase):
    def test_known_oscillator(self):
        frames = oscillator()
        found = analyze(frames, frame_fs=2.0, geometry=True)
        self.assertEqual(found.n_frames, 400)
        np.testing.assert_allclose(found.energies, 0.5 + 0.001 * np.arange(400), rtol=1e-12)
        # 3N - 3 = 3 degrees of freedom, as ASE's temperature of 3N = 6 times two.
        np.testing.assert_allclose(found.temperatures, [2 * a.get_temperature() for a in frames], rtol=1e-5, atol=1e-9)
        peak = found.vdos.wavenumber[found.vdos.density.argmax()]
        self.assertLess(abs(peak - WAVENUMBER), 2 * (found.vdos.wavenumber[1] - found.vdos.wavenumber[0]))
        (bond,) = found.geometry
        self.assertEqual((bond.name, bond.is_angle, bond.count), ("H-H", False, 1))
        self.assertAlmostEqual(bond.mean, 0.74, places=3)
        self.assertAlmostEqual(bond.density.sum() * (bond.middles[1] - bond.middles[0]), 1, places=6)
        self.assertIsNone(found.rdf)
        self.assertIsNone(found.densities)
        np.testing.assert_array_equal(analyze(frames, skip=150).energies, found.energies[150:])
        with self.assertRaisesRegex(MlffError, "beyond the 400 that are skipped"):
            analyze(frames, skip=400)
        with self.assertRaises(MlffError):
            analyze(frames, skip=-1)

    def test_free_energies(self):
        """As of VASP: the energy of a frame is the free energy, from a file and from atoms."""
        frames = oscillator()[:20]
        for atoms in frames:
            atoms.calc.results["free_energy"] = atoms.calc.results["energy"] - 0.2
        path = support.scratch("free.extxyz")
        write(path, frames)
        np.testing.assert_allclose(analyze(frames).energies, 0.3 + 0.001 * np.arange(20), rtol=1e-12)
        with self.assertWarnsRegex(MlffWarning, "free_energy= is read"):
            np.testing.assert_allclose(analyze(path).energies, analyze(frames).energies, rtol=1e-7)

    @unittest.skipUnless("MLFF_COMMAND" in os.environ, "the command is not beside the installed package")
    def test_same_as_the_command(self):
        # A random walk of a small crystal, from the file and from ASE's atoms.
        rng = np.random.default_rng(3)
        atoms, frames = bulk("NaCl", "rocksalt", a=5.64, cubic=True), []
        for _ in range(120):
            atoms.positions += rng.normal(0, 0.02, (8, 3))
            frames.append(atoms.copy())
        path = support.scratch("walk.extxyz")
        write(path, frames)
        options = {"pair": "Na-Cl", "reach": 4.0, "n_bins": 40, "element": "Cl", "frame_fs": 5.0}
        arguments = ["--pair", "Na-Cl", "--range", "4", "--bins", "40", "--element", "Cl", "--frame-time", "5", "--json"]
        output = subprocess.run([os.environ["MLFF_COMMAND"], "analyze", path, *arguments], check=True, capture_output=True)
        command = json.loads(output.stdout)
        for found in (analyze(path, **options), analyze(frames, **options)):
            # 1e-6: the file has eight decimals.
            np.testing.assert_allclose(found.rdf.g, command["rdf"]["g"], rtol=1e-6)
            np.testing.assert_allclose(found.rdf.coordination, command["rdf"]["coordination"], rtol=1e-6)
            np.testing.assert_allclose(found.lags, command["msd"]["lag_fs"], rtol=1e-12)
            np.testing.assert_allclose(found.msd, command["msd"]["msd_angstrom2"], rtol=1e-6)
            self.assertAlmostEqual(found.diffusion.value / command["msd"]["diffusion_cm2_per_s"], 1, places=5)
            self.assertIsNone(found.vdos)
            self.assertIsNone(found.energies)
            np.testing.assert_allclose(found.densities, command["density"]["values"], rtol=1e-7)
            np.testing.assert_allclose(found.densities, 2.1637, rtol=1e-4)  # of halite, by its lattice constant

    @unittest.skipUnless("MLFF_COMMAND" in os.environ, "the command is not beside the installed package")
    def test_formats_without_elements(self):
        paths = [support.scratch(f"formats.{suffix}") for suffix in ("extxyz", "dcd", "nc", "lammpstrj")]
        arguments = ["md", ETHANOL, "--system", "ethanol", "--n-steps", "8", "--every", "1", "--quiet", "-o"]
        for path in paths:
            subprocess.run([os.environ["MLFF_COMMAND"], *arguments, path], check=True)
        truth = analyze(paths[0], geometry=True, frame_fs=0.5)
        for path in paths[1:]:
            for topology in (paths[0], read(paths[0])):
                found = analyze(path, geometry=True, frame_fs=0.5, topology=topology)
                self.assertEqual(found.n_frames, 9)
                # 2e-3: positions of float32, 2e-7 Å, and displacements of 0.005 Å
                np.testing.assert_allclose(found.msd, truth.msd, rtol=2e-3)
                self.assertEqual([kind.name for kind in found.geometry], [kind.name for kind in truth.geometry])
        with self.assertRaisesRegex(MlffError, "names no elements"):
            analyze(paths[1], frame_fs=0.5)
        with self.assertRaisesRegex(MlffError, "the topology has 2"):
            analyze(paths[1], frame_fs=0.5, topology=Atoms("H2", [[0, 0, 0], [0, 0, 1]]))
        with self.assertRaisesRegex(MlffError, "Atoms have their elements"):
            analyze([read(paths[0])], frame_fs=0.5, topology=paths[0])

    def test_times_of_frames(self):
        frames = [Atoms("H2", [(0, 0, 0), (0, 0, 0.74)], info={"time_fs": 10.0 * k}) for k in range(5)]
        path = support.scratch("times.extxyz")
        write(path, frames)
        with self.assertWarnsRegex(MlffWarning, "are 10 fs apart .* 5 fs"):
            analyze(path, frame_fs=5.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            analyze(path, frame_fs=10.0)
        write(path, frames[:3] + frames[4:])
        with self.assertWarnsRegex(MlffWarning, "are 10 to 20 fs apart .* 10 fs"):
            analyze(path, frame_fs=10.0)

    def test_one_atom_in_a_cell(self):
        frames = [Atoms("He", [(0.1 * k, 0, 0)], cell=[5, 5, 5], pbc=True) for k in range(100)]
        found = analyze(frames, frame_fs=1.0)
        self.assertIsNone(found.rdf)
        self.assertAlmostEqual(found.msd[0], 0.01)

    def test_refused(self):
        frames = oscillator(4)
        for options, text in (
            ({"pair": "H"}, "two elements"),
            ({"pair": "H-Xx"}, "not an element"),
            ({"element": "H"}, "frame_fs"),
            ({"pair": "H-H"}, "periodic"),
            ({"element": "O", "frame_fs": 1.0}, "O"),
        ):
            with self.subTest(options), self.assertRaisesRegex(MlffError, text):
                analyze(frames, **options)
        with self.assertRaisesRegex(MlffError, "holds no frame"):
            analyze([])
        with self.assertRaises(MlffError):
            analyze([frames[0], molecule("H2O")], frame_fs=1.0)
        with self.assertRaises(MlffError):
            analyze(support.scratch("absent.extxyz"))


    def test_frames_before_a_bad_one(self):
        frames = oscillator(6)
        path, cut = support.scratch("oscillator.extxyz"), support.scratch("cut.extxyz")
        write(path, frames)
        lines = path.read_text().splitlines(keepends=True)
        cut.write_text("".join(lines[:23]))  # of six frames of four lines
        with self.assertRaises(MlffError) as caught:
            analyze(cut, frame_fs=1.0)
        found, whole = caught.exception.analysis, analyze(frames[:5], frame_fs=1.0)
        self.assertEqual(found.n_frames, 5)
        np.testing.assert_allclose(found.msd, whole.msd, rtol=1e-5)

        def interrupted():
            yield from frames[:3]
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt) as stopped:
            analyze(interrupted(), frame_fs=1.0)
        self.assertEqual(stopped.exception.analysis.n_frames, 3)


class TestVibrations(unittest.TestCase):
    def test_ethanol(self):
        (minimum,) = relax([molecule("CH3CH2OH")], ETHANOL, fmax=1e-4, device="cpu", precision="float64")
        modes = vibrations(minimum.atoms, ETHANOL, device="cpu", precision="float64")
        self.assertEqual(modes.displacements.shape, (21, 9, 3))
        self.assertEqual(modes.rigid_names, ["translation"] * 3 + ["rotation"] * 3)
        self.assertLess(modes.largest_force, 1e-3)
        self.assertTrue((np.diff(modes.wavenumbers) >= 0).all() and modes.wavenumbers[0] > 0)
        np.testing.assert_allclose((modes.displacements**2).sum((1, 2)), 1, rtol=1e-9)
        # Of hc: 1.239841984e-4 eV cm.
        self.assertAlmostEqual(modes.zero_point_energy, 0.5 * 1.239841984e-4 * modes.wavenumbers.sum(), places=7)
        # The highest mode is the stretch of O-H: the hydrogen moves most.
        moves = (modes.displacements[-1] ** 2).sum(1)
        self.assertEqual(minimum.atoms[int(moves.argmax())].symbol, "H")

    def test_acoustic_modes_of_silicon(self):
        atoms = bulk("Si", cubic=True)
        atoms.rattle(0.02, seed=2)
        model = Model.create("painn", elements=["Si"], n_features=16, n_layers=2, seed=3)
        with self.assertWarnsRegex(MlffWarning, "wavenumbers depend on the step"):
            modes = vibrations(atoms, model, device="cpu", precision="float64")
        self.assertEqual(modes.displacements.shape, (21, 8, 3))
        self.assertEqual(modes.rigid_names, ["translation"] * 3)
        # Translations cost nothing, whatever the forces: 1/cm, against hundreds of the others.
        self.assertLess(np.abs(modes.rigid_wavenumbers).max(), 0.02 * np.abs(modes.wavenumbers).max())
        np.testing.assert_allclose(modes.displacements.sum(1), 0, atol=1e-8)
        atoms.set_constraint(FixAtoms([0, 1]))
        held = vibrations(atoms, model, device="cpu", precision="float64")
        self.assertEqual((len(held.wavenumbers), held.rigid_names), (18, []))
        np.testing.assert_array_equal(held.displacements[:, :2], 0)

    def test_crystal_against_differences_in_numpy(self):
        """Γ-point modes of a strained cell of two elements, from forces that ASE's calculator gives, in ASE's units."""
        atoms = bulk("SiC", "zincblende", a=4.4, cubic=True)
        atoms.rattle(0.03, seed=5)
        atoms.set_cell(atoms.cell.array @ [[1, 0.02, 0], [0.01, 1.03, -0.02], [0, 0, 0.98]], scale_atoms=True)
        model = Model.create("painn", elements=["C", "Si"], n_features=16, n_layers=2, cutoff=4.0, seed=3)
        modes = vibrations(atoms, model, step=0.005, device="cpu", precision="float64")
        atoms.calc = StudentCalculator(model, device="cpu", precision="float64")
        n, step = 3 * len(atoms), 0.005
        hessian = np.empty((n, n))
        for k in range(n):
            forces = []
            for sign in (1, -1):
                moved = atoms.copy()
                moved.calc = atoms.calc
                moved.positions[k // 3, k % 3] += sign * step
                forces.append(moved.get_forces().ravel())
            hessian[k] = (forces[1] - forces[0]) / (2 * step)
        masses = np.repeat(atoms.get_masses(), 3)
        rigid = np.sqrt(masses[:, None] / masses.sum() * 3) * np.tile(np.eye(3), (len(atoms), 1))
        projector = np.eye(n) - rigid @ rigid.T
        scaled = projector @ ((hessian + hessian.T) / 2 / np.sqrt(masses[:, None] * masses)) @ projector
        values = np.linalg.eigvalsh(scaled)
        values = np.delete(values, np.argsort(abs(values))[:3])  # the translations
        # sqrt(eV/Å²/u) is an energy of hbar/s: ASE's unit of time is Å sqrt(u/eV).
        expected = np.sign(values) * np.sqrt(abs(values)) * (_hbar * J * s) / invcm
        self.assertEqual(modes.rigid_names, ["translation"] * 3)
        # Masses of isotopes' means differ in their fifth digit between the tables.
        np.testing.assert_allclose(modes.wavenumbers, expected, rtol=2e-5, atol=0.01)

    def test_ctrl_c(self):
        """Noted while the engine computes, it ends the computation, not only the call after it."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        self.addCleanup(signal.signal, signal.SIGINT, before)
        make, calls = _structs.PROGRESS, []

        def interrupting(function):
            def call(*arguments):
                calls.append(arguments)
                signal.raise_signal(signal.SIGINT)
                return function(*arguments)

            return make(call)

        with mock.patch.object(_structs, "PROGRESS", interrupting), self.assertRaises(KeyboardInterrupt):
            vibrations(molecule("CH3CH2OH"), ETHANOL, device="cpu")
        self.assertEqual(len(calls), 1)

    def test_refused(self):
        with self.assertRaises(MlffError):
            vibrations(molecule("CH3CH2OH"), ETHANOL, step=3.0, device="cpu")


if __name__ == "__main__":
    unittest.main()
