#!/bin/sh
# Fetches coast and borders (Natural Earth, public domain, as npm's world-atlas packs it) into a folder. Without npm, or
# without its registry, maps have neither: this says so, and fails nobody.
folder=$1
tools=$(dirname "$0")
if ! command -v npm >/dev/null; then
    echo "without npm maps have relief and contours, but no coast and borders"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$tools/package.json" "$tools/package-lock.json" "$work/"
if npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$work" >/dev/null; then
    mkdir -p "$folder"
    for name in countries-10m.json countries-50m.json countries-110m.json; do
        cp "$work/node_modules/world-atlas/$name" "$folder/"
    done
    cp "$work"/node_modules/world-atlas/LICENSE* "$folder/"
else
    echo "npm cannot fetch world-atlas: maps have relief and contours, but no coast and borders"
fi
