// The config of each run, with what differs from the defaults and between runs.
#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

/// By key, in TOML syntax.
std::map<std::string, std::string> values_of(Config config) {
  std::map<std::string, std::string> out;
  for (const config::Field& field : config::fields(config)) out[field.key] = config::toml_text(field.value);
  return out;
}

}  // namespace

std::string config_html(const Runs& runs) {
  std::vector<std::map<std::string, std::string>> values;
  std::vector<std::string> keys;  // in the order of the config
  const std::map<std::string, std::string> defaults = values_of({});
  std::string missing;
  for (const RunFiles& run : runs) {
    values.emplace_back();
    if (!run.config) {
      missing += missing_html(text("No config of ", run.name, "."), "config.toml is missing or cannot be used.");
      continue;
    }
    Config config = run.config->config;
    values.back() = values_of(config);
    for (const config::Field& field : config::fields(config))
      if (std::ranges::find(keys, field.key) == keys.end()) keys.push_back(field.key);
  }
  HtmlTable changed{.header = {"key"}, .rows = {}, .right = {}, .css = "words"}, same = changed;
  for (const RunFiles& run : runs) changed.header.push_back(xml_escaped(runs.size() > 1 ? run.name : "value"));
  changed.header.emplace_back("default");
  same.header = changed.header;
  for (const std::string& key : keys) {
    const auto standard = defaults.find(key);
    const std::string usual = standard == defaults.end() ? "" : standard->second;
    std::vector<std::string> row = {text("<code>", xml_escaped(key), "</code>")};
    bool differs = false;
    std::set<std::string> distinct;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto found = values[i].find(key);
      const std::string value = found == values[i].end() ? "" : found->second;
      differs |= value != usual && found != values[i].end();
      distinct.insert(value);
      const bool derived = runs[i].config && !runs[i].config->is_given(key);
      row.push_back(
          text("<code>", xml_escaped(value), "</code>", value != usual && derived ? " <small>derived</small>" : ""));
    }
    if (distinct.size() > 1) row.front() = text("<mark>", row.front(), "</mark>");
    row.push_back(text("<code>", xml_escaped(usual), "</code>"));
    (differs ? changed : same).rows.push_back(std::move(row));
  }
  if (keys.empty()) return missing;
  return text(missing, "<h4>Different from the defaults</h4>", table_html(changed), "<details><summary>",
              same.rows.size(), " keys with their default values</summary>", table_html(same), "</details>",
              runs.size() > 1 ? "<p class=\"note\">Marked: keys in which the runs differ.</p>" : "");
}

}  // namespace trireme::report
