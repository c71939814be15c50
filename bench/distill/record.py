# SPDX-License-Identifier: MIT
"""Results of the measurements in this folder, with where they come from."""
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write_record(path, **parts):
    """`parts` as JSON, below the command, the commit, the processor and the date."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    command = " ".join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    record = {"command": command, "commit": commit, "machine": f"{processor()}, {os.cpu_count()} cores", "date": str(datetime.date.today())}
    pathlib.Path(path).write_text(json.dumps(record | parts, ensure_ascii=False, indent=1) + "\n")
