#!/usr/bin/env bash
# The tour: trains an mlp on Fashion-MNIST and a small gpt on the King James Bible, then compares
# memory and time of the gpt with checkpointing off and on.
# Usage: scripts/demo.sh      after `make build`; EBB names another program.
set -euo pipefail
cd "$(dirname "$0")/.."

ebb=${EBB:-build/release/bin/ebb}
run()
{
    printf '\n$ ebb %s\n' "$*"
    "$ebb" "$@"
}

scripts/make-kjv.sh
run train models/mlp-fashion.json
run train models/gpt-kjv.json --steps 100
run compare models/gpt-kjv.json --set train.steps=8
