#include <danling/data/subset_sampler.hpp>

#include <algorithm>
#include <utility>

#include <danling/core/error.hpp>

#include <data/sampler_state.hpp>

namespace danling::inline v0::data {

namespace {

bool has_twice(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

}  // namespace

SubsetSampler::SubsetSampler(std::vector<std::int64_t> indices, SubsetSamplerOptions options)
    : options_(std::move(options)),
      indices_(std::move(indices)),
      repeats_(has_twice(indices_)),
      fingerprint_(detail::fingerprint_of(indices_)),
      order_(size(), order_key(options_.seed, 0, options_.split)) {
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    check<DataError>(indices_[i] >= 0, "data.subset_sampler", "expected indices of at least 0, got ", indices_[i],
                     " at position ", i);
  }
}

void SubsetSampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  order_ = Permutation(size(), order_key(options_.seed, epoch, options_.split));
}

void SubsetSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  if (!options_.shuffle) {
    std::copy_n(indices_.begin() + position, indices.size(), indices.begin());
    return;
  }
  order_.fill(position, indices);
  for (auto& index : indices) {
    index = indices_[static_cast<std::size_t>(index)];
  }
}

State SubsetSampler::state_dict() const {
  State state = detail::sampler_state("subset", size());
  state["indices"] = fingerprint_;
  state["shuffle"] = options_.shuffle;
  state["seed"] = static_cast<std::int64_t>(options_.seed);  // the same 64 bits
  state["split"] = options_.split;
  return state;
}

void SubsetSampler::load_state_dict(const State& state) {
  detail::check_sampler_state(state, "subset", size());
  detail::check_same(state, "indices", fingerprint_, "indices");
  const bool shuffle = state.at("shuffle").boolean();
  check<StateError>(shuffle == options_.shuffle, "data.sampler",
                    "expected the state of a sampler with shuffle: ", options_.shuffle,
                    ", got one with shuffle: ", shuffle);
  const std::int64_t seed = state.at("seed").integer();
  const std::string& split = state.at("split").string();
  options_.seed = static_cast<std::uint64_t>(seed);
  options_.split = split;
  set_epoch(epoch_);
}

}  // namespace danling::inline v0::data
