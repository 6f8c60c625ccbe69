// Converts elements of one type to another by LibTorch.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling_command {

/// Returns the floating-point type called `name` (float32, fp32, bf16 ...). @throws danling::ConfigError, which lists
/// the names
danling::formats::DType floating_dtype(const std::string& name);
bool is_floating(danling::formats::DType dtype);

/// Converts elements of type `from` to `to`, both floating-point. The result is valid until the next call with the same
/// `buffer`.
std::span<const std::byte> cast_elements(std::span<const std::byte> elements, danling::formats::DType from,
                                         danling::formats::DType to, std::vector<std::byte>& buffer);

}  // namespace danling_command
