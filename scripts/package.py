#!/usr/bin/env python3
"""Packs the output of scripts/wheels.py: tarballs for machines without Python, a .deb, and the checksums.

    scripts/package.py [--build FOLDER]

Writes into FOLDER/release. The archives are reproducible byte for byte. lintian checks the .deb if it is
installed. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import textwrap
import time

import wheels

ROOT = wheels.ROOT
# The maintainer is taken from the environment variables of Debian's tools. The default is not a real address.
MAINTAINER = (f"{os.environ.get('DEBFULLNAME', 'The ebb authors')} "
              f"<{os.environ.get('DEBEMAIL', 'ebb@example.org')}>")
# These lintian checks do not apply. The program is statically linked on purpose, so that one package works on all
# releases of Debian and Ubuntu. The package is not intended for Debian's archive.
OVERRIDES = "ebbtide: embedded-library *\nebbtide: initial-upload-closes-no-bugs *\n"


def say(text: str) -> None:
    print(f"package: {text}", flush=True)


def installed_files(tree: pathlib.Path, printed: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    """Returns the files that `make install` creates below its prefix."""
    files = {"bin/ebb": ((tree / "ebb").read_bytes(), 0o755),
             "lib/ebb/libebb-heap.so": ((tree / "libebb-heap.so").read_bytes(), 0o644)}
    for path in sorted((ROOT / "python/ebb").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed"):
            files[f"share/ebb/python/{path.relative_to(ROOT / 'python')}"] = (path.read_bytes(), 0o644)
    for name, place in {"ebb.1": "share/man/man1/ebb.1",
                        "ebb.bash": "share/bash-completion/completions/ebb",
                        "_ebb": "share/zsh/site-functions/_ebb",
                        "ebb.fish": "share/fish/vendor_completions.d/ebb.fish"}.items():
        files[place] = ((printed / name).read_bytes(), 0o644)
    return files


def licenses_text(archive: wheels.Archive) -> bytes:
    parts = [(ROOT / "LICENSE").read_bytes()]
    for name, text in sorted(archive.licenses().items()):
        parts.append(f"\n---- {name} ----\n\n".encode() + text)
    return b"".join(parts)


def write_tarball(path: pathlib.Path, top: str, files: dict[str, tuple[bytes, int]]) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (data, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), mode, wheels.source_date()
            tar.addfile(entry, io.BytesIO(data))
    path.write_bytes(gzip.compress(raw.getvalue(), 9, mtime=0))
    say(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


def check_versions(ebb: pathlib.Path) -> None:
    """Checks that the version is the same in all files, and that the program was built from this commit."""
    found = json.loads(wheels.output([ebb, "version", "--json"]))
    for what, value, expected in (("version", found["version"], wheels.version()),
                                  ("commit", found["commit"], wheels.commit())):
        if value != expected:
            raise wheels.Failure(f"the program's {what} is {value}, that of the checkout is {expected}; "
                                 "run make wheels again")
    if f"\n## [{wheels.version()}]" not in (ROOT / "CHANGELOG.md").read_text():
        raise wheels.Failure(f"CHANGELOG.md has no section [{wheels.version()}]")
    say(f"version {found['version']}, commit {found['commit']}")


# ---- the .deb ----

def packed(text: bytes) -> bytes:
    return gzip.compress(text, 9, mtime=0)


def control(files: dict[str, tuple[bytes, int]]) -> str:
    size_kib = sum(len(data) for data, _ in files.values()) // 1024
    return textwrap.dedent(f"""\
        Package: ebbtide
        Version: {wheels.version()}-1
        Architecture: amd64
        Maintainer: {MAINTAINER}
        Installed-Size: {size_kib}
        Depends: libc6 (>= 2.17)
        Recommends: libwslay1, python3
        Section: utils
        Priority: optional
        Description: tell whether a training job leaks memory, and guard it
         ebb records the memory of a job's whole process tree, judges whether it
         leaks, names the line that does, asks for a checkpoint before memory
         runs out, and serves a queue of such jobs.
        """)


def debian_files(files: dict[str, tuple[bytes, int]], licenses: bytes) -> dict[str, tuple[bytes, int]]:
    ret = {}
    for name, (data, mode) in files.items():
        if name == "share/man/man1/ebb.1":
            ret["usr/share/man/man1/ebb.1.gz"] = (packed(data), 0o644)
        elif name == "share/zsh/site-functions/_ebb":
            ret["usr/share/zsh/vendor-completions/_ebb"] = (data, 0o644)
        else:
            ret["usr/" + name] = (data, mode)
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(wheels.source_date()))
    changelog = (f"ebbtide ({wheels.version()}-1) unstable; urgency=medium\n\n"
                 f"  * Version {wheels.version()}.\n\n -- {MAINTAINER}  {when}\n")
    doc = "usr/share/doc/ebbtide"
    ret[f"{doc}/copyright"] = (licenses, 0o644)
    ret[f"{doc}/changelog.Debian.gz"] = (packed(changelog.encode()), 0o644)
    ret[f"{doc}/changelog.gz"] = (packed((ROOT / "CHANGELOG.md").read_bytes()), 0o644)
    ret["usr/lib/systemd/system/ebb.service"] = ((ROOT / "contrib/ebb.service").read_bytes(), 0o644)
    ret["usr/lib/sysusers.d/ebb.conf"] = (b'u ebb - "ebb serve" /var/lib/ebb\n', 0o644)
    ret["etc/ebb/serve.conf"] = ((ROOT / "contrib/serve.conf").read_bytes(), 0o644)
    ret["usr/share/lintian/overrides/ebbtide"] = (OVERRIDES.encode(), 0o644)
    return ret


def write_deb(release: pathlib.Path, files: dict[str, tuple[bytes, int]]) -> pathlib.Path:
    stage = release / "deb"
    shutil.rmtree(stage, ignore_errors=True)
    for name, (data, mode) in files.items():
        path = stage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
    debian = stage / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(control(files))
    (debian / "conffiles").write_text("/etc/ebb/serve.conf\n")
    (debian / "md5sums").write_text("".join(
        f"{hashlib.md5(data).hexdigest()}  {name}\n" for name, (data, _) in sorted(files.items())
        if not name.startswith("etc/")))
    # Creates the system user of the service. The administrator enables the service.
    (debian / "postinst").write_text(
        "#!/bin/sh\nset -e\nif [ \"$1\" = configure ] && command -v systemd-sysusers >/dev/null; then\n"
        "    systemd-sysusers ebb.conf\nfi\n")
    # If root has run a job, Python has written __pycache__ folders next to the package, which dpkg would leave behind.
    (debian / "prerm").write_text(
        "#!/bin/sh\nset -e\nfind /usr/share/ebb -name __pycache__ -prune -exec rm -rf {} +\n")
    for script in ("postinst", "prerm"):
        (debian / script).chmod(0o755)
    for path in [stage, *stage.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    deb = release / f"ebbtide_{wheels.version()}-1_amd64.deb"
    wheels.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", stage, deb], release / "deb.log",
               env={"SOURCE_DATE_EPOCH": wheels.source_date()})
    say(f"{deb.name}: {deb.stat().st_size / 1e6:.2f} MB")
    return deb


def check_deb(deb: pathlib.Path) -> None:
    if not shutil.which("lintian"):
        say("lintian is not installed: the .deb is not checked")
        return
    result = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", deb], check=False,
                            capture_output=True, text=True)
    if result.returncode:
        raise wheels.Failure(f"lintian complains:\n{result.stdout}{result.stderr}")
    say("  lintian: clean")


def main() -> int:
    parser = argparse.ArgumentParser(description="Pack tarballs, the .deb and checksums.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    release = parser.parse_args().build.resolve() / "release"
    made = sorted(release.glob(f"ebbtide-{wheels.version()}-*.whl"))
    native = os.uname().machine
    try:
        if not made:
            raise wheels.Failure("no wheel in build/release; run make wheels first")
        check_versions(release / f"{native}-linux-gnu.2.17/tree/ebb")
        archive = wheels.Archive(release / "sources", [])
        licenses = licenses_text(archive)
        printed = release / f"{native}-linux-gnu.2.17/tree/share"
        for arch in wheels.DEBIAN_ARCH:
            tree = release / f"{arch}-linux-gnu.2.17/tree"
            if not (tree / "ebb").is_file():
                continue
            files = installed_files(tree, printed)
            wslay = next((tree.parent / "wslay").glob("usr/lib/*/libwslay.so.1")).read_bytes()
            tarball = release / f"ebb-{wheels.version()}-linux-{arch}.tar.gz"
            write_tarball(tarball, f"ebb-{wheels.version()}",
                          {**files, "lib/ebb/libwslay.so.1": (wslay, 0o644),
                           "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
                           "share/doc/ebb/licenses.txt": (licenses, 0o644)})
            made.append(tarball)
            if arch == "x86_64":
                deb = write_deb(release, debian_files(files, licenses))
                check_deb(deb)
                made.append(deb)
        sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
                       for path in sorted(made))
        (release / "SHA256SUMS").write_text(sums)
        say(f"SHA256SUMS of {len(made)} files")
    except wheels.Failure as failure:
        print(f"package: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
