#pragma once
// A config that can be trained: everything that can be checked before anything starts is.
#include <string>
#include <vector>

#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"

namespace trireme {

/// The config for this number of ranks, with derived values; reports all errors at once. Adds to `warnings`. Opens the
/// token files: DataError, CheckpointError.
config::LoadedConfig checked_config(const std::string& file, const std::string& toml, const config::Settings& overrides,
                                    const config::Started& started, std::vector<std::string>& warnings);

/// The same of the contents of a file; `ranks` as below.
Config training_config(const std::string& file, const std::string& toml, const config::Settings& overrides, int ranks,
                       std::vector<std::string>* warnings = nullptr);

/// Of a file and flags, as `trireme train FILE --section.key VALUE -n RANKS` would read them. `ranks` = 0: as many as
/// the layout needs; dp = -1 is 1 then.
Config read_training_config(const std::string& file, const std::vector<std::string>& flags = {}, int ranks = 0);

}  // namespace trireme
