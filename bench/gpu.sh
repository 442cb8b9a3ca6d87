#!/bin/sh
# gpu.sh [OPTIONS of gpu_race.py]: on a machine with a GPU, in under 8 minutes: builds the program and the CUDA
# plugin for that GPU, checks every op against the CPU device, predicted against measured peaks, records an event
# trace, and races PyTorch where it is installed; prints one JSON object.  --dry lists the commands instead.
#
# EBB_GPU_BUILD: the build folder (build/gpu).  EBB_TORCH_PYTHON: a python3 that has torch (python3).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=${EBB_GPU_BUILD:-$root/build/gpu}
started=$(date +%s)

configure() {
    echo cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DEBB_TESTS=OFF -DEBB_CUDA=ON \
        -DEBB_CUDA_ARCHITECTURES=native
}
compile() { echo cmake --build "$build" -j --target ebb_program ebb_cuda gpu_ops; }

for option in "$@"; do
    if [ "$option" = --dry ]; then
        configure >&2
        compile >&2
        exec python3 "$here/gpu_race.py" --ebb "$build/bin/ebb" --ops "$build/bin/gpu_ops" "$@"
    fi
done
"$root/scripts/install-packages.sh" build >&2 || echo 'gpu.sh: going on with what is installed' >&2
$(configure) >&2
$(compile) >&2
exec python3 "$here/gpu_race.py" --ebb "$build/bin/ebb" --ops "$build/bin/gpu_ops" --started "$started" "$@"
