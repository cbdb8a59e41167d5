#include "trireme/module/stage_builders.hpp"

#include <map>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class StageSeed {
 public:
  explicit StageSeed(int stage) : lock_(mutex()), generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> inner(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(generator_.current_seed() + 1000003U * static_cast<std::uint64_t>(stage + 1));
  }
  ~StageSeed() {
    const std::lock_guard<std::mutex> inner(generator_.mutex());
    generator_.set_state(before_);
  }
  StageSeed(const StageSeed&) = delete;
  StageSeed& operator=(const StageSeed&) = delete;

 private:
  static std::mutex& mutex() {  // ranks may be threads
    static std::mutex it;
    return it;
  }
  const std::lock_guard<std::mutex> lock_;
  at::Generator generator_;
  at::Tensor before_;
};

void require_no_ties(const torch::nn::SequentialImpl& stages) {
  std::map<const c10::TensorImpl*, std::size_t> seen;
  std::size_t number = 0;
  for (const auto& child : stages.children()) {
    for (const at::Tensor& parameter : child->parameters()) {
      const auto [place, is_new] = seen.emplace(parameter.unsafeGetTensorImpl(), number);
      require<ConfigError>(is_new || place->second == number, "pipeline: stages ", place->second, " and ", number,
                           " share a parameter\n  fix: a pipeline needs stages without shared parameters");
    }
    ++number;
  }
}

}  // namespace

std::vector<StageBuilder> builders_of(const std::shared_ptr<torch::nn::SequentialImpl>& stages) {
  require_no_ties(*stages);
  std::vector<StageBuilder> out;
  for (const torch::nn::AnyModule& child : *stages) out.emplace_back([child] { return Stage(child); });
  return out;
}

Stage build_stage(const std::vector<StageBuilder>& builders, int stage) {
  const StageSeed seed(stage);
  return builders[static_cast<std::size_t>(stage)]();
}

Stage::Stage(const torch::nn::AnyModule& module) : module_(module.ptr()) {
  call_ = [any = module](const Tensors& x) mutable -> Tensors {
    if (x.size() != 1) throw_wrong_arguments(*any.ptr(), x.size());
    return {any.forward<at::Tensor>(x[0])};
  };
}

void Stage::throw_wrong_arguments(const torch::nn::Module& module, std::size_t count) {
  throw ConfigError(text("pipeline: a stage gets ", count, " tensors, but the forward of ", module.name(),
                         " does not take as many\n  fix: take as many as the stage before returns, up to 4"));
}

}  // namespace trireme
