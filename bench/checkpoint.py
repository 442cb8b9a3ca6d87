#!/usr/bin/env python3
"""What checkpointing costs and saves: a 12-layer gpt, none against every:1 and sqrt; one JSON object.

  checkpoint.py --ebb PROGRAM [--rounds 5] [--threads 2]

The variants run in turn, several rounds; times are medians of the rounds' ratios to `none`.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

CONFIG = {"name": "gpt12", "seed": 1,
          "model": {"type": "gpt", "layers": 12, "heads": 4, "width": 256, "context": 256, "vocab": 256},
          "data": {"type": "synthetic", "kind": "tokens", "items": 1024, "eval_items": 0},
          "train": {"steps": 5, "batch": 8, "clip_norm": None,
                    "optimizer": {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}}
MODES = ["none", "every:1", "sqrt"]


def train(args, config, mode):
    done = subprocess.run([args.ebb, "train", config, "--json", "--quiet", "--threads", str(args.threads),
                           "--set", "memory.checkpoint=" + mode], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--ebb", required=True)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--threads", type=int, default=2)
    args = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpt12.json")
        with open(path, "w") as f:
            json.dump(CONFIG, f)
        rounds = [{mode: train(args, path, mode) for mode in MODES[::-1 if i % 2 else 1]} for i in range(args.rounds)]
    saved = lambda r: r["memory"]["activations"] + r["memory"]["recomputed"]
    none = rounds[0]["none"]
    out = {"bench": "checkpoint", "threads": args.threads, "runs": []}
    for mode in MODES:
        r = rounds[0][mode]
        out["runs"].append({
            "name": mode, "peak_allocated_bytes": r["peak_allocated_bytes"], "activation_bytes": saved(r),
            "activations_over_none": round(saved(r) / saved(none), 4),
            "peak_over_none": round(r["peak_allocated_bytes"] / none["peak_allocated_bytes"], 4),
            "step_ms": statistics.median(x[mode]["step_ms"] for x in rounds),
            "step_over_none": round(statistics.median(x[mode]["step_ms"] / x["none"]["step_ms"] for x in rounds), 3)})
    print(json.dumps(out, indent=1))


main()
