#!/usr/bin/env bash
# Every public header compiles alone, as C17 and as C++17, without a warning.
# Usage: headers.sh INCLUDE_DIR CC CXX
set -euo pipefail

include=$1 cc=$2 cxx=$3
strict="-fsyntax-only -Wall -Wextra -Wshadow -pedantic -Werror -I$include"
failed=0 n=0
for header in "$include"/ebb/*.h; do
    name=ebb/$(basename "$header")
    n=$((n + 1))
    # shellcheck disable=SC2086 # the flags are words
    echo "#include <$name>" | $cc -std=c17 -Wstrict-prototypes $strict -x c - ||
        { echo "$name: not as C17"; failed=1; }
    # shellcheck disable=SC2086
    echo "#include <$name>" | $cxx -std=c++17 $strict -x c++ - ||
        { echo "$name: not as C++17"; failed=1; }
done
echo "$n headers"
[ $n -gt 0 ] && exit $failed
