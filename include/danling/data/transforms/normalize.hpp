// Inputs as floating point in [0, 1], and normalised by channel.
#pragma once

#include <vector>

#include <c10/core/ScalarType.h>

#include <danling/data/transforms/compose.hpp>

namespace danling::inline v0::data::transforms {

/// Inputs as `dtype`, a floating point type. Integers are divided by the largest number of their type (bytes: 255),
/// in float32 unless `dtype` is float64; floating point numbers keep their values. For inputs of any shape.
/// (torchvision: ToDtype(dtype, scale=True)) @throws ConfigError for another dtype.
Transform to_float(c10::ScalarType dtype = c10::ScalarType::Float);

/// (x - mean) / std for each channel, or one pair for all. Integers are first made float32 as by `to_float`.
/// (torchvision: Normalize) On the host in one pass for bytes and float32, with the same bits as in steps.
/// @throws ConfigError for a std that is not above 0 or lists that differ in length; DataError, when it is called, for
/// images with another number of channels.
Transform normalize(std::vector<double> mean, std::vector<double> std);

}  // namespace danling::inline v0::data::transforms
