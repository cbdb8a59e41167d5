#!/usr/bin/env python3
"""Runs the program as a person would: what it prints, where, and its exit code.   usage: cli_test.py TRIREME"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = os.path.abspath(sys.argv.pop(1))
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def trireme(*words, cwd=SOURCE, **variables):
    env = {**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}, **variables}
    return subprocess.run([PROGRAM, *map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


class Cli(unittest.TestCase):
    def ok(self, *words, **more):
        run = trireme(*words, **more)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def fails(self, code, *words, **more):
        run = trireme(*words, **more)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertTrue(run.stderr.startswith("error: "), run.stderr)
        self.assertEqual(run.stdout, "")
        return run.stderr

    def test_help_of_every_command_ends_with_an_example(self):
        commands = [["schedule"], ["config", "show"], ["config", "check"], ["config", "import"], ["config", "explain"], ["config", "new"], ["doctor"]]
        for command in commands:
            text = self.ok(*command, "--help")
            self.assertIn("Example:\n  trireme " + " ".join(command), text)
            self.assertLessEqual(len(text.splitlines()), 40)
        self.assertIn("schedule", self.ok("--help"))

    def test_version(self):
        self.assertRegex(self.ok("--version"), r"^trireme \d+\.\d+\.\d+\ncommit +([0-9a-f]{12}(-dirty)?|unknown)\ncompiler +\S.*, \w+\nlibtorch +")

    def test_first_words(self):
        self.assertEqual(self.ok("-v"), self.ok("--version"))
        self.assertEqual(self.ok("help"), self.ok("--help"))
        self.assertEqual(self.ok("help", "config", "show"), self.ok("config", "show", "--help"))
        said = self.fails(64, "--training.steps", "5", "train", "x.toml")
        self.assertIn("unknown option --training.steps: options go after the command", said)
        self.assertIn("fix: ", said)

    def test_help_is_as_wide_as_the_terminal(self):
        for command in (["train"], ["evaluate"], ["data", "prepare"], ["launch"]):
            lines = self.ok(*command, "--help").splitlines()  # a pipe has no width: 100
            self.assertLessEqual(max(map(len, lines)), 100, command)
        self.assertTrue(any(line.startswith(" " * 30) and line[30] != " " for line in lines))  # broken ones are indented

    def test_a_repeated_option_or_setting(self):
        run = trireme("config", "show", "--training.steps", "5", "-n", "2", "--training.steps", "6", "-n", "4", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertEqual((found["training.steps"]["value"], found["parallelism.dp"]["value"]), (6, 4))
        self.assertEqual(found["training.steps"]["from"], "--training.steps 6")
        for flag in ("--training.steps", "-n"):
            self.assertEqual(run.stderr.count(f"note: {flag} is given more than once: the last one counts\n"), 1, run.stderr)
        # Once, although two programs read the words.
        run = trireme("config", "check", "examples/tiny.toml", "-n", "4", "-n", "2")
        self.assertEqual((run.returncode, run.stderr.count("note: ")), (0, 1), run.stderr)
        self.assertIn("2 ranks", run.stdout)

    def test_completion(self):
        def words(*typed):
            return self.ok("completion", "--words", "--", *typed).split()
        self.assertIn("generate", words(""))
        self.assertEqual(words("sched"), ["schedule"])
        self.assertEqual(words("config", "exp"), ["explain"])
        self.assertEqual(words("train", "x.toml", "--parallelism.pp_schedule", "z"), ["zb1p", "zbv", "zero-bubble"])
        self.assertEqual(words("train", "x.toml", "--checkpoint.async", ""), ["true", "false"])
        self.assertEqual(words("convert", "a", "b", "--to", ""), ["hf", "nanotron"])
        self.assertEqual(words("schedule", "1"), ["1f1b"])
        self.assertEqual(words("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(words("train", "x"), [])  # a file
        for shell in ("bash", "zsh", "fish"):
            self.assertIn(PROGRAM, self.ok("completion", shell))
        self.assertIn("is for bash, zsh and fish", self.fails(64, "completion", "tcsh"))

    def test_schedule_in_any_case(self):
        self.assertEqual(self.ok("schedule", "1F1B"), self.ok("schedule", "1f1b"))

    def test_wrong_words_are_config_errors(self):
        self.assertIn("unknown command 'shedule'; did you mean 'schedule'?", self.fails(64, "shedule"))
        self.assertIn("--stagez", self.fails(64, "schedule", "1f1b", "--stagez", "4"))
        self.assertIn("one of afab 1f1b", self.fails(64, "schedule", "2f2b"))
        self.assertIn("at least 1", self.fails(64, "schedule", "1f1b", "--stages", "0"))
        self.assertIn("too large", self.fails(64, "schedule", "1f1b", "--stages", "100000", "--microbatches", "1000000"))
        for cost in ("nan", "-1", "1e300"):
            self.assertIn("--forward", self.fails(64, "schedule", "1f1b", "--forward", cost))
        self.assertIn("too large", self.fails(64, "schedule", "zbv", "--stages", "100000", "--microbatches", "1"))
        self.assertIn("only interleaved-1f1b", self.fails(64, "schedule", "1f1b", "--virtual-stages", "3"))

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([PROGRAM, "schedule", "1f1b"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 64)
        self.assertIn("cannot write to standard output", run.stderr)

    def test_schedule_draws_without_colour_into_a_pipe(self):
        text = self.ok("schedule", "1f1b", "--stages", "4", "--microbatches", "8")
        self.assertIn("makespan 33.00, bubble 9.00 (27.3% of the time)", text)
        self.assertNotIn("\x1b", text)
        self.assertEqual(len([line for line in text.splitlines() if line.startswith("rank ")]), 4)

    def test_schedule_writes_a_picture_that_is_xml(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "s.svg")
            self.ok("schedule", "zbv", "--stages", "3", "--microbatches", "7", "--svg", svg)
            root = xml.etree.ElementTree.parse(svg).getroot()
            titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
            self.assertEqual(len(titles), 1 + 3 * 2 * 7 * 3)  # its own; F, I, W of two chunks on three ranks
        self.assertIn("/no/such/folder/s.svg", self.fails_late("schedule", "1f1b", "--svg", "/no/such/folder/s.svg"))

    def fails_late(self, *words):
        run = trireme(*words)  # the drawing is on standard output already
        self.assertEqual(run.returncode, 64)
        return run.stderr

    def test_schedule_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.txt"
            path.write_text(self.ok("schedule", "zb1p", "--stages", "3", "--microbatches", "4", "--text", "--svg", f"{folder}/x.svg"))
            self.assertIn("zb1p: 3 ranks, 4 microbatches", self.ok("schedule", "--file", str(path)))
            path.write_text(path.read_text().replace("1F0 ", "", 1))
            said = self.fails(64, "schedule", "--file", str(path))
            self.assertRegex(said, r"mine.txt: schedule deadlock: pp rank 0 never gets past step \d+ \(0I0\), which waits for")
            self.assertIn("fix: ", said)
        self.assertIn("one of afab, 1f1b", self.fails(64, "schedule"))
        self.assertIn("cannot be read", self.fails(64, "schedule", "--file", "/no/such/file"))

    def test_schedule_text_is_the_steps(self):
        self.assertIn("rank 1: 1F0 1B0 1F1 1B1", self.ok("schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--text"))

    def test_config_check_of_the_example(self):
        text = self.ok("config", "check", "examples/tiny.toml", "-n", "4")
        self.assertIn("918,656 (embedding tied)", text)
        self.assertIn("pp=1 dp=2 cp=1 tp=2 · 4 ranks", text)
        self.assertIn("tp {0,1} {2,3}", text)
        self.assertIn("dp {0,2} {1,3}", text)
        self.assertIn("2,048 tokens a step", text)

    def test_config_check_takes_settings_anywhere(self):
        for words in (["--parallelism.tp", "4", "examples/tiny.toml"], ["examples/tiny.toml", "--parallelism.tp=4"],
                      ["examples/tiny.toml", "--tensor-model-parallel-size", "4"]):
            self.assertIn("tp {0,1,2,3}", self.ok("config", "check", *words, "-n", "4"))

    def test_config_errors_have_their_code_and_all_their_lines(self):
        text = self.fails(64, "config", "check", "examples/tiny.toml", "-n", "3")
        self.assertIn("one replica of the model needs 2 ranks, 3 were started", text)
        self.assertIn("launch: -n 3", text)
        text = self.fails(64, "config", "check", "examples/tiny.toml", "--parallelism.tp", "5", "--training.seq_len", "127", "--model.nonsense", "1")
        self.assertIn("error: 5 config errors (nothing was started)", text)
        self.assertIn("cannot open no.toml", self.fails(64, "config", "check", "no.toml"))

    def test_config_check_refuses_what_train_refuses(self):
        for words, code, said in ((("--precision.matmul", "fp8"), 64, 'precision.matmul = "fp8", but'),
                                  (("--comm.backend", "nccl"), 64, "this host has no visible GPU"),
                                  (("--cuda.graphs", "on"), 64, 'cuda.graphs = "on", but'),
                                  (("--checkpoint.resume", "no/such"), 66, 'checkpoint.resume = "no/such": no such folder'),
                                  (("--checkpoint.resume", "tests"), 66, "no checkpoint there")):
            checked = trireme("config", "check", "examples/tiny.toml", "-n", "2", *words, TRIREME_DEVICE="cpu")
            self.assertEqual(checked.returncode, code, checked.stdout + checked.stderr)
            self.assertIn(said, checked.stderr)
            with tempfile.TemporaryDirectory() as folder:
                trained = trireme("train", SOURCE / "examples/tiny.toml", "-n", "2", *words, cwd=folder, TRIREME_DEVICE="cpu")
                self.assertEqual(trained.returncode, code, trained.stdout + trained.stderr)
        for name in ("latest", "a/b", "..", ".", "%foo", "a\x01b", "x" * 300, "a..b"):
            for more in ((), ("--no-files",)):
                self.assertIn("run.name", self.fails(64, "config", "check", "examples/tiny.toml", "--run.name", name, *more))

    def test_config_check_counts_states_in_the_dtype_of_the_machine(self):
        text = self.ok("config", "check", "examples/tiny.toml", "-n", "4")
        dtype = re.search(r"(?m)^machine +(\S+) on", text)[1]
        self.assertRegex(text, rf"(?m)^states .*\({dtype} weights, zero 1 over 2; before tp and pp\)$")
        self.assertIn("bfloat16 weights, where the device multiplies it natively",
                      self.ok("config", "check", "examples/tiny.toml", "-n", "4", "--no-files"))

    def test_config_check_has_the_warnings_of_a_start(self):
        run = trireme("config", "check", "examples/tiny.toml", "-n", "2", "--model.sliding_window", "8")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("warning: the weights will be saved without a config.json for transformers", run.stderr)

    def test_config_show_gives_the_published_counts(self):
        for preset, count in {"gpt2": "124,439,808", "llama3-8b": "8,030,261,248", "llama3.2-1b": "1,235,814,400",
                              "mixtral-8x7b": "46,702,792,704"}.items():
            self.assertIn(f"# parameters   {count}", self.ok("config", "show", "--model.preset", preset))

    def test_config_show_says_where_values_came_from(self):
        text = self.ok("config", "show", "examples/tiny.toml", "--training.steps", "7", "-n", "4")
        self.assertRegex(text, r"(?m)^steps = 7 +# --training.steps 7 \| nanotron tokens.train_steps")
        self.assertRegex(text, r"(?m)^tp = 2 +# examples/tiny.toml:\d+ ")
        self.assertRegex(text, r"(?m)^dp = 2 +# derived: ranks / \(tp x cp x pp\)")
        self.assertRegex(text, r"(?m)^hidden_size = 128 +# preset tiny-llama")
        self.assertRegex(text, r"(?m)^eps = 1e-08 +# default")

    def test_config_show_is_a_config(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "shown.toml")
            shown = self.ok("config", "show", "examples/tiny.toml", "-n", "4")
            pathlib.Path(path).write_text(shown)
            self.ok("config", "check", path, "-n", "4")

    def test_config_import_writes_a_config_that_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            source, out = os.path.join(folder, "ds.json"), os.path.join(folder, "run.toml")
            pathlib.Path(source).write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "wall_clock_breakdown": false}')
            run = trireme("config", "import", source, "-o", out)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("1 key that has no effect here: --all shows it", run.stderr)
            self.assertIn("zero = 3", pathlib.Path(out).read_text())
            self.ok("config", "check", out, "--model.preset", "gpt2", "--no-files")
            pathlib.Path(folder, "config.json").write_text('{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}')
            self.assertIn("hidden_size = 64", self.ok("config", "import", folder))
        self.assertIn("--from", self.fails(64, "config", "import", "README.md", "--from", "keras"))

    def test_doctor_names_the_machine(self):
        text = self.ok("doctor")
        for word in ("cores", "memory", "libtorch", "open files", "/dev/shm"):
            self.assertIn(word, text)


unittest.main(verbosity=1)
