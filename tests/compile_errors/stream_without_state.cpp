// expect: a stream needs `danling::State state_dict() const` and `void load_state_dict(const danling::State&)`
#include <danling/data/loader.hpp>

namespace stream_without_state {

struct Counter {
  std::optional<at::Tensor> next(std::int64_t num_samples);
  void reset(std::int64_t epoch);
#ifndef WRONG
  danling::State state_dict() const;
  void load_state_dict(const danling::State& state);
#endif
};

void use(danling::data::Source<at::Tensor>& split) { split = Counter(); }

}  // namespace stream_without_state
