# SPDX-License-Identifier: MIT
"""Purpose: arrays on a GPU go in and come out by their pointers, through either protocol, on the stream of their owner, and what
does not fit is refused in a line. Needs a GPU, or the plugin of the emulated one in MLFF_CUDA_PLUGIN (as `make test` sets it)."""

import ctypes
import types
import unittest
from ctypes import byref, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from unittest import mock

import numpy as np

import support
from mlff_distiller import _arrays
from mlff_distiller import _library as lib
from mlff_distiller._devices import Device
from mlff_distiller.cuda.device_utils import get_cuda_stream
from mlff_distiller.engine import Evaluator, Model
from mlff_distiller.errors import MlffUnsupportedError, MlffUsageError
from mlff_distiller.models import StudentCalculator

GPU = lib.core.mlff_device_count(lib.CUDA) > 0
DEVICE = Device("cuda", 0)


class OnDevice:
    """An array in the GPU's memory, with CUDA's array interface."""

    def __init__(self, array, stream=None):
        array = np.ascontiguousarray(array)
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self.memory = c_void_p()
        lib.core.mlff_device_allocate(DEVICE.struct, array.nbytes, byref(self.memory))
        lib.core.mlff_device_copy(DEVICE.struct, self.memory, array.ctypes.data, array.nbytes)
        self.__cuda_array_interface__ = {
            "typestr": array.dtype.str, "shape": array.shape, "strides": None, "data": (self.memory.value, False), "version": 3,
            **({} if stream is None else {"stream": stream}),
        }  # fmt: skip

    def host(self):
        """A copy on the host, once all work is done."""
        lib.core.mlff_device_synchronize(DEVICE.struct)
        out = np.empty(self.shape, self.dtype)
        lib.core.mlff_device_copy(DEVICE.struct, out.ctypes.data, self.memory, out.nbytes)
        return out

    def __del__(self):
        lib.core.mlff_device_release(DEVICE.struct, self.memory)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p), ("byte_offset", c_uint64),
                ("manager", c_void_p), ("deleter", c_void_p)]  # fmt: skip


class ByDLPack:
    """The same memory, by DLPack alone."""

    def __init__(self, array, index=0, strides=None):
        self.array, self.index, self.streams = array, index, []
        self.shape = array.shape
        self._shape = (c_int64 * len(array.shape))(*array.shape)
        self._strides = (c_int64 * len(strides))(*strides) if strides else None
        code, bits = {"f": 2, "i": 0}[array.dtype.kind], 8 * array.dtype.itemsize
        # The address begins 16 bytes before the array: what is said of an offset has to be heard.
        self._tensor = DLTensor(array.memory.value - 16, 2, index, len(array.shape), code, bits, 1, ctypes.addressof(self._shape),
                                ctypes.addressof(self._strides) if strides else None, 16)  # fmt: skip

    def __dlpack_device__(self):
        return (2, self.index)

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


class Described:
    """What an array says of itself, without memory."""

    def __init__(self, shape, strides, read_only=False, index=None):
        self.__cuda_array_interface__ = {"typestr": "<f8", "shape": shape, "strides": strides, "data": (1 << 20, read_only), "version": 3}
        if index is not None:
            self.__dlpack_device__ = lambda: (2, index)


class Checks(unittest.TestCase):
    """What is refused before anything is computed."""

    def taken(self, array, **options):
        return _arrays.device_array(array, "<f8", array.__cuda_array_interface__["shape"], "forces", DEVICE, 0, **options)[0]

    def test_strides(self):
        for shape, strides in (((1, 3), (48, 8)), ((3, 1), (8, 800)), ((1, 1), (0, 0)), ((0, 3), (7, 5)), ((2, 3), (24, 8)), ((2, 3), None)):
            self.assertEqual(self.taken(Described(shape, strides)), 1 << 20)
        for shape, strides in (((2, 3), (48, 8)), ((2, 1), (16, 8)), ((2, 3), (8, 16)), ((2, 1, 3), (48, 24, 8))):
            with self.assertRaisesRegex(MlffUsageError, "forces: it is not contiguous"):
                self.taken(Described(shape, strides))

    def test_device(self):
        self.assertEqual(self.taken(Described((2, 3), None, index=0)), 1 << 20)
        with self.assertRaisesRegex(MlffUsageError, "forces: it is on cuda:1, the evaluator on cuda:0"):
            self.taken(Described((2, 3), None, index=1))

    def test_read_only(self):
        self.assertEqual(self.taken(Described((2, 3), None, read_only=True)), 1 << 20)
        with self.assertRaisesRegex(MlffUsageError, "forces: it is read-only"):
            self.taken(Described((2, 3), None, read_only=True), written=True)


@unittest.skipUnless(GPU, "there is no GPU, and MLFF_CUDA_PLUGIN names no emulated one")
class DeviceArrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Model.create("painn", elements="H,C,O", n_features=64, n_layers=2, cutoff=4.0, seed=7)
        cls.evaluator = Evaluator(cls.model, device="cuda")
        cls.atoms = support.ethanol_frames(1)[0]
        cls.expected = cls.evaluator.compute(cls.atoms.numbers, cls.atoms.positions)
        exact = Evaluator(cls.model, device="cpu", precision="float64").compute(cls.atoms.numbers, cls.atoms.positions)
        # float32-class arithmetic, energies of some eV and forces of some eV/Å
        np.testing.assert_allclose(cls.expected["energies"], exact["energies"], atol=1e-5)
        np.testing.assert_allclose(cls.expected["forces"], exact["forces"], atol=1e-5)

    def setUp(self):
        self.numbers = OnDevice(self.atoms.numbers.astype(np.int32))
        self.positions = OnDevice(self.atoms.positions)
        self.out = {"energies": OnDevice(np.zeros(1)), "forces": OnDevice(np.zeros((9, 3)))}

    def check(self, out=None):
        for name, array in (out or self.out).items():
            np.testing.assert_array_equal(array.host(), self.expected[name])

    def test_in_and_out(self):
        addresses = {name: array.memory.value for name, array in self.out.items()}
        self.assertIs(self.evaluator.compute_on_device(self.numbers, self.positions, self.out), self.out)
        self.check()
        self.assertEqual({name: array.memory.value for name, array in self.out.items()}, addresses)

    def test_by_dlpack(self):
        numbers, positions = ByDLPack(self.numbers), ByDLPack(self.positions, strides=(3, 1))
        out = {name: ByDLPack(array) for name, array in self.out.items()}
        self.evaluator.compute_on_device(numbers, positions, out)
        self.check()
        self.assertEqual((positions.streams, out["forces"].streams), ([1], [1]))  # the protocol's default stream

    def test_on_a_stream(self):
        stream = get_cuda_stream(DEVICE)
        positions = ByDLPack(self.positions)
        self.evaluator.compute_on_device(self.numbers, positions, self.out, stream=stream.handle)
        stream.synchronize()
        self.check()
        self.assertEqual(positions.streams, [stream.handle])

    def test_work_in_flight_elsewhere_is_waited_for(self):
        other = get_cuda_stream(DEVICE)
        waited = []
        real = lib.core.mlff_stream_synchronize
        with mock.patch.object(lib.core, "mlff_stream_synchronize", lambda d, s: (waited.append(s.value), real(d, s))):
            positions = OnDevice(self.atoms.positions, stream=other.handle)
            self.evaluator.compute_on_device(self.numbers, positions, self.out)
            self.evaluator.compute_on_device(self.numbers, OnDevice(self.atoms.positions, stream=1), self.out)  # the default one
        self.assertEqual(waited, [other.handle])
        self.check()

    def test_a_batch_with_cells(self):
        frames = [support.ethanol_frames(1)[0], support.ethanol_frames(2)[1]]
        for atoms in frames:
            atoms.set_cell([9.0, 10.0, 11.0])
            atoms.pbc = True
        joined = {
            "numbers": np.concatenate([a.numbers for a in frames]).astype(np.int32),
            "positions": np.concatenate([a.positions for a in frames]),
            "cells": np.stack([a.cell.array for a in frames]),
        }
        flags = np.ones((2, 3), bool)
        expected = self.evaluator.compute(**joined, periodic=flags, first_atom=[0, 9, 18], stresses=True)
        out = {"energies": OnDevice(np.zeros(2)), "forces": OnDevice(np.zeros((18, 3))), "stresses": OnDevice(np.zeros((2, 6)))}
        arrays = {name: OnDevice(array) for name, array in joined.items()}
        self.evaluator.compute_on_device(
            arrays["numbers"], arrays["positions"], out, cells=arrays["cells"], periodic=flags, first_atom=[0, 9, 18]
        )
        for name, array in out.items():
            np.testing.assert_array_equal(array.host(), expected[name])
        # The last one is the number of atoms that are read and written: beyond the arrays, or not all of them.
        for wrong in ([0, 9, 1800], [0, 9, 12], [9, 12, 18], [18], []):
            with self.assertRaisesRegex(MlffUsageError, "first_atom"):
                self.evaluator.compute_on_device(
                    arrays["numbers"], arrays["positions"], out, cells=arrays["cells"], periodic=flags, first_atom=wrong
                )

    def test_new_arrays_of_their_owner(self):
        # A stand-in for torch: what it is asked for, and on which stream.
        asked = []

        class Tensor(OnDevice):
            device = "cuda:0"

        Tensor.__module__ = "torch"

        def empty(shape, dtype, device):
            asked.append((shape, dtype, device))
            return OnDevice(np.zeros(shape))

        stream = get_cuda_stream(DEVICE)
        cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=stream.handle))
        fake = types.SimpleNamespace(Tensor=Tensor, cuda=cuda, empty=empty, float64="float64")
        with mock.patch.dict("sys.modules", torch=fake):
            out = self.evaluator.compute_on_device(Tensor(self.atoms.numbers.astype(np.int32)), Tensor(self.atoms.positions))
        self.assertEqual(asked, [((1,), "float64", "cuda:0"), ((9, 3), "float64", "cuda:0")])
        self.check(out)
        with self.assertRaisesRegex(MlffUsageError, "out: arrays to be filled"):
            self.evaluator.compute_on_device(self.numbers, self.positions)

    def test_refused(self):
        wrong = OnDevice(np.zeros((9, 3), np.float32))
        turned = OnDevice(self.atoms.positions)
        turned.__cuda_array_interface__["strides"] = (8, 72)
        read_only = OnDevice(np.zeros((9, 3)))
        read_only.__cuda_array_interface__["data"] = (read_only.memory.value, True)
        for numbers, positions, out, words in (
            (self.numbers, wrong, self.out, r"positions: <f4 \(9, 3\); <f8 \(9, 3\) is needed"),
            (self.numbers, turned, self.out, "positions: it is not contiguous"),
            (self.numbers, ByDLPack(self.positions, strides=(1, 9)), self.out, "positions: it is not contiguous"),
            (self.numbers, ByDLPack(self.positions, index=3), self.out, "positions: it is on cuda:3, the evaluator on cuda:0"),
            (self.numbers, self.atoms.positions, self.out, "positions: not an array on a CUDA device"),
            (OnDevice(self.atoms.numbers.astype(np.int64)), self.positions, self.out, "numbers: <i8"),
            (self.numbers, self.positions, {"forces": OnDevice(np.zeros((3, 9)))}, "forces: <f8"),
            (self.numbers, self.positions, {"forces": read_only}, "forces: it is read-only"),
            (self.numbers, self.positions, {"charges": self.out["forces"]}, "out: charges"),
            (self.numbers, self.positions, {}, "out: nothing"),
        ):
            with self.assertRaisesRegex(MlffUsageError, words):
                self.evaluator.compute_on_device(numbers, positions, out)
        with self.assertRaisesRegex(MlffUsageError, "positions: it is on a GPU; compute_on_device"):
            self.evaluator.compute(self.atoms.numbers, self.positions)
        with self.assertRaisesRegex(MlffUsageError, "on cpu"):
            Evaluator(self.model, device="cpu").compute_on_device(self.numbers, self.positions, self.out)
        self.evaluator.compute_on_device(self.numbers, self.positions, self.out)  # and it works again
        self.check()

    def test_a_calculator_on_the_gpu(self):
        calc = StudentCalculator(self.model, device="cuda")
        np.testing.assert_array_equal(calc.get_forces(self.atoms), self.expected["forces"])
        self.assertEqual(calc.device, "cuda:0")
        self.assertGreater(calc.memory()["device_bytes"], 0)

    def test_auto_is_the_cpu_for_a_model_the_gpu_does_not_know(self):
        model = Model.create("painn", elements="H,C,O", n_features=48, n_layers=2, cutoff=4.0, seed=7)
        with self.assertWarnsRegex(UserWarning, "device auto: .*32, 64 or 128 features.*; using the CPU"):
            self.assertEqual(Evaluator(model, device="auto").device.type, "cpu")
        with self.assertRaisesRegex(MlffUnsupportedError, "32, 64 or 128 features.*; use device cpu$"):
            Evaluator(model, device="cuda")
        with self.assertRaisesRegex(MlffUnsupportedError, "tf32 is a fast mode of GPUs.*device auto: .*32, 64 or 128 features"):
            Evaluator(model, precision="tf32", cpu_path="portable")


class WithoutAGpu(unittest.TestCase):
    def test_what_an_interface_says(self):
        interface = {"typestr": "<f8", "shape": (9, 3), "strides": (24, 8), "data": (4096, False)}
        array = types.SimpleNamespace(__cuda_array_interface__=interface)
        self.assertEqual(_arrays.device_array(array, "<f8", (9, 3), "x", DEVICE, 0)[0], 4096)
        self.assertTrue(_arrays.on_gpu(array))
        self.assertFalse(_arrays.on_gpu(np.zeros(3)))
        self.assertGreaterEqual(ctypes.sizeof(DLTensor), ctypes.sizeof(_arrays._DLTensor) + 2 * ctypes.sizeof(c_size_t))


if __name__ == "__main__":
    unittest.main()
