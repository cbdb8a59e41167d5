#!/usr/bin/env python3
"""`trireme bench fit`, `combine` and `machine`: every technique on 1 and 2 ranks, small; the tables, the figures and the refusals.

usage: bench_test.py TRIREME"""
import csv
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TRIREME = sys.argv.pop(1)
COLUMNS = "start_time,end_time,run_time,model,parallel,epochs,batch_size,loss,accuracy,gpu_count,gpu_model".split(",")
TECHNIQUES = ["none", "fsdp_shard_grad_op", "fsdp_full_shard", "fsdp_no_shard", "pipeline"]


def bench(*words):
    return subprocess.run([TRIREME, "bench", *map(str, words)], capture_output=True, text=True)


class Fit(unittest.TestCase):
    def test_every_technique(self):
        with tempfile.TemporaryDirectory() as place:
            tables = []
            for ranks in (1, 2):
                out = bench("fit", "--model", "orbit5k", "--techniques", ",".join(TECHNIQUES), "--batch-sizes", "4,8", "--epochs", 1, "--samples", 16,
                            "-n", ranks, "--device", "cpu", "--output", place)
                self.assertEqual(out.returncode, 0, out.stderr)
                tables = sorted(pathlib.Path(place).glob("benchmark-orbit5k-cpu-*.csv"))
                self.assertEqual(len(tables), ranks)
                with tables[-1].open() as file:
                    rows = list(csv.DictReader(file))
                self.assertEqual(list(rows[0]), COLUMNS)
                self.assertEqual([(row["parallel"], row["batch_size"]) for row in rows], [(t, size) for t in TECHNIQUES for size in ("4", "8")])
                for row in rows:
                    self.assertEqual(row["gpu_count"], "1" if row["parallel"] == "none" else str(ranks))
                    self.assertGreater(float(row["run_time"]), 0)
                by = {(row["parallel"], row["batch_size"]): float(row["loss"]) for row in rows}
                for size in ("4", "8"):  # the same effective batch size: the same validation loss
                    for technique in TECHNIQUES[1:]:
                        alone = by["none", size if technique == "pipeline" or ranks == 1 else "8"]
                        if technique == "pipeline" or ranks == 1 or size == "4":
                            self.assertAlmostEqual(by[technique, size] / alone, 1, delta=1e-3, msg=f"{technique} {size} on {ranks}")
                svg = tables[-1].with_suffix(".svg")
                lines = [e for e in xml.etree.ElementTree.parse(svg).iter() if e.tag.endswith("polyline")]
                self.assertEqual(len(lines), len(TECHNIQUES))
            out = bench("combine", *tables, "--output", place)
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertIn("20 runs", out.stdout)
            with (pathlib.Path(place) / "combined-orbit5k.csv").open() as file:
                self.assertEqual(len(list(csv.DictReader(file))), 20)

    def test_refused(self):
        for words, what in [(["--model", "t5"], "--model t5: must be one of orbit5k, orbit5kbig, bert, bertbig"),
                            (["--techniques", "none,ddp"], "--techniques ddp: must be one of"),
                            (["--batch-sizes", "0"], "--batch-sizes 0: must be >= 1"),
                            (["-n", "0"], "-n 0"),
                            (["--device", "tpu"], "--device tpu: must be auto, cpu or cuda")]:
            out = bench("fit", *words)
            self.assertEqual(out.returncode, 64, out.stdout + out.stderr)
            self.assertIn(what, out.stderr)
        with tempfile.TemporaryDirectory() as place:
            wrong = pathlib.Path(place) / "x.csv"
            wrong.write_text("a,b\n1,2\n")
            out = bench("combine", wrong)
            self.assertEqual(out.returncode, 64)
            self.assertIn("is not a table of `trireme bench fit`", out.stderr)


class Machine(unittest.TestCase):
    def test_what_it_measures_is_what_plan_reads(self):
        with tempfile.TemporaryDirectory() as place:
            machine = pathlib.Path(place) / "machine.toml"
            out = bench("machine", "-n", 1, "--trainings", 2, "--steps", 3, "-o", machine)
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertRegex(out.stdout, r"4 layers, hidden 128, 1 x 4 x 128, dp1 +[0-9.]+ m?s +[0-9.]+ m?s +-?[0-9.]+ %")
            self.assertRegex(out.stdout, r"median error [0-9.]+ %")
            self.assertEqual([path.name for path in pathlib.Path(place).iterdir()], ["machine.toml"])
            model = ["--model.preset", "tiny-llama", "--gpus", 1, "--tokens-per-step", 4096]
            plan = subprocess.run([TRIREME, "plan", *map(str, model), "--machine", machine], capture_output=True, text=True)
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertIn("1 x cpu", plan.stdout)
            again = bench("machine", "-o", machine)
            self.assertEqual(again.returncode, 64)
            self.assertIn("already exists", again.stderr)
            machine.write_text(machine.read_text().replace("step_s", "steps_s", 1))
            plan = subprocess.run([TRIREME, "plan", *map(str, model), "--machine", machine], capture_output=True, text=True)
            self.assertEqual(plan.returncode, 64)
            self.assertRegex(plan.stderr, r"machine.toml: reach.step_s is missing\n  fix: ")


if __name__ == "__main__":
    unittest.main()
