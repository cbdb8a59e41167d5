#pragma once
// Properties that must be identical on every rank, as key-value pairs that can be compared and printed.
#include <map>
#include <string>

#include "trireme/config/schema/config.hpp"

namespace trireme {

using Fingerprint = std::map<std::string, std::string>;

/// A hash of the executable, the libtorch version and the number of threads.
Fingerprint fingerprint_of_process();

/// Every key of the config with its value.
Fingerprint fingerprint_of_config(Config config);

std::string to_text(const Fingerprint& fingerprint);
Fingerprint fingerprint_from_text(const std::string& words);

/// Each key that differs, with both values, one per line; empty if none does.
std::string differences(int rank_a, const Fingerprint& a, int rank_b, const Fingerprint& b);

}  // namespace trireme
