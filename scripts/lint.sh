#!/usr/bin/env bash
# Everything that can be said about the sources without running them. Goes through all checks and
# fails at the end if one did.
#
#   scripts/lint.sh          check
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

# Tracked and new files, but nothing that git ignores.
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

# The first place in each file that `make format` would change.
check_layout() {
    local found
    found=$(c_files | xargs -0 -r "$format" --dry-run 2>&1 | grep -E '^[^ ].*: (warning|error): ' |
        sort -t : -k 1,1 -u | sed -E 's/: (warning|error): .*/: not as make format would have it/' || true)
    [ -z "$found" ] && return 0
    printf '%s\n' "$found"
    return 1
}

# The analyzer reads the compiler's commands, so a file counts only once the build knows it. A file that
# several targets compile would be analyzed for each of them, with nothing else to find: one command of
# each is enough. The largest first: at the end they would keep the other cores waiting.
check_tidy() {
    local folder=$build/tidy
    mkdir -p "$folder"
    python3 -c 'import json, sys
with open(sys.argv[1]) as given:
    commands = {entry["file"]: entry for entry in reversed(json.load(given))}
with open(sys.argv[2], "w") as kept:
    json.dump(list(commands.values()), kept)' "$build/compile_commands.json" "$folder/compile_commands.json"
    files 'src/*.c' | xargs -0 -r stat --printf '%s %n\n' | sort -rn | cut -d ' ' -f 2- | tr '\n' '\0' |
        xargs -0 -r -n 1 -P "$jobs" bash -c '
        out=$("$0" -p "$1" --quiet --extra-arg=-Wno-unknown-warning-option "$2" 2>&1) && exit 0
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

# The package, and its tests; the system's Python is the one that has the packaged pyflakes.
check_python() {
    local python=/usr/bin/python3
    [ -x "$python" ] || python=python3
    files 'python/*.py' 'tests/py/*.py' | "$python" scripts/check_python.py
}

# What the pages are built from, in types; what was fetched for the build is without the compiler.
check_types() {
    local npm reason folder=$build/web-types
    mkdir -p "$folder"
    cp web/package.json web/package-lock.json "$folder"
    if ! npm=$(command -v npm); then
        echo "lint: types of the pages are not checked: npm is not there (scripts/setup.sh web)"
    elif ! reason=$(scripts/fetch_npm.sh "$npm" "$folder"); then
        echo "lint: types of the pages are not checked: $reason"
    else
        printf '{"extends": "%s/tsconfig.json", "compilerOptions": {"paths": {"uplot": ["%s"]}}, "include": ["%s/src"]}\n' \
            "$PWD/web" "./node_modules/uplot/dist/uPlot.d.ts" "$PWD/web" >"$folder/tsconfig.json"
        node "$folder/node_modules/typescript/bin/tsc" --noEmit -p "$folder"
    fi
}

# Paths that only exist where somebody happened to work. /proc/PID/root/ is another thing.
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
git ls-files >/dev/null # without git the checks would see no files, and pass
check "layout (clang-format)" check_layout
check "include table" python3 scripts/check_includes.py
check "dialect" python3 scripts/check_dialect.py
check "every header compiles alone" check_headers
check "shell scripts" check_shell
check "Python package (syntax, width, pyflakes)" check_python
check "pages (TypeScript)" check_types
check "no paths of one machine" check_paths
check "static analysis (clang-tidy)" check_tidy
exit $failed
