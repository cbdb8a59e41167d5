#include "trireme/base/gzip.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include <zlib.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16 asks for gzip's header instead of zlib's

}  // namespace

std::string gzip(std::string_view bytes) {
  constexpr int kDefaultMemory = 8;
  z_stream stream{};
  const int begun =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kDefaultMemory, Z_DEFAULT_STRATEGY);
  require(begun == Z_OK, "zlib: deflateInit2 returned ", begun);
  std::string out;
  std::array<char, 64 * 1024> chunk;
  int state = Z_OK;
  while (state == Z_OK) {
    // zlib counts in 32 bits: a large input is passed in parts.
    const std::size_t piece = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib only reads it
    stream.avail_in = static_cast<uInt>(piece);
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    state = deflate(&stream, piece == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    bytes.remove_prefix(piece - stream.avail_in);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  require(state == Z_STREAM_END, "zlib: deflate returned ", state);
  return out;
}

struct Gunzip::Inflation {
  z_stream stream{};
  ~Inflation() { inflateEnd(&stream); }
};

Gunzip::Gunzip(std::string shown) : shown_(std::move(shown)), inflation_(std::make_unique<Inflation>()) {
  const int begun = inflateInit2(&inflation_->stream, kGzipWindow);
  require(begun == Z_OK, "zlib: inflateInit2 returned ", begun);
}

Gunzip::~Gunzip() = default;
Gunzip::Gunzip(Gunzip&&) noexcept = default;
Gunzip& Gunzip::operator=(Gunzip&&) noexcept = default;

std::size_t Gunzip::next(std::string_view& in, std::span<char> out) {
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  z_stream& stream = inflation_->stream;
  std::size_t written = 0;
  while (!in.empty() && written < out.size()) {
    if (state_ == State::between) {
      // Some programs pad their last block with zeros.
      if (in.front() == '\0') {
        in.remove_prefix(1);
        ++taken_;
        continue;
      }
      inflateReset(&stream);
      state_ = State::inside;
    }
    const auto in_bytes = static_cast<uInt>(std::min(in.size(), kMost));
    const auto out_bytes = static_cast<uInt>(std::min(out.size() - written, kMost));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib only reads it
    stream.avail_in = in_bytes;
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = out_bytes;
    const int state = inflate(&stream, Z_NO_FLUSH);
    taken_ += in_bytes - stream.avail_in;
    in.remove_prefix(in_bytes - stream.avail_in);
    written += out_bytes - stream.avail_out;
    if (state == Z_STREAM_END) {
      state_ = State::between;
    } else if (state != Z_OK) {
      throw DataError(text(shown_, ": not gzip, or damaged, at byte ", taken_, ": ",
                           stream.msg != nullptr ? stream.msg : "zlib cannot go on",
                           "\n  fix: fetch the file again, or give it a name without .gz if it is not compressed"));
    }
  }
  return written;
}

void Gunzip::finish() const {
  require<DataError>(state_ == State::between, shown_, ": cut short: the compressed text continues after byte ", taken_,
                     ", where the file ends\n  fix: fetch the file again");
}

}  // namespace trireme
