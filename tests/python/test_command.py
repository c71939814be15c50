# SPDX-License-Identifier: MIT
"""Purpose: the console scripts and `python -m mlff_distiller` are the command, with its arguments and its exit status."""

import subprocess
import sys
import unittest

import support
from mlff_distiller import __version__

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
        from mlff_distiller.cuda.md_profiler import MDProfileResult

        self.assertEqual(MDProfileResult.load_json(output).n_steps, 20)


if __name__ == "__main__":
    unittest.main()
