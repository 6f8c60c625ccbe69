#include "runner/window_lengths.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace danling::inline v0::detail {

WindowLengths::WindowLengths(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {
  std::sort(lengths_.begin(), lengths_.end());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

bool WindowLengths::closes_any(std::int64_t done) const {
  return std::any_of(lengths_.begin(), lengths_.end(), [&](std::int64_t length) { return done % length == 0; });
}

std::int64_t WindowLengths::steps_in(std::int64_t micro_batches) const {
  if (lengths_.size() == 1) {
    return (micro_batches + lengths_.front() - 1) / lengths_.front();
  }
  std::int64_t steps = 0;
  for (std::int64_t done = 1; done <= micro_batches; ++done) {
    steps += done == micro_batches || closes_any(done) ? 1 : 0;
  }
  return steps;
}

std::int64_t WindowLengths::updates_in(std::int64_t steps, std::int64_t own,
                                       const std::vector<std::int64_t>& passes) const {
  if (lengths_.size() == 1 && lengths_.front() == own) {
    return steps;
  }
  std::int64_t updates = 0;
  std::int64_t done = 0;  // of this pass
  std::size_t pass = 0;
  for (std::int64_t step = 0; step < steps;) {
    ++done;
    const bool last = !passes.empty() && done >= passes[pass];
    const bool counts = last || closes_any(done);
    step += counts ? 1 : 0;
    updates += last || done % own == 0 || (counts && step == steps) ? 1 : 0;
    if (last) {
      done = 0;
      pass = (pass + 1) % passes.size();
    }
  }
  return updates;
}

}  // namespace danling::inline v0::detail
