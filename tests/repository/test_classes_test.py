#!/usr/bin/env python3
"""Every class of tests in a script is run by ctest: a script that is run for some of its classes would leave out a new one silently.

usage: test_classes_test.py BUILD_FOLDER"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands_of_scripts(build):
    """The words behind each script in the commands of ctest, from its files: `ctest --show-only` would overwrite the log of a run."""
    found = {}
    for file in pathlib.Path(build).rglob("CTestTestfile.cmake"):
        for command in re.findall(r"^add_test\((.*)\)$", file.read_text(), re.M):
            words = re.findall(r'"([^"]*)"', command)
            for i, word in enumerate(words):
                if word.endswith(".py"):
                    found.setdefault(ROOT / word, []).append(words[i + 1:])
    return found


def classes_of(script):
    return {node.name for node in ast.parse(script.read_text()).body if isinstance(node, ast.ClassDef)
            and any(isinstance(part, ast.FunctionDef) and part.name.startswith("test") for part in node.body)}


def left_out(classes, commands):
    run = set()
    for words in commands:
        run |= {word.split(".")[0] for word in words} & classes or classes  # without names: all
    return classes - run


def main():
    assert left_out({"A", "B"}, [["program", "A"]]) == {"B"} and not left_out({"A", "B"}, [["program", "A"], ["B.test_one"]])
    assert not left_out({"A", "B"}, [["program", "A"], ["program"]])
    scripts = commands_of_scripts(sys.argv[1])
    missing = [(script, left_out(classes_of(script), commands)) for script, commands in scripts.items()]
    missing += [(script, {"all"}) for script in (ROOT / "tests").rglob("*_test.py") if script not in scripts]
    missing = [(script, classes) for script, classes in missing if classes]
    for script, classes in missing:
        print(f"{script.relative_to(ROOT)}: no command of ctest runs {', '.join(sorted(classes))}")
    print(f"{len(scripts)} scripts")
    return 1 if missing or len(scripts) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
