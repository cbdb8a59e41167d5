#!/usr/bin/env python3
"""Runs every command of docs/getting_started.md, in order and unchanged, in a copy of the files that it uses.

usage: getting_started_test.py TRIREME"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TRIREME = None
ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands():
    page = (ROOT / "docs/getting_started.md").read_text()
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S) for line in block.splitlines()]


class GettingStarted(unittest.TestCase):
    def test_every_command_of_the_page(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for each in ("examples", "docs"):
                shutil.copytree(ROOT / each, folder / each)
            shutil.copy(ROOT / "README.md", folder)
            (folder / "build").mkdir()
            (folder / "build/release").symlink_to(pathlib.Path(TRIREME).resolve().parent)
            path = f"{folder}/build/release:{os.environ['PATH']}"
            lines = commands()
            self.assertEqual(lines[0], "export PATH=$PWD/build/release:$PATH")
            self.assertEqual([line for line in lines[1:] if not line.startswith("trireme ")], [])
            self.assertGreaterEqual(len({line.split()[1] for line in lines[1:]}), 10, "commands of the program")
            outputs = {}
            for line in lines[1:]:
                with self.subTest(command=line):
                    done = subprocess.run(["sh", "-c", line], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True,
                                          text=True, timeout=300)
                    self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
                    self.assertNotRegex(done.stdout + done.stderr, r"[\x00-\x08\x0b-\x1f\x7f]", "control characters in a pipe")
                    outputs[line] = done.stdout
            said = "\n".join(outputs.values())
            for expected in ("the layout agrees with one rank", "perplexity", "To train", "✓", "all-reduce", "nothing was started"):
                self.assertIn(expected, said)
            self.assertNotIn("DIFFERS", said)
            page = (folder / "runs/latest/report.html").read_text()
            self.assertIn("<svg", page)
            self.assertTrue((folder / "out/model.safetensors").exists())


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
