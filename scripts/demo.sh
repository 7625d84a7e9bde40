#!/usr/bin/env bash
# Runs a small leaking program (examples/leak.c) under `ebb run`, shows the recording, and prints
# the verdict.
# Takes about 15 seconds. Requires awk in addition to the tools for `make`; writes only to build/demo.
#
#   make demo        or        EBB_BINARY=build/ebb scripts/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."

ebb=${EBB_BINARY:-$PWD/build/ebb}
build=$(dirname "$ebb")
[ -e "$build/CMakeCache.txt" ] || build=build
run=$build/demo/leak
shown=$(basename "$build")

if [ ! -x "$ebb" ]; then
    echo "demo: $ebb does not exist; run make first" >&2
    exit 1
fi

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
else
    bold='' dim='' plain=''
fi

say() { printf '%s\n' "$@"; }
title() { printf '\n%s── %s%s\n\n' "$bold" "$1" "$plain"; }
command_line() { printf '%s$ %s%s\n' "$dim" "$1" "$plain"; }

# Prints the verdict on the recording and explains its exit status.
judge() {
    local status=0 means
    command_line "ebb verdict $shown/demo/leak${*:+ $*}"
    "$ebb" verdict "$run" "$@" || status=$?
    case $status in
    0) means="no leak" ;;
    1) means="a leak" ;;
    3) means="undecided" ;;
    *) exit "$status" ;;
    esac
    say "" "Its exit status is $status: $means."
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --build "$build" --target examples >"$log" 2>&1; then
    cat "$log" >&2
    echo "demo: examples/leak.c could not be built" >&2
    exit 1
fi
rm -rf "$run"
mkdir -p "$build/demo"

title "1. A job with a leak, run under ebb (15 s)"
say "examples/leak.c pretends to train. It keeps 1 MiB of every step (the bug), has a worker" \
    "that is large but flat, and evaluates twice, which takes 128 MiB and frees them." ""
command_line "ebb run --interval 250ms --run-dir $shown/demo/leak -- $shown/examples/leak"
"$ebb" run --interval 250ms --run-dir "$run" -- "$build/examples/leak"

title "2. What the two processes did"
# Prints, for each second, the maximum memory of the trainer and of its worker, from the exported CSV.
command_line "ebb export $shown/demo/leak --csv | awk …"
"$ebb" export "$run" --csv | awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    {
        second = int($column["t"])
        mib = $column["rss_bytes"] / 1048576
        if ($column["role"] == "main") {
            if (mib > main[second]) main[second] = mib
            if ($column["step"] != "") step[second] = $column["step"]
            if ($column["phase"] != "") phase[second] = $column["phase"]
        } else if (mib > worker[second]) {
            worker[second] = mib
        }
        if (second > last) last = second
    }
    END {
        printf "  second  step   worker  trainer\n"
        for (s = 0; s <= last; s++) {
            bar = ""
            for (i = 0; i < main[s] / 6; i++) bar = bar "#"
            printf "  %6d  %4s  %3d MiB  %3d MiB %s%s\n", s, step[s], worker[s], main[s], bar,
                phase[s] == "" ? "" : "  " phase[s]
        }
    }'
say "" "The evaluations stand out, but their memory is freed: no leak. The worker is larger most of" \
    "the time, but flat: no leak. The trainer's baseline grows:" \
    "see its RATE/min in the summary above; the worker's is 0."

title "3. More commands"
command_line "ebb export $shown/demo/leak --csv | head -3"
"$ebb" export "$run" --csv >"$log"
head -n 3 "$log"
say "" "A reading that was not taken at that moment is empty, never 0. The recording is in" \
    "$shown/demo/leak: trace.ebb, log.txt and run.json." "" \
    "  build/ebb run -- python train.py       your own job; the recording goes into ebb-runs/" \
    "  build/ebb watch --find-training        watch a running job" \
    "  build/ebb verdict table.csv            judge a table made by another tool" \
    "  build/ebb doctor                       what this machine allows" \
    "  docs/reference/marks.md                how your program reports its steps"

title "4. The verdict"
say "The job sends a mark after each step, with the length of an epoch, 16 steps." \
    "Before the first epoch ends, a cache that fills and a leak look the same. At step 14:" ""
judge --until-step 14
say "" "And with the whole recording:" ""
judge
say "Exit codes for scripts: 0 no leak, 1 leak, 2 error, 3 undecided."
