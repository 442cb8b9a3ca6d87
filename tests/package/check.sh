#!/usr/bin/env bash
# Installs a build to a temporary prefix, moves it, then builds and runs outside/ against it.
# Usage: check.sh cmake|pkgconfig BUILD CMAKE CC
set -euo pipefail

way=$1 build=$2 cmake=$3 cc=$4
outside=$(cd "$(dirname "$0")/outside" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix" # an installed tree can be moved
cd "$work"

case $way in
cmake)
    "$cmake" -S "$outside" -B built -G Ninja -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_PREFIX_PATH="$work/prefix"
    "$cmake" --build built
    built/outside
    ;;
pkgconfig)
    pc=$(find prefix -name ebb.pc -printf '%h')
    export PKG_CONFIG_PATH=$work/$pc
    # shellcheck disable=SC2046 # the flags are words
    "$cc" -std=c17 $(pkg-config --cflags ebb) "$outside/main.c" -o outside $(pkg-config --libs ebb) \
        -Wl,-rpath,"$(pkg-config --variable=libdir ebb)"
    ./outside
    ;;
*)
    echo "check.sh: $way is neither cmake nor pkgconfig" >&2
    exit 2
    ;;
esac

prefix/bin/ebb info
