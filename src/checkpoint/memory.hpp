// Allocates memory for file contents; errors name the file.
#pragma once

#include <filesystem>
#include <new>
#include <string_view>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// Returns the result of `read`. @throws CheckpointError that names `path` and `what` when memory is insufficient
template <class Read>
auto with_memory(const std::filesystem::path& path, std::string_view what, Read read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    fail<CheckpointError>("checkpoint.read", "expected memory for ", what, ", got none (file ", quote(path.string()),
                          ")");
  }
}

/// An uninitialised tensor on the CPU. @throws std::bad_alloc instead of LibTorch's error
inline at::Tensor take_memory(at::IntArrayRef sizes, at::ScalarType dtype) {
  try {
    return at::empty(sizes, at::TensorOptions().dtype(dtype));
  } catch (const c10::Error&) {
    throw std::bad_alloc();
  }
}

}  // namespace danling::inline v0
