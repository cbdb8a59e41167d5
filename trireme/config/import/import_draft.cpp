#include "trireme/config/import/import_draft.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::config {

const Setting* ImportDraft::find(const std::string& path) const {
  const auto found = std::ranges::find(taken, path, &Setting::path);
  return found == taken.end() ? nullptr : &*found;
}

void ImportDraft::note(const Setting& s, const std::string& why, bool harmless_note) {
  (harmless_note ? harmless : notes)
      .push_back(text(shortened(s.path), str(s.value).empty() ? "" : " = " + brief(s.value),
                      s.place.line > 0 ? text(" (line ", s.place.line, ")") : "", ": ", why));
}

bool ImportDraft::forget_note(const std::string& beginning) {
  const auto is_it = [&](const std::string& n) {
    return n.starts_with(beginning) && n.substr(beginning.size()).starts_with(" (line");
  };
  return std::erase_if(notes, is_it) + std::erase_if(harmless, is_it) > 0;
}

}  // namespace trireme::config
