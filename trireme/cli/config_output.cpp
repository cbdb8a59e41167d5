#include "trireme/cli/config_output.hpp"

#include <filesystem>

#include "trireme/base/file_output.hpp"

namespace trireme::cli {

void require_no_file(const std::string& output) {
  require<ConfigError>(output.empty() || !std::filesystem::exists(output), output,
                       " already exists\n  fix: another -o, or remove it first");
}

void write_config(const std::string& output, const std::string& toml, Console& console) {
  if (output.empty()) {
    console.out << toml;
    return;
  }
  require_no_file(output);
  replace_file(output, toml);
  console.out << "written to " << output << "\n";
}

}  // namespace trireme::cli
