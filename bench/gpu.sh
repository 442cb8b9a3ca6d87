#!/bin/sh
# gpu.sh [OPTIONS of gpu_race.py]: on a machine with a GPU, in under 8 minutes: builds the program and the CUDA
# plugin for that GPU, checks every op against the CPU device, predicted against measured peaks, records an event
# trace, and races PyTorch where it is installed; prints one JSON object.  --dry lists the commands instead.
# The exit status is not 0 where something is wrong, or nothing was checked.
#
# EBB_GPU_BUILD: the build folder (build/gpu).  EBB_TORCH_PYTHON: a python3 that has torch (python3).
# EBB_GPU_BUILD_SECONDS: the most that building may take (300), so that there is time left to check.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=${EBB_GPU_BUILD:-$root/build/gpu}
build_seconds=${EBB_GPU_BUILD_SECONDS:-300}
started=$(date +%s)
dry=no
check=no
for option in "$@"; do
    if [ "$option" = --dry ]; then dry=yes; fi
    if [ "$option" = --check ]; then check=yes; fi
done

case $build_seconds in
'' | *[!0-9]*)
    echo "gpu.sh: EBB_GPU_BUILD_SECONDS=$build_seconds: expected a whole number of seconds" >&2
    exit 2 ;;
esac
# Before a build that takes minutes.
python3 "$here/gpu_race.py" --ebb "$build/bin/ebb" --ops "$build/bin/gpu_ops" "$@" --check || exit 2
[ $check = no ] || exit 0

# Runs the command, with what is left of the build's time; --dry: lists it, as a shell reads it.
build_step() {
    if [ $dry = yes ]; then
        python3 -c 'import shlex, sys; print(shlex.join(sys.argv[1:]))' "$@" >&2
        return
    fi
    left=$((started + build_seconds - $(date +%s)))
    status=124 # timeout's, when the time is over
    if [ $left -gt 0 ]; then
        status=0
        timeout --kill-after=5 $left "$@" >&2 || status=$?
    fi
    [ $status -ne 124 ] || echo "gpu.sh: building took longer than $build_seconds s; nothing was checked" >&2
    return $status
}

build_step "$root/scripts/install-packages.sh" build || {
    [ $? -ne 124 ] || exit 1
    echo 'gpu.sh: going on with what is installed' >&2
}
build_step cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DEBB_TESTS=OFF -DEBB_CUDA=ON \
    -DEBB_CUDA_ARCHITECTURES=native || exit 1
build_step cmake --build "$build" -j --target ebb_program ebb_cuda gpu_ops || exit 1
exec python3 "$here/gpu_race.py" --ebb "$build/bin/ebb" --ops "$build/bin/gpu_ops" --started "$started" "$@"
