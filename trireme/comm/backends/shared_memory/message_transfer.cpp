#include "trireme/comm/backends/shared_memory/message_transfer.hpp"

#include <algorithm>

#include "trireme/base/copy_bytes.hpp"

namespace trireme {
MessageTransfer::MessageTransfer(ByteStream stream, Message message, const CallRecord& record, Ring ring,
                                 Compare compare)
    : stream_(stream), message_(std::move(message)), ring_(std::move(ring)), compare_(std::move(compare)) {
  header_.record = record;
  const std::size_t bytes = data().size();
  total_ = sizeof header_ + bytes + padding_of(bytes);
}

std::span<std::byte> MessageTransfer::data() const {
  if (message_.tensor.numel() == 0) return {};
  return {static_cast<std::byte*>(message_.tensor.data_ptr()), message_.tensor.nbytes()};
}

bool MessageTransfer::send() {
  bool moved = false;
  while (done_ < total_) {
    std::span<const std::byte> left;
    if (done_ < sizeof header_)
      left = bytes_of(header_).subspan(done_);
    else if (done_ < sizeof header_ + data().size())
      left = data().subspan(done_ - sizeof header_);
    else
      left = std::span(kPadding).first(total_ - done_);
    const std::size_t n = stream_.write(left.first(std::min(left.size(), kStreamChunk)));
    if (n == 0 && stream_.waits_for_room()) break;
    done_ += n;
    moved = true;
    if (n == kStreamChunk) ring_();
  }
  if (moved) ring_();
  return moved;
}

bool MessageTransfer::receive() {
  bool moved = false;
  const auto consume = [&](std::size_t n) {
    if (stream_.consume(0, n)) ring_();
    done_ += n;
    moved = true;
  };
  if (done_ == 0) {
    const std::optional<CallHeader> header = next_header(stream_, 0);
    if (!header) return false;
    compare_(header->record);
    consume(sizeof(CallHeader));
  }
  const std::size_t end = sizeof(CallHeader) + data().size();
  while (done_ < end) {
    const std::span<const std::byte> next = stream_.peek(0);
    const std::size_t n = std::min(next.size(), end - done_);
    if (n == 0) return moved;
    copy_bytes(data().data() + (done_ - sizeof(CallHeader)), next.data(), n);
    consume(n);
  }
  if (done_ < total_) consume(total_ - done_);
  return moved;
}

}  // namespace trireme
