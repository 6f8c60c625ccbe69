// MNIST and the data sets that come in its four files (Fashion-MNIST, KMNIST, the digits of examples/mnist).
#pragma once

#include <filesystem>
#include <memory>

#include <danling/data/tensor_dataset.hpp>

namespace danling::inline v0::data {

enum class Part { train, test };

struct MnistOptions {
  /// Pixels become (p / 255 - mean) / std; without it p / 255.
  bool normalize = true;
  /// Of MNIST's training images.
  double mean = 0.1307;
  double std = 0.3081;
  /// Inputs of [N, 784] instead of [N, 1, 28, 28].
  bool flatten = false;
};

/// The images (float32) and labels (int64 [N]) of a part. Reads `train-images-idx3-ubyte` and
/// `train-labels-idx1-ubyte`, or `t10k-...` for the test part, in `root`; `.idx3-ubyte` and a further `.gz` are found
/// too. `split()` is "train" or "test".
/// @throws DataError when a file is missing (it lists what was looked for), damaged, or the two do not fit.
std::shared_ptr<TensorDataset> mnist(const std::filesystem::path& root, Part part, const MnistOptions& options = {});

}  // namespace danling::inline v0::data
