# SPDX-License-Identifier: MIT
"""Purpose: arrays of any form reach the engine as what they mean or are refused in one line, and its failures come out as
exceptions; batches equal single calls to the bit."""

import ctypes
import pickle
import threading
import unittest

import numpy as np

import support
from mlff_distiller import _library, _structs
from mlff_distiller._arrays import host_array
from mlff_distiller._bridge import Trajectory
from mlff_distiller.engine import Evaluator, Model
from mlff_distiller.errors import (
    MlffDeviceError,
    MlffElementError,
    MlffError,
    MlffFileError,
    MlffFormatError,
    MlffUsageError,
    MlffValueError,
)


class Arrays(unittest.TestCase):
    def setUp(self):
        self.evaluator = Evaluator(support.untrained(), device="cpu", precision="float64", n_threads=1)
        self.atoms = support.ethanol_frames(1)[0]
        self.numbers, self.positions = self.atoms.numbers, self.atoms.positions
        self.expected = self.evaluator.compute(self.numbers, self.positions)

    def same(self, numbers, positions):
        found = self.evaluator.compute(numbers, positions)
        self.assertEqual(found["energies"][0], self.expected["energies"][0])
        np.testing.assert_array_equal(found["forces"], self.expected["forces"])

    def test_several_devices(self):
        several = Evaluator(support.untrained(), device="cpu:2", precision="float64")
        found = several.compute(self.numbers, self.positions)
        self.assertAlmostEqual(found["energies"][0], self.expected["energies"][0], delta=1e-10)
        np.testing.assert_allclose(found["forces"], self.expected["forces"], atol=1e-12)
        batch = [0, len(self.numbers), 2 * len(self.numbers)]  # handed out: the same bits
        found = several.compute(np.tile(self.numbers, 2), np.tile(self.positions, (2, 1)), first_atom=batch)
        np.testing.assert_array_equal(found["energies"], np.tile(self.expected["energies"], 2))
        with self.assertRaisesRegex(MlffUsageError, "number of domains"):
            Evaluator(support.untrained(), device="cpu:none")

    def test_other_dtypes(self):
        for dtype in (np.int8, np.uint8, np.int16, np.int64, np.uint64, ">i4", ">i8"):
            self.same(self.numbers.astype(dtype), self.positions)
        self.same(list(map(int, self.numbers)), self.positions.tolist())

    def test_big_endian(self):
        self.same(self.numbers, self.positions.astype(">f8"))

    def test_not_contiguous(self):
        wide = np.zeros((len(self.numbers) * 2, 5))
        wide[::2, 1:4] = self.positions
        self.same(self.numbers, wide[::2, 1:4])
        self.same(self.numbers, np.asfortranarray(self.positions))
        self.same(self.numbers[::-1].copy()[::-1], self.positions[::-1].copy()[::-1])

    def test_read_only(self):
        positions = self.positions.copy()
        positions.flags.writeable = False
        self.same(self.numbers, positions)

    def test_float32_positions_are_taken_for_what_they_are(self):
        found = self.evaluator.compute(self.numbers, self.positions.astype(np.float32))
        # 1e-6 Å of rounding times forces of some eV/Å
        self.assertAlmostEqual(found["energies"][0], self.expected["energies"][0], delta=1e-3)

    def test_dlpack_without_copy(self):
        class Foreign:  # an array of another framework
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **keywords):
                return self.array.__dlpack__(**keywords)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        positions = self.positions.copy()
        self.same(self.numbers, Foreign(positions))
        self.assertEqual(host_array(Foreign(positions), np.float64, (9, 3), "x").ctypes.data, positions.ctypes.data)

    def test_arrays_of_torch_go_in_and_out_without_copy(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        positions = torch.tensor(self.positions)
        self.same(torch.tensor(self.numbers), positions)
        self.assertEqual(host_array(positions, np.float64, (9, 3), "x").ctypes.data, positions.data_ptr())
        forces = self.evaluator.compute(self.numbers, positions)["forces"]
        self.assertEqual(torch.from_dlpack(forces).data_ptr(), forces.ctypes.data)

    def test_arrays_of_jax_go_in_and_out_without_copy(self):
        try:
            import jax
        except ImportError:
            self.skipTest("JAX is not installed")
        jax.config.update("jax_enable_x64", True)
        positions = jax.numpy.asarray(self.positions)
        self.same(jax.numpy.asarray(self.numbers), positions)
        self.assertEqual(host_array(positions, np.float64, (9, 3), "x").ctypes.data, positions.unsafe_buffer_pointer())
        forces = self.evaluator.compute(self.numbers, positions)["forces"]
        out = jax.numpy.from_dlpack(forces)
        np.testing.assert_array_equal(np.asarray(out), forces)
        if forces.ctypes.data % 64 == 0:  # elsewhere JAX copies: its arrays begin at multiples of 64 bytes
            self.assertEqual(out.unsafe_buffer_pointer(), forces.ctypes.data)

    def test_refused(self):
        for numbers, positions, words in (
            (self.numbers, self.positions[:, :2], "positions: shape"),
            (self.numbers, self.positions[:-1], "positions: shape"),
            (self.numbers.reshape(3, 3), self.positions, "numbers: shape"),
            (self.numbers.astype(float), self.positions, "numbers: dtype"),
            (self.numbers, self.positions.astype(complex), "positions: dtype"),
            (self.numbers, np.array([["a"] * 3] * 9), "positions: dtype"),
            (np.array([], int), np.zeros((0, 3)), "first_atom|at least 1|atoms"),
        ):
            with self.assertRaisesRegex(MlffError, words):
                self.evaluator.compute(numbers, positions)

    def test_not_finite(self):
        for bad in (np.nan, np.inf, -np.inf):
            positions = self.positions.copy()
            positions[4, 1] = bad
            with self.assertRaisesRegex(MlffValueError, "atom 4"):
                self.evaluator.compute(self.numbers, positions)
        self.same(self.numbers, self.positions)  # and it works again

    def test_two_atoms_on_one_point(self):
        positions = self.positions.copy()
        positions[3] = positions[2]
        with self.assertRaises(MlffValueError):
            self.evaluator.compute(self.numbers, positions)

    def test_unknown_elements(self):
        for z in (79, 0, -1, 119):
            numbers = self.numbers.copy()
            numbers[0] = z
            with self.assertRaises(MlffElementError):
                self.evaluator.compute(numbers, self.positions)

    def test_batch_equals_single_calls(self):
        frames = support.ethanol_frames(5) + [support.silicon(1)]
        first = np.concatenate([[0], np.cumsum([len(a) for a in frames])])
        found = self.evaluator.compute(
            np.concatenate([a.numbers for a in frames]),
            np.concatenate([a.positions for a in frames]),
            cells=np.stack([a.cell.array for a in frames]),
            periodic=np.stack([a.pbc for a in frames]),
            first_atom=first,
            stresses=True,
        )
        for i, atoms in enumerate(frames):
            one = self.evaluator.compute(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, stresses=True)
            self.assertEqual(found["energies"][i], one["energies"][0])
            np.testing.assert_array_equal(found["forces"][first[i] : first[i + 1]], one["forces"])
            np.testing.assert_array_equal(found["stresses"][i], one["stresses"][0])
        self.assertTrue(np.all(np.isnan(found["stresses"][0])))
        self.assertTrue(np.all(np.isfinite(found["stresses"][5])))
        with self.assertRaises(MlffUsageError):
            self.evaluator.compute(self.numbers, self.positions, first_atom=[0, 3])

    def test_atomic_numbers_do_not_wrap_around(self):
        atoms = support.ethanol_frames(1)[0]
        for large in (2**32, -(2**32), 2**31):
            numbers = atoms.numbers.astype(np.int64)
            numbers[0] += large
            with self.assertRaisesRegex(MlffUsageError, "does not fit into int32"):
                self.evaluator.compute(numbers, atoms.positions)
            atoms_wrong = atoms.copy()
            atoms_wrong.arrays["numbers"] = numbers
            with self.assertRaisesRegex(MlffUsageError, "does not fit into int32"):
                Trajectory.frames([atoms_wrong])

    def test_wrong_sizes_are_named(self):
        evaluator = Evaluator(support.untrained(), device="cpu")
        for name, wrong in (("cells", [1, 2, 3]), ("periodic", [True, False])):
            with self.assertRaisesRegex(MlffUsageError, f"^{name}: shape .* for each system is needed"):
                evaluator.compute([8, 1], [[0, 0, 0], [0, 0, 1]], **{name: wrong})

    def test_a_number_of_threads_does_not_wrap_around(self):
        for wrong in (-1, 2**31, 2**40):
            with self.assertRaisesRegex(MlffUsageError, f"{wrong}(: expected a whole number| threads; 0)"):
                Evaluator(support.untrained(), device="cpu", n_threads=wrong)

    def test_a_name_says_once_that_it_is_untrained(self):
        self.assertTrue(repr(support.untrained()).endswith(", untrained>"))
        self.assertEqual(repr(support.untrained()).count(", untrained"), 1)

    def test_what_an_evaluator_tells_waits_for_its_call(self):
        evaluator, told = self.evaluator, []
        asked = [lambda: evaluator.info, lambda: evaluator.n_members, lambda: evaluator.stage_clock(False), evaluator.stage_times_ns]
        threads = [threading.Thread(target=lambda ask=ask: told.append(ask())) for ask in asked]
        with evaluator.lock:  # as in a call of another thread
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(0.05)
            self.assertEqual(told, [])
        for thread in threads:
            thread.join()
        self.assertEqual(len(told), len(asked))

    def test_threads_share_an_evaluator(self):
        frames = support.ethanol_frames(8)
        expected = [self.evaluator.compute(a.numbers, a.positions)["forces"] for a in frames]

        def is_right(i):
            return np.array_equal(self.evaluator.compute(frames[i].numbers, frames[i].positions)["forces"], expected[i])

        wrong = support.wrong_in_threads(len(frames), 50, is_right)
        self.assertEqual(wrong, [])

    def test_stages(self):
        self.assertIn(("forward", "neighbors", -1), self.evaluator.stages)
        self.evaluator.stage_clock(True)
        self.evaluator.compute(self.numbers, self.positions)
        self.assertGreater(self.evaluator.stage_times_ns().sum(), 0)
        self.evaluator.stage_clock(False)


class Models(unittest.TestCase):
    def test_information(self):
        info = support.untrained().info
        self.assertEqual((info.architecture, info.n_layers, info.cutoff, info.trained), ("painn", 2, 4.0, False))
        self.assertEqual(info.elements, (1, 6, 7, 8, 14))
        self.assertEqual(info.outputs, ("energies", "atom_energies", "forces", "stresses", "virials"))
        self.assertIn("untrained", repr(support.untrained()))

    def test_saved_and_pickled_models_are_the_same(self):
        atoms = support.ethanol_frames(1)[0]
        values = [
            Evaluator(model, device="cpu").compute(atoms.numbers, atoms.positions)["energies"][0]
            for model in (support.untrained(), Model.load(support.untrained_path()), pickle.loads(pickle.dumps(support.untrained())))
        ]
        self.assertEqual(len(set(values)), 1)
        self.assertTrue(Model.load(support.untrained_path()).metadata)

    def test_imported(self):
        info = support.trained_ethanol().info
        self.assertTrue(info.trained)
        self.assertAlmostEqual(info.energy_unit, 0.04336410390059322, places=15)

    def test_a_model_is_not_made_of_a_path(self):
        with self.assertRaisesRegex(TypeError, "Model.load"):
            Model(support.untrained_path())

    def test_failures(self):
        with self.assertRaisesRegex(MlffFileError, "nowhere"):
            Model.load("nowhere.safetensors")
        bad = support.scratch("bad.safetensors")
        bad.write_bytes(b"not a model" * 10)
        with self.assertRaises(MlffFormatError):
            Model.load(bad)
        with self.assertRaises(OSError):  # the built-in that fits catches it too
            Model.load(support.scratch("ü nowhere.safetensors"))
        with self.assertRaises(MlffUsageError):
            Evaluator(support.untrained(), precision="float16")
        with self.assertRaises(MlffUsageError):
            Evaluator(support.untrained(), device="tpu")
        if _library.core.mlff_device_count(_library.CUDA) == 0:
            with self.assertRaises(MlffDeviceError):
                Evaluator(support.untrained(), device="cuda")


class Ensembles(unittest.TestCase):
    def test_members_and_how_far_they_differ(self):
        model = Model.create("ani", n_members=3, seed=2)
        self.assertEqual((model.info.n_members, model.info.trained), (3, False))
        atoms = support.ethanol_frames(1)[0]
        evaluator = Evaluator(model, device="cpu", precision="float64", n_threads=1)
        found = evaluator.compute(atoms.numbers, atoms.positions, members=True)
        self.assertEqual(found["member_forces"].shape, (3, 9, 3))
        np.testing.assert_allclose(found["member_energies"].mean(axis=0), found["energies"], rtol=1e-12)
        np.testing.assert_allclose(found["member_energies"].std(axis=0, ddof=1), found["energy_deviations"], rtol=1e-6)
        np.testing.assert_allclose(found["member_forces"].std(axis=0, ddof=1), found["force_deviations"], rtol=1e-6, atol=1e-9)
        one = Evaluator(model, device="cpu", precision="float64", members=[1])
        self.assertEqual(one.n_members, 1)
        np.testing.assert_allclose(
            one.compute(atoms.numbers, atoms.positions)["energies"], found["member_energies"][1], rtol=1e-12
        )
        with self.assertRaises(MlffError):
            Evaluator(model, device="cpu", members=[7])


class Interface(unittest.TestCase):
    def test_struct_sizes_are_the_librarys(self):
        for size_of, structs in (
            (_library.core.mlff_abi_size, _structs.CORE_STRUCTS),
            (_library.profile.mlff_profile_abi_size, _structs.PROFILE_STRUCTS),
        ):
            for struct in structs:
                self.assertEqual(size_of(struct.__name__.encode()), ctypes.sizeof(struct), struct.__name__)

    def test_a_struct_of_another_size_is_refused(self):
        class mlff_batch(ctypes.Structure):
            _fields_ = [("n_systems", ctypes.c_int)]

        with self.assertRaisesRegex(ImportError, "mlff_batch has .* different builds"):
            _library._check_sizes(_library.core.mlff_abi_size, (mlff_batch,), "libmlff")

    def test_warnings_become_warnings(self):
        _library.core.mlff_warn.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        _library.core.mlff_warn.restype = None
        _library.core.mlff_warn(b"%s", "careful: 5 Å".encode())
        with self.assertWarnsRegex(UserWarning, "careful: 5 Å"):
            support.untrained().save(support.scratch("again.safetensors"))


if __name__ == "__main__":
    unittest.main()
