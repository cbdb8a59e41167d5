#pragma once
// A file of another trainer on its way to ours: the settings that were taken, and what there is to say about the rest.
#include <set>
#include <string>
#include <vector>

#include "trireme/config/schema/setting.hpp"
#include "trireme/config/translate/aliases.hpp"

namespace trireme::config {

struct ImportDraft {
  Framework from;
  const std::string& file;
  Settings taken{};                              // with that trainer's keys, or with ours
  std::vector<std::string> notes{}, harmless{};  // as in Imported
  std::set<std::string> open{};                  // our keys whose value only the user's code knows

  /// The setting that was taken from this key; nullptr if there is none.
  const Setting* find(const std::string& path) const;
  /// Adds a setting that no line of the file states.
  void add(const std::string& key, Value value) { taken.push_back({key, std::move(value), {file, 0, 0, ""}}); }

  void note(const Setting& s, const std::string& why, bool harmless_note = false);
  /// Removes a note about this key, or about this key with this value: "--swiglu", "--normalization = RMSNorm". Returns
  /// whether there was one.
  bool forget_note(const std::string& beginning);
};

}  // namespace trireme::config
