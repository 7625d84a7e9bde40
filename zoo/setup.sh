#!/usr/bin/env bash
# Makes a virtual environment, zoo-venv, in the build folder ($EBB_BUILD_DIR, or build), with the libraries of the zoo
# at the versions that the zoo was written for. Prints what cannot be installed; programs that do not need the missing
# libraries still run.
#
#   zoo/setup.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
venv=${1:-${EBB_BUILD_DIR:-build}/zoo-venv}

pins="
numpy==2.4.6
pillow==13.0.0
matplotlib==3.11.2
torch==2.13.0
transformers==5.22.2
accelerate==1.15.0
tokenizers==0.23.3
lightning==2.6.6
"

say() { printf 'zoo setup: %s\n' "$*"; }

is_there() {
    "$venv/bin/python" - "$1" <<'PYTHON' >/dev/null 2>&1
import sys
from importlib.metadata import version
name, want = sys.argv[1].split("==")
sys.exit(version(name).split("+")[0] != want)
PYTHON
}

scripts/setup.sh zoo
if [ ! -x "$venv/bin/python" ]; then
    say "making $venv"
    python3 -m venv "$venv" || {
        say "python3 cannot make a virtual environment (on Debian and Ubuntu: python3-venv)" >&2
        exit 1
    }
fi

# The CPU build of torch is a tenth of the size of the others.
cpu_index=https://download.pytorch.org/whl/cpu
missing=
for pin in $pins; do
    is_there "$pin" && continue
    say "installing $pin"
    case $pin in
    torch==*) set -- "$pin" --extra-index-url "$cpu_index" ;;
    *) set -- "$pin" ;;
    esac
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input --retries 1 "$@" 2>"$venv/pip.log" ||
        missing="$missing $pin"
done

# Requirements that pip does not install: programs that lack them are left out with a message.
"$venv/bin/python" zoo/common.py || say "c_buffer is left out" >&2
ldconfig -p 2>/dev/null | grep -q 'libjemalloc\.so' ||
    say "no libjemalloc (on Debian and Ubuntu: libjemalloc2): jemalloc_ring is left out" >&2

if [ -n "$missing" ]; then
    say "cannot be installed here:$missing (the last answer of pip is in $venv/pip.log)" >&2
    exit 1
fi
