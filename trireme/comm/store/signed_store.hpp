#pragma once
// A store whose values carry a proof that their writer knows the secret of the job: for stores that ask nobody for it
// (that of torchrun's agent, and files).
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme {

/// Each value is followed by an HMAC-SHA256 of its key and itself. SecurityError names a key whose value was not
/// written with the same secret, or was written for another key. Not protected: counters (add), deletion, and a value
/// that is replaced by an older one of the same key.
class SignedStore final : public c10d::Store {
 public:
  SignedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  std::int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override { return store_->getTimeout(); }
  void setTimeout(const std::chrono::milliseconds& timeout) override { store_->setTimeout(timeout); }
  /// A value that grows cannot be signed: without the extended interface nobody appends.
  bool hasExtendedApi() const override { return false; }

 private:
  using Bytes = std::vector<std::uint8_t>;
  Bytes signed_value(const std::string& key, const Bytes& value) const;
  Bytes checked_value(const std::string& key, Bytes value) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string secret_;
};

}  // namespace trireme
