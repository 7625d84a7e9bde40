#!/usr/bin/env bash
# Builds the gzipped files of ebb's pages. For each PAGE these are PAGE.css.gz from web/style/PAGE.css, and PAGE.js.gz
# from web/src/PAGE.ts and shared sources. Also builds serve.html.gz and icon.svg.gz, which the server sends.
#
#   scripts/build_web.sh OUT NPM|none|off PAGE…
#
# npm fetches uPlot and esbuild in the versions of web/package-lock.json. If npm is
# missing or the fetch fails, PAGE.js is empty: reports then have all tables and numbers but
# no plots, and serve.html names the missing package. The script prints one line about it and succeeds.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$scripts/../web" && pwd)
out=$1
npm=$2
shift 2
pages=("$@")
mkdir -p "$out"
cd "$out"

pack() { gzip -9nc >"$1.gz.new" && mv "$1.gz.new" "$1.gz"; }

without() {
    printf 'web: %s: reports will have no plots, and ebb serve no page\n' "$1"
    for page in "${pages[@]}"; do
        cat "$source/style/shared.css" "$source/style/$page.css" | pack "$page.css"
        pack "$page.js" </dev/null
    done
    pack serve.html <"$source/html/without.html"
    exit 0
}

build_page() {
    if ! NODE_PATH=$out/node_modules node node_modules/esbuild/bin/esbuild "$source/src/$1.ts" \
        --bundle --minify --format=iife --target=es2020 --charset=ascii --legal-comments=none \
        --log-level=warning --outfile="$1.js"; then
        echo "web: the sources of the page $1 do not build" >&2
        exit 1
    fi
    # A script must not contain </script>, even inside a string, because HTML ends the <script> element there.
    if grep -qi '</script' "$1.js"; then
        echo "web: $1.js contains </script" >&2
        exit 1
    fi
    cat node_modules/uplot/dist/uPlot.min.css "$source/style/shared.css" "$source/style/$1.css" |
        pack "$1.css"
    pack "$1.js" <"$1.js"
}

pack icon.svg <"$source/html/icon.svg"
[ "$npm" != off ] || without "EBB_WEB is off"
[ "$npm" != none ] || without "npm is not installed (scripts/setup.sh web installs it)"
command -v node >/dev/null 2>&1 || without "node is not installed (scripts/setup.sh web installs it)"
cp "$source/package.json" "$source/package-lock.json" .
reason=$("$scripts/fetch_npm.sh" "$npm" . --omit=dev) || without "$reason (remove $out to try again)"
for page in "${pages[@]}"; do build_page "$page"; done
pack serve.html <"$source/html/serve.html"
