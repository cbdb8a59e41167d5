#pragma once
// What the translations of translations.hpp are made of. Internal to foreign/.
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config::translating {

using Words = std::map<std::string, Value>;

std::string lower(std::string word);
/// A string as it is, anything else in TOML syntax.
std::string word_of(const Value& value);
std::optional<double> number_of(const Value& value);
double number_or_throw(const Setting& s);
std::int64_t whole_or_throw(const Setting& s);
/// true, false, a flag without a value, or "true"/"1".
bool truth_of(const Setting& s);
Settings one(const Setting& s, const std::string& key, Value value);
/// Translates a word by the table; NoCounterpart lists the words that have a counterpart.
Settings by_table(const Setting& s, const std::string& key, const Words& table);

}  // namespace trireme::config::translating
