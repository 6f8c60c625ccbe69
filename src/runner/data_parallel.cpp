#include <runner/data_parallel.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <distributed/pending.hpp>
#include <optim/params_of.hpp>
#include <runner/same_model.hpp>

namespace danling::inline v0::detail {
namespace {

at::ScalarType reduce_dtype(const std::string& comm_hook) {
  return comm_hook == "bf16_compress"   ? at::kBFloat16
         : comm_hook == "fp16_compress" ? at::kHalf
                                        : at::ScalarType::Undefined;
}

std::optional<PowerSGDOptions> powersgd(const DdpConfig& ddp) {
  return ddp.comm_hook == "powerSGD" ? std::optional<PowerSGDOptions>(ddp.powersgd) : std::nullopt;
}

State state_of(const std::vector<at::Tensor>& tensors) {
  State out{State::Map()};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) {
      out.map()[i] = tensors[i].detach().cpu();
    }
  }
  return out;
}

std::vector<at::Tensor> tensors_of(const State& state) {
  std::vector<at::Tensor> out;
  for (const auto& [key, value] : state.map()) {
    const auto at = static_cast<std::size_t>(key.integer());
    out.resize(std::max(out.size(), at + 1));
    out[at] = value.tensor();
  }
  return out;
}

}  // namespace

DataParallel::DataParallel(Group group, const DdpConfig& ddp, std::chrono::milliseconds timeout)
    : Parallelism(std::move(group)),
      options_{.bucket_bytes = static_cast<std::int64_t>(ddp.bucket_cap_mb * 1024 * 1024),
               .overlap = ddp.overlap,
               .shared_memory = ddp.shared_memory,
               .reduce_dtype = reduce_dtype(ddp.comm_hook),
               .powersgd = powersgd(ddp),
               .timeout = timeout},
      layers_(this->group()),
      broadcasts_buffers_(ddp.broadcast_buffers) {
  options_.first_bucket_bytes = std::min(options_.first_bucket_bytes, options_.bucket_bytes);
}

void DataParallel::prepare(ModelHandle& model, at::Device device) {
  Parallelism::prepare(model, device);
  make_same(group(), model);
  layers_.add(model);
  if (broadcasts_buffers_) {
    buffers_.emplace_back(model);
  }
}

void DataParallel::prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) {
  // The program may have replaced some optimizers.
  const auto is_gone = [&](const optim::Optimizer* known) {
    return std::find(optimizers.begin(), optimizers.end(), known) == optimizers.end();
  };
  if (std::erase_if(order_, is_gone) > 0) {
    std::erase_if(reducers_, [&](const auto& entry) { return is_gone(entry.first); });
    std::erase_if(loss_scales_, [&](const auto& entry) { return is_gone(entry.first); });
    restored_.clear();
  }
  learners_.assign(optimizers.begin(), optimizers.end());
  for (const optim::Optimizer* optimizer : learners_) {
    reducer_of(*optimizer);
  }
}

State DataParallel::state_dict() const {
  if (!options_.powersgd) {
    return {};
  }
  State::List list;
  for (std::size_t i = 0; i < std::max(order_.size(), restored_.size()); ++i) {
    const PowerSGDState state = i < order_.size() ? reducers_.at(order_[i])->powersgd_state() : restored_[i];
    State item;
    item["iteration"] = state.iteration;
    item["errors"] = state_of(state.errors);
    item["factors"] = state_of(state.factors);
    list.push_back(std::move(item));
  }
  State out;
  out["world_size"] = group().size();
  out["powersgd"] = std::move(list);
  return out;
}

// The error feedbacks of all ranks together are what the sum has lost; those of only some ranks are not.
std::string DataParallel::load_state_dict(const State& state) {
  if (!options_.powersgd && !state.is_null()) {
    return Parallelism::load_state_dict(state);
  }
  restored_.clear();
  const bool fits = state.is_null() || state.at("world_size").integer() == group().size();
  if (!state.is_null()) {
    for (const State& item : state.at("powersgd").list()) {
      restored_.push_back({.iteration = item.at("iteration").integer(),
                           .errors = fits ? tensors_of(item.at("errors")) : std::vector<at::Tensor>(),
                           .factors = tensors_of(item.at("factors"))});
    }
  }
  for (std::size_t i = 0; i < order_.size(); ++i) {
    reducers_.at(order_[i])->load_powersgd_state(i < restored_.size() ? restored_[i] : PowerSGDState());
  }
  return fits ? "" : "the error feedback of PowerSGD, saved by another number of processes";
}

void DataParallel::begin_step(const WindowPlace& place) {
  closes_ = place.closes;
  layers_.set_in_step(true);
}

void DataParallel::end_step(const WindowPlace&) noexcept { layers_.set_in_step(false); }

void DataParallel::set_loss_scale(const optim::Optimizer& optimizer, const at::Tensor& scale) {
  loss_scales_[&optimizer] = scale;
  if (const auto found = reducers_.find(&optimizer); found != reducers_.end()) {
    found->second->set_loss_scale(scale);
  }
}

void DataParallel::begin_backward(const WindowPlace&) {
  for (const auto& [optimizer, reducer] : reducers_) {
    // If parameters were frozen or thawed, sums do not start here: reduce_gradients sums the current parameters.
    reducer->begin_backward(closes_ && reducer->matches_parameters(optim::detail::params_of(*optimizer)));
  }
}

void DataParallel::backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                            const BackwardOptions& options) {
  begin_backward(place);
  Parallelism::backward(loss, seed, place, options);
}

std::string DataParallel::unrecordable_reason() const {
  return layers_.empty() ? "" : "SyncBatchNorm exchanges its statistics in the forward pass";
}

StepPacket DataParallel::exchange_packets(const StepPacket& mine) {
  StepPacket packet = mine;
  for (const auto& [optimizer, reducer] : reducers_) {
    // Of the optimizer that updates; a rank without batches does not know which one it is.
    const auto number = static_cast<std::size_t>(mine.learner);
    if (number >= learners_.size() || learners_[number] == optimizer) {
      packet.missing = packet.missing || reducer->has_missing_gradients();
      packet.late = packet.late || reducer->has_late_gradients();
    }
  }
  const StepPacket all = Parallelism::exchange_packets(packet);
  any_missing_ = all.missing;
  any_late_ = all.late;
  source_ = all.source;
  return all;
}

void DataParallel::reduce_gradients(optim::Optimizer& optimizer) {
  const Wait wait(*this);
  const PendingScope pending("the sum of gradients");
  Reducer& reducer = reducer_of(optimizer);
  reducer.finish(any_missing_, any_late_);
  // The next window, averages, evaluations and checkpoints then start from the same buffers on all ranks.
  if (source_ >= 0) {
    for (SharedBuffers& of_model : buffers_) {
      if (buffers_.size() == 1 || of_model.belong_to(optimizer)) {
        of_model.broadcast(group(), static_cast<int>(source_));
      }
    }
    has_stale_buffers_ = buffers_.size() > 1;
  }
}

// A model may have run after its update, or before the update of another model whose graph still needed its buffers.
void DataParallel::end_updates() {
  if (std::exchange(has_stale_buffers_, false)) {
    for (SharedBuffers& of_model : buffers_) {
      of_model.broadcast(group(), static_cast<int>(source_));
    }
  }
}

void DataParallel::drop_gradients(optim::Optimizer& optimizer) {
  if (const auto found = reducers_.find(&optimizer); found != reducers_.end()) {
    found->second->drop_gradients();
  }
  Parallelism::drop_gradients(optimizer);
}

// Parameters may be frozen or thawed between updates, on all ranks alike. Parameters of an open window keep their
// gradients.
Reducer& DataParallel::reducer_of(const optim::Optimizer& optimizer) {
  const auto params = optim::detail::params_of(optimizer);
  std::unique_ptr<Reducer>& reducer = reducers_[&optimizer];
  if (reducer != nullptr && reducer->matches_parameters(params)) {
    return *reducer;
  }
  PowerSGDState state;
  if (reducer != nullptr) {
    check<StateError>(!reducer->has_started(), "runner.backward",
                      "expected parameters that are frozen or thawed between updates, got a change between backward() "
                      "and the update; change requires_grad after step(), or in on_step if its `updated` is true");
    any_missing_ = true;  // a thawed parameter may have no gradient
    state = reducer->powersgd_state();
    reducer.reset();
  } else {
    order_.push_back(&optimizer);
    state = order_.size() <= restored_.size() ? restored_[order_.size() - 1] : state;
  }
  ++reducers_made_;
  reducer = std::make_unique<Reducer>(params, group(), options_);
  reducer->load_powersgd_state(state);
  reducer->set_loss_scale(loss_scales_[&optimizer]);
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
