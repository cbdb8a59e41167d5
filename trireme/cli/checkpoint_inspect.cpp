// `trireme checkpoint inspect`.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/table.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::StoredTensor;

/// A name from a file: in quotes if it could do something to the terminal.
std::string safe(const std::string& name) {
  const std::string shown = files::shown_name(name, 200);
  return shown == "\"" + name + "\"" ? name : shown;
}

/// Tensors of one line: those of one parameter, or, in the short form, of one parameter of all layers.
struct TensorLine {
  std::vector<std::string> kinds{};
  std::array<std::set<std::int64_t>, 2> numbers{};  // of the first two numbers in the names: the layer, the expert
  std::uint64_t bytes = 0;
  std::size_t slices = 0;
};

/// "layers.{}.mlp.weight" for layers.3.mlp.weight, and its numbers; at most two.
std::string pattern_of_name(const std::string& name, std::vector<std::int64_t>& numbers) {
  std::string out;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find_first_of(".-/", begin), name.size());
    std::int64_t number = 0;
    const auto [after, error] = std::from_chars(name.data() + begin, name.data() + end, number);
    const bool is_number = error == std::errc() && after == name.data() + end && end > begin && numbers.size() < 2;
    out += is_number ? "{}" : name.substr(begin, end - begin);
    if (is_number) numbers.push_back(number);
    if (end < name.size()) out += name[end];
    begin = end + 1;
  }
  return out;
}

/// "3", "0-31", or "{0,2,4}"
std::string numbers_text(const std::set<std::int64_t>& numbers) {
  const std::int64_t first = *numbers.begin(), last = *numbers.rbegin();
  if (first == last) return std::to_string(first);
  if (last - first + 1 == std::ssize(numbers)) return text("{", first, "-", last, "}");
  std::string out;
  for (const std::int64_t each : numbers) out += text(out.empty() ? "{" : ",", each);
  return out + "}";
}

std::string filled_in(std::string pattern, const TensorLine& line) {
  for (std::size_t i = 0, at = 0; i < line.numbers.size() && (at = pattern.find("{}", at)) != std::string::npos; ++i) {
    const std::string numbers = numbers_text(line.numbers[i]);
    pattern.replace(at, 2, numbers);
    at += numbers.size();
  }
  return pattern;
}

std::string tensor_table(const Manifest& manifest, bool each) {
  using Key = std::tuple<std::string, Shape, files::SafetensorsDtype>;
  std::vector<std::pair<Key, TensorLine>> lines;  // in the order of the first tensor
  std::map<Key, std::size_t> places;
  for (const StoredTensor& tensor : manifest.tensors) {
    std::vector<std::int64_t> numbers;
    const std::string pattern = each ? tensor.name : pattern_of_name(tensor.name, numbers);
    const Key key{pattern, tensor.shape, tensor.dtype};
    const auto [place, is_new] = places.try_emplace(key, lines.size());
    if (is_new) lines.emplace_back(key, TensorLine{});
    TensorLine& line = lines[place->second].second;
    if (std::ranges::find(line.kinds, tensor.kind) == line.kinds.end()) line.kinds.push_back(tensor.kind);
    for (std::size_t i = 0; i < numbers.size(); ++i) line.numbers[i].insert(numbers[i]);
    line.slices += tensor.slices.size();
    for (const auto& slice : tensor.slices) line.bytes += bytes_of(tensor, slice.box);
  }
  std::vector<TableRow> rows;
  for (auto& [key, line] : lines) {
    const auto& [pattern, shape, dtype] = key;
    std::ranges::stable_partition(line.kinds, [](const std::string& kind) { return kind == checkpoint::kWeight; });
    std::string kinds;
    for (const std::string& kind : line.kinds) kinds += (kinds.empty() ? "" : " ") + safe(kind);
    rows.push_back({safe(each ? pattern : filled_in(pattern, line)), tuple_text(shape), files::name(dtype), kinds,
                    human_bytes(static_cast<double>(line.bytes)), thousands(static_cast<std::int64_t>(line.slices))});
  }
  return table({"tensor", "shape", "dtype", "kinds", "bytes", "slices"}, rows);
}

/// Settings that are not the defaults, in TOML.
std::string settings_text(const Manifest& manifest) {
  Config defaults;
  std::map<std::string, std::string> usual;
  for (const config::Field& field : config::fields(defaults)) usual[field.key] = config::toml_text(field.value);
  std::string out;
  for (const auto& [key, value] : manifest.config)
    if (const auto found = usual.find(key); found == usual.end() || found->second != value)
      out += text(out.empty() ? "settings     " : "             ", safe(key), " = ", files::shown_text(value), "\n");
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string json_of(const std::map<std::string, std::string>& values) {
  std::vector<std::string> out;
  for (const auto& [key, value] : values) out.push_back(text(json_string(key), ": ", json_string(value)));
  return text("{", joined(out), "}");
}

std::string json_text(const MeantCheckpoint& meant, const Manifest& manifest) {
  std::vector<std::string> layout, files_json, tensors, others;
  for (const auto& [key, value] : manifest.layout) layout.push_back(text(json_string(key), ": ", value));
  for (const checkpoint::StoredFile& file : manifest.files)
    files_json.push_back(text("{\"name\": ", json_string(file.name), ", \"bytes\": ", file.bytes, "}"));
  for (const StoredTensor& tensor : manifest.tensors) {
    std::uint64_t bytes = 0;
    std::vector<std::string> shape;
    for (const auto& slice : tensor.slices) bytes += bytes_of(tensor, slice.box);
    for (const std::int64_t size : tensor.shape) shape.push_back(std::to_string(size));
    tensors.push_back(text("{\"name\": ", json_string(tensor.name), ", \"kind\": ", json_string(tensor.kind),
                           ", \"dtype\": \"", files::name(tensor.dtype), "\", \"shape\": [", joined(shape),
                           "], \"bytes\": ", bytes, ", \"slices\": ", tensor.slices.size(), "}"));
  }
  for (const MeantCheckpoint::Other& other : meant.others)
    others.push_back(
        text("{\"name\": ", json_string(other.name), ", \"why_not_valid\": ", json_string(other.why_not), "}"));
  const checkpoint::TrainingState& state = manifest.training;
  return text("{\"path\": ", json_string(meant.path.string()), ", \"id\": ", json_string(manifest.id),
              ", \"program\": ", json_string(manifest.program), ", \"time\": ", json_string(manifest.time),
              ", \"step\": ", state.step, ", \"optimizer_steps\": ", state.optimizer_steps,
              ", \"tokens\": ", state.tokens, ", \"skipped\": ", state.skipped, ", \"bytes\": ", total_bytes(manifest),
              ", \"layout\": {", joined(layout), "}, \"config\": ", json_of(manifest.config),
              ", \"data\": ", json_of(state.data), ", \"files\": [", joined(files_json), "], \"tensors\": [",
              joined(tensors), "], \"others\": [", joined(others), "]}\n");
}

}  // namespace

std::string layout_text(const Manifest& manifest) {
  std::string out;
  for (const char* axis : {"pp", "dp", "cp", "tp", "ep", "edp"})
    if (const auto degree = manifest.layout.find(axis); degree != manifest.layout.end() && degree->second > 1)
      out += text(out.empty() ? "" : " × ", axis, " ", degree->second);
  const auto value = [&](const char* key) {
    const auto found = manifest.layout.find(key);
    return found == manifest.layout.end() ? std::int64_t{0} : found->second;
  };
  return text(value("world"), value("world") == 1 ? " rank" : " ranks", out.empty() ? "" : ": " + out, " · zero ",
              value("zero"));
}

int run_checkpoint_inspect(const CheckpointInspectCommand& command, Console& console) {
  const MeantCheckpoint meant = meant_checkpoint(command.path);
  const checkpoint::Reader reader(meant.path);
  const Manifest& manifest = reader.manifest();
  if (command.json) {
    console.out << json_text(meant, manifest);
    return static_cast<int>(ExitCode::done);
  }
  const checkpoint::TrainingState& state = manifest.training;
  console.out << "checkpoint   " << meant.path.string() << "\n"
              << others_text(meant) << "saved        " << safe(manifest.time) << " by " << safe(manifest.program)
              << "\n"
              << "step         " << thousands(state.step) << " · " << thousands(state.tokens) << " tokens";
  if (state.skipped > 0) console.out << " · " << thousands(state.skipped) << " updates skipped";
  console.out << "\nlayout       " << layout_text(manifest) << " (it loads on any other)\n"
              << "size         " << human_bytes(static_cast<double>(total_bytes(manifest))) << " in "
              << thousands(std::ssize(manifest.files)) << " files\n"
              << settings_text(manifest) << "\n"
              << tensor_table(manifest, command.tensors);
  return static_cast<int>(ExitCode::done);
}

}  // namespace trireme::cli
