#pragma once
// A setting from a file or flag, before it is assigned to a field: dotted path, value, and source location.
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace trireme::config {

/// The location of a setting. `file` is empty for flags and for values that were not written by the user.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
  std::string note;  // "--parallelism.tp 8", "preset gpt2": if there is no file
};
/// "run.toml:33", or the note.
std::string str(const Place& place);

struct Value;
using Values = std::vector<Value>;
/// Text from a flag, whose type depends on its field.
struct RawText {
  std::string text;
  bool operator==(const RawText&) const = default;
};
/// An empty table, or null: only its path is known.
struct Nothing {
  bool operator==(const Nothing&) const = default;
};
struct Value {
  std::variant<Nothing, std::string, std::int64_t, double, bool, Values, RawText> data;
  bool operator==(const Value&) const = default;
};
/// In TOML syntax.
std::string str(const Value& value);
/// The same for messages, shortened.
std::string brief(const Value& value);
/// For messages: the first columns of a text, with "…" if it was longer; control characters are escaped, so that a key
/// or a flag cannot break lines or change the terminal's colours.
std::string shortened(const std::string& text, std::size_t columns = 80);
/// "text", "a whole number", ...: for messages.
std::string kind_of(const Value& value);

struct Setting {
  std::string path;  // "parallelism.tp", "data.0.sources.1.weight"
  Value value;
  Place place;
};
using Settings = std::vector<Setting>;

/// Adds a setting read from a file. ConfigError if there are more than any valid config has.
void add_setting(const std::string& file, Settings& settings, Setting setting);

}  // namespace trireme::config
