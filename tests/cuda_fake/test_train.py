#!/usr/bin/env python3
"""The command on the CUDA plugin, which runs over the fake runtime (support/cuda_fake) with emulated kernels: what
a user sees.  usage: test_train.py PROGRAM PLUGIN PROJECT"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PLUGIN, PROJECT = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
MLP, GPT = (os.path.join(PROJECT, "models", name) for name in ("mlp-synthetic.json", "gpt-synthetic.json"))
SMALL = {MLP: ["--steps", "4"], GPT: ["--steps", "2", "--set", "train.batch=2", "--set", "data.eval_items=4"]}
DONE, FAILED, USAGE, NO_MEMORY = 0, 1, 2, 3


def ebb(*arguments, plugin=PLUGIN, **fake):
    """Fake: options of the runtime, FAKE_CUDA_<NAME>."""
    env = {**os.environ, "EBB_PLUGIN_PATH": plugin, **{"FAKE_CUDA_" + name: str(value) for name, value in fake.items()}}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100, env=env)


def ebb_json(*arguments, status=DONE, **fake):
    run = ebb(*arguments, "--json", **fake)
    if run.returncode != status:
        raise AssertionError(f"{arguments}: exit {run.returncode}, not {status}: {run.stderr}")
    return json.loads(run.stdout)


def ebb_report(*arguments, status=DONE, **fake):
    """The command's JSON, and what the runtime counted."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        answer = ebb_json(*arguments, status=status, REPORT=path, **fake)
        with open(path) as file:
            return answer, json.load(file)


class Train(unittest.TestCase):
    def check(self, config, **fake):
        cpu = ebb_json("train", config, *SMALL[config], "--device", "cpu")
        cuda, counts = ebb_report("train", config, *SMALL[config], "--device", "cuda", **fake)
        for key in ("loss_first", "loss_last", "eval_loss"):
            self.assertAlmostEqual(cuda[key], cpu[key], delta=1e-4 * (1 + abs(cpu[key])))
        self.assertEqual(cuda["device"], "cuda:0")
        self.assertEqual(counts["alive"], 0, counts)
        self.assertGreater(counts["launches"], 0)
        self.assertGreater(counts["products"], 0)
        return cuda

    def test_an_mlp_as_on_the_cpu_and_as_estimated(self):
        cuda = self.check(MLP)
        said = ebb_json("estimate", MLP, *SMALL[MLP], "--device", "dry:cuda:0")
        for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes", "memory"):
            self.assertEqual(said[key], cuda[key])

    def test_a_gpt_as_on_the_cpu_and_as_estimated(self):
        cuda = self.check(GPT, STREAMS="deferred", SEED=5)
        said = ebb_json("estimate", GPT, *SMALL[GPT], "--device", "dry:cuda:0")
        for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes", "memory"):
            self.assertEqual(said[key], cuda[key])

    def test_the_host_never_touches_device_memory(self):
        self.check(MLP, PROTECT=1, STREAMS="deferred", SEED=2)

    def test_a_run_is_saved_and_goes_on_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            ebb_json("train", MLP, "--steps", "3", "--out", out, "--device", "cuda")
            more = ebb_json("train", MLP, "--steps", "5", "--resume", out, "--device", "cpu")
            straight = ebb_json("train", MLP, "--steps", "5", "--device", "cpu")
            self.assertAlmostEqual(more["loss_last"], straight["loss_last"], delta=1e-4)

    def test_a_full_device_exits_with_3_and_says_what_would_help(self):
        answer, counts = ebb_report("train", GPT, "--device", "cuda", "--set", "train.batch=64", status=NO_MEMORY, MIB=22)
        self.assertEqual(answer["error"]["code"], "ENOMEM")
        self.assertIn("limit", answer["error"]["message"])
        self.assertEqual(counts["alive"], 0, counts)

    def test_a_call_that_fails_is_told(self):
        _, counts = ebb_report("train", MLP, *SMALL[MLP], "--device", "cuda")
        for n in range(1, counts["calls"], max(1, counts["calls"] // 16)):
            with self.subTest(n=n), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "report.json")
                run = ebb("train", MLP, *SMALL[MLP], "--device", "cuda", FAIL_NTH=n, REPORT=path)
                self.assertIn(run.returncode, (DONE, FAILED, USAGE, NO_MEMORY), run.stderr)
                if run.returncode:
                    self.assertIn("ebb: ", run.stderr)
                with open(path) as file:
                    self.assertEqual(json.load(file)["alive"], 0, run.stderr)


class Device(unittest.TestCase):
    def test_without_a_driver_the_reason_is_told(self):
        run = ebb("train", MLP, "--device", "cuda", DRIVER=0)
        self.assertEqual(run.returncode, USAGE)
        self.assertIn("no NVIDIA driver", run.stderr)

    def test_info_names_device_and_libraries(self):
        run = ebb("info")
        self.assertEqual(run.returncode, DONE)
        for words in ("Fake 0", "cuBLAS", "cuDNN"):
            self.assertIn(words, run.stdout)

    def test_gradients_are_checked_there(self):
        run = ebb("gradcheck", "mse", "--device", "cuda") # all take minutes; tests/cuda compares every op
        self.assertEqual(run.returncode, DONE, run.stdout + run.stderr)
        self.assertIn(" 0 failed", run.stdout)


if __name__ == "__main__":
    unittest.main()
