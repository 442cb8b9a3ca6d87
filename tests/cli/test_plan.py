"""Planning on the command line.  usage: test_plan.py PROGRAM PROJECT"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PROJECT = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
GPT = os.path.join(PROJECT, "models", "gpt-synthetic.json")
WIDER = ["--set", "model.width=64", "--set", "model.context=64", "--set", "train.batch=16", "--set", "train.steps=2"]
DONE, FAILED, USAGE = 0, 1, 2


def ebb(*arguments, env=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "EBB_CALIBRATION": "/nonexistent/none.json", **(env or {})})


def ebb_json(*arguments, status=DONE, **more):
    done = ebb(*arguments, "--json", **more)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


class Plan(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = os.path.join(self.folder.name, "plan.json")

    def points(self, *more):
        return ebb_json("plan", GPT, *WIDER, "--frontier", "--allocated", *more)["points"]

    def test_a_budget_has_these_fields_and_is_kept(self):
        smallest = self.points()[-1]["predicted_peak_allocated_bytes"]
        budget = smallest * 5 // 4
        plan = ebb_json("plan", GPT, *WIDER, "--budget", str(budget), "--allocated", "--write", self.file)
        self.assertEqual(set(plan), {"schema", "budget_bytes", "fits", "predicted_peak_reserved_bytes",
                                     "predicted_peak_allocated_bytes", "predicted_peak_host_bytes", "predicted_overhead",
                                     "recompute_flops", "segments", "recompute", "offload"})
        self.assertEqual(plan["offload"], [])
        self.assertEqual(plan["budget_bytes"], budget)
        self.assertTrue(plan["fits"])
        self.assertLessEqual(plan["predicted_peak_allocated_bytes"], budget)
        run = ebb_json("train", GPT, *WIDER, "--set", "memory.checkpoint=plan:" + self.file)
        self.assertEqual(run["peak_allocated_bytes"], plan["predicted_peak_allocated_bytes"])
        self.assertEqual(run["peak_reserved_bytes"], plan["predicted_peak_reserved_bytes"])

    def test_the_frontier_goes_from_fastest_to_smallest(self):
        points = self.points()
        self.assertGreaterEqual(len(points), 4)
        self.assertEqual(points[0]["predicted_overhead"], 0)
        for before, after in zip(points, points[1:]):
            self.assertLess(after["predicted_peak_allocated_bytes"], before["predicted_peak_allocated_bytes"])
            self.assertGreater(after["predicted_overhead"], before["predicted_overhead"])
        table = ebb("plan", GPT, *WIDER, "--frontier", "--allocated").stdout
        self.assertEqual(len(table.splitlines()), len(points) + 2)
        self.assertIn("everything kept", table)

    def test_offload_is_chosen_where_it_is_allowed(self):
        smallest = self.points("--offload")[-1]
        self.assertGreater(smallest["predicted_peak_host_bytes"], 0)
        self.assertIn("offloaded", ebb("plan", GPT, *WIDER, "--frontier", "--allocated", "--offload").stdout)
        budget = str(smallest["predicted_peak_allocated_bytes"])
        plan = ebb_json("plan", GPT, *WIDER, "--budget", budget, "--allocated", "--set", "memory.offload=auto", "--write",
                        self.file)
        self.assertNotEqual(plan["offload"], [])
        none = ebb_json("compare", GPT, *WIDER, "--vary", "memory.checkpoint=none")["runs"][0]
        run = ebb_json("compare", GPT, *WIDER, "--vary", "memory.checkpoint=plan:" + self.file)["runs"][0]
        self.assertEqual(run["gradients_sha256"], none["gradients_sha256"])
        self.assertEqual(run["peak_allocated_bytes"], plan["predicted_peak_allocated_bytes"])
        run = ebb_json("train", GPT, *WIDER, "--set", "memory.checkpoint=plan:" + self.file)
        self.assertEqual(run["host_peak_reserved_bytes"], plan["predicted_peak_host_bytes"])
        limited = self.points("--offload", "--set", "memory.host_limit=1")
        self.assertEqual({p["predicted_peak_host_bytes"] for p in limited}, {0})
        with open(self.file) as file:
            changed = json.load(file)
        changed["offload"], changed["segments"] = [[0, 1]], [{"blocks": [1, 2]}]
        with open(self.file, "w") as file:
            json.dump(changed, file)
        bad = ebb("train", GPT, *WIDER, "--set", "memory.checkpoint=plan:" + self.file)
        self.assertEqual(bad.returncode, USAGE)
        self.assertIn("block 1 is offloaded, and in segment 0", bad.stderr)

    def test_a_relative_plan_is_found_from_anywhere(self):
        ebb_json("plan", GPT, *WIDER, "--budget", "1GiB", "--write", self.file)
        config = os.path.join(self.folder.name, "config.json")
        with open(GPT) as file:
            text = json.load(file)
        text["memory"] = {**text.get("memory", {}), "checkpoint": "plan:plan.json"}
        with open(config, "w") as file:
            json.dump(text, file)
        out = os.path.join(self.folder.name, "run")
        ebb_json("train", config, *WIDER, "--out", out)  # beside the config
        with open(os.path.join(out, "config.json")) as file:
            self.assertEqual(json.load(file)["memory"]["checkpoint"], "plan:" + os.path.realpath(self.file))
        for arguments in (["eval", out], ["train", os.path.join(out, "config.json"), "--resume", out, "--steps", "3"]):
            done = subprocess.run([PROGRAM, *arguments], cwd="/", capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, DONE, done.stderr)

    def test_a_trained_run_needs_its_plan_no_more(self):
        text = [*WIDER, "--set", "model.vocab=256"]
        ebb_json("plan", GPT, *text, "--budget", "1GiB", "--write", self.file)
        out = os.path.join(self.folder.name, "run")
        ebb_json("train", GPT, *text, "--set", "memory.checkpoint=plan:" + self.file, "--out", out)
        os.remove(self.file)
        self.assertIn("eval_loss", ebb_json("eval", out))
        self.assertEqual(len(ebb_json("sample", out, "--prompt", "a", "--tokens", "3")["tokens"]), 3)

    def test_limits_of_the_config_are_named(self):
        host = ["--set", "memory.offload=all", "--set", "memory.host_limit=1KiB"]
        for words in (["--frontier"], ["--budget", "1TiB"]):
            error = ebb_json("plan", GPT, *WIDER, *host, *words, status=FAILED)["error"]
            self.assertEqual(error["code"], "EBUDGET")
            self.assertIn("memory.host_limit", error["message"])
        limit = ["--set", "memory.limit=10MiB"]
        plan = ebb_json("plan", GPT, *WIDER, *limit, "--budget", "1TiB", "--write", self.file)
        self.assertLessEqual(plan["predicted_peak_reserved_bytes"], 10 << 20)
        done = ebb("estimate", GPT, *WIDER, *limit, "--set", "memory.checkpoint=plan:" + self.file)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("are beyond memory.limit", ebb("plan", GPT, *WIDER, *limit, "--frontier").stdout)

    def test_the_table_is_100_columns_wide_at_most(self):
        deep = ["--set", "model.layers=40", "--set", "memory.offload=auto"]
        rows = ebb("plan", GPT, *WIDER, *deep, "--frontier", "--allocated").stdout.splitlines()
        self.assertLessEqual(max(map(len, rows)), 100)
        self.assertTrue(any(row.endswith(" ...") for row in rows))

    def test_what_nothing_fits_is_1_and_says_what_would(self):
        error = ebb_json("plan", GPT, *WIDER, "--budget", "100KiB", status=FAILED)["error"]
        self.assertEqual(error["code"], "EBUDGET")
        self.assertRegex(error["message"], r"the smallest plan found needs .* \(\d+ bytes\)")
        self.assertIn("optimizer", error["message"])
        run = ebb("train", GPT, *WIDER, "--set", "memory.checkpoint=budget:100KiB")
        self.assertEqual(run.returncode, FAILED)

    def test_an_edited_plan_runs_and_a_foreign_one_is_refused(self):
        ebb_json("plan", GPT, *WIDER, "--budget", "1GiB", "--write", self.file)
        with open(self.file) as file:
            plan = json.load(file)
        self.assertEqual(plan["segments"], [])
        none = ebb_json("compare", GPT, *WIDER, "--vary", "memory.checkpoint=none")["runs"][0]
        plan["segments"] = [{"blocks": [0, 2], "inside": [{"blocks": [0, 1], "inside": [{"blocks": [1, 1]}]}]}]
        plan["recompute"] = [{"blocks": [3, 3], "ops": ["gelu"]}]
        with open(self.file, "w") as file:
            json.dump(plan, file)
        run = ebb_json("compare", GPT, *WIDER, "--vary", "memory.checkpoint=plan:" + self.file)["runs"][0]
        self.assertEqual(run["gradients_sha256"], none["gradients_sha256"])
        self.assertEqual(run["peak_allocated_bytes"], run["predicted_peak_allocated_bytes"])
        self.assertGreater(run["recomputed_ops"], 0)
        for change in ("model.dropout=0.5", "train.batch=8", "train.accumulate=2", "train.precision=f64"):
            foreign = ebb("train", GPT, *WIDER, "--set", change, "--set", "memory.checkpoint=plan:" + self.file)
            self.assertEqual(foreign.returncode, USAGE)
            self.assertIn("another config", foreign.stderr)
        same = ebb("train", GPT, *WIDER, "--set", "train.steps=1", "--set", "model.dropout=0.0", "--set",
                   "memory.checkpoint=plan:" + self.file)
        self.assertEqual(same.returncode, DONE, same.stderr)

    def test_rows_of_the_frontier_read_differently(self):
        rows = ebb("plan", GPT, "--set", "model.layers=12", "--set", "model.width=64", "--set", "model.context=64",
                   "--frontier").stdout.splitlines()[2:]
        words = [row.split("%  ")[1] for row in rows]
        self.assertEqual(len(set(words)), len(rows), "\n".join(rows))
        self.assertIn("gelu in 11, layernorm in 12, linear in 4 of 12 blocks", words)
        self.assertLessEqual(max(map(len, rows)), 100)

    def test_wrong_usage_is_2(self):
        for arguments, words in ((["plan", GPT], "--budget"), (["plan", GPT, "--budget", "much"], "--budget"),
                                 (["plan", GPT, "--budget", "1GiB", "--frontier"], "--frontier"),
                                 (["plan", GPT, "--frontier", "--write", "x"], "--write"),
                                 (["plan", GPT, "--budget", "1GiB", "--html", "x.html"], "--html"),
                                 (["plan", GPT, "--frontier", "--html", "/nonexistent/x.html"], "/nonexistent"),
                                 (["plan", GPT, "--budget", "1GiB", "--write", "/nonexistent/x"], "/nonexistent/x"),
                                 (["grads", GPT, "--weights", "w", "--batch", "b", "--out", "/nonexistent/x"], "/nonexistent/x"),
                                 (["trace", GPT, "--frontier"], "--frontier"),
                                 (["train", GPT, "--set", "memory.checkpoint=evry:1"], '"budget:SIZE" and "plan:FILE" too'),
                                 (["train", GPT, "--set", "memory.checkpoint=3"], '"budget:SIZE" and "plan:FILE" too'),
                                 (["max-batch", GPT], "--limit"), (["max-batch", GPT, "--limit", "x"], "--limit"),
                                 (["info", GPT], "--calibrate"),
                                 (["train", GPT, "--set", "memory.checkpoint=budget:x"], "budget:SIZE"),
                                 (["train", GPT, "--set", "memory.checkpoint=plan:"], 'expected "plan:FILE"'),
                                 (["train", GPT, "--set", "memory.checkpoint=plan:/nonexistent"], "nonexistent")):
            done = ebb(*arguments)
            self.assertEqual(done.returncode, USAGE, arguments)
            self.assertIn(words, done.stderr)


class MaxBatch(unittest.TestCase):
    def test_it_fits_and_the_next_does_not(self):
        found = ebb_json("max-batch", GPT, *WIDER, "--limit", "64MiB")
        self.assertEqual(set(found), {"schema", "batch", "peak_reserved_bytes", "next_batch_peak_reserved_bytes", "stopped_by"})
        self.assertLessEqual(found["peak_reserved_bytes"], 64 << 20)
        self.assertGreater(found["next_batch_peak_reserved_bytes"], 64 << 20)
        estimate = ebb_json("estimate", GPT, *WIDER, "--set", f"train.batch={found['batch']}")
        self.assertEqual(estimate["peak_reserved_bytes"], found["peak_reserved_bytes"])
        self.assertEqual(ebb("max-batch", GPT, "--limit", "10KiB").returncode, FAILED)
        whole = ebb_json("max-batch", GPT, "--limit", "1TiB")
        self.assertEqual((whole["batch"], whole["next_batch_peak_reserved_bytes"]), (60, None))
        planned = ebb("max-batch", GPT, "--limit", "1TiB", "--set", "memory.checkpoint=budget:2MiB").stdout
        self.assertIn("memory.checkpoint's budget", planned)

    def test_the_configs_own_limit_holds_and_is_named(self):
        own = ["--set", "data.items=100000", "--set", "memory.limit=30MiB"]
        found = ebb_json("max-batch", GPT, *own, "--limit", "64MiB")
        self.assertEqual((found["stopped_by"], found["next_batch_peak_reserved_bytes"]), ("memory.limit", None))
        self.assertLessEqual(found["peak_reserved_bytes"], 30 << 20)
        for more, status in ((0, DONE), (1, 3)):
            train = ebb("estimate", GPT, *own, "--set", f"train.batch={found['batch'] + more}")
            self.assertEqual(train.returncode, status, train.stderr)

    def test_two_peaks_that_would_read_the_same_are_told_in_bytes(self):
        said = ebb("max-batch", GPT, "--limit", "64GiB", "--set", "data.items=100000000",
                   "--set", "memory.allocator.offset_plan=true").stdout
        bytes_of = re.findall(r"\((\d+) bytes\)", said)
        self.assertEqual(len(bytes_of), 2, said)
        self.assertLess(int(bytes_of[0]), int(bytes_of[1]))

    def test_without_a_limit_an_accelerators_memory_is_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "small.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"kind": "cuda", "name": "small", "capacity_bytes": "64MiB", "lent_bytes": 8192,
                           "page_bytes": 2097152, "compute": "8.0", "processors": 1}, file)
            device = ["--device", f"dry:cuda:{path}"]
            found = ebb_json("max-batch", GPT, *WIDER, *device)
            self.assertLessEqual(found["peak_reserved_bytes"], 64 << 20)
            self.assertGreater(found["next_batch_peak_reserved_bytes"], 64 << 20)
            fits = ebb("estimate", GPT, *WIDER, *device, "--set", f"train.batch={found['batch']}")
            self.assertEqual(fits.returncode, DONE, fits.stderr)
            over = ebb("estimate", GPT, *WIDER, *device, "--set", f"train.batch={found['batch'] + 1}")
            self.assertEqual(over.returncode, 3)


class Calibration(unittest.TestCase):
    def test_it_is_written_and_read(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = {"EBB_CALIBRATION": "", "XDG_CACHE_HOME": folder}
            told = ebb_json("info", "--calibrate", GPT, *WIDER, "--set", "train.batch=2", env=cache)
            path = os.path.join(folder, "ebb", "calibration.json")
            self.assertEqual(told["calibration"], path)
            with open(path) as file:
                rates = json.load(file)
            self.assertGreater(rates["gemm_gflops"], 0)
            self.assertEqual(len(rates["ops"]["linear"]), 4)
            self.assertGreater(rates["copy_gb_s"], 0)
            before = ebb_json("plan", GPT, *WIDER, "--frontier", env=cache)["points"]
            self.assertEqual(before[0]["predicted_overhead"], 0)
            with open(path, "w") as file:
                file.write('{"schema": 2, "ops": {"linear": "fast"}}')
            bad = ebb("plan", GPT, "--frontier", env=cache)
            self.assertEqual(bad.returncode, USAGE)
            self.assertIn("ops.linear", bad.stderr)
            for text in ('{"schema": 2, "ops": {"gelu": [1e300, 1, 1, 1]}}', '{"schema": 2}', '{nonsense', '[]', '',
                         '{"schema": 2, "ops": []}', '{"schema": 2, "ops": {}, "copy_gb_s": -1}'):
                with open(path, "w") as file:
                    file.write(text)
                bad = ebb("plan", GPT, "--frontier", env=cache)
                self.assertEqual(bad.returncode, USAGE, text)
                self.assertIn(path, bad.stderr)
            with open(path, "w") as file:
                file.write('{"schema": 1, "ops": {"linear": [1, 1]}}')
            old = ebb("plan", GPT, "--frontier", env=cache)
            self.assertEqual(old.returncode, USAGE)
            self.assertIn("run ebb info --calibrate again", old.stderr)


unittest.main()
