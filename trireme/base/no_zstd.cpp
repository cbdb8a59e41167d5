// A build without libzstd: zstd.cpp otherwise.
#include "trireme/base/error.hpp"
#include "trireme/base/zstd.hpp"

namespace trireme {

bool has_zstd() { return false; }

std::unique_ptr<Decompressor> unzstd(const std::string& shown) {
  throw DataError(text(shown, ": is compressed with zstd, and this trireme was built without libzstd",
                       "\n  fix: decompress it first (zstd -d), or install the package libzstd-dev and build again"));
}

}  // namespace trireme
