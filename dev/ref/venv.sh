#!/bin/sh
# Makes the Python environment of dev/ref and dev/bench, once; prints its python as the last line.
# Where: $GX_VENV, default build/venv in the repository. Takes about 6 GB of disk (CUDA libraries
# come along with torch; it runs on a CPU without a driver).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${GX_VENV:-$here/../../build/venv}
python=$venv/bin/python

# Right means: every pinned package is installed in its pinned version ("+cu132" and the like
# aside), and torch really imports (an interrupted installation leaves metadata without libraries).
is_right() {
    [ -x "$python" ] && "$python" - "$here/requirements.txt" <<'PY' 2>/dev/null
import sys
from importlib.metadata import version
for line in open(sys.argv[1]):
    name, _, want = line.split("#")[0].strip().partition("==")
    if name and version(name).split("+")[0] != (want or version(name).split("+")[0]):
        sys.exit(1)
import torch, transformers, safetensors, numpy
PY
}

if ! is_right; then
    echo "venv.sh: installing the packages of requirements.txt into $venv" >&2
    "${PYTHON:-python3}" -m venv "$venv"
    "$python" -m pip install -q -r "$here/requirements.txt" >&2
    is_right || { echo "venv.sh: $venv does not hold the versions of requirements.txt" >&2; exit 1; }
fi
cd "$venv/bin" && echo "$(pwd)/python"
