// Fuzz target: the page of a run whose files are anything. Input: metrics.jsonl, events.jsonl, ranks.jsonl, a trace and
// one of libtorch's profiler, with a NUL between them.
#include <cstdint>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/report/page.hpp"
#include "trireme/report/step_timeline.hpp"
#include "trireme/testing/temp_folder.hpp"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const TempFolder folder;
  make_folder(folder.path() / "trace/step2");
  make_folder(folder.path() / "trace/operations");
  std::string_view input(reinterpret_cast<const char*>(bytes), size);
  for (const char* name : {"metrics.jsonl", "events.jsonl", "ranks.jsonl", "trace/step2/rank1.json",
                           "trace/operations/rank0.step2.pt.trace.json"}) {
    const std::size_t end = std::min(input.find('\0'), input.size());
    replace_file(folder.path() / name, input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  replace_file(folder.path() / "config.toml", "[model]\npreset = \"tiny-llama\"\n[parallelism]\npp = 2\n");
  report::RunFiles run = report::read_run(folder.path());
  report::OperationTraces().add_to(run);
  const std::string page = report::page_html({run}, {});
  require(page.ends_with("</html>\n") && page.find("<script>alert") == std::string::npos, "a page that is none");
  try {
    require(report::step_timeline_svg(run).ends_with("</svg>\n"), "a drawing that is none");
  } catch (const DataError&) {    // no times
  } catch (const ConfigError&) {  // no traces
  }
  return 0;
}
