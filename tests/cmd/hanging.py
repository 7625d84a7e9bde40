"""Makes accesses to a folder hang in processes that a test starts, as if the file server did not answer. See
tests/tools/hang."""

import os
import pathlib

from commands import ROOT


class Hanging:
    """FILE names the folder that hangs, and the processes for which it hangs."""

    def __init__(self, file):
        self.file = pathlib.Path(file)

    def environment(self):
        build = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build"))
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": str(build / "tests" / "tools" / "hang.so"), "HANG_FILE": str(self.file),
                "ASAN_OPTIONS": sanitizer}

    def begin(self, folder, *who):
        """Makes every access to FOLDER wait, in the processes with the pids or names WHO, or else in all processes."""
        made = self.file.with_suffix(".new")
        made.write_text(f"{','.join(map(str, who))} {folder}" if who else str(folder))
        made.rename(self.file)

    def end(self):
        self.file.unlink(missing_ok=True)
