#!/usr/bin/env python3
"""Which GPUs a build with CUDA is for: cmake/gpu_architectures.cmake with a nvidia-smi that says what it is told.

usage: gpu_architectures_test.py CMAKE"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CMAKE = os.path.abspath(sys.argv.pop(1))


def architectures(smi):
    """`smi`: a shell script; None: there is no such program."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.cmake")
        script.write_text(f'include("{SOURCE}/cmake/gpu_architectures.cmake")\ntrireme_gpu_architectures(found)\nmessage("${{found}}")\n')
        if smi is not None:
            program = pathlib.Path(folder, "nvidia-smi")
            program.write_text(f"#!/bin/sh\n{smi}\n")
            program.chmod(0o755)
        done = subprocess.run([CMAKE, "-P", script], env={"PATH": folder}, capture_output=True, text=True, timeout=60, check=True)
        return done.stderr.strip()


class Architectures(unittest.TestCase):
    def test_of_this_machine(self):
        self.assertEqual(architectures('[ "$*" = "--query-gpu=compute_cap --format=csv,noheader" ] && echo 8.9'), "8.9")
        self.assertEqual(architectures("echo 9.0; echo 9.0"), "9.0a", "what the kernels for Hopper need, once")
        self.assertEqual(architectures("printf '8.0\\r\\n10.0\\r\\n8.0\\r\\n'"), "8.0;10.0")

    def test_without_a_gpu(self):
        every = "8.0;8.9;9.0a;10.0"
        self.assertEqual(architectures(None), every)
        self.assertEqual(architectures("echo no devices were found; exit 6"), every)


if __name__ == "__main__":
    unittest.main()
