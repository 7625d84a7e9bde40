#!/usr/bin/env bash
# Installs the packages that are missing to build, test, lint or measure ebb on Debian and Ubuntu. Asks no questions,
# prints one line for each action, and prints nothing when everything is installed.
#
#   scripts/setup.sh [build|test|fuzz|lint|bench|bench-heap|bench-peers|zoo|web|wheels|
#                     browser|earlyoom|promtool|slurm|cluster|python|frameworks]
#
#   fuzz         clang with libFuzzer; where it is missing, `make test` only replays the fuzz corpora
#   web          npm, which builds the plots of `ebb report` and the page of `ebb serve`; not required by the build
#   browser      a browser for the tests of the pages, which are skipped where it cannot be installed
#   python       a virtual environment, $BUILD/venv, with the packages in tests/py/requirements.txt for the tests of the
#                Python package. If it cannot be made, this is not an error: the reason is printed and written to
#                $BUILD/venv.reason, and the tests are skipped. With TORCH=no, nothing is installed.
#   frameworks   $BUILD/frameworks, made in the same way, with all frameworks of `make test-frameworks`
#   cluster      $BUILD/cluster, made in the same way, with Ray and the schemas of Kubernetes (0.4 GB)
#   wheels       packages for `make wheels`, `make test-wheels`, `make test-targets` and `make release`
#   earlyoom     earlyoom, only unpacked into $BUILD/earlyoom: the installed package would begin to guard this machine.
#                Measurements that need earlyoom are skipped where it is missing.
#   promtool     promtool of the package prometheus, which checks metrics and alert rules in the tests. Tests that need
#                promtool are skipped where it is missing.
#   slurm        Slurm and munge for `make test-slurm`, which starts daemons of its own; the system services are not
#                started. The tests are skipped where the packages cannot be installed.
#   bench-heap   other heap profilers to compare with, as far as they are available, and $BUILD/bench-venv, which has
#                memray and everything in $EBB_VENV or $BUILD/venv
#   bench-peers  only the heap profilers that `make bench-peers` runs, and gdb, which memray uses to attach
#   zoo          what zoo/setup.sh needs
set -eu

# Each line has a package, and how to check that its content is installed: cmd:NAME on PATH · file:PATH · pc:MODULE
# known to pkg-config · py:MODULE importable · lib:NAME · rt:NAME in clang's runtime library
build_needs="
gcc             cmd:gcc
g++             cmd:g++
libc6-dev       file:/usr/include/stdio.h
cmake           cmd:cmake
ninja-build     cmd:ninja
pkg-config      cmd:pkg-config
libjansson-dev  pc:jansson
libzstd-dev     pc:libzstd
libncurses-dev  pc:ncursesw
zlib1g-dev      pc:zlib
libelf-dev      pc:libelf
libdw-dev       file:/usr/include/elfutils/libdw.h
libsqlite3-dev  pc:sqlite3
libmicrohttpd-dev pc:libmicrohttpd
libwslay-dev    file:/usr/include/wslay/wslay.h
"
test_needs="
libcmocka-dev   pc:cmocka
python3         cmd:python3
python3-pytest  py:pytest
python3-psutil  py:psutil
python3-venv    py:ensurepip
clang           cmd:clang
tmux            cmd:tmux
"
fuzz_needs="
python3         cmd:python3
clang           cmd:clang
libclang-rt-dev rt:fuzzer
"
# All developers need the same clang-format version, because versions differ in layout; Debian and Ubuntu both package
# this one.
lint_needs="
python3         cmd:python3
clang-format-14 cmd:clang-format-14
clang-tidy-14   cmd:clang-tidy-14
shellcheck      cmd:shellcheck
python3-pyflakes py:pyflakes
"
bench_needs="
python3         cmd:python3
python3-psutil  py:psutil
"

web_needs="
npm             cmd:npm
"
wheels_needs="
make            cmd:make
python3         cmd:python3
python3-venv    py:ensurepip
tcl             cmd:tclsh
bzip2           cmd:bzip2
xz-utils        cmd:xz
binutils-aarch64-linux-gnu cmd:aarch64-linux-gnu-strip
npm             cmd:npm
debootstrap     cmd:debootstrap
lintian         cmd:lintian
qemu-user-static cmd:qemu-aarch64-static
"
browser_needs="
chromium        cmd:chromium
"
slurm_needs="
slurm-wlm       cmd:sbatch
slurmctld       file:/usr/sbin/slurmctld
slurmd          file:/usr/sbin/slurmd
munge           file:/usr/sbin/munged
"
peer_needs="
heaptrack            cmd:heaptrack
libgoogle-perftools4 lib:libtcmalloc.so.4
libjemalloc2         lib:libjemalloc.so.2
"
zoo_needs="
gcc             cmd:gcc
libc6-dev       file:/usr/include/stdio.h
python3         cmd:python3
python3-venv    py:ensurepip
"
zoo_wants="
libjemalloc2    lib:libjemalloc.so.2
"
zoo_peer_needs="
heaptrack            cmd:heaptrack
gdb                  cmd:gdb
"

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# The tests run with /usr/bin/python3 even if another Python is first on PATH, because the modules are packaged for
# /usr/bin/python3 (see EBB_PYTHON in CMakeLists.txt).
system_python() {
    local python=/usr/bin/python3
    [ -x "$python" ] || python=python3
    printf '%s\n' "$python"
}

has_module() {
    "$(system_python)" -I -S -c "
import importlib.util, site, sys
sys.path += site.getsitepackages()
sys.exit(importlib.util.find_spec('$1') is None)" >/dev/null 2>&1
}

is_there() {
    case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 ;;
    file:*) [ -e "${1#file:}" ] ;;
    pc:*) pkg-config --exists "${1#pc:}" >/dev/null 2>&1 ;;
    py:*) has_module "${1#py:}" ;;
    rt:*) compgen -G "$(clang -print-resource-dir 2>/dev/null)/lib/*/libclang_rt.${1#rt:}*.a" >/dev/null ;;
    lib:*) compgen -G "/usr/lib/*/${1#lib:}" >/dev/null ;;
    esac
}

missing_of() {
    local package probe
    while read -r package probe; do
        if [ -n "$package" ] && ! is_there "$probe"; then
            printf '%s\n' "$package"
        fi
    done <<<"$1"
}

is_debian_like() {
    local ID='' ID_LIKE=''
    # shellcheck disable=SC1091
    [ -r /etc/os-release ] && . /etc/os-release
    case " $ID $ID_LIKE " in *" debian "* | *" ubuntu "*) ;; *) return 1 ;; esac
    command -v apt-get >/dev/null 2>&1
}

keep_log() {
    log=${log:-$(mktemp)}
    trap 'rm -f "$log" "$log.update"' EXIT
}

apt() {
    ${as_root:+$as_root} env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C \
        apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 \
        -o APT::Update::Error-Mode=any "$@" >"$log" 2>&1 </dev/null
}

explain_and_stop() {
    if grep -qE 'Could not get lock|Unable to (acquire|lock)' "$log"; then
        die "another program holds the package manager's lock; run this again when it has finished"
    fi
    if grep -qE 'Temporary failure|Could not (resolve|connect)|Failed to fetch|Unable to fetch|timed out' "$log"; then
        die "the package archive cannot be reached; check the network and run this again"
    fi
    tail -n 5 "$log" >&2
    die "apt-get could not install: $*"
}

# `apt-get update` may fail because of an unrelated package archive. This is ignored if the installation succeeds.
update_lists() {
    say "updating the package lists"
    if apt update; then return; fi
    cp "$log" "$log.update"
    if apt --simulate install --no-install-recommends "$@"; then return; fi
    mv "$log.update" "$log"
    explain_and_stop "$@"
}

# On Ubuntu, chromium exists only as a snap, which cannot read the files created by the tests. To detect this, the
# installation is simulated: apt prints "Inst NAME" only for a real package.
refuse_snap() {
    keep_log
    if ! apt --simulate install --no-install-recommends "$1"; then return; fi
    grep -q "^Inst $1 " "$log" || die "$1 is a snap on this system, which is not what the tests can use"
}

install_packages() {
    keep_log
    if ! apt --simulate install --no-install-recommends "$@"; then
        update_lists "$@"
    fi
    say "installing $*"
    if apt install --no-install-recommends "$@"; then return; fi
    # Outdated package lists refer to files that the archive no longer has.
    grep -qE 'Failed to fetch|Unable to fetch' "$log" || explain_and_stop "$@"
    update_lists "$@"
    say "installing $*, second attempt"
    apt install --no-install-recommends "$@" || explain_and_stop "$@"
}

# unpack PACKAGE PROGRAM WITHOUT: unpacks the package into $BUILD/PACKAGE, without installing or starting anything.
# WITHOUT is the message for a system without this package.
unpack() {
    local folder=${BUILD:-build}/$1
    if [ -x "$folder/usr/bin/$2" ] || command -v "$2" >/dev/null 2>&1; then return; fi
    mkdir -p "$folder"
    if is_debian_like && (cd "$folder" && apt-get -q download "$1" >/dev/null 2>&1) &&
        dpkg-deb -x "$folder/$1"_*.deb "$folder"; then
        say "unpacked $1 into $folder"
    else
        say "this system has no package $1: $3"
    fi
}

venv_space_mib=10240 # space for the packed and unpacked files of torch and CUDA
venv_limit_s=600

no_venv() {
    rm -rf "$venv"
    printf '%s\n' "$1" >"$venv.reason"
    say "$venv cannot be made, so the tests that need its packages are skipped: $1"
    exit 0
}

# Prints the reason of pip's failure in one line.
why_pip_failed() {
    if grep -qE 'NewConnectionError|Connection(Error|Timeout)|Temporary failure|timed out|ReadTimeout|ProxyError' "$1"; then
        echo "the package index cannot be reached"
    elif grep -q 'CERTIFICATE_VERIFY_FAILED' "$1"; then
        echo "the package index has a certificate that pip does not trust"
    elif grep -q 'No space left' "$1"; then
        echo "no space left"
    elif grep -q 'ensurepip' "$1"; then
        echo "this Python makes no virtual environments"
    else
        grep -E '^(ERROR|error): ' "$1" | tail -n 1 | cut -c 1-200 | grep . || echo "pip failed"
    fi
}

# make_venv NAME FILE: creates the virtual environment $BUILD/NAME with the packages listed in tests/py/FILE.
make_venv() {
    local requirements python wanted free_mib status=0
    requirements=$(dirname "$0")/../tests/py/$2
    venv=${BUILD:-build}/$1
    python=$(system_python)
    wanted=$("$python" --version 2>&1; cat "$requirements")
    if [ "$wanted" = "$(cat "$venv/complete" 2>/dev/null)" ] && "$venv/bin/python" -c '' 2>/dev/null; then
        return
    fi
    mkdir -p "$venv"
    rm -f "$venv.reason"
    [ "${TORCH:-yes}" != no ] || no_venv "TORCH=no"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        no_venv "$("$python" --version 2>&1) is older than 3.11"
    free_mib=$(df -Pm "$venv" | awk 'NR == 2 { print $4 }')
    [ "${free_mib:-0}" -ge "$venv_space_mib" ] ||
        no_venv "$free_mib MiB are free, $venv_space_mib are required"
    say "installing the packages of tests/py/$2 into $venv, for at most $((venv_limit_s / 60)) minutes"
    {
        "$python" -m venv --clear "$venv" &&
            timeout "$venv_limit_s" "$venv/bin/python" -m pip --disable-pip-version-check --no-input \
                --retries 1 --timeout 30 install -q -r "$requirements"
    } >"$venv.log" 2>&1 </dev/null || status=$?
    [ "$status" -ne 124 ] || no_venv "not finished within $((venv_limit_s / 60)) minutes"
    [ "$status" -eq 0 ] || no_venv "$(why_pip_failed "$venv.log")"
    printf '%s\n' "$wanted" >"$venv/complete"
}

may_install() {
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root='sudo -n'
    is_debian_like && { [ -z "$as_root" ] || sudo -n true >/dev/null 2>&1; }
}

# install_wanted NEEDS WITHOUT: installs optional packages. WITHOUT is the message if they cannot be installed.
install_wanted() {
    local packages
    packages=$(missing_of "$1")
    [ -n "$packages" ] || return 0
    # shellcheck disable=SC2086 # package names, one word each
    if ! may_install || ! (install_packages $packages); then
        say "$2, because these are not installed: ${packages//$'\n'/ }"
    fi
}

# Installs Slurm without starting its daemons: policy-rc.d keeps Debian's packages from starting services.
install_slurm() {
    local policy=/usr/sbin/policy-rc.d unit
    [ -n "$(missing_of "$slurm_needs")" ] || return 0
    if may_install && [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | ${as_root:+$as_root} tee "$policy" >/dev/null
        ${as_root:+$as_root} chmod 755 "$policy"
    else
        policy=
    fi
    install_wanted "$slurm_needs" "the tests with Slurm are skipped"
    [ -z "$policy" ] || ${as_root:+$as_root} rm -f "$policy"
    if [ -d /run/systemd/system ]; then
        for unit in slurmctld slurmd munge; do
            ${as_root:+$as_root} systemctl -q disable "$unit" 2>/dev/null || true
        done
    fi
}

make_bench_venv() {
    local from=${EBB_VENV:-${BUILD:-build}/venv} venv=${BUILD:-build}/bench-venv
    [ -x "$from/bin/python" ] || return 0
    [ "$(cat "$venv/complete" 2>/dev/null)" != "$from" ] || return 0
    say "making $venv, with memray"
    "$from/bin/python" -m venv --clear "$venv"
    "$from/bin/python" -c 'import site; print(*site.getsitepackages(), sep="\n")' \
        >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
    timeout 300 "$venv/bin/python" -m pip --disable-pip-version-check --no-input --retries 1 \
        install -q memray >"$venv.log" 2>&1 </dev/null || say "no memray: $(why_pip_failed "$venv.log")"
    printf '%s\n' "$from" >"$venv/complete"
}

case ${1:-build} in
bench-heap)
    install_wanted "$peer_needs" "not compared with"
    make_bench_venv
    exit 0
    ;;
bench-peers)
    install_wanted "$zoo_peer_needs" "not compared with"
    exit 0
    ;;
python)
    make_venv venv requirements.txt
    exit 0
    ;;
frameworks)
    make_venv frameworks requirements-frameworks.txt
    exit 0
    ;;
cluster)
    make_venv cluster requirements-cluster.txt
    exit 0
    ;;
earlyoom)
    unpack earlyoom earlyoom "the comparison with it is left out"
    exit 0
    ;;
slurm)
    install_slurm
    exit 0
    ;;
promtool)
    unpack prometheus promtool "its check of the metrics and alert rules is left out"
    exit 0
    ;;
browser)
    # Without npm, no test can control the browser.
    if ! is_there cmd:npm || is_there cmd:chromium; then exit 0; fi
    if is_debian_like; then as_root='' refuse_snap chromium; fi
    needs=$browser_needs
    ;;
zoo)
    install_wanted "$zoo_wants" "programs of the zoo are left out"
    needs=$zoo_needs
    ;;
web) needs=$web_needs ;;
wheels) needs=$build_needs$wheels_needs ;;
build) needs=$build_needs ;;
test) needs=$build_needs$test_needs ;;
fuzz) needs=$build_needs$fuzz_needs ;;
lint) needs=$build_needs$lint_needs ;;
bench) needs=$build_needs$bench_needs ;;
*) die "no such group: $1 (build, test, fuzz, lint, bench, bench-heap, bench-peers, zoo, web, wheels, browser, earlyoom, promtool, slurm, cluster, python or frameworks)" ;;
esac

missing=$(missing_of "$needs")
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2206 # package names, one word each
packages=($missing)

if ! is_debian_like; then
    say "not Debian or Ubuntu: install the equivalents of these packages: ${packages[*]}"
    for tool in gcc cmake ninja pkg-config; do
        command -v "$tool" >/dev/null 2>&1 || die "$tool is not on PATH, and the build requires it"
    done
    exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    as_root='sudo -n'
    if ! command -v sudo >/dev/null 2>&1 || ! sudo -n true >/dev/null 2>&1; then
        say "packages are missing, and only root can install them; run this command, then make again:" >&2
        echo "sudo apt-get install -y --no-install-recommends ${packages[*]}"
        exit 1
    fi
fi

install_packages "${packages[@]}"
still=$(missing_of "$needs")
[ -z "$still" ] || die "installed but not usable (is /usr/bin on PATH?): ${still//$'\n'/ }"
