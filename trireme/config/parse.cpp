#include "trireme/config/parse.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/config/aliases.hpp"
#include "trireme/config/convert.hpp"
#include "trireme/config/fields.hpp"
#include "trireme/config/hf_config.hpp"
#include "trireme/config/nearest.hpp"
#include "trireme/config/presets.hpp"
#include "trireme/config/toml_file.hpp"

namespace trireme {
namespace {

constexpr std::size_t kMaxDataStages = 10'000;

/// Splits "data.3.sources.1.path" into 3 and 1; -1 where the path has no such index. One table [data] is data.0.
struct DataPath {
  std::string path;
  std::int64_t stage = -1;
  std::int64_t source = -1;
};

std::int64_t index_at(const std::string& path, std::size_t at) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(path.data() + at, path.data() + path.size(), value);
  return error == std::errc() && (end == path.data() + path.size() || *end == '.') ? value : -1;
}

std::optional<DataPath> data_path(std::string path) {
  if (path != "data" && !path.starts_with("data.")) return std::nullopt;
  if (path == "data" || index_at(path, 5) < 0) path.insert(std::min<std::size_t>(path.size(), 4), ".0");
  DataPath out{path, index_at(path, 5)};
  const std::size_t sources = path.find(".sources.");
  if (sources != std::string::npos) out.source = index_at(path, sources + 9);
  return out;
}

class Loader {
 public:
  Loader(std::string file, const std::string& file_text) : file_text_(file_text) { loaded_.file = std::move(file); }

  LoadedConfig load(const Settings& from_file, const Settings& from_flags) {
    use_model(from_file, from_flags);
    apply_all(from_file, Origin::Kind::file);
    apply_all(from_flags, Origin::Kind::flag);
    // Those that read other settings come last; a file's still yields to a flag.
    for (const Late& late : late_)
      if (!(late.kind == Origin::Kind::file && given_by_flag(late.match.key)))
        translate(late.match, late.setting, late.kind);
    return std::move(loaded_);
  }

 private:
  struct Late {
    AliasMatch match;
    Setting setting;
    Origin::Kind kind;
  };

  /// The preset, and the Hugging Face config over it; the file's and the flags' own keys follow later.
  void use_model(const Settings& from_file, const Settings& from_flags) {
    const auto last = [&](const char* path) -> const Setting* {
      const Setting* found = nullptr;
      for (const Settings* settings : {&from_file, &from_flags})
        for (const Setting& s : *settings)
          if (s.path == path) found = &s;
      return found;
    };
    if (const Setting* preset = last("model.preset")) use_preset(*preset);
    if (const Setting* hf = last("model.hf")) use_hf(*hf);
  }

  void use_preset(const Setting& s) {
    const std::string name = plain_text(s.value);
    const auto model = find_preset(name);
    if (!model && !name.empty()) {
      std::string known;
      for (const std::string& n : preset_names()) known += " " + n;
      const std::string near = nearest(name, preset_names());
      violation(s, text("unknown preset ", str(s.value)), near.empty() ? "" : text("did you mean \"", near, "\"?"),
                text("one of", known));
    }
    if (!model) return;
    loaded_.config.model = *model;
    Config standard;
    Config given = loaded_.config;
    const std::vector<Field> ours = fields(given), defaults = fields(standard);
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (ours[i].key.starts_with("model.") && toml_text(ours[i].value) != toml_text(defaults[i].value))
        loaded_.origins[ours[i].key] = {Origin::Kind::preset, {"", 0, 0, "preset " + name}};
  }

  void use_hf(const Setting& s) {
    try {
      apply_all(read_hf_config(plain_text(s.value)).settings, Origin::Kind::hf);
    } catch (const ConfigError& e) {
      violation(s, e.what(), "", "");
    }
  }

  void apply_all(const Settings& settings, Origin::Kind kind) {
    seen_.clear();
    for (const Setting& s : settings) apply(s, kind);
  }

  void apply(const Setting& s, Origin::Kind kind) {
    if (assign(s, kind)) return;
    const std::vector<AliasMatch> matches = find_aliases(s.path);
    for (const AliasMatch& match : matches) {
      if (match.alias->late) {
        late_.push_back({match, s, kind});
      } else {
        translate(match, s, kind);
      }
    }
    if (matches.empty()) unknown_key(s);
  }

  void translate(const AliasMatch& match, const Setting& s, Origin::Kind kind) {
    try {
      // A foreign name is a second name of one key, but two names may also give its two halves (the betas).
      const bool whole = !match.alias->late;
      for (const Setting& ours : match.alias->translate(s, match.key, loaded_.config)) {
        if (!whole) seen_.erase(ours.path);
        require(assign(ours, kind), "alias ", s.path, " gives the unknown key ", ours.path);
      }
    } catch (const ConfigError& e) {
      violation(s, e.what(), "", "");
    }
  }

  /// False when the path is not one of our keys.
  bool assign(const Setting& s, Origin::Kind kind) {
    std::string path = s.path;
    if (const auto data = data_path(path)) {
      if (!grow(*data, s)) return true;
      path = data->path;
    }
    const std::vector<Field> all = fields(loaded_.config);
    const auto field = std::ranges::find(all, path, &Field::key);
    if (field == all.end()) return is_section(path, s.value, all);

    const auto [first, fresh] = seen_.try_emplace(path, s.place);
    if (!fresh && kind == Origin::Kind::file) {
      violation(s, text(path, " is given twice"), text("first at ", str(first->second)), "keep one of the two");
      return true;
    }
    const std::string problem = assign_value(*field, s.value);
    if (!problem.empty()) {
      violation(s, text(path, " = ", str(s.value), " ", problem), "", "");
    } else {
      loaded_.origins[path] = {kind, s.place};
    }
    return true;
  }

  /// An empty table of a section that exists says nothing; an empty list of sources or stages neither.
  static bool is_section(const std::string& path, const Value& value, const std::vector<Field>& all) {
    const auto* list = std::get_if<Values>(&value.data);
    if (list != nullptr && list->empty() && (path.ends_with(".sources") || path.starts_with("data"))) return true;
    if (!std::holds_alternative<Nothing>(value.data)) return false;
    return path.starts_with("data.") ||
           std::ranges::any_of(all, [&](const Field& f) { return f.key.starts_with(path + "."); });
  }

  /// Makes room for a stage or source that comes right after those there are; false, with a violation, for one farther
  /// off.
  bool grow(const DataPath& path, const Setting& s) {
    const auto enlarge = [&](auto& list, std::int64_t index, const char* what) {
      const auto size = static_cast<std::int64_t>(list.size());
      if (index > size || static_cast<std::size_t>(index) >= kMaxDataStages) {
        violation(s, text(s.path, ": ", what, " ", index, " without ", what, " ", size), "",
                  "number them from 0 without gaps");
        return false;
      }
      if (index == size) list.emplace_back();
      return true;
    };
    auto& data = loaded_.config.data;
    if (path.stage >= 0 && !enlarge(data, path.stage, "data stage")) return false;
    return path.source < 0 || enlarge(data[static_cast<std::size_t>(path.stage)].sources, path.source, "source");
  }

  bool given_by_flag(const std::string& key) const {
    const auto it = loaded_.origins.find(key);
    return it != loaded_.origins.end() && it->second.kind == Origin::Kind::flag;
  }

  void unknown_key(const Setting& s) {
    std::vector<std::string> in_section, leaves, all_keys;
    const std::string section = section_of(s.path), leaf = leaf_of(s.path);
    for (const Field& f : fields(loaded_.config)) {
      all_keys.push_back(f.key);
      leaves.push_back(leaf_of(f.key));
      if (section_of(f.key) == section) in_section.push_back(leaf_of(f.key));
    }
    // First a word of the same section, then the whole key, then a word of any section.
    std::string near, key;
    if (near = nearest(leaf, in_section); !near.empty()) {
      key = all_keys[static_cast<std::size_t>(
          std::ranges::find_if(all_keys,
                               [&](const std::string& k) { return section_of(k) == section && leaf_of(k) == near; }) -
          all_keys.begin())];
    } else if (const auto same_leaf = std::ranges::find(leaves, leaf); same_leaf != leaves.end()) {
      near = key = all_keys[static_cast<std::size_t>(same_leaf - leaves.begin())];
    } else {
      near = key = nearest(s.path, all_keys);
    }

    Violation v;
    v.place = s.place;
    const bool has_section = s.path.find('.') != std::string::npos && !in_section.empty();
    const std::string where = has_section ? text("in [", section, "]; ") : "";
    const std::string guess = near.empty() ? "no key is like it" : text("did you mean \"", near, "\"?");
    const std::string others = key.empty() ? "" : other_names(key);
    v.detail = where + guess + (others.empty() ? "" : "   " + others);
    if (!s.place.file.empty() && s.place.file == loaded_.file) {
      const std::string line = line_of(file_text_, s.place.line);
      const std::size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
      v.excerpt = line.substr(indent).substr(0, 120);
      v.word_column = s.place.column - static_cast<int>(indent);
      v.word_length = static_cast<int>(leaf.size());
    }
    v.in_list = text("unknown key ", s.path);
    v.headline = v.excerpt.empty() ? v.in_list : "unknown key";
    loaded_.violations.push_back(std::move(v));
  }

  void violation(const Setting& s, std::string headline, std::string detail, std::string fix) {
    Violation v;
    v.headline = std::move(headline);
    v.place = s.place;
    v.detail = std::move(detail);
    v.fix = std::move(fix);
    loaded_.violations.push_back(std::move(v));
  }

  LoadedConfig loaded_;
  const std::string& file_text_;
  std::map<std::string, Place> seen_;  // keys set by the settings that are being applied
  std::vector<Late> late_;
};

}  // namespace

const char* name(Origin::Kind kind) {
  constexpr const char* kNames[] = {"default", "preset", "hf", "file", "flag", "derived"};
  return kNames[static_cast<std::size_t>(kind)];
}

Place LoadedConfig::place_of(const std::string& key) const {
  const auto it = origins.find(key);
  if (it == origins.end()) return {"", 0, 0, "default"};
  return it->second.place;
}

Settings take_flags(const std::vector<std::string>& words, std::vector<std::string>& rest) {
  Config config;
  const std::vector<Field> all = fields(config);
  Settings settings;
  for (std::size_t i = 0; i < words.size();) {
    const std::string& word = words[i++];
    const std::size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    const std::vector<AliasMatch> aliases = find_aliases(flag);  // Megatron's flags keep their dashes
    if (!flag.starts_with("--") || (flag.find('.') == std::string::npos && aliases.empty())) {
      rest.push_back(word);
      continue;
    }
    const std::string path = aliases.empty() ? flag.substr(2) : flag;
    const auto field = std::ranges::find(all, path, &Field::key);
    FlagWords takes = aliases.empty() ? FlagWords::one : words_of_flag(*aliases.front().alias);
    if (field != all.end() && std::holds_alternative<bool*>(field->value)) takes = FlagWords::none;

    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (equals == std::string::npos) {
      const auto is_value = [&] {
        if (i == words.size() || words[i].starts_with("--")) return false;
        return takes != FlagWords::none || words[i] == "true" || words[i] == "false";
      };
      for (bool more = true; more && is_value(); ++i) {
        value += (value.empty() ? "" : " ") + words[i];
        more = takes == FlagWords::many;
      }
    }
    settings.push_back({path, {RawText{value}}, {"", 0, 0, value.empty() ? flag : flag + " " + value}});
  }
  return settings;
}

Settings parse_flags(const std::vector<std::string>& words) {
  std::vector<std::string> rest;
  Settings settings = take_flags(words, rest);
  require<ConfigError>(rest.empty(), "'", rest.empty() ? "" : rest.front(),
                       "' is not a setting\n  fix: write --section.key VALUE, such as --training.steps 50");
  return settings;
}

LoadedConfig load_settings(const std::string& file, const std::string& file_text, const Settings& from_file,
                           const Settings& from_flags) {
  return Loader(file, file_text).load(from_file, from_flags);
}

LoadedConfig load_config_text(const std::string& file, const std::string& toml, const std::vector<std::string>& flags) {
  return load_settings(file, toml, parse_toml(file, toml), parse_flags(flags));
}

LoadedConfig load_config(const std::string& path, const Settings& flags) {
  const std::string toml = path.empty() ? "" : read_config_file(path);
  return load_settings(path, toml, parse_toml(path, toml), flags);
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& flags) {
  return load_config(path, parse_flags(flags));
}

}  // namespace trireme
