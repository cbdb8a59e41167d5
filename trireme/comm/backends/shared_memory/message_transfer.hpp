#pragma once
// One message over shared memory, seen from one of its two ends.
#include <functional>
#include <span>

#include "trireme/comm/backends/shared_memory/call_header.hpp"

namespace trireme {

class MessageTransfer {
 public:
  using Ring = std::function<void()>;
  /// Throws if the sender sent something else.
  using Compare = std::function<void(const CallRecord& sent)>;

  /// `message` holds its tensor until the transfer is destroyed.
  MessageTransfer(ByteStream stream, Message message, const CallRecord& record, Ring ring, Compare compare);
  MessageTransfer(const MessageTransfer&) = delete;
  MessageTransfer& operator=(const MessageTransfer&) = delete;

  /// True if anything moved. Messages of a pair move in the order of their calls.
  bool advance() { return message_.op == Op::send ? send() : receive(); }
  bool is_done() const { return done_ == total_; }

 private:
  bool send();
  bool receive();
  std::span<std::byte> data() const;

  ByteStream stream_;
  const Message message_;
  const Ring ring_;
  const Compare compare_;
  CallHeader header_{};
  std::size_t done_ = 0, total_ = 0;  // bytes with header and padding
};

}  // namespace trireme
