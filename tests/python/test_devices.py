# SPDX-License-Identifier: MIT
"""Purpose: devices are chosen, described and watched, on a machine without a GPU too."""

import contextlib
import io
import pickle
import unittest

import support
from mlff_distiller import _library as lib
from mlff_distiller.cuda import device_utils as devices
from mlff_distiller.errors import MlffDeviceError, MlffUsageError, MlffWarning

GPU = lib.core.mlff_device_count(lib.CUDA) > 0


class Devices(unittest.TestCase):
    def test_names(self):
        cpu = devices.get_device("cpu")
        self.assertEqual((str(cpu), f"{cpu}", cpu.type, cpu.index), ("cpu", "cpu", "cpu", 0))
        self.assertIsInstance(cpu, str)
        self.assertEqual(pickle.loads(pickle.dumps(cpu)).type, "cpu")
        self.assertEqual(str(devices.Device("cuda", 1)), "cuda:1")
        self.assertIn("cpu", devices.list_available_devices())
        for bad in ("tpu", "cuda:x", "cpu:1", "", "cuda:-1"):
            with self.assertRaises((MlffUsageError, MlffDeviceError)):
                devices.get_device(bad)
        try:
            import torch

            torch.zeros(2).to(devices.get_device())
            self.assertEqual(devices.get_device(torch.device("cpu")), "cpu")
        except ImportError:
            pass

    @unittest.skipIf(GPU, "there is a GPU")
    def test_a_gpu_that_is_not_there(self):
        self.assertEqual(devices.get_device(), "cpu")
        for name in ("cuda", "cuda:3", 0):
            with self.assertRaises(MlffDeviceError) as caught:
                devices.get_device(name)
            self.assertGreater(len(str(caught.exception)), 20)
            self.assertRegex(str(caught.exception), "use device cpu$")
        with self.assertWarnsRegex(MlffWarning, "on the CPU instead"):
            self.assertEqual(devices.get_device("cuda", fallback=True), "cpu")
        with self.assertRaises(MlffDeviceError):
            devices.get_gpu_info()

    @unittest.skipUnless(GPU, "there is no GPU")
    def test_a_gpu(self):
        info = devices.get_gpu_info()
        self.assertGreaterEqual(info.compute_capability, (7, 0))
        self.assertGreater(info.total_memory_gb, 1.0)
        stream = devices.get_cuda_stream("cuda")
        stream.synchronize()
        self.assertTrue(stream.handle)

    def test_memory(self):
        memory = devices.get_gpu_memory_info("cpu")
        for key in ("allocated", "reserved", "free", "total", "peak"):
            self.assertAlmostEqual(memory[key], memory[f"{key}_bytes"] / 2**30, delta=1e-12)
        self.assertGreater(memory["reserved"], 0.01)
        self.assertGreater(memory["total"], memory["free"])
        devices.empty_cache()
        devices.reset_peak_memory_stats("cpu")
        self.assertGreaterEqual(devices.get_peak_memory_allocated("cpu"), 0.0)

    def test_leak_check(self):
        before = devices.get_gpu_memory_info("cpu")
        self.assertFalse(devices.check_memory_leak(before))
        kept = support.fresh(20 << 20)
        self.assertTrue(devices.check_memory_leak(before))
        self.assertFalse(devices.check_memory_leak(before, tolerance_mb=40.0))
        self.assertTrue(devices.check_memory_leak(before["reserved"], device="cpu"))
        del kept

    def test_tracked_block(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), devices.cuda_memory_tracker("planted", "cpu") as track:
            kept = support.fresh(8 << 20)
        self.assertAlmostEqual(track.delta_gb * 1024, 8.0, delta=1.5)
        self.assertIn("planted on cpu", out.getvalue())
        del kept

    def test_scope(self):
        with devices.torch_device_context("cpu") as device:
            self.assertEqual((device, devices.get_device()), ("cpu", "cpu"))

    def test_waiting_and_warming(self):
        devices.warmup_cuda()
        devices.synchronize_device()
        stream = devices.get_cuda_stream("cpu")
        stream.synchronize()

    def test_summaries(self):
        out = io.StringIO()
        devices.print_device_summary(out)
        devices.print_gpu_memory_summary("cpu", out)
        self.assertIn("cores", out.getvalue())
        self.assertIn("resident set", out.getvalue())
        if not GPU:
            self.assertEqual(out.getvalue().count("no GPU"), 1)


if __name__ == "__main__":
    unittest.main()
