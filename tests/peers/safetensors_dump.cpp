// Reads safetensors files, for safetensors_agrees.py to compare with the package.   usage: safetensors_dump [FILE...]
// Without files: one request per line on standard input, separated by tabs:   FILE   or   FILE NAME START:SIZE,...
// One line of answer per request: "ok <tensors> <CRC-32 of everything>", "ok <bytes> <CRC-32 of the box>" or "refused:
// <text, line ends as |>".
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "trireme/base/error.hpp"
#include "trireme/files/safetensors.hpp"

namespace {

using namespace trireme;

class Checksum {
 public:
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(std::span<const std::byte> bytes) {
    crc_ = ::crc32_z(crc_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  std::string hex() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%08lx", crc_);
    return digits;
  }

 private:
  unsigned long crc_ = ::crc32_z(0, nullptr, 0);
};

/// Names, dtypes, shapes and bytes in file order, then the metadata by key; NUL after each text.
std::string summary(const files::Safetensors& file) {
  Checksum sum;
  const auto word = [&](std::string_view text) {
    sum.add(text);
    sum.add(std::string_view("\0", 1));
  };
  for (std::size_t i = 0; i < file.size(); ++i) {
    const files::SafetensorsEntry entry = file.entry(i);
    std::string shape;
    for (std::int64_t size : entry.shape) shape += std::to_string(size) + ",";
    word(entry.name);
    word(name(entry.dtype));
    word(shape);
    sum.add(file.bytes(entry));
  }
  for (const auto& [key, value] : file.metadata()) {
    word(key);
    word(value);
  }
  return text("ok ", file.size(), " ", sum.hex());
}

std::string box(const files::Safetensors& file, const std::string& tensor, const std::string& ranges) {
  const files::SafetensorsEntry entry = file.at(tensor);
  std::vector<std::int64_t> starts, sizes;
  std::istringstream in(ranges);
  std::uint64_t bytes = static_cast<std::uint64_t>(files::bits(entry.dtype)) / 8;
  for (std::string range; std::getline(in, range, ',');) {
    starts.push_back(std::stoll(range));
    sizes.push_back(std::stoll(range.substr(range.find(':') + 1)));
    bytes *= static_cast<std::uint64_t>(sizes.back());
  }
  std::vector<std::byte> out(bytes);
  file.read(entry, starts, sizes, out);
  Checksum sum;
  sum.add(out);
  return text("ok ", bytes, " ", sum.hex());
}

std::string answer(const std::string& request) {
  std::istringstream in(request);
  std::string path, tensor, ranges;
  std::getline(in, path, '\t');
  try {
    const files::Safetensors file(path);
    if (!std::getline(in, tensor, '\t')) return summary(file);
    std::getline(in, ranges);
    return box(file, tensor, ranges);
  } catch (const CheckpointError& error) {
    std::string what = error.what();
    for (char& c : what)
      if (c == '\n') c = '|';
    return "refused: " + what;
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::cout << answer(argv[i]) << "\n";
  if (argc > 1) return 0;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line) << "\n";
  return 0;
}
