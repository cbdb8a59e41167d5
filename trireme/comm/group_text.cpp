#include "trireme/comm/group_text.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

at::Tensor bytes_of_text(const std::string& words, std::int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::kByte);
  copy_bytes(bytes.mutable_data_ptr(), words.data(), words.size());
  return bytes;
}

}  // namespace

std::string broadcast_text(Group& group, const std::string& words, int root) {
  const auto own = static_cast<std::int64_t>(words.size());
  const std::int64_t size = group.broadcast_(at::full({1}, own, at::kLong), root).wait().item<std::int64_t>();
  at::Tensor bytes = group.rank() == root ? bytes_of_text(words, size) : at::empty({size}, at::kByte);
  if (size > 0) bytes = group.broadcast_(bytes, root).wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(size)};
}

std::vector<std::string> gather_texts(Group& group, const std::string& words, int root) {
  const auto own = static_cast<std::int64_t>(words.size());
  const at::Tensor sizes = group.all_gather(at::full({1}, own, at::kLong)).wait();
  const std::int64_t longest = sizes.max().item<std::int64_t>();
  std::vector<std::string> texts(group.rank() == root ? static_cast<std::size_t>(group.size()) : 0);
  if (longest == 0) return texts;
  const at::Tensor all = group.gather(bytes_of_text(words, longest), root).wait();
  for (std::size_t r = 0; r < texts.size(); ++r)
    texts[r].assign(static_cast<const char*>(all.const_data_ptr()) + r * static_cast<std::size_t>(longest),
                    static_cast<std::size_t>(sizes[static_cast<std::int64_t>(r)].item<std::int64_t>()));
  return texts;
}

std::string first_failure(Group& group, const std::string& own) {
  const std::int64_t rank = own.empty() ? group.size() : group.rank();
  const std::int64_t first = group.all_reduce_(at::full({1}, rank, at::kLong), Reduce::min).wait().item<std::int64_t>();
  if (first == group.size()) return "";
  const std::string what = broadcast_text(group, own, static_cast<int>(first));
  return group.size() == 1 ? what : text("rank ", first, ": ", what);
}

}  // namespace trireme
