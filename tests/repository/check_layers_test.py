#!/usr/bin/env python3
"""Breaks the rules of tools/check_layers.py one at a time, and sees that each is found."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"
ROOMS = """# words

upper deck: with torch
testing       helpers of tests
cli           the program
comm/         groups
comm/backends  how bytes move
comm          who talks to whom
lower deck: without torch
layout/grids  grids
describe      between two rooms of one library
layout        where every rank is
base          errors
"""
PLACE = "# A page\n<!-- rooms: tools/check_layers.py trireme --page writes this -->\n<!-- end of rooms -->\nmore\n"


class Layers(unittest.TestCase):
    def check(self, files, *options):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "trireme"
            house = {
                "rooms.txt": ROOMS,
                "base/CMakeLists.txt": "trireme_library(base)",
                "base/error.hpp": "",
                "layout/CMakeLists.txt": "trireme_library(layout FOLDERS describe DEPENDS base)",
                "layout/grid.cpp": '#include "trireme/base/error.hpp"\n#include <vector>\n',
                "layout/grids/grids.hpp": '#include "trireme/describe/a.hpp"\n',
                "describe/a.hpp": '#include "trireme/layout/grid.hpp"\n',
                "comm/CMakeLists.txt": "trireme_library(comm DEPENDS base layout TORCH TEST_DEPENDS cli SHARDS 2)",
                "comm/group.hpp": '#include <ATen/core/Tensor.h>\n#include "trireme/layout/grids/grids.hpp"\n',
                "comm/backends/gloo.hpp": '#include "trireme/comm/group.hpp"\n',
                "cli/CMakeLists.txt": "# words\ntrireme_library(cli DEPENDS base\n  TORCH_DEPENDS comm LINK x)",
                "cli/main.cpp": '#include "trireme/comm/group.hpp"\n',
                "testing/CMakeLists.txt": "trireme_library(testing DEPENDS base comm TORCH)",
                "testing/helpers.hpp": '#include "trireme/cli/main.hpp"\n#include <ATen/core/Tensor.h>\n',
                "../docs/rooms.md": PLACE,
            }
            for path, text in {**house, **files}.items():
                file = root / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            if "../docs/rooms.md" not in files:
                subprocess.run([sys.executable, TOOL, root, "--page"], capture_output=True)
            run = subprocess.run([sys.executable, TOOL, root, *options], capture_output=True, text=True)
            self.page = (root.parent / "docs/rooms.md").read_text()
            return run.returncode, run.stdout + run.stderr

    def assert_found(self, files, message):
        code, output = self.check(files)
        self.assertEqual(code, 1, output)
        self.assertIn(message, output)

    def test_a_house_in_order_passes(self):
        self.assertEqual(self.check({}), (0, "8 rooms in 5 libraries, no violation\n"))

    def test_a_library_that_is_not_declared(self):
        self.assert_found({"base/a.cpp": '\n#include "trireme/layout/grid.hpp"\n'},
                          "trireme/base/a.cpp:2: base may not include layout (it declares: nothing)")

    def test_angle_brackets_do_not_hide_it(self):
        self.assert_found({"base/a.cpp": "#include <trireme/layout/grid.hpp>\n"}, "base may not include layout")

    def test_a_room_above_in_the_same_folder(self):
        self.assert_found({"comm/a.hpp": '#include "trireme/comm/backends/gloo.hpp"\n'},
                          "trireme/comm/a.hpp:1: comm/ may not include comm/backends/, which stands above it in rooms.txt")

    def test_a_room_above_in_another_folder_of_the_library(self):
        self.assert_found({"layout/a.hpp": '#include "trireme/describe/a.hpp"\n'}, "layout/ may not include describe/, which stands above it")
        self.assert_found({"describe/b.hpp": '#include "trireme/layout/grids/grids.hpp"\n'}, "describe/ may not include layout/grids/, which")

    def test_a_room_above_that_is_declared(self):
        upside_down = ROOMS.replace("cli           the program\n", "", 1).replace("lower deck", "cli           the program\nlower deck")
        self.assert_found({"rooms.txt": upside_down}, "trireme/cli/main.cpp:1: cli/ may not include comm/, which stands above it")

    def test_tests_may_include_what_their_program_links(self):
        self.assertEqual(self.check({"comm/a_test.cpp": '#include "trireme/comm/backends/gloo.hpp"\n#include "trireme/cli/main.hpp"\n'})[0], 0)
        self.assert_found({"comm/a.cpp": '#include "trireme/cli/main.hpp"\n'}, "comm may not include cli (it declares: base layout)")
        self.assert_found({"layout/a_test.cpp": '#include "trireme/comm/group.hpp"\n'}, "layout may not include comm (it declares: base)")

    def test_a_folder_that_is_not_listed(self):
        self.assert_found({"comm/deep/a.cpp": ""}, "comm/deep/ has sources and is not in rooms.txt")
        self.assert_found({"rooms.txt": ROOMS.replace("comm/backends  how bytes move\n", "")}, "comm/backends/ has sources and is not in rooms.txt")

    def test_a_listed_room_without_sources(self):
        self.assert_found({"rooms.txt": ROOMS + "base/deep     nothing\n"}, "rooms.txt lists base/deep, which has no sources")

    def test_a_room_that_is_listed_twice_or_on_the_wrong_deck(self):
        self.assert_found({"rooms.txt": ROOMS + "base          again\n"}, "base is listed twice")
        self.assert_found({"rooms.txt": ROOMS + "upper deck: x\n"}, "the upper deck stands below the lower deck")
        self.assert_found({"rooms.txt": ROOMS.replace("comm          who", "lower deck\ncomm          who")}, "comm has rooms of both decks")
        self.assert_found({"rooms.txt": ROOMS.replace("comm/         groups\n", "")}, "a heading comm/ stands above several rooms")
        self.assert_found({"rooms.txt": ROOMS.replace("comm/ ", "base/ ")}, "rooms.txt:7: comm/backends stands under the heading of base/")
        self.assertIn("rooms.txt:1: not a deck", self.check({"rooms.txt": "base errors\n"})[1])

    def test_torch_in_the_lower_deck(self):
        self.assert_found({"layout/a.cpp": "#include <torch/torch.h>\n"}, "trireme/layout/a.cpp:1: layout/ may not see torch")
        self.assert_found({"describe/b.cpp": "#include <c10/core/Device.h>\n"}, "trireme/describe/b.cpp:1: describe/ may not see torch")
        self.assert_found({"layout/CMakeLists.txt": "trireme_library(layout FOLDERS describe DEPENDS base TORCH)"},
                          "layout is of the lower deck and declares TORCH")
        self.assert_found({"layout/CMakeLists.txt": "trireme_library(layout FOLDERS describe DEPENDS base comm)"},
                          "layout is of the lower deck and declares comm")

    def test_a_file_in_a_room_below_or_with_another_ending(self):
        self.assert_found({"layout/grids/a.hpp": "#include <c10/core/Device.h>\n"}, "trireme/layout/grids/a.hpp:1: layout/grids/ may not see torch")
        self.assert_found({"layout/a.h": "#include <caffe2/x.h>\n"}, "layout/ may not see torch")

    def test_a_path_that_is_not_whole(self):
        self.assert_found({"base/a.cpp": '#include "../layout/grid.hpp"\n'}, 'write the whole path, "trireme/...", not "../layout/grid.hpp"')

    def test_two_headers_with_one_name(self):
        message = "trireme::Span is defined by trireme/base/trace.hpp and trireme/layout/slice.hpp"
        trace = "namespace trireme {\nclass Span {\n  struct Inner {};\n};\n}\n"
        self.assert_found({"base/trace.hpp": trace, "layout/slice.hpp": "namespace trireme {\nusing Span = int;\n}\n"}, message)
        self.assert_found({"base/trace.hpp": trace, "layout/slice.hpp": "namespace trireme {\nenum class Span { a };\n}\n"}, message)
        other = {"base/trace.hpp": trace, "layout/slice.hpp": "namespace trireme::layout {\nstruct Span { struct Inner {}; };\n}\n",
                 "comm/group2.hpp": "namespace trireme {\nclass Span;  // class Span { }\n}\n"}
        self.assertEqual(self.check(other)[0], 0, self.check(other)[1])

    def test_test_helpers_are_for_tests(self):
        use = '#include "trireme/testing/helpers.hpp"\n'
        self.assertEqual(self.check({"layout/grid_test.cpp": use})[0], 0)
        self.assert_found({"layout/grid2.cpp": use}, "trireme/layout/grid2.cpp:1: only tests may include testing/")
        self.assert_found({"cli/CMakeLists.txt": "trireme_library(cli DEPENDS base comm testing)"}, "cli declares testing, which is for tests only")

    def test_a_cycle(self):
        self.assert_found({"base/CMakeLists.txt": "trireme_library(base DEPENDS layout)"}, "cycle: ")

    def test_a_folder_without_a_library(self):
        self.assert_found({"stray/a.cpp": ""}, "stray/ belongs to no library")

    def test_the_page_shows_the_list(self):
        self.assert_found({"../docs/rooms.md": PLACE}, "docs/rooms.md does not show the rooms as rooms.txt lists them")
        self.assert_found({"../docs/rooms.md": "# A page\n"}, "docs/rooms.md has no place for the rooms")
        self.assertEqual(self.check({})[0], 0)
        self.assertIn("| [cli](../trireme/cli) | the program |\n| [comm](../trireme/comm) | groups: `backends` |\n| **lower deck** |", self.page)
        self.assertTrue(self.page.startswith("# A page\n") and self.page.endswith("\nmore\n"), self.page)


unittest.main()
