// Conversion of inputs to floating point in [0, 1], and normalization by channel.
#pragma once

#include <vector>

#include <c10/core/ScalarType.h>

#include <danling/data/transforms/compose.hpp>

namespace danling::inline v0::data::transforms {

/// Converts inputs to the floating-point dtype `dtype`. Divides integers by the maximum of their dtype (bytes: 255), in
/// float32 unless `dtype` is float64; keeps the values of floating-point inputs. For inputs of any shape. (torchvision:
/// ToDtype(dtype, scale=True))
/// @throws ConfigError for another dtype.
Transform to_float(c10::ScalarType dtype = c10::ScalarType::Float);

/// Computes (x - mean) / std with one pair per channel, or one for all. Converts integers to float32 first, as
/// `to_float`. (torchvision: Normalize) On the host, bytes and float32 take one pass, with the same bits as separate
/// steps.
/// @throws ConfigError for a std that is not above 0 or lists of different lengths; DataError, when it is called, for
/// images with another number of channels.
Transform normalize(std::vector<double> mean, std::vector<double> std);

}  // namespace danling::inline v0::data::transforms
