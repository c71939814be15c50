# SPDX-License-Identifier: MIT
"""Purpose: with the real PyTorch, where it is installed: a calculator made of tensors is profiled, its tensors go in without a
copy, and its operators are in the timeline."""

import json
import unittest

import numpy as np
from ase.calculators.calculator import Calculator, all_changes

import support
from mlff_distiller.cuda.benchmark_utils import ProfilerContext, benchmark_function
from mlff_distiller.cuda.md_profiler import MDProfiler
from mlff_distiller.engine import Evaluator

try:
    import torch
except ImportError:
    torch = None


class Pairs(Calculator):
    """A sum over pairs, its forces by automatic differentiation."""

    implemented_properties = ["energy", "forces"]

    def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
        super().calculate(atoms, properties, system_changes)
        positions = torch.tensor(atoms.positions, requires_grad="forces" in properties)
        energy = torch.exp(-torch.pdist(positions)).sum()
        self.results["energy"] = float(energy.detach())
        if "forces" in properties:
            (gradient,) = torch.autograd.grad(energy, positions)
            self.results["forces"] = -gradient.numpy()


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Torch(unittest.TestCase):
    def test_a_calculator_of_tensors(self):
        before = torch.get_num_threads()
        result = MDProfiler(device="cpu", n_threads=1).profile_calculator(Pairs(), support.ethanol_frames(5), n_steps=30)
        self.assertEqual((result.n_steps, result.model_name), (30, "pairs"))
        self.assertIn("torch 1", result.notes)
        self.assertEqual(torch.get_num_threads(), before)
        self.assertGreater(result.forces_time_ms, 0)
        self.assertFalse(MDProfiler(device="cpu").property_times(Pairs(), support.ethanol_frames(3))["one_shot"])

    def test_kernels_are_asked_for(self):
        # Where there is no driver the CUPTI that PyTorch brings along must be left alone: it crashes.
        result = MDProfiler(device="cpu", kernels=3).profile_calculator(Pairs(), support.ethanol_frames(5), n_steps=12)
        self.assertEqual(result.n_steps, 12)

    def test_tensors_go_in_as_they_are(self):
        atoms = support.ethanol_frames(1)[0]
        evaluator = Evaluator(support.untrained(), device="cpu", precision="float64")
        expected = evaluator.compute(atoms.numbers, atoms.positions)
        found = evaluator.compute(torch.tensor(atoms.numbers), torch.tensor(atoms.positions))
        np.testing.assert_array_equal(found["forces"], expected["forces"])
        back = torch.from_numpy(found["forces"])  # and out, sharing memory
        self.assertEqual(back.data_ptr(), found["forces"].ctypes.data)

    def test_functions_and_timelines(self):
        x = torch.ones(32, 32)
        self.assertEqual(benchmark_function(torch.mm, x, x, n_calls=10, device="cpu").n_calls, 10)
        folder = support.scratch("torch-traces")
        with ProfilerContext(output_dir=folder, name="mm", with_stack=True) as profiler, profiler.range("product"):
            torch.mm(x, x)
        ours = json.loads((folder / "mm.trace.json").read_text())["traceEvents"]
        theirs = json.loads((folder / "mm.torch.trace.json").read_text())
        theirs = theirs if isinstance(theirs, list) else theirs["traceEvents"]  # both are Chrome's form
        self.assertIn("product", [event["name"] for event in ours])
        self.assertIn("aten::mm", [event.get("name") for event in theirs])


if __name__ == "__main__":
    unittest.main()
