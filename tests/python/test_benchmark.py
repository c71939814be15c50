# SPDX-License-Identifier: MIT
"""Purpose: functions are called as often as asked and timed by the C library; comparisons, timers and timelines work."""

import contextlib
import io
import json
import math
import os
import signal
import sys
import threading
import time
import types
import unittest
from unittest import mock

import numpy as np

import support
from mlff_distiller._devices import Device
from mlff_distiller.cuda import benchmark_utils
from mlff_distiller.cuda.benchmark_utils import (
    CUDATimer,
    ProfilerContext,
    _result,
    benchmark_function,
    benchmark_md_trajectory,
    compare_implementations,
    crossing_cost_ns,
    print_comparison_table,
    profile_with_nsys,
    timer_context,
)
from mlff_distiller.errors import MlffUsageError, MlffWarning


def busy(ms):
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def planted(name, times_ns):
    """The result of calls that took these times."""
    return _result(name, Device("cpu"), np.ascontiguousarray(times_ns, float), 0.0, 0.0, 0.0)


class Functions(unittest.TestCase):
    def test_calls_and_arguments(self):
        seen = []

        def f(a, b=0, *, c):
            seen.append((a, b, c))

        result = benchmark_function(f, 1, n_warmup=3, n_calls=20, device="cpu", name="planted", b=2, c=3)
        self.assertEqual(seen, [(1, 2, 3)] * 23)
        self.assertEqual((result.name, result.n_calls, len(result.times_ms), result.device), ("planted", 20, 20, "cpu"))
        self.assertEqual(benchmark_function(math.sqrt, 2.0, n_calls=5, device="cpu").name, "sqrt")

    def test_numbers(self):
        result = benchmark_function(busy, 1.0, n_warmup=1, n_calls=30, device="cpu")
        times = np.array(result.times_ms)
        self.assertGreaterEqual(times.min(), 1.0)
        for mine, theirs in (
            (result.mean_ms, times.mean()), (result.median_ms, np.median(times)), (result.std_ms, times.std(ddof=1)),
            (result.min_ms, times.min()), (result.max_ms, times.max()),
            (result.p95_ms, np.percentile(times, 95)), (result.p99_ms, np.percentile(times, 99)),
        ):  # fmt: skip
            self.assertAlmostEqual(mine, theirs, delta=1e-9 * theirs)
        self.assertAlmostEqual(result.total_time_s, times.sum() / 1e3, delta=1e-9)
        self.assertAlmostEqual(result.calls_per_second, 1e3 / result.mean_ms, delta=1e-6)
        written = json.loads(json.dumps(result.to_dict()))
        for key in """name n_calls device times_ms mean_ms median_ms std_ms min_ms max_ms p95_ms p99_ms memory_before_gb memory_after_gb
            peak_memory_gb memory_delta_gb total_time_s calls_per_second""".split():
            self.assertIn(key, written)
        self.assertIn("30", result.summary())

    def test_outliers_are_labelled_and_kept(self):
        times_ns = 3e5 + 1e3 * (np.arange(40) % 7)
        times_ns[16] = 2e7
        result = planted("planted", times_ns)
        self.assertEqual((result.outliers, result.n_outliers, result.n_calls), ([16], 1, 40))
        self.assertEqual(result.max_ms, 20.0)
        self.assertIn("1 of 40 calls is an outlier", result.summary())

    def test_memory(self):
        kept = []
        result = benchmark_function(lambda: kept.append(support.fresh(1 << 20)), n_warmup=0, n_calls=40, device="cpu")
        self.assertAlmostEqual(result.memory_delta_gb * 1024, 40, delta=4)
        self.assertGreaterEqual(result.peak_memory_gb, result.memory_after_gb)

    def test_exceptions_come_through(self):
        count = 0

        def f():
            nonlocal count
            count += 1
            if count == 15:
                raise LookupError("planted")

        with self.assertRaisesRegex(LookupError, "planted") as caught:
            benchmark_function(f, n_warmup=4, n_calls=100, device="cpu")
        self.assertEqual((caught.exception.benchmark.n_calls, caught.exception.benchmark.partial), (10, True))
        with self.assertRaises(ZeroDivisionError) as caught:
            benchmark_function(lambda: 1 / 0, device="cpu")
        self.assertIsNone(caught.exception.benchmark)

    def test_ctrl_c(self):
        calls = []
        support.heed_ctrl_c(self)

        def press():
            while len(calls) < 1000:  # well after the warm-up, however slow the machine
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        with self.assertRaises(KeyboardInterrupt) as caught:
            benchmark_function(lambda: calls.append(None), n_calls=10**8 // 4, device="cpu")
        thread.join()
        self.assertTrue(caught.exception.benchmark.partial)

    def test_wrong_questions(self):
        for keywords in ({"n_calls": 0}, {"n_calls": -1}, {"n_warmup": -1}):
            with self.assertRaises(MlffUsageError):
                benchmark_function(math.sqrt, 2.0, device="cpu", **keywords)

    def test_cost_of_the_crossing(self):
        cost = min(crossing_cost_ns(20_000) for _ in range(3))
        print(f"a call from C into Python and back: {cost:.0f} ns (median)")
        self.assertGreater(cost, 0)  # some 150 ns on an idle machine; the goal is 500

    def test_a_device_is_waited_for(self):
        waited = []
        fake = types.SimpleNamespace(block_until_ready=waited.append, local_devices=list)
        with mock.patch.dict("sys.modules", jax=fake):
            benchmark_function(lambda: "result", n_warmup=1, n_calls=4, device="cpu")
        self.assertEqual(waited, ["result"] * 5)


class Texts(unittest.TestCase):
    def test_no_powers_of_ten_and_no_percentiles_of_few_calls(self):
        one = benchmark_function(lambda: None, n_calls=1, device="cpu").summary()
        many = benchmark_function(lambda: None, n_calls=2000, device="cpu").summary()
        self.assertNotRegex(one + many, r"\de[+-]\d|-0\.00")
        self.assertNotIn("P95", one)
        self.assertRegex(many, r"P95 .*P99 ")

    def test_what_cannot_be_called_is_named(self):
        with self.assertRaisesRegex(MlffUsageError, "'a' cannot be called: it is of type int"):
            compare_implementations({"a": 3}, device="cpu")


class Trajectories(unittest.TestCase):
    def test_each_input_in_turn(self):
        seen = []
        result = benchmark_md_trajectory(seen.append, list(range(25)), n_warmup=3, device="cpu", name="turns")
        self.assertEqual(seen, [0, 1, 2, *range(25)])
        self.assertEqual((result.n_calls, len(result.times_ms), result.name), (25, 25, "turns"))

    def test_a_leak_warns(self):
        kept = []
        with self.assertWarnsRegex(MlffWarning, "tolerance 10 MB"):
            result = benchmark_md_trajectory(lambda x: kept.append(support.fresh(1 << 16)), [0] * 1000, device="cpu")
        self.assertEqual(result.leak, "growing")
        result = benchmark_md_trajectory(lambda x: None, [0] * 1000, device="cpu")
        self.assertEqual(result.leak, "stable")

    def test_a_verdict_that_is_not_clear_is_told(self):
        def verdict(*rows):
            return benchmark_utils._worst_leak([{"name": name, "leak": leak} for name, leak in rows])

        self.assertEqual(verdict(("resident", "inconclusive"), ("heap", "growing")), "inconclusive")
        self.assertEqual(verdict(("resident", "stable"), ("device pool", "growing")), "growing")
        self.assertEqual(verdict(("heap", "growing")), "")

    def test_failures(self):
        with self.assertRaises(MlffUsageError):
            benchmark_md_trajectory(print, [])
        with self.assertRaises(ZeroDivisionError) as caught:
            benchmark_md_trajectory(lambda x: 1 / x, [1] * 30 + [0], device="cpu", n_warmup=2)
        self.assertEqual(caught.exception.benchmark.n_calls, 30)


class Comparisons(unittest.TestCase):
    def test_each_in_turn(self):
        called = []
        found = compare_implementations({"a": lambda x: called.append(x), "b": lambda x: None}, 7, n_warmup=1, n_calls=10, device="cpu")
        self.assertEqual([(name, result.name, result.n_calls) for name, result in found.items()], [("a", "a", 10), ("b", "b", 10)])
        self.assertEqual(called, [7] * 11)
        self.assertIsNone(found["a"].speed)
        self.assertIn(found["b"].to_dict()["speed"]["change"], ("faster", "unclear", "same", "slower"))

    def test_the_verdict_is_the_librarys(self):
        # 20 rounds on a machine that is twice as slow in half of them, with outliers: pairs of rounds meet the same.
        random = np.random.default_rng(5)
        machine = np.where(np.arange(20) % 7 < 3, 2.0, 1.0)
        same, n_wrong = machine * random.lognormal(sigma=0.003, size=20), 0
        slower = machine * 1.05 * random.lognormal(sigma=0.003, size=20)
        slower[3] *= 9.0
        speed = benchmark_utils._speed(same, slower)
        self.assertEqual(speed.change, "slower")
        self.assertTrue(1.03 < speed.low < speed.ratio < speed.high < 1.08 and speed.p < 0.001, speed)
        self.assertEqual(benchmark_utils._speed(slower, same).change, "faster")
        for _ in range(200):
            a, b = (machine * random.lognormal(sigma=0.01, size=20) for _ in "ab")
            n_wrong += benchmark_utils._speed(a, b).change in ("faster", "slower")
        self.assertLessEqual(n_wrong, 2)
        self.assertEqual(benchmark_utils._speed([1.0] * 5, [2.0] * 5).change, "unclear")  # fewer than six rounds

    def test_table(self):
        results = {"slow": planted("slow", np.full(10, 2e6)), "fast": planted("fast", np.full(10, 5e5))}
        out = io.StringIO()
        print_comparison_table(results, file=out)
        lines = out.getvalue().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("1.00×", lines[1])
        self.assertIn(" 4.00× ", lines[2])
        self.assertEqual(lines[2].split()[-1], "unclear")  # two single runs tell nothing
        with self.assertRaises(MlffUsageError):
            compare_implementations({})


class Timers(unittest.TestCase):
    def test_timer(self):
        with CUDATimer("cpu") as timer:
            busy(5.0)
        self.assertGreaterEqual(timer.elapsed_ms, 5.0)
        self.assertAlmostEqual(timer.elapsed_us, timer.elapsed_ms * 1e3, delta=1e-6)
        timer.start()
        self.assertGreaterEqual(timer.stop(), 0.0)
        self.assertTrue(math.isnan(CUDATimer("cpu").elapsed_ms))

    def test_block(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), timer_context("planted", "cpu"):
            busy(1.0)
        self.assertRegex(out.getvalue(), r"planted: \d")


class Timelines(unittest.TestCase):
    def test_trace(self):
        folder = support.scratch("traces")
        # Without torch, whose own profiler would record the calls (test_torch).
        with mock.patch.dict(sys.modules, torch=None), ProfilerContext(output_dir=folder, name="planted", with_stack=True) as profiler:
            with profiler.range("outer", atoms=9):
                with profiler.range("inner"):
                    busy(1.0)
            profiler.step()
        trace = json.loads((folder / "planted.trace.json").read_text())
        self.assertEqual(profiler.trace_path, folder / "planted.trace.json")
        events = {event["name"]: event for event in trace["traceEvents"]}
        outer, inner = events["outer"], events["inner"]
        self.assertEqual((outer["ph"], outer["args"]), ("X", {"atoms": 9}))
        self.assertGreaterEqual(inner["dur"], 1000.0)  # µs
        self.assertTrue(outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"])
        self.assertEqual(events["memory"]["ph"], "C")
        self.assertIn("busy", events)
        self.assertIn("step 1", events)
        self.assertIsNone(sys.getprofile())

    def test_details_that_json_does_not_have(self):
        folder = support.scratch("details")
        with mock.patch.dict(sys.modules, torch=None), ProfilerContext(output_dir=folder, profile_memory=False) as profiler:
            with profiler.range("step", n=np.float32(0.5), wrong=float("nan"), shape=(2, 3), good=1.5, missing=None):
                pass
        event = json.loads(profiler.trace_path.read_text(), parse_constant=self.fail)["traceEvents"][0]
        self.assertEqual(event["args"], {"n": "0.5", "wrong": "nan", "shape": "(2, 3)", "good": 1.5, "missing": None})

    def test_without_a_folder(self):
        with ProfilerContext(profile_memory=False) as profiler, profiler.range("only"):
            pass
        self.assertEqual([event["name"] for event in profiler.events], ["only"])
        self.assertIsNone(profiler.trace_path)

    def test_nsys_command(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command = profile_with_nsys(["run.py", "--n", "a b"], output="report")
        self.assertEqual(out.getvalue().strip(), command)
        self.assertTrue(command.startswith("nsys profile "))
        self.assertTrue(command.endswith(f"--output=report {sys.executable} run.py --n 'a b'"))


if __name__ == "__main__":
    unittest.main()
