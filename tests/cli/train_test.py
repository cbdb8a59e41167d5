#!/usr/bin/env python3
"""`trireme train` as a person runs it: numbers, files, console, signals, launchers, and what it says when something is wrong.

usage: train_test.py TRIREME [--peer-python PYTHON] [CLASS[.test]...]      PYTHON may have torch and transformers"""
import argparse
import concurrent.futures
import contextlib
import functools
import gzip
import itertools
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tests/launchers"))
import faults  # noqa: E402
import ranks  # noqa: E402
SKIPPED = 77  # ctest's SKIP_RETURN_CODE of this test
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "NODE_RANK", "MASTER_", "TORCHELASTIC_", "PET_", "SLURM", "OMPI_",
           "PMI", "PALS_", "MPI_", "TRIREME_", "NO_COLOR")
CONFIG, DATA, CHECKPOINT, PEER_LOST, STORAGE, PREEMPTED, NON_FINITE, INTERRUPTED, KILLED = 64, 65, 66, 71, 74, 75, 76, 130, 137  # exit codes
TOKENS = 8 * 16  # of a step

# Relative to the folder of a test, which is the working directory. 35,040 parameters.
TOML = """
[run]
name = "t-%layout"

[model]
model_type = "llama"
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 64
vocab_size = 257
max_position_embeddings = 64
dtype = "float32"

[tokenizer]
path = "bytes"

[[data]]
sources = [ { path = "book.ds" } ]

[training]
steps = 4
seq_len = 16
global_batch_size = 8
micro_batch_size = 2

[optimizer]
lr = 1e-2

[lr_scheduler]
warmup_steps = 1
"""
F64 = ("--model.dtype", "float64")
QUIET = ("--metrics.console", "quiet")
DP2_TP2 = ("--parallelism.dp", "2", "--parallelism.tp", "2")
BLOW_UP = ("--optimizer.name", "sgd", "--optimizer.lr", "1e6", "--lr_scheduler.warmup_steps", "0", "--training.max_norm", "0",
           "--training.steps", "6")

# Loads a folder as its users would, and prints the mean loss of samples that are spread over a token file.
LOSS_BY_TRANSFORMERS = """
import sys, numpy, torch, transformers
folder, tokens, samples, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
data = torch.from_numpy(numpy.fromfile(tokens, dtype="<u2").astype("int64"))
windows = (len(data) - 1) // length
x = torch.stack([data[i * length:i * length + length + 1] for i in (k * windows // samples for k in range(samples))])
with torch.no_grad():
    logits = model(x[:, :-1]).logits
print(torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), x[:, 1:].flatten()).item())
"""

options = None  # of the command line; set by main()
scratch = None  # a folder with the token files; set by main()


more_variables = {}  # of the commands that tests start


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return {**env, "OMP_NUM_THREADS": "1", "TERM": "dumb", "TRIREME_DEVICE": "cpu", **more_variables}


@contextlib.contextmanager
def variables(**more):
    """Of the commands that are started meanwhile."""
    more_variables.update(more)
    try:
        yield
    finally:
        for name in more:
            del more_variables[name]


class Ended:
    """A command that has ended."""

    def __init__(self, folder, words, code, stdout, stderr):
        self.folder, self.words, self.code, self.stdout, self.stderr = folder, words, code, stdout, stderr

    def __str__(self):
        return f"$ {' '.join(self.words)}   (exit code {self.code})\n--- stdout\n{self.stdout[-3000:]}\n--- stderr\n{self.stderr[-3000:]}"

    def path(self):
        """Folder of the newest run."""
        return self.folder / "runs" / "latest"

    def metrics(self):
        return [json.loads(line) for line in (self.path() / "metrics.jsonl").read_text().splitlines()]

    def hex(self):
        return [(row["loss_hex"], row["grad_norm_hex"]) for row in self.metrics()]

    def losses(self):
        return [row["loss"] for row in self.metrics()]

    def saved(self):
        """Folder of the weights, as the program tells it."""
        return self.folder / re.search(r"(?m)^saved +(\S+)$", self.stdout)[1]

    def files(self):
        return sorted(str(p.relative_to(self.folder)) for p in (self.folder / "runs").rglob("*") if p.is_file()) \
            if (self.folder / "runs").exists() else []


def fresh_folder():
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    for path in (scratch / "data").iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "t.toml").write_text(TOML)
    return folder


def folder_with_a_broken_token():
    """In the middle of its data is a token beyond the vocabulary."""
    folder = fresh_folder()
    content = bytearray((folder / "book.ds").read_bytes())
    (folder / "book.ds").unlink()
    middle = len(content) // 4 * 2
    content[middle:middle + 2] = b"\xff\xff"
    (folder / "book.ds").write_bytes(content)
    return folder


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def start(folder, words, **more):
    return subprocess.Popen([str(w) for w in words], cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True, **more)


def finish(process, folder, timeout=60):
    """Waits; nothing of the process's session outlives this call."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"still running after {timeout} s: {' '.join(process.args)}\n{out[-2000:]}\n{err[-2000:]}")
    return Ended(folder, process.args, process.returncode, out, err)


def train(*words, n=None, folder=None, config="t.toml"):
    folder = folder or fresh_folder()
    return finish(start(folder, [options.trireme, "train", config, *(["-n", n] if n is not None else []), *words]), folder)


@functools.cache
def shared(*words, n=None):
    """A run that several tests look at."""
    return train(*words, n=n)


@functools.cache
def reference():
    """One rank, float64, the same samples as all others."""
    return shared(*F64, *QUIET)


@functools.cache
def two_ranks():
    return shared("--training.max_norm", "0.5", n=2)


@functools.cache
def four_ranks(zero):
    return shared(*F64, *QUIET, *DP2_TP2, "--parallelism.zero", str(zero), n=4)


@functools.cache
def faulty_storage():
    return faults.faulty_storage(scratch, options.trireme)


class TrainTest(unittest.TestCase):
    maxDiff = None

    def ok(self, run):
        self.assertEqual(run.code, 0, run)
        return run

    def one_error(self, run, code, *parts):
        """It ended with the code, and said why, in one error that has all parts."""
        self.assertEqual(run.code, code, run)
        self.assertTrue(run.stderr.startswith("error: "), run)
        for part in parts:
            self.assertIn(part, run.stderr, run)

    def nothing_started(self, run):
        """Nothing on standard output, one error alone, no folder."""
        self.assertEqual(run.stdout, "", run)
        self.assertEqual(len(re.findall(r"error: ", run.stderr)), 1, run)
        self.assertFalse((run.folder / "runs").exists(), f"{run}\nleft behind: {run.files()}")

    def close(self, a, b, bound):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLessEqual(abs(x - y), bound * abs(y), f"{a}\n{b}")


def late_results():
    """Results of a step are read during the next one, as on a GPU."""
    return variables(TRIREME_TEST_LATE_RESULTS="1")


class LateResults(TrainTest):
    """What a GPU does, on CPUs: everything is as without it, but a stop comes a step later."""

    def both(self, *words, n=None):
        with late_results():
            late = train(*words, n=n)
        return late, train(*words, n=n)

    def test_records_are_the_same(self):
        words = (*F64, "--training.steps", "9", "--checkpoint.interval", "4", "--validation.interval", "3", "--validation.sources", "held.ds")
        late, at_once = self.both(*words, n=2)
        self.assertEqual(self.ok(late).hex(), self.ok(at_once).hex())
        self.assertEqual([row.get("val/loss") for row in late.metrics()], [row.get("val/loss") for row in at_once.metrics()])
        self.assertEqual(sorted(p.name for p in (late.path() / "checkpoints").iterdir()),
                         sorted(p.name for p in (at_once.path() / "checkpoints").iterdir()))

    def test_skipped_updates_are_the_same(self):
        late, at_once = self.both(*BLOW_UP, "--checks.non_finite", "skip", n=2)
        self.assertEqual(self.ok(late).hex(), self.ok(at_once).hex())
        self.assertEqual([row["skipped"] for row in late.metrics()], [row["skipped"] for row in at_once.metrics()])

    def test_not_finite_stops_at_the_same_step(self):
        late, at_once = self.both(*BLOW_UP, n=2)
        self.assertEqual((late.code, at_once.code), (NON_FINITE, NON_FINITE), late)
        self.assertEqual(late.hex(), at_once.hex())
        told = re.compile(r"step (\d+): .*those after step (\d+), saved in \S+/step-\2\n", re.S)
        self.assertEqual(told.search(late.stderr).groups(), told.search(at_once.stderr).groups(), late)

    def test_data_that_breaks_saves_the_step_before(self):
        folder = folder_with_a_broken_token()
        with late_results():
            run = train("--training.steps", 2000, n=2, folder=folder)
        self.assertEqual(run.code, DATA, run)
        self.assertIn(f"the checkpoint after step {len(run.metrics())} is ", run.stderr)

    def test_ctrl_c_saves_the_last_step(self):
        folder = fresh_folder()
        with late_results():
            process = start(folder, [options.trireme, "train", "t.toml", "-n", 2, "--training.steps", 1000000])
            path = folder / "runs/latest/metrics.jsonl"
            end = time.monotonic() + 30
            while (not path.exists() or path.read_text().count("\n") < 3) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            run = finish(process, folder)
        self.assertEqual(run.code, INTERRUPTED, run)
        rows = run.metrics()
        self.assertEqual([row["step"] for row in rows], list(range(1, len(rows) + 1)))
        self.assertEqual(run.saved(), folder / f"runs/t-dp2/checkpoints/step-{len(rows)}")


class Folder(TrainTest):
    """What a run leaves on disk."""

    def test_trace(self):
        # The second traced step is the last: it has no step behind it.
        run = self.ok(train("--profiler.steps", "[2, 4]", "--parallelism.bucket_mb", "0.01", "--training.grad_accum", "2",
                            "--training.micro_batch_size", "2", "--training.global_batch_size", "8", *QUIET, n=2))
        for rank, step in itertools.product((0, 1), (2, 4)):
            with gzip.open(run.path() / f"trace/step{step}/rank{rank}.json.gz") as file:
                events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
            self.assertEqual({event["args"]["step"] for event in events}, {step}, "no event of another step")
            parts = {event["name"]: event for event in events if event["cat"] == "step"}
            self.assertEqual(sorted(parts), ["backward microbatch 0", "backward microbatch 1", "forward microbatch 0",
                                             "forward microbatch 1", "update"])
            last = parts["backward microbatch 1"]
            sums = [event for event in events if event["name"].startswith("reduce_scatter")]
            self.assertGreater(len(sums), 2)
            self.assertLess(min(event["ts"] for event in sums), last["ts"] + last["dur"], "the first bucket leaves before backward ends")
            gathers = [event["ts"] for event in events if event["name"].startswith("all_gather") and "phase=update" in event["args"]["tag"]]
            self.assertGreater(len(gathers), 2)
            self.assertGreater(min(gathers), parts["update"]["ts"], "of the own update")
            for phase in ("forward", "backward"):
                layers = [event for event in events if event["cat"] == phase]
                self.assertEqual([event["name"] for event in layers].count("layers.1"), 2, "by path, for each microbatch")
                for event in layers:
                    self.assertTrue(any(part["ts"] <= event["ts"] and event["ts"] + event["dur"] <= part["ts"] + part["dur"] + 1
                                        for name, part in parts.items() if name.startswith(phase)), f"{event} lies in no {phase}")

    def test_files(self):
        run = self.ok(two_ranks())
        path = run.path()
        self.assertEqual(os.readlink(path), "t-dp2")
        self.assertEqual(sorted(p.name for p in path.iterdir()),
                         ["checkpoints", "config.toml", "events.jsonl", "metrics.jsonl", "ranks", "ranks.jsonl", "tb"])
        self.assertEqual(sorted(p.name for p in (path / "ranks").iterdir()), ["launched.toml", "r0000.log", "r0001.log"])
        self.assertEqual((path / "ranks" / "r0000.log").read_text(), run.stdout)
        self.assertEqual(run.saved(), run.folder / "runs/t-dp2/checkpoints/step-4")
        self.assertEqual(sorted(p.name for p in (path / "checkpoints").iterdir()), ["latest", "step-4"], "and nothing half written")
        self.assertEqual(sorted(p.name for p in run.saved().iterdir()),
                         ["checkpoint_metadata.json", "config.json", "exported_files.json", "model.safetensors", "rank-00000.json",
                          "rank-00000.safetensors", "rank-00001.json", "rank-00001.safetensors"])
        model = json.loads((run.saved() / "config.json").read_text())
        self.assertEqual([model[k] for k in ("architectures", "hidden_size", "num_key_value_heads", "vocab_size", "dtype")],
                         [["LlamaForCausalLM"], 32, 2, 257, "float32"])
        raw = (run.saved() / "model.safetensors").read_bytes()
        header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
        header.pop("__metadata__", None)
        sizes = [functools.reduce(lambda a, b: a * b, t["shape"]) for t in header.values()]
        self.assertEqual(sum(sizes), 35040)
        self.assertIn(f"{sum(sizes):,} parameters", run.stdout)
        events = list((path / "tb").iterdir())
        self.assertEqual(len(events), 1)
        for tag in (b"loss", b"grad_norm", b"tokens_per_sec"):
            self.assertIn(tag, events[0].read_bytes())

    def test_hub_command(self):
        folder = fresh_folder()
        run = self.ok(train("--metrics.hub_command", f"cp,-r,{{dir}},{folder}/uploaded", *QUIET, folder=folder))
        self.assertEqual([p.name for p in (folder / "uploaded").iterdir()], [p.name for p in (run.path() / "tb").iterdir()])
        failed = self.ok(train("--metrics.hub_command", "/no/such/program", *QUIET))  # a run does not fail for its curves
        self.assertIn("/no/such/program", failed.stdout + failed.stderr)

    def test_metrics(self):
        run = self.ok(two_ranks())
        known = set(re.findall(r"`([a-z_/]+)`", " ".join(
            line.split("|")[1] for line in (SOURCE / "docs/training_output.md").read_text().splitlines() if line.startswith("| `"))))
        self.assertIn("grad_norm_hex", known)
        rows = run.metrics()
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4])
        for row in rows:
            self.assertLessEqual(set(row), known)
            self.assertGreaterEqual(set(row), {"loss", "loss_hex", "grad_norm", "grad_norm_hex", "lr", "tokens", "tokens_per_sec",
                                               "tokens_per_sec_per_gpu", "step_time_s", "train_time_s", "data_time_frac", "comm_exposed_frac",
                                               "tflops_per_gpu", "mem_peak_gib", "skipped"})
            self.assertNotIn("mfu", row, "no peak is known of a CPU")
            self.assertEqual(float.fromhex(row["loss_hex"]), row["loss"])
            self.assertEqual(float.fromhex(row["grad_norm_hex"]), row["grad_norm"])
            self.assertEqual(row["tokens"], row["step"] * TOKENS)
            self.close([row["tokens_per_sec"]], [TOKENS / row["train_time_s"]], 1e-6)
            self.assertLessEqual(row["train_time_s"], row["step_time_s"])
            self.close([row["tokens_per_sec_per_gpu"]], [row["tokens_per_sec"] / 2], 1e-6)
            parts = [row[key] for key in ("data_time_frac", "forward_time_frac", "backward_time_frac", "comm_exposed_frac",
                                          "optimizer_time_frac", "other_time_frac")]
            self.assertTrue(all(0 <= part <= 1 for part in parts), row)
            self.assertAlmostEqual(sum(parts), 1, delta=1e-6)
            self.assertLessEqual(row["own_work_min_s"], row["own_work_max_s"])
            self.assertIn(row["slowest_rank"], (0, 1))
            earlier = 2 if faults.sanitizer_of(options.trireme) else 1.1
            # train_time_s is of rank 0, by whose clock its own work is a part; rank 1 may have begun the step earlier.
            self.assertLessEqual(row["own_work_min_s"], row["train_time_s"])
            self.assertLessEqual(row["own_work_max_s"], (earlier if row["slowest_rank"] else 1) * row["train_time_s"])
            self.assertFalse(row["skipped"])
        self.assertAlmostEqual(rows[0]["loss"], 5.549, delta=0.1)  # log 257: it knows nothing yet
        self.assertLess(rows[-1]["loss"], rows[0]["loss"] - 0.5)
        self.assertEqual(rows[0]["lr"], 0.01)

    def test_its_config_gives_the_same_run(self):
        run = self.ok(two_ranks())
        again = self.ok(train(*QUIET, n=2, config=run.path() / "config.toml"))
        self.assertEqual(again.hex(), run.hex())
        self.assertIn("max_norm = 0.5", (again.path() / "config.toml").read_text())

    def test_a_run_never_writes_over_another(self):
        folder = fresh_folder()
        first = self.ok(train(*QUIET, folder=folder))
        kept = {p: (folder / p).read_bytes() for p in first.files() if "latest" not in p}
        with concurrent.futures.ThreadPoolExecutor() as pool:  # two at once, with the same name
            for run in pool.map(lambda _: train(*QUIET, "--checkpoint.resume", "never", folder=folder), range(2)):
                self.ok(run)
        self.assertEqual(sorted(p.name for p in (folder / "runs").iterdir()), ["latest", "t-single", "t-single-2", "t-single-3"])
        self.assertIn(os.readlink(folder / "runs/latest"), ("t-single-2", "t-single-3"))
        for path, content in kept.items():
            self.assertEqual((folder / path).read_bytes(), content, path)


class Numbers(TrainTest):
    """In float64 the layout changes nothing but the last bits."""

    def test_dp_2_tp_2_and_every_zero_stage_equal_one_rank(self):
        one = self.ok(reference())
        for zero in range(4):
            with self.subTest(zero=zero):
                many = self.ok(four_ranks(zero))
                self.close(many.losses(), one.losses(), 1e-12)
                self.close([r["grad_norm"] for r in many.metrics()], [r["grad_norm"] for r in one.metrics()], 1e-12)

    def test_twice_is_identical(self):
        again = self.ok(train(*F64, *QUIET, *DP2_TP2, "--parallelism.zero", "3", n=4))
        self.assertEqual(again.hex(), four_ranks(3).hex())
        self.assertEqual((again.saved() / "model.safetensors").read_bytes(),
                         (four_ranks(3).saved() / "model.safetensors").read_bytes())

    def test_validation(self):
        words = (*F64, *QUIET, "--validation.interval", "2", "--validation.fraction", "0.1", "--training.steps", "5")
        one, two = self.ok(shared(*words)), self.ok(shared(*words, n=2))
        for run in (one, two):
            self.assertEqual([row["step"] for row in run.metrics() if "val/loss" in row], [2, 4, 5], "and the last")
            self.assertIn(b"val/loss", next((run.path() / "tb").iterdir()).read_bytes())
        values = [[row["val/loss"] for row in run.metrics() if "val/loss" in row] for run in (one, two)]
        self.close(values[0], values[1], 1e-12)
        self.assertLess(values[0][1], values[0][0])
        self.assertNotEqual(one.losses()[0], reference().losses()[0], "samples that are held out are not trained on")

    def test_validation_by_files_changes_no_sample(self):
        run = self.ok(train(*F64, *QUIET, "--validation.interval", "3", "--validation.sources", "held.ds", "--validation.samples", "5"))
        self.assertEqual(run.hex(), self.ok(reference()).hex())
        self.assertEqual([row["step"] for row in run.metrics() if "val/loss" in row], [3, 4])

    def test_from_the_weights_of_an_earlier_run(self):
        words = (*F64, *QUIET, "--validation.interval", "1", "--validation.sources", "held.ds", "--validation.samples", "9")
        old = self.ok(shared(*words))
        # With so small a learning rate the weights stay what they are.
        words += ("--model.init", f"hf:{old.saved()}", "--optimizer.lr", "1e-12", "--training.steps", "2")
        new = self.ok(train(*words, "--parallelism.zero", "3", n=2))
        self.close([new.metrics()[0]["val/loss"]], [old.metrics()[-1]["val/loss"]], 1e-8)
        self.assertLess(new.losses()[0], old.losses()[0] - 0.5)  # of the same samples
        only = self.ok(train(*words))
        self.close(only.losses(), new.losses(), 1e-12)

    def test_16_bits(self):
        for dtype in ("float16", "bfloat16"):
            run = self.ok(train("--model.dtype", dtype))
            self.close(run.losses(), reference().losses(), 2e-3)
            scales = [row.get("loss_scale") for row in run.metrics()]
            self.assertEqual(scales, [65536.0] * 4 if dtype == "float16" else [None] * 4)
            self.assertEqual(json.loads((run.saved() / "config.json").read_text())["dtype"], dtype)
            self.assertIn(f"{dtype} compute · float32 master", run.stdout)

    def test_a_loss_scale_that_is_too_large_comes_down(self):
        run = self.ok(train("--model.dtype", "float16", "--loss_scale.initial", "1e30", "--loss_scale.hysteresis", "1", *QUIET))
        rows = run.metrics()
        self.assertEqual([row["skipped"] for row in rows], [True] * 4)
        scales = [row["loss_scale"] for row in rows]
        self.close(scales[1:], [scale / 2 for scale in scales[:-1]], 1e-6)
        self.assertIn("4 updates skipped", run.stdout)


    def test_what_a_run_says_is_next_works(self):
        run = self.ok(two_ranks())
        first, *others = re.search(r"(?m)^next +(.*(?:\n +trireme .*)*)", run.stdout)[1].splitlines()
        commands = [line.strip() for line in (first, *others)]
        self.assertEqual([command.split()[1] for command in commands], ["report", "generate", "verify"])
        for command in commands:
            done = subprocess.run(["sh", "-c", command.replace("trireme ", f"{options.trireme} ", 1)], cwd=run.folder, env=environment(),
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")

    def test_memory_of_the_examples_is_predicted(self):
        demo = (SOURCE / "examples/demo.toml").read_text()
        for pattern, instead in ((r"build/demo/sources\.ds", "synthetic"), (r"(?m)^path = .*$", ""), (r"(?s)\[validation\].*?(?=\[opt)", "")):
            demo = re.sub(pattern, instead, demo)
        for name, n in (("tiny", 2), ("long_context", 2), ("moe", 2), ("demo", 4)):
            with self.subTest(name):
                folder = fresh_folder()
                (folder / "e.toml").write_text(demo if name == "demo" else (SOURCE / f"examples/{name}.toml").read_text())
                run = self.ok(train("--training.steps", "3", "--lr_scheduler.warmup_steps", "1", "--run.dir", "runs", "--model.dtype", "float32",
                                    n=n, folder=folder, config="e.toml"))
                said = re.search(r"memory predicted [\d.]+ MiB, measured [\d.]+ MiB \(([+-][\d.]+)%\)", run.stdout)
                self.assertTrue(said, run)
                self.assertLess(abs(float(said[1])), 10, run)

    def test_updates_with_an_outlier_norm_are_skipped(self):
        words = (*F64, "--training.steps", "24", "--optimizer.skip_z", "0.8", "--checkpoint.interval", "12")
        one = self.ok(train(*words))
        rows = one.metrics()
        skipped = [row["step"] for row in rows if row["skipped"]]
        for row in rows:
            if abs(row.get("grad_norm_z", 0) - 0.8) > 0.01:  # it is rounded
                self.assertEqual(row["skipped"], row.get("grad_norm_z", 0) > 0.8, row)
        self.assertTrue(0 < len(skipped) < 12, skipped)
        for step in skipped:
            self.assertRegex(one.stdout + one.stderr, rf"warning: step {step}: update skipped, its gradient norm of [0-9.]+ exceeds "
                                                      r"optimizer\.skip_z = 0\.8")
        two = self.ok(train(*words, "--parallelism.zero", "1", n=2))
        self.assertEqual([row["step"] for row in two.metrics() if row["skipped"]], skipped)
        for a, b in zip(rows, two.metrics(), strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-9)
        # The window is in the checkpoint: a run that goes on after step 12 skips the same updates.
        shutil.rmtree(one.path() / "checkpoints/step-24")
        run = one.path().resolve().name
        again = self.ok(train(*words, "--run.name", run, "--checkpoint.resume", "auto", folder=one.folder))
        self.assertEqual([(row["step"], row["loss_hex"], row["skipped"]) for row in again.metrics()][-12:],
                         [(row["step"], row["loss_hex"], row["skipped"]) for row in rows[-12:]])


    def test_a_step_without_a_label_has_no_loss(self):
        """Only the answers of a conversation are learned, and some batches hold none of one."""
        folder = fresh_folder()
        (folder / "talks.jsonl").write_text("".join(json.dumps({"prompt": "q" * 100 + str(i), "completion": "a" * 100}) + "\n" for i in range(40)))
        subprocess.run([options.trireme, "data", "prepare", "talks.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "talks"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL)
        text = (folder / "t.toml").read_text().replace("book.ds", "talks.ds").replace("global_batch_size = 8", "global_batch_size = 1")
        (folder / "t.toml").write_text(text.replace("micro_batch_size = 2", "micro_batch_size = 1"))
        run = self.ok(train("--training.steps", "12", "--data.0.packing", "cut", "--run.seed", "3", folder=folder))
        rows = run.metrics()
        without = [row["step"] for row in rows if row["loss"] is None]
        self.assertTrue(0 < len(without) < 12 and without[0] > 1, f"the seed shows nothing: {without}")
        for row in rows:
            self.assertEqual((row["loss_hex"] == "nan", row["grad_norm"] == 0), (row["step"] in without,) * 2, row)
        self.assertIn(f"warning: step {without[0]}: no token of the batch has a label: the loss of such a step is null, and it learns nothing from the data",
                      run.stdout)
        self.assertEqual(run.stdout.count("no token of the batch"), 1, "once")
        self.assertIn(f"warning: {len(without)} steps had no token with a label, and no loss", run.stdout)
        unlabelled = "".join(json.dumps({"prompt": "q" * 2000, "completion": "a"}) + "\n" for _ in range(2))
        (folder / "questions.jsonl").write_text(unlabelled)
        subprocess.run([options.trireme, "data", "prepare", "questions.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "questions"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL)
        run = self.ok(train("--run.name", "v", "--training.steps", "12", "--data.0.packing", "cut", "--run.seed", "3", "--validation.interval", "6",
                            "--validation.sources", "questions.ds", "--validation.samples", "1", folder=folder))
        self.assertEqual([row["val/loss"] for row in run.metrics() if "val/loss" in row], [None, None])
        self.assertEqual(run.stdout.count("validation after step 6: no token of its data has a label: its loss is null"), 1, run)
        self.assertIn("val loss none", run.stdout)


class SmallDisk(TrainTest):
    def with_disk(self, size, script):
        folder = fresh_folder()
        (folder / "runs").mkdir()
        command = f"mount -t tmpfs -o size={size} none runs || exit 1\n{script}"
        run = finish(start(folder, ["unshare", "-m", "sh", "-c", command]), folder)
        if re.search("^(unshare|mount):", run.stderr, re.M):
            self.skipTest("no mounts here: " + run.stderr.strip()[:100])
        return run

    def test_a_disk_that_fills_up_before_the_save_can_be_freed(self):
        run = self.with_disk("1m", f"""
            {options.trireme} train t.toml -n 2 --training.steps 1000000 2> errors &
            until [ "$(cat runs/latest/metrics.jsonl 2> /dev/null | wc -l)" -ge 3 ] || ! kill -0 $!; do sleep 0.05; done
            head -c 2m /dev/zero > runs/other 2> /dev/null
            kill -TERM $!
            until grep -q 'checkpoint needs' errors || ! kill -0 $!; do sleep 0.05; done
            rm runs/other
            wait $!
            code=$?
            cat errors >&2
            stat -L -c '%s bytes saved' runs/latest/checkpoints/step-*/rank-00000.safetensors
            exit $code""")
        self.assertEqual(run.code, PREEMPTED, run)
        self.assertRegex(run.stderr, "warning: .*a checkpoint needs [45][0-9][0-9].* free on this disk\n  fix: .*\n  waits up to [0-9]+ s for space")
        self.assertRegex(run.stdout, "(?m)^2[0-9]{5} bytes saved")

    def test_a_disk_that_is_full_for_a_while(self):
        """Saves fail meanwhile, training goes on, and the checkpoints before and after are there."""
        run = self.with_disk("2m", f"""
            {options.trireme} train t.toml -n 2 --training.steps 1000000 --checkpoint.interval 3 > said 2> errors &
            until ls runs/latest/checkpoints/step-3 > /dev/null 2>&1 || ! kill -0 $!; do sleep 0.02; done
            head -c 3m /dev/zero > runs/other 2> /dev/null
            until grep -q 'was not saved' said || ! kill -0 $!; do sleep 0.02; done
            rm runs/other
            last=$(cat runs/latest/checkpoints/latest)
            until [ "$(cat runs/latest/checkpoints/latest)" != "$last" ] || ! kill -0 $!; do sleep 0.02; done
            kill -TERM $!
            wait $!
            code=$?
            cat said errors >&2
            {options.trireme} checkpoint verify runs/latest > /dev/null && ls runs/latest/checkpoints
            exit $code""")
        self.assertEqual(run.code, PREEMPTED, run)
        self.assertRegex(run.stderr, r"checkpoint \d+ was not saved, training continues: .*No space left on device")
        self.assertEqual([name for name in run.stdout.split() if "." in name], [], "nothing half written")
        self.assertEqual(len(run.stdout.split()), 3, "two checkpoints and latest")

    def test_a_disk_that_stays_full_ends_the_run(self):
        run = self.with_disk("2m", f"""
            {options.trireme} train t.toml -n 2 --training.steps 1000000 --checkpoint.interval 3 > said 2> errors &
            until ls runs/latest/checkpoints/step-3 > /dev/null 2>&1 || ! kill -0 $!; do sleep 0.02; done
            head -c 3m /dev/zero > runs/other 2> /dev/null
            wait $!
            code=$?
            cat said errors >&2
            {options.trireme} checkpoint verify runs/latest > /dev/null || exit 1
            exit $code""")
        self.assertEqual(run.code, STORAGE, run)
        self.assertRegex(run.stderr, r"error: the last 3 checkpoints were not saved, from step \d+ on \(20\d\d-.*\n.*No space left on device")

    def test_the_last_checkpoint_needs_no_space_for_the_weights(self):
        """The state of two ranks has 440 kB, and the weights for transformers 150 kB."""
        run = self.with_disk("1m", f"""
            env --default-signal=INT {options.trireme} train t.toml -n 2 --training.steps 1000000 --checkpoint.interval 0 \\
                --comm.init_timeout_s 5 2> errors &
            until [ "$(cat runs/latest/metrics.jsonl 2> /dev/null | wc -l)" -ge 3 ] || ! kill -0 $!; do sleep 0.05; done
            free=$(df --output=avail -k runs | tail -1)
            head -c $(( (free - 560) * 1024 )) /dev/zero > runs/other
            kill -INT $!
            wait $!
            code=$?
            cat errors >&2
            {options.trireme} checkpoint verify runs/latest > verified || exit 1
            exit $code""")
        self.assertEqual(run.code, CHECKPOINT, run)
        self.assertRegex(run.stderr, r"step-\d+ is saved, but without the weights for transformers: [\s\S]*No space left[\s\S]*trireme convert")

    def test_a_disk_that_is_too_small_for_the_weights_is_told_at_the_start(self):
        run = self.with_disk("300k", f"exec {options.trireme} train t.toml -n 2")
        self.assertEqual(run.code, CHECKPOINT, run)
        self.assertRegex(run.stderr, "a checkpoint needs [45][0-9][0-9].* are free on this disk\n  fix: ")
        self.assertNotRegex(run.stdout, r"(?m)^ +step +loss")

    def test_weights_for_transformers_that_do_not_fit_cost_no_checkpoint(self):
        """No file may become larger than 520 kB: those of four ranks fit, with 3/4 of the bytes, model.safetensors does not."""
        folder = fresh_folder()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (520_000, 520_000))
        run = finish(start(folder, [options.trireme, "train", "t.toml", "-n", 4, "--model.vocab_size", 2000, *QUIET], preexec_fn=limit), folder)
        self.assertEqual(run.code, CHECKPOINT, run)
        self.assertRegex(run.stderr, r"step-4 is saved, but without the weights for transformers: [\s\S]*File too large[\s\S]*trireme convert")
        self.assertEqual(sorted(p.name for p in (run.path() / "checkpoints").iterdir()), ["latest", "step-4"], "and nothing half written")
        self.assertEqual(sorted(p.name for p in (run.path() / "checkpoints/step-4").iterdir() if "rank-" not in p.name),
                         ["checkpoint_metadata.json", "config.json"])
        verified = subprocess.run([options.trireme, "checkpoint", "verify", run.path()], capture_output=True, text=True)
        self.assertEqual(verified.returncode, 0, verified)


class Launchers(TrainTest):
    """The same bits whoever starts the ranks."""

    words = (*F64, "--parallelism.zero", "1", *DP2_TP2)

    def same(self, run):
        self.ok(run)
        self.assertEqual(run.hex(), self.ok(four_ranks(1)).hex())
        self.assertEqual(len(re.findall("done ", run.stdout)), 1, "rank 0 alone prints")
        self.assertEqual(sorted(p.name for p in (run.folder / "runs").iterdir()), ["latest", "t-dp2tp2"], "one folder for all")
        self.assertTrue((run.folder / "runs/t-dp2tp2/checkpoints/step-4/model.safetensors").exists())

    @staticmethod
    @functools.cache
    def mpirun():
        folder = fresh_folder()
        return finish(start(folder, ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", options.trireme, "train", "t.toml",
                                     *Launchers.words]), folder)

    def test_torchrun(self):
        need(self, "torch")
        folder = fresh_folder()
        run = finish(start(folder, [options.peer_python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "4",
                                    options.trireme, "train", "t.toml", *self.words, *QUIET]), folder)
        self.same(run)

    def test_mpirun(self):
        ranks.need_mpirun(self)
        self.same(self.mpirun())

    def test_a_named_interface_comes_before_the_own_address(self):
        """Two nodes on one host, whose name it resolves to 127.0.1.1, and which has no other interface."""
        rank = f"""RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=node-a MASTER_PORT=29500 \\
            {options.trireme} train t.toml --training.steps 2"""
        script = f"""
            ip link set lo up && echo 127.0.1.1 node-a > hosts && mount --bind hosts /etc/hosts || exit 99
            for r in 0 1; do {rank} & pids="$pids $!"; done
            code=0; for pid in $pids; do wait $pid || code=$?; done; exit $code"""
        said = {}
        for interface in ("", "lo"):
            folder = fresh_folder()
            with variables(GLOO_SOCKET_IFNAME=interface):
                said[interface] = finish(start(folder, ["unshare", "-n", "-m", "sh", "-c", script]), folder)
            if said[interface].code == 99 or re.search("^unshare:", said[interface].stderr, re.M):
                self.skipTest("no namespaces here: " + said[interface].stderr.strip()[:100])
        self.assertEqual(said[""].code, CONFIG, said[""])
        self.assertIn("this host has no address that the ranks of other hosts could reach", said[""].stderr)
        self.assertIn("fix: GLOO_SOCKET_IFNAME", said[""].stderr)
        self.assertEqual(len(self.ok(said["lo"]).metrics()), 2)

    def test_no_escapes_in_a_file_under_mpirun(self):
        ranks.need_mpirun(self)
        self.assertNotIn("\x1b", self.mpirun().stdout)


class Stops(TrainTest):
    """Signals, and numbers that are not finite."""

    def interrupted(self, *words, n=2, sign=signal.SIGINT, after=3):
        """Gets the signal, to the launcher alone, when so many steps are done."""
        folder = fresh_folder()
        process = start(folder, [options.trireme, "train", "t.toml", "-n", n, "--training.steps", 1000000, *words])
        end = time.monotonic() + 30
        path = folder / "runs/latest/metrics.jsonl"
        while not path.exists() or path.read_text().count("\n") < after:
            if process.poll() is not None or time.monotonic() > end:
                break  # the test will say what is wrong
            time.sleep(0.02)
        process.send_signal(sign)
        return finish(process, folder)

    def test_ctrl_c_finishes_the_step_and_saves(self):
        samples = 4
        run = self.interrupted(*F64, "--validation.interval", "1", "--validation.sources", "held.ds", "--validation.samples", samples)
        self.assertEqual(run.code, INTERRUPTED, run)
        rows = run.metrics()
        self.assertEqual([row["step"] for row in rows], list(range(1, len(rows) + 1)))
        self.assertRegex(run.stdout, rf"(?m)^stopped +{len(rows)} steps in ")
        self.assertEqual(run.saved(), run.folder / f"runs/t-dp2/checkpoints/step-{len(rows)}")
        self.assertIn("SIGINT", run.stderr)
        self.assertNotIn("error", run.stderr)
        self.assertTrue((run.saved() / "model.safetensors").exists())
        need(self, "transformers")
        judged = subprocess.run([options.peer_python, "-c", LOSS_BY_TRANSFORMERS, run.saved(), run.folder / "book.ds", str(samples), "16"],
                                capture_output=True, text=True, timeout=120, env=environment())
        self.assertEqual(judged.returncode, 0, judged.stderr)
        # The norms of transformers compute in float32.
        self.close([float(judged.stdout)], [rows[-1]["val/loss"]], 1e-5)

    def test_a_step_that_was_the_last_is_printed(self):
        run = self.interrupted("--metrics.interval", "1000000", "--metrics.console", "json", n=1)
        self.assertEqual(run.code, INTERRUPTED, run)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertIs(lines[-1]["done"]["interrupted"], True)
        self.assertEqual([line["step"] for line in lines if "step" in line], [1, lines[-1]["done"]["steps"]])

    def twice(self, seconds):
        """Ctrl-C twice, with so much time between, in a step that takes many seconds."""
        folder = fresh_folder()
        process = start(folder, [options.trireme, "train", "t.toml", "-n", 2, "--training.seq_len", 16384, "--training.steps", 1000])
        end = time.monotonic() + 30
        while not (folder / "runs/latest/config.toml").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        run = finish(process, folder, timeout=4)
        self.assertEqual(run.code, KILLED, run)
        self.assertIn("killed by a second SIGINT, without saving", run.stderr)
        self.assertFalse((run.path() / "checkpoints").exists())

    def test_ctrl_c_twice_stops_at_once(self):
        self.twice(1.1)  # within a second it is one request

    def test_a_step_takes_as_long_as_the_clock_says(self):
        """With validation, which takes most of the time here."""
        run = self.ok(train("--metrics.console", "json", "--validation.interval", "1", "--validation.sources", "held.ds"))
        seconds = json.loads(run.stdout.splitlines()[-1])["done"]["seconds"]
        rows = run.metrics()
        self.assertGreaterEqual(seconds + 1e-3, sum(row["step_time_s"] for row in rows))
        self.assertGreaterEqual(sum(row["step_time_s"] for row in rows), 0.9 * seconds)
        self.assertLess(sum(row["train_time_s"] for row in rows), 0.9 * seconds)

    def test_data_without_one_label_to_learn(self):
        folder = fresh_folder()
        (folder / "book.ds.loss").write_bytes(bytes((folder / "book.ds").stat().st_size // 2))
        run = train(n=2, folder=folder)
        self.one_error(run, DATA, "no token of the first 4 steps has a label to learn (book.ds", "fix: ")

    def test_not_finite_stops(self):
        run = train(*BLOW_UP, n=2)
        self.assertEqual(run.code, NON_FINITE, run)
        done = len(run.metrics())
        self.assertRegex(run.stderr, rf"^error: step {done + 1}: .* not finite \(loss \S+, norm \S+\)\n"
                                     r"  first non-finite value: the (output|gradient) of [a-z0-9_.]+ in microbatch \d+ on rank [01]\n"
                                     rf"  nothing was updated: weights and states are those after step {done}(, saved in \S+/step-{done})\n"
                                     r"  fix: a lower optimizer.lr")

    def test_not_finite_is_skipped_on_demand(self):
        run = self.ok(shared(*BLOW_UP, "--checks.non_finite", "skip", n=2))
        rows = run.metrics()
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4, 5, 6])
        skipped = [row for row in rows if row["skipped"]]
        self.assertTrue(0 < len(skipped) < 6)
        self.assertIn(f"{len(skipped)} updates skipped", run.stdout)
        for row in skipped:
            self.assertIsNone(row["grad_norm"])
            self.assertIn(row["grad_norm_hex"], ("nan", "inf", "-nan"))

    def test_a_run_without_one_update_fails(self):
        words = ("--model.dtype", "float16", "--model.initializer_range", "1000", "--loss_scale.initial", "1", "--checks.non_finite", "skip")
        run = train(*words, n=2)
        self.assertEqual(run.code, NON_FINITE, run)
        self.assertEqual([row["skipped"] for row in run.metrics()], [True] * 4)
        self.assertIn("error: all 4 updates were skipped: no gradient was finite, and nothing was trained\n"
                      "  the weights are the initial ones, saved in ", run.stderr)

    def test_a_step_that_fails_right_after_a_checkpoint(self):
        """The checkpoint of the step before is there already: it is not saved again, and the reason is told."""
        for n in (None, 2):
            with self.subTest(n=n):
                run = train(*BLOW_UP, "--checkpoint.interval", "1", n=n)
                self.assertEqual(run.code, NON_FINITE, run)
                [step] = set(re.findall(r"those after step (\d+), saved in \S+/step-\1\n", run.stderr))
                self.assertTrue((run.path() / f"checkpoints/step-{step}/checkpoint_metadata.json").exists(), run)

    def test_weights_that_are_not_finite_are_told_of(self):
        folder = shared(*QUIET).saved()
        bad = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "bad"
        shutil.copytree(folder, bad)
        with open(bad / "model.safetensors", "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(struct.pack("<f", math.nan))
        run = train("--model.init", f"hf:{bad}", "--checks.non_finite", "skip")
        self.assertEqual(run.code, NON_FINITE, run)
        self.assertRegex(run.stderr, r"^error: the weights after step 4 are not finite, saved in \S+/step-4\n"
                                     r"  not finite in the saved weights: [a-z0-9_.]+\n  all 4 updates were skipped\n  fix: ")

    def test_output_that_nobody_reads_stops_no_training(self):
        """More than a pipe takes, of a single rank: nobody is between it and the reader."""
        folder = fresh_folder()
        process = start(folder, [options.trireme, "train", "t.toml", "--training.steps", 1500, "--metrics.interval", 1, "--metrics.console", "plain",
                                 "--checkpoint.export_hf", "false"])
        try:
            self.assertEqual(process.wait(150 if faults.sanitizer_of(options.trireme) else 60), 0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        run = finish(process, folder)
        self.assertEqual(len((folder / "runs/latest/metrics.jsonl").read_text().splitlines()), 1500)
        self.assertLess(run.stdout.count("step="), 1500, "a pipe that takes it all proves nothing")

    def test_a_note_is_not_repeated(self):
        run = shared(*BLOW_UP, "--checks.non_finite", "skip", "--metrics.console", "plain", n=2)
        lines = [line for line in run.stdout.splitlines() if line.startswith("step=")]
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertLessEqual(line.count("note="), 1, line)

    def loss_scale(self, run, step):
        return json.loads((run.path() / f"checkpoints/step-{step}/checkpoint_metadata.json").read_text())["checkpoint"]["training"]["loss_scale"]

    def test_a_loss_that_is_not_finite_stops_float16_too(self):
        run = train(*BLOW_UP, "--model.dtype", "float16", "--loss_scale.initial", "1", *QUIET)
        self.assertEqual(run.code, NON_FINITE, run)
        step = int(re.search(r"those after step (\d+), saved in ", run.stderr)[1])
        self.assertEqual(self.loss_scale(run, step)["good_steps"], step, "of the step that was saved, not of the one that failed")

    def test_data_that_breaks_in_the_middle_saves_first(self):
        """A token beyond the vocabulary in the samples of one rank: all ranks save what the steps before have trained."""
        folder = folder_with_a_broken_token()
        run = train("--training.steps", 2000, "--model.dtype", "float16", n=2, folder=folder)
        self.assertEqual(run.code, DATA, run)
        steps = len(run.metrics()) if (run.path() / "metrics.jsonl").exists() else 0
        self.assertGreater(steps, 0, run)
        self.assertIn("vocabulary", run.stderr)
        self.assertIn(f"the checkpoint after step {steps} is ", run.stderr)
        state = self.loss_scale(run, steps)
        self.assertEqual((state["good_steps"], state["patience"]), (steps, 2), "of the steps that were done")

    def test_a_token_file_that_changes_saves_first(self):
        folder = fresh_folder()
        content = (folder / "book.ds").read_bytes()
        (folder / "book.ds").unlink()
        (folder / "book.ds").write_bytes(content)
        process = start(folder, [options.trireme, "train", "t.toml", "-n", 2, "--training.steps", 1000000])
        path = folder / "runs/latest/metrics.jsonl"
        end = time.monotonic() + 30
        while not (path.exists() and path.stat().st_size) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        (folder / "book.ds").write_bytes(content)
        run = finish(process, folder, timeout=30)
        self.assertEqual(run.code, DATA, run)
        saved = re.search(r"the checkpoint after step (\d+) is (\S+)", run.stderr)
        self.assertTrue(saved and (run.path() / f"checkpoints/step-{saved[1]}/checkpoint_metadata.json").exists(), run)

    def test_a_stop_does_not_validate_first(self):
        """Validation may take longer than a scheduler waits; the run that goes on validates when it would have."""
        folder = fresh_folder()
        process = start(folder, [options.trireme, "train", "t.toml", "-n", 2, "--training.steps", 1000000, "--validation.interval", 1000000,
                                 "--validation.fraction", "0.1"])
        path = folder / "runs/latest/metrics.jsonl"
        end = time.monotonic() + 30
        while not (path.exists() and path.stat().st_size) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        run = finish(process, folder, timeout=30)
        self.assertEqual(run.code, PREEMPTED, run)
        last = run.metrics()[-1]
        self.assertNotIn("val/loss", last, run)
        self.assertTrue((run.path() / f"checkpoints/step-{last['step']}/checkpoint_metadata.json").exists(), run)

    def test_a_rank_that_dies(self):
        folder = fresh_folder()
        process = start(folder, [options.trireme, "train", "t.toml", "-n", 2, "--training.steps", 1000000])
        end = time.monotonic() + 30
        path = folder / "runs/latest/metrics.jsonl"
        while not (path.exists() and path.stat().st_size) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        for child in ranks.descendants(process.pid):  # the launcher may have a helper beside its ranks
            if "RANK=1\0" in pathlib.Path(f"/proc/{child}/environ").read_text().replace("LOCAL_RANK=", "-"):
                os.kill(int(child), signal.SIGKILL)
        run = finish(process, folder, timeout=10)
        self.assertEqual(run.code, PEER_LOST, run)
        self.assertRegex(run.stderr, r"^error: rank 1 \(pid \d+\) was killed by signal 9 \(SIGKILL\)")


class Console(TrainTest):
    def test_a_table_without_a_terminal(self):
        run = self.ok(shared("--metrics.interval", "3", "--training.steps", "5"))
        self.assertNotIn("\x1b", run.stdout)
        self.assertEqual(run.stderr, "")
        lines = run.stdout.splitlines()
        head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["step", "loss"])
        rows = [line.split() for line in lines[head + 1:head + 4]]
        self.assertEqual([row[0] for row in rows], ["1", "3", "5"])
        self.close([float(row[1]) for row in rows], [run.metrics()[i]["loss"] for i in (0, 2, 4)], 1e-4)
        self.assertLessEqual(max(map(len, lines[head:head + 4])), 140)

    def test_plain(self):
        run = self.ok(train("--metrics.interval", "3", "--training.steps", "5", "--metrics.console", "plain"))
        self.assertNotIn("\x1b", run.stdout)
        self.assertEqual(run.stderr, "")
        shown = [dict(word.split("=", 1) for word in line.split() if "=" in word)
                 for line in run.stdout.splitlines() if line.startswith("step=")]
        self.assertEqual([line["step"] for line in shown], ["1", "3", "5"])
        rows = {str(row["step"]): row for row in run.metrics()}
        for line in shown:
            for key in ("loss", "grad_norm", "lr", "tokens", "tokens_per_sec", "step_time_s", "mem_peak_gib"):
                self.close([float(line[key])], [rows[line["step"]][key]], 1e-2)
        self.assertIn("2 seq × 16 tok × 4 accum × dp 1 = 128 tokens/step · 5 steps = 640 tokens", run.stdout)
        self.assertRegex(run.stdout, r"(?m)^done +5 steps in \S+ m?s · loss 5\.\d+ → 4\.\d+ · median \S+ tok/s$")
        self.assertRegex(run.stdout, r"(?m)^run +trireme .* · 1 rank \(alone; cpu\)")

    def test_json(self):
        run = self.ok(train("--metrics.console", "json", "--metrics.interval", "2", n=2))
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        rows = run.metrics()
        self.assertEqual([line for line in lines if "step" in line], [rows[0], rows[1], rows[3]])
        for line in lines[:-1]:
            self.assertTrue("step" in line or set(line) in ({"note"}, {"warning"}), line)
        done = lines[-1]["done"]
        self.assertEqual([done[k] for k in ("steps", "interrupted", "skipped", "first_loss", "last_loss", "saved")],
                         [4, False, 0, rows[0]["loss"], rows[-1]["loss"], "runs/t-dp2/checkpoints/step-4"])
        self.assertGreaterEqual(done["seconds"] + 1e-3, sum(row["step_time_s"] for row in rows))
        self.assertIn(done["median_tokens_per_sec"], [row["tokens_per_sec"] for row in rows] + [
            statistics.median(row["tokens_per_sec"] for row in rows[k:]) for k in range(2)])
        self.assertAlmostEqual(done["memory_measured_gib"], max(row["mem_peak_gib"] for row in rows))
        self.assertEqual(list(done["shares"]), ["forward", "backward", "comm exposed", "optimizer", "data+log"])
        self.assertAlmostEqual(sum(done["shares"].values()), 1, delta=1e-3)
        for name, key in (("forward", "forward_time_frac"), ("comm exposed", "comm_exposed_frac")):
            seconds = sum(row[key] * row["train_time_s"] for row in rows)
            self.assertAlmostEqual(done["shares"][name], seconds / done["seconds"], delta=1e-3)

    def test_quiet(self):
        run = self.ok(reference())
        self.assertEqual([line.split()[0] for line in run.stdout.splitlines()], ["done", "where", "memory", "saved"])
        self.assertEqual(run.stderr, "")

    def test_a_bar_in_a_file_is_a_table(self):
        run = self.ok(train("--metrics.console", "bar", "--metrics.interval", "2"))
        self.assertNotRegex(run.stdout, "[\x1b\r█]")
        self.assertEqual(re.findall(r"(?m)^ +(\d+) +\d\.\d{4} ", run.stdout), ["1", "2", "4"])

    def test_warnings_are_told(self):
        run = self.ok(train("--training.seq_len", "128", "--training.steps", "1", *QUIET))
        self.assertIn("warning: seq_len = 128 is longer than max_position_embeddings = 64", run.stdout + run.stderr)

    def test_one_step_is_no_plural(self):
        run = self.ok(train("--training.steps", "1"))
        self.assertRegex(run.stdout, r"(?m)^done +1 step in ")
        self.assertNotIn("1 steps", run.stdout)

    def test_shares_of_a_run_that_validates(self):
        run = self.ok(shared(*F64, *QUIET, "--validation.interval", "1", "--validation.sources", "held.ds", "--validation.samples", "0",
                             "--training.steps", "2"))
        shares = re.search(r"where a step goes: (.*)", run.stdout)[1]
        parts = [int(p) for p in re.findall(r"(\d+)%", shares)]
        self.assertTrue(96 <= sum(parts) <= 104, shares)
        self.assertIn("validation", shares)

    def test_what_is_validated_by_files_is_not_called_held_out(self):
        run = self.ok(train("--validation.interval", "1", "--validation.sources", "held.ds", "--validation.samples", "3"))
        self.assertNotIn("held out", run.stdout)

    def test_epochs_are_of_what_is_trained_on(self):
        run = self.ok(train("--validation.interval", "9", "--validation.fraction", "0.5"))
        tokens = (scratch / "data/book.ds").stat().st_size / 2
        epochs = float(re.search(r"([\d.]+) epochs planned", run.stdout)[1])
        self.close([epochs], [4 * TOKENS / (tokens / 2)], 0.02)


class Refused(TrainTest):
    """A config that is wrong: one error, its exit code, nothing started, no folder."""

    def refused(self, *words, n=2, says=(), code=CONFIG, folder=None, **more):
        run = train(*words, n=n, folder=folder, **more)
        self.one_error(run, code, *says)
        self.nothing_started(run)
        return run

    def test_unknown_key(self):
        self.refused("--training.stepz", "3", says=["unknown key", "training.stepz", 'did you mean "steps"?'])
        folder = fresh_folder()
        (folder / "t.toml").write_text(TOML.replace("warmup_steps", "warmup"))
        self.refused(folder=folder, says=["t.toml:32", "warmup = 1", 'did you mean "warmup_steps"?'])

    def test_no_config(self):
        self.refused(config="none.toml", says=["none.toml", "No such file"])

    def test_tp_that_does_not_divide(self):
        self.refused("--parallelism.tp", "3", n=3, says=[
            "num_attention_heads = 4 is not divisible by parallelism.tp = 3", "tp ∈ {1, 2, 4}",
            "intermediate_size = 64 is not divisible by parallelism.tp = 3"])
        self.refused("--parallelism.tp", "3", "--parallelism.sequence_parallel", "true", n=3, says=[
            "seq_len = 16 is not divisible by parallelism.tp = 3"])

    def test_ranks_that_do_not_fit(self):
        self.refused("--parallelism.dp", "2", n=3, says=["the layout needs 2 ranks, 3 were started", "launch: -n 3", "fix: start 2 ranks"])
        self.refused("--parallelism.tp", "2", n=1, says=["one replica of the model needs 2 ranks, 1 was started"])
        self.refused(n=-1, says=["-n -1: must be at least 1"])

    def test_no_ranks(self):
        self.refused(n=0, says=["-n 0: must be at least 1"])

    def test_experts(self):
        self.refused("--parallelism.ep", "2", says=["parallelism.ep = 2, but the model has no experts"])

    def test_batch_sizes(self):
        self.refused("--training.global_batch_size", "9", says=[
            "global_batch_size = 9 ≠ micro_batch_size 2 × grad_accum × dp 2", "nearest: 8 (grad_accum 2) or 12 (grad_accum 3)"])
        self.refused("--training.grad_accum", "3", says=["global_batch_size = 8 ≠ micro_batch_size 2 × grad_accum 3 × dp 2"])

    def test_positions_of_gpt2(self):
        self.refused("--model.model_type", "gpt2", "--model.hidden_act", "gelu", "--training.seq_len", "65", "--parallelism.sequence_parallel", "false",
                     says=["seq_len = 65 is longer than max_position_embeddings = 64", "fix: "])

    def test_words_that_are_none(self):
        for key, value, says in (("parallelism.zero_unit", "x", '"layer", "model" or a number of layers'),
                                 ("model.init", "nowhere", '"random", "hf:FOLDER" or "checkpoint:FOLDER"')):
            self.refused(f"--{key}", value, says=[key.split(".")[1], value, says])

    def test_limits(self):
        self.refused("--optimizer.lr", "1e30", "--training.steps", "0", "--parallelism.zero", "4",
                     says=["optimizer.lr = 1e30 is too large: at most 1000000", "training.steps = 0 is too small: at least 1",
                           "parallelism.zero = 4 is too large: at most 3"])

    def test_validation(self):
        self.refused("--validation.interval", "2", says=["validation.interval = 2, but there is nothing to validate on", "fix: "])

    def test_run_folder(self):
        folder = fresh_folder()
        (folder / "file").write_text("")
        run = self.refused("--run.dir", "file/runs", folder=folder, says=["file/runs", "Not a directory"])
        self.refused("--run.name", "../up", says=["run.name", "../up", "fix: "])
        self.assertRegex(run.stderr, r"run\.dir[\s\S]*fix: ")

    def test_a_key_that_nothing_reads_is_told(self):
        words = ("--profiler.wait", "3", "--profiler.warmup", "2")
        run = train(*words)
        silent = [key[2:] for key in words[::2] if key[2:] not in run.stdout + run.stderr]
        self.assertEqual(silent, [], run)

    def test_a_fraction_that_is_not_used_is_told(self):
        run = train("--validation.fraction", "0.5")
        self.assertIn("validation.fraction", run.stdout + run.stderr, run)


class RefusedData(TrainTest):
    """What the config names is missing, or is of another kind."""

    CASES = {  # exit code, words, what is said
        "missing file": (DATA, ("--missing",), ["missing.ds: there is no such file or folder"]),
        "other tokenizer": (DATA, ("--bpe",), ["bpe.ds was made by a different tokenizer", "bpe-tokenizer.json", '"bytes"', "fix: "]),
        "token outside": (DATA, ("--bpe", "--tokenizer.path", ""), [
            " of bpe.ds ", "is outside the vocabulary (vocab_size = 257)", "bpe-tokenizer.json", "fix: "]),
        "no tokenizer": (DATA, ("--tokenizer.path", "none.json"), ["tokenizer none.json does not exist", "fix: "]),
        "vocabulary": (CONFIG, ("--model.vocab_size", "100"), [
            'tokenizer.path = "bytes" has 257 tokens, model.vocab_size = 100', "fix: model.vocab_size = 257"]),
        "no weights": (CHECKPOINT, ("--model.init", "hf:/nowhere"), ["/nowhere", "No such file or directory"]),
        "long samples": (DATA, ("--training.seq_len", "30000"), ["book.ds has ", "a sample needs 30,001 (seq_len + 1)", "fix: "]),
        "held out": (DATA, ("--validation.interval", "1", "--validation.fraction", "0.9999"), [
            "book.ds has ", "held out for validation (0.9999)"]),
    }

    @staticmethod
    @functools.cache
    def case(name):
        folder, words = fresh_folder(), []
        for word in RefusedData.CASES[name][1]:
            if word in ("--missing", "--bpe"):
                (folder / "t.toml").write_text(TOML.replace("book.ds", f"{word[2:]}.ds"))
            else:
                words.append(word)
        return train(*words, n=None if name in ("other tokenizer", "no tokenizer", "long samples", "held out") else 2, folder=folder)

    @classmethod
    def setUpClass(cls):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(cls.case, cls.CASES))

    def test_code_and_message(self):
        for name, (code, _, says) in self.CASES.items():
            with self.subTest(name):
                run = self.case(name)
                self.one_error(run, code, *says)

    def test_it_is_said_once(self):
        for name in self.CASES:
            with self.subTest(name):
                self.assertEqual(self.case(name).stderr.count("error: "), 1, self.case(name))

    def test_no_folder_is_left(self):
        for name in self.CASES:
            with self.subTest(name):
                self.assertEqual(self.case(name).files(), [])

    def test_remedies(self):
        self.assertIn("model.init", self.case("no weights").stderr)

    def test_remedy_of_a_fraction(self):
        self.assertRegex(self.case("held out").stderr, "fix: .*validation.fraction")

    def test_weights_of_another_model(self):
        old = shared(*F64, *QUIET, "--validation.interval", "1", "--validation.sources", "held.ds", "--validation.samples", "9")
        run = train("--model.init", f"hf:{old.saved()}", "--model.num_hidden_layers", "3")
        self.one_error(run, CHECKPOINT, "9 tensors do not fit the model", "model.layers.2.input_layernorm.weight is missing", "fix: ")
        self.assertEqual(run.stdout, "")

    def test_a_head_that_is_dropped_is_told(self):
        old = shared(*F64, *QUIET, "--validation.interval", "1", "--validation.sources", "held.ds", "--validation.samples", "9")
        run = train("--model.init", f"hf:{old.saved()}", "--model.tie_word_embeddings", "true", *QUIET)
        self.assertIn("lm_head", run.stdout + run.stderr, run)


@functools.cache
def judge_has(module):
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    return subprocess.run([options.peer_python, "-c", code], capture_output=True).returncode == 0


def need(test, module):
    if not judge_has(module):
        test.skipTest(f"{options.peer_python} has no {module}")


def make_data():
    (scratch / "data").mkdir()
    rng, words = random.Random(1), "the sea ship row oar bench wave wind sail rope deck mast bow stern captain drum stroke pull".split()
    text = scratch / "book.txt"
    text.write_text(" ".join(rng.choice(words) for _ in range(4000)))
    for more in (("-t", "bytes", "-o", "book"), ("-t", "bytes", "-o", "held"), ("--train-bpe", "300", "-o", "bpe")):
        subprocess.run([options.trireme, "data", "prepare", text, *more], cwd=scratch / "data", check=True, stdout=subprocess.DEVNULL)


def main():
    global options, scratch
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme", type=os.path.abspath)
    parser.add_argument("--peer-python", type=os.path.abspath, default=sys.executable, help="a python that may have torch and transformers")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="trireme-train-", ignore_cleanup_errors=True) as folder:
        scratch = pathlib.Path(folder)
        make_data()
        ended = unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2, exit=False).result
    for test, why in ended.skipped:
        print(f"SKIPPED {test.id()}: {why}", flush=True)
    sys.exit(1 if not ended.wasSuccessful() else SKIPPED if ended.skipped else 0)


if __name__ == "__main__":
    main()
