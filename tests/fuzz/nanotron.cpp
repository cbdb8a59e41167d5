// Fuzz target: the words of a nanotron checkpoint. Input: lines with the name of a file, slices, a shape; then a
// model_config.json.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/checkpoint/sources/nanotron_format.hpp"

namespace {

using namespace trireme;

std::string_view take_line(std::string_view& input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view line = input.substr(0, end);
  input.remove_prefix(std::min(end + 1, input.size()));
  return line;
}

/// Calls `read`, which may throw only what tells the user about the input.
template <class Read>
void guarded_read(const Read& read) {
  try {
    read();
  } catch (const CheckpointError&) {
  } catch (const ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto file = checkpoint::parse_nanotron_file(take_line(input)))
    require(checkpoint::parse_nanotron_file(checkpoint::file_name(*file)) == file, "a name that is not read back");
  const std::string_view slices = take_line(input), shape = take_line(input);
  guarded_read([&] {
    const ShardedInfo info{.global_ranks = {},
                           .local_global_slices_pairs = parse_slices_pairs(slices),
                           .unsharded_shape = parse_tuple(shape)};
    const ShardedInfo known = validated(info, info.unsharded_shape);
    require(parse_slices_pairs(str(known.local_global_slices_pairs)) == known.local_global_slices_pairs,
            "slices that are not read back");
  });
  guarded_read([&] {
    const std::string json = checkpoint::config_json_of_nanotron("model_config.json", std::string(input), "float32");
    checkpoint::model_of_config_json("config.json", json);
  });
  return 0;
}
