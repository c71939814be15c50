# SPDX-License-Identifier: MIT
"""Purpose: the console scripts and `python -m mlff_distiller` are the command, with its arguments and its exit status;
the teachers' profiler builds, measures and refuses as asked."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import unittest
from unittest import mock

import support
from ase.build import molecule

from mlff_distiller import StudentCalculator, __version__, profile_teachers
from mlff_distiller.cuda.md_profiler import MDProfiler, MDProfileResult
from mlff_distiller.errors import MlffError

SCRIPT = "import sys; sys.argv = ['x', *sys.argv[2:]]; import mlff_distiller._command as c; getattr(c, sys.argv.pop(1))()"


def run(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)


class Command(unittest.TestCase):
    def test_module(self):
        done = run("-m", "mlff_distiller", "--version")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, f"mlff {__version__}"))
        self.assertEqual(run("-m", "mlff_distiller", "nothing").returncode, 2)

    def test_scripts(self):
        report = support.scratch("check.json")
        done = run("-c", SCRIPT, "-", "check", "--export-json", str(report))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(report.stat().st_size > 100)
        output = support.scratch("profile.json")
        done = run(
            "-c", SCRIPT, "-", "profile", str(support.untrained_path()), "--system", "ethanol", "--n-steps", "20",
            "--device", "cpu", "-o", str(output),
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(MDProfileResult.load_json(output).n_steps, 20)

    def test_a_reader_that_leaves(self):
        # The command ends by SIGPIPE, which Python ignores and would pass on as ignored.
        command = [sys.executable, "-c", SCRIPT, "-", "mlff", "md", str(support.untrained_path()), "--system", "ethanol", "--device", "cpu"]
        with subprocess.Popen([*command, "--n-steps", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            process.stdout.close()
            said = process.stderr.read()
            self.assertEqual((process.wait(60), said), (-signal.SIGPIPE, b""))

    def test_the_worked_example(self):
        # Options alone are the example's; asked for what it refuses, it need not run.
        done = run("-c", SCRIPT, "-", "bench", "--n-calls", "50", "--n-trajectory-steps", "x")
        self.assertEqual((done.returncode, "--n-trajectory-steps 'x' is not" in done.stderr), (2, True), done.stderr)

    def test_check_covers_what_it_should(self):
        report = support.scratch("check-all.json")
        self.assertEqual(run("-c", SCRIPT, "-", "check", "--export-json", str(report)).returncode, 0)
        text = report.read_text().lower()
        for word in "driver nvcc torch jax nsys ncu cupti triton cupy pycuda".split():
            self.assertIn(word, text)


class Teachers(unittest.TestCase):
    def test_as_a_module(self):
        done = run("-m", "mlff_distiller.profile_teachers", "--n-steps", "x")
        self.assertEqual((done.returncode, "--n-steps" in done.stderr), (2, True), done.stderr)

    def test_a_molecule_is_measured_once(self):
        done, path = self.profile("molecule", "--model", str(support.untrained_path()), "--system", "ethanol", "--system-sizes", "32,64")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("9 atoms"), 1, done.stdout)

    def profile(self, folder, *words):
        path = support.scratch(folder)
        path.mkdir(exist_ok=True)
        words = [*words, "--n-steps", "4", "--warmup", "2", "--device", "cpu", "--output-dir", str(path)]
        return run("-c", SCRIPT, "-", "profile", *words), path

    def test_one_teacher(self):
        done, folder = self.profile("one", "--model", "ani-2x", "--system", "water", "--n-atoms", "7", "--random-weights")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = MDProfileResult.load_json(folder / "fennol_ani2x_profile.json")
        self.assertEqual((result.name, result.n_steps, result.n_atoms), ("ani-2x, water, 6 atoms", 4, 6))  # the nearest count
        self.assertIn("untrained", result.notes)
        self.assertTrue((folder / "README.md").exists())

    def test_sizes(self):
        done, folder = self.profile("sizes", "--model", "ani-2x", "--system", "water", "--system-sizes", "6,12", "--random-weights")
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads((folder / "fennol_ani2x_scaling_water.json").read_text())["runs"]
        self.assertEqual([one["n_atoms"] for one in runs], [6, 12])

    def test_a_student_along_its_md(self):
        done, folder = self.profile("student", f"--model={support.untrained_path()}", "--trajectory", "md", "--n-atoms", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(MDProfileResult.load_json(folder / "untrained_profile.json").data["trajectory"], "md")

    def test_all(self):
        done, folder = self.profile("all", "--compare-all", "--n-atoms", "3", "--random-weights")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(MDProfileResult.load_json(folder / "comparison_water.json").n_steps)
        self.assertNotIn("left out: orb", done.stderr)  # it runs without orb_models

    def test_teachers_left_out(self):
        """A comparison without a teacher takes the place of none that has it."""
        folder = support.scratch("left-out")
        folder.mkdir(exist_ok=True)
        path, partial_file = folder / "comparison_water.json", folder / "comparison_water-partial.json"
        calculator = StudentCalculator(support.untrained_path(), device="cpu")
        whole = MDProfiler("cpu", warmup_steps=2).compare_calculators({"orb-v2": calculator, "ani-2x": calculator}, molecule("CH3CH2OH"), n_steps=10)
        without: list[str] = []

        def measure(profiler, calculators, *_, **__):
            (name,) = calculators
            if name in without or name not in whole:
                raise MlffError("no weights")
            return {name: whole[name]}

        def compare(*left_out):
            without[:] = left_out
            said = io.StringIO()
            with mock.patch.object(MDProfiler, "compare_calculators", measure), contextlib.redirect_stderr(said):
                status = profile_teachers.main(["--compare-all", "--device", "cpu", "--output-dir", str(folder)])
            return status, said.getvalue().splitlines()[-1]

        self.assertEqual(compare(), (0, "left out: no weights"))  # orb-v3, which the file never had
        before = path.read_text()
        self.assertEqual(compare("orb-v2"), (1, f"mlff-profile: left out: orb-v2; kept: 1 profile in {partial_file}"))
        self.assertEqual((path.read_text(), MDProfileResult.load_json(partial_file).name), (before, "ani-2x"))
        partial_file.unlink()
        self.assertEqual(compare("orb-v2", "ani-2x"), (1, "mlff-profile: left out: orb-v2, ani-2x"))
        self.assertEqual((path.read_text(), partial_file.exists()), (before, False))
        path.write_text("mine")
        self.assertEqual(compare()[0], 1)
        self.assertEqual(path.read_text(), "mine")
        path.unlink()
        partial_file.unlink()
        for _ in range(2):
            self.assertEqual(compare("orb-v2")[0], 0)
        self.assertEqual((MDProfileResult.load_json(path).name, partial_file.exists()), ("ani-2x", False))
        self.assertEqual(compare()[0], 0)  # more than it has
        self.assertEqual(len(json.loads(path.read_text())["runs"]), 2)

    def test_ctrl_c(self):
        """What was measured before is kept, also where a size fails: the sizes before, and steps of the one under way where there is no other."""
        folder = support.scratch("interrupted")
        model = ["--model", str(support.untrained_path()), "--device", "cpu", "--output-dir", str(folder), "--n-steps", "10"]
        calculator = StudentCalculator(support.untrained_path(), device="cpu")
        first, calls = MDProfiler("cpu", warmup_steps=2).profile_calculator(calculator, molecule("CH3CH2OH"), n_steps=10), []

        def failing(error):
            calls.clear()

            def measure(options, profiler, name, n_atoms):
                calls.append(n_atoms)
                if len(calls) == 2:
                    raise error
                return first

            return mock.patch.object(profile_teachers, "_profile", measure)

        said = io.StringIO()

        def check(arguments, status, told, file, there):
            """A file that is there stays as it was."""
            path, partial_file = folder / file, folder / file.replace(".json", "-partial.json")
            if there:
                path.write_text("mine")
            kept = partial_file if there else path
            self.assertEqual(profile_teachers.main([*model, *arguments]), status)
            self.assertEqual(said.getvalue().splitlines()[-1], f"mlff-profile: {told} in {kept}")
            self.assertEqual(MDProfileResult.load_json(kept).n_steps, 10)
            self.assertEqual(path.read_text() == "mine", there)
            self.assertEqual(partial_file.exists(), there)
            for name in (path, partial_file):
                name.unlink(missing_ok=True)

        sizes = ["--system-sizes", "8,64,216"]
        for there in (False, True):
            with failing(KeyboardInterrupt()), contextlib.redirect_stderr(said):
                check(sizes, 130, "interrupted at 64 atoms; kept: 1 profile", "untrained_scaling_silicon.json", there)
            with failing(MlffError("no memory")), contextlib.redirect_stderr(said):
                check(sizes, 1, "64 atoms: no memory; kept: 1 profile", "untrained_scaling_silicon.json", there)

        def partial(*_):
            error = KeyboardInterrupt()
            error.profile = first
            raise error

        for there in (False, True):
            with mock.patch.object(profile_teachers, "_profile", partial), contextlib.redirect_stderr(said):
                check([], 130, "interrupted after 10 steps; kept: what was measured", "untrained_profile.json", there)

    def test_a_folder_that_cannot_be_made(self):
        said = io.StringIO()
        with mock.patch.object(profile_teachers, "_profile") as measured, contextlib.redirect_stderr(said):
            self.assertEqual(profile_teachers.main(["--device", "cpu", "--output-dir", "/proc/nowhere"]), 1)
        self.assertIn("/proc/nowhere", said.getvalue())
        measured.assert_not_called()

    def test_refusals(self):
        for words, status, text in (
            (["--model", "ani-2x", "--random-weights"], 1, "ani-2x does not know Si; it knows H, C, N, O, F, S, Cl"),
            (["--model", "nowhere.safetensors"], 1, "nowhere.safetensors"),
            (["--model", "ani-2x", "--system-sizes", "4,x"], 2, "'x': expected a whole number of 1 or more"),
            (["--model", "ani-2x", "--system", "granite"], 2, "granite"),
        ):
            done, _ = self.profile("refused", *words)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(text, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
