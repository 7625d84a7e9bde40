"""Finds the complete checkpoints of a trainer. Checks only their files and does not need torch."""

from __future__ import annotations

import json
import os
import re
import zipfile
from datetime import datetime
from typing import Any, Optional

from . import _process

_NAME = re.compile(r"^checkpoint-(\d+)$")
# maximum difference in seconds between the clocks of this machine and of a file server
_CLOCKS_DIFFER_S = 2.0


def run_began() -> Optional[float]:
    """Returns the start time of this run's first segment, in seconds since 1970, or None if
    unknown."""
    folder = _process.variable("EBB_RUN_DIR")
    if not folder:
        return None
    # a run on several nodes has one folder per segment
    job = _json(os.path.join(folder, os.pardir, "job.json"))
    if job is not None and isinstance(job.get("first_started_s"), (int, float)):
        return float(job["first_started_s"])
    try:
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as f:
            return datetime.strptime(json.load(f)["started"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_of_this_run(path: str) -> bool:
    """Returns True if PATH was written after this run began, or if the start of the run is
    unknown."""
    began = run_began()
    try:
        return began is None or os.stat(path).st_mtime >= began - _CLOCKS_DIFFER_S
    except OSError:
        return False


# ---- files ----


def is_whole_file(path: str) -> bool:
    """Returns True if a file with weights or states is complete. Detects files that were truncated
    when the job died: safetensors files store their length at the start, and torch's zip files have
    their directory at the end."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as f:
            if path.endswith(".safetensors"):
                length = int.from_bytes(f.read(8), "little")
                if not 0 < length <= size - 8:
                    return False
                header = json.loads(f.read(length))
                ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
                return size == 8 + length + max(ends, default=0)
            is_zip = f.read(2) == b"PK"
        return zipfile.is_zipfile(path) if is_zip else size > 0
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


def _json(path: str) -> Optional[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
        return found if isinstance(found, dict) else None
    except (OSError, ValueError):
        return None


def _is_whole_folder(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(e.is_file() and e.stat().st_size > 0 for e in entries)
    except OSError:
        return False


def _has_any(folder: str, names: tuple[str, ...]) -> bool:
    return any(is_whole_file(os.path.join(folder, n)) for n in names)


def _has_all_shards(index: str) -> bool:
    found = _json(index)
    names = (found or {}).get("weight_map")
    if not isinstance(names, dict) or not names:
        return False
    folder = os.path.dirname(index)
    return all(is_whole_file(os.path.join(folder, str(n))) for n in set(names.values()))


def _has_deepspeed(folder: str) -> bool:
    """Returns True if the DeepSpeed checkpoint in FOLDER is complete. The last file that DeepSpeed
    writes is the one that contains the name of the state folder."""
    try:
        with open(os.path.join(folder, "latest"), encoding="utf-8") as f:
            return _is_whole_folder(os.path.join(folder, f.read().strip()))
    except (OSError, ValueError):
        return False


_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_model_fsdp.bin",
)
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")


def _has_weights(folder: str) -> bool:
    for name in _INDEXES:
        index = os.path.join(folder, name)
        if os.path.exists(index):
            return _has_all_shards(index)
    if _has_any(folder, _WEIGHTS) or _has_deepspeed(folder):
        return True
    return _is_whole_folder(os.path.join(folder, "pytorch_model_fsdp_0"))


def _has_states(folder: str, ranks: range, world_size: int) -> bool:
    names = [f"rng_state_{r}.pth" for r in ranks] if world_size > 1 else ["rng_state.pth"]
    if not all(is_whole_file(os.path.join(folder, n)) for n in names):
        return False
    if _has_deepspeed(folder):
        return True
    has_optimizer = _has_any(folder, _OPTIMIZERS) or _is_whole_folder(
        os.path.join(folder, "optimizer_0")
    )
    return has_optimizer and is_whole_file(os.path.join(folder, "scheduler.pt"))


# ---- a Hugging Face checkpoint ----


def missing(
    folder: str, model_only: bool = False, world_size: int = 1, rank: Optional[int] = None
) -> Optional[str]:
    """Describes what is missing from the checkpoint in FOLDER, or returns None if it is complete.
    If RANK is set, only the files of that rank are checked, not those of other ranks."""
    state = _json(os.path.join(folder, "trainer_state.json"))
    if not os.path.isdir(folder):
        return "the folder"
    if os.path.exists(os.path.join(folder, "checkpoint-is-incomplete.txt")):
        return "the last part (checkpoint-is-incomplete.txt exists)"
    if state is None or not isinstance(state.get("global_step"), int):
        return "trainer_state.json"
    if not _has_weights(folder):
        return "weights"
    ranks = range(world_size) if rank is None else range(rank, rank + 1)
    if not model_only and not _has_states(folder, ranks, world_size):
        return "the state of the optimizer, scheduler or random-number generators"
    return None


def step_of(folder: str) -> Optional[int]:
    """Returns N if the folder is named checkpoint-N, otherwise None."""
    found = _NAME.match(os.path.basename(os.path.normpath(folder)))
    return int(found.group(1)) if found else None


def last_whole(
    output_dir: str, model_only: bool = False, world_size: int = 1
) -> tuple[Optional[str], list[str]]:
    """Returns two values. The first is the newest complete checkpoint of this run in OUTPUT_DIR, or
    None. The second lists each newer checkpoint and why it was rejected."""
    try:
        names = [n for n in os.listdir(output_dir) if _NAME.match(n)]
    except OSError:
        names = []
    passed: list[str] = []
    for name in sorted(names, key=lambda n: int(n.rpartition("-")[2]), reverse=True):
        folder = os.path.join(output_dir, name)
        lacks = missing(folder, model_only, world_size)
        if lacks is None and is_of_this_run(os.path.join(folder, "trainer_state.json")):
            return folder, passed
        passed.append(f"{name} lacks {lacks}" if lacks else f"{name} belongs to an earlier run")
    return None, passed
