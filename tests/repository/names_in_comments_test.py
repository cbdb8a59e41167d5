#!/usr/bin/env python3
"""Names in comments and docs are names of something.

A word like `this`, this() or this_one in a comment of a source, and one in backticks on a page of docs/, must be an identifier somewhere in
the sources, the name of a file, or in OTHERS. Pages of decisions (docs/adr) are history and may name what is gone.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPP = (".cpp", ".hpp", ".cu", ".cuh")
# Of other programs, and of examples.
OTHERS = {"parallel_for", "load_balancing_loss_func", "all_reduces", "cu_seqlens", "my_decoder", "kat_vectors", "optim_args", "job_config",
          "training_args", "scaled_init_method_normal", "trireme_llama", "eos_piece", "_into"}
SNAKE = r"[a-z]{2,}(?:_[a-z]{2,})+"


def split(line):
    """Code and comment of a line."""
    found = re.search(r'(?:^|[^:"])(//.*)', line)
    return (line, "") if found is None else (line[:found.start(1)], found[1])


def names_of_sources():
    """Identifiers in code, not in comments, and the names of files."""
    names = set(OTHERS)
    for folder in ("trireme", "tools", "bench", "examples", "tests", "cmake", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if not path.is_file() or path.name == pathlib.Path(__file__).name:
                continue
            names.add(path.name.split(".")[0])
            text = path.read_bytes().decode(errors="replace")
            if path.suffix in CPP:
                text = "\n".join(split(line)[0] for line in text.splitlines())
            names.update(re.findall(r"[A-Za-z_]\w*", text))
    return names


def words_of_comment(comment):
    yield from re.findall(r"(?<![.\w:])([a-z_]\w+)\(\)", comment)
    yield from re.findall(r"`([A-Za-z_]\w*)`", comment)
    yield from re.findall(rf"(?<![.\w:/]){SNAKE}\b(?![./(])", comment)


def words_of_page(line):
    yield from re.findall(rf"`({SNAKE})`", line)
    yield from re.findall(r"`(?:[\w:]+(?:::|\.|->))?([A-Za-z_]\w*)\(", line)


def main():
    names, problems, checked = names_of_sources(), [], 0
    lines = [(path, number, words_of_comment(split(line)[1])) for folder in ("trireme", "bench", "examples", "tools")
             for path in sorted((ROOT / folder).rglob("*")) if path.suffix in CPP
             for number, line in enumerate(path.read_text().splitlines(), 1)]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if "adr" in path.parts:
            continue
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fenced ^= line.startswith("```")
            lines.append((path, number, iter(()) if fenced else words_of_page(line)))
    for path, number, words in lines:
        for word in words:
            checked += 1
            if word not in names:
                problems.append(f"{path.relative_to(ROOT)}:{number}: {word}: nothing in the sources has this name")
    if checked < 1000:
        problems.append(f"only {checked} names were found to check")
    print("\n".join(problems) or f"{checked} names in comments and docs, all of them of something")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
