"""Storage that fails on demand, for the tests of saves and reads."""
import pathlib
import re
import subprocess


def faulty_storage(folder, program):
    """A library to preload, in `folder`, which faulty_storage.cpp describes."""
    library = pathlib.Path(folder) / "faulty_storage.so"
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-o", library, pathlib.Path(__file__).with_name("faulty_storage.cpp"), "-ldl"], check=True, timeout=60)
    linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    sanitizer = re.search(r"=> (\S*/lib[at]san\S*)", linked)  # which must come first
    return f"{sanitizer[1]}:{library}" if sanitizer else str(library)
