#include "trireme/config/schema/registered_families.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <list>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {
namespace {

struct Registered {
  std::string name;
  FamilyInfo info;  // refers to `name`
  OwnParametersOf parameters;
};

/// A list: rows keep their addresses. Not a plain variable: programs may register before main().
std::list<Registered>& registered_rows() {
  static std::list<Registered> rows;
  return rows;
}

std::atomic<bool> families_are_closed = false;

const Registered* find_row(std::string_view name) {
  const auto found = std::ranges::find(registered_rows(), name, &Registered::name);
  return found == registered_rows().end() ? nullptr : &*found;
}

bool is_usable_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

void add_family(const std::string& name, const std::string& like, OwnParametersOf parameters) {
  require<ConfigError>(is_usable_name(name), "register_family: the name \"", shortened(name),
                       "\": must be letters, digits, _, - and .");
  const auto of_name = [](const std::string& wanted) {
    return std::ranges::find_if(families(), [&](const FamilyInfo& family) { return family.name == wanted; });
  };
  require<ConfigError>(of_name(name) == families().end(), "register_family: ", name,
                       " is a built-in family\n  fix: another name; like = \"", name, "\" to start from its defaults");
  require<ConfigError>(find_row(name) == nullptr, "register_family: ", name, " is registered already",
                       "\n  fix: register each family once, at the beginning of main()");
  const auto row = of_name(like);
  require<ConfigError>(row != families().end(), "register_family: ", name, ": like = \"", shortened(like),
                       "\" is not a built-in family\n  fix: one of ", all_family_names());
  require<ConfigError>(!families_are_closed, "register_family: ", name, " is registered after a config has been read",
                       "\n  fix: register families first, at the beginning of main()");
  Registered& added = registered_rows().emplace_back(Registered{name, *row, std::move(parameters)});
  added.info.name = added.name;
  added.info.like = row->name;
}

void close_families() { families_are_closed = true; }

const FamilyInfo* find_registered_family(std::string_view name) {
  const Registered* row = find_row(name);
  return row == nullptr ? nullptr : &row->info;
}

std::vector<std::string> registered_family_names() {
  std::vector<std::string> names;
  for (const Registered& row : registered_rows()) names.push_back(row.name);
  return names;
}

OwnParameters own_parameters(const ModelConfig& model) {
  const Registered* row = find_row(model.model_type);
  require(row != nullptr, "own_parameters: ", model.model_type, " is not registered");
  return row->parameters(model);
}

void require_built_in(const ModelConfig& model, const std::string& what) {
  require<ConfigError>(find_row(model.model_type) == nullptr, what, " of the family ", model.model_type,
                       ": this program has registered it, and other formats have no names for its parameters",
                       "\n  fix: checkpoints of our own format, which load on any layout");
}

}  // namespace trireme::config
