#include "trireme/config/schema/lr_factor.hpp"

#include <charconv>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/name_pattern.hpp"

namespace trireme::config {

LrFactor parse_lr_factor(const std::string& text) {
  const std::size_t space = text.find_last_of(" \t");
  LrFactor out;
  const char *const begin = text.data() + space + 1, *const end = text.data() + text.size();
  const std::size_t last = space == std::string::npos ? space : text.find_last_not_of(" \t", space);  // of the pattern
  const bool has_both = last != std::string::npos && space + 1 < text.size();
  const bool fits = has_both && std::from_chars(begin, end, out.factor).ptr == end && std::isfinite(out.factor) &&
                    out.factor >= 0 && out.factor <= 1e6;
  require<ConfigError>(fits, "\"", text, "\" is not a pattern of names, a space and a factor from 0 to 1e6");
  out.pattern = text.substr(0, last + 1);
  static_cast<void>(NamePattern(out.pattern));
  return out;
}

double lr_factor_of(const std::string& parameter, const std::vector<std::string>& lr_factors) {
  for (const std::string& text : lr_factors)
    if (const LrFactor factor = parse_lr_factor(text); NamePattern(factor.pattern).matches(parameter))
      return factor.factor;
  return 1;
}

}  // namespace trireme::config
