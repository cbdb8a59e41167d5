#!/usr/bin/env python3
"""Runs every `$ trireme ...` of README.md and docs/, and compares what it prints with what the page shows. Links lead somewhere, and code that
is said to be a file, or a part of one, is that.

usage: readme_test.py TRIREME      In a block of code, lines after "$ trireme ..." up to the next "$" or the end of the block
                                   are the expected output; a line "..." stands for any lines.
"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

program = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parents[2]
failures = runs = 0


def matches(expected, printed):
    """Whether the printed lines are the expected ones, "..." standing for any number of lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + r"[ ]*\n" for line in expected)
    return re.fullmatch(pattern, printed) is not None


shutil.rmtree(root / "build/readme", ignore_errors=True)  # of the last time: a complete run is not trained again
for page in [root / "README.md", *sorted(root.glob("docs/**/*.md"))]:
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(), re.M | re.S):
        for part in re.split(r"^(?=\$ )", block, flags=re.M):
            lines = part.splitlines()
            if not lines or not lines[0].startswith("$ trireme "):
                continue
            words = shlex.split(lines[0][2:], comments=True)
            run = subprocess.run([program, *words[1:]], cwd=root, capture_output=True, text=True, timeout=60)
            printed = run.stdout + run.stderr
            expected = lines[1:]
            while expected and not expected[-1].strip():
                expected.pop()
            runs += 1
            if not matches(expected, printed):
                failures += 1
                print(f"{page.relative_to(root)}: '{lines[0]}' printed\n{printed}\nnot\n" + "\n".join(expected))

# Every relative link must lead somewhere.
for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md"))]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        if not (page.parent / target).exists():
            failures += 1
            print(f"{page.relative_to(root)}: the link to {target} leads nowhere")

# A block of C++ behind a line "examples/x.cpp:" is that file.
for page in sorted(root.glob("docs/**/*.md")):
    for file, block in re.findall(r"^\[?`?(examples/\w+\.cpp)`?[^\n]*:\n\n```cpp\n(.*?)^```", page.read_text(), re.M | re.S):
        if block != (root / file).read_text():
            failures += 1
            print(f"{page.relative_to(root)}: the code shown is not {file}")

# Behind a line "From examples/x.cpp:" are lines of that file, in their order; "..." stands for lines that are left out.
excerpts = 0
for page in [root / "README.md", *sorted(root.glob("docs/**/*.md"))]:
    for file, block in re.findall(r"^From \[?`?(examples/\w+\.cpp)`?[^\n]*:\n\n```cpp\n(.*?)^```", page.read_text(), re.M | re.S):
        source = [line.strip() for line in (root / file).read_text().splitlines()]
        place = 0
        excerpts += 1
        for part in re.split(r"^\s*\.\.\.\n", block, flags=re.M):
            lines = [line.strip() for line in part.strip("\n").splitlines()]
            found = [at for at in range(place, len(source)) if source[at:at + len(lines)] == lines]
            if not found:
                failures += 1
                print(f"{page.relative_to(root)}: these lines are not in {file}, or not in this order:\n{part}")
                break
            place = found[0] + len(lines)
if excerpts == 0:
    sys.exit("no excerpt of an example was found: the test proves nothing")

print(f"{runs} commands of the pages were run")
if runs == 0:
    sys.exit("no command was found: the test proves nothing")
sys.exit(failures > 0)
