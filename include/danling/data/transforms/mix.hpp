// Labels as probabilities, and transforms that mix the samples of a batch.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include <danling/data/transforms/compose.hpp>

namespace danling::inline v0::data::transforms {

/// Targets [N] of class numbers as [N, num_classes] with a one in each row. Labels are checked on the host; a device
/// reports an invalid one later. @throws ConfigError for less than one class; DataError, when it is called,
/// for targets of another shape or type, and on the host for a label outside [0, num_classes), with its sample.
Transform one_hot(std::int64_t num_classes, c10::ScalarType dtype = c10::ScalarType::Float);

struct MixOptions {
  /// Parameter of the Beta(alpha, alpha) distribution of the weight, which is drawn once per batch.
  double alpha = 1.0;
  /// 0: targets are probabilities already, [N, classes].
  std::int64_t num_classes = 0;
};

/// Adds to each sample, weighted, the one before it (to the first the last); targets become probabilities
/// [N, classes], mixed likewise. The draw depends on the batch's place in the epoch: only mixing changes with the batch
/// size and the number of processes. For floating point inputs of any shape.
/// (torchvision: MixUp; Zhang et al., "mixup: Beyond empirical risk minimization", 2017)
/// @throws ConfigError for invalid options; DataError as `one_hot`.
Transform mixup(MixOptions options = {});

/// Puts a rectangle of the image before it into each image, the same in a batch; targets become probabilities by the
/// rectangle's share. (torchvision: CutMix; Yun et al., "CutMix", 2019) Throws as `mixup`.
Transform cutmix(MixOptions options = {});

}  // namespace danling::inline v0::data::transforms
