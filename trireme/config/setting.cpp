#include "trireme/config/setting.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/fields.hpp"

namespace trireme {
namespace {

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

}  // namespace

std::string str(const Place& place) {
  if (place.file.empty()) return place.note;
  return place.line > 0 ? text(place.file, ":", place.line) : place.file;
}

std::string str(const Value& value) {
  return std::visit(Match{
                        [](const Nothing&) { return std::string(); },
                        [](std::string v) { return toml_text(&v); },
                        [](std::int64_t v) { return toml_text(&v); },
                        [](double v) { return toml_text(&v); },
                        [](bool v) { return toml_text(&v); },
                        [](const RawText& v) { return v.text; },
                        [](const Values& v) {
                          std::string out = "[";
                          for (const Value& element : v) out += (out.size() > 1 ? ", " : "") + str(element);
                          return out + "]";
                        },
                    },
                    value.data);
}

std::string kind_of(const Value& value) {
  constexpr const char* kKinds[] = {"nothing", "text", "a whole number", "a number", "true or false", "a list", "text"};
  return kKinds[value.data.index()];
}

}  // namespace trireme
