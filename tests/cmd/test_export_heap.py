"""Exports of a heap: what there is none of, and what is no history."""

import os

import pytest

from commands import refused, refused_with

FORMATS = ["--pprof", "--collapsed", "--speedscope"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_without_a_heap_is_one_sentence(ebb, tmp_path, form):
    assert refused(ebb("export", str(tmp_path), form),
                   f"export: {tmp_path}: there is no heap history; ebb run records one of "
                   "every dynamic program that lives for two seconds, unless --no-heap or EBB_HEAP=0 "
                   "keeps it from that")


@pytest.mark.parametrize("content", [b"", b"EBBHEAP\n", os.urandom(4096)])
def test_a_file_that_is_no_history_is_named(ebb, tmp_path, content):
    (tmp_path / "heap.7.ebbheap").write_bytes(content)
    assert refused_with(ebb("export", str(tmp_path), "--collapsed"), "heap.7.ebbheap")
    assert refused_with(ebb("export", str(tmp_path / "heap.7.ebbheap"), "--collapsed"),
                        "heap.7.ebbheap")


def test_a_fifo_in_the_folder_is_not_waited_for(ebb, tmp_path):
    os.mkfifo(tmp_path / "heap.7.ebbheap")
    assert refused_with(ebb("export", str(tmp_path), "--collapsed"), "not a file")


def test_the_output_is_left_alone_where_nothing_can_be_exported(ebb, tmp_path):
    output = tmp_path / "out"
    output.write_text("kept")
    assert ebb("export", str(tmp_path), "--pprof", "-o", str(output)).returncode == 2
    assert output.read_text() == "kept"
