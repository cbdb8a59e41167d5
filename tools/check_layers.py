#!/usr/bin/env python3
"""Fails when a folder includes a folder that it does not declare, when declarations form a cycle, or when the lower deck sees torch.

usage: check_layers.py ROOT      ROOT holds one folder a layer, each with a CMakeLists.txt that says
                                 trireme_library(NAME DEPENDS a b c [TORCH_DEPENDS d])
"""
import graphlib
import pathlib
import re
import sys

LOWER_DECK = set("base layout schedule files data config report planner".split())
SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc", ".inl"}
KEYWORDS = {"DEPENDS", "TORCH_DEPENDS", "TORCH", "COLD", "LINK", "EXCLUDE"}


def declared_layers(root):
    """The folders that each folder may include, and those that may include torch."""
    declared, torch = {}, set()
    for lists in sorted(root.glob("*/CMakeLists.txt")):
        call = re.search(r"trireme_library\(([^)]*)\)", re.sub(r"#.*", "", lists.read_text()))
        if not call:
            continue
        words = call[1].split()
        name, depends, keyword = words[0], set(), None
        for word in words[1:]:
            if word in KEYWORDS:
                keyword = word
                if word == "TORCH":
                    torch.add(name)
            elif keyword in ("DEPENDS", "TORCH_DEPENDS"):
                depends.add(word)
        if name != lists.parent.name:
            raise SystemExit(f"{lists}: trireme_library({name}) stands in the folder {lists.parent.name}")
        declared[name] = depends
    return declared, torch


def check(root):
    declared, torch = declared_layers(root)
    problems = []
    try:
        tuple(graphlib.TopologicalSorter(declared).static_order())
    except graphlib.CycleError as error:
        problems.append("cycle: " + " -> ".join(error.args[1]))
    for name, depends in declared.items():
        for unknown in sorted(depends - set(declared)):
            problems.append(f"{name}/ declares {unknown}/, which is not there")
        if name in LOWER_DECK:
            if name in torch:
                problems.append(f"{name}/ is of the lower deck and declares TORCH")
            for upper in sorted(d for d in depends if d in declared and d not in LOWER_DECK):
                problems.append(f"{name}/ is of the lower deck and declares {upper}/, which is not")
    for source in sorted(s for s in root.glob("*/**/*") if s.suffix in SOURCES):
        folder = source.relative_to(root).parts[0]
        may = declared.get(folder)
        if may is None:
            problems.append(f"{source}: {folder}/ has no trireme_library({folder} ...)")
            continue
        for number, line in enumerate(source.read_text(errors="replace").splitlines(), 1):
            where = f"{source.relative_to(root.parent)}:{number}"
            if folder not in torch and re.match(r"\s*#\s*include\s*[<\"](torch|ATen|c10|caffe2)/", line):
                problems.append(f"{where}: {folder}/ may not see torch")
            quoted = re.match(r'\s*#\s*include\s*"([^"]*)"', line)
            if quoted and not quoted[1].startswith(root.name + "/"):
                problems.append(f'{where}: write the whole path, "{root.name}/...", not "{quoted[1]}"')
            include = re.match(rf'\s*#\s*include\s*[<"]{root.name}/(\w+)/', line)
            if include and include[1] != folder and include[1] not in may:
                problems.append(f"{where}: {folder}/ may not include {include[1]}/ (it declares: {' '.join(sorted(may)) or 'nothing'})")
    return declared, problems


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    declared, problems = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) or f"{len(declared)} layers, no violation")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
