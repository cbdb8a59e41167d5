// A build with libzstd: no_zstd.cpp otherwise.
#include "trireme/base/zstd.hpp"

#include <cstdint>

#include <zstd.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class Unzstd : public Decompressor {
 public:
  explicit Unzstd(std::string shown) : shown_(std::move(shown)), context_(ZSTD_createDCtx()) {
    require(context_ != nullptr, "zstd: ZSTD_createDCtx failed");
  }

  std::size_t next(std::string_view& in, std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    for (bool goes_on = true; goes_on && to.pos < to.size;) {
      ZSTD_inBuffer from{in.data(), in.size(), 0};
      const std::size_t before = to.pos;
      const std::size_t result = ZSTD_decompressStream(context_.get(), &to, &from);
      require<DataError>(ZSTD_isError(result) == 0, shown_, ": is not valid zstd after ", taken_ + from.pos,
                         " bytes: ", ZSTD_getErrorName(result));
      // Without progress the answer is only a hint for the next frame.
      goes_on = from.pos > 0 || to.pos > before;
      if (goes_on) inside_frame_ = result != 0;
      taken_ += from.pos;
      in.remove_prefix(from.pos);
    }
    return to.pos;
  }

  void finish() const override {
    require<DataError>(!inside_frame_, shown_, ": cut short: the file ends after ", taken_, " bytes inside a frame");
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::string shown_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  std::uint64_t taken_ = 0;
  bool inside_frame_ = true;  // an empty file is not valid zstd: at least one frame is required
};

}  // namespace

bool has_zstd() { return true; }

std::unique_ptr<Decompressor> unzstd(const std::string& shown) { return std::make_unique<Unzstd>(shown); }

}  // namespace trireme
