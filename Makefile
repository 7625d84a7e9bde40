# A thin front for CMake and Ninja; `make help` lists what it does.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
WERROR := $(if $(filter true 1,$(CI)),ON,OFF)
CMAKE_FLAGS ?=

# The scripts under zoo/ look for Python and write recordings below this folder.
zoo zoo-quick zoo-unseen bench-diagnose bench-peers: export EBB_BUILD_DIR = $(abspath $(BUILD))

# Ninja has its own jobs; what this file does is one thing after another.
.NOTPARALLEL:
.PHONY: zoo zoo-quick zoo-unseen test-heap-foreign test-frameworks test-slurm test-slurm-long bench-peers bench-diagnose bench-report bench-cluster bench-serve bench-attach bench-heap bench-guard bench-verdict \
	bench-python bench-wheels soak all build demo test fuzz lint format bench \
	bench-long install wheels packages test-wheels test-bare test-targets release clean help

all: build

build:
	@scripts/setup.sh build
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload ebb_printed

demo: build
	@if [ -x scripts/demo.sh ]; then EBB_BINARY="$(abspath $(BUILD))/ebb" scripts/demo.sh; \
	else echo "demo: scripts/demo.sh is missing" >&2; exit 1; fi

# Tests that need a package which cannot be installed into $(BUILD)/venv are skipped.
test:
	@scripts/setup.sh test
	@scripts/setup.sh fuzz || echo "make: no libFuzzer: the fuzz corpora are only replayed"
	@scripts/setup.sh web || echo "make: no npm: the tests of the pages are skipped"
	@scripts/setup.sh browser || echo "make: no chromium: the tests of the pages in a browser are skipped"
	-@BUILD="$(BUILD)" scripts/setup.sh promtool
	@scripts/setup.sh slurm
	@BUILD="$(BUILD)" scripts/setup.sh cluster
	@/usr/bin/env python3 scripts/run_tests.py --build $(BUILD) --jobs $(JOBS) --werror $(WERROR)

# Jobs on several nodes of a real Slurm on this machine, which make test has too; test-slurm-long takes minutes.
test-slurm test-slurm-long: build
	@scripts/setup.sh slurm
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_VENV="$(or $(EBB_VENV),$(BUILD)/venv)" /usr/bin/env python3 -m pytest -q -rs \
		$(if $(filter %-long,$@),tests/slurm/long_*.py,tests/slurm/test_*.py)

# Runs the suites of jansson, libuv and numpy with and without the preloaded library: about ten minutes.
test-heap-foreign: build
	@/usr/bin/env python3 scripts/test_foreign.py --build $(BUILD) $(FOREIGN_FLAGS)

# Steps of every framework that is hooked, with the real packages: 4 GB and some minutes.
test-frameworks: build
	@BUILD="$(BUILD)" scripts/setup.sh frameworks
	@EBB_BINARY="$(abspath $(BUILD))/ebb" "$(BUILD)/frameworks/bin/python" -m pytest -q -rs \
		tests/py/test_frameworks.py tests/py/test_notebook.py

# Ten seconds for each target of fuzz/; FUZZ_FLAGS='--seconds 60 --only mark' is another choice. The tree
# is the one in which make test builds them.
fuzz:
	@scripts/setup.sh fuzz
	@cmake -S . -B $(BUILD)/clang -G Ninja --log-level=WARNING -DEBB_WERROR=ON -DEBB_FUZZ=ON \
		-DCMAKE_C_COMPILER=clang $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD)/clang -j $(JOBS) --target fuzz
	@scripts/fuzz.py --targets $(BUILD)/clang/fuzz $(FUZZ_FLAGS)

lint:
	@scripts/setup.sh lint
	@BUILD="$(BUILD)" JOBS="$(JOBS)" scripts/lint.sh

format:
	@scripts/setup.sh lint
	@scripts/lint.sh format

# bench-long records for ten minutes where bench does for 75 s, and leaves the rest out.
bench-long: bench_flags = --long --only memory
bench bench-long:
	@scripts/setup.sh bench
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bench
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh $(bench_flags)

bench-guard:
	@scripts/setup.sh bench
	@BUILD="$(BUILD)" scripts/setup.sh earlyoom
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bench_guard
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh guard $(GUARD_FLAGS)

# With torch as test-python installs it, or from the environment EBB_VENV, and memray and others.
bench-heap:
	@scripts/setup.sh bench
	@[ -n "$(EBB_VENV)" ] || BUILD="$(BUILD)" scripts/setup.sh python
	@BUILD="$(BUILD)" EBB_VENV="$(EBB_VENV)" scripts/setup.sh bench-heap
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bench_heap
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh heap $(HEAP_FLAGS)

# Programs of the zoo under the tools of others, with the Python of zoo/setup.sh or of ZOO_PYTHON; PEERS_FLAGS=--quick.
bench-peers:
	@scripts/setup.sh bench
	@scripts/setup.sh bench-peers
	@BUILD="$(BUILD)" scripts/setup.sh earlyoom
	-@[ -n "$(ZOO_PYTHON)" ] || zoo/setup.sh
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload bench_guard
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" bench/peers/peers.py $(PEERS_FLAGS)

# A simulated job of 64 ranks on 8 nodes: the cost of `ebb watch JOB` and the growth of the folder. The cost of 8 ranks.
bench-cluster:
	@scripts/setup.sh bench
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) -DEBB_TESTS=ON $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload cluster day
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" bench/cluster/cluster.py $(CLUSTER_FLAGS)
	@EBB_BINARY="$(abspath $(BUILD))/ebb" bench/cluster/ranks.py

# Attaches to a torch training and to programs at bad moments; ATTACH_FLAGS='--cycles 20'. bench/attach/peers.py compares
# with memray.
bench-attach:
	@[ -n "$(EBB_VENV)" ] || BUILD="$(BUILD)" scripts/setup.sh python
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload
	@EBB_VENV="$(or $(EBB_VENV),$(abspath $(BUILD))/venv)" bench/attach/cycles.py --program $(BUILD)/ebb $(or $(ATTACH_FLAGS),--cycles 1000 --adversarial 200)

bench-serve:
	@scripts/setup.sh bench
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bench_serve bench_stamp
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh serve $(SERVE_FLAGS)

# The server under everything at once, half an hour (SOAK_FLAGS='--minutes 2' for a first look).
soak:
	@scripts/setup.sh bench
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bench_serve
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" /usr/bin/env python3 bench/serve/soak.py $(SOAK_FLAGS)

# The page of a day's run; opened in chromium where that is there.
bench-report:
	@scripts/setup.sh bench
	@-scripts/setup.sh web
	@-scripts/setup.sh browser
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb day
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh report $(REPORT_FLAGS)

# The labelled shapes, and the recordings beside the checkout where they are.
bench-verdict:
	@scripts/setup.sh build
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bench_verdict
	@$(BUILD)/bench/verdict_bench --traces "$${EBB_TRACES:-../shared/traces}"

# The zoo with its own environment (zoo/setup.sh), or with ZOO_PYTHON's.
bench-diagnose:
	@scripts/setup.sh build
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload
	@[ -n "$(ZOO_PYTHON)" ] || zoo/setup.sh
	@EBB_BINARY="$(abspath $(BUILD))/ebb" zoo/diagnosis.py --record $(ZOO_FLAGS)

# With torch, Transformers and what else is installed for the tests.
bench-python:
	@scripts/setup.sh build
	@BUILD="$(BUILD)" scripts/setup.sh python
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload bench_heap_ab
	@EBB_BINARY="$(abspath $(BUILD))/ebb" EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh python $(BENCH_FLAGS)

# Every program of the zoo and its twin, about an hour; ZOO_FLAGS='--jobs 3' is quicker, --update
# keeps what ebb says now as the table to compare with.
zoo: build
	@[ -n "$(ZOO_PYTHON)" ] || zoo/setup.sh
	@EBB_BINARY="$(abspath $(BUILD))/ebb" /usr/bin/env python3 zoo/run.py --overhead $(ZOO_FLAGS)

# Eight of them at a small size, two minutes: the ones that make test has too.
zoo-quick: build
	@[ -n "$(ZOO_PYTHON)" ] || zoo/setup.sh
	@EBB_BINARY="$(abspath $(BUILD))/ebb" /usr/bin/env python3 zoo/run.py --quick $(ZOO_FLAGS)

# Programs that the rules were not made for (zoo/unseen), six hours, against their kept table;
# ZOO_FLAGS='--jobs 6 --modes marks' is quicker.
zoo-unseen: build
	@[ -n "$(ZOO_PYTHON)" ] || zoo/setup.sh
	@EBB_BINARY="$(abspath $(BUILD))/ebb" /usr/bin/env python3 zoo/unseen/run.py $(ZOO_FLAGS)

# For glibc 2.17 and later, with zig; into $(BUILD)/release. Each is built twice and compared.
# WHEELS_FLAGS='--target x86_64' builds one wheel, --once skips the comparison.
wheels:
	@scripts/setup.sh wheels
	@scripts/wheels.py --build $(BUILD) --jobs $(JOBS) $(WHEELS_FLAGS)

# The wheels, and tarballs, a .deb and SHA256SUMS of all of them.
packages: wheels
	@scripts/package.py --build $(BUILD)

# All of them in bare Debian 11 to 13 and testing, as root: before a release.
test-wheels: packages
	@scripts/test_wheels.py --build $(BUILD)

# make demo and make test in bare Debian 12 and Ubuntu 24.04, as root: before a release. BARE_FLAGS='--only demo'.
test-bare:
	@scripts/setup.sh wheels
	@scripts/test_bare.py --build $(BUILD) $(BARE_FLAGS)

# The program of the wheel (zig) beside that of `make` (gcc), a few minutes. BENCH_FLAGS='--rounds 5'.
bench-wheels:
	@$(MAKE) wheels WHEELS_FLAGS="--once --target $(shell uname -m)"
	@scripts/setup.sh bench
	@cmake -S . -B $(BUILD) -G Ninja --log-level=WARNING -DEBB_WERROR=$(WERROR) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target ebb ebb_heap_preload bench_tick bench_heap_filter
	@cmake --build $(BUILD)/release/$(shell uname -m)-linux-gnu.2.17/tree -j $(JOBS) --target bench_tick >/dev/null
	@EBB_BUILD_DIR="$(abspath $(BUILD))" scripts/bench.sh wheels $(BENCH_FLAGS)

# The unit tests for aarch64 under qemu and for musl, compiled with zig.
test-targets:
	@scripts/setup.sh wheels
	@scripts/test_targets.py --build $(BUILD) --jobs $(JOBS) $(TARGETS_FLAGS)

# Everything that must hold before a release; the artifacts and SHA256SUMS are then in $(BUILD)/release. Uploads
# nothing. The artifacts name the commit, so nothing may have changed since.
release:
	@test -z "$$(git status --porcelain)" || { echo "release: commit the changes first" >&2; git status --short >&2; exit 1; }
	@$(MAKE) CI=true test
	@$(MAKE) CI=true TIDY_NODES=225000 lint
	@$(MAKE) test-wheels
	@$(MAKE) test-targets
	@$(MAKE) test-bare
	@cd $(BUILD)/release && sha256sum -c SHA256SUMS

install: build
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

clean:
	@rm -rf $(BUILD)

help:
	@echo "make                  build $(BUILD)/ebb, its manual page and completions"
	@echo "make demo             build, then watch a small leaking program"
	@echo "make test             every test, sanitized or plain, and the fuzz targets for a second each"
	@echo "                      installs torch and the like into $(BUILD)/venv for it (not with TORCH=no)"
	@echo "make fuzz             every parser of foreign bytes on mutated input, 10 s each (FUZZ_FLAGS='--seconds 60')"
	@echo "make test-heap-foreign  suites of other projects, with and without the heap profiler"
	@echo "make test-slurm       jobs on several nodes of a real Slurm on this machine; test-slurm-long: minutes"
	@echo "make test-frameworks  steps of TensorFlow, JAX, Ray, DeepSpeed and others, in $(BUILD)/frameworks"
	@echo "make lint             layout, static analysis, headers, include table, scripts, Python, pages"
	@echo "make format           lay out the sources as lint wants them"
	@echo "make bench            measurements against their bars, about five minutes"
	@echo "make bench-long       ebb's own memory over ten minutes"
	@echo "make bench-guard      the guard against its bars, about half an hour (GUARD_FLAGS='--runs 3')"
	@echo "make bench-diagnose   the diagnosis of the zoo against its bars, about a minute each (ZOO_FLAGS=dict_cache)"
	@echo "make bench-heap       the heap profiler beside others, about twelve minutes (HEAP_FLAGS=--quick)"
	@echo "make bench-peers      ebb beside memray and others on the zoo, under half an hour (PEERS_FLAGS=--quick)"
	@echo "make bench-attach     attach and detach 1,000 times, and at 200 bad moments, half an hour (ATTACH_FLAGS='--cycles 20')"
	@echo "make bench-python     the Python package: start, cost of a step, calls, images; a quarter of an hour (BENCH_FLAGS=--quick)"
	@echo "make bench-cluster    ebb watch on 64 simulated ranks, 8 ranks on one node, five minutes (CLUSTER_FLAGS='--seconds 30')"
	@echo "make bench-serve      the job server against its bars, about half an hour (SERVE_FLAGS=--quick)"
	@echo "make bench-wheels     cost, start-up and size of the wheel's program beside gcc's (BENCH_FLAGS='--rounds 5')"
	@echo "make soak             the job server under everything at once, half an hour (SOAK_FLAGS='--minutes 2')"
	@echo "make bench-report     the page of a day's run: its size, how long it takes to make and to open"
	@echo "make bench-verdict    how often the verdict is right, beside the usual tests"
	@echo "make zoo              every program of zoo/ against its truth, about an hour (ZOO_FLAGS='--jobs 3')"
	@echo "make zoo-quick        eight of them, two minutes"
	@echo "make zoo-unseen       programs that the rules were not made for, six hours (ZOO_FLAGS='--jobs 6')"
	@echo "make wheels           wheels for x86_64 and aarch64 into $(BUILD)/release (WHEELS_FLAGS='--target x86_64 --once')"
	@echo "make packages         the wheels, tarballs, a .deb and SHA256SUMS into $(BUILD)/release"
	@echo "make test-wheels      all of them in bare Debian 11 to 13 and testing, as root"
	@echo "make test-bare        make demo and make test in bare Debian 12 and Ubuntu 24.04, as root (BARE_FLAGS='--only demo')"
	@echo "make test-targets     the unit tests for aarch64 under qemu, and for musl (TARGETS_FLAGS='--target musl')"
	@echo "make release          all checks of the last commit, and make packages"
	@echo "make install          into PREFIX (/usr/local), under DESTDIR when set"
	@echo "make clean            remove $(BUILD)/"
	@echo "JOBS=N sets how many things run at once; CI=true turns warnings into errors."
