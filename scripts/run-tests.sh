#!/usr/bin/env bash
# Builds the given CMake presets and runs their tests, except those labelled slow.
# Usage: scripts/run-tests.sh [PRESET...]      default: release debug tsan
set -euo pipefail
cd "$(dirname "$0")/.."

presets=("${@:-release}")
[ $# -gt 0 ] || presets+=(debug tsan)

for preset in "${presets[@]}"; do
    log=$(mktemp)
    cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; exit 1; }
    grep -e '-- CUDA:' "$log" || true # what is left out for want of nvcc
    rm -f "$log"
    echo "== $preset: build"
    cmake --build --preset "$preset"
done

failed=0
for preset in "${presets[@]}"; do
    echo "== $preset: test"
    # ThreadSanitizer does not start where the kernel scatters addresses widely (vm.mmap_rnd_bits), unless asked not to.
    run=(ctest)
    if [[ $preset == *tsan* ]] && setarch -R true 2>/dev/null; then run=(setarch -R ctest); fi
    "${run[@]}" --preset "$preset" --no-label-summary -j "$(nproc)" || failed=1
done
exit $failed
