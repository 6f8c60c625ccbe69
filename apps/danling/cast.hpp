// Elements of one type as elements of another, as LibTorch converts them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <danling/formats/tensor_record.hpp>

namespace danling_command {

/// The floating-point type called `name` (float32, fp32, bf16 ...). @throws danling::ConfigError that lists the names
danling::formats::DType floating_dtype(const std::string& name);
bool is_floating(danling::formats::DType dtype);

/// `elements` of `from` as elements of `to`, both floating-point. Valid until the next call with the same `buffer`.
std::span<const std::byte> cast_elements(std::span<const std::byte> elements, danling::formats::DType from,
                                         danling::formats::DType to, std::vector<std::byte>& buffer);

}  // namespace danling_command
