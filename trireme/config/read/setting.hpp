#pragma once
// One thing that somebody set, in whatever file or flag, before it becomes a field: a dotted path, a value, a place.
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace trireme::config {

/// Where a setting stands. `file` is empty for flags and for values that nobody wrote.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
  std::string note;  // "--parallelism.tp 8", "preset gpt2": where there is no file
};
/// "run.toml:33", or the note.
std::string str(const Place& place);

struct Value;
using Values = std::vector<Value>;
/// Text from a flag, whose type only its field knows.
struct RawText {
  std::string text;
  bool operator==(const RawText&) const = default;
};
/// An empty table, or null: only its path says anything.
struct Nothing {
  bool operator==(const Nothing&) const = default;
};
struct Value {
  std::variant<Nothing, std::string, std::int64_t, double, bool, Values, RawText> data;
  bool operator==(const Value&) const = default;
};
/// As TOML writes it.
std::string str(const Value& value);
/// The same for messages, shortened.
std::string brief(const Value& value);
/// For messages: the first columns of a text, "…" where more was; control characters become visible, so that a key or
/// a flag cannot break a line or colour the terminal.
std::string shortened(const std::string& text, std::size_t columns = 80);
/// "text", "a whole number", ...: for messages.
std::string kind_of(const Value& value);

struct Setting {
  std::string path;  // "parallelism.tp", "data.0.sources.1.weight"
  Value value;
  Place place;
};
using Settings = std::vector<Setting>;

/// Adds one that was read from a file. Throws ConfigError for more than any config has.
void add_setting(const std::string& file, Settings& settings, Setting setting);

}  // namespace trireme::config
