#!/usr/bin/env bash
# A training step of LLaMA, Galaxy beside PyTorch, in turns in one run: dev/bench/bench.sh [--rounds N] [--steps K]. See bench.py.
set -eu
cd "$(dirname "$0")/../.."
dev/setup.sh refs
python=$(dev/ref/venv.sh | tail -n 1)
step=$(make --no-print-directory -s print-folder)/llama_step
make --no-print-directory -s "$step"
exec "$python" dev/bench/bench.py --galaxy "$step" --python "$python" "$@"
