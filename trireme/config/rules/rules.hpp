#pragma once
// The context of the validation rules: the config and the list of violations. Internal: others use validate.hpp.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"

namespace trireme::config {

/// The place of the first of these keys that a flag sets, else of the first.
Place changed_place(const LoadedConfig& loaded, const std::vector<std::string>& keys);

class Rules {
 public:
  Rules(const LoadedConfig& of, const Started& how, std::vector<std::string>& warnings)
      : loaded(of), config(of.config), started(how), warnings_(warnings), violations_(of.violations) {}

  const LoadedConfig& loaded;
  const Config& config;
  const Started& started;

  void violation(const std::string& key, std::string headline, std::string detail = "", std::string fix = "") {
    violation_at(loaded.place_of(key), std::move(headline), std::move(detail), std::move(fix));
  }
  /// Of a rule about several keys: placed at the one that a flag sets, because that is the last change; else the first.
  void violation_of(const std::vector<std::string>& keys, std::string headline, std::string detail = "",
                    std::string fix = "") {
    violation_at(changed_place(loaded, keys), std::move(headline), std::move(detail), std::move(fix));
  }
  void violation_at(Place place, std::string headline, std::string detail = "", std::string fix = "") {
    Violation v;
    v.headline = std::move(headline);
    v.place = std::move(place);
    v.detail = std::move(detail);
    v.fix = std::move(fix);
    add(std::move(v));
  }
  void add(Violation v) { violations_.push_back(std::move(v)); }

  template <class... Parts>
  void warn(const Parts&... parts) {
    warnings_.push_back(text(parts...));
  }

  /// Number of replicas; an unset dp counts as 1.
  std::int64_t dp() const { return std::max<std::int64_t>(1, config.parallelism.dp); }
  bool is_derived(const std::string& key) const {
    const auto it = loaded.origins.find(key);
    return it != loaded.origins.end() && it->second.kind == Origin::Kind::derived;
  }
  /// The place of the first key of a table ("data.0"), for errors about missing keys; else the file.
  Place place_of_table(const std::string& table) const;

  bool any() const { return !violations_.empty(); }
  std::vector<Violation> take() && { return std::move(violations_); }

 private:
  std::vector<std::string>& warnings_;
  std::vector<Violation> violations_;
};

/// The place of the first of these keys that a flag sets, else of the first that was given, by line.
Place first_given(const LoadedConfig& loaded, const std::vector<std::string>& keys);

/// "{1, 2, 4}": the divisors of n accepted by `allowed`, ascending; at most 12.
std::string divisors(std::int64_t n, bool (*allowed)(std::int64_t divisor, std::int64_t other), std::int64_t other = 1);
inline bool any_divisor(std::int64_t, std::int64_t) { return true; }
inline bool one_divides_the_other(std::int64_t a, std::int64_t b) { return a % b == 0 || b % a == 0; }

// The groups of rules, in model_rules.cpp, layout_rules.cpp, batch_rules.cpp and precision_rules.cpp.

/// False if sizes are missing, so that rules about them cannot be checked.
bool check_model(Rules& rules);
/// Divisibility of heads, experts and layers by the parallel degrees. Needs sizes.
void check_model_over_ranks(Rules& rules);
/// The number of ranks (error E1).
void check_ranks(Rules& rules);
void check_layout(Rules& rules);
void check_batch(Rules& rules);
void check_sequence(Rules& rules);
void check_precision(Rules& rules);

}  // namespace trireme::config
