#pragma once
// zstd: streaming decompression of files. Built without libzstd, the refusal names the package.
#include <memory>
#include <string>

#include "trireme/base/decompressor.hpp"

namespace trireme {

/// Whether this build can decompress zstd.
bool has_zstd();

/// Concatenated frames are one text, as `cat a.zst b.zst` makes them. `shown`: the file name for error messages.
/// DataError if this build cannot.
std::unique_ptr<Decompressor> unzstd(const std::string& shown);

}  // namespace trireme
