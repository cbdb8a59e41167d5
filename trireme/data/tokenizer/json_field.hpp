#pragma once
// Extracts the string value of one key from a line of JSON.
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme::data {

/// An invalid line or document. The caller adds its location.
struct BadDocument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Sets `out` to the string under `key` of the JSON object `line`; for a duplicate key the last one counts. BadDocument
/// if the line is not JSON (which is UTF-8), not an object, or has no such string.
void read_json_field(std::string_view line, std::string_view key, std::string& out);

namespace detail {

// Note [Two readers of JSON]: the library parses about 60 MB per second, roughly what a core tokenizes. So a fast
// scanner comes first, which handles the JSON that programs typically write and returns "not sure" otherwise: then the
// library decides, and produces the error message. If the scanner is sure, both have the same result
// (json_field_test.cpp).

/// True: `out` is the result of read_json_field. False: not sure, and `out` is unspecified.
bool scan_json_field(std::string_view line, std::string_view key, std::string& out);
void parse_json_field(std::string_view line, std::string_view key, std::string& out);

}  // namespace detail
}  // namespace trireme::data
