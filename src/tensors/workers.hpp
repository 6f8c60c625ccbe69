// Parallel loops on LibTorch's threads. (at::parallel_for is a template: a library compiled without OpenMP runs it
// serially.)
#pragma once

#include <cstdint>

#include <c10/util/FunctionRef.h>

namespace danling::inline v0::tensors {

/// Calls `work(begin, end)` for ranges that cover [0, count), on at most at::get_num_threads() threads; on the calling
/// thread alone for fewer than `grain` items. Rethrows exceptions.
void for_each_range(std::int64_t count, std::int64_t grain, c10::function_ref<void(std::int64_t, std::int64_t)> work);

}  // namespace danling::inline v0::tensors
