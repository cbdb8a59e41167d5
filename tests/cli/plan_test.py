#!/usr/bin/env python3
"""`trireme plan`: the table, one layout, JSON, a config that train takes, a drawing, and what it refuses.

usage: plan_test.py TRIREME [CLASS[.test]...]"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIREME = None
LLAMA = ("--model.preset", "llama3-8b", "--training.seq_len", "8192")


def plan(*words, code=0):
    done = subprocess.run([TRIREME, "plan", *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def plans(*words):
    return json.loads(plan(*words, "--json").stdout)["plans"]


class Search(unittest.TestCase):
    def test_the_table(self):
        done = plan(*LLAMA, "--gpus", 8)
        self.assertIn("note: 4,194,304 tokens per step", done.stderr)
        self.assertIn("model        8.03B parameters", done.stdout)
        self.assertRegex(done.stdout, r"\nlayout +tok/s per GPU +MFU +step +memory +bubble +communication\n")
        self.assertRegex(done.stdout, r"\nslower +2: [0-9.]+ % slower: ")
        self.assertRegex(done.stdout, r"\ntraining +4.19B tokens \(training.steps = 1000\): [0-9.]+ (hours|days), ")
        self.assertRegex(done.stdout, r"\nfailures +one every 260 days: a checkpoint every 60 minutes leaves (100|99.9) % of the time for steps\n")
        self.assertRegex(plan(*LLAMA, "--gpus", 1024, "--mtbf-hours", 1000).stdout, r"leaves [789][0-9.]* % of the time")
        self.assertIn("15T tokens: ", plan(*LLAMA, "--gpus", 8, "--tokens", "15e12").stdout)

    def test_json_is_sorted_and_fits(self):
        found = plans(*LLAMA, "--gpus", 8, "--count", 5)
        self.assertEqual(len(found), 5)
        speeds = [each["tokens_per_second"] for each in found]
        self.assertEqual(speeds, sorted(speeds, reverse=True))
        for each in found:
            self.assertLess(each["memory_bytes"], 85e9)
            self.assertAlmostEqual(sum(each["seconds"].values()), each["step_seconds"], places=6)
            s = {key: value for key, value in each["settings"].items()}
            ranks = [int(s[f"parallelism.{axis}"]) for axis in ("dp", "tp", "pp", "cp")]
            self.assertEqual(ranks[0] * ranks[1] * ranks[2] * ranks[3], 8)

    def test_hardware_and_software(self):
        speed = {gpu: plans(*LLAMA, "--gpus", 8, "--gpu", gpu)[0]["tokens_per_second"] for gpu in ("a100", "h100", "b200")}
        self.assertLess(speed["a100"], speed["h100"])
        self.assertLess(speed["h100"], speed["b200"])
        slow = plans(*LLAMA, "--gpus", 16, "--network-gb-s", 1, "--count", 1)[0]["tokens_per_second"]
        self.assertLess(slow, plans(*LLAMA, "--gpus", 16, "--count", 1)[0]["tokens_per_second"])
        self.assertLess(plans(*LLAMA, "--gpus", 8, "--software", "nanotron")[0]["tokens_per_second"], speed["h100"])

    def test_a_number_of_gpus_that_is_no_power_of_two(self):
        for gpus in (24, 48, 72):
            found = plans(*LLAMA, "--gpus", gpus, "--count", 1)[0]["settings"]
            self.assertEqual(int(found["parallelism.dp"]) % (9 if gpus == 72 else 3), 0)

    def test_one_layout(self):
        words = (*LLAMA, "--gpus", 8, "--layout", "tp2.pp2")
        one = plans(*words)
        self.assertEqual([one[0]["settings"][f"parallelism.{axis}"] for axis in ("dp", "tp", "pp")], ["2", "2", "2"])
        faster = plans(*words, "--training.micro_batch_size", 2)[0]
        self.assertNotEqual(faster["step_seconds"], one[0]["step_seconds"])

    def test_a_layout_that_does_not_fit(self):
        words = ("--model.preset", "llama3-70b", "--training.seq_len", 8192, "--gpus", 8, "--layout", "tp8")
        self.assertRegex(plan(*words).stderr, r"warning: it does not fit: \d+ GiB of 75.9 GiB per GPU")
        self.assertRegex(plan(*words, "-o", "/nowhere.toml", code=64).stderr, "--layout tp8 does not fit: ")

    def test_stages_of_a_config_are_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "run.toml"
            config.write_text('[model]\npreset = "llama3-8b"\n[parallelism]\npp = 2\nstages = [16, 16]\n[training]\nseq_len = 8192\n')
            self.assertEqual(plans(config, "--gpus", 8, "--count", 1)[0]["settings"], plans(*LLAMA, "--gpus", 8, "--count", 1)[0]["settings"])
            plan(config, "--gpus", 8, "--layout", "dp8")

    def test_the_config_that_it_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            out, drawing = pathlib.Path(folder) / "planned.toml", pathlib.Path(folder) / "plan.svg"
            plan(ROOT / "examples/tiny.toml", "--gpus", 4, "--tokens-per-step", 4096, "-o", out, "--svg", drawing)
            written = tomllib.loads(out.read_text())
            p = written["parallelism"]
            self.assertEqual(p["dp"] * p["tp"] * p["pp"] * p["cp"], 4)
            done = subprocess.run([TRIREME, "config", "check", str(out), "-n", "4", "--no-files", "--gpu", "h100"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"\npredicted +[0-9.]+ (ms|µs|s) per step · .* tokens/s per GPU · MFU .* of 79.1 GiB \(4 x h100\)\n")
            self.assertGreater(len(xml.dom.minidom.parse(str(drawing)).getElementsByTagName("circle")), 0)
            self.assertIn("already exists", plan(*LLAMA, "--gpus", 8, "-o", out, code=64).stderr)

    def test_a_file_with_a_layout_of_its_own(self):
        """Its layout and batch are replaced, everything else stays."""
        with tempfile.TemporaryDirectory() as folder:
            config, out = pathlib.Path(folder) / "run.toml", pathlib.Path(folder) / "planned.toml"
            config.write_text((ROOT / "examples/tiny.toml").read_text())
            plan(config, "--gpus", 2, "--parallelism.tp", "4", "-o", out, "--tokens-per-step", "8192")
            before, after = (tomllib.loads(file.read_text()) for file in (config, out))
            self.assertEqual(before["optimizer"], after["optimizer"])
            self.assertEqual(before["model"].get("preset"), after["model"].get("preset"))


class Refused(unittest.TestCase):
    def refuses(self, message, *words):
        self.assertRegex(plan(*words, code=64).stderr, message)

    def test_what_is_wrong_is_named(self):
        self.refuses("--gpu h300: not known\n  fix: one of a100", *LLAMA, "--gpus", 8, "--gpu", "h300")
        self.refuses("--software jax: not known\n  fix: one of trireme", *LLAMA, "--gpus", 8, "--software", "jax")
        self.refuses("--gpus 0: must be from 1", *LLAMA, "--gpus", 0)
        self.refuses("--gpus 12: not a multiple of the 8 GPUs of a host\n  fix: --gpus 8, or --per-host", *LLAMA, "--gpus", 12)
        self.refuses("no model to plan for\n  fix: a config, or --model.preset", "--gpus", 8)
        self.refuses("--layout tp3: 6 ranks, --gpus 8", *LLAMA, "--gpus", 8, "--layout", "tp3")
        self.refuses("--layout xp2: xp2: must be one of dp, tp", *LLAMA, "--gpus", 8, "--layout", "xp2")
        self.refuses("none of [0-9,]+ layouts fits into .* per GPU\n  fix: more GPUs", "--model.preset", "llama3-70b", "--gpus", 1)
        self.refuses("no layout of 24 GPUs can share 512 sequences: dp must divide them\n  fix: --tokens-per-step",
                     *LLAMA, "--gpus", 24, "--training.global_batch_size", 512, "--parallelism.dp", 1)
        self.refuses("--tokens-per-step 1e[+]30: must be from 1 to 1e[+]15", *LLAMA, "--gpus", 8, "--tokens-per-step", "1e30")
        self.refuses("the layouts that fit are refused, one of them because of", *LLAMA, "--gpus", 8, "--model.hidden_size", 4100)
        self.refuses("excludes", *LLAMA, "--gpus", 8, "--gpu", "h200", "--machine", "machine.toml")
        self.refuses("unknown preset|not known", "--model.preset", "nothing", "--gpus", 1)


if __name__ == "__main__":
    TRIREME = sys.argv.pop(1)
    unittest.main()
