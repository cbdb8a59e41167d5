#include "trireme/base/gzip.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include <zlib.h>

#include "trireme/base/error.hpp"

namespace trireme {

std::string gzip(std::string_view bytes) {
  constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16 asks for gzip's header instead of zlib's
  constexpr int kDefaultMemory = 8;
  z_stream stream{};
  const int begun =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kDefaultMemory, Z_DEFAULT_STRATEGY);
  require(begun == Z_OK, "zlib: deflateInit2 returned ", begun);
  std::string out;
  std::array<char, 64 * 1024> chunk;
  int state = Z_OK;
  while (state == Z_OK) {
    // zlib counts in 32 bits: a large input goes in by pieces.
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

}  // namespace trireme
