#!/usr/bin/env python3
"""Makes the files that test_golden.c reads: make.py PEER [NAME...]

PEER is the path of the program that builds the same models in PyTorch (its `emit` mode writes
weights, a batch and gradients).  Run this with a Python that has torch and numpy.  Each folder here
with a config.json gets weights, batch and gradients in f64 and the loss; NAME... makes only those.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

FILES = ("weights.safetensors", "batch.safetensors", "grads.safetensors", "meta.json")


def make(peer, folder):
    with tempfile.TemporaryDirectory() as scratch:
        emit = [sys.executable, peer, "emit", str(folder / "config.json"), scratch, "--dtype", "f64",
                "--threads", "1"]
        subprocess.run(emit, check=True, stdout=subprocess.DEVNULL)
        for name in FILES:
            (folder / name).write_bytes((pathlib.Path(scratch) / name).read_bytes())
    loss = json.loads((folder / "meta.json").read_text())["loss"]
    size = sum((folder / name).stat().st_size for name in FILES)
    print(f"{folder.name}: loss {loss:.6f}, {size} bytes")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    here = pathlib.Path(__file__).resolve().parent
    wanted = sys.argv[2:]
    for config in sorted(here.glob("*/config.json")):
        if not wanted or config.parent.name in wanted:
            make(sys.argv[1], config.parent)


main()
