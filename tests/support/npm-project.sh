#!/usr/bin/env bash
# Makes a real npm project with a lock file, and a cache from which `npm ci --offline` installs it.
#   npm-project.sh DIRECTORY CACHE      DIRECTORY is made; a filled CACHE is used again
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$1 cache=$2
mkdir -p "$directory" "$cache"
cp -r "$here/../demo/project/." "$directory"
exec 9>"$cache/lock"
flock 9
if ! cmp -s "$cache/package.json" "$directory/package.json"; then
    scratch=$(mktemp -d -p /var/tmp)
    trap 'rm -rf "$scratch"' EXIT
    cp "$directory/package.json" "$scratch"
    quiet=(--cache "$cache" --no-audit --no-fund --no-update-notifier --ignore-scripts --loglevel=error)
    (cd "$scratch" && npm install --package-lock-only "${quiet[@]}" && npm ci "${quiet[@]}") >&2
    cp "$scratch/package-lock.json" "$cache/package-lock.json"
    cp "$directory/package.json" "$cache/package.json"
fi
cp "$cache/package-lock.json" "$directory"
