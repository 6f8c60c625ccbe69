#include <danling/data/sampler.hpp>

#include <algorithm>

#include <danling/core/error.hpp>
#include <danling/data/random.hpp>

#include <data/sampler_state.hpp>

namespace danling::inline v0::data {

Sampler::~Sampler() = default;

void SequentialSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  for (auto& index : indices) {
    index = position++;
  }
}

State SequentialSampler::state_dict() const { return detail::sampler_state("sequential", size_); }

void SequentialSampler::load_state_dict(const State& state) { detail::check_sampler_state(state, "sequential", size_); }

RandomSampler::RandomSampler(std::int64_t size, RandomSamplerOptions options)
    : options_(std::move(options)),
      num_samples_(options_.num_samples.value_or(size)),
      key_(order_key(options_.seed, 0, options_.split)),
      order_(size, key_) {
  check<DataError>(num_samples_ >= 0, "data.random_sampler", "expected num_samples of at least 0, got ", num_samples_);
  check<DataError>(size > 0 || num_samples_ == 0, "data.random_sampler", "expected records to draw ", num_samples_,
                   " samples from, got none");
}

void RandomSampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  key_ = order_key(options_.seed, epoch, options_.split);
  order_ = Permutation(order_.size(), key_);
}

void RandomSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  if (options_.replacement) {
    const RandomKey key = RandomKey::of(key_);
    for (auto& index : indices) {
      index = Random(key.fold_in(static_cast<std::uint64_t>(position++))).randint(order_.size());
    }
    return;
  }
  while (!indices.empty()) {
    const std::int64_t pass = position / order_.size();
    const std::int64_t within = position % order_.size();
    const auto count = std::min(indices.size(), static_cast<std::size_t>(order_.size() - within));
    if (pass == 0) {
      order_.fill(within, indices.first(count));
    } else {
      Permutation(order_.size(), order_key(key_, pass, "danling.data.pass")).fill(within, indices.first(count));
    }
    indices = indices.subspan(count);
    position += static_cast<std::int64_t>(count);
  }
}

State RandomSampler::state_dict() const {
  State state = detail::sampler_state("random", size());
  state["records"] = order_.size();
  state["replacement"] = options_.replacement;
  state["seed"] = static_cast<std::int64_t>(options_.seed);  // the same 64 bits
  state["split"] = options_.split;
  return state;
}

void RandomSampler::load_state_dict(const State& state) {
  detail::check_sampler_state(state, "random", size());
  detail::check_same(state, "records", order_.size(), "number of records");
  detail::check_replacement(state, options_.replacement);
  const std::int64_t seed = state.at("seed").integer();
  const std::string& split = state.at("split").string();
  options_.seed = static_cast<std::uint64_t>(seed);
  options_.split = split;
  set_epoch(epoch_);
}

}  // namespace danling::inline v0::data
