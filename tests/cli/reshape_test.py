#!/usr/bin/env python3
"""`trireme reshape` as a person runs it: on checkpoints of training runs, which go on from what it has written.

usage: reshape_test.py TRIREME MAKE_CHECKPOINT [CLASS[.test]...]"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import train_test
from resume_test import MANIFEST, damage, manifest_of
from train_test import CHECKPOINT, CONFIG, F64, QUIET, TrainTest, finish, fresh_folder, train

SECURITY = 77
MAKE = os.path.abspath(sys.argv.pop(2))
BYTES = {"F64": 8, "F32": 4, "BF16": 2, "U8": 1}


def run(folder, *words):
    return finish(train_test.start(folder, [train_test.options.trireme, *words]), folder)


def tensors_of(checkpoint):
    """The bytes of each full tensor, put together from the files by the manifest alone. Of matrices and vectors."""
    manifest, out = manifest_of(checkpoint), {}
    for tensor in manifest["tensors"]:
        size, shape = BYTES[tensor["dtype"]], tensor["shape"]
        columns = shape[1] if len(shape) == 2 else 1
        whole = bytearray(shape[0] * columns * size)
        for box, file, offset, _ in tensor["slices"]:
            sides = [tuple(map(int, side.split(":"))) for side in box.split(",")]
            (top, bottom), (left, right) = sides if len(sides) == 2 else (sides[0], (0, 1))
            width = (right - left) * size
            with open(checkpoint / manifest["files"][file]["name"], "rb") as opened:
                opened.seek(offset)
                for row in range(top, bottom):
                    begin = (row * columns + left) * size
                    whole[begin:begin + width] = opened.read(width)
        if tensor["kind"] != "random":
            out[tensor["name"], tensor["kind"]] = bytes(whole)
    return out


def safetensors_in(folder):
    """The dtype, shape and bytes of each tensor of the files of a folder."""
    out = {}
    for file in folder.glob("*.safetensors"):
        contents = file.read_bytes()
        data = 8 + int.from_bytes(contents[:8], "little")
        for name, tensor in json.loads(contents[8:data]).items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                out[name] = (tensor["dtype"], tensor["shape"], contents[data + begin:data + end])
    return out


class ReshapeTest(TrainTest):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def make(self, vocabulary=64, step=20):
        subprocess.run([MAKE, self.folder / "in", str(step), "1", str(vocabulary)], check=True, timeout=120)
        return self.folder / f"in/step-{step}"

    def reshaped(self, folder, source, to, out):
        told = self.ok(run(folder, "reshape", source, "--to", to, "-o", out))
        self.assertIn("ok: every byte is as it was saved", self.ok(run(folder, "checkpoint", "verify", out)).stdout)
        self.assertRegex(told.stdout, rf"(?m)^wrote {out}/step-\d+: \d+ ranks?")
        return next((folder / out).glob("step-*"))


class Consolidate(ReshapeTest):
    """`trireme checkpoint consolidate`: whole tensors for other programs."""

    def consolidated(self, *words):
        return run(self.folder, "checkpoint", "consolidate", *words)

    def test_the_same_bytes(self):
        source = self.make()
        stored = tensors_of(source)
        weights = {name: data for (name, kind), data in stored.items() if kind == "weight"}
        states = {f"{name}.{kind}": data for (name, kind), data in stored.items() if kind != "weight"}
        told = self.ok(self.consolidated("in", "out", "--optimizer")).stdout
        self.assertRegex(told, rf"^read  in/step-20: 1 rank.*\nwrote out: {len(weights)} tensors, \S+ \SiB\nwrote out/optimizer: {len(states)} states")
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()), ["model.safetensors", "optimizer"])
        whole = safetensors_in(self.folder / "out")
        self.assertEqual({name: data for name, (_, _, data) in whole.items()}, weights)
        self.assertEqual({name: data for name, (_, _, data) in safetensors_in(self.folder / "out/optimizer").items()}, states)
        of_manifest = {t["name"]: (t["dtype"], t["shape"]) for t in manifest_of(source)["tensors"] if t["kind"] == "weight"}
        self.assertEqual({name: (dtype, shape) for name, (dtype, shape, _) in whole.items()}, of_manifest)

        self.ok(self.consolidated(source, "shards", "--max-shard-gb", "0.000001"))
        names = sorted(p.name for p in (self.folder / "shards").iterdir())
        self.assertIn("model.safetensors.index.json", names)
        self.assertGreater(len(names), 3)
        self.assertEqual(safetensors_in(self.folder / "shards"), whole)

    def test_what_is_refused(self):
        source = self.make()
        self.ok(self.consolidated("in", "out"))
        before = (self.folder / "out/model.safetensors").read_bytes()
        for more in ((), ("--optimizer",)):
            self.one_error(self.consolidated("in", "out", *more), CHECKPOINT)
        self.assertEqual((self.folder / "out/model.safetensors").read_bytes(), before)
        self.one_error(self.consolidated("in", "other", "--max-shard-gb", "0"), CONFIG)
        self.one_error(self.consolidated("nothing", "other"), CHECKPOINT)
        damage(source / "rank-00000.safetensors")
        for more in ((), ("--optimizer",)):
            self.one_error(self.consolidated(source, "other", *more), CHECKPOINT)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["in", "out"])


class Runs(ReshapeTest):
    def test_a_run_goes_on_from_what_was_reshaped(self):
        """Two ranks with tp 2, then one rank from the reshaped checkpoint: the losses of a run without it."""
        folder, common = fresh_folder(), (*F64, *QUIET, "--lr_scheduler.decay_end_step", "8")
        self.ok(train(*common, "--run.name", "two", "--parallelism.tp", "2", "--training.steps", "4", n=2, folder=folder))
        source = folder / "runs/two/checkpoints/step-4"
        one = self.reshaped(folder, "runs/two", "tp=1", "one")
        pipeline = self.reshaped(folder, "runs/two/checkpoints", "tp=2,pp=2,zero=0", "pipeline")
        back = self.reshaped(folder, "pipeline", "tp=2,pp=1,zero=1", "back")
        self.assertEqual(len(list(pipeline.glob("rank-*.safetensors"))), 4)
        for made in (one, pipeline, back):
            self.assertEqual(tensors_of(made), tensors_of(source), made)
            self.assertEqual(manifest_of(made)["training"], manifest_of(source)["training"])
        self.assertEqual(manifest_of(back)["config"], manifest_of(source)["config"])
        stages = [{t["name"] for t in manifest_of(pipeline)["tensors"] for s in t["slices"] if s[1] // 4 == stage} for stage in (0, 1)]
        self.assertEqual([sorted({name.split(".")[0] for name in names}) for names in stages],
                         [["embedding", "layers"], ["head", "layers", "norm"]])
        self.assertEqual({kind for _, kind in tensors_of(one)}, {"weight", "exp_avg", "exp_avg_sq"})

        reference = self.ok(train(*common, "--run.name", "on", "--resume", "runs/two", "--training.steps", "8", folder=folder))
        for name in ("one", "pipeline", "back"):
            after = self.ok(train(*common, "--run.name", f"from-{name}", "--resume", name, "--training.steps", "8", folder=folder))
            self.assertEqual([r["step"] for r in after.metrics()], [5, 6, 7, 8])
            self.close(after.losses(), reference.losses(), 1e-12)


class Commands(ReshapeTest):
    def refused(self, code, *words):
        told = run(self.folder, "reshape", *words)
        self.one_error(told, code)
        self.assertFalse((self.folder / "out").exists(), told)
        return told.stderr

    def test_what_it_says(self):
        self.make(step=10)
        self.make()
        told = self.ok(run(self.folder, "reshape", "in", "--to", "tp=2,dp=2", "-o", "out")).stdout
        self.assertRegex(told, r"^read  in/step-20: 1 rank · zero 1\nwrote out/step-20: 4 ranks: dp 2 × tp 2 · zero 1, \S+ KiB\nnote  the states")
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()), ["latest", "step-20"])
        self.assertIn("nothing is overwritten", run(self.folder, "reshape", "in", "--to", "tp=2", "-o", "out").stderr)
        told = self.ok(run(self.folder, "reshape", "--help")).stdout
        self.assertTrue(told.rstrip().endswith("Example:\n  trireme reshape runs/latest --to tp=1,pp=2 -o reshaped"), told)

    def test_what_is_refused(self):
        source = self.make()
        self.assertIn("--to tp=3  num_attention_heads = 4 is not divisible", self.refused(CONFIG, "in", "--to", "tp=3", "-o", "out"))
        self.assertIn('"tensor=2" is not KEY=NUMBER', self.refused(CONFIG, "in", "--to", "tensor=2", "-o", "out"))
        self.assertIn("does not exist", self.refused(CHECKPOINT, "nothing", "--to", "tp=2", "-o", "out"))
        self.assertIn("there is no folder", self.refused(CONFIG, "in", "--to", "tp=2", "-o", "no/out"))
        subprocess.run([MAKE, self.folder / "other", "5", "1"], check=True, timeout=60)
        self.assertIn("model.", self.refused(CHECKPOINT, "other", "--to", "tp=2", "-o", "out"))
        damage(source / "rank-00000.safetensors")
        self.assertIn("damaged", self.refused(CHECKPOINT, source, "--to", "tp=2", "-o", "out"))
        (source / MANIFEST).rename(source / "manifest")
        (source / MANIFEST).symlink_to("manifest")
        self.refused(SECURITY, source, "--to", "tp=2", "-o", "out")

    def test_large(self):
        """Memory does not grow with the checkpoint, nor with a tensor of it; Ctrl-C leaves nothing."""
        self.make(1_200_000)
        size, most = sum(p.stat().st_size for p in (self.folder / "in").rglob("*")), 80 << 20
        self.assertGreater(size, 3 * most)
        with self.subTest("memory"):
            limited = dict(capture_output=True, text=True, timeout=120, cwd=self.folder,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)))
            if subprocess.run([train_test.options.trireme, "--version"], **limited).returncode != 0:
                self.skipTest("a sanitizer needs more memory than that")
            told = subprocess.run([train_test.options.trireme, "reshape", "in", "--to", "tp=2,dp=2", "-o", "out"], **limited)
            self.assertEqual(told.returncode, 0, told)
            shutil.rmtree(self.folder / "out")
        with self.subTest("a signal"):
            process = train_test.start(self.folder, [train_test.options.trireme, "reshape", "in", "--to", "pp=2", "-o", "out"])
            while process.poll() is None and not list(self.folder.glob("out/step-20.tmp-*")):
                time.sleep(0.0005)
            process.send_signal(signal.SIGINT)
            told = finish(process, self.folder)
            self.one_error(told, train_test.INTERRUPTED, "interrupted; nothing was written")
            self.assertEqual([p.name for p in self.folder.iterdir()], ["in"])


if __name__ == "__main__":
    train_test.main()
