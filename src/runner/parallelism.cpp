#include <danling/runner/parallelism.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <torch/csrc/autograd/autograd.h>

#include <danling/core/error.hpp>
#include <danling/core/suggest.hpp>
#include <danling/optim/clip.hpp>

namespace danling::inline v0 {
namespace {

// The specification's ParallelContext.
constexpr std::array<std::string_view, 7> axes = {"replicate", "shard",  "context",      "pipeline",
                                                  "tensor",    "expert", "expert_tensor"};

ProcessIdentity identity_of(const Group& group) {
  ProcessIdentity out = read_process_identity();
  out.rank = group.rank();
  out.world_size = group.size();
  return out;
}

}  // namespace

Parallelism::Parallelism(Group group) : identity_(identity_of(group)), group_(std::move(group)) {}

Parallelism::~Parallelism() = default;

AxisPlace Parallelism::axis(std::string_view name) const {
  if (std::find(axes.begin(), axes.end(), name) == axes.end()) {
    const std::vector<std::string> known(axes.begin(), axes.end());
    fail<ConfigError>("parallelism.axis", "expected an axis among [", join(known), "], got ", quote(name),
                      did_you_mean(name, known));
  }
  return {};
}

void Parallelism::prepare(ModelHandle& model, at::Device device) { model.to(device); }

void Parallelism::begin_step(const WindowPlace&) {}

void Parallelism::backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace&,
                           const BackwardOptions& options) {
  torch::autograd::backward({loss}, {seed}, options.retain_graph, /*create_graph=*/false, options.inputs);
}

StepPacket Parallelism::agree(const StepPacket& mine) {
  if (group_.alone()) [[likely]] {
    return mine;
  }
  std::string text(sizeof(StepPacket), '\0');
  std::memcpy(text.data(), &mine, sizeof(StepPacket));  // of one program on machines of one kind
  StepPacket all;
  for (const std::string& bytes : group_.all_gather(text)) {
    if (bytes == failed_message || bytes == ended_message) {
      (bytes == failed_message ? all.failed : all.exhausted) = true;
      continue;
    }
    check<DistributedError>(bytes.size() == sizeof(StepPacket), "parallelism.agree",
                            "expected all processes at the same step, got another message");
    StepPacket other;
    std::memcpy(&other, bytes.data(), sizeof(StepPacket));
    all.weight += sums_gradients() ? other.weight : 0.0;
    all.stop |= other.stop;
    all.end |= other.end;
    all.evaluate |= other.evaluate;
    all.save |= other.save;
    all.timed_out |= other.timed_out;
    all.nonfinite |= other.nonfinite;
    all.loss += other.loss;
    all.loss_weight += other.loss_weight;
  }
  all.weight = sums_gradients() ? all.weight : mine.weight;
  return all;
}

void Parallelism::reduce_gradients(optim::Optimizer&) {}

at::Tensor Parallelism::nonfinite_flag(const std::vector<at::Tensor>& params) { return optim::nonfinite_flag(params); }

void Parallelism::clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double divisor) {
  optim::clip_grad_value(params, max_value, divisor);
}

at::Tensor Parallelism::clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm,
                                       optim::GradScale& scale) {
  return optim::clip_grad_norm(params, max_norm, scale);
}

void Parallelism::zero_grad(optim::Optimizer& optimizer) { optimizer.zero_grad(); }

void Parallelism::end_step(const WindowPlace&) noexcept {}

}  // namespace danling::inline v0
