#include "trireme/data/prepare/file_kind.hpp"

#include <algorithm>
#include <array>

#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;
  std::size_t at;
  std::string_view what, fix;
};

constexpr std::string_view kParquet =
    "convert it to JSON lines: python3 -c \"import pandas; pandas.read_parquet('x.parquet').to_json('x.jsonl', "
    "orient='records', lines=True)\"";
constexpr std::string_view kDecompress = "decompress it first, or compress it with gzip or zstd";
constexpr std::string_view kUnpack = "unpack it, and name the folder";
constexpr std::string_view kUtf16 = "iconv -f UTF-16 -t UTF-8";

constexpr std::array kSignatures = {
    Signature{"PAR1"sv, 0, "a parquet file", kParquet},
    Signature{"ARROW1"sv, 0, "an Arrow file", kParquet},
    Signature{"\x1F\x8B"sv, 0, "compressed with gzip, twice", kDecompress},
    Signature{"\x28\xB5\x2F\xFD"sv, 0, "compressed with zstd, twice", kDecompress},
    Signature{"\xFD\x37zXZ\0"sv, 0, "compressed with xz", kDecompress},
    Signature{"BZh"sv, 0, "compressed with bzip2", kDecompress},
    Signature{"7z\xBC\xAF"sv, 0, "a 7z archive", kUnpack},
    Signature{"PK\x03\x04"sv, 0, "a zip archive (also .docx, .npz, .pt)", kUnpack},
    Signature{"ustar"sv, 257, "a tar archive", kUnpack},
    Signature{"%PDF-"sv, 0, "a PDF", "pdftotext"},
    Signature{"MMIDIDX"sv, 0, "a Megatron token index", "token files are joined by trireme data merge"},
    Signature{"\xFF\xFE"sv, 0, "UTF-16 text", kUtf16},
    Signature{"\xFE\xFF"sv, 0, "UTF-16 text", kUtf16},
};

/// Control characters that no text has: not tab, newline, return, form feed, vertical tab, backspace, escape, bell.
bool is_odd(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x07 || (byte > 0x0D && byte < 0x20 && byte != 0x1B) || byte == 0x7F;
}

bool may_be_utf8(std::string_view head, bool whole) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t i = 0; i < head.size();) {
    const CodePoint c = first_code_point(head.substr(i));
    if (!c.well_formed) return !whole && head.size() - i < kLongest;
    i += c.bytes;
  }
  return true;
}

}  // namespace

Compression compression_of(std::string_view head) {
  if (head.starts_with("\x1F\x8B"sv)) return Compression::gzip;
  if (head.starts_with("\x28\xB5\x2F\xFD"sv)) return Compression::zstd;
  return Compression::none;
}

NotText what_is_not_text(std::string_view head, bool whole) {
  for (const Signature& each : kSignatures)
    if (head.size() > each.at && head.substr(each.at).starts_with(each.bytes))
      return {std::string(each.what), std::string(each.fix)};
  const bool has_nul = head.find('\0') != std::string_view::npos;
  if (!has_nul && (std::ranges::none_of(head, is_odd) || may_be_utf8(head, whole))) return {};
  return {"binary",
          "text or JSON lines, compressed with gzip, zstd or not; token files are joined by trireme data merge"};
}

}  // namespace trireme::data
