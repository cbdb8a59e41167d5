"""Storage that fails on demand, for the tests of saves and reads."""
import pathlib
import re
import subprocess


def sanitizer_of(program):
    """The library of the sanitizer that a program was built with, or ""; its runs take several times as long."""
    linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    found = re.search(r"=> (\S*/lib[at]san\S*)", linked)
    return found[1] if found else ""


def faulty_storage(folder, program):
    """A library to preload, in `folder`, which faulty_storage.cpp describes."""
    library = pathlib.Path(folder) / "faulty_storage.so"
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-o", library, pathlib.Path(__file__).with_name("faulty_storage.cpp"), "-ldl"], check=True, timeout=60)
    sanitizer = sanitizer_of(program)  # which must come first
    return f"{sanitizer}:{library}" if sanitizer else str(library)
