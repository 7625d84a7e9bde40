"""Shared by the browser tests: finds node, chromium and playwright-core, or the reason why one is missing."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
FETCH_S = 600  # Seconds. fetch_npm.sh times out earlier, even if it has to wait for another suite that is running it.


def build_folder():
    return pathlib.Path(os.environ.get("EBB_BUILD_DIR", HERE.parents[1] / "build"))


def missing_tool():
    for tool in ("node", "npm"):
        if not shutil.which(tool):
            return f"{tool} is not installed (scripts/setup.sh web)"
    if not chromium():
        return "chromium is not installed, or is a snap (scripts/setup.sh browser)"
    return None


def is_snap(path):
    """Returns True if PATH is a snap, or Ubuntu's script that starts one. A snap cannot read the tests' files."""
    with open(path, "rb") as file:
        head = file.read(4096)
    return os.path.basename(os.path.realpath(path)) == "snap" or b"/snap/bin/" in head


def chromium():
    found = (shutil.which(name) for name in ("chromium", "chromium-browser"))
    return next((path for path in found if path and not is_snap(path)), None)


def prepare():
    """Returns a folder with playwright-core and the scripts that drive a browser, or skips the test."""
    reason = missing_tool()
    if reason:
        pytest.skip(reason)
    folder = build_folder() / "web-tests"
    folder.mkdir(parents=True, exist_ok=True)
    for path in [HERE / "package.json", HERE / "package-lock.json", *HERE.glob("*.mjs")]:
        # Replaces the file atomically, because another suite may be reading it.
        copy = folder / f".{path.name}.{os.getpid()}"
        shutil.copy(path, copy)
        copy.replace(folder / path.name)
    fetch = [str(HERE.parents[1] / "scripts" / "fetch_npm.sh"), "npm", str(folder)]
    result = subprocess.run(fetch, stdin=subprocess.DEVNULL, text=True, capture_output=True,
                            timeout=FETCH_S)
    if result.returncode != 0:
        pytest.skip("playwright-core cannot be fetched: " + (result.stdout + result.stderr).strip())
    return folder


def browse(arguments, folder, limit_s, env=None):
    """Runs a script in FOLDER with node and returns the JSON that it prints. Kills the script's process group on a
    timeout.
    """
    with subprocess.Popen(["node", *map(str, arguments)], cwd=folder, env=env, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, start_new_session=True) as node:
        try:
            out, err = node.communicate(timeout=limit_s)
        finally:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
    assert node.returncode == 0, err
    return json.loads(out)


def pictures(name):
    """Returns [FOLDER] for screenshots if EBB_PICTURES is set."""
    where = os.environ.get("EBB_PICTURES")
    if not where:
        return []
    path = pathlib.Path(where).resolve() / name
    path.mkdir(parents=True, exist_ok=True)
    return [str(path)]
