#include "trireme/config/settings/yaml_file.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/config/settings/toml_file.hpp"

namespace trireme::config {
namespace {

constexpr std::size_t kMaxYamlDepth = 32;

struct Node {
  enum class Kind { scalar, map, list } kind = Kind::scalar;
  Value value{Nothing{}};
  struct Member;
  std::vector<Member> members;  // of a map; for a list, without names
  int line = 0;
};
struct Node::Member {
  std::string name;
  Node node;
};

template <class T>
bool is_number(const std::string& word, T& value) {
  const char* end = word.data() + word.size();
  const char* begin = word.data() + (word.starts_with('+') ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end && begin != end;
}

Value typed(const std::string& word) {
  if (word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL") return {Nothing{}};
  if (word == "true" || word == "True" || word == "TRUE") return {true};
  if (word == "false" || word == "False" || word == "FALSE") return {false};
  if (std::int64_t value = 0; is_number(word, value)) return {value};
  const bool has_digit = word.find_first_of("0123456789") != std::string::npos;  // "inf" and "nan" are strings
  if (double value = 0; has_digit && is_number(word, value)) return {value};
  return {word};
}

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// YAML allows no control characters but tabs and ends of lines. yaml-cpp takes NULs, and stops at 0x04 as if the file
/// ended there.
void refuse_control_characters(const std::string& file, std::string_view yaml) {
  int line = 1;
  for (const char c : yaml) {
    if (c == '\n') ++line;
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
    require<ConfigError>(!is_control, "this is not YAML: the control character ", static_cast<int>(byte), "\n  --> ",
                         file, ":", line);
  }
}

/// Whether text that begins with a quote has its other one. If not, yaml-cpp may take the rest of the file as the word.
bool is_closed(std::string_view quoted) {
  const char quote = quoted.front();
  for (std::size_t i = 1; i < quoted.size(); ++i) {
    const bool is_pair = quote == '"' ? quoted[i] == '\\' : quoted.substr(i).starts_with("''");
    if (is_pair)
      ++i;  // an escaped character, or a quote that is part of the word
    else if (quoted[i] == quote)
      return true;
  }
  return false;
}

/// Builds the tree from the parser's events, which are the only way to see anchors and tags.
class Builder : public YAML::EventHandler {
 public:
  Builder(const std::string& file, std::string_view yaml) : file_(file), yaml_(yaml) {}
  Node take() && { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse(mark, "", anchor);
    if (expects_key()) fail(mark, "a key must be one word, not null");
    add({Node::Kind::scalar, {Nothing{}}, {}, mark.line + 1});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { fail(mark, "aliases (*name) are not supported"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse(mark, tag, anchor);
    const std::string_view written = yaml_.substr(std::min(static_cast<std::size_t>(mark.pos), yaml_.size()));
    if (tag == "!" && (written.starts_with('"') || written.starts_with('\'')) && !is_closed(written))
      fail(mark, text("this is not YAML: the quote ", written.front(), " is not closed"));
    if (expects_key()) {
      if (!keys_.back().insert(value).second) fail(mark, text("the key '", shortened(value), "' is given twice"));
      open_.back()->members.push_back({value, Node{}});
      has_key_.back() = true;
    } else {
      add({Node::Kind::scalar, tag == "!" ? Value{value} : typed(value), {}, mark.line + 1});
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(mark, tag, anchor, Node::Kind::list);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(mark, tag, anchor, Node::Kind::map);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw ConfigError(text(what, "\n  --> ", file_, ":", mark.line + 1));
  }
  void refuse(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) fail(mark, "anchors (&name) are not supported\n  fix: write the value out");
    if (!tag.empty() && tag != "?" && tag != "!") fail(mark, text("the tag ", shortened(tag), " is not supported"));
  }
  bool expects_key() const { return !open_.empty() && open_.back()->kind == Node::Kind::map && !has_key_.back(); }

  /// Where the next node goes: the value of the last key, the next list element, or the root.
  Node* place_for(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return &root_;
    }
    Node& parent = *open_.back();
    if (parent.kind == Node::Kind::list) parent.members.push_back({"", Node{}});
    if (parent.kind == Node::Kind::map) has_key_.back() = false;
    parent.members.back().node = std::move(node);
    return &parent.members.back().node;
  }
  void add(Node node) { place_for(std::move(node)); }
  void start(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    refuse(mark, tag, anchor);
    if (expects_key()) fail(mark, "a key must be one word");
    if (open_.size() >= kMaxYamlDepth) fail(mark, text("nested deeper than ", kMaxYamlDepth));
    open_.push_back(place_for({kind, {Nothing{}}, {}, mark.line + 1}));
    has_key_.push_back(false);
    keys_.emplace_back();
  }
  void end() {
    open_.pop_back();
    has_key_.pop_back();
    keys_.pop_back();
  }

  std::string file_;
  std::string_view yaml_;
  Node root_;
  // Unfinished maps and lists, from the root down. Only the last one grows, so the pointers stay valid.
  std::vector<Node*> open_;
  std::vector<bool> has_key_;
  std::vector<std::set<std::string>> keys_;
};

class YamlFlattener {
 public:
  explicit YamlFlattener(const std::string& file) : file_(file) {}
  void map(const Node& map, const std::string& path) {
    for (const auto& [key, node] : map.members) this->node(node, path.empty() ? key : path + "." + key);
  }
  Settings take() && { return std::move(settings_); }

 private:
  void node(const Node& node, const std::string& path) {
    const auto is_map = [](const auto& member) { return member.node.kind == Node::Kind::map; };
    if (node.kind == Node::Kind::map) {
      map(node, path);
    } else if (node.kind == Node::Kind::list && !node.members.empty() && std::ranges::all_of(node.members, is_map)) {
      for (std::size_t i = 0; i < node.members.size(); ++i) map(node.members[i].node, text(path, ".", i));
    } else {
      add_setting(file_, settings_, {path, value(node), {file_, node.line, 0, ""}});
    }
  }
  static Value value(const Node& node) {
    if (node.kind == Node::Kind::scalar) return node.value;
    Values values;
    for (const Node::Member& member : node.members) values.push_back(value(member.node));
    return {std::move(values)};
  }

  std::string file_;
  Settings settings_;
};

}  // namespace

Settings parse_yaml(const std::string& file, const std::string& yaml) {
  require<ConfigError>(yaml.size() <= kMaxConfigBytes, file, " is larger than ", kMaxConfigBytes,
                       " bytes: this is not a config");
  require<ConfigError>(valid_utf8(yaml) == yaml, file, " is not UTF-8");
  std::string_view body = yaml;
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  refuse_control_characters(file, body);
  std::istringstream in{std::string(body)};
  Builder builder(file, body), second(file, body);
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(builder);
    require<ConfigError>(!parser.HandleNextDocument(second), file, " holds more than one YAML document (---)");
  } catch (const YAML::Exception& e) {
    throw ConfigError(text("this is not YAML: ", shortened(e.msg, 200), "\n  --> ", file, ":", e.mark.line + 1));
  }
  const Node root = std::move(builder).take();
  require<ConfigError>(root.kind == Node::Kind::map, file, " is not a YAML map");
  YamlFlattener flat(file);
  flat.map(root, "");
  return std::move(flat).take();
}

}  // namespace trireme::config
