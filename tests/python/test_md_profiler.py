# SPDX-License-Identifier: MIT
"""Purpose: anyone's calculator is measured honestly (no cache, no lazy device, what it raises comes out with what was
measured), and what is reported is the C library's record."""

import functools
import gc
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
import types
import unittest
from unittest import mock

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.calculators.tip3p import TIP3P

import support
from mlff_distiller import _frameworks
from mlff_distiller.cuda.md_profiler import (
    MDProfiler,
    MDProfileResult,
    compare_profiles,
    identify_hotspots,
    profile_md_trajectory,
    save_html,
)
from mlff_distiller.errors import MlffError, MlffFormatError, MlffUnsupportedError, MlffUsageError, MlffValueError, MlffWarning
from mlff_distiller.models import StudentCalculator

CONTRACT = """name model_name n_steps device latencies_ms mean_latency_ms median_latency_ms std_latency_ms min_latency_ms
    max_latency_ms p95_latency_ms p99_latency_ms energy_time_ms forces_time_ms stress_time_ms memory_initial_gb
    memory_final_gb memory_peak_gb memory_per_step_gb n_atoms system_size total_time_s steps_per_second timestamp notes""".split()


class Counting(Calculator):
    """Computes what it is asked for, in a known time, and counts."""

    implemented_properties = ["energy", "forces", "stress"]

    def __init__(self, energy_ms=0.2, forces_ms=0.6, fails_at=None, error=None, **keywords):
        super().__init__(**keywords)
        self.n, self.positions, self.asked, self.took_ms = 0, [], [], []
        self.energy_ms, self.forces_ms, self.fails_at, self.error = energy_ms, forces_ms, fails_at, error

    def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
        super().calculate(atoms, properties, system_changes)
        self.n += 1
        if self.n == self.fails_at:
            raise self.error
        self.positions.append(atoms.positions.copy())
        self.asked.append(tuple(properties))
        start = time.perf_counter()
        end = start + 1e-3 * (self.energy_ms + (self.forces_ms if len(properties) > 1 else 0))
        while time.perf_counter() < end:
            pass
        self.took_ms.append(1e3 * (time.perf_counter() - start))
        self.results["energy"] = 1.0
        if len(properties) > 1 or "forces" in properties:
            self.results["forces"] = np.zeros((len(atoms), 3))
        if "stress" in properties:
            self.results["stress"] = np.zeros(6)


def make_emt():
    return EMT()


def sleep_after(path):
    pathlib.Path(path).touch()
    time.sleep(20)


def make_nothing():
    raise RuntimeError("planted in a child")


class Honest(unittest.TestCase):
    def setUp(self):
        with support.quiet():
            self.profiler = MDProfiler(device="cpu")

    def test_the_very_same_frame_is_computed_every_time(self):
        frame = support.copper_frames(1)[0]
        calc = Counting()
        result = self.profiler.profile_calculator(calc, [frame] * 20)
        self.assertGreaterEqual(calc.n, 30)
        moved = [not np.array_equal(a, b) for a, b in zip(calc.positions, calc.positions[1:])]
        self.assertTrue(all(moved))
        # The shift is of the whole: distances stay.
        for positions in calc.positions:
            np.testing.assert_allclose(positions - positions[0], frame.positions - frame.positions[0], atol=1e-12)
        self.assertGreater(result.min_latency_ms, 0.8)
        np.testing.assert_array_equal(frame.positions, support.copper_frames(1)[0].positions)  # the caller's stay

    def test_frames_are_seen_in_order(self):
        frames = support.copper_frames(7)
        calc = Counting(energy_ms=0, forces_ms=0)
        self.profiler.profile_calculator(calc, frames, n_steps=11, split=False)
        for i, positions in enumerate(calc.positions):
            np.testing.assert_array_equal(positions, frames[i % 7].positions)
        self.assertEqual(calc.n, 10 + 11)

    def test_frames_of_different_size(self):
        frames = support.ethanol_frames(3) + [Atoms("H2", [[0, 0, 0], [0, 0, 0.74]])]
        calc = Counting(energy_ms=0, forces_ms=0)
        result = self.profiler.profile_calculator(calc, frames, n_steps=20)
        self.assertEqual({len(p) for p in calc.positions}, {9, 2})
        self.assertEqual(result.n_atoms, 9)

    def test_times_are_those_of_the_calculator(self):
        calc = Counting(1.0, 3.0)
        result = self.profiler.profile_calculator(calc, support.copper_frames(10), n_steps=30)
        took = np.array(calc.took_ms[10:40])  # as the calculator saw it, on a machine that may be shared
        self.assertGreaterEqual(result.min_latency_ms, 4.0)
        self.assertTrue(np.all(np.array(result.latencies_ms) > took))
        # No upper bounds: how much more it takes is up to the machine. The energy alone takes 1 ms, with forces 4 ms at least.
        self.assertGreaterEqual(result.energy_time_ms, 1.0)
        self.assertGreaterEqual(result.energy_time_ms + result.forces_time_ms, 4.0)
        self.assertIn(("energy",), calc.asked)
        self.assertIsNone(result.stress_time_ms)

    def test_one_call_for_several_properties(self):
        calc = Counting(0, 0)
        self.profiler.profile_calculator(calc, support.copper_frames(3), ["energy", "forces", "stress"], n_steps=5, split=False)
        self.assertEqual(set(calc.asked), {("energy", "forces", "stress")})

    def test_matrix_of_properties(self):
        times = self.profiler.property_times(Counting(0.3, 1.0), support.copper_frames(4))
        self.assertFalse(times["one_shot"])
        self.assertGreaterEqual(times["energy"], 0.3)
        self.assertGreaterEqual(times["energy+forces"], 1.3)
        self.assertIn("energy+forces+stress", times)
        times = self.profiler.property_times(EMT(), support.copper_frames(4))
        self.assertTrue(times["one_shot"])

    def test_third_parties(self):
        water = Atoms("OH2" * 2, [[0, 0, 0], [0.76, 0.59, 0], [-0.76, 0.59, 0], [0, 0, 3], [0.76, 0.59, 3], [-0.76, 0.59, 3]])
        water.set_cell([12, 12, 12])
        water.pbc = True
        waters = []
        for seed in range(12):
            frame = water.copy()
            frame.positions += np.random.default_rng(seed).normal(scale=0.01)
            waters.append(frame)
        argon = [Atoms("Ar4", np.random.default_rng(i).normal(size=(4, 3)) * 0.05 + 3.8 * np.eye(4)[:, :3]) for i in range(12)]
        for calc, frames in ((EMT(), support.copper_frames(12)), (LennardJones(sigma=3.4, epsilon=0.01), argon), (TIP3P(rc=4.5), waters)):
            result = self.profiler.profile_calculator(calc, frames)
            self.assertEqual(result.n_steps, 12)
            self.assertGreater(result.min_latency_ms, 0)

    def test_calculators_that_are_not_ases(self):
        class Duck:
            name = "duck"

            def get_potential_energy(self, atoms=None, force_consistent=False):
                return float(atoms.positions.sum())

            def get_forces(self, atoms=None):
                return -atoms.positions

        result = self.profiler.profile_calculator(Duck(), support.copper_frames(12))
        self.assertEqual((result.model_name, result.n_steps), ("duck", 12))

    def test_a_calculator_that_only_remembers_is_refused(self):
        frame = support.copper_frames(1)[0]
        with self.assertRaises(NotImplementedError):
            self.profiler.profile_calculator(SinglePointCalculator(frame, energy=1.0, forces=np.zeros((4, 3))), [frame] * 5)

    def test_frameworks_are_waited_for_and_not_imported(self):
        waited = []
        fake = types.SimpleNamespace(
            Tensor=object, get_num_threads=lambda: 4, set_num_threads=lambda n: None,
            cuda=types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, synchronize=lambda: waited.append(1),
                                       memory_allocated=lambda i: 5 << 20, memory_reserved=lambda i: 9 << 20),
        )  # fmt: skip
        with mock.patch.dict("sys.modules", torch=fake):
            result = self.profiler.profile_calculator(Counting(0, 0), support.copper_frames(3), n_steps=6, split=False)
        self.assertEqual(len(waited), 16)
        names = {row["name"]: row for row in result.data["memory_ledgers"]}
        self.assertEqual(names["device: torch allocated"]["final_bytes"], 5 << 20)
        self.assertIn("torch 4", result.notes)

        waited.clear()
        fake = types.SimpleNamespace(block_until_ready=lambda result: waited.append(result), local_devices=list)
        with mock.patch.dict("sys.modules", jax=fake):
            self.profiler.profile_calculator(Counting(0, 0), support.copper_frames(3), n_steps=6, split=False)
        self.assertEqual(len(waited), 16)

    def test_threads_are_capped_and_reported(self):
        before = os.environ.get("OMP_NUM_THREADS")
        sizes = []
        fake = types.SimpleNamespace(Tensor=object, get_num_threads=lambda: 7, set_num_threads=sizes.append,
                                     cuda=types.SimpleNamespace(is_available=lambda: False))  # fmt: skip
        with mock.patch.dict("sys.modules", torch=fake):
            with _frameworks.capped_threads(1) as pools:
                self.assertEqual(os.environ["OMP_NUM_THREADS"], "1")
                self.assertEqual(pools["OMP_NUM_THREADS"], "1")
        self.assertEqual(sizes, [1, 7])
        self.assertEqual(os.environ.get("OMP_NUM_THREADS"), before)
        result = MDProfiler(device="cpu", n_threads=1).profile_calculator(EMT(), support.copper_frames(3))
        self.assertIn("OMP_NUM_THREADS 1", result.notes)


class Failures(unittest.TestCase):
    def setUp(self):
        self.profiler = MDProfiler(device="cpu")

    def test_what_a_calculator_raises_comes_through_with_what_was_measured(self):
        class Planted(Exception):
            pass

        error = Planted("at the 25th call")
        with self.assertRaises(Planted) as caught:
            self.profiler.profile_calculator(Counting(fails_at=25, error=error), support.copper_frames(5), n_steps=100)
        self.assertIs(caught.exception, error)
        measured = caught.exception.profile
        self.assertEqual((measured.n_steps, measured.partial, len(measured.latencies_ms)), (14, True, 14))
        self.assertIn("at the 25th call", measured.notes)

    def test_failures_during_the_warm_up_have_nothing_to_show(self):
        with self.assertRaises(ZeroDivisionError) as caught:
            self.profiler.profile_calculator(Counting(fails_at=3, error=ZeroDivisionError()), support.copper_frames(5))
        self.assertIsNone(caught.exception.profile)

    def test_exceptions_that_are_not_errors_come_through_too(self):
        for error in (SystemExit(3), GeneratorExit(), MemoryError("planted")):
            with self.assertRaises(type(error)):
                self.profiler.profile_calculator(Counting(fails_at=20, error=error), support.copper_frames(5), n_steps=30)

    def interrupted(self, calc):
        support.heed_ctrl_c(self)

        def press():
            while calc.n < 20:  # past the warm-up, however slow the machine
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        try:
            with self.assertRaises(KeyboardInterrupt) as caught:
                self.profiler.profile_calculator(calc, support.copper_frames(5), n_steps=10**6)
        finally:
            thread.join()
        return caught.exception.profile

    def test_ctrl_c_ends_the_run_and_keeps_it(self):
        for calc in (Counting(2.0, 5.0), Counting(0, 0)):  # inside the calculator, and mostly outside
            measured = self.interrupted(calc)
            self.assertTrue(measured.partial)
            self.assertTrue(0 < measured.n_steps < 10**6)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_in_a_thread(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(self.profiler.profile_calculator(EMT(), support.copper_frames(4))))
        thread.start()
        thread.join()
        self.assertEqual(found[0].n_steps, 4)

    def test_wrong_questions(self):
        frames = support.copper_frames(2)
        with self.assertRaises(MlffUsageError):
            self.profiler.profile_calculator(EMT(), [])
        with self.assertRaises(MlffUsageError):
            self.profiler.profile_calculator(EMT(), frames, ["dipole"])
        with self.assertRaises(MlffUsageError):
            self.profiler.profile_calculator(EMT(), [1, 2, 3])
        with self.assertRaises(MlffUsageError):
            self.profiler.profile_calculator(EMT(), frames, n_steps=0)
        with self.assertRaises(MlffUsageError):
            self.profiler.profile_calculator(EMT(), frames, native=True)

        class NoStress(Counting):
            implemented_properties = ["energy", "forces"]

        with self.assertRaisesRegex(MlffUnsupportedError, "does not compute stress; it computes energy, forces$"):
            self.profiler.profile_calculator(NoStress(), frames, ["energy", "stress"])

    def test_wrong_results_are_named(self):
        class Wrong(Counting):
            def __init__(self, kind, value):
                super().__init__(0, 0)
                self.kind, self.value = kind, value

            def calculate(self, *arguments, **keywords):
                super().calculate(*arguments, **keywords)
                self.results[self.kind] = self.value

        for kind, value, text in (
            ("forces", np.zeros((2, 3)), r"Wrong gave as forces an array of shape \(2, 3\); expected numbers of shape \(\d+, 3\)"),
            ("forces", np.zeros(3), r"Wrong gave as forces an array of shape \(3,\)"),
            ("energy", None, "Wrong gave as energy None; expected one number"),
        ):
            with self.assertRaisesRegex(MlffValueError, text):
                self.profiler.profile_calculator(Wrong(kind, value), support.copper_frames(4))
        for properties, text in ((["foo"], "unknown properties 'foo'; choose from energy, forces, stress"), ([], "no properties to measure")):
            with self.assertRaisesRegex(MlffUsageError, text):
                self.profiler.profile_calculator(Counting(0, 0), support.copper_frames(4), properties)
        with self.assertRaisesRegex(MlffUnsupportedError, "is it an ASE calculator?"):
            self.profiler.profile_calculator(None, support.copper_frames(4))
        with self.assertRaisesRegex(MlffUsageError, "the class EMT in place of a calculator"):
            self.profiler.profile_calculator(EMT, support.copper_frames(4))
        with self.assertRaisesRegex(MlffUsageError, "there are no runs of a"):
            compare_profiles([], [])

    def test_slow_steps_are_no_part_of_all_steps(self):
        # Of a calculator without stages the parts are medians: what single steps take longer is not "unattributed".
        class Sleeping(Counting):
            def calculate(self, *arguments, **keywords):
                super().calculate(*arguments, **keywords)
                if self.n % 10 == 0:
                    time.sleep(0.02)

        result = self.profiler.profile_calculator(Sleeping(0.3, 0.3), support.copper_frames(4), n_steps=120)
        components = identify_hotspots(result)["components"]
        self.assertGreater(components["slow steps"]["percentage"], 50)
        self.assertLess(components["unattributed"]["percentage"], 40)  # 5 % on a quiet machine
        self.assertAlmostEqual(sum(part["percentage"] for part in components.values()), 100, delta=1e-6)

    def test_energy_that_is_no_number_is_told(self):
        class Broken(Counting):
            def calculate(self, *arguments, **keywords):
                super().calculate(*arguments, **keywords)
                self.results["energy"] = float("nan")

        result = self.profiler.profile_calculator(Broken(0, 0), support.copper_frames(4))
        self.assertTrue(any("not a finite number" in text for text in result.data["recommendations"]))

    def test_forces_of_a_wrong_shape_are_an_error(self):
        class Broken(Counting):
            def calculate(self, *arguments, **keywords):
                super().calculate(*arguments, **keywords)
                self.results["forces"] = np.zeros((2, 2))

        with self.assertRaises(ValueError):
            self.profiler.profile_calculator(Broken(0, 0), support.copper_frames(4))


class Memory(unittest.TestCase):
    def test_a_leak_is_found(self):
        class Leaking(Counting):
            kept = []

            def calculate(self, *arguments, **keywords):
                super().calculate(*arguments, **keywords)
                self.kept.append(support.fresh(65536))

        with self.assertWarnsRegex(MlffWarning, "memory grew"):
            result = MDProfiler(device="cpu").profile_calculator(
                Leaking(0, 0), support.copper_frames(4), n_steps=1000, split=False
            )
        Leaking.kept.clear()
        self.assertFalse(result.memory_stable)
        resident = next(row for row in result.data["memory_ledgers"] if row["name"] == "resident")
        self.assertEqual(resident["leak"], "growing")
        self.assertAlmostEqual(resident["leak_bytes_per_step"], 65536, delta=8000)
        hotspots = identify_hotspots(result)
        self.assertTrue(hotspots["memory_leak"]["found"])

    def test_distinct_frames_leave_no_objects_behind(self):
        # An object kept for each frame is a kilobyte a step: on a clean calculator it was reported as a leak.
        frames = support.copper_frames(900)
        blocks = []

        class Clean(Counting):
            def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
                super().calculate(atoms, properties, system_changes)
                self.positions.clear(), self.asked.clear(), self.took_ms.clear()
                if self.n in (100, 900):
                    blocks.append(sys.getallocatedblocks())

        MDProfiler(device="cpu").profile_calculator(Clean(energy_ms=0, forces_ms=0), frames, split=False)
        self.assertLess(blocks[1] - blocks[0], 100)  # 800 frames apart; three objects a frame were 2400

    def test_measuring_leaks_nothing(self):
        calc, frames = StudentCalculator(support.untrained(), device="cpu", n_threads=1), support.ethanol_frames(4)
        profiler = MDProfiler(device="cpu")
        result = profiler.profile_calculator(calc, frames, n_steps=2000, split=False)
        self.assertTrue(result.memory_stable)
        self.assertNotIn("growing", [row["leak"] for row in result.data["memory_ledgers"]])
        self.assertEqual(len(result.memory_per_step_gb), 201)
        before = len(gc.get_objects())
        for _ in range(10):
            profiler.profile_calculator(calc, frames, n_steps=5, split=False)
        gc.collect()
        self.assertLess(len(gc.get_objects()) - before, 1000)


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.calc = StudentCalculator(support.untrained(), device="cpu", n_threads=1)
        cls.frames = support.ethanol_frames(40)
        cls.profiler = MDProfiler(device="cpu")
        cls.result = cls.profiler.profile_calculator(cls.calc, cls.frames, name="planted name")

    def test_statistics_are_the_librarys_and_numpys(self):
        r, times = self.result, np.array(self.result.latencies_ms)
        self.assertEqual((r.n_steps, len(times)), (40, 40))
        for mine, theirs in (
            (r.mean_latency_ms, times.mean()), (r.median_latency_ms, np.median(times)), (r.std_latency_ms, times.std(ddof=1)),
            (r.p95_latency_ms, np.percentile(times, 95)), (r.p99_latency_ms, np.percentile(times, 99)),
            (r.min_latency_ms, times.min()), (r.max_latency_ms, times.max()),
        ):  # fmt: skip
            self.assertAlmostEqual(mine, theirs, delta=1e-9 * theirs)
        self.assertAlmostEqual(r.us_per_atom, r.mean_latency_ms * 1e3 / 9, delta=1e-9)
        self.assertAlmostEqual(r.memory_delta_gb, r.memory_final_gb - r.memory_initial_gb, delta=1e-12)

    def test_json(self):
        path = support.scratch("folder/that/is/made/report.json")
        self.result.save_json(path)
        written = json.loads(path.read_text())
        self.assertEqual([key for key in CONTRACT if key not in written], [])
        self.assertEqual(written, json.loads(json.dumps(self.result.to_dict())))
        loaded = MDProfileResult.load_json(path)
        for key in CONTRACT:
            self.assertEqual(getattr(loaded, key), getattr(self.result, key), key)
        self.assertEqual(loaded.summary(), MDProfileResult.load_json(path).summary())
        path.write_text(path.read_text()[:300])
        with self.assertRaises(MlffFormatError):
            MDProfileResult.load_json(path)

    def test_stages_and_the_way_through_python(self):
        rows = {(row["phase"], row["name"]): row for row in self.result.data["stages"]}
        self.assertIn(("forward", "message"), rows)
        self.assertIn(("", "host"), rows)
        total = sum(row["mean_ms"] for row in self.result.data["stages"])
        self.assertAlmostEqual(total, self.result.mean_latency_ms, delta=1e-9)  # a closed budget
        native = self.profiler.profile_calculator(self.calc, self.frames, native=True, n_steps=200)
        self.assertNotIn("host", [row["name"] for row in native.data["stages"]])
        self.assertEqual(native.data["counters"]["mean_pairs"] > 0, True)

    def test_hotspots(self):
        for threshold in (0.0, 10.0, 50.0):
            found = identify_hotspots(self.result, threshold)
            self.assertEqual(found["total_time_ms"], self.result.mean_latency_ms)
            for info in found["components"].values():
                self.assertEqual(info["is_hotspot"], info["percentage"] > threshold)
        self.assertEqual(found["recommendations"], self.result.data["recommendations"])
        self.assertFalse(found["memory_leak"]["found"])
        with self.assertRaises(MlffUsageError):
            identify_hotspots(self.result, -1.0)

    def test_summary_and_text(self):
        text = self.result.summary()
        self.assertIn("planted name", text)
        self.assertTrue(all(len(line) <= 100 for line in text.splitlines()))
        self.assertIn("planted name", str(self.result))

    def test_pages(self):
        path = support.scratch("pages/report.html")
        self.result.save_html(path)
        self.assertIn("planted name", path.read_text())
        save_html([self.result, self.result], path, title="two of them")
        self.assertIn("two of them", path.read_text())

    def test_faster_or_slower(self):
        written = self.profiler.profile_calculator(Counting(0, 0), support.copper_frames(5), n_steps=60, split=False).to_dict()

        def scaled(value, by, key=""):
            if isinstance(value, dict):
                return {name: scaled(part, by, name) for name, part in value.items()}
            if isinstance(value, list):
                return [scaled(part, by, key) for part in value]
            return value * by if key.endswith("_ms") and isinstance(value, float) else value

        def runs(ms):  # of known times: the report of a real run with all its times scaled
            found = []
            for seed in range(5):
                path = support.scratch(f"planted-{ms}-{seed}.json")
                by = ms / written["median_latency_ms"] * (1 + 0.002 * seed)
                path.write_text(json.dumps(scaled(written, by)))
                found.append(MDProfileResult.load_json(path))
            return found

        fast, slow = runs(0.4), runs(1.6)
        self.assertEqual(compare_profiles(fast, slow).change, "slower")
        found = compare_profiles(slow, fast)
        self.assertEqual(found.change, "faster")
        self.assertIn("FASTER", found.text)
        self.assertIn("verdict", found.data)
        with self.assertRaises(MlffError):
            compare_profiles(fast, [self.result])

    def test_molecular_dynamics(self):
        atoms = support.silicon(1)
        kept = atoms.positions.copy()
        result = self.profiler.profile_md(self.calc, atoms, n_steps=50, timestep_fs=0.5)
        self.assertEqual(result.data["trajectory"], "md")
        self.assertIn("integrate", [row["name"] for row in result.data["stages"]])
        self.assertEqual(result.data["timestep_fs"], 0.5)
        np.testing.assert_array_equal(atoms.positions, kept)
        result = self.profiler.profile_md(EMT(), support.copper_frames(1)[0], n_steps=20, friction_per_fs=0.01)
        self.assertEqual(result.n_steps, 20)

    def test_one_structure_is_displaced_anew(self):
        calc = Counting(0, 0)
        result = self.profiler.profile_calculator(calc, support.copper_frames(1)[0], split=False)
        self.assertEqual((result.n_steps, result.data["trajectory"]), (100, "thermal"))
        self.assertEqual(len({positions.tobytes() for positions in calc.positions}), calc.n)

    def test_where_kernels_cannot_be_traced_it_is_said(self):
        with mock.patch.dict(os.environ, MLFF_CUPTI="/nowhere/libcupti.so"):
            profiler = MDProfiler(device="cpu", warmup_steps=1, kernels=3)
            result = profiler.profile_calculator(EMT(), support.copper_frames(2), split=False, n_steps=5)
        self.assertIn("kernels on the GPU were not traced", result.data["notes"])
        rows = [ms for row, ms in result.data["budget"].items() if row not in ("traced", "step_ms", "between_ms") and ms is not None]
        self.assertAlmostEqual(sum(rows), result.data["budget"]["step_ms"], places=9)

    def test_comparison(self):
        found = self.profiler.compare_calculators({"EMT": EMT(), "made": make_emt, "class": EMT}, support.copper_frames(6))
        self.assertEqual(list(found), ["EMT", "made", "class"])
        self.assertEqual([r.name for r in found.values()], ["EMT", "made", "class"])

    def test_comparison_in_processes_of_their_own(self):
        found = self.profiler.compare_calculators(
            {"EMT": make_emt, "student": self.calc}, support.ethanol_frames(6), separate_processes=True
        )
        self.assertEqual([r.n_steps for r in found.values()], [6, 6])
        with self.assertRaisesRegex(MlffError, "planted in a child"):
            self.profiler.compare_calculators({"bad": make_nothing}, support.copper_frames(3), separate_processes=True)
        self.assertEqual(multiprocessing.active_children(), [])

    def test_ctrl_c_ends_a_process_of_its_own(self):
        started = support.scratch("started")

        def interrupt():
            while not started.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        support.heed_ctrl_c(self)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt), support.quiet():
            self.profiler.compare_calculators(
                {"slow": functools.partial(sleep_after, str(started))}, support.copper_frames(1), separate_processes=True
            )
        thread.join()
        self.assertEqual(multiprocessing.active_children(), [])

    def test_in_one_call(self):
        path = support.scratch("one-call.json")
        result = profile_md_trajectory(EMT(), support.copper_frames(5), device="cpu", output_file=path)
        self.assertEqual(MDProfileResult.load_json(path).n_steps, result.n_steps)
        from ase.io import write

        frames = support.scratch("frames.extxyz")
        write(frames, support.copper_frames(4), format="extxyz")
        self.assertEqual(profile_md_trajectory(EMT(), frames, device="cpu").n_steps, 4)

    def test_many_steps_in_bounded_memory(self):
        class Nothing:
            implemented_properties = ["energy"]

            def get_potential_energy(self, atoms=None):
                return 0.0

        result = self.profiler.profile_calculator(Nothing(), support.copper_frames(3), ["energy"], n_steps=120_000, split=False)
        self.assertEqual(result.n_steps, 120_000)
        self.assertLess(len(result.latencies_ms), 100_001)
        self.assertEqual(result.data["n_samples"], len(result.latencies_ms))

    def test_plots_and_tables(self):
        try:
            import matplotlib  # noqa: F401

            path = support.scratch("plot.png")
            self.result.plot(path)
            self.assertGreater(path.stat().st_size, 5000)
        except ImportError:
            with self.assertRaisesRegex(ImportError, "pip install matplotlib"):
                self.result.plot()
        try:
            import pandas  # noqa: F401

            self.assertEqual(len(self.result.to_pandas()), 40)
        except ImportError:
            with self.assertRaisesRegex(ImportError, "pip install pandas"):
                self.result.to_pandas()

    def test_a_gpu_that_is_not_there_becomes_the_cpu_with_a_warning(self):
        from mlff_distiller import _library as lib

        if lib.core.mlff_device_count(lib.CUDA):
            self.skipTest("there is a GPU")
        with self.assertWarnsRegex(MlffWarning, "on the CPU instead"):
            self.assertEqual(MDProfiler(device="cuda").device, "cpu")


if __name__ == "__main__":
    unittest.main()
