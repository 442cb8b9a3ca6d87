#!/usr/bin/env bash
# Writes the King James Bible of Debian's package bible-kjv as plain text: chapters with their
# names, one verse a line.
# Usage: scripts/make-kjv.sh [FILE]      default: data/kjv.txt; a file that is there stays.
set -euo pipefail

out=${1:-$(dirname "$0")/../data/kjv.txt}
verses=31102
[ ! -s "$out" ] || exit 0
command -v bible >/dev/null || { echo "make-kjv: 'bible' is missing: install bible-kjv" >&2; exit 1; }

mkdir -p "$(dirname "$out")"
part=$(mktemp "$out.XXXXXX")
trap 'rm -f "$part"' EXIT
# Wide lines, so that no verse is broken.  Verses come as "  12 text", chapters as "Genesis 1" between
# empty lines: the numbers go, and one empty line stays before each chapter.
bible -l 100000 gen1:1-rev22:21 </dev/null | awk -v out="$part" -v want=$verses '
    /^ +[0-9]+ / { sub(/^ +[0-9]+ /, ""); print >out; n++; next }
    NF           { printf "%s%s\n", n ? "\n" : "", $0 >out }
    END          { if (n != want) { print "make-kjv: " n+0 " verses, not " want; exit 1 } }' >&2
chmod 644 "$part"
mv "$part" "$out"
