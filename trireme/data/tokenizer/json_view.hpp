#pragma once
// Checked access to untrusted JSON: every accessor throws an error with the file and the JSON path.
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {

class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  /// Parses a whole file, within the limits of json_bounds.hpp. DataError if it is not JSON or not an object.
  static nlohmann::json parsed(std::string_view json, const std::string& name);

  const nlohmann::json& value() const { return *value_; }
  bool has(const char* key) const { return value_->is_object() && value_->contains(key) && !(*value_)[key].is_null(); }
  /// The value under `key`; null if there is none.
  JsonView at(const char* key) const {
    static const nlohmann::json kNull;
    return {has(key) ? (*value_)[key] : kNull, text(place_, '.', key)};
  }
  JsonView at(std::size_t i) const { return {(*value_)[i], text(place_, '[', i, ']')}; }
  bool is_null() const { return value_->is_null(); }

  /// The size of a list; its elements are at(i).
  std::size_t list_size() const {
    if (!value_->is_array()) fail("is not a list");
    return value_->size();
  }
  const std::string& string() const {
    if (!value_->is_string()) fail("is not a text");
    return value_->get_ref<const std::string&>();
  }
  std::uint32_t number() const {
    if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() >= 0xFFFFFFFF)
      fail("is not a number from 0 to 2^32 - 2");
    return value_->get<std::uint32_t>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!(*value_)[key].is_boolean()) at(key).fail("is neither true nor false");
    return (*value_)[key].get<bool>();
  }
  std::string string_or(const char* key, const std::string& otherwise) const {
    return has(key) ? at(key).string() : otherwise;
  }

  /// Throws if there is any other key: options in a file must not be ignored silently.
  void only(std::initializer_list<std::string_view> keys) const;
  [[noreturn]] void fail(std::string_view what) const { throw DataError(text(place_, ' ', what)); }
  /// For features of the format that are not supported.
  [[noreturn]] void not_done(std::string_view what) const {
    throw DataError(text(place_, ": ", what,
                         " is not supported\n  fix: another tokenizer, or the text tokenized by another program"));
  }
  const std::string& place() const { return place_; }

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace trireme::data
