#!/usr/bin/env bash
# A small training run under valgrind: no error, no leak.  Skips (77) without valgrind, and where it
# cannot run the program: builds for instructions that it does not know need EBB_MARCH=x86-64-v3.
# Usage: slow_valgrind.sh PROGRAM SOURCE_DIR
set -euo pipefail

program=$1 source=$2
export OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1
command -v valgrind > /dev/null || { echo "valgrind is not installed"; exit 77; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for model in mlp-synthetic gpt-synthetic; do
    for allocator in '{}' '{"expandable_segments": true}' '{"offset_plan": true}'; do
        valgrind --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect \
            --error-exitcode=9 "$program" train "$source/models/$model.json" --threads 2 --steps 2 --json --quiet \
            --set "memory.allocator=$allocator" > /dev/null 2> "$log" ||
            if grep -q 'SIGILL\|unhandled instruction' "$log"; then
                echo "valgrind cannot run this build"
                exit 77
            else
                echo "$model $allocator:"
                tail -60 "$log"
                exit 1
            fi
    done
done
echo "no error, no leak"
