// Conversion between LibTorch's dtypes and those of the file format.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0 {

/// Returns the file's dtype for a LibTorch dtype; nullopt if files cannot store it.
std::optional<formats::DType> to_file_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(formats::DType dtype);

}  // namespace danling::inline v0
