#include "trireme/config/read/parse.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/settings/nearest.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/config/translate/aliases.hpp"
#include "trireme/config/translate/hf_config.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::config {
namespace {

constexpr std::size_t kMaxDataTables = 1'000;  // stages and sources together
constexpr std::size_t kMaxViolations = 100;    // limits the length of the report
constexpr int kMaxExcerpt = 120;               // columns shown of a line

/// Splits "data.3.sources.1.path" into 3 and 1; -1 for a missing index. A single table [data] is data.0.
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
  Loader(std::string file, const std::string& file_text) : file_text_(file_text) {
    loaded_.file = std::move(file);
    for (Field& field : fields(loaded_.config)) by_key_.emplace(field.key, std::move(field));
  }

  LoadedConfig load(const Settings& from_file, const Settings& from_flags) {
    use_model(from_file, from_flags);
    apply_all(from_file, Origin::Kind::file);
    apply_all(from_flags, Origin::Kind::flag);
    // Aliases that read other settings come last; flags still take precedence over the file.
    std::ranges::stable_sort(late_, {}, [](const Late& late) { return late.match.alias->late; });
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

  /// Applies the preset, and the Hugging Face config over it; keys from the file and from flags are applied later.
  void use_model(const Settings& from_file, const Settings& from_flags) {
    const auto last = [&](const char* path) -> const Setting* {
      const Setting* found = nullptr;
      for (const Settings* settings : {&from_file, &from_flags})
        for (const Setting& s : *settings)
          if (s.path == path) found = &s;
      return found;
    };
    const auto is_given = [](const Setting* s) { return s != nullptr && !plain_text(s->value).empty(); };
    const Setting *preset = last("model.preset"), *name = last("model.name"), *flavor = last("model.flavor");
    has_flavor_ = is_given(name) && is_given(flavor);
    if (is_given(preset) && has_flavor_)
      violation(*flavor, "model.preset and model.flavor both name a model", "", "keep one of the two");
    if (is_given(preset))
      use_preset(*preset);
    else if (has_flavor_)
      use_torchtitan(*name, *flavor);
    const Setting *hf = last("model.hf"), *init = last("model.init");
    if (is_given(hf))
      use_hf(*hf);
    else if (is_given(init) && plain_text(init->value).starts_with("hf:") && !is_given(preset) && !has_flavor_)
      use_folder(*init, is_given(last("tokenizer.path")));
  }

  /// torchtitan's model.name and model.flavor together select a preset.
  void use_torchtitan(const Setting& name, const Setting& flavor) {
    const std::string preset = torchtitan_preset(plain_text(name.value), plain_text(flavor.value));
    if (preset.empty()) {
      loaded_.model_was_refused = true;
      violation(flavor, text("torchtitan's model ", brief(name.value), " ", brief(flavor.value), " is not a preset"),
                "", "set the sizes under [model]");
      return;
    }
    use_preset({"model.preset", {preset}, flavor.place});
    const auto kind = flavor.place.file.empty() ? Origin::Kind::flag : Origin::Kind::file;
    loaded_.origins["model.preset"] = {kind, flavor.place};
  }

  void use_preset(const Setting& s) {
    const std::string name = plain_text(s.value);
    const auto model = find_preset(name);
    if (!model) {
      loaded_.model_was_refused = true;
      std::string known;
      for (const std::string& n : preset_names()) known += " " + n;
      const std::string near = nearest(name, preset_names());
      violation(s, text("unknown preset ", brief(s.value)), near.empty() ? "" : text("did you mean \"", near, "\"?"),
                text("one of", known));
      return;
    }
    loaded_.config.model = *model;
    Config standard;
    Config given = loaded_.config;
    const std::vector<Field> ours = fields(given), defaults = fields(standard);
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (ours[i].key.starts_with("model.") && toml_text(ours[i].value) != toml_text(defaults[i].value))
        loaded_.origins[ours[i].key] = {Origin::Kind::preset, {"", 0, 0, "preset " + name}};
  }

  /// model.init = "hf:FOLDER" alone says everything about the model: its config.json, and its tokenizer if it has one.
  void use_folder(const Setting& init, bool has_tokenizer) {
    const std::string folder = plain_text(init.value).substr(3);
    const auto follow = [&](const char* key, std::string& value, const std::string& path) {
      value = path;
      loaded_.origins[key] = {Origin::Kind::hf, {"", 0, 0, text("model.init = \"hf:", folder, "\"")}};
    };
    // Without one the sizes are elsewhere; the weights are looked for when they are loaded.
    if (std::error_code none; !std::filesystem::exists(std::filesystem::path(folder) / "config.json", none)) return;
    use_hf({"model.hf", {folder}, init.place});
    follow("model.hf", loaded_.config.model.hf, folder);
    if (const auto tokenizer = data::tokenizer_file_in(folder); tokenizer && !has_tokenizer)
      follow("tokenizer.path", loaded_.config.tokenizer.path, tokenizer->string());
  }

  void use_hf(const Setting& s) {
    try {
      apply_all(read_hf_config(plain_text(s.value)).settings, Origin::Kind::hf);
    } catch (const ConfigError& e) {
      loaded_.model_was_refused = true;
      const std::string_view what = e.what();
      const bool is_unread = what.starts_with("cannot open") || what.ends_with("is not a regular file");
      violation(s, e.what(), "", is_unread ? "a folder with the config.json of a model, or that file" : "");
    }
  }

  void apply_all(const Settings& settings, Origin::Kind kind) {
    for (const Setting& s : settings) {
      if (loaded_.violations.size() >= kMaxViolations) {
        violation(s, text("more than ", kMaxViolations, " errors: the rest was not read"), "", "");
        break;
      }
      apply(s, kind);
    }
  }

  void apply(const Setting& s, Origin::Kind kind) {
    if (assign(s, kind)) return;
    if (has_flavor_ && (s.path == "model.name" || s.path == "model.flavor")) return;  // already handled by use_model
    const std::vector<AliasMatch> matches = find_aliases(s.path);
    for (const AliasMatch& match : matches) {
      if (match.alias->late > 0) {
        late_.push_back({match, s, kind});
      } else {
        translate(match, s, kind);
      }
    }
    if (matches.empty()) unknown_key(s);
  }

  void translate(const AliasMatch& match, const Setting& s, Origin::Kind kind) {
    try {
      // A foreign name is a second name of a key, but two names may each set half of a value (the betas).
      for (const Setting& ours : match.alias->translate(s, match.key, loaded_.config)) {
        if (refines(match.alias->translate)) seen_[kind].erase(ours.path);
        require(assign(ours, kind), "alias ", s.path, " gives the unknown key ", ours.path);
      }
    } catch (const NoCounterpart& e) {
      violation(s, e.what(), "", "");
      loaded_.violations.back().foreign = s.path;
    } catch (const ConfigError& e) {
      violation(s, e.what(), "", "");
    }
  }

  /// False if the path is not one of our keys.
  bool assign(const Setting& s, Origin::Kind kind) {
    std::string path = s.path;
    const auto data = data_path(path);
    if (data) {
      if (needs_room(*data, s) && !grow(*data, s)) return true;
      path = data->path;
    }
    const std::optional<Field> field = data ? find_data(*data) : find(path);
    if (!field) return says_nothing(path, s.value);

    const auto [first, fresh] = seen_[kind].try_emplace(path, s.place);
    if (!fresh && (kind == Origin::Kind::file || kind == Origin::Kind::flag)) {
      violation(s, text(path, " is given twice"), text("first at ", str(first->second)),
                text("keep this one or ", str(first->second)));
      return true;
    }
    const std::string problem = assign_value(*field, s.value);
    if (!problem.empty()) {
      violation(s, text(path, " = ", brief(s.value), " ", problem), "", "");
    } else {
      loaded_.origins[path] = {kind, s.place};
    }
    return true;
  }

  /// Whether it is an empty table of a known section, or an empty list of stages or sources.
  bool says_nothing(const std::string& path, const Value& value) const {
    const auto* list = std::get_if<Values>(&value.data);
    const bool empty = std::holds_alternative<Nothing>(value.data) || (list != nullptr && list->empty());
    if (!empty) return false;
    if (const auto data = data_path(path)) {
      const std::string stage = text("data.", data->stage), sources = stage + ".sources";
      return path == stage || path == sources || path == text(sources, ".", data->source);
    }
    const auto below = by_key_.lower_bound(path + ".");
    return list == nullptr && below != by_key_.end() && below->first.starts_with(path + ".");
  }

  std::optional<Field> find(const std::string& key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? std::nullopt : std::optional(it->second);
  }
  std::optional<Field> find_data(const DataPath& path) {
    auto& data = loaded_.config.data;
    if (path.stage < 0 || path.stage >= static_cast<std::int64_t>(data.size())) return std::nullopt;
    return find_data_field(data[static_cast<std::size_t>(path.stage)], path.source, path.path);
  }

  /// A stage or source is created by its first key, or by an empty table; unknown keys create none.
  static bool needs_room(const DataPath& path, const Setting& s) {
    if (s.path == "data") return std::holds_alternative<Nothing>(s.value.data);
    const auto* list = std::get_if<Values>(&s.value.data);
    const std::string stage = text("data.", path.stage), source = text(stage, ".sources.", path.source);
    if (path.path == stage || path.path == source) return std::holds_alternative<Nothing>(s.value.data);
    if (path.path == stage + ".sources") return list != nullptr && list->empty();
    DataStage any;
    any.sources.resize(1);
    const bool in_source = path.source >= 0 && path.path.starts_with(source + ".");
    return find_data_field(any, in_source ? 0 : -1, path.path).has_value();
  }

  /// Appends a stage or source if it is the next one; otherwise adds a violation and returns false.
  bool grow(const DataPath& path, const Setting& s) {
    std::size_t tables = 0;
    for (const DataStage& stage : loaded_.config.data) tables += 1 + stage.sources.size();
    const auto enlarge = [&](auto& list, std::int64_t index, const char* what) {
      const auto size = static_cast<std::int64_t>(list.size());
      if (index > size) {
        violation(s, text(shortened(s.path), ": ", what, " ", index, " without ", what, " ", size), "",
                  "number them from 0 without gaps");
      } else if (index == size && tables >= kMaxDataTables) {
        violation(s, text(shortened(s.path), ": more than ", kMaxDataTables, " data stages and sources"), "", "");
      } else if (index == size) {
        list.emplace_back();
      }
      return index < static_cast<std::int64_t>(list.size());
    };
    auto& data = loaded_.config.data;
    if (path.stage >= 0 && !enlarge(data, path.stage, "data stage")) return false;
    return path.source < 0 || enlarge(data[static_cast<std::size_t>(path.stage)].sources, path.source, "source");
  }

  bool given_by_flag(const std::string& key) const {
    const auto it = loaded_.origins.find(key);
    return it != loaded_.origins.end() && it->second.kind == Origin::Kind::flag;
  }

  /// "training.steps" of "training.0.steps".
  static std::string without_numbers(const std::string& path) {
    std::string out;
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      const std::string word = path.substr(begin, end - begin);
      if (word.find_first_not_of("0123456789") != std::string::npos) out += (out.empty() ? "" : ".") + word;
      begin = end + 1;
    }
    return out;
  }

  void unknown_key(const Setting& s) {
    if (without_numbers(s.path) != s.path && by_key_.contains(without_numbers(s.path))) {
      const std::string table = section_of(s.path);
      violation(s, text("[", table, "] is a list of tables here"), "",
                text("write [", table, "] once, in single brackets"));
      return;
    }
    if (const auto data = data_path(s.path); data && data->path == text("data.", data->stage, ".sources")) {
      violation(s, text("data.sources = ", brief(s.value), " is not a list of tables"), "",
                "sources = [ { path = \"tokens.ds\", weight = 1.0 } ]");
      return;
    }
    std::vector<std::string> in_section, leaves, all_keys;
    const std::string section = section_of(s.path), leaf = leaf_of(s.path);
    Config sample;  // with a stage, so that its keys are included
    sample.data.resize(1);
    sample.data[0].sources.resize(1);
    for (const Field& f : fields(sample)) {
      all_keys.push_back(without_numbers(f.key));
      leaves.push_back(leaf_of(f.key));
      if (section_of(f.key) == section) in_section.push_back(leaf_of(f.key));
    }
    if (section == "data") {  // a list of tables, whose keys are fields
      in_section.emplace_back("sources");
      all_keys.emplace_back("data.sources");
    }
    if (leaf == s.path && !in_section.empty()) {
      violation(s, text(section, " = ", brief(s.value), ", but [", section, "] is a table"), "",
                text("write its keys under [", section, "]"));
      return;
    }
    // First a similar word in the same section, then the same word in another; for an unknown section the full key.
    std::string near, key;
    if (near = nearest(leaf, in_section); !near.empty()) {
      key = *std::ranges::find_if(all_keys,
                                  [&](const std::string& k) { return section_of(k) == section && leaf_of(k) == near; });
      if (near == leaf) near = key;  // the name is right, the table is not
    } else if (const auto same_leaf = std::ranges::find(leaves, leaf); same_leaf != leaves.end()) {
      near = key = all_keys[static_cast<std::size_t>(same_leaf - leaves.begin())];
    } else if (in_section.empty()) {
      near = key = nearest(s.path, all_keys);
    }

    Violation v;
    v.place = s.place;
    const bool has_section = s.path.find('.') != std::string::npos && !in_section.empty();
    const std::string where = has_section ? text("in [", shortened(section), "]; ") : "";
    const std::string guess = near.empty() ? "no similar key" : text("did you mean \"", near, "\"?");
    const std::string others = key.empty() ? "" : other_names(key);
    v.detail = where + guess + (others.empty() ? "" : "   " + others);
    if (!s.place.file.empty() && s.place.file == loaded_.file) {
      const std::string line = line_of(file_text_, s.place.line);
      const std::size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
      v.word_column = s.place.column - static_cast<int>(indent);
      v.word_length = static_cast<int>(display_width(shortened(leaf)));
      // If the word is far to the right in a long line, the text before it is cut off.
      std::string shown = line.substr(indent);
      if (v.word_column + v.word_length > kMaxExcerpt) {
        shown = leaf;
        v.word_column = 1;
      }
      v.excerpt = shortened(shown, kMaxExcerpt);
    }
    v.in_list = text("unknown key ", shortened(s.path));
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
  std::map<std::string, Field> by_key_;  // fields of loaded_.config, except those of its data
  const std::string& file_text_;
  std::map<Origin::Kind, std::map<std::string, Place>> seen_;  // keys set so far, by kind of origin
  std::vector<Late> late_;
  bool has_flavor_ = false;  // torchtitan's model.name and model.flavor
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

LoadedConfig load_settings(const std::string& file, const std::string& file_text, const Settings& from_file,
                           const Settings& from_flags) {
  close_families();
  return Loader(file, file_text).load(from_file, from_flags);
}

LoadedConfig load_config_text(const std::string& file, const std::string& toml, const std::vector<std::string>& flags) {
  return load_settings(file, toml, parse_toml(file, toml), parse_flags(flags));
}

LoadedConfig load_config(const std::string& path, const Settings& flags) {
  const std::string toml = path.empty() ? "" : read_config_file(path);
  return load_settings(path, toml, parse_toml(path, toml), flags);
}

}  // namespace trireme::config
