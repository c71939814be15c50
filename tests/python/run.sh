#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the Python tests with a python3 that has NumPy and ASE; where there is none, says so and ends with 77 (skipped).
#   tests/python/run.sh BUILD_FOLDER [unittest arguments]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
shift

python=
for candidate in ${MLFF_PYTHON:-} python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, numpy, ase; assert sys.version_info >= (3, 10)' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "skipped: no python3 (3.10 or newer) with numpy and ase was found; install python3-ase, or set MLFF_PYTHON"
    exit 77
fi

export MLFF_LIBRARY_DIR=$build/lib MLFF_COMMAND=$build/bin/mlff PYTHONPATH=$root/bindings/python PYTHONDONTWRITEBYTECODE=1
cd "$root/tests/python"
exec "$python" -W ignore::ResourceWarning -m unittest "$@"
