"""Simulates a file server that does not respond: accesses to a folder hang in processes that a test starts. See
tests/tools/hang."""

import os
import pathlib

from commands import ROOT


class Hanging:
    """Controls the hang through FILE, which contains the path of the hanging folder and, optionally, the affected
    processes."""

    def __init__(self, file):
        self.file = pathlib.Path(file)

    def environment(self):
        build = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build"))
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": str(build / "tests" / "tools" / "hang.so"), "HANG_FILE": str(self.file),
                "ASAN_OPTIONS": sanitizer}

    def begin(self, folder, *who):
        """Makes every access to FOLDER hang in the processes whose pids or names are given, or in all processes."""
        made = self.file.with_suffix(".new")
        made.write_text(f"{','.join(map(str, who))} {folder}" if who else str(folder))
        made.rename(self.file)

    def end(self):
        self.file.unlink(missing_ok=True)
