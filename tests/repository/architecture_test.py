#!/usr/bin/env python3
"""Keeps docs/architecture.md true: the files it names exist, sources without a test next to them are listed, and the axes that cut the
batch are spelled out in one place only."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TESTED = ("nn", "parallel", "train", "verify")  # every source here has its test, or a row on the page


def named_files():
    """What stands in backquotes and looks like a file or folder of the library."""
    for word in re.findall(r"`([^`\s]+)`", PAGE):
        if "/" in word and "*" not in word and not word.startswith("-"):
            yield word


def missing_files():
    for word in named_files():
        places = [ROOT / word, ROOT / "trireme" / word]
        places += [place.with_name(place.name + ending) for place in list(places) for ending in (".hpp", ".cpp")]
        if not any(place.exists() for place in places):
            yield f"docs/architecture.md names {word}, which is not there"


def untested_sources():
    table = PAGE[PAGE.index("## Which test covers a source"):PAGE.index("## Other seams")]
    listed = set(re.findall(rf"`((?:{'|'.join(TESTED)})/[\w/]+\.cpp)`", table))
    sources = {str(s.relative_to(ROOT / "trireme")) for folder in TESTED for s in (ROOT / "trireme" / folder).rglob("*.cpp")}
    for source in sorted(s for s in sources if not s.endswith("_test.cpp")):
        has_test = source.replace(".cpp", "_test.cpp") in sources
        if not has_test and source not in listed:
            yield f"{source} has no test next to it\n  fix: write one, or name the suite that covers it in docs/architecture.md"
        if has_test and source in listed:
            yield f"{source} has a test next to it: its row in docs/architecture.md is not needed"
    yield from (f"docs/architecture.md lists {source}, which is not there" for source in sorted(listed - sources))


def token_axes_elsewhere():
    for source in sorted((ROOT / "trireme").rglob("*.[ch]pp")):
        name = str(source.relative_to(ROOT))
        if name.endswith("_test.cpp") or name == "trireme/layout/param_layout.hpp":
            continue
        for number, line in enumerate(source.read_text().splitlines(), 1):
            if re.search(r"\{Axis::dp, Axis::cp\}", line):
                yield f"{name}:{number}: spells out the axes that cut the batch\n  fix: kTokenAxes, Mesh::token_group() or ParamMesh"


def main():
    problems = [*missing_files(), *untested_sources(), *token_axes_elsewhere()]
    print("\n".join(problems) or f"{len(set(named_files()))} files named in docs/architecture.md are there")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
