#!/usr/bin/env bash
# Runs everything that needs a GPU, in under four minutes: records and judges the programs of this folder, measures
# the cost of the hook, checks the live bytes, and runs out of GPU memory on purpose. Results and recordings go to
# $OUT. Needs build/ebb and build/libebb-heap.so.
#
#   OUT=DIR zoo/gpu/device.sh [--quick]
set -u
cd "$(dirname "$0")/../.." || exit 1
: "${OUT:?set OUT to an empty folder}"
here=zoo/gpu
export EBB_BINARY=$PWD/build/ebb
export ZOO_PYTHON=${ZOO_PYTHON:-python3}
work=$(mktemp -d)
started=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - started)) "$*"; }
# shellcheck disable=SC2317 # called by trap
keep() {
    "$ZOO_PYTHON" "$here/keep.py" "$work" "$OUT/recordings.tar.xz"
    say "recordings.tar.xz: $(($(stat -c %s "$OUT/recordings.tar.xz") / 1024)) KiB"
    rm -rf "$work"
}
trap keep EXIT
{
    "$EBB_BINARY" version
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv 2>&1
    "$ZOO_PYTHON" - <<'P' 2>&1
import platform, torch, transformers
print("python", platform.python_version(), "torch", torch.__version__, "cuda", torch.version.cuda,
      "transformers", transformers.__version__, torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU")
P
    nm -D "$("$ZOO_PYTHON" -c 'import torch, os; print(os.path.dirname(torch.__file__))')/lib/libc10.so" 2>&1 |
        grep -E 'report(MemoryUsage|OutOfMemory)ToProfiler'
} >"$OUT/machine.txt" 2>&1
say "machine: $(tail -1 "$OUT/machine.txt" | head -c 100)"

timeout 110 "$here/run.py" --record-only --jobs 16 --out "$work/zoo" >"$OUT/zoo-record.txt" 2>&1
say "zoo recorded (status $?)"

timeout 75 "$EBB_BINARY" run --run-dir "$work/cost" -- "$ZOO_PYTHON" "$here/cost.py" --seconds 45 --json "$OUT/cost.json" >"$OUT/cost.txt" 2>&1
say "cost measured (status $?)"

timeout 60 "$here/run.py" --judge-only --out "$work/zoo" --json "$OUT/zoo.json" >"$OUT/zoo.txt" 2>&1 &
judging=$!
timeout 55 "$EBB_BINARY" run --run-dir "$work/live" -- "$ZOO_PYTHON" "$here/live.py" --json "$OUT/live.json" >"$OUT/live.txt" 2>&1 &
living=$!
timeout 30 "$EBB_BINARY" run --run-dir "$work/oom" -- "$ZOO_PYTHON" "$here/oom.py" >"$OUT/oom.txt" 2>&1
timeout 30 "$EBB_BINARY" run --run-dir "$work/oom-caught" -- "$ZOO_PYTHON" "$here/oom.py" --catch >"$OUT/oom-caught.txt" 2>&1
{
    "$EBB_BINARY" heap --gpu "$work/oom"
    "$EBB_BINARY" heap --gpu "$work/oom-caught"
} >>"$OUT/oom.txt" 2>&1
wait "$living"
say "live bytes compared (status $?)"
wait "$judging"
say "zoo judged (status $?)"
for name in hidden_states kept_graph graph_per_shape-fixed; do
    "$EBB_BINARY" heap --gpu "$work/zoo/$name/run" >"$OUT/heap-$name.txt" 2>&1
    tail -25 "$work/zoo/$name/log.txt" >>"$OUT/heap-$name.txt" 2>&1
done
cat "$OUT/zoo.txt"
cat "$OUT/cost.json" 2>/dev/null
tail -1 "$OUT/live.txt"
say "done"
