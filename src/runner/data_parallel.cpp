#include "runner/data_parallel.hpp"

#include <string>
#include <utility>
#include <vector>

#include "distributed/pending.hpp"
#include "runner/same_model.hpp"

namespace danling::inline v0::detail {
namespace {

at::ScalarType wire_dtype(const std::string& comm_hook) {
  return comm_hook == "bf16_compress"   ? at::kBFloat16
         : comm_hook == "fp16_compress" ? at::kHalf
                                        : at::ScalarType::Undefined;
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
  make_same(group(), model);
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
  const Wait wait(*this);
  const PendingScope pending("the sum of gradients");
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

void DataParallel::set_timeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout;
  for (const auto& [optimizer, reducer] : reducers_) {
    reducer->set_timeout(timeout);
  }
  Parallelism::set_timeout(timeout);
}

void DataParallel::abort(std::string_view words) {
  for (const auto& [optimizer, reducer] : reducers_) {
    reducer->abort(words);
  }
  Parallelism::abort(words);
}

}  // namespace danling::inline v0::detail
