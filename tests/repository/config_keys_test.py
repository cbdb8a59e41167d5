#!/usr/bin/env python3
"""Every config key has a reader in the sources.

A reader is `section.key`, or `x.key` where x is a variable of the section's type: `const CommConfig& comm` ... `comm.check`. The schema,
the presets and the translation of other trainers' configs only pass values on, and are no readers.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "trireme" / "config" / "schema"
NO_READERS = ("config/schema/fields.", "config/schema/model_fields.", "config/schema/config.hpp", "config/schema/presets.", "config/translate/", "config/import/", "testing/")


def members():
    """Of each struct in config.hpp its members, and the struct of each section."""
    text = (SCHEMA / "config.hpp").read_text()
    structs = {name: re.findall(r"^  ([\w:<>]+) (\w+)(?: =[^;]*)?;", body, re.M)
               for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)}
    return structs


def keys(structs, struct="Config", path=()):
    """(key, struct that holds it) for every leaf of the config."""
    for kind, name in structs[struct]:
        inner = re.sub(r"std::vector<(\w+)>", r"\1", kind)
        if inner in structs:
            yield from keys(structs, inner, (*path, name))
        else:
            yield ".".join((*path, name)), struct


def sources():
    for source in sorted((ROOT / "trireme").rglob("*")):
        name = str(source.relative_to(ROOT / "trireme"))
        if source.suffix in (".cpp", ".hpp") and not name.endswith("_test.cpp") and not any(part in name for part in NO_READERS):
            text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', source.read_text())
            yield re.sub(r"//[^\n]*", "", text)


def has_reader(key, struct, texts):
    section, leaf = key.split(".")[-2:]
    for text in texts:
        if not re.search(rf"(?:\.|->){leaf}\b", text):
            continue
        owners = {section, *re.findall(rf"\b{struct}&? (\w+)\b", text),
                  *re.findall(rf"(?:auto|{struct})&? (\w+) = [\w.()>\[\]-]*\b{section}\b[;,)]", text),
                  *re.findall(rf"(?:auto|{struct})& (\w+) : [\w.()\[\]-]*\b{section}\b", text)}
        if re.search(rf"\b(?:{'|'.join(map(re.escape, owners))})(?:\[\w+\])?(?:\.|->){leaf}\b", text):
            return True
        # Members of a data stage are reached through an index: c.data[i].seq_len
        if re.search(rf"\b{section}\[[^\]]*(?:\([^)]*\))?[^\]]*\]\.{leaf}\b", text):
            return True
    return False


def problems():
    structs = members()
    texts = list(sources())
    all_keys = dict(keys(structs))
    for key, struct in all_keys.items():
        if not has_reader(key, struct, texts):
            yield f"{key} is accepted and no source reads it\n  fix: use it, or drop it"
    # The check itself must be able to fail.
    if has_reader("run.no_such_key", "RunConfig", texts) or not has_reader("run.seed", "RunConfig", texts):
        yield "config_keys_test.py does not see who reads a key"
    if len(all_keys) < 100:
        yield f"only {len(all_keys)} keys found in config.hpp"


def main():
    found = list(problems())
    print("\n".join(found) or f"{len(dict(keys(members())))} keys: each has a reader")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
