#include <danling/optim/averaging.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>

#include <optim/spans.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr const char* averaging = "optim.average";

WeightAverage::NamedTensors module_parameters(const torch::nn::Module& model) {
  WeightAverage::NamedTensors out;
  for (const auto& item : model.named_parameters()) {
    if (item.value().defined()) {
      out.emplace_back(item.key(), item.value());
    }
  }
  return out;
}

WeightAverage::NamedTensors module_state(const torch::nn::Module& model) {
  auto out = module_parameters(model);
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) {
      out.emplace_back(item.key(), item.value());
    }
  }
  return out;
}

std::int64_t count_of(std::optional<std::int64_t> given, std::int64_t standard, std::int64_t least, const char* key) {
  const std::int64_t value = given.value_or(standard);
  check<ConfigError>(value >= least, averaging, "expected ", key, " of at least ", least, ", got ", value);
  return value;
}

// The kernel reads raw memory: both tensors must be dense, without pending negation, and have the same layout.
bool has_average_kernel(const at::Tensor& average, const at::Tensor& value) {
  return average.is_cpu() && value.is_cpu() && detail::has_kernel(average.scalar_type()) &&
         detail::has_kernel(value.scalar_type()) && average.is_non_overlapping_and_dense() &&
         average.strides() == value.strides() && !average.is_neg() && !value.is_neg();
}

// average += weight * (value - average) in the dtype of the averages, as at::lerp. A weight on a device is float64.
void lerp_to(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& values, double weight) {
  const auto type = averages.front().scalar_type();
  if (std::equal(averages.begin(), averages.end(), values.begin(), has_average_kernel)) {
    detail::move_averages(averages, values, weight);
  } else if (values.front().scalar_type() == type) {
    at::_foreach_lerp_(averages, values, weight);
  } else {
    for (std::size_t i = 0; i < averages.size(); ++i) {
      averages[i].lerp_(values[i].to(type), weight);
    }
  }
}

void lerp_to(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& values, const at::Tensor& weight) {
  const auto type = averages.front().scalar_type();
  const at::Tensor factor = weight.to(averages.front().device(), type);
  for (std::size_t i = 0; i < averages.size(); ++i) {
    averages[i].lerp_(values[i].to(type), factor);
  }
}

bool is_averageable(const at::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

}  // namespace

WeightAverage::WeightAverage(NamedTensors state, const NamedTensors& parameters, bool use_buffers)
    : use_buffers_(use_buffers) {
  std::unordered_map<const void*, std::size_t> seen;
  for (auto& [name, tensor] : state) {
    const auto [at, added] = seen.try_emplace(tensor.unsafeGetTensorImpl(), entries_.size());
    if (added) {
      entries_.push_back({.model = tensor, .moves = use_buffers && is_averageable(tensor)});
    }
    names_.emplace_back(std::move(name), at->second);
  }
  for (const auto& [name, tensor] : parameters) {
    const auto found = seen.find(tensor.unsafeGetTensorImpl());
    check<ConfigError>(found != seen.end(), averaging, "expected the parameter ", quote(name),
                       " in the state, got none");
    entries_[found->second].is_parameter = entries_[found->second].moves = true;
  }
}

WeightAverage::WeightAverage(NamedTensors state, const NamedTensors& parameters, const EMAOptions& options)
    : WeightAverage(std::move(state), parameters, options.use_buffers.value_or(false)) {
  decay_ = options.decay.value_or(0.999);
  warmup_ = options.warmup.value_or(10);
  check<ConfigError>(*decay_ >= 0 && *decay_ <= 1, averaging, "expected decay in [0, 1], got ", *decay_);
  check<ConfigError>(warmup_ >= 0 && std::isfinite(warmup_), averaging, "expected warmup of 0 or more, got ", warmup_);
  start_ = count_of(options.start, 0, 0, "start");
  interval_ = count_of(options.interval, 1, 1, "interval");
}

WeightAverage::WeightAverage(NamedTensors state, const NamedTensors& parameters, const SWAOptions& options,
                             std::optional<std::int64_t> total)
    : WeightAverage(std::move(state), parameters, options.use_buffers.value_or(false)) {
  start_ = first_update(options, total);
  interval_ = count_of(options.interval, 1, 1, "interval");
}

WeightAverage::WeightAverage(const torch::nn::Module& model, const EMAOptions& options)
    : WeightAverage(module_state(model), module_parameters(model), options) {}

WeightAverage::WeightAverage(const torch::nn::Module& model, const SWAOptions& options,
                             std::optional<std::int64_t> total)
    : WeightAverage(module_state(model), module_parameters(model), options, total) {}

WeightAverage::~WeightAverage() { restore(); }

WeightAverage& WeightAverage::operator=(WeightAverage&& other) noexcept {
  if (this != &other) {
    std::destroy_at(this);  // restores the model's weights
    std::construct_at(this, std::move(other));
  }
  return *this;
}

std::int64_t first_update(const SWAOptions& options, std::optional<std::int64_t> total) {
  const double start = options.start.value_or(0.75);
  check<ConfigError>(start >= 0 && (start < 1 || start == std::floor(start)), averaging,
                     "expected swa.start below 1, a share of the run, or a whole number, got ", start);
  check<ConfigError>(start == 0 || start >= 1 || total, averaging,
                     "expected swa.start as a number of steps, where the run has no length, got ", start);
  return static_cast<std::int64_t>(start < 1 ? start * static_cast<double>(total.value_or(0)) : start);
}

// ---- updates --------------------------------------------------------------------------------------------------------

void WeightAverage::join(Entry& entry) const {
  const at::Tensor source = own(entry).detach();
  const auto type = source.scalar_type();
  const bool narrow = entry.is_parameter && (type == at::kBFloat16 || type == at::kHalf);
  entry.average = at::empty_like(source, source.options().dtype(narrow ? at::kFloat : type));
  entry.average.copy_(source);
}

// A parameter that was frozen joins with its current value.
void WeightAverage::join_all() {
  bool joined = !averaged_;
  for (Entry& entry : entries_) {
    if (!entry.average.defined() && (!entry.is_parameter || entry.model.requires_grad())) [[unlikely]] {
      join(entry);
      joined = true;
    }
  }
  if (joined) [[unlikely]] {
    averaged_ = true;
    build_lists();
  }
}

void WeightAverage::build_lists() {
  lists_.clear();
  std::vector<const Entry*> firsts;
  for (const Entry& entry : entries_) {
    if (!entry.average.defined()) {
      continue;
    }
    const auto found = std::find_if(firsts.begin(), firsts.end(), [&](const Entry* first) {
      return first->moves == entry.moves && first->model.device() == entry.model.device() &&
             first->model.scalar_type() == entry.model.scalar_type() &&
             first->average.scalar_type() == entry.average.scalar_type();
    });
    const auto index = static_cast<std::size_t>(found - firsts.begin());
    if (found == firsts.end()) {
      firsts.push_back(&entry);
      lists_.push_back({.moves = entry.moves, .averages = {}, .values = {}});
    }
    lists_[index].averages.push_back(entry.average);
    lists_[index].values.push_back(entry.model);
  }
}

double WeightAverage::weight() const {
  const auto n = static_cast<double>(count_);
  if (!decay_ || count_ == 0) {
    return 1 / (n + 1);
  }
  return 1 - (warmup_ > 0 ? std::min(*decay_, (1 + n) / (warmup_ + n)) : *decay_);
}

// The same from a count on the device, which alone knows how many updates were skipped; 0 for a skipped update.
at::Tensor WeightAverage::weight_on_device(const at::Tensor& found_inf) {
  if (!device_count_.defined()) {
    device_count_ = at::full({}, static_cast<double>(count_), found_inf.options().dtype(at::kDouble));
  }
  at::Tensor out;
  if (!decay_) {
    out = (device_count_ + 1).reciprocal();
  } else {
    out = warmup_ > 0 ? 1 - ((device_count_ + 1) / (device_count_ + warmup_)).clamp_max(*decay_)
                      : at::full_like(device_count_, 1 - *decay_);
    out = at::where(device_count_ == 0, at::ones_like(out), out);
  }
  if (found_inf.defined()) {
    const at::Tensor taken = (found_inf.detach() == 0).to(at::kDouble).reshape(device_count_.sizes());
    out = out * taken;
    device_count_ = device_count_ + taken;
  } else {
    device_count_ = device_count_ + 1;
  }
  return out;
}

bool WeightAverage::update(const at::Tensor& found_inf) {
  check<StateError>(!applied_, averaging, "expected the model's weights, got the applied average; call restore()");
  ++updates_;
  if (updates_ <= start_ || (updates_ - start_) % interval_ != 0) {
    return false;
  }
  const at::NoGradGuard guard;
  join_all();
  const bool flagged = found_inf.defined() || device_count_.defined();
  const at::Tensor tensor_weight = flagged ? weight_on_device(found_inf) : at::Tensor();
  const bool on_host = !flagged || tensor_weight.is_cpu();
  const double host_weight = !flagged ? weight() : on_host ? tensor_weight.item<double>() : 0;
  for (List& list : lists_) {
    if (!list.moves) {
      at::_foreach_copy_(list.averages, list.values, /*non_blocking=*/true);
    } else if (on_host) {
      lerp_to(list.averages, list.values, host_weight);
    } else {
      lerp_to(list.averages, list.values, tensor_weight);
    }
  }
  ++count_;
  for (Entry& entry : entries_) {
    entry.narrowed.reset();
  }
  return true;
}

std::int64_t WeightAverage::count() const {
  return device_count_.defined() ? static_cast<std::int64_t>(device_count_.item<double>()) : count_;
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

void WeightAverage::apply() {
  if (applied_ || !averaged_) {
    return;
  }
  const at::NoGradGuard guard;
  for (Entry& entry : entries_) {
    if (entry.average.defined()) {
      if (!entry.narrowed.defined()) {
        entry.narrowed = entry.average.to(entry.model.scalar_type());  // the average itself if the dtypes are equal
      }
      entry.saved = copies_on_apply_ ? entry.model.detach().clone() : entry.model.detach();
      if (copies_on_apply_) {
        entry.model.detach().copy_(entry.narrowed);
      } else {
        entry.model.set_data(entry.narrowed);
      }
    }
  }
  applied_ = true;
}

void WeightAverage::restore() {
  const at::NoGradGuard guard;
  for (Entry& entry : entries_) {
    if (entry.saved.defined()) {
      if (copies_on_apply_) {
        entry.model.detach().copy_(entry.saved);
      } else {
        entry.model.set_data(entry.saved);
      }
      entry.saved.reset();
    }
  }
  applied_ = false;
}

State WeightAverage::weights() const {
  State::Map out;
  for (const auto& [name, index] : names_) {
    const Entry& entry = entries_[index];
    out.set(name, entry.average.defined() ? entry.average : own(entry).detach());
  }
  return out;
}

State WeightAverage::model_weights() const {
  State::Map out;
  for (const auto& [name, index] : names_) {
    out.set(name, own(entries_[index]).detach());
  }
  return out;
}

// ---- state ----------------------------------------------------------------------------------------------------------

State WeightAverage::state_dict() const {
  State out;
  out["weights"] = averaged_ ? weights() : State();
  out["n_averaged"] = device_count_.defined() ? State(device_count_.to(at::kLong)) : State(count_);
  out["updates"] = updates_;
  State::List left_out;
  for (const auto& [name, index] : names_) {
    if (averaged_ && !entries_[index].average.defined()) {
      left_out.emplace_back(name);
    }
  }
  out["left_out"] = std::move(left_out);
  return out;
}

void WeightAverage::load_state_dict(const State& state) {
  constexpr const char* loading = "optim.average.load_state_dict";
  const State* weights = state.is_map() ? state.find("weights") : nullptr;
  check<StateError>(weights != nullptr && (weights->is_map() || weights->is_null()), loading,
                    "expected a map with 'weights', got ", state.is_map() ? "none" : state.kind());
  std::vector<at::Tensor> given(entries_.size());
  if (weights->is_map()) {
    for (const auto& [name, index] : names_) {
      const State* found = weights->find(name);
      if (found == nullptr) {
        continue;  // tied to another name, or missing
      }
      check<StateError>(
          found->is_tensor() && found->tensor().sizes() == entries_[index].model.sizes(), loading,
          "expected the shape [", danling::detail::join(entries_[index].model.sizes()), "] of ", quote(name), ", got ",
          found->is_tensor() ? concat("[", danling::detail::join(found->tensor().sizes()), "]") : found->kind());
      given[index] = found->tensor();
    }
    for (const auto& [name, index] : names_) {
      check<StateError>(given[index].defined(), loading, "expected ", quote(name), ", got none");
    }
  }
  const at::NoGradGuard guard;
  const bool was_applied = applied_;
  restore();
  std::vector<bool> left_out(entries_.size(), false);
  const State* listed = state.find("left_out");
  for (const auto& [name, index] : names_) {
    left_out[index] =
        listed != nullptr && std::any_of(listed->items().begin(), listed->items().end(),
                                         [&name = name](const State& item) { return item.string() == name; });
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    entry.narrowed.reset();
    if (!given[i].defined() || left_out[i]) {
      entry.average.reset();
      continue;
    }
    // Older states do not list them: a frozen parameter that equals the model's value was left out.
    const bool follows = listed == nullptr && entry.is_parameter && !entry.model.requires_grad() &&
                         !entry.average.defined() &&
                         at::equal(entry.model.detach(), given[i].to(entry.model.options()));
    if (!follows) {
      if (!entry.average.defined()) {
        join(entry);
      }
      entry.average.copy_(given[i]);
    }
  }
  averaged_ = weights->is_map();
  build_lists();
  const State* count = state.find("n_averaged");
  device_count_.reset();
  count_ = count == nullptr     ? static_cast<std::int64_t>(averaged_)
           : count->is_tensor() ? count->tensor().item<std::int64_t>()
                                : count->integer();
  if (const State* updates = state.find("updates")) {
    updates_ = updates->integer();
  }
  if (was_applied) {
    apply();
  }
}

}  // namespace danling::inline v0::optim
