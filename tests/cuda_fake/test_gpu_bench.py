#!/usr/bin/env python3
"""bench/gpu.sh's parts on the fake device, so that they work on the day when there is a GPU.

Usage: test_gpu_bench.py EBB GPU_OPS PLUGIN SOURCE_DIR
"""
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

EBB, OPS, PLUGIN, SOURCE = sys.argv[1:5]
RACE = str(Path(SOURCE) / "bench" / "gpu_race.py")
SCRIPT = str(Path(SOURCE) / "bench" / "gpu.sh")
NEVER_ENDS = "sleep 3000 & sleep 3000"


def run(command, plugin=PLUGIN, **env):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "EBB_PLUGIN_PATH": plugin, **env})
    return done.returncode, done.stdout, done.stderr


def write_program(folder, name, text):
    path = Path(folder) / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return str(path)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Ops(unittest.TestCase):
    def test_every_op_through_the_public_interface(self):
        status, out, err = run([OPS, "cuda"])
        found = json.loads(out)
        self.assertEqual((status, found["failures"], err), (0, [], ""))
        self.assertGreater(found["cases"], 1000)
        self.assertGreater(found["worst_f32"], 0, "equal bits everywhere: was it the CPU on both sides?")

    def test_a_device_that_is_not_there(self):
        status, out, err = run([OPS, "cuda"], plugin="/nowhere/libebb_cuda.so")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("device cuda", err)


class Race(unittest.TestCase):
    def race(self, *more):
        with tempfile.TemporaryDirectory() as folder:
            status, out, _ = run([sys.executable, RACE, "--ebb", EBB, "--ops", OPS, "--tiny", "--steps", "2", "--dtypes",
                                  "f32,bf16", "--python", "/nowhere/python3", "--out", folder, *more])
            files = sorted(path.name for path in Path(folder).iterdir())
        return status, json.loads(out), files

    def test_predicted_peaks_are_the_measured_ones(self):
        status, found, files = self.race()
        self.assertEqual((status, found["failed"]), (0, []))
        self.assertEqual([row["checkpoint"] for row in found["runs"]], ["none", "every:1"] * 2)
        for row in found["runs"]:
            self.assertEqual(row["ebb"]["device"], "cuda:0")
            self.assertTrue(row["predicted_is_measured"])
        self.assertLess(found["runs"][1]["ebb"]["peak_allocated_bytes"], found["runs"][0]["ebb"]["peak_allocated_bytes"])
        self.assertEqual(files, ["gpu-gpt.json", "gpu-perfetto.json", "gpu-snapshot.json"])
        self.assertEqual(found["checked"], found["ops"]["cases"] + 4)
        self.assertEqual(len(found["skipped"]), 1)
        self.assertIn("torch", found["skipped"][0])

    def test_a_race_that_skips_everything_fails(self):
        status, found, files = self.race("--seconds", "0")
        self.assertEqual((status, files, found["checked"]), (1, ["gpu-gpt.json"], 0))
        self.assertEqual(found["failed"], ["nothing was checked: no op ran, and no peak was compared"])
        for what in ("info", "ops", "train bf16, checkpoint every:1", "trace", "torch"):
            self.assertIn(what + ": no time left", found["skipped"])

    def test_no_command_is_waited_for_without_a_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            children = Path(folder, "children")
            endless = write_program(folder, "endless", f"sleep 3000 & echo $! >> {children}; wait")
            status, found, _ = self.race("--most", "0.3", "--dtypes", "f32", "--ebb", endless, "--ops", endless, "--python",
                                         endless)
            pids = children.read_text().split()
        self.assertEqual(status, 1)
        self.assertGreater(len(pids), 4)
        while any(is_running(pid) for pid in pids):  # they have been told to end; else the test does not
            time.sleep(0.01)
        for what in ("info", "ops", "train f32, checkpoint none", "trace"):
            self.assertIn(what + ": took longer than 0.3 s", found["failed"])
        self.assertIn("torch: took longer than 0.3 s", found["skipped"])

    def test_a_failing_run_is_told(self):
        status, found, _ = self.race("--device", "cuda:7")
        self.assertEqual(status, 1)
        self.assertTrue(any(text.startswith("train f32") for text in found["failed"]), found["failed"])

    def test_dry_lists_the_commands(self):
        with tempfile.TemporaryDirectory(suffix=" with spaces") as folder:
            status, out, _ = run([sys.executable, RACE, "--ebb", EBB, "--ops", OPS, "--tiny", "--dry", "--out", folder])
            found = json.loads(out)
            self.assertEqual((status, found["folder"], os.listdir(folder)), (0, folder, ["gpu-gpt.json"]))
            estimates = [command for command in found["commands"] if " estimate " in command]
            self.assertIn("dry:cuda:0", estimates[0])
            status, out, err = run(["sh", "-c", estimates[0]])
            self.assertEqual(status, 0, err)
            self.assertGreater(json.loads(out)["peak_allocated_bytes"], 0)
        for what in ("import torch", "--compile", "--perfetto"):
            self.assertTrue(any(what in command for command in found["commands"]), what)

    def test_a_numbered_device_is_predicted_as_that_one(self):
        for device, dry in (("cuda:1", "dry:cuda:1"), ("cuda", "dry:cuda:0"), ("cpu", "dry:cpu")):
            with tempfile.TemporaryDirectory() as out:
                status, said, err = run([sys.executable, RACE, "--ebb", EBB, "--ops", OPS, "--dry", "--out", out,
                                         "--device", device])
                self.assertEqual(status, 0, err)
                estimates = [shlex.split(c) for c in json.loads(said)["commands"] if " estimate " in c]
                self.assertTrue(estimates and all(dry in words for words in estimates), (device, estimates))

    def test_nothing_is_written_where_it_is_called(self):
        with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as temporary:
            done = subprocess.run([sys.executable, RACE, "--ebb", EBB, "--ops", OPS, "--tiny", "--dry"], cwd=here,
                                  capture_output=True, text=True, env={**os.environ, "TMPDIR": temporary})
            found = json.loads(done.stdout)
            self.assertEqual((done.returncode, os.listdir(here)), (0, []))
            self.assertEqual(os.path.dirname(found["folder"]), temporary)
            self.assertEqual(os.listdir(found["folder"]), ["gpu-gpt.json"])

    def test_wrong_values_are_refused_with_what_is_allowed(self):
        for option, value, allowed in (
                ("--dtypes", "f99", '"f99": expected some of f32, bf16'), ("--dtypes", "f32,", '"": expected some of'),
                ("--dtypes", "f32,f32", "each dtype once"), ("--steps", "0", '"0": expected a whole number in 1..'),
                ("--steps", "-1", "expected"), ("--steps", "2.5", "expected a whole number"),
                ("--seconds", "soon", "of at least 0"), ("--most", "nan", "of at least 0")):
            status, out, err = run([sys.executable, RACE, "--ebb", EBB, "--ops", OPS, "--dry", option + "=" + value])
            self.assertEqual((status, out), (2, ""), (option, value))
            self.assertIn(option + ": ", err)
            self.assertIn(allowed, err)


class Script(unittest.TestCase):
    """bench/gpu.sh with a cmake of ours; nothing is installed."""

    def script(self, *options, cmake="exit 0", **env):
        with tempfile.TemporaryDirectory(suffix=" with spaces") as folder:
            for name, text in (("cmake", cmake), ("dpkg-query", "echo installed"), ("apt-get", "exit 1")):
                write_program(folder, name, text)
            return run(["sh", SCRIPT, "--out", folder, *options], PATH=folder + ":" + os.environ["PATH"],
                       EBB_GPU_BUILD=os.path.join(folder, "build"), **env)

    def test_dry_lists_the_builds_commands_too(self):
        status, out, err = self.script("--dry", cmake="exit 1")
        self.assertEqual(status, 0, err)
        listed = [shlex.split(line) for line in err.splitlines()]
        self.assertEqual([line[0] for line in listed], [SCRIPT.replace("bench/gpu.sh", "scripts/install-packages.sh"),
                                                        "cmake", "cmake"])
        self.assertTrue(listed[1][4].endswith(" with spaces/build"), listed[1])
        self.assertTrue(all(" with spaces/build/bin/" in command for command in json.loads(out)["commands"]
                            if "torch" not in command))

    def test_wrong_options_are_refused_before_anything_is_built(self):
        for options, env, what in ((("--steps", "0"), {}, "--steps"), (("--dtypes", "f99"), {}, "f99"),
                                   (("--stepz", "3"), {}, "--stepz"), (("--dr",), {}, "--dr"),
                                   (("--out", "/dev/null"), {}, '"/dev/null": File exists; expected a folder'),
                                   ((), {"EBB_GPU_BUILD_SECONDS": "5m"}, "EBB_GPU_BUILD_SECONDS=5m: expected a whole")):
            status, out, err = self.script(*options, cmake="echo built >&2", **env)
            self.assertEqual((status, out), (2, ""), options)
            self.assertIn(what, err)
            self.assertNotIn("built", err)

    def test_a_check_of_the_options_builds_nothing(self):
        self.assertEqual(self.script("--check", cmake="echo built >&2"), (0, "", ""))

    def test_a_build_without_an_end_is_ended(self):
        status, out, err = self.script(cmake=NEVER_ENDS, EBB_GPU_BUILD_SECONDS="1")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("building took longer than 1 s; nothing was checked", err)

    def test_a_build_that_fails_is_the_end(self):
        status, out, err = self.script(cmake="echo no nvcc >&2; exit 7")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("no nvcc", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
