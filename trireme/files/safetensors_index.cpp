#include "trireme/files/safetensors_index.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/files/json_bounds.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/safetensors_header.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

using nlohmann::json;

/// A SAX handler. Only depth 1 and, in weight_map, depth 2 are relevant.
class IndexReader {
 public:
  IndexReader(SafetensorsIndex& index, const std::string& shown) : index_(index), shown_(shown) {}

  bool start_object(std::size_t) {
    if (in_map_) not_a_file("an object");
    if (depth_ == 1 && key_ == kWeightMap) in_map_ = true;
    return deeper();
  }
  bool end_object() {
    --depth_;
    if (depth_ == 1) in_map_ = false;
    return true;
  }
  bool start_array(std::size_t) {
    value("a list");
    return deeper();
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool key(std::string& key) {
    if (depth_ == 1 || in_map_) key_ = key;
    if (depth_ == 1 && key == kWeightMap && std::exchange(has_map_, true)) fail("weight_map is given twice");
    if (in_map_)
      if (const char* fault = fault_of_tensor_name(key)) fail("tensor ", shown_name(key), ": ", fault);
    return true;
  }
  bool string(std::string& file) {
    if (!in_map_) return value("a text");
    if (!is_base_name(file))
      throw SecurityError(text(shown_, ": weight_map gives tensor ", shown_name(key_), " to the file ",
                               shown_name(file), ", which is not the name of a file in this folder",
                               "\n  fix: do not use this folder unless you know who wrote the index"));
    if (!file.ends_with(".safetensors"))
      fail("weight_map gives tensor ", shown_name(key_), " to the file ", shown_name(file),
           ", which is not a .safetensors file");
    if (index_.items.size() == kMaxIndexTensors) fail("weight_map has more than ", kMaxIndexTensors, " tensors");
    const auto [number, is_new] = numbers_.emplace(file, static_cast<std::uint32_t>(index_.files.size()));
    if (is_new) {
      if (index_.files.size() == kMaxIndexFiles) fail("weight_map names more than ", kMaxIndexFiles, " files");
      index_.files.push_back(file);
    }
    index_.items.push_back({index_.texts.keep(key_), number->second});
    return true;
  }
  bool number_unsigned(std::uint64_t) { return value("a number"); }
  bool number_integer(std::int64_t) { return value("a number"); }
  bool number_float(double, const std::string&) { return value("a number"); }
  bool boolean(bool) { return value("true or false"); }
  bool null() { return value("null"); }
  bool binary(json::binary_t&) { return value("binary"); }
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) {
    fail("is not JSON, at byte ", position, ": ", json_fault(error.what()),
         "\n  fix: fetch the file again; this one is cut short or damaged");
  }

  void finish() {
    if (!has_map_) fail("has no weight_map");
    std::ranges::sort(index_.items, {}, &SafetensorsIndex::Item::tensor);
    const auto twice = std::ranges::adjacent_find(index_.items, {}, &SafetensorsIndex::Item::tensor);
    if (twice != index_.items.end()) fail("weight_map gives tensor ", shown_name(twice->tensor), " twice");
  }

 private:
  static constexpr const char* kWeightMap = "weight_map";

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... rule) const {
    throw CheckpointError(text(shown_, ": ", rule...));
  }
  [[noreturn]] void not_a_file(const char* found) const {
    fail("weight_map gives tensor ", shown_name(key_), " to ", found, "; it must be the name of a file");
  }
  bool value(const char* found) const {
    if (in_map_) not_a_file(found);
    if (depth_ == 1 && key_ == kWeightMap) fail("weight_map must be an object, not ", found);
    return true;
  }
  bool deeper() {
    if (++depth_ > kMaxIndexDepth) fail("is nested deeper than ", kMaxIndexDepth);
    return true;
  }

  SafetensorsIndex& index_;
  const std::string& shown_;
  std::map<std::string, std::uint32_t> numbers_;
  std::string key_;
  int depth_ = 0;
  bool in_map_ = false, has_map_ = false;
};

}  // namespace

SafetensorsIndex parse_safetensors_index(std::string_view text_of_file, const std::string& shown) {
  const std::size_t first = text_of_file.find_first_not_of(" \t\r\n");
  require<CheckpointError>(first != std::string_view::npos && text_of_file[first] == '{', shown, ": must be an object");
  check_json_bounds(text_of_file, shown);
  SafetensorsIndex index;
  IndexReader reader(index, shown);
  json::sax_parse(text_of_file.begin(), text_of_file.end(), &reader);
  reader.finish();
  return index;
}

}  // namespace trireme::files
