# SPDX-License-Identifier: MIT
"""ASE calculators: our student, and the teachers."""

from __future__ import annotations

from .student import StudentCalculator
from .teacher_wrappers import FeNNolCalculator, OrbCalculator

__all__ = ["FeNNolCalculator", "OrbCalculator", "StudentCalculator"]
