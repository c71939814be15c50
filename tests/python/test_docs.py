# SPDX-License-Identifier: MIT
"""Purpose: every Python example of the guides and of the README runs, top to bottom, as it stands there; links lead somewhere;
the page of the Python API is that of the docstrings."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import support

GUIDES = sorted((support.ROOT / "docs").rglob("*.md")) + [support.ROOT / "README.md", support.ROOT / "CONTRIBUTING.md"]
PAGES = GUIDES + [page for folder in ("src", "models", "profiling_reports") for page in sorted((support.ROOT / folder).rglob("*.md"))]


def anchors(path):
    """Of the headings of a page, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def examples(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M)


class Guides(unittest.TestCase):
    def test_examples_run(self):
        with_examples = [path for path in GUIDES if examples(path)]
        names = {path.name for path in with_examples}
        self.assertLessEqual({"python.md", "profile-any-calculator.md", "read-a-report.md", "deploy-and-tune.md"}, names)
        for path in with_examples:
            with self.subTest(path.name):
                self.run_examples(path)

    def run_examples(self, path):
        before, scope = os.getcwd(), {"__name__": "guide"}
        model = support.untrained_path()
        # Of torch, which the test of another file may have loaded, the guides say nothing.
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, torch=None):
            os.chdir(folder)
            os.symlink(model, "model.safetensors")
            try:
                with support.quiet():
                    for i, block in enumerate(examples(path)):
                        exec(compile(block, f"{path.name}, example {i + 1}", "exec"), scope)
            finally:
                os.chdir(before)

    def test_options_of_commands_are_theirs(self):
        # Lines that begin with mlff, indented or in a block, and code between backticks; what follows two blanks is prose.
        helps = {}
        n_options = 0
        for path in PAGES:
            text = path.read_text(encoding="utf-8")
            shown = re.findall(r"^(?: {4}(?:\$ )?)?(mlff [a-z]+ [^\n]*)", text, re.M) + re.findall(r"`(mlff [a-z]+ [^`]*)`", text)
            for line in shown:
                for part in re.split(r"&&|\||;|'", line.replace("\n", " ")):
                    words = part.split()
                    if words[:1] != ["mlff"]:
                        continue
                    if words[1] not in helps:
                        done = subprocess.run([os.environ["MLFF_COMMAND"], words[1], "--help"], capture_output=True, text=True)
                        self.assertEqual(done.returncode, 0, f"{path.name}: {line}")
                        helps[words[1]] = set(re.findall(r"--[a-z][a-z0-9-]*", done.stdout))
                    options = {option for word in words for option in re.findall(r"^\[?(--[a-z][a-z0-9-]*)", word)}
                    self.assertLessEqual(options, helps[words[1]], f"{path.name}: {line}")
                    n_options += len(options)
        self.assertGreater(n_options, 200)

    def test_links_lead_somewhere(self):
        for path in PAGES:
            for target in re.findall(r"\]\(([^):]+)\)", path.read_text(encoding="utf-8")):
                name, _, anchor = target.partition("#")
                page = path.parent / name if name else path
                self.assertTrue(page.exists(), f"{path.name}: {target}")
                if anchor:
                    self.assertIn(anchor, anchors(page), f"{path.name}: {target}")

    def test_the_page_of_the_api_is_current(self):
        tool = support.ROOT / "tools" / "make_python_api"
        done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_code_of_the_api_is_shown_as_code(self):
        # Docstrings whose lines but the first are all code lost their indentation, and the page showed them as a paragraph.
        page = (support.ROOT / "docs" / "guide" / "python-api.md").read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
        self.assertEqual(re.findall(r"^\w+ = \w.*|^(?:for|with|while) .*:$", text, re.M), [])

    def test_errors_named_in_troubleshooting_are_there(self):
        # What the page quotes is in the sources: `…` stands for what varies.
        page = (support.ROOT / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
        sources = "\n".join(
            re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
            for folder in ("src", "bindings/python/mlff_distiller")
            for path in sorted((support.ROOT / folder).rglob("*"))
            if path.suffix in (".c", ".h", ".py")
        )
        quoted = re.findall(r"^\| `([^`]+)` \|", page, re.M)
        self.assertGreater(len(quoted), 20)
        for text in quoted:
            for piece in text.split("…"):
                self.assertIn(piece.strip(), sources, f"troubleshooting.md quotes {text!r}")


if __name__ == "__main__":
    unittest.main()
