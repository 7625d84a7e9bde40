#!/usr/bin/env bash
# Builds what the page of `ebb report` brings along, gzipped: page.css.gz and page.js.gz.
#
#   scripts/build_web.sh OUT [NPM|off]
#
# With npm, uPlot and esbuild are fetched in the versions that web/package-lock.json names. Without
# it, or where they cannot be fetched, page.js is empty: reports then have every table and number, and
# no plots. One line says so; the build goes on.
set -euo pipefail
source=$(cd "$(dirname "$0")/../web" && pwd)
out=$1
npm=${2:-}
limit_s=180
mkdir -p "$out"
cd "$out"

pack() { gzip -9nc >"$1.gz.new" && mv "$1.gz.new" "$1.gz"; }

without() {
    printf 'web: %s: reports will have tables and numbers, and no plots\n' "$1"
    pack page.css <"$source/page.css"
    pack page.js </dev/null
    exit 0
}

# What went wrong, in one line.
why() {
    if grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ECONNRESET|network' npm.log; then
        echo "the npm registry cannot be reached"
    else
        grep -m 1 -E '^npm (error|ERR!) ' npm.log | cut -c 1-160 | grep . || echo "npm failed"
    fi
}

[ "$npm" != off ] || without "EBB_WEB is off"
[ -n "$npm" ] || without "npm is not there (scripts/setup.sh web installs it)"
command -v node >/dev/null 2>&1 || without "node is not there (scripts/setup.sh web installs it)"
cp "$source/package.json" "$source/package-lock.json" .
if ! cmp -s package-lock.json node_modules/.fetched; then
    status=0
    timeout "$limit_s" "$npm" ci --omit=dev --ignore-scripts --no-audit --no-fund --prefer-offline \
        --fetch-retries=1 --fetch-timeout=30000 >npm.log 2>&1 </dev/null || status=$?
    [ "$status" -ne 124 ] || without "npm was not done in $((limit_s / 60)) minutes"
    [ "$status" -eq 0 ] || without "$(why)"
    cp package-lock.json node_modules/.fetched
fi
if ! NODE_PATH=$out/node_modules node node_modules/esbuild/bin/esbuild "$source/src/main.ts" --bundle \
    --minify --format=iife --target=es2020 --charset=ascii --legal-comments=none \
    --log-level=warning --outfile=page.js; then
    echo "web: the page's own sources do not build" >&2
    exit 1
fi
# Inside a <script> element nothing may look like its end.
if grep -qi '</script' page.js; then
    echo "web: page.js holds </script" >&2
    exit 1
fi
cat node_modules/uplot/dist/uPlot.min.css "$source/page.css" | pack page.css
pack page.js <page.js
