#!/usr/bin/env python3
"""A 72-layer gpt under checkpointing and plans: bytes, time and recompute FLOPs; one JSON object.

  deep72.py --ebb PROGRAM [--rounds 9] [--threads 2] [--layers 72]

Op times are calibrated on the model itself: how much memory a step walks over is part of its time.  The variants run
in turn, several rounds, every other one backwards; `overhead` is the median of each round's ratio to its own `none`,
`overhead_of_fastest` the ratio of the fastest steps, which a busy machine disturbs least.  `dry` is the same model at
the batch that needs 32 GB, planned for 18 GB.

Activations and what is recomputed are told twice, as shares of none's: at the instant of the peak of all bytes
(`activations_at_peak_over_none`), where a small plan holds mostly gradients, and the largest over a whole step
(`activations_over_none`, from a dry trace).
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

CONFIG = {"name": "deep72", "seed": 1,
          "model": {"type": "gpt", "layers": 72, "heads": 4, "width": 128, "context": 128, "vocab": 256},
          "data": {"type": "synthetic", "kind": "tokens", "items": 4096, "eval_items": 0},
          "train": {"steps": 2, "batch": 32, "clip_norm": None,
                    "optimizer": {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}}
# name: share of none's reserved peak.  "smallest" is the smallest plan of the frontier with at most MOST_ADDED time.
# A run's time is that of its second step: the first one's memory is new to the process.
BUDGETS = {"budget 0.56": 0.56, "budget 0.35": 0.35}
MOST_ADDED = 0.60  # predicted
FIXED = {"none": ["memory.checkpoint=none"], "every:1": ["memory.checkpoint=every:1"],
         "sqrt": ["memory.checkpoint=sqrt"], "cheap ops": ['memory.recompute=["gelu","layernorm"]']}


def ebb(args, *words):
    done = subprocess.run([args.ebb, *words, "--json", "--threads", str(args.threads)], capture_output=True, text=True,
                          env={**os.environ, "EBB_CALIBRATION": args.calibration})
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def sets(values):
    return [word for value in values for word in ("--set", value)]


def train(args, config, folder, values):
    out = os.path.join(folder, "run")
    result = ebb(args, "train", config, "--quiet", "--out", out, *sets(values))
    with open(os.path.join(out, "metrics.jsonl")) as f:
        result["step_ms"] = [json.loads(line)["step_ms"] for line in f][-1]
    shutil.rmtree(out)
    return result


def plans(args, config, folder):
    """Sets and predicted overhead by name."""
    none = ebb(args, "estimate", config)
    points = ebb(args, "plan", config, "--frontier")["points"]
    asked = {name: int(none["peak_reserved_bytes"] * part) for name, part in BUDGETS.items()}
    asked["smallest"] = min(p["predicted_peak_reserved_bytes"] for p in points if p["predicted_overhead"] <= MOST_ADDED)
    found = {}
    for name, budget in asked.items():
        path = os.path.join(folder, name.replace(" ", "-") + ".json")
        plan = ebb(args, "plan", config, "--budget", str(budget), "--write", path)
        found[name] = (["memory.checkpoint=plan:" + path], plan["predicted_overhead"])
    return found


def largest_activations(args, config, folder, values):
    """Of activations and what is recomputed, together, at any instant of a step."""
    path = os.path.join(folder, "trace.json")
    ebb(args, "trace", config, "--device", "dry:cpu", "--perfetto", path, *sets(values))
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    now, largest = {}, 0
    for event in (e for e in events if e["ph"] == "C"):
        now[event["name"]] = event["args"]["bytes"]
        largest = max(largest, now.get("activations", 0) + now.get("recomputed", 0))
    return largest


def dry_32(args, config):
    """The largest batch of 32 GB without checkpointing, and what 18 GB make of it."""
    gb = 10 ** 9
    batch = ebb(args, "max-batch", config, "--limit", str(32 * gb))["batch"]
    out = {"batch": batch}
    larger = ["--set", f"train.batch={batch}"]
    out["none"] = {k: ebb(args, "estimate", config, *larger)[k] for k in ("peak_allocated_bytes", "peak_reserved_bytes")}
    plan = ebb(args, "plan", config, *larger, "--budget", str(18 * gb))
    out["budget 18 GB"] = {k: plan[k] for k in ("predicted_peak_reserved_bytes", "predicted_peak_allocated_bytes",
                                                "predicted_overhead")}
    points = ebb(args, "plan", config, *larger, "--frontier")["points"]
    out["smallest"] = {k: points[-1][k] for k in out["budget 18 GB"]}
    return out


def row(name, values, largest, rounds, predicted):
    runs = [r[name] for r in rounds]
    one, none = runs[0], rounds[0]["none"]
    saved = lambda r: r["memory"]["activations"] + r["memory"]["recomputed"]
    return {"name": name, "peak_allocated_bytes": one["peak_allocated_bytes"],
            "peak_reserved_bytes": one["peak_reserved_bytes"],
            "allocated_over_none": round(one["peak_allocated_bytes"] / none["peak_allocated_bytes"], 4),
            "reserved_over_none": round(one["peak_reserved_bytes"] / none["peak_reserved_bytes"], 4),
            "activations_over_none": round(largest[name] / largest["none"], 4),
            "activations_at_peak_over_none": round(saved(one) / saved(none), 4),
            "recompute_flops": values["recompute_flops"], "flops": values["flops"],
            "step_ms": round(statistics.median(r["step_ms"] for r in runs), 1),
            "overhead": round(statistics.median(r[name]["step_ms"] / r["none"]["step_ms"] for r in rounds) - 1, 4),
            "overhead_of_fastest": round(min(r["step_ms"] for r in runs) / min(r["none"]["step_ms"] for r in rounds) - 1, 4),
            "predicted_overhead": predicted}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--ebb", required=True)
    a.add_argument("--rounds", type=int, default=9)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--layers", type=int, default=CONFIG["model"]["layers"])
    args = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "deep72.json")
        args.calibration = os.path.join(folder, "calibration.json")
        CONFIG["model"]["layers"] = args.layers
        with open(config, "w") as f:
            json.dump(CONFIG, f)
        ebb(args, "info", "--calibrate", config)
        found = plans(args, config, folder)
        variants = {**FIXED, **{name: values for name, (values, _) in found.items()}}
        rounds = [{name: train(args, config, folder, variants[name]) for name in list(variants)[::1 if k % 2 == 0 else -1]}
                  for k in range(args.rounds)]
        costs = {name: ebb(args, "estimate", config, *sets(values)) for name, values in variants.items()}
        largest = {name: largest_activations(args, config, folder, values) for name, values in variants.items()}
        out = {"bench": "deep72", "threads": args.threads, "rounds": args.rounds, "layers": args.layers,
               "runs": [row(name, costs[name], largest, rounds, found[name][1] if name in found else None) for name in variants],
               "dry": dry_32(args, config)}
    print(json.dumps(out, indent=1))


main()
