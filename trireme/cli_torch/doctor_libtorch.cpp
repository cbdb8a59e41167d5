// The libtorch section of `trireme doctor`.
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>

#include "trireme/cli/commands.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"

namespace trireme::cli {
namespace {

/// The lines that a command prints; none if it fails or does not exist.
std::vector<std::string> lines_of(const char* command) {
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(::popen(command, "r"), close);
  std::vector<std::string> lines;
  std::array<char, 1024> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    lines.emplace_back(line.data());
    while (!lines.back().empty() && lines.back().back() == '\n') lines.back().pop_back();
  }
  return lines;
}

/// By the driver's own tool, which is installed with it: libtorch knows neither clocks nor links.
void add_gpus(std::vector<std::vector<std::string>>& rows) {
  for (const std::string& line : lines_of(
           "nvidia-smi --query-gpu=index,name,memory.total,clocks.sm,clocks.max.sm,power.limit,pcie.link.gen.current,"
           "driver_version --format=csv,noheader 2>/dev/null")) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in >> std::ws, cell, ',');) cells.push_back(cell);
    if (cells.size() != 8) continue;
    rows.push_back(
        {"GPU " + cells[0], text(cells[1], ", ", cells[2]),
         text("SM ", cells[3], " of ", cells[4], ", ", cells[5], ", PCIe ", cells[6], ", driver ", cells[7])});
  }
  for (const std::string& line : lines_of("nvidia-smi topo -m 2>/dev/null"))
    if (line.starts_with("GPU")) {
      std::istringstream in(line);
      std::string name, links;
      in >> name;
      for (std::string word; in >> word && (word == "X" || word.starts_with("NV") || word == "SYS" || word == "NODE" ||
                                            word == "PHB" || word == "PXB" || word == "PIX");)
        links += (links.empty() ? "" : " ") + word;
      rows.push_back({"links of " + name, links, "NV#: NVLink; PIX, PXB, PHB: PCIe; NODE, SYS: through the CPU"});
    }
}

}  // namespace

std::vector<std::vector<std::string>> libtorch_report(const std::vector<std::string>& /*words*/) {
  const LibtorchFacts facts = libtorch_facts();
  std::string backends = text(facts.gloo ? "gloo" : "no gloo", facts.nccl ? ", nccl" : ", no nccl");
  std::string gpus = facts.cuda ? text(facts.gpus.size(), " visible") : "none";
  std::vector<std::vector<std::string>> rows{
      {"libtorch", facts.built_with, text(facts.threads, " threads, ", facts.blas)},
      {"backends", backends, ""},
      {"GPUs", gpus, ""},
  };
  if (facts.cuda) add_gpus(rows);
  return rows;
}

}  // namespace trireme::cli
