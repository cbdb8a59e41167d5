#!/usr/bin/env python3
"""examples/composed_transformer.cpp: a module of a user over tp, pp and shards gives the losses of one rank, and goes on from the checkpoint of
another layout.

usage: composed_modules_test.py COMPOSED_TRANSFORMER"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
TOLERANCE = 1e-11  # of losses printed with 12 digits


class ComposedModules(unittest.TestCase):
    def train(self, folder, ranks, tp=1, pp=1):
        run = subprocess.run([PROGRAM, "-n", str(ranks), str(tp), str(pp)], cwd=folder, text=True, capture_output=True,
                             env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=120)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout, {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss (\S+)", run.stdout)}

    def test_every_layout_goes_on_from_eight_ranks(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            saved = folder / "saved"
            saved.mkdir()
            _, wanted = self.train(saved, 8, 2, 2)
            self.assertEqual(set(wanted), {20, 40})
            self.assertLess(wanted[40], wanted[20])
            for ranks, tp, pp in ((1, 1, 1), (2, 2, 1), (4, 1, 2)):
                with self.subTest(ranks=ranks, tp=tp, pp=pp):
                    here = folder / f"on_{ranks}"
                    shutil.copytree(saved, here)
                    told, found = self.train(here, ranks, tp, pp)
                    self.assertIn("goes on after step 20", told)
                    self.assertAlmostEqual(found[40] / wanted[40], 1, delta=TOLERANCE)
            one = folder / "one"
            one.mkdir()
            _, found = self.train(one, 1)
            for step, loss in wanted.items():
                self.assertAlmostEqual(found[step] / loss, 1, delta=TOLERANCE, msg=f"step {step}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
