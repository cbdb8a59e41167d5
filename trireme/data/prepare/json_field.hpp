#pragma once
// The text under one key of a line of JSON.
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme::data {

/// A line or a document that is not what it should be. Its place is added by who knows it.
struct BadDocument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Sets `out` to the string under `key` of the object that `line` is; where a key stands twice the last one counts. BadDocument when
/// the line is not JSON (which is UTF-8), not an object, or has no such string.
void read_json_field(std::string_view line, std::string_view key, std::string& out);

namespace detail {

// Note [Two readers of JSON]: the library reads some 60 MB a second, about as much as a core tokenizes. So a scanner looks first,
// which knows the JSON that programs write and says "not sure" to the rest: then the library decides, and finds the words for what
// is wrong. Where the scanner is sure, both have the same result (json_field_test.cpp).

/// True: `out` is what read_json_field sets. False: not sure, and `out` may be anything.
bool scan_json_field(std::string_view line, std::string_view key, std::string& out);
void parse_json_field(std::string_view line, std::string_view key, std::string& out);

}  // namespace detail
}  // namespace trireme::data
