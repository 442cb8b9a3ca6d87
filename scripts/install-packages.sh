#!/usr/bin/env bash
# Installs the Debian packages that are missing.  Usage: scripts/install-packages.sh [build] [test] [data]
#   build  what the build and the tests need
#   test   what some tests need, which are skipped without it
#   data   what the example configs train on
# Without arguments: all.  Does nothing, and needs no rights, where all are there.
set -euo pipefail

# shellcheck disable=SC2034 # read by name
# package, and a command that stands in for it (-: none; then the package itself is asked for)
build_packages='
build-essential       c++
cmake                 cmake
ninja-build           ninja
pkg-config            pkg-config
python3               python3
libcjson-dev          -
libopenblas-pthread-dev -
zlib1g-dev            -
libcriterion-dev      -
node-d3               -
'
test_packages='
chromium              chromium
'
# shellcheck disable=SC2034
data_packages='
dataset-fashion-mnist -
bible-kjv             bible
'

is_there() # package command
{
    [ "$2" != - ] && command -v "$2" >/dev/null && return
    dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

fail() # reason
{
    echo "install-packages: $1; missing: ${missing[*]}" >&2
    echo "install-packages: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
}

missing=()
[ $# -gt 0 ] || set -- build test data
for group; do
    list=${group}_packages
    [ -n "${!list-}" ] || { echo "install-packages: no group '$group'; there are: build test data" >&2; exit 2; }
    while read -r package command; do
        [ -z "$package" ] || is_there "$package" "$command" || missing+=("$package")
    done <<<"${!list}"
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || fail "there is no apt-get here"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "neither root nor sudo"
    as_root=(sudo)
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 "$@" >&2; }
install() { apt install -y --no-install-recommends "${missing[@]}"; }

echo "install-packages: installing ${missing[*]}" >&2
have_lists() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }
# The lists may be absent (a fresh image) or old (a version that is gone from the mirror).
{ have_lists && install; } || { apt update && install; } || fail "apt-get failed (offline?)"
