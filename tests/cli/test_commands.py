"""The command line: exit statuses, JSON fields, texts.  usage: test_commands.py PROGRAM PROJECT"""
import fcntl
import json
import math
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM, PROJECT = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
MODELS = os.path.join(PROJECT, "models")
MLP, GPT, LLAMA = (os.path.join(MODELS, name) for name in
                   ("mlp-synthetic.json", "gpt-synthetic.json", "gpt-llama-style.json"))
CATEGORIES = {"parameters", "optimizer", "gradients", "input", "activations", "recomputed", "workspace",
              "temporary"}
TRAIN = {"schema", "device", "threads", "steps", "loss_first", "loss_last", "eval_loss", "step_ms",
         "peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes", "outside_bytes", "memory",
         "host_peak_allocated_bytes", "host_peak_reserved_bytes", "segments", "loss_scale", "skipped_steps",
         "run_dir"}
SEGMENT = {"name", "promised_bytes", "freed_bytes", "input_bytes", "warning"}
WIDTH = 100  # of a table
DONE, FAILED, USAGE, NO_MEMORY = 0, 1, 2, 3


def ebb(*arguments, env=None, cwd=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100, cwd=cwd,
                          env={**os.environ, **(env or {})})


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def write(text, *path):
    with open(os.path.join(*path), "w") as file:
        file.write(text)


def read_terminal(master):
    """Until the other end is closed, which Linux tells as an error."""
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            return shown.decode()
        shown += part


def ebb_json(*arguments, status=DONE, **more):
    run = ebb(*arguments, "--json", **more)
    if run.returncode != status:
        raise AssertionError(f"{arguments}: exit {run.returncode}, not {status}: {run.stderr}")
    return json.loads(run.stdout)  # fails on anything but one object


class Train(unittest.TestCase):
    def check_memory(self, report):
        self.assertEqual(set(report["memory"]), CATEGORIES)
        self.assertEqual(sum(report["memory"].values()), report["peak_allocated_bytes"])
        for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes"):
            self.assertIsInstance(report[key], int)

    def test_json_fields_of_an_mlp(self):
        report = ebb_json("train", MLP)
        self.assertEqual(set(report), TRAIN | {"eval_accuracy", "samples_per_s"})
        self.check_memory(report)
        self.assertEqual(report["schema"], 1)
        self.assertEqual(report["steps"], 20)
        self.assertIsNone(report["run_dir"])

    def test_json_fields_of_a_gpt(self):
        report = ebb_json("train", GPT, "--set", "data.eval_items=0")
        self.assertEqual(set(report), TRAIN | {"tokens_per_s"})
        self.check_memory(report)
        self.assertIsNone(report["eval_loss"])
        self.assertLess(report["loss_last"], report["loss_first"])

    def test_options_may_stand_anywhere(self):
        report = ebb_json("--threads", "1", "train", "--steps=3", GPT, "--set", "train.batch=4")
        self.assertEqual((report["threads"], report["steps"]), (1, 3))

    def test_text_tells_losses_and_memory(self):
        run = ebb("train", MLP)
        self.assertEqual(run.returncode, DONE)
        for words in ("20 steps", "accuracy", "parameters", "allocated", "outside the pool"):
            self.assertIn(words, run.stdout)
        self.assertEqual(run.stderr, "")

    def test_quiet_says_nothing(self):
        run = ebb("train", MLP, "--quiet")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (DONE, "", ""))

    def test_out_resume_and_eval(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            report = ebb_json("train", MLP, "--steps", "6", "--out", out)
            self.assertEqual(report["run_dir"], out)
            lines = [json.loads(line) for line in read(out, "metrics.jsonl").splitlines()]
            self.assertEqual([line["step"] for line in lines if "loss" in line], [1, 2, 3, 4, 5, 6])
            evaluated = ebb_json("eval", out)
            self.assertEqual(evaluated["eval_loss"], report["eval_loss"])
            self.assertEqual(evaluated["eval_accuracy"], report["eval_accuracy"])
            smaller = ebb_json("eval", out, "--set", "train.batch=3")
            self.assertAlmostEqual(smaller["eval_loss"], report["eval_loss"], places=5)
            self.assertLess(smaller["peak_allocated_bytes"], evaluated["peak_allocated_bytes"])
            self.assertEqual(ebb_json("eval", out, "--set", "train.batch=x", status=USAGE)["error"]["path"], "train.batch")
            again = ebb_json("train", MLP, "--steps", "6", "--out", out, status=FAILED)
            self.assertEqual(again["error"]["code"], "ESTATE")
            more = ebb_json("train", MLP, "--steps", "9", "--resume", out)
            self.assertEqual((more["steps"], more["run_dir"]), (3, out))

    def test_the_run_folders_config_holds_every_default(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            ebb_json("train", MLP, "--steps", "1", "--out", out)
            config = json.loads(read(out, "config.json"))
            self.assertEqual(config["train"]["optimizer"]["momentum"], 0.9)
            self.assertEqual(config["memory"]["checkpoint"], "none")
            self.assertEqual(config["train"]["precision"], "f32")

    def test_progress_is_shown_on_a_terminal_only(self):
        self.assertEqual(ebb("train", GPT).stderr, "")
        master, slave = pty.openpty()
        with subprocess.Popen([PROGRAM, "train", GPT, "--json"], stdout=subprocess.PIPE, stderr=slave) as run:
            out = run.stdout.read()
        os.close(slave)
        shown = read_terminal(master)
        os.close(master)
        json.loads(out)
        for words in ("train", "loss", "tokens/s", "mem ", "peak", "12/12"):
            self.assertIn(words, shown)
        self.assertIn("loss", ebb("train", GPT, env={"EBB_PROGRESS": "1"}).stderr)

    def progress(self, columns, *options):
        """The lines painted on a terminal of that width."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen([PROGRAM, "train", GPT, "--json", *options], stdout=subprocess.DEVNULL, stderr=slave) as run:
            os.close(slave)
            shown = read_terminal(master)
            self.assertEqual(run.wait(), DONE)
        os.close(master)
        return shown.replace("\n", "").split("\r")

    def test_the_progress_line_fits_the_terminal(self):
        for columns in (200, 100, 80, 60, 40, 20, 5):
            lines = self.progress(columns, "--steps", "200")
            self.assertGreater(len(lines), 3)
            self.assertLess(max(map(len, lines)), columns)
            if columns >= 20:
                self.assertTrue(any("/200" in line for line in lines), (columns, lines))
            if columns >= 60:
                self.assertTrue(any("loss" in line and "MiB" in line for line in lines), (columns, lines))
        self.assertIn("#", "".join(self.progress(100)))

    def test_a_dry_run_has_no_losses_nor_times(self):
        for device in ("dry:cpu", "dry:cuda"):
            report = ebb_json("train", MLP, "--device", device)
            for key in ("loss_first", "loss_last", "eval_loss", "eval_accuracy", "step_ms", "samples_per_s",
                        "outside_bytes"):
                self.assertIsNone(report[key], key)
            run = ebb("train", MLP, "--device", device, env={"EBB_PROGRESS": "1"})
            for word in ("loss", " ms", "samples/s", "outside"):
                self.assertNotIn(word, run.stdout + run.stderr)
            self.assertIn("allocated", run.stdout)
            self.assertIn("/20", run.stderr)
            self.assertRegex(ebb("compare", MLP, "--steps", "2", "--device", device).stdout, r"\nnone .* - +-\n")

    def test_recomputes_that_do_nothing_are_told(self):
        def told(config, ops):
            return ebb("train", config, "--steps", "2", "--quiet", "--set", f"memory.recompute={ops}").stderr
        self.assertIn('"embedding": no such call', told(MLP, '["embedding"]'))
        self.assertIn("inputs to make them from again are not kept", told(GPT, '["add"]'))
        self.assertEqual(told(GPT, '["gelu","layernorm"]'), "")
        self.assertIn('"embedding": no such call', ebb("compare", MLP, "--steps", "2", "--vary", "train.batch=4,8",
                                                       "--set", 'memory.recompute=["embedding"]').stderr)

    def test_dry_training_measures_what_real_training_does(self):
        dry, real = ebb_json("train", GPT, "--device", "dry:cpu"), ebb_json("train", GPT)
        self.assertEqual(dry["device"], "dry:cpu")
        self.assertEqual(dry["memory"], real["memory"])


class Compare(unittest.TestCase):
    def test_offload_moves_activations_to_the_host_and_changes_no_bit(self):
        none, everything, one = ebb_json("compare", GPT, "--check-recompute", "--set", "memory.checkpoint=[[0,0]]",
                                         "--vary", 'memory.offload=none,all,["gelu"]')["runs"]
        self.assertEqual(len({run["gradients_sha256"] for run in (none, everything, one)}), 1)
        self.assertEqual((none["host_peak_allocated_bytes"], none["offloaded_bytes"]), (0, 0))
        self.assertGreater(everything["host_peak_allocated_bytes"], one["host_peak_allocated_bytes"])
        self.assertGreater(one["offloaded_bytes"], 0)
        self.assertLess(everything["memory"]["activations"], none["memory"]["activations"])
        for run in (none, everything, one):
            self.assertEqual(run["predicted_peak_allocated_bytes"], run["peak_allocated_bytes"])
            self.assertEqual(run["predicted_peak_reserved_bytes"], run["peak_reserved_bytes"])
            self.assertEqual(run["predicted_host_peak_allocated_bytes"], run["host_peak_allocated_bytes"])

    def check_table(self, *arguments):
        """At most 100 columns; each predicted peak stands beside the measured one and is the same."""
        run = ebb("compare", GPT, *arguments)
        self.assertEqual(run.returncode, DONE, run.stderr)
        lines = run.stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), WIDTH, run.stdout)
        self.assertRegex(lines[0], r"  peak +predicted +reserved +predicted +activations +step ms +ratio")
        rows = lines[2:lines.index("")]
        for row in rows:
            cells = re.split(r"  +", row)
            self.assertEqual((cells[1], cells[3]), (cells[2], cells[4]), row)
        self.assertIn("exact, to the byte", run.stdout)
        return lines[0], [row.split()[0] for row in rows], run.stdout

    def test_the_table_of_segments_budgets_plans_and_offload_is_at_most_100_wide(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "a-plan-with-quite-a-long-name.json")
            wide = ["--set", "model.width=64", "--set", "model.context=64", "--steps", "1", "--set", "data.eval_items=0"]
            frontier = ebb_json("plan", GPT, *wide, "--frontier")["points"]
            budget = str(frontier[len(frontier) // 2]["predicted_peak_reserved_bytes"])
            ebb_json("plan", GPT, *wide, "--budget", budget, "--write", plan)
            vary = f"memory.checkpoint=none,every:1,sqrt,budget:{budget},plan:{plan}"
            title, names, text = self.check_table(*wide, "--vary", vary)
            self.assertEqual(names[:4], ["none", "every:1", "sqrt", "budget:" + budget])
            self.assertRegex(names[4], r"^plan:.*\.\.\..*ong-name\.json$")
            self.assertNotIn("host", title)
            self.assertIn("bit for bit", text)
            title, names, text = self.check_table(*wide, "--vary", vary, "--set", 'memory.offload=["gelu"]')
            self.assertTrue(title.endswith("host"))
            self.assertIn("bit for bit", text)

    def test_a_row_that_fails_leaves_the_others(self):
        for vary, bad, code, status in (
                ("memory.checkpoint=none,budget:1MiB,every:1,budget:2KiB", (1, 3), "EBUDGET", FAILED),
                ("memory.limit=1KiB,64MiB,32MiB", (0,), "ENOMEM", NO_MEMORY),
                ("memory.checkpoint=budget:1KiB,none", (0,), "EBUDGET", FAILED)):
            arguments = ("compare", GPT, "--steps", "2", "--set", "data.eval_items=0", "--vary", vary)
            values = vary.split("=")[1].split(",")
            run, runs = ebb(*arguments), ebb_json(*arguments, status=status)["runs"]
            self.assertEqual(run.returncode, status)
            rows = run.stdout.splitlines()[2:2 + len(values)]
            for i, value in enumerate(values):
                self.assertEqual(runs[i]["name"], value)
                self.assertTrue(rows[i].startswith(value), run.stdout)
                self.assertEqual(i in bad, bool(re.search(r"  -  ", rows[i])), run.stdout)
                if i in bad:
                    self.assertEqual(set(runs[i]), {"name", "error"})
                    self.assertEqual(runs[i]["error"]["code"], code)
                    self.assertIn(f"ebb: {vary.split('=')[0]}={value}: {runs[i]['error']['message']}", run.stderr)
                else:
                    self.assertGreater(runs[i]["peak_allocated_bytes"], 0)
            self.assertEqual("bit for bit" in run.stdout, len(values) - len(bad) > 1)
            self.assertIn("exact, to the byte", run.stdout)
        none = ebb_json("compare", GPT, "--vary", "memory.checkpoint=budget:1KiB", status=FAILED)
        self.assertEqual(none["error"]["code"], "EBUDGET")

    def names_of(self, vary):
        run = ebb("compare", MLP, "--steps", "1", "--set", "data.eval_items=0", "--device", "dry:cpu", "--vary", vary)
        self.assertEqual(run.returncode, DONE, run.stderr)
        lines = run.stdout.splitlines()
        self.assertLessEqual(max(map(len, lines[:lines.index("")])), WIDTH, run.stdout)
        return [re.split("  +", line)[0] for line in lines[2:lines.index("")]], run.stdout

    def test_rows_of_objects_show_what_differs(self):
        names, _ = self.names_of('memory={"checkpoint":"none","recompute":["gelu"]},'
                                 '{"checkpoint":"every:1","recompute":["gelu"]},'
                                 '{"checkpoint":"none","recompute":["gelu"],"limit":"64MiB"}')
        self.assertEqual(names, ["checkpoint=none, no limit", "checkpoint=every:1, no limit", "checkpoint=none, limit=64MiB"])
        names, _ = self.names_of('memory={"checkpoint":"none"},{"limit":"64MiB"}')
        self.assertEqual(names, ['{"checkpoint":"none"}', '{"limit":"64MiB"}'])
        names, text = self.names_of('memory={"checkpoint":"none","recompute":["gelu"]},{"checkpoint":"every:1"},'
                                    '{"checkpoint":"none","recompute":["gelu","linear"]}')
        self.assertEqual([name[:3] for name in names], ["1: ", '{"c', "3: "])
        self.assertIn('\n  3: {"checkpoint":"none","recompute":["gelu","linear"]}\n', text)
        names, text = self.names_of('memory={"recompute":["gelu","tanh","gelu","linear","linear"]},'
                                    '{"recompute":["gelu","tanh","linear","linear","linear"]}')
        self.assertEqual([name[:12] for name in names], ["1: recompute", "2: recompute"])
        self.assertIn('  2: {"recompute":["gelu","tanh","linear","linear","linear"]}\n', text)

    def test_rounding_is_never_chosen_saves_bytes_and_is_no_alarm(self):
        none, bf16, int8 = ebb_json("compare", GPT, "--vary", "memory.compress=none,bf16,int8")["runs"]
        plain = ebb_json("compare", GPT, "--vary", "memory.checkpoint=none")["runs"][0]
        self.assertEqual(none["gradients_sha256"], plain["gradients_sha256"])
        self.assertEqual(len({run["gradients_sha256"] for run in (none, bf16, int8)}), 3)
        self.assertGreater(none["memory"]["activations"], 1.8 * bf16["memory"]["activations"])
        self.assertGreater(bf16["memory"]["activations"], 1.4 * int8["memory"]["activations"])
        for run in (none, bf16, int8):
            self.assertEqual(run["loss_first"], none["loss_first"])
            self.assertAlmostEqual(run["loss_last"], none["loss_last"], delta=0.01)
            self.assertEqual(run["predicted_peak_allocated_bytes"], run["peak_allocated_bytes"])
            self.assertEqual(run["predicted_peak_reserved_bytes"], run["peak_reserved_bytes"])
        _, _, text = self.check_table("--vary", "memory.compress=none,bf16,int8")
        self.assertIn("The gradients differ between runs; their hashes:\n  " + none["gradients_sha256"][:8] + "  none", text)
        self.assertNotIn("DIFFER", text)
        refused = ebb("train", GPT, "--set", "memory.compress=bf16", "--check-recompute")
        self.assertEqual(refused.returncode, USAGE)
        self.assertIn("memory.compress", refused.stderr)

    def test_each_segment_tells_what_it_promised_freed_and_cost(self):
        for runs in (ebb_json("compare", GPT, "--steps", "3")["runs"],
                     [ebb_json("train", GPT, "--steps", "3", "--set", f"memory.checkpoint={c}") for c in ("none", "every:1", "sqrt")]):
            self.assertEqual([[s["name"] for s in run["segments"]] for run in runs],
                             [[], [f"blocks.{i}-{i}" for i in range(4)], ["blocks.0-1", "blocks.2-3"]])
            for segment in runs[1]["segments"] + runs[2]["segments"]:
                self.assertEqual(set(segment), SEGMENT | {"recomputed", "recompute_ms"})
                self.assertEqual(segment["recomputed"], 3)  # one micro-batch per step
                self.assertGreater(segment["recompute_ms"], 0)
                self.assertTrue(0 < segment["freed_bytes"] <= segment["promised_bytes"])
                self.assertEqual(segment["input_bytes"], 8 * 16 * 32 * 4)  # one [batch, context, width]
                self.assertIsNone(segment["warning"])

    def test_segments_as_tables_and_from_an_estimate(self):
        for command in ("train", "estimate"):
            run = ebb(command, GPT, "--segments", "--set", "memory.checkpoint=sqrt")
            self.assertRegex(run.stdout, r"\nblocks\.0-1 +[\d.]+ KiB +[\d.]+ KiB +[\d.]+ KiB")
            self.assertEqual("extra ms" in run.stdout, command == "train")
            self.assertLessEqual(max(map(len, run.stdout.splitlines())), WIDTH)
            self.assertIn("no segments", ebb(command, GPT, "--segments").stdout)
        said = ebb_json("estimate", GPT, "--set", "memory.checkpoint=sqrt")["segments"]
        used = ebb_json("train", GPT, "--set", "memory.checkpoint=sqrt")["segments"]
        self.assertEqual(set(said[0]), SEGMENT)
        self.assertEqual(said, [{key: segment[key] for key in SEGMENT} for segment in used])

    def test_a_segment_that_frees_nothing_is_told_on_stderr(self):
        run = ebb("compare", MLP, "--vary", "memory.checkpoint=none,every:1")
        self.assertIn("warning: segment 'layers.2-2' frees nothing: its ops save only what came in from outside", run.stderr)
        last = ebb_json("compare", MLP, "--vary", "memory.checkpoint=every:1")["runs"][0]["segments"][-1]
        self.assertEqual([last[key] for key in ("promised_bytes", "freed_bytes", "input_bytes", "recomputed")],
                         [0, 0, 16 * 48 * 4, 0])
        self.assertIn("came in from outside", last["warning"])
        self.assertEqual(ebb("train", MLP, "--set", "memory.checkpoint=every:1", "--quiet").stderr, "")

    def test_checkpointing_by_default(self):
        runs = ebb_json("compare", GPT)["runs"]
        self.assertEqual([run["name"] for run in runs], ["none", "every:1", "sqrt"])
        self.assertEqual(len({run["gradients_sha256"] for run in runs}), 1)
        for run in runs:
            self.assertTrue(re.fullmatch("[0-9a-f]{64}", run["gradients_sha256"]))
            self.assertEqual(run["predicted_peak_allocated_bytes"], run["peak_allocated_bytes"])
            self.assertEqual(run["predicted_peak_reserved_bytes"], run["peak_reserved_bytes"])
            self.assertEqual(set(run), (TRAIN - {"schema"}) | {
                "tokens_per_s", "name", "predicted_peak_allocated_bytes", "predicted_peak_reserved_bytes",
                "predicted_host_peak_allocated_bytes", "offloaded_bytes", "recomputed_ops", "recompute_flops",
                "gradients_sha256"})
        self.assertEqual(runs[0]["recomputed_ops"], 0)
        self.assertGreater(runs[1]["recomputed_ops"], 0)
        self.assertLess(runs[1]["peak_allocated_bytes"], runs[0]["peak_allocated_bytes"])

    def test_values_split_at_top_level_commas_only(self):
        runs = ebb_json("compare", GPT, "--vary", 'memory.checkpoint=[[0,1],[2,3]],none,"every:2"')["runs"]
        self.assertEqual([run["name"] for run in runs], ["[[0,1],[2,3]]", "none", '"every:2"'])
        self.assertEqual(runs[0]["peak_allocated_bytes"], runs[2]["peak_allocated_bytes"])

    def test_other_settings_vary_too(self):
        runs = ebb_json("compare", MLP, "--vary", "train.batch=4,8", "--steps", "2")["runs"]
        self.assertNotEqual(runs[0]["gradients_sha256"], runs[1]["gradients_sha256"])

    def test_long_names_leave_the_table_readable(self):
        self.check_table("--steps", "2", "--vary", 'memory.checkpoint=none,[[0,0],[1,1],[2,2],[3,3]]')

    def test_no_verdict_where_nothing_was_computed(self):
        run = ebb("compare", GPT, "--steps", "2", "--device", "dry:cpu")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertNotIn("bit", run.stdout)
        for one in ebb_json("compare", GPT, "--steps", "2", "--device", "dry:cpu")["runs"]:
            self.assertIsNone(one["gradients_sha256"])
            self.assertIsNone(one["loss_last"])

    def test_settings_that_change_results_are_no_alarm(self):
        run = ebb("compare", MLP, "--vary", "train.batch=4,8", "--steps", "2")
        self.assertIn("The gradients differ between runs", run.stdout)
        self.assertNotIn("DIFFER", run.stdout)

    def test_an_interrupted_comparison_is_a_failure(self):
        run = subprocess.Popen([PROGRAM, "compare", GPT, "--steps", "1000000", "--json"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "EBB_PROGRESS": "1"})
        shown = ""
        while "loss" not in shown:
            shown += run.stderr.read(1)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, FAILED, err)
        self.assertIn("interrupted: 0 of 3", err)
        report = json.loads(out)
        self.assertEqual((report["runs"], report["interrupted"]), ([], True))

    def test_wrong_variants_are_refused_before_anything_runs(self):
        for vary in ("memory.checkpoint", "=1,2", "train.batch=1,,2", "train.batch=1,", "memory.checkpoint=[[0,1]",
                     "memory.checkpoint=none,sometimes"):
            report = ebb_json("compare", GPT, "--vary", vary, status=USAGE)
            self.assertEqual(report["error"]["code"], "EINVAL", vary)


class Estimate(unittest.TestCase):
    def test_equals_what_train_measures(self):
        for config, sets in ((GPT, []), (LLAMA, ["memory.checkpoint=sqrt"]),
                             (MLP, ["memory.recompute=[\"gelu\"]", "train.accumulate=4"])):
            options = [part for one in sets for part in ("--set", one)]
            for threads in ("1", "2"):
                dry = ebb_json("estimate", config, "--threads", threads, *options)
                real = ebb_json("train", config, "--threads", threads, *options)
                self.assertEqual(set(dry), {"schema", "peak_allocated_bytes", "peak_reserved_bytes",
                                            "host_peak_allocated_bytes", "host_peak_reserved_bytes",
                                            "peak_requested_bytes", "memory", "flops", "recompute_flops", "parameters",
                                            "segments"})
                for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes", "memory"):
                    self.assertEqual(dry[key], real[key], (config, sets, key))

    def test_flops_are_whole_numbers(self):
        report = ebb_json("estimate", GPT, "--set", "model.layers=3", "--set", "memory.checkpoint=sqrt")
        for key in ("flops", "recompute_flops"):
            self.assertIsInstance(report[key], int)

    def saved_per_token(self, layers):
        sets = [f"model.layers={layers}", "model.heads=4", "model.width=256", "model.context=256",
                "train.batch=8", "model.kv_heads=4"]
        run = ebb("estimate", GPT, "--saved", *[part for one in sets for part in ("--set", one)])
        self.assertEqual(run.returncode, DONE, run.stderr)
        return float(re.search(r"^all .* ([0-9.]+)$", run.stdout, re.MULTILINE).group(1))

    def test_a_block_saves_16_widths_per_token_and_row_statistics(self):
        statistics = 2 * 2 * 4 + 4 * 4  # mean and 1/std of two norms, log-sum-exp of four heads; f32
        self.assertAlmostEqual(self.saved_per_token(12) - self.saved_per_token(11), 16 * 256 * 4 + statistics, places=1)


class OtherCommands(unittest.TestCase):
    def test_gradcheck_passes_for_every_op(self):
        report = ebb_json("gradcheck")
        self.assertEqual(report["failed"], 0)
        self.assertGreater(report["cases"], 100)
        self.assertTrue(all(math.isfinite(result["worst"]) for result in report["results"]))

    def test_gradcheck_of_one_op(self):
        report = ebb_json("gradcheck", "layernorm")
        self.assertEqual({result["op"] for result in report["results"]}, {"layernorm"})
        run = ebb("gradcheck", "layernrom")
        self.assertEqual(run.returncode, USAGE)
        self.assertIn('did you mean "layernorm"', run.stderr)

    def test_info(self):
        report = ebb_json("info", "--threads", "1")
        self.assertEqual(report["threads"], 1)
        self.assertIn("cpu", report["devices"])
        self.assertIn("OpenBLAS", report["blas"])

    def test_info_tells_of_accelerators(self):
        report = ebb_json("info")
        accelerators = {one["name"]: one for one in report["accelerators"]}
        h100 = accelerators["dry:cuda:h100-80gb"]
        self.assertGreater(h100["memory_bytes"], 70 << 30)
        self.assertIn("dry:cuda:h100-80gb", report["devices"])
        cuda = accelerators.get("cuda")
        if cuda:
            self.assertFalse(cuda["available"])
            self.assertTrue(cuda["reason"])
            self.assertIn(cuda["reason"], ebb("info").stdout)
        ops = {one["op"]: one for one in ebb_json("info", "--ops")["ops"]}
        self.assertEqual(ops["gelu"]["cpu"], {"forward": True, "backward": True})
        self.assertTrue(cuda is None or ops["gelu"]["cuda"] is None)
        self.assertIn("gelu", ebb("info", "--ops").stdout)

    def test_a_device_that_is_not_there_is_wrong_usage(self):
        if not any(one["name"] == "cuda" for one in ebb_json("info")["accelerators"]):
            self.skipTest("there is a CUDA device")
        for arguments in (["train", MLP, "--device", "cuda"], ["estimate", MLP, "--device", "cuda:1"],
                          ["gradcheck", "gelu", "--device", "cuda"]):
            run = ebb(*arguments)
            self.assertEqual(run.returncode, USAGE, run.stderr)
            self.assertIn("device cuda", run.stderr)
        self.assertIn("h100-80gb", ebb("train", MLP, "--device", "dry:cuda:h1").stderr)

    def test_a_profile_that_is_wrong_is_wrong_usage(self):
        good = {"kind": "cuda", "name": "small", "capacity_bytes": "64MiB", "lent_bytes": 8192, "page_bytes": 2097152,
                "compute": "8.0", "processors": 1}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "small.json")
            for text, key in ((json.dumps(good), None), (None, "No such file"), ("{", "1:2"),
                              (json.dumps({k: good[k] for k in good if k != "lent_bytes"}), "lent_bytes: this key is"),
                              (json.dumps({**good, "compute": "7.5"}), "compute: \"7.5\"; the kernels are for 8.0")):
                if text is None:
                    os.remove(path)
                else:
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(text)
                run = ebb("estimate", MLP, "--device", f"dry:cuda:{path}")
                self.assertEqual(run.returncode, USAGE if key else DONE, run.stderr)
                if key:
                    for part in ("device dry:cuda: ", path, key):
                        self.assertIn(part, run.stderr)

    def test_a_plugin_path_that_is_not_there_is_wrong_usage(self):
        run = ebb("estimate", MLP, "--device", "cuda", env={"EBB_PLUGIN_PATH": "/nowhere/libebb_cuda.so"})
        self.assertEqual(run.returncode, USAGE, run.stderr)
        self.assertIn('device cuda: EBB_PLUGIN_PATH: there is no "/nowhere/libebb_cuda.so"', run.stderr)

    def test_only_the_cpu_is_calibrated(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "c.json")
            for device in ("dry:cpu", "dry:cuda", "cuda"):
                run = ebb("info", "--calibrate", "--device", device, env={"EBB_CALIBRATION": path})
                self.assertEqual((run.returncode, os.path.exists(path)), (USAGE, False))
                self.assertIn("--calibrate measures the CPU", run.stderr)

    def test_info_tells_profiles_by_kind(self):
        run = ebb("info")
        self.assertRegex(run.stdout, r"\ndevices +cpu, .*dry:cpu, dry:cuda\nprofiles +of dry:cuda: .*h100-80gb")

    def test_a_dry_accelerator_counts_what_its_libraries_take(self):
        one, lent = ebb_json("estimate", MLP, "--device", "dry:cuda"), 0
        for device in ebb_json("info")["accelerators"]:
            if device["name"] == "dry:cuda:h100-80gb":
                lent = device["lent_bytes"]
        self.assertGreater(lent, 0)
        self.assertGreaterEqual(one["memory"]["workspace"], lent)
        self.assertEqual(one["peak_allocated_bytes"], ebb_json("train", MLP, "--device", "dry:cuda")["peak_allocated_bytes"])

    def test_grads_asks_for_its_files(self):
        report = ebb_json("grads", MLP, "--weights", "w", "--out", "g", status=USAGE)
        self.assertIn("--batch", report["error"]["message"])
        self.assertEqual(ebb("grads", MLP, "--weights", "w", "--batch", "b", "--out", "g").returncode, FAILED)

    def test_labels_out_of_range_name_the_batch_file(self):
        with tempfile.TemporaryDirectory() as folder:
            run, batch = os.path.join(folder, "run"), os.path.join(folder, "batch.safetensors")
            ebb_json("train", GPT, "--steps", "1", "--out", run)
            part = {"dtype": "I32", "shape": [1, 16]}
            header = json.dumps({"tokens": {**part, "data_offsets": [0, 64]},
                                 "targets": {**part, "data_offsets": [64, 128]}}).encode()
            header += b" " * (-len(header) % 8)
            with open(batch, "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header + struct.pack("<32i", *[1] * 31, 99))
            error = ebb_json("grads", GPT, "--weights", os.path.join(run, "weights.safetensors"), "--batch", batch,
                             "--out", os.path.join(folder, "grads"), status=USAGE)["error"]
            self.assertIn(batch, error["message"])
            self.assertIn("99", error["message"])


class Sample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.run_dir = os.path.join(cls.folder.name, "run")
        ebb_json("train", GPT, "--set", "model.vocab=256", "--steps", "2", "--out", cls.run_dir)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def sample(self, *options, **more):
        return ebb_json("sample", self.run_dir, "--prompt", "In \u00e4", *options, **more)

    def test_json_has_the_text_and_the_bytes_drawn(self):
        report = self.sample("--tokens", "50", "--seed", "3")
        self.assertEqual(set(report), {"schema", "text", "tokens"})
        self.assertEqual(len(report["tokens"]), 50)
        self.assertTrue(all(0 <= token < 256 for token in report["tokens"]))
        self.assertTrue(report["text"].startswith("In \u00e4"))
        self.assertEqual(report, self.sample("--tokens", "50", "--seed", "3", "--threads", "1"))
        self.assertNotEqual(report["tokens"], self.sample("--tokens", "50", "--seed", "4")["tokens"])

    def test_text_is_the_bytes_as_they_are(self):
        report = self.sample("--tokens", "60")
        run = subprocess.run([PROGRAM, "sample", self.run_dir, "--prompt", "In \u00e4", "--tokens=60", "--seed=1"],
                             capture_output=True, timeout=100)
        self.assertEqual(run.stdout, "In \u00e4".encode() + bytes(report["tokens"]))
        self.assertEqual((run.returncode, run.stderr), (DONE, b""))

    def test_temperature_0_takes_the_likeliest(self):
        self.assertEqual(self.sample("--temperature", "0", "--seed", "0"), self.sample("--temperature=0", "--seed", "9"))

    def test_wrong_options_are_usage(self):
        for options in (["--temperature", "warm"], ["--temperature", "-1"], ["--seed", "-1"], ["--seed", "x"],
                        ["--tokens", "0"], ["--prompt", ""], ["--set", "seed=1"], ["--device", "dry:cpu"]):
            self.sample(*options, status=USAGE)
        self.assertIn("--prompt", ebb("sample", self.run_dir).stderr)
        self.assertEqual(ebb("sample", MODELS, "--prompt", "a").returncode, FAILED)


class Usage(unittest.TestCase):
    def test_help_for_all_and_for_each(self):
        text = ebb("--help").stdout
        commands = re.findall(r"^  ([a-z][a-z-]+) ", text, re.M)
        self.assertEqual(commands, ["train", "compare", "estimate", "plan", "max-batch", "trace", "grads", "eval", "sample", "lesson",
                                    "gradcheck", "info"])
        for command in commands:
            run = ebb(command, "--help")
            self.assertEqual(run.returncode, DONE)
            self.assertTrue(run.stdout.startswith("usage: ebb " + command))
            for option in ("--json", "--quiet"):
                self.assertIn(option, run.stdout)
            for option in ("--set", "--device", "--threads"):  # lessons read no config
                self.assertEqual(option in run.stdout, command != "lesson", (command, option))

    def test_wrong_usage_is_2_and_names_what_is_near(self):
        for arguments, words in (
                ((), "a command is missing"), (("trian",), 'did you mean "train"'),
                (("train",), "CONFIG is missing"), (("train", GPT, "more"), "one argument too many"),
                (("train", GPT, "--stpes", "3"), 'did you mean "--steps"'),
                (("train", GPT, "--steps"), "a value is missing"), (("train", GPT, "--steps", "0"), "--steps"),
                (("train", GPT, "--steps", "-3"), "--steps"), (("train", GPT, "--threads", "x"), "--threads"),
                (("train", GPT, "--set", "train.batch"), "PATH=VALUE"), (("train", GPT, "--json=1"), "no value"),
                (("info", "--steps", "3"), "unknown option"), (("train", GPT, "--device", "tpu"), "there are"),
                (("train", GPT, "--threads", "99999"), "1024")):
            run = ebb(*arguments)
            self.assertEqual(run.returncode, USAGE, arguments)
            self.assertIn(words, run.stderr, arguments)
            self.assertEqual(run.stdout, "", arguments)

    def test_errors_as_json_have_code_message_and_path(self):
        error = ebb_json("train", GPT, "--set", "train.optimizer.lrr=1", status=USAGE)["error"]
        self.assertEqual((error["code"], error["path"]), ("EINVAL", "train.optimizer.lrr"))
        self.assertIn('"lr"', error["message"])
        error = ebb_json("train", GPT, "--set", "modle.x=1", status=USAGE)["error"]
        self.assertEqual(error["path"], "modle")
        error = ebb_json("train", GPT, "--set", "data.itemz=1", status=USAGE)["error"]
        self.assertEqual(error["path"], "data.itemz")
        error = ebb_json("train", GPT, "--set", "model.activation=gelu", status=USAGE)["error"]
        self.assertEqual(error["path"], "model.activation")
        self.assertNotIn("path", ebb_json("train", "missing.json", status=USAGE)["error"])
        self.assertIn("error", ebb_json("trian", status=USAGE))

    def test_a_wrong_set_names_its_path(self):
        for one, words in (("train.optimizer.lr=1e999", "too large"), ("model.width=1e999", "too large"),
                           ("train.batch={", "expected a key"), ("train.batch.x=3", "below a value")):
            error = ebb_json("train", GPT, "--set", one, status=USAGE)["error"]
            self.assertEqual(error["path"], one.split("=")[0])
            self.assertIn(words, error["message"])

    def test_a_missing_data_file_names_its_key(self):
        sets = ["--set", 'data={"type":"text","path":"no/such.txt"}', "--set", "model.vocab=256"]
        for command in ("train", "compare", "estimate"):
            error = ebb_json(command, GPT, *sets, status=FAILED)["error"]
            self.assertEqual(error["path"], "data.path", command)
            self.assertIn("no/such.txt", error["message"])

    def test_configs_that_are_no_configs(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "[]", "{", '{"model": 1}', '{"a": 1, "a": 2}', "\x00", '{"model": {"type": "gpt"}}'):
                path = os.path.join(folder, "config.json")
                write(text, path)
                for command in ("train", "compare", "estimate"):
                    self.assertEqual(ebb(command, path).returncode, USAGE, text)
            self.assertEqual(ebb("train", folder).returncode, USAGE)

    def test_zero_and_huge_sizes(self):
        for one in ("model.width=0", "model.layers=0", "model.vocab=1e30", "train.batch=0", "train.batch=1e18",
                    "data.items=0", "model.heads=1e9"):
            run = ebb("train", GPT, "--set", one)
            self.assertEqual(run.returncode, USAGE, one + run.stderr)
        for one in ("model.context=16777216", "model.ffn_width=16777216"):
            run = ebb("train", GPT, "--set", one, "--set", "memory.limit=100MiB")
            self.assertEqual(run.returncode, NO_MEMORY, one + run.stderr)

    def test_out_of_memory_is_3(self):
        error = ebb_json("train", GPT, "--set", "memory.limit=2MiB", "--set", "model.width=64", status=NO_MEMORY)["error"]
        self.assertEqual(error["code"], "ENOMEM")
        self.assertIn("limit", error["message"])

    def test_sampled_failing_allocations_are_3(self):
        for n in [*range(1, 40, 6), *range(40, 2400, 173)]:
            run = ebb("train", GPT, "--steps", "2", "--set", "memory.checkpoint=sqrt", "--json",
                      env={"EBB_FAIL_ALLOC": str(n)})
            self.assertIn(run.returncode, (NO_MEMORY, DONE), (n, run.stderr))
            report = json.loads(run.stdout)
            if run.returncode == NO_MEMORY:
                self.assertEqual(report["error"]["code"], "ENOMEM")

    def test_little_address_space_does_not_hang_the_end(self):
        """OpenBLAS cannot start its threads then, and waits for them in its exit handler."""
        limit = 150000 << 10
        run = subprocess.run([PROGRAM, "info"], capture_output=True, text=True, timeout=30,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        if "Sanitizer" in run.stderr or "shared libraries" in run.stderr:
            self.skipTest("the program does not start in so little")
        self.assertEqual((run.returncode, run.stderr), (DONE, ""))

    def test_a_full_disk_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            self.assertEqual(subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.DEVNULL).returncode, FAILED)


class Models(unittest.TestCase):
    def test_every_config_that_can_run_here_is_estimated(self):
        for name in sorted(os.listdir(MODELS)):
            if name == "model.schema.json":
                continue
            path = os.path.join(MODELS, name)
            config = json.loads(read(path))
            files = [value for key, value in config["data"].items() if key in ("path", "images", "eval_images")]
            run = ebb("estimate", path, "--json", cwd=PROJECT)
            if all(os.path.exists(os.path.join(PROJECT, file)) for file in files):
                self.assertEqual(run.returncode, DONE, name + run.stderr)
            else:
                self.assertEqual(run.returncode, FAILED, name)


unittest.main(verbosity=1)
