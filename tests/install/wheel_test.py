#!/usr/bin/env python3
"""The wheel of a build, installed for a Python of its own.   usage: wheel_test.py BUILD_FOLDER"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(tempfile.mkdtemp(prefix="trireme-wheel-"))
PYTHON = WORK / "venv/bin/python"


def run(*words, **more):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    return subprocess.run([str(word) for word in words], cwd=WORK, capture_output=True, text=True, timeout=200, env=environment, **more)


def ok(*words):
    done = run(*words)
    assert done.returncode == 0, (words, done.stdout + done.stderr)
    return done.stdout


def setUpModule():
    """A wheel, and a Python that has nothing but this."""
    global WHEEL, SITE, TORCH
    ok(sys.executable, SOURCE / "tools/make_wheel", BUILD, "-o", WORK / "dist")
    (WHEEL, ) = (WORK / "dist").glob("*.whl")
    venv.create(WORK / "venv", symlinks=True)
    ok(sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet", "--no-deps", "--no-index", WHEEL)
    SITE = pathlib.Path(ok(PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    cache = (BUILD / "CMakeCache.txt").read_text()
    TORCH = pathlib.Path(next(line for line in cache.splitlines() if line.startswith("Torch_DIR:")).split("=", 1)[1]).parents[2]


def tearDownModule():
    shutil.rmtree(WORK)


class Wheel(unittest.TestCase):
    def tearDown(self):
        shutil.rmtree(SITE / "torch", ignore_errors=True)
        (SITE / "elsewhere.pth").unlink(missing_ok=True)

    def torch_is_next_to_it(self):
        """A folder of links, not a link: whether the program finds it by its own place is to be seen."""
        (SITE / "torch").mkdir()
        for file in TORCH.iterdir():
            (SITE / "torch" / file.name).symlink_to(file)

    def test_it_is_small_and_says_what_it_needs(self):
        self.assertLess(WHEEL.stat().st_size, 30e6)
        with zipfile.ZipFile(WHEEL) as wheel:
            names = wheel.namelist()
            metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        version = re.search(r"__version__ = '(\d+\.\d+)\.", (TORCH / "version.py").read_text())[1]
        self.assertIn(f"\nRequires-Dist: torch=={version}.*\n", metadata)
        self.assertTrue([name for name in names if "/licenses/" in name] or not shutil.which("dpkg"), names)
        self.assertFalse([name for name in names if re.search(r"lib(torch|c10|gomp)[^/]*\.so", name)])
        self.assertTrue([name for name in names if name.startswith("trireme/include/trireme/") and name.endswith("trireme.hpp")])

    def test_it_trains_with_the_torch_next_to_it(self):
        self.torch_is_next_to_it()
        for program in ((WORK / "venv/bin/trireme", ), (PYTHON, "-m", "trireme")):
            self.assertRegex(ok(*program, "--version"), r"^trireme \d+\.\d+\.\d+")
        self.assertIn("libtorch", ok(WORK / "venv/bin/trireme", "doctor"))
        ok(WORK / "venv/bin/trireme", "train", SOURCE / "examples/tiny.toml", "-n", 2, "--parallelism.tp", 1, "--training.steps", 20, "--run.name", "run")
        rows = [json.loads(line) for line in (WORK / "runs/run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(rows[-1]["step"], 20)
        self.assertLess(rows[-1]["loss"], rows[0]["loss"])

    def test_a_torch_of_another_folder(self):
        """As in an environment on top of another one."""
        (SITE / "elsewhere.pth").write_text(f"{TORCH.parent}\n")
        self.assertIn("libtorch", ok(WORK / "venv/bin/trireme", "doctor"))

    def test_a_program_is_built_with_its_libraries(self):
        self.torch_is_next_to_it()
        prefix = ok(PYTHON, "-c", "import trireme; print(trireme.cmake_prefix_path)").strip()
        ok("cmake", "-G", "Ninja", "-S", SOURCE / "tests/install/consumer", "-B", WORK / "consumer", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.assertIn(f"Torch_DIR:PATH={SITE}/torch/", (WORK / "consumer/CMakeCache.txt").read_text())
        targets = (SITE / "trireme/lib/cmake/trireme/trireme_targets.cmake").read_text()
        self.assertNotIn(str(TORCH), targets, "a path of the machine that it was built on")
        ok("cmake", "--build", WORK / "consumer", "--target", "consumer")
        self.assertIn("124439808 parameters", ok(WORK / "consumer/consumer"))

    def test_without_its_torch_it_says_what_to_install(self):
        for torch, why in (("none", "and none is installed"), ("2.4.1", "and 2.4.1 is installed in")):
            (WORK / torch / "torch").mkdir(parents=True)  # at first without anything in it, as one that was removed
            (SITE / "elsewhere.pth").write_text(f"{WORK / torch}\n")
            if torch != "none":
                (WORK / torch / "torch/__init__.py").touch()
                (WORK / torch / "torch/version.py").write_text(f"__version__ = '{torch}'\n")
            done = run(WORK / "venv/bin/trireme", "doctor")
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn(why, done.stderr)
            self.assertRegex(done.stderr, r"\n  fix: .* -m pip install 'torch==2\.\d+\.\*' --index-url \S+\n$")


if __name__ == "__main__":
    unittest.main(verbosity=0)
