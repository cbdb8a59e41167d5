#!/usr/bin/env python3
"""The figures of docs/ are what the code draws today, can be read by an XML parser, and are on their pages.

usage: docs_figures_test.py TRIREME_DOCS_FIGURES
"""
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
PAGES = {name: f"docs/parallelism/{name}.md" for name in ("zero", "tensor", "pipeline", "context", "expert")} | {"terminal": "README.md"}


def drawn_now(program):
    """The bytes of each figure by its name; the terminal is drawn from the capture that is kept next to the drawing code."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "all", folder], check=True)
        drawn = {file.stem: file.read_bytes() for file in pathlib.Path(folder).iterdir()}
    capture = (ROOT / "tools/figures/terminal.capture").read_bytes()
    drawn["terminal"] = subprocess.run([program, "terminal"], input=capture, capture_output=True, check=True).stdout
    return drawn


def problems(drawn):
    if drawn.keys() != PAGES.keys():
        yield f"the program draws {sorted(drawn)}, the pages show {sorted(PAGES)}"
    for name, picture in sorted(drawn.items()):
        if xml.fromstring(picture).tag != "{http://www.w3.org/2000/svg}svg":
            yield f"{name}: not an SVG image"
        kept = FIGURES / f"{name}.svg"
        if not kept.exists() or kept.read_bytes() != picture:
            yield f"docs/figures/{name}.svg is not what the code draws\n  fix: run tools/docs_figures (with --keep-capture it does not train again)"
        if name in PAGES and f"figures/{name}.svg)" not in (ROOT / PAGES[name]).read_text():
            yield f"{PAGES[name]} does not show figures/{name}.svg"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    drawn = drawn_now(pathlib.Path(sys.argv[1]).resolve())
    found = list(problems(drawn))
    print("\n".join(found) or f"{len(drawn)} figures are what the code draws")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
