#!/usr/bin/env bash
# Checks the sources without running them. Runs all checks, and fails at the end if one failed.
#
#   scripts/lint.sh          check; TIDY_NODES=225000 analyzes each function as deeply as clang does by default
#   scripts/lint.sh format   rewrite the C sources in the project's layout
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
jobs=${JOBS:-$(nproc)}
failed=0

first_of() {
    local tool
    for tool in "$@"; do
        if command -v "$tool" >/dev/null 2>&1; then
            printf '%s\n' "$tool"
            return
        fi
    done
    echo "lint: $1 is not installed (scripts/setup.sh lint)" >&2
    exit 1
}

# Lists tracked and new files, without files ignored by git.
files() {
    git ls-files -z --cached --others --exclude-standard -- "$@" |
        while IFS= read -r -d '' file; do
            [ ! -f "$file" ] || printf '%s\0' "$file"
        done
}

check() {
    local title=$1 start=$SECONDS
    shift
    if "$@"; then
        printf 'lint: %-42s ok (%d s)\n' "$title" $((SECONDS - start))
    else
        printf 'lint: %-42s FAILED\n' "$title"
        failed=1
    fi
}

c_files() { files 'src/*.[ch]' 'tests/*.[ch]' 'bench/*.[ch]' 'examples/*.[ch]' 'fuzz/*.[ch]' 'zoo/*.[ch]'; }

# Prints, for each file, the first place that `make format` would change.
check_layout() {
    local found
    found=$(c_files | xargs -0 -r "$format" --dry-run 2>&1 | grep -E '^[^ ].*: (warning|error): ' |
        sort -t : -k 1,1 -u | sed -E 's/: (warning|error): .*/: not as make format would have it/' || true)
    [ -z "$found" ] && return 0
    printf '%s\n' "$found"
    return 1
}

# Writes a compilation database with one command per file for the two checks below. A file may be compiled for several
# targets, but analyzing it more than once finds nothing new.
write_commands() {
    mkdir -p "$build/tidy"
    python3 -c 'import json, sys
with open(sys.argv[1]) as given:
    commands = {entry["file"]: entry for entry in reversed(json.load(given))}
with open(sys.argv[2], "w") as kept:
    json.dump(list(commands.values()), kept)' "$build/compile_commands.json" "$build/tidy/compile_commands.json"
}

# Checks tests, benchmarks and examples for clang's warnings, because `make test` compiles only src and fuzz with clang.
check_clang() {
    files 'tests/*.c' 'bench/*.c' 'examples/*.c' | xargs -0 -r python3 -c 'import json, shlex, sys
wanted = {sys.argv[2] + "/" + name for name in sys.argv[3:]}
with open(sys.argv[1]) as given:
    for entry in json.load(given):
        if entry["file"] in wanted:
            compiler, *rest = shlex.split(entry["command"])
            rest = rest[1:] if compiler.endswith("ccache") else rest
            flags = [flag for flag in rest[:rest.index("-o")] if not flag.startswith(("-fsanitize", "-mno-outline"))]
            print(shlex.join(["clang", *flags, "-Werror", "-fsyntax-only", entry["file"]]))' \
        "$build/tidy/compile_commands.json" "$PWD" | xargs -d '\n' -n 1 -P "$jobs" sh -c
}

# clang-tidy's analyzer explores at most TIDY_NODES states per function. Its default, 225000, takes ten times as long
# and finds nothing more in this tree; `make release` uses it. The largest files are analyzed first, so that the cores
# finish at about the same time.
check_tidy() {
    local folder=$build/tidy
    export TIDY_NODES=${TIDY_NODES:-10000}
    files 'src/*.c' | xargs -0 -r stat --printf '%s %n\n' | sort -rn | cut -d ' ' -f 2- | tr '\n' '\0' |
        xargs -0 -r -n 1 -P "$jobs" bash -c '
        out=$("$0" -p "$1" --quiet --extra-arg=-Wno-unknown-warning-option \
            --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang "--extra-arg=max-nodes=$TIDY_NODES" \
            "$2" 2>&1) && exit 0
        printf "%s\n" "$out" | grep -vE "^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header"
        exit 1' "$tidy" "$folder"
}

check_headers() {
    local flags
    mapfile -t flags <"$build/generated/warning_flags.txt"
    files 'src/*.h' | xargs -0 -r -n 1 -P "$jobs" bash -c '
        header=${!#}
        set -- "${@:1:$#-1}"
        printf "#include \"%s\"\n" "${header#src/}" |
            gcc -std=gnu11 -D_GNU_SOURCE -Werror "$@" -Isrc -I"$0/generated" -fsyntax-only -x c - ||
            { echo "$header does not compile alone"; exit 1; }' "$build" "${flags[@]}"
}

check_shell() {
    local list script status=0
    mapfile -d '' -t list < <(files '*.sh' .ci/run)
    for script in "${list[@]}"; do
        bash -n "$script" || status=1
    done
    if command -v shellcheck >/dev/null 2>&1; then
        shellcheck --severity=warning "${list[@]}" || status=1
    fi
    return "$status"
}

# Checks the package and its tests with the system's Python, because distributions package pyflakes for this Python.
check_python() {
    local python=/usr/bin/python3
    [ -x "$python" ] || python=python3
    files 'python/*.py' 'tests/py/*.py' | "$python" scripts/check_python.py
}

# Checks the types in the web sources with the TypeScript compiler, which is installed here because the build does not
# need it.
check_types() {
    local npm reason folder=$build/web-types
    mkdir -p "$folder"
    cp web/package.json web/package-lock.json "$folder"
    if ! npm=$(command -v npm); then
        echo "lint: types of the pages are not checked: npm is not installed (scripts/setup.sh web)"
    elif ! reason=$(scripts/fetch_npm.sh "$npm" "$folder"); then
        echo "lint: types of the pages are not checked: $reason"
    else
        printf '{"extends": "%s/tsconfig.json", "compilerOptions": {"paths": {"uplot": ["%s"]}}, "include": ["%s/src"]}\n' \
            "$PWD/web" "./node_modules/uplot/dist/uPlot.d.ts" "$PWD/web" >"$folder/tsconfig.json"
        node "$folder/node_modules/typescript/bin/tsc" --noEmit -p "$folder"
    fi
}

# Finds absolute paths of a particular machine. /proc/PID/root/ is allowed.
check_paths() {
    local found
    found=$(files . | xargs -0 -r grep -InE '(^|[^][:alnum:]_}).*%-])/(work|root)/' -- || true)
    [ -z "$found" ] && return 0
    printf '%s\n' "$found"
    return 1
}

format=$(first_of clang-format-14 clang-format)
if [ "${1:-}" = format ]; then
    c_files | xargs -0 -r "$format" -i
    exit 0
fi
tidy=$(first_of clang-tidy-14 clang-tidy)

cmake -S . -B "$build" -G Ninja --log-level=WARNING >/dev/null
git ls-files >/dev/null # ends the script if git fails; otherwise the checks would find no files and pass
check "layout (clang-format)" check_layout
check "include table" python3 scripts/check_includes.py
check "dialect" python3 scripts/check_dialect.py
check "words" python3 scripts/check_words.py
check "README and docs" python3 scripts/check_docs.py
check "every header compiles alone" check_headers
check "shell scripts" check_shell
check "Python package (syntax, width, pyflakes)" check_python
check "pages (TypeScript)" check_types
check "no paths of one machine" check_paths
write_commands
check "warnings of clang in tests and benches" check_clang
check "static analysis (clang-tidy)" check_tidy
exit $failed
