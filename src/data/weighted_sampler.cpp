#include <danling/data/weighted_sampler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <danling/core/error.hpp>

#include <data/sampler_state.hpp>

namespace danling::inline v0::data {

namespace {

std::int64_t count_positive(const std::vector<double>& weights) {
  std::int64_t positive = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    check<DataError>(std::isfinite(weights[i]) && weights[i] >= 0.0, "data.weighted_sampler",
                     "expected weights of at least 0, got ", weights[i], " for record ", i);
    positive += weights[i] > 0.0 ? 1 : 0;
  }
  check<DataError>(positive > 0, "data.weighted_sampler", "expected a weight above 0, got none in ", weights.size());
  return positive;
}

// Uniform in [0, 1): one number per key.
double uniform_of(RandomKey key) { return Random(key).uniform(); }

}  // namespace

WeightedSampler::WeightedSampler(std::vector<double> weights, WeightedSamplerOptions options)
    : options_(std::move(options)),
      num_records_(static_cast<std::int64_t>(weights.size())),
      fingerprint_(detail::fingerprint_of(weights)) {
  const std::int64_t positive = count_positive(weights);
  num_samples_ = options_.num_samples.value_or(options_.replacement ? num_records_ : positive);
  check<DataError>(num_samples_ >= 0, "data.weighted_sampler", "expected num_samples of at least 0, got ",
                   num_samples_);
  check<DataError>(options_.replacement || num_samples_ <= positive, "data.weighted_sampler",
                   "expected num_samples of at most ", positive, ", the weights above 0, got ", num_samples_,
                   "; draw more with replacement");
  if (options_.replacement) {
    build_table(weights);
  } else {
    weights_ = std::move(weights);
  }
  set_epoch(0);
}

// Uses integers, without rounding residues: a residue would be drawn regardless of its weight.
void WeightedSampler::build_table(const std::vector<double>& weights) {
  using Wide = unsigned __int128;
  const double largest = *std::max_element(weights.begin(), weights.end());
  const auto records = static_cast<std::uint64_t>(num_records_);
  std::vector<Wide> mass(weights.size());  // mass of each slot: `full` on average
  Wide full = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double scaled = std::round(std::ldexp(weights[i] / largest, 52));
    const std::uint64_t whole = weights[i] > 0.0 ? std::max(static_cast<std::uint64_t>(scaled), std::uint64_t{1}) : 0;
    mass[i] = Wide(whole) * records;
    full += whole;
  }
  table_.resize(weights.size());
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    (mass[i] < full ? small : large).push_back(static_cast<std::int64_t>(i));
  }
  while (!small.empty()) {
    const auto less = static_cast<std::size_t>(small.back());
    const auto more = static_cast<std::size_t>(large.back());
    small.pop_back();
    const double own = static_cast<double>(mass[less]) / static_cast<double>(full);
    table_[less] = {
        own < 1.0 ? static_cast<std::uint64_t>(std::ldexp(own, 64)) : std::numeric_limits<std::uint64_t>::max(),
        large.back()};
    mass[more] -= full - mass[less];
    if (mass[more] < full) {
      large.pop_back();
      small.push_back(static_cast<std::int64_t>(more));
    }
  }
  for (const std::int64_t i : large) {
    table_[static_cast<std::size_t>(i)] = {0, i};
  }
}

// For u uniform in (0, 1), -log(u) / w is the waiting time for the first event of a process with rate w; records are
// sorted by this time. Equals sorting by u^(1/w) descending, without its underflow.
void WeightedSampler::order_records() {
  std::vector<std::pair<double, std::int64_t>> times;
  times.reserve(weights_.size());
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0.0) {
      // In logarithms, because a quotient by a tiny weight is infinite. uniform() may be 0, 1 - uniform() is not.
      const double waits = -std::log1p(-uniform_of(key_.fold_in(i)));
      times.emplace_back(std::log(waits) - std::log(weights_[i]), static_cast<std::int64_t>(i));
    }
  }
  const auto end = times.begin() + num_samples_;
  if (end != times.end()) {
    std::nth_element(times.begin(), end, times.end());
  }
  std::sort(times.begin(), end);
  order_.resize(static_cast<std::size_t>(num_samples_));
  std::transform(times.begin(), end, order_.begin(), [](const auto& entry) { return entry.second; });
}

void WeightedSampler::set_epoch(std::int64_t epoch) {
  const RandomKey key = RandomKey::of(order_key(options_.seed, epoch, options_.split));
  const bool same = key == key_ && !order_.empty();
  epoch_ = epoch;
  key_ = key;
  if (!options_.replacement && !same) {
    order_records();
  }
}

void WeightedSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  if (!options_.replacement) {
    std::copy_n(order_.begin() + position, indices.size(), indices.begin());
    return;
  }
  for (auto& index : indices) {
    const RandomKey bits = key_.fold_in(static_cast<std::uint64_t>(position++));
    const std::uint64_t draw = (std::uint64_t{bits.high} << 32) | bits.low;
    // The integer part selects the slot, the fraction selects between the slot's two records.
    const unsigned __int128 product = static_cast<unsigned __int128>(draw) * table_.size();
    const auto slot = static_cast<std::size_t>(product >> 64);
    const bool itself = static_cast<std::uint64_t>(product) < table_[slot].threshold;
    index = itself ? static_cast<std::int64_t>(slot) : table_[slot].alias;
  }
}

State WeightedSampler::state_dict() const {
  State state = detail::sampler_state("weighted", size());
  state["weights"] = fingerprint_;
  state["replacement"] = options_.replacement;
  state["seed"] = static_cast<std::int64_t>(options_.seed);  // the same 64 bits
  state["split"] = options_.split;
  return state;
}

void WeightedSampler::load_state_dict(const State& state) {
  detail::check_sampler_state(state, "weighted", size());
  detail::check_same(state, "weights", fingerprint_, "weights");
  detail::check_replacement(state, options_.replacement);
  const std::int64_t seed = state.at("seed").integer();
  const std::string& split = state.at("split").string();
  options_.seed = static_cast<std::uint64_t>(seed);
  options_.split = split;
  set_epoch(epoch_);
}

std::vector<double> balanced_weights(std::span<const std::int64_t> labels) {
  std::unordered_map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t label : labels) {
    ++counts[label];
  }
  std::vector<double> weights;
  weights.reserve(labels.size());
  for (const std::int64_t label : labels) {
    weights.push_back(1.0 / static_cast<double>(counts[label]));
  }
  return weights;
}

std::vector<double> balanced_weights(const at::Tensor& labels) {
  check<DataError>(labels.defined() && labels.dim() == 1 && at::isIntegralType(labels.scalar_type(), true),
                   "data.balanced_weights", "expected integral labels of shape [N], got ",
                   labels.defined() ? concat(c10::toString(labels.scalar_type()), " [", join(labels.sizes()), "]")
                                    : std::string("none"));
  const at::Tensor flat = labels.to(at::Device(at::kCPU), at::kLong).contiguous();
  return balanced_weights(
      std::span<const std::int64_t>(flat.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(flat.numel())));
}

}  // namespace danling::inline v0::data
