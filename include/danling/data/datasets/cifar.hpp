// CIFAR-10 and CIFAR-100 in their binary format.
#pragma once

#include <array>
#include <filesystem>
#include <memory>

#include <danling/data/datasets/mnist.hpp>
#include <danling/data/tensor_dataset.hpp>

namespace danling::inline v0::data {

struct Cifar10Options {
  /// Converts pixels to (p / 255 - mean) / std by channel; otherwise to p / 255.
  bool normalize = true;
  /// Means of CIFAR-10's training images: red, green, blue.
  std::array<double, 3> mean = {0.4914, 0.4822, 0.4465};
  std::array<double, 3> std = {0.2470, 0.2435, 0.2616};
};

struct Cifar100Options {
  bool normalize = true;
  /// Means of CIFAR-100's training images: red, green, blue.
  std::array<double, 3> mean = {0.5071, 0.4865, 0.4409};
  std::array<double, 3> std = {0.2673, 0.2564, 0.2762};
  /// Uses the 20 coarse classes instead of the 100 fine ones.
  bool coarse = false;
};

/// Returns images, float32 [N, 3, 32, 32], stored as bytes (`input()`), and labels, int64 [N]. Reads `data_batch_1.bin`
/// to `data_batch_5.bin`, or `test_batch.bin`, in `root` or its `cifar-10-batches-bin`.
/// @throws DataError when a file is missing or does not contain whole records, and for invalid labels, with file and
/// record.
std::shared_ptr<TensorDataset> cifar10(const std::filesystem::path& root, DatasetSplit part,
                                       const Cifar10Options& options = {});

/// The same for `train.bin` or `test.bin`, in `root` or its `cifar-100-binary`.
std::shared_ptr<TensorDataset> cifar100(const std::filesystem::path& root, DatasetSplit part,
                                        const Cifar100Options& options = {});

}  // namespace danling::inline v0::data
