// One-hot labels, and transforms that mix the samples of a batch.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include <danling/data/transforms/compose.hpp>

namespace danling::inline v0::data::transforms {

/// Converts targets [N] of class indices to one-hot [N, num_classes]. Checks labels on the host; a device reports an
/// invalid one later.
/// @throws ConfigError for less than one class; DataError, when it is called, for targets of another shape or dtype,
/// and on the host for a label outside of [0, num_classes), with its sample.
Transform one_hot(std::int64_t num_classes, c10::ScalarType dtype = c10::ScalarType::Float);

struct MixOptions {
  /// Parameter of the Beta(alpha, alpha) distribution of the mixing weight, drawn once per batch.
  double alpha = 1.0;
  /// 0: targets are already probabilities, [N, classes].
  std::int64_t num_classes = 0;
};

/// Mixes each sample with the one before it (the first with the last) by a random weight; targets become probabilities
/// [N, classes], mixed with the same weight. The draw depends on the batch's position in the epoch, so only the mixing
/// depends on batch size and number of processes. For floating-point inputs of any shape. (torchvision: MixUp; Zhang et
/// al., "mixup: Beyond empirical risk minimization", 2017)
/// @throws ConfigError for invalid options; DataError as `one_hot`.
Transform mixup(MixOptions options = {});

/// Pastes a rectangle of the previous image into each image, the same rectangle in the whole batch; targets become
/// probabilities by the rectangle's share. (torchvision: CutMix; Yun et al., "CutMix", 2019)
/// @throws as `mixup`.
Transform cutmix(MixOptions options = {});

}  // namespace danling::inline v0::data::transforms
