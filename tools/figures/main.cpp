// Draws the figures of docs/: tools/docs_figures runs it, and the test docs.figures compares.
//   usage: trireme_docs_figures all FOLDER                    one file per figure, FOLDER/zero.svg ...
//          trireme_docs_figures terminal < WRITTEN > SVG      what was written to a terminal of 100 columns
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tools/figures/figures.hpp"
#include "tools/figures/terminal_picture.hpp"
#include "trireme/base/error.hpp"

namespace {

using namespace trireme;

void write_all(const std::string& folder) {
  for (const figures::Figure& figure : figures::all_figures()) {
    const std::string path = folder + "/" + figure.name + ".svg";
    std::ofstream file(path, std::ios::binary);
    file << figure.drawing.svg() << std::flush;
    require<ConfigError>(file.good(), path, ": cannot be written");
  }
}

void draw_terminal() {
  const std::string written{std::istreambuf_iterator<char>(std::cin), {}};
  std::cout << figures::terminal_picture(figures::terminal_lines(written, figures::kTerminalColumns), "trireme");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "all") {
      write_all(words[1]);
    } else if (words.size() == 1 && words[0] == "terminal") {
      draw_terminal();
    } else {
      std::cerr << "usage: trireme_docs_figures all FOLDER\n"
                   "       trireme_docs_figures terminal < WRITTEN > SVG\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
