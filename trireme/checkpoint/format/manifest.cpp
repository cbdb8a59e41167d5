#include "trireme/checkpoint/format/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/files/json_bounds.hpp"
#include "trireme/files/open_beneath.hpp"

namespace trireme::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHowToRead =
    "files[parts[i]] is a part of this manifest, of the files between it and the part before; the slices of a tensor "
    "are in its parts; each slice [box, file, offset, xxh3] is the row-major bytes of that box of the tensor, at this "
    "byte offset of files[file] of the part; the files are safetensors files too";
// What the text of the checkpoint is put between: the bytes that its hash does not cover are compared with these.
constexpr std::string_view kBeforeHash = kManifestBegin, kBeforeCheckpoint = "\",\n\"checkpoint\": ", kEnd = "}\n";

std::string box_text(const Box& box) {
  std::string out;
  for (const Range& side : box) out += text(out.empty() ? "" : ",", side.begin, ":", side.end);
  return out;
}

/// "0-7,24": indices, in order.
std::string ranges_text(const std::vector<Range>& ranges) {
  std::string out;
  for (const Range& range : ranges) {
    out += text(out.empty() ? "" : ",", range.begin);
    if (range.size() > 1) out += text("-", range.end - 1);
  }
  return out;
}

/// Reads a manifest; every function throws CheckpointError with the rule.
class Parser {
 public:
  Parser(const std::string& shown, bool is_whole) : shown_(shown), is_whole_(is_whole) {}

  Manifest manifest(const Json& json) {
    const auto version = value<std::int64_t>(json, "version");
    require<CheckpointError>(version >= 1 && version <= kVersion, shown_, ": a checkpoint of version ", version,
                             "; this program reads versions up to ", kVersion, "\n  fix: the program that wrote it (",
                             json.contains("program") ? value<std::string>(json, "program") : "unknown", ")");
    Manifest out{.id = value<std::string>(json, "id"),
                 .program = value<std::string>(json, "program"),
                 .time = value<std::string>(json, "time"),
                 .layout = value<std::map<std::string, std::int64_t>>(json, "layout"),
                 .config = value<std::map<std::string, std::string>>(json, "config"),
                 .training = training(member(json, "training"))};
    for (const Json& file : member(json, "files")) out.files.push_back(stored_file(file));
    if (json.contains("parts")) out.parts = parts(json.at("parts"), out.files);
    for (const Json& tensor : member(json, "tensors")) out.tensors.push_back(stored_tensor(tensor, out));
    const auto key = [](const StoredTensor& tensor) { return std::tie(tensor.name, tensor.kind); };
    check(!is_whole_ || std::ranges::adjacent_find(out.tensors, std::greater_equal<>(), key) == out.tensors.end(),
          "the tensors are not sorted, or one is there twice");
    return out;
  }

 private:
  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require<CheckpointError>(ok, shown_, ": ", parts...);
  }

  const Json& member(const Json& object, const char* key) const {
    check(object.is_object() && object.contains(key), "\"", key, "\" is missing");
    return object.at(key);
  }
  template <class T>
  T value(const Json& object, const char* key) const {
    return as<T>(member(object, key), key);
  }
  template <class T>
  T as(const Json& json, const char* what) const {
    try {
      if constexpr (std::is_integral_v<T>) check(json.is_number_integer(), "\"", what, "\" is not a whole number");
      return json.get<T>();
    } catch (const Json::exception&) {
      throw CheckpointError(text(shown_, ": \"", what, "\" has a value of the wrong type"));
    }
  }
  files::Xxh3 hash(const Json& json, const char* what) const {
    files::Xxh3 out;
    check(files::parse_xxh3(as<std::string>(json, what), out), "\"", what, "\" is not 32 hexadecimal digits");
    return out;
  }

  TrainingState training(const Json& json) const {
    TrainingState out{.step = value<std::int64_t>(json, "step"),
                      .optimizer_steps = value<std::int64_t>(json, "optimizer_steps"),
                      .tokens = value<std::int64_t>(json, "tokens"),
                      .skipped = value<std::int64_t>(json, "skipped"),
                      .samples_consumed = value<std::vector<std::int64_t>>(json, "samples_consumed"),
                      .data = value<std::map<std::string, std::string>>(json, "data"),
                      .loss_window = value<std::vector<double>>(json, "loss_window"),
                      .norm_window = value<std::vector<double>>(json, "norm_window")};
    check(out.step >= 0 && out.optimizer_steps >= 0 && out.tokens >= 0 && out.skipped >= 0,
          "\"training\" has a negative count");
    if (json.contains("loss_scale")) {
      const Json& scale = json.at("loss_scale");
      out.loss_scale = {.scale = value<double>(scale, "scale"),
                        .good_steps = value<std::int64_t>(scale, "good_steps"),
                        .patience = value<std::int64_t>(scale, "patience")};
    }
    return out;
  }

  StoredFile stored_file(const Json& json) const {
    StoredFile out{.name = value<std::string>(json, "name"),
                   .bytes = value<std::uint64_t>(json, "bytes"),
                   .header_bytes = value<std::uint64_t>(json, "header_bytes"),
                   .header_hash = hash(member(json, "header_xxh3"), "header_xxh3")};
    require<SecurityError>(
        files::is_path_beneath(out.name), shown_, ": the file name ", json_string(out.name),
        " is not a plain name or path\n  fix: do not use a checkpoint that you did not make yourself");
    check(out.header_bytes <= out.bytes, out.name, ": the header is longer than the file");
    return out;
  }

  Box box(std::string_view source, const Shape& shape) const {
    Box out;
    const auto number = [&](char stop) {
      std::int64_t parsed = -1;
      const auto [end, error] = std::from_chars(source.data(), source.data() + source.size(), parsed);
      check(error == std::errc() && parsed >= 0, "a slice has an invalid box");
      source.remove_prefix(static_cast<std::size_t>(end - source.data()));
      check(stop == '\0' || source.starts_with(stop), "a slice has an invalid box");
      if (stop != '\0') source.remove_prefix(1);
      return parsed;
    };
    while (!source.empty()) {
      const std::int64_t begin = number(':'), end = number('\0');
      out.push_back({begin, end});
      if (source.starts_with(',') && source.size() > 1) source.remove_prefix(1);
    }
    check(out.size() == shape.size(), "a slice has ", out.size(), " dims, its tensor ", shape.size());
    for (std::size_t d = 0; d < shape.size(); ++d)
      check(out[d].begin < out[d].end && out[d].end <= shape[d], "the slice ", str(out), " is empty or outside of ",
            tuple_text(shape));
    return out;
  }

  std::int64_t number_of_elements(const Shape& shape) const {
    try {
      return numel(shape);
    } catch (const ConfigError& error) {  // elsewhere a shape comes from a config
      throw CheckpointError(text(shown_, ": ", error.what()));
    }
  }

  std::vector<std::size_t> parts(const Json& json, const std::vector<StoredFile>& files) const {
    check(is_whole_, "a part has parts");
    std::vector<std::size_t> out;
    for (const Json& index : json) {
      const auto next = as<std::size_t>(index, "parts");
      check(next < files.size() && (out.empty() || next > out.back()), "\"parts\" is not a rising list of files");
      check(files[next].header_bytes == files[next].bytes, files[next].name, ": is a part, and holds tensors");
      out.push_back(next);
    }
    check(!out.empty(), "\"parts\" is empty");
    return out;
  }

  std::vector<Range> ranges(std::string_view source, std::size_t below) const {
    std::vector<Range> out;
    const auto number = [&] {
      std::int64_t parsed = -1;
      const auto [end, error] = std::from_chars(source.data(), source.data() + source.size(), parsed);
      check(error == std::errc() && parsed >= 0 && static_cast<std::size_t>(parsed) < below,
            "a tensor has an invalid list of parts");
      source.remove_prefix(static_cast<std::size_t>(end - source.data()));
      return parsed;
    };
    for (;;) {
      Range next{number(), 0};
      next.end = next.begin + 1;
      if (source.starts_with('-')) {
        source.remove_prefix(1);
        next.end = number() + 1;
      }
      check(next.begin < next.end && (out.empty() || next.begin >= out.back().end),
            "a tensor has an invalid list of parts");
      out.push_back(next);
      if (source.empty()) return out;
      check(source.starts_with(','), "a tensor has an invalid list of parts");
      source.remove_prefix(1);
    }
  }

  StoredTensor stored_tensor(const Json& json, const Manifest& manifest) const {
    const std::vector<StoredFile>& files = manifest.files;
    StoredTensor out{.name = value<std::string>(json, "name"),
                     .kind = value<std::string>(json, "kind"),
                     .shape = value<Shape>(json, "shape")};
    const auto dtype = files::safetensors_dtype(value<std::string>(json, "dtype"));
    check(dtype && files::bits(*dtype) % 8 == 0, out.name, ": unknown dtype");
    out.dtype = *dtype;
    const std::int64_t elements = number_of_elements(out.shape);
    if (!manifest.parts.empty()) {
      out.parts = ranges(value<std::string>(json, "parts"), manifest.parts.size());
      return out;
    }
    std::int64_t covered = 0;
    for (const Json& entry : member(json, "slices")) {
      check(entry.is_array() && entry.size() == 4, out.name, ": a slice is not [box, file, offset, xxh3]");
      StoredSlice slice{.box = box(as<std::string>(entry[0], "slices"), out.shape),
                        .file = as<std::size_t>(entry[1], "slices"),
                        .offset = as<std::uint64_t>(entry[2], "slices"),
                        .hash = hash(entry[3], "slices")};
      check(slice.file < files.size(), out.name, ": file number ", slice.file, " of ", files.size());
      const StoredFile& file = files[slice.file];
      const std::uint64_t bytes = bytes_of(out, slice.box);
      check(slice.offset <= file.bytes && bytes <= file.bytes - slice.offset, out.name, " ", out.kind, " ",
            str(slice.box), ": bytes ", slice.offset, " to ", slice.offset + bytes, " are not in ", file.name,
            ", which has ", file.bytes);
      const auto count = static_cast<std::int64_t>(bytes / static_cast<std::uint64_t>(files::bits(out.dtype) / 8));
      check(count <= elements - covered, out.name, " ", out.kind, ": the slices have more than its ", elements,
            " elements");
      covered += count;
      out.slices.push_back(std::move(slice));
    }
    check(!is_whole_ || covered == elements, out.name, " ", out.kind, ": the slices have ", covered,
          " elements, the tensor ", elements);
    return out;
  }

  const std::string& shown_;
  const bool is_whole_;
};

Json training_json(const TrainingState& state) {
  Json out{{"step", state.step},
           {"optimizer_steps", state.optimizer_steps},
           {"tokens", state.tokens},
           {"skipped", state.skipped},
           {"samples_consumed", state.samples_consumed},
           {"data", state.data},
           {"loss_window", state.loss_window},
           {"norm_window", state.norm_window}};
  if (state.loss_scale)
    out["loss_scale"] = {{"scale", state.loss_scale->scale},
                         {"good_steps", state.loss_scale->good_steps},
                         {"patience", state.loss_scale->patience}};
  return out;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  const Json head{{"how_to_read", kHowToRead}, {"version", kVersion},
                  {"id", manifest.id},         {"program", manifest.program},
                  {"time", manifest.time},     {"layout", manifest.layout},
                  {"config", manifest.config}, {"training", training_json(manifest.training)}};
  std::string out = head.dump(1);
  out.resize(out.size() - 2);  // "\n}"
  out += ",\n \"files\": [";
  for (const StoredFile& file : manifest.files)
    out += text(&file == &manifest.files.front() ? "\n" : ",\n", "  {\"name\": ", json_string(file.name),
                ", \"bytes\": ", file.bytes, ", \"header_bytes\": ", file.header_bytes, ", \"header_xxh3\": \"",
                str(file.header_hash), "\"}");
  out += "\n ]";
  if (!manifest.parts.empty()) out += text(",\n \"parts\": ", Json(manifest.parts).dump());
  out += ",\n \"tensors\": [";
  for (const StoredTensor& tensor : manifest.tensors) {
    out += text(&tensor == &manifest.tensors.front() ? "\n" : ",\n", "  {\"name\": ", json_string(tensor.name),
                ", \"kind\": ", json_string(tensor.kind), ", \"dtype\": \"", files::name(tensor.dtype),
                "\", \"shape\": ", Json(tensor.shape).dump());
    if (!manifest.parts.empty()) {
      out += text(", \"parts\": \"", ranges_text(tensor.parts), "\"}");
      continue;
    }
    out += ", \"slices\": [";
    for (const StoredSlice& slice : tensor.slices)
      out += text(&slice == &tensor.slices.front() ? "" : ", ", "[\"", box_text(slice.box), "\", ", slice.file, ", ",
                  slice.offset, ", \"", str(slice.hash), "\"]");
    out += "]}";
  }
  out += "\n ]\n}";
  const std::string digits = str(files::xxh3(std::as_bytes(std::span(out))));
  return text(kBeforeHash, digits, kBeforeCheckpoint, out, kEnd);
}

namespace {

Manifest parse(std::string_view json, const std::string& shown, bool is_whole) {
  const std::size_t begin = kBeforeHash.size() + 32 + kBeforeCheckpoint.size();
  const bool framed = json.size() > begin + kEnd.size() && json.starts_with(kBeforeHash) && json.ends_with(kEnd) &&
                      json.substr(kBeforeHash.size() + 32).starts_with(kBeforeCheckpoint);
  require<CheckpointError>(framed, shown, ": not the manifest of a checkpoint, or cut short");
  const std::string_view body = json.substr(begin, json.size() - begin - kEnd.size());
  files::Xxh3 told;
  require<CheckpointError>(files::parse_xxh3(json.substr(kBeforeHash.size(), 32), told) &&
                               told == files::xxh3(std::as_bytes(std::span(body))),
                           shown, ": its hash is wrong: the file is damaged");
  const std::string fault = files::json_bounds_fault(body, kMaxManifestBytes, 16);
  require<CheckpointError>(fault.empty(), shown, ": ", fault);
  Json parsed;
  try {
    parsed = Json::parse(body);
  } catch (const Json::exception& e) {
    throw CheckpointError(text(shown, ": ", files::json_fault(e.what())));
  }
  return Parser(shown, is_whole).manifest(parsed);
}

}  // namespace

Manifest parse_manifest(std::string_view json, const std::string& shown) {
  try {
    return parse(json, shown, true);
  } catch (const CheckpointError& e) {
    const std::string what = e.what();
    if (what.find("\n  fix: ") != std::string::npos) throw;
    throw CheckpointError(what + "\n  fix: fetch the file again from where it came, or use another checkpoint");
  }
}

Manifest parse_part(std::string_view json, const std::string& shown) { return parse(json, shown, false); }

Range files_of_part(const Manifest& manifest, std::size_t part) {
  return {part == 0 ? 0 : static_cast<std::int64_t>(manifest.parts[part - 1]) + 1,
          static_cast<std::int64_t>(manifest.parts[part])};
}

const StoredTensor* find(const Manifest& manifest, std::string_view name, std::string_view kind) {
  const auto key = [](const StoredTensor& tensor) {
    return std::pair<std::string_view, std::string_view>(tensor.name, tensor.kind);
  };
  const auto found = std::ranges::lower_bound(manifest.tensors, std::pair(name, kind), {}, key);
  return found != manifest.tensors.end() && key(*found) == std::pair(name, kind) ? &*found : nullptr;
}

std::uint64_t bytes_of(const StoredTensor& tensor, const Box& box) {
  auto elements = std::uint64_t{1};
  for (const Range& side : box) elements *= static_cast<std::uint64_t>(side.size());
  return elements * static_cast<std::uint64_t>(files::bits(tensor.dtype)) / 8;
}

std::uint64_t bytes_of(const StoredTensor& tensor) {
  return static_cast<std::uint64_t>(numel(tensor.shape)) * static_cast<std::uint64_t>(files::bits(tensor.dtype)) / 8;
}

std::uint64_t total_bytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const StoredFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

}  // namespace trireme::checkpoint
