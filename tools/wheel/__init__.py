"""Starts the program that this package brings, with the torch that is installed. Nothing of Python runs after that."""
import importlib.util
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
# "2.13" and "13.0", of which the second is of CUDA, and empty without: the C++ interface of torch changes with the first.
TORCH, CUDA = ((FOLDER / "built_for.txt").read_text().split() + [""])[:2]


def torch_folder():
    """That of the installed torch, without importing it. SystemExit if it is not one that this build can use."""
    spec = importlib.util.find_spec("torch")
    folder = pathlib.Path(spec.submodule_search_locations[0]) if spec and spec.origin and spec.submodule_search_locations else None
    if folder is None or not (folder / "version.py").exists():
        fail(f"trireme needs torch {TORCH}, and none is installed for {sys.executable}")
    facts = (folder / "version.py").read_text()
    found, cuda = re.search(r"__version__ = '([^']+)'", facts), re.search(r"^cuda\b.*= '([^']+)'", facts, re.M)
    version = found[1] if found else "of no version"
    if not f"{version}.".startswith(f"{TORCH}."):
        fail(f"this trireme was built for torch {TORCH}, and {version} is installed in {folder}")
    if CUDA and (cuda is None or cuda[1] != CUDA):
        fail(f"this trireme was built for CUDA {CUDA}, and torch {version} in {folder} is for {'CUDA ' + cuda[1] if cuda else 'CPUs'}")
    return folder


def fail(what):
    index = f"https://download.pytorch.org/whl/{'cu' + CUDA.replace('.', '') if CUDA else 'cpu'}"
    print(f"error: {what}\n  fix: {sys.executable} -m pip install 'torch=={TORCH}.*' --index-url {index}", file=sys.stderr)
    sys.exit(64)


def __getattr__(name):
    """`cmake_prefix_path`: where CMake finds trireme and torch."""
    if name == "cmake_prefix_path":
        return f"{FOLDER};{torch_folder() / 'share/cmake'}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main():
    torch = torch_folder()
    if torch.resolve() != FOLDER.parent / "torch":  # the program looks for it next to this package
        folders = [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
        paths = [*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    sys.stdout.flush()
    program = str(FOLDER / "bin" / "trireme")
    os.execv(program, [program, *sys.argv[1:]])
