#!/usr/bin/env python3
"""`trireme bench CONFIG --layouts` and `trireme bench comm`: tables, files, exit codes; `trireme doctor --json`; completion in bash.

usage: bench_layouts_test.py TRIREME [CLASS[.test]...]"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import faults

TRIREME = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ("--model.hidden_size", "32", "--model.intermediate_size", "48", "--model.vocab_size", "64", "--model.num_hidden_layers", "2",
         "--model.num_attention_heads", "4", "--model.num_key_value_heads", "4", "--model.head_dim", "8", "--training.seq_len", "16",
         "--tokenizer.path", "", "--model.dtype", "float64")


def trireme(*words, folder=None, **variables):
    return subprocess.run([TRIREME, *words], capture_output=True, text=True, timeout=300, cwd=folder, env={**os.environ, **variables})


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


class Layouts(unittest.TestCase):
    def bench(self, folder, *words, **variables):
        return trireme("bench", str(ROOT / "examples/tiny.toml"), *SMALL, *words, "--steps", "3", "--warm-up", "1", "-o", "out",
                       folder=folder, **variables)

    def test_speed_and_parity(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.bench(folder, "-n", "2", "--layouts", "dp2,tp2,pp2")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = table(pathlib.Path(folder) / "out/layouts.csv")
            self.assertEqual([row["layout"] for row in rows], ["1 rank", "dp2", "tp2", "pp2"])
            for row in rows:
                run = pathlib.Path(folder) / "out/runs" / row["layout"].replace("1 rank", "one-rank")
                records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
                self.assertEqual(len(records), 4)
                self.assertAlmostEqual(float(row["tokens_per_sec"]), sorted(r["tokens_per_sec"] for r in records[1:])[1], places=3)
                self.assertAlmostEqual(float(row["loss"]), records[-1]["loss"], places=8)
                self.assertLess(float(row["max_relative_loss_difference"]), 1e-12)
                self.assertEqual(row["agrees"], "true")
            self.assertEqual(done.stdout.count("✓"), 3)
            self.assertGreater(float(rows[3]["bubble_frac"]), 0)
            xml.etree.ElementTree.parse(pathlib.Path(folder) / "out/layouts.svg")

    def test_a_slow_run_with_one_rank_is_no_speed_up(self):
        """An efficiency of several hundred percent is explained. Only the process without a RANK waits for its data."""
        with tempfile.TemporaryDirectory() as folder:
            library = faults.faulty_storage(folder, TRIREME)
            (pathlib.Path(folder) / "book.txt").write_text("a sentence of the book. " * 500)
            self.assertEqual(trireme("data", "prepare", "book.txt", "-t", "bytes", "-o", "book", folder=folder).returncode, 0)
            done = self.bench(folder, "-n", "2", "--layouts", "dp2", "--data.0.sources.0.path", "book.ds", "--tokenizer.path", "bytes", "--model.vocab_size", "257",
                              LD_PRELOAD=str(library), FAULTY_PATH="book.ds", FAULTY_READS="1000000", FAULTY_HOW="slow", FAULTY_RANK="")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"dp2 .* [1-9]\d{2,}[.\d]* ?%")
            self.assertIn("note: an efficiency above 100 % is not a speed-up by more ranks", done.stdout)

    def test_several_tasks_of_a_launcher_are_refused(self):
        done = subprocess.run([TRIREME, "bench", str(ROOT / "examples/tiny.toml"), "-n", "2", "--layouts", "dp2"], capture_output=True, text=True,
                              timeout=60, env={**os.environ, "WORLD_SIZE": "4"})
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("it starts the ranks itself\n  fix: ", done.stderr)

    def test_a_layout_that_fails_is_a_row_and_an_exit_code(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.bench(folder, "-n", "3", "--layouts", "tp3")
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("failed: exit code 64, see out/tp3.log", done.stdout)
            failed = table(pathlib.Path(folder) / "out/layouts.csv")[1]
            self.assertEqual((failed["tokens_per_sec"], failed["agrees"], failed["failure"]),
                             ("", "false", "exit code 64, see out/tp3.log"))
            self.assertIn("num_attention_heads", (pathlib.Path(folder) / "out/tp3.log").read_text())

    def test_refused(self):
        for expected, words in (("tq2: must be one of dp, tp", ("-n", "2", "--layouts", "tq2")),
                                ("dp4: 4 ranks, -n 2", ("-n", "2", "--layouts", "dp4")),
                                ("-n N and --layouts are needed", ())):
            with tempfile.TemporaryDirectory() as folder:
                done = self.bench(folder, *words)
                self.assertEqual(done.returncode, 64, done.stdout)
                self.assertIn(expected, done.stderr)
        self.assertIn("unknown command 'bench nothing'", trireme("bench", "nothing").stderr)


class Comm(unittest.TestCase):
    def test_every_operation(self):
        with tempfile.TemporaryDirectory() as folder:
            done = trireme("bench", "comm", "-n", "2", "--sizes", "1K,64K", "--repetitions", "3", "--csv", "comm.csv", folder=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = table(pathlib.Path(folder) / "comm.csv")
            ops = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
            self.assertEqual([(r["op"], int(r["bytes"])) for r in rows], [(op, size) for op in ops for size in (1024, 65536)])
            for r in rows:
                algbw, factor = int(r["bytes"]) / float(r["latency_s"]), float(r["busbw_bytes_per_s"]) / float(r["algbw_bytes_per_s"])
                self.assertAlmostEqual(float(r["algbw_bytes_per_s"]) / algbw, 1, places=3)
                self.assertAlmostEqual(factor, {"all_reduce": 1, "broadcast": 1, "send_recv": 1}.get(r["op"], 0.5), places=3)
            self.assertIn("busbw GB/s", done.stdout)

    def test_refused(self):
        done = trireme("bench", "comm", "-n", "2", "--ops", "all_red")
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("operation all_red: must be all_reduce", done.stderr)


class Doctor(unittest.TestCase):
    def test_json(self):
        # As a task of torchrun on another host: the two ranks that doctor starts are a job of their own.
        of_a_launcher = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1",
                         "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x"}
        done = subprocess.run([TRIREME, "doctor", "--json"], capture_output=True, text=True, timeout=60, env={**os.environ, **of_a_launcher})
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertRegex(found["all-reduce"]["found"], r"2 ranks, (gloo|shared memory): 4 MiB in [\d.]+ (ms|µs|s)")
        for name in ("libtorch", "backends", "GPUs", "/dev/shm", "open files", "CPU clock", "cores", "memory"):
            self.assertIn(name, found)
        self.assertNotIn("all-reduce", json.loads(trireme("doctor", "--json", "--quick").stdout))
        done = subprocess.run([TRIREME, "doctor", "--json"], capture_output=True, text=True, timeout=60, env={**os.environ, "TMPDIR": "/no/such"})
        self.assertEqual((done.returncode, json.loads(done.stdout)["all-reduce"]["found"]), (0, "not tried"), done.stderr)


class Completion(unittest.TestCase):
    def complete(self, *words):
        script = f'source <({TRIREME} completion); COMP_WORDS=({" ".join(words)} ""); COMP_CWORD={len(words) - 1}; _trireme; ' \
                 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT / "examples")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_commands_options_keys_and_files(self):
        self.assertEqual(self.complete("trireme", "gen"), ["generate"])
        self.assertEqual(self.complete("trireme", "data", "ins"), ["inspect"])
        self.assertIn("--top-k", self.complete("trireme", "generate", "x", "--to"))
        self.assertEqual(self.complete("trireme", "train", "tiny.toml", "--parallelism.sequ"), ["--parallelism.sequence_parallel"])
        self.assertIn("tiny.toml", self.complete("trireme", "train", "ti"))


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
