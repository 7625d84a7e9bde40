#!/usr/bin/env python3
"""Packs at most 9 MiB of recordings: keep.py FOLDER FILE.tar.xz. All files except heap histories are packed first. Heap
histories are added as long as they fit: first those of leaking programs, then those of other programs, then those of
measurements. Heap histories are already compressed."""
import pathlib
import sys
import tarfile

ROOM = 9 << 20


def rank(path):
    text = str(path)
    return (0 if path.suffix != ".ebbheap" else 3 if "/zoo/" not in text else 2 if "-fixed/" in text else 1,
            path.stat().st_size)


def main():
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    left, left_out = ROOM, []
    with tarfile.open(out, "w:xz", preset=1) as tar:
        for path in sorted((p for p in folder.rglob("*") if p.is_file()), key=rank):
            left -= path.stat().st_size
            if left < 0:
                left += path.stat().st_size
                left_out.append(str(path.relative_to(folder)))
            else:
                tar.add(path, path.relative_to(folder))
    print("not packed:", ", ".join(left_out) or "nothing")


if __name__ == "__main__":
    main()
