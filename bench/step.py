#!/usr/bin/env python3
"""A whole training step against PyTorch eager, in one run; prints one JSON object.

  step.py --ebb PROGRAM --sgemm PROGRAM [--peer peer_torch.py --python PYTHON] [--rounds 4] [--threads 2]

PYTHON is one that has torch and numpy; without it (or without the peer) ebb alone is measured. Both
sides run in turn, so that a noisy machine hurts both; each figure is the median over all rounds, and
ratios are medians of the rounds' ratios. `share` is the step's FLOP rate over the machine's own sgemm
rate, measured in the same rounds.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

OPTIMIZER = {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
GPT = {"name": "gpt6", "seed": 1,
       "model": {"type": "gpt", "layers": 6, "heads": 6, "width": 384, "context": 256, "vocab": 256},
       "data": {"type": "synthetic", "kind": "tokens", "items": 1024, "eval_items": 0},
       "train": {"steps": 9, "batch": 8, "optimizer": OPTIMIZER, "clip_norm": None}}
MLP = {"name": "mlp3", "seed": 1,
       "model": {"type": "mlp", "input": 784, "hidden": [1024, 1024], "output": 10, "activation": "relu"},
       "data": {"type": "synthetic", "kind": "samples", "items": 51200, "eval_items": 0},
       "train": {"steps": 150, "batch": 256, "optimizer": OPTIMIZER, "clip_norm": None}}
RECOMPUTE = ["--set", 'memory.recompute=["gelu","layernorm","dropout"]']


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s\nfailed with %d: %s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return json.loads(done.stdout)


class Bench:
    def __init__(self, args):
        self.args = args
        self.torch = os.path.exists(args.peer) and shutil.which(args.python) and subprocess.run(
            [args.python, "-c", "import torch, numpy"], capture_output=True).returncode == 0

    def ebb(self, config, extra=()):
        return run([self.args.ebb, "train", config, "--json", "--quiet", "--threads", str(self.args.threads), *extra])

    def peer(self, config, steps):
        return run([self.args.python, self.args.peer, "step", config, "--threads", str(self.args.threads),
                    "--steps", str(steps)])

    def sgemm(self):
        return run([self.args.sgemm, str(self.args.threads)])["gflops"]

    def race(self, config, steps, variants):
        """Rounds of ebb (each variant), torch and sgemm in turn; every other round in reverse order, since a
        processor that has rested is faster for a while."""
        rounds = []
        for i in range(self.args.rounds):
            r = {"sgemm": self.sgemm()}
            for name in list(variants)[::-1 if i % 2 else 1]:
                r[name] = self.ebb(config, variants[name])
            if self.torch:
                r["torch"] = self.peer(config, steps)
            rounds.append(r)
        flops = run([self.args.ebb, "estimate", config, "--json", "--threads", str(self.args.threads)])["flops"]
        return self.summary(rounds, variants, flops)

    def summary(self, rounds, variants, flops):
        median = lambda f: statistics.median(f(r) for r in rounds)
        out = {"flops": flops, "sgemm_gflops": median(lambda r: r["sgemm"])}
        for name in variants:
            step = lambda r: r[name]["step_ms"]
            out[name] = {"step_ms": median(step),
                         "share_of_sgemm": round(median(lambda r: flops / step(r) * 1e-6 / r["sgemm"]), 3),
                         "peak_requested_bytes": rounds[0][name]["peak_requested_bytes"],
                         "peak_allocated_bytes": rounds[0][name]["peak_allocated_bytes"],
                         "step_over_none": round(median(lambda r: step(r) / r["none"]["step_ms"]), 3)}
            if self.torch:
                out[name]["step_over_torch"] = round(median(lambda r: step(r) / r["torch"]["step_ms"]), 3)
                out[name]["peak_over_torch"] = round(
                    median(lambda r: r[name]["peak_requested_bytes"] / r["torch"]["peak_allocated_bytes"]), 3)
        if self.torch:
            out["torch"] = {"version": rounds[0]["torch"]["torch"], "step_ms": median(lambda r: r["torch"]["step_ms"]),
                            "peak_allocated_bytes": rounds[0]["torch"]["peak_allocated_bytes"]}
        return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--ebb", required=True)
    a.add_argument("--sgemm", required=True)
    a.add_argument("--peer", default=os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                  "../../shared/tools/peer_torch.py"))
    a.add_argument("--python", default=os.environ.get("EBB_TORCH_PYTHON", sys.executable))
    a.add_argument("--rounds", type=int, default=4)
    a.add_argument("--threads", type=int, default=2)
    bench = Bench(a.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for config in (GPT, MLP):
            paths[config["name"]] = os.path.join(folder, config["name"] + ".json")
            with open(paths[config["name"]], "w") as f:
                json.dump(config, f)
        result = {"bench": "step", "threads": bench.args.threads, "torch": bool(bench.torch),
                  "gpt": bench.race(paths["gpt6"], 8, {"none": [], "recompute": RECOMPUTE}),
                  "mlp": bench.race(paths["mlp3"], 100, {"none": []})}
    print(json.dumps(result, indent=1))


main()
