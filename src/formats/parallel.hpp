// The same work for many items, on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace danling::inline v0::formats {

/// Calls `work` with 0 to `count` - 1, on at most `threads` threads, the calling one among them, and at most one for
/// each core. Items are begun in order. Throws what the first failing item threw; items after it may not be begun.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

}  // namespace danling::inline v0::formats
