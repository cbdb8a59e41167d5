#!/usr/bin/env python3
"""Checks how the folders of the library include each other, and that no two headers define one name.

Fails when a folder includes a folder that it does not declare, when declarations form a cycle, when the lower deck sees torch, when
code that is not a test includes testing/, or when two headers define one type, alias or constant of the same qualified name.

usage: check_layers.py ROOT [--names]   ROOT holds one folder per layer, each with a CMakeLists.txt that says
                                        trireme_library(NAME DEPENDS a b c [TORCH_DEPENDS d])
                                        --names: also print the number of public names per folder
"""
import collections
import graphlib
import pathlib
import re
import sys

LOWER_DECK = set("base layout schedule files data config report html_report planner checkpoint".split())
SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc", ".inl"}
HEADERS = {".hpp", ".h", ".cuh"}
KEYWORDS = {"DEPENDS", "TORCH_DEPENDS", "TORCH", "COLD", "LINK", "EXCLUDE"}
TESTING = "testing"  # helpers of tests: may include every folder, and only tests may include it

# What opens or closes a scope, or defines a name. Function overloads are left out: one name over several headers is their purpose.
TOKEN = re.compile(
    r"namespace\s+(?P<namespace>[\w:]*)\s*\{"
    r"|\b(?:class|struct|enum\s+class|enum|union)\s+(?:\[\[\w+\]\]\s*)?(?P<type>\w+)\b(?!::)\s*(?:final\s*)?(?::[^;{()]*)?(?P<end>[{;])"
    r"|\busing\s+(?P<alias>\w+)\s*="
    r"|\bconstexpr\s+[\w:<>,\s]+?\s(?P<constant>k[A-Z]\w*)\s*[\[={]"
    r"|[{}]")


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


def defined_names(text):
    """The qualified names of the types, aliases and constants that a header defines at namespace scope."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*", "", text, flags=re.S | re.M)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    scopes, names = [], []  # a scope: the name of a namespace; None: anything else

    def add(name):
        if scopes and None not in scopes and "" not in scopes:
            names.append("::".join(scopes + [name]))

    for match in TOKEN.finditer(text):
        if match["namespace"] is not None:
            scopes.append(match["namespace"])
        elif match["type"]:
            if match["end"] == "{":
                add(match["type"])
                scopes.append(None)
        elif match["alias"] or match["constant"]:
            add(match["alias"] or match["constant"])
            if match[0].endswith("{"):
                scopes.append(None)
        elif match[0] == "{":
            scopes.append(None)
        elif scopes:
            scopes.pop()
    return names


def check_includes(root, declared, torch):
    problems = []
    for source in sorted(s for s in root.glob("*/**/*") if s.suffix in SOURCES):
        folder = source.relative_to(root).parts[0]
        may = declared.get(folder)
        if may is None and folder != TESTING:
            problems.append(f"{source}: {folder}/ has no trireme_library({folder} ...)")
            continue
        is_test = folder == TESTING or source.stem.endswith("_test")
        for number, line in enumerate(source.read_text(errors="replace").splitlines(), 1):
            where = f"{source.relative_to(root.parent)}:{number}"
            if folder not in torch and folder != TESTING and re.match(r"\s*#\s*include\s*[<\"](torch|ATen|c10|caffe2)/", line):
                problems.append(f"{where}: {folder}/ may not see torch")
            quoted = re.match(r'\s*#\s*include\s*"([^"]*)"', line)
            if quoted and not quoted[1].startswith(root.name + "/"):
                problems.append(f'{where}: write the whole path, "{root.name}/...", not "{quoted[1]}"')
            include = re.match(rf'\s*#\s*include\s*[<"]{root.name}/(\w+)/', line)
            if not include or include[1] == folder or folder == TESTING:
                continue
            if include[1] == TESTING:
                if not is_test:
                    problems.append(f"{where}: only tests may include {TESTING}/")
            elif include[1] not in may:
                problems.append(f"{where}: {folder}/ may not include {include[1]}/ (it declares: {' '.join(sorted(may)) or 'nothing'})")
    return problems


def check_names(root):
    """Names that two headers define, and the number of names per folder."""
    headers, per_folder = collections.defaultdict(set), collections.Counter()
    for header in sorted(h for h in root.glob("*/**/*") if h.suffix in HEADERS):
        for name in set(defined_names(header.read_text(errors="replace"))):
            headers[name].add(str(header.relative_to(root.parent)))
            per_folder[header.relative_to(root).parts[0]] += 1
    problems = [f"{name} is defined by {' and '.join(sorted(where))}\n  fix: rename one, or give its folder a namespace (docs/adr/0011-namespaces.md)"
                for name, where in sorted(headers.items()) if len(where) > 1]
    return problems, per_folder


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
        if name != TESTING and TESTING in depends:
            problems.append(f"{name}/ declares {TESTING}/, which is for tests only")
        if name in LOWER_DECK:
            if name in torch:
                problems.append(f"{name}/ is of the lower deck and declares TORCH")
            for upper in sorted(d for d in depends if d in declared and d not in LOWER_DECK):
                problems.append(f"{name}/ is of the lower deck and declares {upper}/, which is not")
    problems += check_includes(root, declared, torch)
    duplicates, per_folder = check_names(root)
    return declared, problems + duplicates, per_folder


def main():
    if len(sys.argv) not in (2, 3) or (len(sys.argv) == 3 and sys.argv[2] != "--names"):
        raise SystemExit(__doc__)
    declared, problems, per_folder = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) or f"{len(declared)} layers, no violation")
    if len(sys.argv) == 3:
        print("\n".join(f"{count:5} {folder}" for folder, count in per_folder.most_common()), f"\n{sum(per_folder.values()):5} in all")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
