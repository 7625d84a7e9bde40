"""Tests heap exports of runs whose heap files are missing or invalid."""

import os

import pytest

from commands import refused, refused_with

FORMATS = ["--pprof", "--collapsed", "--speedscope"]


@pytest.mark.parametrize("form", FORMATS)
def test_heap_export_without_a_profile_prints_one_error_line(ebb, tmp_path, form):
    assert refused(ebb("export", str(tmp_path), form),
                   f"export: {tmp_path}: no heap history found; ebb run records one for "
                   "every dynamically linked program that runs for at least two seconds, unless "
                   "--no-heap or EBB_HEAP=0 is set")


@pytest.mark.parametrize("content", [b"", b"EBBHEAP\n", os.urandom(4096)])
def test_heap_export_error_names_the_invalid_heap_file(ebb, tmp_path, content):
    (tmp_path / "heap.7.ebbheap").write_bytes(content)
    assert refused_with(ebb("export", str(tmp_path), "--collapsed"), "heap.7.ebbheap")
    assert refused_with(ebb("export", str(tmp_path / "heap.7.ebbheap"), "--collapsed"),
                        "heap.7.ebbheap")


def test_heap_export_does_not_block_on_a_fifo_named_like_a_heap_file(ebb, tmp_path):
    os.mkfifo(tmp_path / "heap.7.ebbheap")
    assert refused_with(ebb("export", str(tmp_path), "--collapsed"), "not a regular file")


def test_failed_heap_export_leaves_the_output_file_unchanged(ebb, tmp_path):
    output = tmp_path / "out"
    output.write_text("kept")
    assert ebb("export", str(tmp_path), "--pprof", "-o", str(output)).returncode == 2
    assert output.read_text() == "kept"
