"""The command line: exit statuses, JSON fields, texts.  usage: test_commands.py PROGRAM PROJECT"""
import json
import math
import os
import pty
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PROJECT = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
MODELS = os.path.join(PROJECT, "models")
MLP, GPT, LLAMA = (os.path.join(MODELS, name) for name in
                   ("mlp-synthetic.json", "gpt-synthetic.json", "gpt-llama-style.json"))
CATEGORIES = {"parameters", "optimizer", "gradients", "input", "activations", "recomputed", "workspace",
              "temporary"}
TRAIN = {"schema", "device", "threads", "steps", "loss_first", "loss_last", "eval_loss", "step_ms",
         "peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes", "outside_bytes", "memory",
         "run_dir"}
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

    def test_dry_training_measures_what_real_training_does(self):
        dry, real = ebb_json("train", GPT, "--device", "dry:cpu"), ebb_json("train", GPT)
        self.assertEqual(dry["device"], "dry:cpu")
        self.assertEqual(dry["memory"], real["memory"])


class Compare(unittest.TestCase):
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
                "recomputed_ops", "recompute_flops", "gradients_sha256"})
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

    def test_the_table_names_the_exact_predictions(self):
        run = ebb("compare", GPT, "--steps", "3")
        self.assertEqual(run.stdout.count("exact"), 3)
        self.assertIn("bit for bit", run.stdout)
        self.assertLessEqual(max(map(len, run.stdout.splitlines())), 110)

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
                                            "peak_requested_bytes", "memory", "flops", "recompute_flops", "parameters"})
                for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes", "memory"):
                    self.assertEqual(dry[key], real[key], (config, sets, key))


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

    def test_grads_asks_for_its_files(self):
        report = ebb_json("grads", MLP, "--weights", "w", "--out", "g", status=USAGE)
        self.assertIn("--batch", report["error"]["message"])
        self.assertEqual(ebb("grads", MLP, "--weights", "w", "--batch", "b", "--out", "g").returncode, FAILED)


class Usage(unittest.TestCase):
    def test_help_for_all_and_for_each(self):
        text = ebb("--help").stdout
        commands = re.findall(r"^  ([a-z][a-z-]+) ", text, re.M)
        self.assertEqual(commands, ["train", "compare", "estimate", "plan", "max-batch", "grads", "eval",
                                    "gradcheck", "info"])
        for command in commands:
            run = ebb(command, "--help")
            self.assertEqual(run.returncode, DONE)
            self.assertTrue(run.stdout.startswith("usage: ebb " + command))
            for option in ("--set", "--device", "--threads", "--json", "--quiet"):
                self.assertIn(option, run.stdout)

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
