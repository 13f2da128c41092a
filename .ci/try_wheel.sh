#!/usr/bin/env bash
# Install the wheel of dist/ into an empty environment, as a user does, and run the selftest there.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
wheel=$(ls "$PWD"/dist/*.whl)
constraints=$PWD/constraints.txt
cd "$work" # so that the sources are not found in place of what was installed
venv/bin/pip install --quiet --constraint "$constraints" "$wheel"
venv/bin/python -W error::ImportWarning -c "import madamoo, torch; print('madamoo', madamoo.__version__, 'beside torch', torch.__version__)"
if venv/bin/madamoo --version 2>message; then
    echo "the command runs without its extra" >&2
    exit 1
fi
grep -q "pip install 'madamoo\[cli\]'" message
venv/bin/pip install --quiet --constraint "$constraints" "$wheel[cli]"
venv/bin/madamoo --version
venv/bin/madamoo selftest --device cpu --no-speed
