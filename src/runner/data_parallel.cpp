#include "runner/data_parallel.hpp"

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

at::ScalarType wire_dtype(const std::string& comm_hook) {
  return comm_hook == "bf16_compress"   ? at::kBFloat16
         : comm_hook == "fp16_compress" ? at::kHalf
                                        : at::ScalarType::Undefined;
}

std::string describe(const NamedTensors& state) {
  std::string out;
  for (const auto& [name, tensor] : state) {
    out += concat(name, " ", c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]\n");
  }
  return out;
}

std::string line_of(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0 && begin != std::string::npos; --number) {
    begin = text.find('\n', begin);
    begin += begin == std::string::npos ? 0 : 1;
  }
  return begin >= text.size() ? "nothing more" : text.substr(begin, text.find('\n', begin) - begin);
}

// Names the first difference: models have thousands of lines.
void check_alike(const Group& group, const NamedTensors& state) {
  const auto all = group.all_gather(describe(state));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all.front()) {
      std::size_t line = 0;
      while (line_of(all[rank], line) == line_of(all.front(), line)) {
        ++line;
      }
      fail<DistributedError>("runner.materialize_model", "expected the same model on all ranks, got '",
                             line_of(all.front(), line), "' on rank 0 and '", line_of(all[rank], line), "' on rank ",
                             rank, "; the constructor of the runner must not depend on the rank");
    }
  }
}

std::vector<at::Tensor> params_of(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> out;
  for (const auto& group : optimizer.param_groups()) {
    out.insert(out.end(), group.params.begin(), group.params.end());
  }
  return out;
}

}  // namespace

DataParallel::DataParallel(Group group, const DdpConfig& ddp, std::chrono::milliseconds timeout)
    : Parallelism(std::move(group)),
      options_{.bucket_bytes = static_cast<std::int64_t>(ddp.bucket_cap_mb * 1024 * 1024),
               .overlap = ddp.overlap,
               .shared_memory = ddp.shared_memory,
               .wire_dtype = wire_dtype(ddp.comm_hook),
               .timeout = timeout} {
  options_.first_bucket_bytes = std::min(options_.first_bucket_bytes, options_.bucket_bytes);
}

void DataParallel::prepare(ModelHandle& model, at::Device device) {
  Parallelism::prepare(model, device);
  const NamedTensors state = model.named_state();
  check_alike(group(), state);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) {
    at::Tensor target = tensor;
    target.copy_(group().all_gather(tensor.detach()).front());
  }
}

void DataParallel::prepare_optimizer(optim::Optimizer& optimizer) { reducer_of(optimizer); }

void DataParallel::begin_step(const WindowPlace& place) { closes_ = place.closes; }

void DataParallel::backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                            const BackwardOptions& options) {
  for (const auto& [optimizer, reducer] : reducers_) {
    reducer->begin_backward(closes_);
  }
  Parallelism::backward(loss, seed, place, options);
}

StepPacket DataParallel::agree(const StepPacket& mine) {
  StepPacket packet = mine;
  for (const auto& [optimizer, reducer] : reducers_) {
    packet.missing = packet.missing || reducer->is_missing();
    packet.late = packet.late || reducer->is_late();
  }
  const StepPacket all = Parallelism::agree(packet);
  any_missing_ = all.missing;
  any_late_ = all.late;
  return all;
}

void DataParallel::reduce_gradients(optim::Optimizer& optimizer) {
  reducer_of(optimizer).finish(any_missing_, any_late_);
}

void DataParallel::drop_gradients(optim::Optimizer& optimizer) {
  if (const auto found = reducers_.find(&optimizer); found != reducers_.end()) {
    found->second->drop();
  }
  Parallelism::drop_gradients(optimizer);
}

// Parameters may be frozen or thawed between updates, on all ranks alike.
Reducer& DataParallel::reducer_of(const optim::Optimizer& optimizer) {
  const auto params = params_of(optimizer);
  std::unique_ptr<Reducer>& reducer = reducers_[&optimizer];
  if (reducer == nullptr || !reducer->covers(params)) {
    reducer.reset();
    reducer = std::make_unique<Reducer>(params, group(), options_);
  }
  return *reducer;
}

}  // namespace danling::inline v0::detail
