#include "trireme/data/tokenizer/json_view.hpp"

#include <algorithm>

#include "trireme/files/json_bounds.hpp"

namespace trireme::data {

nlohmann::json JsonView::parsed(std::string_view json, const std::string& name) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 26;  // the largest known vocabularies take 35 MB
  const std::string beyond = files::json_bounds_fault(json, kMaxBytes, 64);
  require<DataError>(beyond.empty(), name, ": ", beyond);
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(json);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(text(name, " is not JSON: ", files::json_fault(error.what())));
  }
  require<DataError>(value.is_object(), name, " is JSON, but not an object");
  return value;
}

void JsonView::only(std::initializer_list<std::string_view> keys) const {
  for (const auto& item : value_->items())
    if (std::ranges::find(keys, item.key()) == keys.end() && !item.value().is_null())
      not_done(text("the key ", files::shown_name(item.key())));
}

}  // namespace trireme::data
