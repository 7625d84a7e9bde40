#!/usr/bin/env bash
# Fetches the packages of FOLDER/package-lock.json into FOLDER/node_modules, unless they are installed there.
#
#   scripts/fetch_npm.sh NPM FOLDER [OPTION OF npm ci…]
#
# Tries three times, for at most three minutes in all, because a registry may be briefly unavailable. On failure prints
# the reason in one line and returns 1.
set -euo pipefail
npm=$1
cd "$2"
shift 2
attempts=3
limit_s=180

give_up() {
    printf '%s\n' "$1"
    exit 1
}

# Prints the reason of the failure in one line.
why() {
    if grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ECONNRESET|network' npm.log; then
        echo "the npm registry cannot be reached"
    else
        grep -m 1 -E '^npm (error|ERR!) ' npm.log | cut -c 1-160 | grep . || echo "npm failed"
    fi
}

# Two test suites may call this script at the same time, and `npm ci` first removes the installed packages.
exec 9>.fetching
flock 9
! cmp -s package-lock.json node_modules/.fetched || exit 0
for ((attempt = 1; ; attempt++)); do
    status=0
    timeout $((limit_s - SECONDS)) "$npm" ci --ignore-scripts --no-audit --no-fund --prefer-offline \
        --fetch-retries=1 --fetch-timeout=30000 "$@" >npm.log 2>&1 </dev/null || status=$?
    [ "$status" -ne 0 ] || break
    [ "$status" -ne 124 ] || give_up "npm did not finish within $((limit_s / 60)) minutes"
    if [ "$attempt" -eq "$attempts" ] || [ $((SECONDS + attempt)) -ge "$limit_s" ]; then
        give_up "$(why), $attempt attempts"
    fi
    sleep "$attempt"
done
cp package-lock.json node_modules/.fetched
