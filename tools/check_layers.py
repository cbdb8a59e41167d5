#!/usr/bin/env python3
"""Checks how the rooms of the library include each other, and that no two headers define one name.

ROOT/rooms.txt lists the rooms, from the top down; a room is a folder, without the folders in it. Fails when

- a room includes one that is not below it, or a library one that its CMakeLists.txt does not declare (a test may include all that its
  program links);
- a folder with sources is not in the list, or the list names a room without any;
- libraries declare a cycle, the lower deck sees torch, or code that is not a test includes testing/;
- two headers define one type, alias or constant of the same qualified name;
- docs/rooms.md next to ROOT does not show the list as it is.

usage: check_layers.py ROOT [--names | --page]
       ROOT       its folders with a CMakeLists.txt that says trireme_library(NAME DEPENDS a b [TORCH_DEPENDS c] [TEST_DEPENDS d] [FOLDERS e])
                  are libraries; TEST_DEPENDS: what only tests may include too; FOLDERS: further folders of the library
       --names    also print the number of public names per room
       --page     write the list into docs/rooms.md
"""
import collections
import graphlib
import itertools
import pathlib
import re
import sys

SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc", ".inl"}
HEADERS = {".hpp", ".h", ".cuh"}
LISTS = {"DEPENDS", "TORCH_DEPENDS", "TEST_DEPENDS", "FOLDERS", "LINK", "EXCLUDE", "SHARDS"}
KEYWORDS = LISTS | {"TORCH", "COLD"}
TESTING = "testing"  # helpers of tests: may include every room, and only tests may include it
BEGIN, END = "<!-- rooms: tools/check_layers.py trireme --page writes this -->\n", "<!-- end of rooms -->\n"

# What opens or closes a scope, or defines a name. Function overloads are left out: one name over several headers is their purpose.
TOKEN = re.compile(
    r"namespace\s+(?P<namespace>[\w:]*)\s*\{"
    r"|\b(?:class|struct|enum\s+class|enum|union)\s+(?:\[\[\w+\]\]\s*)?(?P<type>\w+)\b(?!::)\s*(?:final\s*)?(?::[^;{()]*)?(?P<end>[{;])"
    r"|\busing\s+(?P<alias>\w+)\s*="
    r"|\bconstexpr\s+[\w:<>,\s]+?\s(?P<constant>k[A-Z]\w*)\s*[\[={]"
    r"|[{}]")


class Room:
    def __init__(self, name, place, lower, text, heading):
        self.name, self.place, self.lower, self.text = name, place, lower, text  # place 0: the top
        self.heading = heading  # of the rooms of its folder that follow: what docs/rooms.md says of them


def listed_rooms(root):
    """The rooms of rooms.txt by name, in its order, and what is wrong with the list."""
    rooms, problems, lower, heading = {}, [], None, ("", "")
    for number, line in enumerate((root / "rooms.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if deck := re.match(r"(upper|lower) deck\b", line):
            if lower and deck[1] == "upper":
                problems.append(f"rooms.txt:{number}: the upper deck stands below the lower deck")
            lower = deck[1] == "lower"
            continue
        entry = re.match(r"(\S+) {2,}(\S.*)$", line)
        if not entry or lower is None:
            raise SystemExit(f"rooms.txt:{number}: not a deck, nor a room, two spaces and what is in it: {line}")
        if entry[1].endswith("/"):
            heading = entry[1], entry[2]
            continue
        if entry[1] in rooms:
            problems.append(f"rooms.txt:{number}: {entry[1]} is listed twice")
        text = heading[1] if heading[0] == entry[1].split("/")[0] + "/" else ""
        if heading[0] and not text:
            problems.append(f"rooms.txt:{number}: {entry[1]} stands under the heading of {heading[0]}")
        rooms[entry[1]] = Room(entry[1], len(rooms), lower, entry[2], text)
        heading = "", ""
    for folder, group in itertools.groupby(rooms.values(), key=lambda room: room.name.split("/")[0]):
        group = list(group)
        if (len(group) > 1) != bool(group[0].heading):
            problems.append(f"rooms.txt: a heading {folder}/ stands above several rooms of the folder, and only there")
    return rooms, problems


class Library:
    def __init__(self, words):
        self.name, self.torch, lists, keyword = words[0], "TORCH" in words, collections.defaultdict(list), None
        for word in words[1:]:
            if word in KEYWORDS:
                keyword = word
            elif keyword in LISTS:
                lists[keyword].append(word)
        self.depends = set(lists["DEPENDS"] + lists["TORCH_DEPENDS"])
        self.test_depends = set(lists["TEST_DEPENDS"])
        self.folders = {self.name, *lists["FOLDERS"]}


def declared_libraries(root):
    libraries = {}
    for lists in sorted(root.glob("*/CMakeLists.txt")):
        call = re.search(r"trireme_library\(([^)]*)\)", re.sub(r"#.*", "", lists.read_text()))
        if not call:
            continue
        library = Library(call[1].split())
        if library.name != lists.parent.name:
            raise SystemExit(f"{lists}: trireme_library({library.name}) stands in the folder {lists.parent.name}")
        libraries[library.name] = library
    return libraries


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


def sources_of(root):
    """(file, name of its room), but for files that stand in the root itself, which are for users."""
    for source in sorted(s for s in root.glob("*/**/*") if s.suffix in SOURCES):
        yield source, source.parent.relative_to(root).as_posix()


class Includes:
    """What is wrong with the includes of a file."""

    def __init__(self, root, rooms, libraries):
        self.root, self.rooms, self.libraries = root, rooms, libraries
        self.library_of_folder = {folder: library for library in libraries.values() for folder in library.folders}

    def library(self, room):
        return self.library_of_folder.get(room.split("/")[0])

    def of_file(self, source, room):
        is_test = room == TESTING or source.stem.endswith("_test")
        own = self.library(room)
        for number, line in enumerate(source.read_text(errors="replace").splitlines(), 1):
            where = f"{source.relative_to(self.root.parent)}:{number}"
            if not own.torch and room != TESTING and re.match(r"\s*#\s*include\s*[<\"](torch|ATen|c10|caffe2)/", line):
                yield f"{where}: {room}/ may not see torch"
            quoted = re.match(r'\s*#\s*include\s*"([^"]*)"', line)
            if quoted and not quoted[1].startswith(self.root.name + "/"):
                yield f'{where}: write the whole path, "{self.root.name}/...", not "{quoted[1]}"'
            include = re.match(rf'\s*#\s*include\s*[<"]{self.root.name}/(.+)/[^/]*[>"]', line)
            if include and include[1] != room and room != TESTING:
                problem = self.of_room(own, room, include[1], is_test)
                if problem:
                    yield f"{where}: {problem}"

    def of_room(self, own, room, other, is_test):
        if other not in self.rooms:
            return f"{other}/ is not a room of rooms.txt"
        if other == TESTING:
            return None if is_test else f"only tests may include {TESTING}/"
        library = self.library(other)
        if library is None:
            return f"{other}/ belongs to no library"
        may = own.depends | (own.test_depends if is_test else set())
        if library is not own and library.name not in may:
            return f"{own.name} may not include {library.name} (it declares: {' '.join(sorted(may)) or 'nothing'})"
        if not is_test and self.rooms[other].place < self.rooms[room].place:
            return f"{room}/ may not include {other}/, which stands above it in rooms.txt"
        return None


def check_includes(root, rooms, libraries):
    problems, with_sources = [], set()
    includes = Includes(root, rooms, libraries)
    for source, room in sources_of(root):
        if room not in with_sources:
            with_sources.add(room)
            if room not in rooms:
                problems.append(f"{room}/ has sources and is not in rooms.txt\n  fix: a line for it above the rooms that it includes")
            if includes.library(room) is None:
                problems.append(f"{room}/ belongs to no library\n  fix: trireme_library({room.split('/')[0]} ...) in a CMakeLists.txt, or FOLDERS")
        if room in rooms and includes.library(room):
            problems += includes.of_file(source, room)
    problems += [f"rooms.txt lists {name}, which has no sources" for name in rooms if name not in with_sources]
    return problems


def check_names(root):
    """Names that two headers define, and the number of names per room."""
    headers, per_room = collections.defaultdict(set), collections.Counter()
    for header, room in sources_of(root):
        if header.suffix in HEADERS:
            for name in set(defined_names(header.read_text(errors="replace"))):
                headers[name].add(str(header.relative_to(root.parent)))
                per_room[room] += 1
    problems = [f"{name} is defined by {' and '.join(sorted(where))}\n  fix: rename one, or give its folder a namespace (docs/adr/0011-namespaces.md)"
                for name, where in sorted(headers.items()) if len(where) > 1]
    return problems, per_room


def check_libraries(rooms, libraries):
    problems = []
    lower = {room.name.split("/")[0]: room.lower for room in rooms.values()}
    try:
        tuple(graphlib.TopologicalSorter({name: library.depends for name, library in libraries.items()}).static_order())
    except graphlib.CycleError as error:
        problems.append("cycle: " + " -> ".join(error.args[1]))
    for name, library in libraries.items():
        for unknown in sorted((library.depends | library.test_depends) - set(libraries)):
            problems.append(f"{name} declares {unknown}, which is not there")
        if name != TESTING and TESTING in library.depends:
            problems.append(f"{name} declares {TESTING}, which is for tests only")
        if lower.get(name):
            if library.torch:
                problems.append(f"{name} is of the lower deck and declares TORCH")
            problems += [f"{name} is of the lower deck and declares {upper}, which is not"
                         for upper in sorted(d for d in library.depends if d in libraries and not lower.get(d))]
        for folder in library.folders:
            decks = {room.lower for room in rooms.values() if room.name.split("/")[0] == folder}
            if len(decks) > 1:
                problems.append(f"{folder} has rooms of both decks")
    return problems


def drawing(rooms):
    """The list as a table for docs/rooms.md: neighbours of one folder share a row, with what their heading says."""
    lines, lower = ["| from the top down | what is in it |", "|---|---|"], False
    for folder, group in itertools.groupby(rooms.values(), key=lambda room: room.name.split("/")[0]):
        group = list(group)
        if group[0].lower and not lower:
            lines.append("| **lower deck** | without torch: builds in seconds, tested exhaustively |")
            lower = True
        inner = [f"`{room.name.partition('/')[2]}`" for room in group if "/" in room.name]
        text = group[0].heading or group[0].text
        lines.append(f"| [{folder}](../trireme/{folder}) | {text}{': ' if inner else ''}{' '.join(inner)} |")
    return BEGIN + "\n".join(lines) + "\n" + END


def page_of_rooms(root, rooms, write):
    page = root.parent / "docs" / "rooms.md"
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        return ["docs/rooms.md has no place for the rooms"]
    first, last = text.index(BEGIN), text.index(END) + len(END)
    if text[first:last] == drawing(rooms):
        return []
    if not write:
        return ["docs/rooms.md does not show the rooms as rooms.txt lists them\n  fix: tools/check_layers.py trireme --page"]
    page.write_text(text[:first] + drawing(rooms) + text[last:])
    return []


def check(root, write_page=False):
    rooms, problems = listed_rooms(root)
    libraries = declared_libraries(root)
    problems += check_libraries(rooms, libraries) + check_includes(root, rooms, libraries)
    duplicates, per_room = check_names(root)
    return rooms, libraries, problems + duplicates + page_of_rooms(root, rooms, write_page), per_room


def main():
    options = sys.argv[2:]
    if len(sys.argv) not in (2, 3) or not set(options) <= {"--names", "--page"}:
        raise SystemExit(__doc__)
    rooms, libraries, problems, per_room = check(pathlib.Path(sys.argv[1]).resolve(), "--page" in options)
    print("\n".join(problems) or f"{len(rooms)} rooms in {len(libraries)} libraries, no violation")
    if "--names" in options:
        print("\n".join(f"{count:5} {room}" for room, count in per_room.most_common()), f"\n{sum(per_room.values()):5} in all")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
