"""Fixtures of the tests with a real Slurm. The tests are skipped if Slurm is not installed."""

import os
import pathlib
import tempfile

import pytest

from cluster import SlurmCluster, why_not
from ranks import COUNTER, SAVER, TRAINER

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items):
    reason = why_not()
    if reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two nodes with four CPUs each."""
    with SlurmCluster(nodes=2) as made:
        yield made


@pytest.fixture
def ebb():
    return str((ROOT / os.environ.get("EBB_BINARY", "build/ebb")).resolve())


@pytest.fixture
def folder(cluster):
    """A new folder shared by all nodes, with the programs of ranks.py."""
    made = pathlib.Path(tempfile.mkdtemp(dir=cluster.folder))
    for name, text in (("train.py", TRAINER), ("count.py", COUNTER), ("save.py", SAVER)):
        (made / name).write_text(text)
    return made
