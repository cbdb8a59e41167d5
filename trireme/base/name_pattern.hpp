#pragma once
// Patterns for parameter names, as in optimizer.no_decay.
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace trireme {

/// "norm": a part of the name; "layers.*.bias": a glob for the whole name, if it holds * ? or [; "re:REGEX": found
/// anywhere in the name (ECMAScript's syntax).
class NamePattern {
 public:
  /// ConfigError for an invalid regular expression.
  explicit NamePattern(const std::string& pattern);
  bool matches(const std::string& name) const;

 private:
  std::string pattern_;
  std::shared_ptr<const std::regex> regex_;  // only of re:
};

/// ConfigError for one that is none, or is longer than 1,000 characters.
std::regex checked_regex(const std::string& expression);

std::vector<NamePattern> name_patterns(const std::vector<std::string>& patterns);
bool matches_any(const std::vector<NamePattern>& patterns, const std::string& name);

/// The names that share the longest part or the most similar word with the pattern, at most three, for messages. Names
/// that differ in a number alone are one: layers.*.mlp.down.weight.
std::vector<std::string> nearest_names(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace trireme
