#include "trireme/comm/store/signed_store.hpp"

#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"

namespace trireme {
namespace {

std::string_view as_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The length keeps "ab" + "c" apart from "a" + "bc".
Sha256 proof_of_value(const std::string& secret, const std::string& key, std::string_view value) {
  return hmac_sha256(secret, text("trireme store value\n", key.size(), "\n", key, value));
}

}  // namespace

SignedStore::SignedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret)
    : store_(std::move(store)), secret_(std::move(secret)) {}

c10::intrusive_ptr<c10d::Store> SignedStore::clone() {
  return c10::make_intrusive<SignedStore>(store_->clone(), secret_);
}

SignedStore::Bytes SignedStore::signed_value(const std::string& key, const Bytes& value) const {
  Bytes both = value;
  const Sha256 proof = proof_of_value(secret_, key, as_text(value));
  both.insert(both.end(), proof.begin(), proof.end());
  return both;
}

SignedStore::Bytes SignedStore::checked_value(const std::string& key, Bytes value) const {
  constexpr std::size_t kProof = std::tuple_size_v<Sha256>;
  const std::string_view both = as_text(value);
  const bool ours =
      both.size() >= kProof && same_bytes(both.substr(both.size() - kProof),
                                          bytes_of(proof_of_value(secret_, key, both.substr(0, both.size() - kProof))));
  require<SecurityError>(ours, "the value of \"", key, "\" in the store was written without the secret of this job\n",
                         "  fix: set TRIREME_SECRET to the same value on all hosts; if it is, another process ",
                         "writes to the store");
  value.resize(value.size() - kProof);
  return value;
}

void SignedStore::set(const std::string& key, const Bytes& value) { store_->set(key, signed_value(key, value)); }

/// An empty `expected` stands for a key that is not there, and an empty answer says that it is not.
std::vector<std::uint8_t> SignedStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  Bytes now =
      store_->compareSet(key, expected.empty() ? expected : signed_value(key, expected), signed_value(key, desired));
  return now.empty() ? now : checked_value(key, std::move(now));
}

std::vector<std::uint8_t> SignedStore::get(const std::string& key) { return checked_value(key, store_->get(key)); }

}  // namespace trireme
