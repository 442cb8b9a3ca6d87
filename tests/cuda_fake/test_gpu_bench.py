#!/usr/bin/env python3
"""bench/gpu.sh's parts on the fake device, so that they work on the day when there is a GPU.

Usage: test_gpu_bench.py EBB GPU_OPS PLUGIN SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EBB, OPS, PLUGIN, SOURCE = sys.argv[1:5]
RACE = str(Path(SOURCE) / "bench" / "gpu_race.py")


def run(command, plugin=PLUGIN):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "EBB_PLUGIN_PATH": plugin})
    return done.returncode, done.stdout, done.stderr


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
        self.assertEqual(files, ["gpu-perfetto.json", "gpu-snapshot.json"])
        self.assertEqual(len(found["skipped"]), 1)
        self.assertIn("torch", found["skipped"][0])

    def test_what_there_is_no_time_for_is_skipped(self):
        status, found, files = self.race("--seconds", "0")
        self.assertEqual((status, files, found["failed"]), (0, [], []))
        self.assertIn("ops: no time left", found["skipped"])

    def test_a_failing_run_is_told(self):
        status, found, _ = self.race("--device", "cuda:7")
        self.assertEqual(status, 1)
        self.assertTrue(any(text.startswith("train f32") for text in found["failed"]), found["failed"])

    def test_dry_lists_the_commands(self):
        status, found, files = self.race("--dry")
        self.assertEqual((status, files), (0, []))
        self.assertTrue(any(" estimate " in command and "dry:cuda:0" in command for command in found["commands"]))
        self.assertTrue(any("--compile" in command for command in found["commands"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
