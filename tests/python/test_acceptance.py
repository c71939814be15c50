# SPDX-License-Identifier: MIT
"""Purpose: the acceptance code of the requirements runs as it is written there."""

import contextlib
import io
import os
import tempfile
import unittest
import warnings

from ase.calculators.emt import EMT

import support
from mlff_distiller.models import StudentCalculator


class Acceptance(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self._before = os.getcwd()
        os.chdir(self._folder.name)  # the code writes profiling_reports/x.json
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def tearDown(self):
        self._warnings.__exit__(None, None, None)
        os.chdir(self._before)
        self._folder.cleanup()

    def run_code(self, calc, trajectory):
        f, g, x = (lambda value: value * 2), (lambda value: value + value), 3.0

        def model(atoms):
            atoms = atoms.copy()
            atoms.calc = calc
            return atoms.get_potential_energy()

        # fmt: off
        from mlff_distiller.cuda.device_utils import get_device, warmup_cuda, get_gpu_memory_info
        device = get_device(); warmup_cuda()
        mem_info = get_gpu_memory_info(); print(f"GPU Memory: {mem_info['allocated']:.2f} GB")

        from mlff_distiller.cuda.benchmark_utils import benchmark_function, benchmark_md_trajectory, compare_implementations, print_comparison_table
        result = benchmark_function(f, x, n_calls=100, device=device, name="Model Forward"); print(result.summary())
        result = benchmark_md_trajectory(model_func=lambda atoms: model(atoms), inputs=trajectory, check_memory_leak=True, leak_tolerance_mb=10.0)
        print(result.mean_ms, result.memory_delta_gb * 1024)
        print_comparison_table(compare_implementations({"A": f, "B": g}, x, n_calls=1000))

        from mlff_distiller.cuda.md_profiler import MDProfiler, MDProfileResult, identify_hotspots
        profiler = MDProfiler(device='cuda'); result = profiler.profile_calculator(calc, trajectory, properties=['energy', 'forces'])
        print(result.summary()); result.save_json('profiling_reports/x.json'); MDProfileResult.load_json('profiling_reports/x.json')
        hotspots = identify_hotspots(result)
        for component, info in hotspots['components'].items(): print(component, info['percentage'], info['is_hotspot'])
        for rec in hotspots['recommendations']: print(rec)
        # fmt: on
        return result, hotspots

    def test_with_somebodys_calculator(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            result, hotspots = self.run_code(EMT(), support.copper_frames(30))
        self.assertIn("GPU Memory: ", out.getvalue())
        self.assertIn("Model Forward", out.getvalue())
        self.assertEqual(result.n_steps, 30)
        self.assertIn("energy", hotspots["components"])
        self.assertTrue(hotspots["recommendations"])

    def test_with_ours(self):
        with contextlib.redirect_stdout(io.StringIO()):
            result, hotspots = self.run_code(StudentCalculator(support.untrained(), n_threads=1), support.ethanol_frames(30))
        self.assertTrue(any(name.startswith("stages/forward/message") for name in hotspots["components"]))
        self.assertIn("untrained", result.notes)

    def test_teachers_run_or_say_what_is_missing(self):
        from mlff_distiller.models import FeNNolCalculator, OrbCalculator

        for make in (
            lambda: OrbCalculator(model_name="orb-v2", device="cuda", precision="float32-high"),
            lambda: FeNNolCalculator(model_path="ani2x.fnx", device="cuda"),
            lambda: FeNNolCalculator(model_name="ani2x", device="cuda"),
        ):
            try:
                make()
            except (ImportError, RuntimeError, OSError) as problem:  # package, GPU or weights
                self.assertGreater(len(str(problem)), 40)
                self.assertNotIn("\n", str(problem))

    def test_one_spelling_and_its_reexports(self):
        import mlff_distiller.cuda as cuda

        for module in ("device_utils", "benchmark_utils", "md_profiler"):
            home = getattr(__import__(f"mlff_distiller.cuda.{module}", fromlist=["x"]), "__dict__")
            for name in cuda.__all__:
                if name in home and hasattr(home[name], "__module__") and home[name].__module__.endswith(module):
                    self.assertIs(getattr(cuda, name), home[name])
        required = """get_device get_gpu_info GPUInfo get_gpu_memory_info print_gpu_memory_summary empty_cache reset_peak_memory_stats
            get_peak_memory_allocated cuda_memory_tracker torch_device_context check_memory_leak warmup_cuda get_cuda_stream
            synchronize_device list_available_devices print_device_summary BenchmarkResult CUDATimer timer_context
            benchmark_function benchmark_md_trajectory compare_implementations print_comparison_table ProfilerContext
            profile_with_nsys MDProfiler MDProfileResult profile_md_trajectory identify_hotspots""".split()
        self.assertEqual([name for name in required if not hasattr(cuda, name)], [])


if __name__ == "__main__":
    unittest.main()
