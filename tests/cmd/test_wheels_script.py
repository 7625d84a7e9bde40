"""Tests the checks of scripts/wheels.py on a wheel, without building one."""

import importlib.util
import os
import pathlib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheels():
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "scripts" / "wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_wheels_built_from_equal_files_are_byte_identical(wheels, tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "source_date", lambda: 1735689600)
    files = {"ebb/a.py": (b"a", 0o644), "ebbtide-1.data/scripts/ebb": (b"\x7fELF", 0o755),
             "ebbtide-1.dist-info/WHEEL": (b"Wheel-Version: 1.0\n", 0o644)}
    wheels.write_wheel(tmp_path / "one.whl", files)
    wheels.write_wheel(tmp_path / "two.whl", dict(reversed(files.items())))
    assert (tmp_path / "one.whl").read_bytes() == (tmp_path / "two.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.whl") as archive:
        names = archive.namelist()
        record = archive.read("ebbtide-1.dist-info/RECORD").decode()
        mode = archive.getinfo("ebbtide-1.data/scripts/ebb").external_attr >> 16
    assert sorted(line.split(",")[0] for line in record.splitlines()) == sorted(names)
    assert mode & 0o111


def test_wheel_build_refuses_a_program_that_requires_a_newer_glibc(wheels, monkeypatch):
    program = pathlib.Path(os.environ["EBB_BINARY"])
    assert max(wheels.symbol_versions(program)) >= (2, 17)
    monkeypatch.setattr(wheels, "GLIBC", (2, 3))
    with pytest.raises(wheels.Failure, match=r"needs GLIBC_2\.\d+; at most 2\.3 is allowed"):
        wheels.check_symbols([program])


def test_wheel_build_refuses_linking_to_libraries_other_than_glibc(wheels, monkeypatch):
    monkeypatch.setattr(wheels, "GLIBC", (9, 9))
    monkeypatch.setattr(wheels, "GLIBC_LIBRARIES", set())
    with pytest.raises(wheels.Failure, match=r"libc\.so\.6.*which is not part of glibc"):
        wheels.check_symbols([pathlib.Path(os.environ["EBB_BINARY"])])


def test_wheel_build_refuses_files_that_contain_the_checkout_path(wheels):
    with pytest.raises(wheels.Failure, match="ebb contains the path"):
        wheels.check_paths({"ebb": (b"\0" + str(ROOT).encode() + b"/src/x.c\0", 0o755)})
