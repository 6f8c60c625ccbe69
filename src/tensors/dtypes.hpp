// LibTorch's element types and those of the file format.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0 {

/// The file's type for a LibTorch type, or nothing when files cannot hold it.
std::optional<formats::DType> to_file_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(formats::DType dtype);

}  // namespace danling::inline v0
