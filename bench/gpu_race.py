#!/usr/bin/env python3
"""ebb on a GPU: are its results and its predictions right, and how fast is it beside PyTorch?  One JSON object.

  gpu_race.py --ebb PROGRAM --ops PROGRAM [--device cuda] [--out FOLDER] [--python PYTHON] [--seconds 460]
              [--dtypes f32,bf16] [--steps 10] [--most SECONDS] [--tiny] [--dry]
  gpu_race.py torch CONFIG --dtype f32|bf16 --checkpoint none|every:1 [--compile] [--steps N] [--device cuda]

The first form runs, each in a process of its own, and stops beginning new ones when the seconds are over:

  ops        every op's cases on the device against the CPU (bench/gpu_ops.c)
  estimate   the peak that `ebb estimate --device dry:DEVICE:0` predicts
  train      the same config on the device: the measured peak must be the predicted one; tokens per second
  trace      one step's memory events, into FOLDER
  torch      the second form: the same model, batch and optimizer in PyTorch, eager and compiled

PYTHON (or $EBB_TORCH_PYTHON) is one that has torch; without it those runs are skipped, which the object says.
bf16 in PyTorch is autocast over parameters in f32.  Products of f32 are without TF32 on both sides.
No command takes longer than --most.  The config that they read is written to FOLDER.
Without --out FOLDER is a new temporary one; the object names it.
--tiny and --device cpu try the script itself on a machine without a GPU; --dry writes the config and lists the
commands, which can be run as they stand.
The exit status is 1 where an op differs, a prediction is wrong, one of ebb's runs failed or nothing was checked.
"""
import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.abspath(__file__)
OPTIMIZER = {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
FULL = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304}
TINY = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocab": 64}
CHECKPOINTS = ["none", "every:1"]
DTYPES = ["f32", "bf16"]


def config(model, steps):
    return {"name": "gpt", "seed": 1, "model": {"type": "gpt", **model},
            "data": {"type": "synthetic", "kind": "tokens", "items": 64, "eval_items": 0},
            "train": {"steps": steps, "batch": 8, "clip_norm": None, "optimizer": OPTIMIZER}}


# ---- arguments ---------------------------------------------------------------------------------------------


def count(text):
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f'"{text}": expected a whole number in 1..1000000')
    return int(text)


def seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not value >= 0:  # nor NaN
        raise argparse.ArgumentTypeError(f'"{text}": expected a number of seconds of at least 0')
    return value


def dtypes(text):
    names = text.split(",")
    for name in names:
        if name not in DTYPES:
            raise argparse.ArgumentTypeError(f'"{name}": expected some of {", ".join(DTYPES)}, commas between')
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f'"{text}": each dtype once')
    return names


def folder(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f'"{path}": {error.strerror}; expected a folder')
    if not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f'"{path}": expected a folder that can be written to')
    return path


# ---- the race ----------------------------------------------------------------------------------------------


def run_limited(command, seconds):
    """As subprocess.run() with a timeout, which here ends the command's own children too: left behind they would
    take time from what is measured next."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def write_config(path, model, steps):
    with open(path + ".new", "w") as f:
        json.dump(config(model, steps), f)
    os.replace(path + ".new", path)


class Race:
    """Runs commands while there is time; `results` is what is printed."""

    def __init__(self, args, path):
        self.args, self.path = args, path
        self.deadline = args.started + args.seconds
        self.commands, self.skipped, self.failed = [], [], []
        self.checked = 0  # ops' cases, and peaks that were compared

    def limited(self, what, command, limit, required):
        """What the command did; None where there was no time, this is a dry run, or it took too long."""
        self.commands.append(shlex.join(command))
        if self.args.dry:
            return None
        left = self.deadline - time.time()
        if left < 5:
            self.skipped.append(what + ": no time left")
            return None
        limit = min(limit, left, self.args.most)
        try:
            return run_limited(command, limit)
        except subprocess.TimeoutExpired:
            self.note(what, "took longer than %.3g s" % limit, required)
        except OSError as error:
            self.note(what, str(error), required)
        return None

    def run(self, what, command, limit, required=True, even_failed=False):
        """The command's JSON object; None where there was no time, this is a dry run or (unless even_failed) it
        failed."""
        done = self.limited(what, command, limit, required)
        if not done:
            return None
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            self.note(what, "status %d: %s" % (done.returncode, said[-1] if said else ""), required)
        return found if done.returncode == 0 or even_failed else None

    def note(self, what, text, required):
        (self.failed if required else self.skipped).append("%s: %s" % (what, text))

    def ebb(self, what, command, dtype, checkpoint, device, extra=(), limit=60):
        return self.run(what, [self.args.ebb, command, self.path, "--json", "--quiet", "--device", device,
                               "--set", "train.precision=" + dtype, "--set", "memory.checkpoint=" + checkpoint,
                               *extra], limit)

    def torch(self, what, dtype, checkpoint, compiled, limit):
        return self.run(what, [self.args.python, HERE, "torch", self.path, "--dtype", dtype, "--checkpoint", checkpoint,
                               "--steps", str(self.args.steps), "--device", self.args.device,
                               *(["--compile"] if compiled else [])], limit, required=False)

    def has_torch(self):
        code = "import torch, sys; sys.exit(not (sys.argv[1] == 'cpu' or torch.cuda.is_available()))"
        done = self.limited("torch", [self.args.python, "-c", code, self.args.device], 60, required=False)
        if done and done.returncode != 0:
            said = done.stderr.strip().splitlines()
            self.skipped.append("torch: %s" % (said[-1] if said else "it finds no GPU"))
        return self.args.dry or (done is not None and done.returncode == 0)


def predict_and_measure(race, row):
    """Peaks of a dry run and of a run, and the run's speed."""
    name = "%s, checkpoint %s" % (row["dtype"], row["checkpoint"])
    numbered = race.args.device == "cpu" or ":" in race.args.device
    dry = "dry:" + race.args.device + ("" if numbered else ":0")
    found = race.ebb("estimate " + name, "estimate", row["dtype"], row["checkpoint"], dry)
    if found:
        row["predicted_peak_bytes"] = found.get("peak_allocated_bytes")
        row["parameters"], row["flops"] = found.get("parameters"), found.get("flops")
    found = race.ebb("train " + name, "train", row["dtype"], row["checkpoint"], race.args.device, limit=120)
    if not found:
        return
    row["ebb"] = {key: found.get(key) for key in
                  ("device", "step_ms", "tokens_per_s", "peak_allocated_bytes", "peak_reserved_bytes", "loss_first",
                   "loss_last")}
    race.checked += 1
    row["predicted_is_measured"] = row["ebb"]["peak_allocated_bytes"] == row.get("predicted_peak_bytes")
    if not row["predicted_is_measured"]:
        race.failed.append("train %s: the peak is %s bytes, predicted were %s" %
                           (name, row["ebb"]["peak_allocated_bytes"], row.get("predicted_peak_bytes")))


def trace(race, result):
    """One step's memory events: a summary here, all of them in files."""
    files = {name: os.path.join(race.args.out, "gpu-%s.json" % name) for name in ("perfetto", "snapshot")}
    extra = [word for name in files for word in ("--" + name, files[name])]
    found = race.ebb("trace", "trace", race.args.dtypes[0], "every:1", race.args.device, extra, 90)
    if found:
        run = found["runs"][0]
        result["trace"] = {key: run.get(key) for key in ("device", "last_step", "events", "blocks", "fragmentation",
                                                         "peak_allocated_bytes")}
        result["trace"]["files"] = files


def race_torch(race, row, compiled):
    kind = "torch_compiled" if compiled else "torch_eager"
    what = "%s %s, checkpoint %s" % (kind, row["dtype"], row["checkpoint"])
    found = race.torch(what, row["dtype"], row["checkpoint"], compiled, 150 if compiled else 60)
    if not found:
        return
    row[kind] = found
    ebb = row.get("ebb")
    if ebb and ebb["tokens_per_s"]:
        row["speed_over_" + kind] = round(ebb["tokens_per_s"] / found["tokens_per_s"], 3)
        if found["peak_allocated_bytes"]:
            row["peak_over_" + kind] = round(ebb["peak_allocated_bytes"] / found["peak_allocated_bytes"], 3)
    if row.get("parameters") not in (None, found["parameters"]):
        race.failed.append("%s: %d parameters, ebb has %d" % (what, found["parameters"], row["parameters"]))


def race_all(args):
    model = TINY if args.tiny else FULL
    args.out = os.path.abspath(args.out or tempfile.mkdtemp(prefix="ebb-gpu-"))
    race = Race(args, os.path.join(args.out, "gpu-gpt.json"))
    write_config(race.path, model, args.steps)
    result = {"bench": "gpu", "device": args.device, "folder": args.out, "model": model, "batch": 8}
    result["info"] = race.run("info", [args.ebb, "info", "--json", "--device", args.device], 30)
    result["ops"] = race.run("ops", [args.ops, args.device], 120, even_failed=True)
    race.checked += (result["ops"] or {}).get("cases", 0)
    result["runs"] = [{"dtype": dtype, "checkpoint": checkpoint}
                      for dtype in args.dtypes for checkpoint in CHECKPOINTS]
    for row in result["runs"]:
        predict_and_measure(race, row)
    trace(race, result)
    if race.has_torch():
        for compiled in (False, True):
            for row in result["runs"]:
                race_torch(race, row, compiled)
    if args.dry:
        print(json.dumps({"bench": "gpu", "dry": True, "folder": args.out, "commands": race.commands}, indent=1))
        return 0
    if race.checked == 0:
        race.failed.append("nothing was checked: no op ran, and no peak was compared")
    result.update(checked=race.checked, skipped=race.skipped, failed=race.failed,
                  seconds=round(time.time() - args.started, 1))
    print(json.dumps(result, indent=1))
    return 1 if race.failed else 0


# ---- the same model in PyTorch -----------------------------------------------------------------------------


def gpt_class(torch):
    """GPT-2's layout, as ebb's `gpt` has it by default: learned positions, layernorm before each half of a block,
    gelu (tanh), biases, tied embeddings."""
    nn, F = torch.nn, torch.nn.functional
    from torch.utils.checkpoint import checkpoint

    def attend(q, k, v):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        t = q.shape[-2]
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        later = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ v

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):  # [B, T, C]
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(c, -1)
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
            x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self, m, checkpointed):
            super().__init__()
            self.checkpointed = checkpointed
            self.tokens = nn.Embedding(m["vocab"], m["width"])
            self.positions = nn.Embedding(m["context"], m["width"])
            self.blocks = nn.ModuleList(Block(m["width"], m["heads"]) for _ in range(m["layers"]))
            self.norm = nn.LayerNorm(m["width"])
            for p in (self.tokens.weight, self.positions.weight):
                nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):  # i64 [B, T] each
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    return GPT


def torch_main(arguments):
    a = argparse.ArgumentParser()
    a.add_argument("config")
    a.add_argument("--dtype", choices=DTYPES, required=True)
    a.add_argument("--checkpoint", choices=CHECKPOINTS, required=True)
    a.add_argument("--compile", action="store_true")
    a.add_argument("--steps", type=count, default=10)
    a.add_argument("--device", default="cuda")
    o = a.parse_args(arguments)
    import torch
    with open(o.config) as f:
        config = json.load(f)
    m, batch, cuda = config["model"], config["train"]["batch"], o.device != "cpu"
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = gpt_class(torch)(m, o.checkpoint != "none").to(o.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"],
                                  weight_decay=OPTIMIZER["weight_decay"], **({"fused": True} if cuda else {}))
    compute = torch.compile(model) if o.compile else model
    ids = torch.randint(0, m["vocab"], (batch, m["context"] + 1), device=o.device)
    tokens, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if cuda else "cpu", dtype=torch.bfloat16, enabled=o.dtype == "bf16"):
            loss = compute(tokens, targets)
        loss.backward()
        optimizer.step()
        return float(loss.detach())  # waits

    first = [step() for _ in range(3)][0]
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(o.steps):
        begun = time.perf_counter()
        last = step()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    median = statistics.median(times)
    print(json.dumps({
        "torch": torch.__version__, "step_ms": round(median * 1e3, 3),
        "tokens_per_s": round(batch * m["context"] / median, 1),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved() if cuda else None,
        "parameters": sum(p.numel() for p in model.parameters()), "loss_first": first, "loss_last": last}))
    return 0


def main():
    if sys.argv[1:2] == ["torch"]:
        return torch_main(sys.argv[2:])
    a = argparse.ArgumentParser(allow_abbrev=False)  # gpu.sh looks for --dry itself
    a.add_argument("--ebb", required=True)
    a.add_argument("--ops", required=True)
    a.add_argument("--device", default="cuda")
    a.add_argument("--out", type=folder, help="folder for the config and the trace; else a new temporary one, which is named")
    a.add_argument("--python", default=os.environ.get("EBB_TORCH_PYTHON", sys.executable))
    a.add_argument("--seconds", type=seconds, default=460, help="since --started, the build's time included")
    a.add_argument("--most", type=seconds, default=float("inf"))
    a.add_argument("--started", type=seconds, default=time.time())
    a.add_argument("--dtypes", type=dtypes, default=DTYPES)
    a.add_argument("--steps", type=count, default=10)
    a.add_argument("--tiny", action="store_true")
    a.add_argument("--dry", action="store_true")
    a.add_argument("--check", action="store_true", help="only says what is wrong with the options")
    args = a.parse_args()
    return 0 if args.check else race_all(args)


if __name__ == "__main__":
    sys.exit(main())
