#!/usr/bin/env python3
"""Runs the program as a person would: what it prints, where, and its exit code.   usage: cli_test.py TRIREME"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = os.path.abspath(sys.argv.pop(1))
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def trireme(*words, cwd=SOURCE):
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    return subprocess.run([PROGRAM, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


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
        self.assertRegex(self.ok("--version"), r"^trireme \d+\.\d+\.\d+\n$")

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
        self.assertIn("makespan 33.00, bubble 9.00 (37.5% of the work)", text)
        self.assertNotIn("\x1b", text)
        self.assertEqual(len([line for line in text.splitlines() if line.startswith("rank ")]), 4)

    def test_schedule_writes_a_picture_that_is_xml(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "s.svg")
            self.ok("schedule", "zbv", "--stages", "3", "--microbatches", "7", "--svg", svg)
            root = xml.etree.ElementTree.parse(svg).getroot()
            titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
            self.assertEqual(len(titles), 3 * 2 * 7 * 3)  # F, I, W of two chunks on three ranks
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
        self.assertIn("error: 5 settings do not fit together (nothing was started)", text)
        self.assertIn("cannot open no.toml", self.fails(64, "config", "check", "no.toml"))

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
            self.assertIn("1 key that changes nothing here: --all shows it", run.stderr)
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
