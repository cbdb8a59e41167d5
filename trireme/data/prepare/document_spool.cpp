#include "trireme/data/prepare/document_spool.hpp"

#include <array>

#include "trireme/base/error.hpp"
#include "trireme/data/sampling/permutation.hpp"
#include "trireme/files/little_endian.hpp"

namespace trireme::data {
namespace {

std::filesystem::path beside(const std::filesystem::path& path, const char* ending) {
  return std::filesystem::path(path) += ending;
}

template <class T>
void read_ids(files::StagedFile& file, std::uint64_t first, std::span<std::uint32_t> out) {
  std::vector<T> stored(out.size());
  file.read_back(first * sizeof(T), std::as_writable_bytes(std::span(stored)));
  std::ranges::copy(stored, out.begin());
}

}  // namespace

DocumentSpool::DocumentSpool(const std::filesystem::path& path, std::int64_t vocab_size, bool loss_mask)
    : type_(vocab_size <= 65'536 ? TokenType::u16 : TokenType::u32),
      tokens_(beside(path, ".unshuffled")),
      ends_(beside(path, ".unshuffled.ends")) {
  if (loss_mask) loss_mask_.emplace(beside(path, ".unshuffled.loss"));
}

void DocumentSpool::append(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask) {
  tokens_.append(encoded(ids, type_));
  num_tokens_ += ids.size();
  ++num_documents_;
  ends_.append(files::little_endian_bytes(std::span<const std::uint64_t>(&num_tokens_, 1)));
  if (loss_mask_) loss_mask_->append(files::little_endian_bytes(loss_mask));
}

void DocumentSpool::shuffled(
    const RandomStream& stream,
    const std::function<void(std::span<const std::uint32_t>, std::span<const std::uint8_t>)>& take) {
  const Permutation order(stream, 0, num_documents_);
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> mask;
  for (std::uint64_t place = 0; place < num_documents_; ++place) {
    const std::uint64_t document = order(place);
    std::array<std::uint64_t, 2> range = {0, 0};  // the first begins at 0, which is not stored
    const auto known = std::span(range).subspan(document == 0 ? 1 : 0);
    ends_.read_back((document - (document == 0 ? 0 : 1)) * 8, std::as_writable_bytes(known));
    ids.resize(static_cast<std::size_t>(range[1] - range[0]));
    if (type_ == TokenType::u16)
      read_ids<std::uint16_t>(tokens_, range[0], ids);
    else
      read_ids<std::uint32_t>(tokens_, range[0], ids);
    if (loss_mask_) {
      mask.resize(ids.size());
      loss_mask_->read_back(range[0], std::as_writable_bytes(std::span(mask)));
    }
    take(ids, mask);
  }
}

}  // namespace trireme::data
