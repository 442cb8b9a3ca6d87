#!/usr/bin/env python3
"""Predicted against measured overhead of the plans for budgets from the largest to the smallest; one JSON object.

  plans.py --ebb PROGRAM [--rounds 9] [--budgets 25] [--threads 2] [--config FILE] [--offload]

Op times are calibrated on the config itself.  Budgets lie evenly between the frontier's ends; those that get the same
plan are one run.  Plans run in turn, several rounds, every other one backwards; `overhead` is the median of the
rounds' ratios to the round's first plan, which keeps everything, `overhead_of_fastest` the ratio of the fastest steps,
which a busy machine disturbs least.  Half of a model's bytes may cost less time than steps of one plan differ by:
`kendall_tau_apart` is of the pairs whose predictions are at least 0.01 apart.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

CONFIG = {"name": "gpt12", "seed": 1,
          "model": {"type": "gpt", "layers": 12, "heads": 4, "width": 256, "context": 128, "vocab": 256},
          "data": {"type": "synthetic", "kind": "tokens", "items": 1024, "eval_items": 0},
          "train": {"steps": 5, "batch": 8, "clip_norm": None,
                    "optimizer": {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}}

APART = 0.01


def ebb(args, *words):
    done = subprocess.run([args.ebb, *words, "--json", "--threads", str(args.threads)], capture_output=True, text=True,
                          env={**os.environ, "EBB_CALIBRATION": args.calibration})
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def kendall(pairs, apart=0):
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2) if abs(a[0] - b[0]) >= apart]
    return round(sum((s > 0) - (s < 0) for s in signs) / len(signs), 3) if signs else None


def agreement(runs, measured):
    pairs = [(r["predicted_overhead"], r[measured]) for r in runs]
    return {"largest_error": round(max(abs(a - b) for a, b in pairs), 4), "kendall_tau": kendall(pairs),
            "kendall_tau_apart": kendall(pairs, APART)}


def plans(args, config, folder):
    """The plans of the budgets, each once, the largest first."""
    more = ["--allocated"] + ["--offload"] * args.offload
    points = [p["predicted_peak_allocated_bytes"] for p in ebb(args, "plan", config, "--frontier", *more)["points"]]
    largest, smallest = max(points), min(points)
    found = {}
    for i in range(args.budgets):
        budget = largest - (largest - smallest) * i // (args.budgets - 1)
        path = os.path.join(folder, f"plan{i}.json")
        plan = ebb(args, "plan", config, *more, "--budget", str(budget), "--write", path)
        found.setdefault(plan["predicted_peak_allocated_bytes"], {**plan, "file": path})
    return list(found.values())


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--ebb", required=True)
    a.add_argument("--rounds", type=int, default=9)
    a.add_argument("--budgets", type=int, default=25)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--config")
    a.add_argument("--offload", action="store_true", help="blocks may wait in host memory")
    args = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = args.config or os.path.join(folder, "config.json")
        args.calibration = os.path.join(folder, "calibration.json")
        if not args.config:
            with open(config, "w") as f:
                json.dump(CONFIG, f)
        ebb(args, "info", "--calibrate", config)
        points = plans(args, config, folder)
        if len(points) < 2:
            sys.exit("plans: all budgets get the same plan: there is nothing to rank")
        rounds = []
        for k in range(args.rounds):
            order = range(len(points)) if k % 2 == 0 else reversed(range(len(points)))
            runs = {i: ebb(args, "train", config, "--quiet", "--set", "memory.checkpoint=plan:" + points[i]["file"])
                    for i in order}
            rounds.append(runs)
    runs = []
    for i, p in enumerate(points):
        measured = statistics.median(r[i]["step_ms"] / r[0]["step_ms"] for r in rounds) - 1
        fastest = min(r[i]["step_ms"] for r in rounds) / min(r[0]["step_ms"] for r in rounds) - 1
        runs.append({"predicted_overhead": round(p["predicted_overhead"], 4), "overhead": round(measured, 4),
                     "overhead_of_fastest": round(fastest, 4),
                     "predicted_peak_allocated_bytes": p["predicted_peak_allocated_bytes"],
                     "peak_allocated_bytes": rounds[0][i]["peak_allocated_bytes"],
                     "peak_host_bytes": rounds[0][i]["host_peak_reserved_bytes"]})
    print(json.dumps({"bench": "plans", "threads": args.threads, "rounds": args.rounds, "runs": runs,
                      **agreement(runs, "overhead"), "of_fastest": agreement(runs, "overhead_of_fastest")}, indent=1))


main()
