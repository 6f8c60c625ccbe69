// parallel_for: a parallel loop over items.
#pragma once

#include <cstddef>
#include <functional>

namespace danling::inline v0::formats {

/// Calls `work` with 0 to `count` - 1 on at most `threads` threads, including the calling one, and at most one thread
/// per core. Items start in order. Rethrows the exception of the first failing item; later items may not start.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

}  // namespace danling::inline v0::formats
