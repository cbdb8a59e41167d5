#include "trireme/report/trace_text.hpp"

#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/gzip.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::report {
namespace {

constexpr std::uint64_t kMaxTraceBytes = 256 << 20;  // compressed

}  // namespace

std::string trace_text(const std::filesystem::path& path, std::size_t most) {
  const std::string packed = files::whole_file(path, kMaxTraceBytes, "a trace");
  if (path.extension() != ".gz") return packed;
  Gunzip gunzip(path.string());
  std::string out;
  std::vector<char> buffer(1 << 16);
  std::string_view in = packed;
  for (std::size_t taken = 1; taken > 0 || !in.empty();) {
    taken = gunzip.next(in, buffer);
    out.append(buffer.data(), taken);
    require<DataError>(out.size() <= most, path.string(), ": a trace of more than ", most >> 20,
                       " MiB\n  fix: fewer steps (profiler.active)");
  }
  gunzip.finish();
  return out;
}

}  // namespace trireme::report
