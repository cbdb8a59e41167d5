#!/usr/bin/env python3
"""Every test that does more when TRIREME_CAMPAIGN is set is one of those that tools/campaign runs."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIABLE = "TRIREME_CAMPAIGN"


def tests_of_source(path):
    """The names that ctest has for the tests of a C++ source that read the variable; for all, if a function before them does."""
    if "parity" in path.parts:
        return ["parity.part_1_of_4"]
    first, *tests = re.split(r"^(?=TEST(?:_F|_P)?\()", path.read_text(), flags=re.M)
    names = []
    for test in tests:
        suite, name = re.match(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", test).groups()
        if VARIABLE in test or VARIABLE in first:
            names.append(f"{path.relative_to(ROOT / 'trireme').parts[0]}.{suite}.{name}")
    return names


def tests_of_script(path):
    """The names of the tests whose command is this script."""
    lists = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("CMakeLists.txt"))
    return re.findall(rf"(?:_script_test|rank_test)\((\S+) [^)]*/{re.escape(path.name)}", lists)


def main():
    [regex] = re.findall(rf"{VARIABLE}=1 ctest .*--tests-regex '([^']*)'", (ROOT / "tools/campaign").read_text())
    sources = [p for folder in ("trireme", "tests") for kind in ("*_test.cpp", "*.py") for p in (ROOT / folder).rglob(kind)
               if VARIABLE in p.read_text() and p != pathlib.Path(__file__).resolve()]
    named = [(path, name) for path in sources for name in (tests_of_source(path) if path.suffix == ".cpp" else tests_of_script(path))]
    missing = [(path, name) for path, name in named if not re.search(regex, name)]
    for path, name in missing:
        print(f"{path.relative_to(ROOT)}: {name} reads {VARIABLE}, but the regular expression of tools/campaign does not match it")
    print(f"{len(named)} tests do more in a campaign")
    return 1 if missing or len(named) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
