#!/usr/bin/env python3
"""Breaks the rules of tools/check_layers.py one at a time, and sees that each is found."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"


class Layers(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "trireme"
            house = {
                "base/CMakeLists.txt": "trireme_library(base)",
                "base/error.hpp": "",
                "layout/CMakeLists.txt": "trireme_library(layout DEPENDS base)",
                "layout/grid.cpp": '#include "trireme/base/error.hpp"\n#include <vector>\n',
                "comm/CMakeLists.txt": "trireme_library(comm DEPENDS base layout TORCH)",
                "comm/group.hpp": '#include <ATen/core/Tensor.h>\n#include "trireme/layout/grid.hpp"\n',
                "cli/CMakeLists.txt": "# words\ntrireme_library(cli DEPENDS base\n  TORCH_DEPENDS comm LINK x)",
                "cli/main.cpp": '#include "trireme/comm/group.hpp"\n',
            }
            for path, text in {**house, **files}.items():
                file = root / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            run = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True)
            return run.returncode, run.stdout + run.stderr

    def assert_found(self, files, message):
        code, output = self.check(files)
        self.assertEqual(code, 1, output)
        self.assertIn(message, output)

    def test_a_house_in_order_passes(self):
        self.assertEqual(self.check({}), (0, "4 layers, no violation\n"))

    def test_an_include_upwards(self):
        self.assert_found({"base/a.cpp": '\n#include "trireme/layout/grid.hpp"\n'},
                          "trireme/base/a.cpp:2: base/ may not include layout/ (it declares: nothing)")

    def test_angle_brackets_do_not_hide_it(self):
        self.assert_found({"base/a.cpp": "#include <trireme/layout/grid.hpp>\n"}, "base/ may not include layout/")

    def test_torch_in_the_lower_deck(self):
        self.assert_found({"layout/a.cpp": "#include <torch/torch.h>\n"}, "trireme/layout/a.cpp:1: layout/ may not see torch")
        self.assert_found({"layout/CMakeLists.txt": "trireme_library(layout DEPENDS base TORCH)"}, "layout/ is of the lower deck and declares TORCH")
        self.assert_found({"layout/CMakeLists.txt": "trireme_library(layout DEPENDS base comm)"}, "layout/ is of the lower deck and declares comm/")

    def test_a_file_in_a_folder_below_or_with_another_ending(self):
        self.assert_found({"layout/deep/a.hpp": "#include <c10/core/Device.h>\n"}, "trireme/layout/deep/a.hpp:1: layout/ may not see torch")
        self.assert_found({"layout/a.h": "#include <caffe2/x.h>\n"}, "layout/ may not see torch")

    def test_a_path_that_is_not_whole(self):
        self.assert_found({"base/a.cpp": '#include "../layout/grid.hpp"\n'}, 'write the whole path, "trireme/...", not "../layout/grid.hpp"')

    def test_two_headers_with_one_name(self):
        message = "trireme::Span is defined by trireme/base/trace.hpp and trireme/layout/slice.hpp"
        trace = "namespace trireme {\nclass Span {\n  struct Inner {};\n};\n}\n"
        self.assert_found({"base/trace.hpp": trace, "layout/slice.hpp": "namespace trireme {\nusing Span = int;\n}\n"}, message)
        self.assert_found({"base/trace.hpp": trace, "layout/slice.hpp": "namespace trireme {\nenum class Span { a };\n}\n"}, message)
        other = {"base/trace.hpp": trace, "layout/slice.hpp": "namespace trireme::layout {\nstruct Span { struct Inner {}; };\n}\n",
                 "comm/group.hpp": "namespace trireme {\nclass Span;  // class Span { }\n}\n"}
        self.assertEqual(self.check(other)[0], 0, self.check(other)[1])

    def test_test_helpers_are_for_tests(self):
        testing = {"testing/CMakeLists.txt": "trireme_library(testing DEPENDS base comm TORCH)",
                   "testing/helpers.hpp": '#include "trireme/cli/main.hpp"\n#include <ATen/core/Tensor.h>\n'}
        use = '#include "trireme/testing/helpers.hpp"\n'
        self.assertEqual(self.check({**testing, "layout/grid_test.cpp": use}), (0, "5 layers, no violation\n"))
        self.assert_found({**testing, "layout/grid2.cpp": use}, "trireme/layout/grid2.cpp:1: only tests may include testing/")
        self.assert_found({**testing, "cli/CMakeLists.txt": "trireme_library(cli DEPENDS base comm testing)"},
                          "cli/ declares testing/, which is for tests only")

    def test_a_cycle(self):
        self.assert_found({"base/CMakeLists.txt": "trireme_library(base DEPENDS layout)"}, "cycle: ")

    def test_a_folder_without_a_library(self):
        self.assert_found({"stray/a.cpp": ""}, "stray/ has no trireme_library(stray ...)")


unittest.main()
