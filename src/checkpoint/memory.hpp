// Memory for what a file holds, or an error that names the file.
#pragma once

#include <filesystem>
#include <new>
#include <string_view>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// What `read` gives. @throws CheckpointError that names `path` and `what` the memory was for when there is none
template <class Read>
auto with_memory(const std::filesystem::path& path, std::string_view what, Read read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    fail<CheckpointError>("checkpoint.read", "expected memory for ", what, ", got none (file ", quote(path.string()),
                          ")");
  }
}

/// A tensor on the CPU whose elements are not set. @throws std::bad_alloc where LibTorch throws an error of its own
inline at::Tensor take_memory(at::IntArrayRef sizes, at::ScalarType dtype) {
  try {
    return at::empty(sizes, at::TensorOptions().dtype(dtype));
  } catch (const c10::Error&) {
    throw std::bad_alloc();
  }
}

}  // namespace danling::inline v0
