#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the Python tests with a python3 that has NumPy and ASE; where there is none, says so and ends with 77 (skipped).
#   tests/python/run.sh BUILD_FOLDER [unittest arguments]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
shift

if ! python=$("$root/tests/python/find_python" "$build"); then
    echo "skipped: no python3 (3.10 or newer) with numpy and ase was found; tools/test_needs $build makes one, or set MLFF_PYTHON"
    exit 77
fi

export MLFF_LIBRARY_DIR=$build/lib MLFF_COMMAND=$build/bin/mlff MLFF_I_PI=$build/test-i-pi PYTHONPATH=$root/bindings/python:$build/test-files PYTHONDONTWRITEBYTECODE=1
cd "$root/tests/python"
exec "$python" -W ignore::ResourceWarning -m unittest "$@"
