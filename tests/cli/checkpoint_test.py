#!/usr/bin/env python3
"""`trireme checkpoint ...` as a person runs it.   usage: checkpoint_test.py TRIREME MAKE_CHECKPOINT"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, MAKE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))


class Checkpoint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = Path(folder.name) / "runs" / "first"
        self.run_folder.mkdir(parents=True)
        self.checkpoints = self.run_folder / "checkpoints"
        for step in (10, 20):
            self.save(step)

    def save(self, step, *more):
        subprocess.run([MAKE, self.checkpoints, str(step), str(step), *more], check=True, timeout=60)

    def trireme(self, *words):
        return subprocess.run([PROGRAM, "checkpoint", *map(str, words)], capture_output=True, text=True, timeout=60)

    def ok(self, *words):
        run = self.trireme(*words)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def fails(self, code, *words):
        run = self.trireme(*words)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertTrue(run.stderr.startswith("error: "), run.stderr)
        self.assertIn("fix: ", run.stderr)
        return run

    def damage(self, file, at=-1):
        contents = bytearray(file.read_bytes())
        contents[at] ^= 4
        file.write_bytes(contents)

    def test_inspect_says_what_is_in_it(self):
        text = self.ok("inspect", self.run_folder)
        for words in ("checkpoints/step-20", "older        step-10", "2026-11-16T14:00:00Z by trireme test", "20 · 40,960 tokens",
                      "2 ranks: dp 2 · zero 1", "in 6 files", "training.steps = 400", "model.hidden_size = 24"):
            self.assertIn(words, text)
        rows = [line.split() for line in text.splitlines()]
        self.assertIn("layers.{0-1}.norm.weight (12,) BF16 weight 48 B 2".split(), rows)
        self.assertIn("layers.0.attention.qkv.weight (32, 24) F32 weight exp_avg exp_avg_sq 9.00 KiB 12".split(), rows)
        self.assertIn("rank-{0-1}/cpu (100,) U8 random 200 B 2".split(), rows)
        self.assertIn("layers.1.norm.weight", self.ok("inspect", self.run_folder, "--tensors"))

    def test_a_path_may_be_a_run_a_folder_or_a_checkpoint(self):
        latest = self.run_folder.parent / "latest"
        latest.symlink_to(self.run_folder.name)
        for path in (self.run_folder, self.checkpoints, f"{self.checkpoints}/", latest):
            self.assertIn("step-20\n", self.ok("inspect", path))
        self.assertIn("step-10\n", self.ok("inspect", self.checkpoints / "step-10"))
        renamed = self.checkpoints / "best"
        (self.checkpoints / "step-10").rename(renamed)
        self.ok("verify", renamed)

    def test_inspect_json_is_the_manifest(self):
        found = json.loads(self.ok("inspect", self.run_folder, "--json"))
        manifest = json.loads((self.checkpoints / "step-20/checkpoint_metadata.json").read_text())["checkpoint"]
        self.assertEqual((found["step"], found["id"], found["config"]), (20, manifest["id"], manifest["config"]))
        self.assertEqual([t["name"] for t in found["tensors"]], [t["name"] for t in manifest["tensors"]])
        self.assertEqual(found["bytes"], sum(f["bytes"] for f in manifest["files"]))
        self.assertEqual(found["others"], [{"name": "step-10", "why_not_valid": ""}])

    def test_verify_reads_everything(self):
        text = self.ok("verify", self.run_folder)
        self.assertIn("ok: every byte is as it was saved", text)
        rows = [line.split() for line in text.splitlines()]
        for file in ("rank-00000.safetensors", "rank-00001.safetensors", "config.json", "inner/most/notes.json"):
            self.assertTrue(any(row[:1] == [file] and row[-1] == "ok" for row in rows), text)
        self.assertEqual(self.ok("verify", self.run_folder, "-q"), "")

    def test_verify_lists_every_fault(self):
        step = self.checkpoints / "step-20"
        self.damage(step / "rank-00000.safetensors")
        self.damage(step / "rank-00001.safetensors")
        self.damage(step / "rank-00001.safetensors", 20)  # its header
        (step / "config.json").unlink()
        shutil.copy(step / "rank-00000.safetensors", step / "rank-00009.safetensors")
        run = self.fails(66, "verify", step)
        self.assertIn("step-20: 5 faults", run.stderr)
        for words in ("config.json: is missing", "rank-00009.safetensors: is not of this checkpoint", '"rank-0/cpu" "random" [0:100]',
                      '"scale" "weight" []', "rank-00001.safetensors: the 1080 bytes that are in no tensor "):
            self.assertIn(words, run.stderr)
        self.assertIn("2 faults", run.stdout)
        for words in (["inspect"], ["verify", "-q"]):
            self.fails(66, *words, step)

    def test_no_file_is_ok_that_was_not_read(self):
        step = self.checkpoints / "step-20"
        (step / "config.json").unlink()
        os.mkfifo(step / "config.json")
        run = self.fails(66, "verify", step)
        self.assertRegex(run.stdout, r"(?m)^config.json .* 1 fault$")
        (step / "rank-00000.json").unlink()
        run = self.fails(66, "verify", step)
        self.assertRegex(run.stdout, r"(?m)^rank-00000.json .* 1 fault$")
        self.assertRegex(run.stdout, r"(?m)^rank-00000.safetensors .* not read$")
        self.assertRegex(run.stdout, r"(?m)^rank-00001.safetensors .* ok$")

    def test_verify_reads_the_exported_files_too(self):
        self.save(30, "export")
        weights = self.checkpoints / "step-30/model.safetensors"
        self.assertIn("model.safetensors", self.ok("verify", self.run_folder))
        good = weights.read_bytes()
        weights.write_bytes(b"others that come later"[:len(good)])
        run = self.fails(66, "verify", self.checkpoints / "step-30")
        self.assertRegex(run.stderr, r"step-30[\s\S]*model.safetensors: has the hash")
        self.assertNotIn("ok: every byte", run.stdout)
        self.fails(66, "verify", "-q", self.checkpoints / "step-30")
        weights.unlink()
        self.assertIn("model.safetensors: is missing", self.fails(66, "verify", self.checkpoints / "step-30").stderr)
        weights.write_bytes(good)
        (weights.parent / "notes.safetensors").write_bytes(b"of somebody else")
        self.assertRegex(self.ok("verify", self.checkpoints / "step-30"), r"notes.safetensors.*\n")

    def test_the_newest_valid_one_is_taken(self):
        self.save(30)
        (self.checkpoints / "step-30/config.json").unlink()
        (self.checkpoints / "step-40").mkdir()
        (self.checkpoints / "step-50").symlink_to(self.checkpoints / "step-10")
        text = self.ok("verify", self.run_folder)
        self.assertIn("checkpoints/step-20\n", text)
        for words in ("step-30: 1 fault; config.json: is missing", "step-40 is not a checkpoint: it has no checkpoint_metadata.json",
                      "step-50 is a symlink", "older        step-10"):
            self.assertIn(words, text)
        self.fails(77, "inspect", self.checkpoints / "step-50")

    def test_what_is_not_a_checkpoint(self):
        self.assertIn("has no checkpoint", self.fails(66, "inspect", self.run_folder.parent).stderr)
        self.assertIn("does not exist", self.fails(66, "verify", self.run_folder / "nothing").stderr)
        for step in (10, 20):
            (self.checkpoints / f"step-{step}/checkpoint_metadata.json").write_text("{}")
        run = self.fails(66, "verify", self.run_folder)
        self.assertIn("has no valid checkpoint", run.stderr)
        self.assertEqual(run.stderr.count("not the manifest of a checkpoint"), 2)

    def test_help_ends_with_an_example(self):
        for command in ("inspect", "verify"):
            self.assertIn(f"Example:\n  trireme checkpoint {command} runs/latest", self.ok(command, "--help"))


if __name__ == "__main__":
    unittest.main()
