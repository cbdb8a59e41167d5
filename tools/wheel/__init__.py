"""Starts the program that this package brings, with the torch that is installed. Nothing of Python runs after that."""
import importlib.util
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
TORCH = (FOLDER / "torch_version.txt").read_text().strip()  # "2.13": the C++ interface of torch changes with it
cmake_prefix_path = str(FOLDER)  # find_package(trireme) of CMake finds the libraries there


def torch_folder():
    """That of the installed torch, without importing it. SystemExit if it is not of the version that is needed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        fail(f"trireme needs torch {TORCH}, and none is installed for {sys.executable}")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    found = re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())
    if found is None or not (found[1] + ".").startswith(TORCH + "."):
        fail(f"this trireme was built for torch {TORCH}, and {found[1] if found else 'another one'} is installed in {folder}")
    return folder


def fail(what):
    print(f"error: {what}\n  fix: {sys.executable} -m pip install 'torch=={TORCH}.*'", file=sys.stderr)
    sys.exit(64)


def main():
    torch = torch_folder()
    if torch.resolve() != FOLDER.parent / "torch":  # the program looks for it next to this package
        paths = [str(torch / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    sys.stdout.flush()
    program = str(FOLDER / "bin" / "trireme")
    os.execv(program, [program, *sys.argv[1:]])
