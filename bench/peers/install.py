"""Creates a virtual environment for the compared tools on top of a Python that has torch."""

import os
import re
import subprocess
import sys

PIP_S = 300
# Maps each package to a module whose import shows that the package is installed.
PACKAGES = (("memray", "memray"), ("scalene", "scalene"), ("filprofiler", "filprofiler"),
            ("psrecord", "psrecord"), ("psutil", "psutil"))
SITES = "import sys; print(*(p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))), sep='\\n')"


def output(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def has(python, module):
    try:
        return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
    except OSError:  # The requested Python does not exist.
        return False


def make_venv(base, venv):
    """Returns the Python of the virtual environment. It can import everything that BASE can; BASE itself is not
    changed."""
    python, kept = f"{venv}/bin/python", f"{venv}/base"
    wanted = output([base, "-c", f"import sys; print(sys.version, sys.prefix); {SITES}"])
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as file:
            if file.read() == wanted:
                return python
    subprocess.run([base, "-m", "venv", "--clear", "--without-pip", venv], check=True)
    own = output([python, "-c", "import site; print(site.getsitepackages()[0])"])
    with open(f"{own}/base.pth", "w", encoding="utf-8") as file:
        file.write(output([base, "-c", SITES]) + "\n")
    with open(kept, "w", encoding="utf-8") as file:
        file.write(wanted)
    return python


def why_pip_failed(text):
    if re.search(r"NewConnectionError|Temporary failure|timed out|ConnectTimeout", text):
        return "the package index cannot be reached"
    found = re.findall(r"^ERROR: (.*)$", text, re.M)
    return (found[-1] if found else (text.strip().splitlines() or ["pip failed"])[-1])[:120]


def install(base, venv, wheels):
    """Returns (python, {package: reason why it is missing}). WHEELS is a folder of packages to use instead of the
    package index."""
    python, missing = make_venv(base, venv), {}
    source = ["--no-index", "--find-links", os.path.abspath(wheels)] if wheels else ["--retries", "1"]
    for package, module in PACKAGES:
        if has(python, module):
            continue
        print(f"bench: installing {package}", file=sys.stderr)
        try:
            done = subprocess.run([base, "-m", "pip", "--python", python, "--disable-pip-version-check",
                                   "--no-input", "install", "-q", *source, package], check=False,
                                  capture_output=True, text=True, timeout=PIP_S)
        except subprocess.TimeoutExpired:
            missing[package] = f"not installed within {PIP_S} s"
            continue
        if done.returncode or not has(python, module):
            missing[package] = why_pip_failed(done.stderr + done.stdout)
    return python, missing
