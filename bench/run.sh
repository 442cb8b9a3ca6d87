#!/bin/sh
# run.sh BIN: every benchmark, with the programs in BIN.
set -eu
here=$(dirname "$0")
python3 "$here/step.py" --ebb "$1/ebb" --sgemm "$1/sgemm"
python3 "$here/checkpoint.py" --ebb "$1/ebb"
"$1/alloc" "$here/../models"
python3 "$here/plans.py" --ebb "$1/ebb"
python3 "$here/deep72.py" --ebb "$1/ebb"
