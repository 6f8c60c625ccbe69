#include <danling/data/sampler.hpp>

namespace danling::inline v0::data {

namespace {

State describe(const char* type, std::int64_t size) {
  State state;
  state["type"] = type;
  state["size"] = size;
  return state;
}

void check_kind(const State& state, std::string_view type, std::int64_t size) {
  const std::string& saved = state.at("type").string();
  check<StateError>(saved == type, "data.sampler", "expected the state of a ", type, " sampler, got that of a ", saved,
                    " sampler; the order of records (shuffle) must be the one that the state was saved with");
  const std::int64_t saved_size = state.at("size").integer();
  check<StateError>(saved_size == size, "data.sampler", "expected a state of ", size, " records, got one of ",
                    saved_size);
}

}  // namespace

Sampler::~Sampler() = default;

void SequentialSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  for (auto& index : indices) {
    index = position++;
  }
}

State SequentialSampler::state_dict() const { return describe("sequential", size_); }

void SequentialSampler::load_state_dict(const State& state) { check_kind(state, "sequential", size_); }

RandomSampler::RandomSampler(std::int64_t size, std::uint64_t seed, std::string split)
    : seed_(seed), split_(std::move(split)), order_(size, order_key(seed, 0, split_)) {}

void RandomSampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  order_ = Permutation(order_.size(), order_key(seed_, epoch, split_));
}

void RandomSampler::fill(std::int64_t position, std::span<std::int64_t> indices) const {
  for (auto& index : indices) {
    index = order_(position++);
  }
}

State RandomSampler::state_dict() const {
  State state = describe("random", size());
  state["seed"] = static_cast<std::int64_t>(seed_);  // the same 64 bits
  state["split"] = split_;
  return state;
}

void RandomSampler::load_state_dict(const State& state) {
  check_kind(state, "random", size());
  const std::int64_t seed = state.at("seed").integer();
  split_ = state.at("split").string();
  seed_ = static_cast<std::uint64_t>(seed);
  set_epoch(epoch_);
}

}  // namespace danling::inline v0::data
