#!/usr/bin/env bash
# Makes the pictures of docs/: pages of `ebb trace`, photographed by headless Chromium, and the frontier as SVG.
# Usage: scripts/make-pictures.sh [OUT_DIR]      default: docs/pictures.  Needs `make build` and chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-docs/pictures}
ebb=${EBB:-build/release/bin/ebb}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

photograph() # fragment width height picture
{
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
        --virtual-time-budget=8000 --window-size="$2,$3" --screenshot="$work/picture.png" \
        "file://$work/page.html#$1" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    mv "$work/picture.png" "$out/$4"
}

"$ebb" trace models/gpt-synthetic.json --set model.layers=8 --set model.width=128 --set model.context=128 \
    --set model.heads=4 --compare --quiet --html "$work/page.html"
photograph only=summary 900 640 trace-summary.png
photograph only=timeline+point 1100 840 trace-timeline.png
photograph only=map 1100 620 trace-map.png
photograph only=backward 1100 1000 trace-backward.png
photograph only=timeline 360 1330 trace-phone.png

# The frontier of bench/deep72.py's model, by the built-in op times, which are the same everywhere.
EBB_CALIBRATION=/nonexistent "$ebb" plan models/gpt-synthetic.json --set model.layers=72 --set model.heads=4 \
    --set model.width=128 --set model.context=128 --set model.vocab=256 --set train.batch=32 --set train.steps=2 \
    --set data.items=4096 --set data.eval_items=0 --threads 2 --frontier --quiet --html "$work/page.html"
scripts/frontier-svg.py "$work/page.html" > "$out/frontier.svg"
