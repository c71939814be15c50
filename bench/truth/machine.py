# SPDX-License-Identifier: MIT
"""What a file of measured rates says about the commit and the machine it is of."""

import os
import pathlib
import platform
import subprocess


def described(cores_of_a_run, commit=None):
    """`commit`: of the binaries; None: that of the repository that holds this file, "" where there is none."""
    if commit is None:
        git = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}; {cores_of_a_run}",
        "cores_used": len(os.sched_getaffinity(0)),
        "nice": os.nice(0),
    }
