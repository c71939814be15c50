# SPDX-License-Identifier: MIT
"""Purpose: every Python example of the guides runs, top to bottom, as it stands there."""

import os
import re
import tempfile
import unittest

import support

GUIDES = ("python.md", "profile-any-calculator.md")


class Guides(unittest.TestCase):
    def run_guide(self, name):
        text = (support.ROOT / "docs" / "guide" / name).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
        self.assertGreater(len(blocks), 4)
        before, scope = os.getcwd(), {"__name__": "guide"}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                with support.quiet():
                    for i, block in enumerate(blocks):
                        exec(compile(block, f"{name}, example {i + 1}", "exec"), scope)
            finally:
                os.chdir(before)

    def test_python(self):
        self.run_guide("python.md")

    def test_profile_any_calculator(self):
        self.run_guide("profile-any-calculator.md")

    def test_links_lead_somewhere(self):
        for name in GUIDES:
            path = support.ROOT / "docs" / "guide" / name
            for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
                self.assertTrue((path.parent / target).exists(), f"{name}: {target}")


if __name__ == "__main__":
    unittest.main()
