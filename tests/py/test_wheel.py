"""Tests a wheel that is built from a copy of the checkout and installed into an empty
environment."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 900


def run(*command, **options):
    # The package must come from the wheel, not from this checkout.
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("EBB_") and key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["SKBUILD_CMAKE_BUILD_TYPE"] = "Debug"  # A debug build takes half the time to compile.
    return subprocess.run(list(map(str, command)), env=env, text=True, timeout=TIMEOUT_S,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)


def worked(result):
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Copies the files that a fresh clone would have, with uncommitted changes."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if listed.returncode != 0:
        pytest.skip(f"git does not list the files: {listed.stderr.decode().strip()[:200]}")
    folder = tmp_path_factory.mktemp("wheel") / "checkout"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv") / "env"
    made = run(sys.executable, "-m", "venv", folder)
    if made.returncode != 0:
        pytest.skip(f"no environment can be made: {made.stdout.strip()[-300:]}")
    return folder


@pytest.fixture(scope="module")
def wheel(checkout, venv, tmp_path_factory):
    pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    folder = tmp_path_factory.mktemp("wheels")
    backend = run(*pip, "--retries", "1", "--timeout", "30", "download", "-q", "-d",
                  folder / "backend", "scikit-build-core>=0.10")
    # The package index is required only for this download: the wheel is built with --no-index.
    if backend.returncode == 0:
        worked(run(*pip, "wheel", "--no-index", "--find-links", folder / "backend", "--no-deps",
                   "-w", folder, checkout))
    # the build backend is installed in the Python that runs the tests
    elif importlib.util.find_spec("scikit_build_core"):
        worked(run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-index",
                   "--no-deps", "-w", folder, checkout))
    else:
        pytest.skip(f"scikit-build-core is not available: {backend.stdout.strip()[-300:]}")
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, venv):
    worked(run(venv / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index",
               wheel))
    return venv / "bin"


def test_one_wheel_serves_all_supported_python_versions(wheel):
    assert re.fullmatch(r"ebbtide-[0-9.]+-py3-none-(many)?linux\w*\.whl", wheel.name)


def test_wheel_contains_the_package_and_binaries_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    python = ROOT / "python"
    package = {str(path.relative_to(python)) for path in (python / "ebb").rglob("*")
               if path.is_file() and "__pycache__" not in path.parts}
    found = {name for name in names if name.startswith("ebb/")}
    assert found == package | {"ebb/lib/libebb-heap.so"}
    assert {"ebb/py.typed", "ebb/_isolate.py"} <= found
    others = [name for name in names if name not in found and ".dist-info/" not in name]
    # the .pth file implements EBB_ATTACH=1
    assert sorted(name.partition(".data/")[2] or name for name in others) == ["ebb-attach.pth",
                                                                              "scripts/ebb"]


def test_command_in_a_wheel_is_the_ebb_program_and_not_a_script(installed):
    assert (installed / "ebb").read_bytes()[:4] == b"\x7fELF"


def test_command_and_package_of_a_wheel_have_the_same_version(installed):
    version = worked(run(installed / "ebb", "version")).split()
    package = run(installed / "python", "-c", "import ebb; print(ebb.__version__)", cwd="/")
    assert worked(package).strip() in version


def test_installed_wheel_can_run_a_job(installed, tmp_path):
    result = run(installed / "ebb", "run", "--run-dir", tmp_path / "run", "--",
                 installed / "python", "-c", "import ebb; ebb.step(3); print('trained')",
                 cwd=tmp_path)
    assert "trained" in worked(result)
    assert '"last_step": 3' in (tmp_path / "run" / "run.json").read_text()


def test_package_from_a_wheel_finds_the_program_and_isolates_calls(installed, tmp_path):
    code = "import ebb, ebb._binary; print(ebb._binary.find_ebb()); print(ebb.isolate(abs, -3))"
    result = run(installed / "python", "-c", code, cwd=tmp_path)
    assert worked(result).split() == [str(installed / "ebb"), "3"]


def test_python_dash_m_ebb_runs_the_program_of_the_wheel(installed, tmp_path):
    assert (worked(run(installed / "python", "-m", "ebb", "version", cwd=tmp_path))
            == worked(run(installed / "ebb", "version", cwd=tmp_path)))


def test_importing_ebb_from_a_wheel_loads_no_heavy_module(installed):
    code = "import ebb, sys; print(sorted({'torch', 'PIL', 'numpy', 'asyncio'} & set(sys.modules)))"
    assert worked(run(installed / "python", "-c", code, cwd="/")).strip() == "[]"
