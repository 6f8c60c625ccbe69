// MNIST, Fashion-MNIST, and other datasets in the same four files (KMNIST, the digits of examples/mnist).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <danling/data/tensor_dataset.hpp>

namespace danling::inline v0::data {

enum class DatasetSplit { train, test };
using Part [[deprecated("use DatasetSplit")]] = DatasetSplit;

struct MnistOptions {
  /// Converts pixels to (p / 255 - mean) / std; otherwise to p / 255.
  bool normalize = true;
  /// Mean of MNIST's training images.
  double mean = 0.1307;
  double std = 0.3081;
  /// Returns inputs [N, 784] instead of [N, 1, 28, 28].
  bool flatten = false;
};

struct FashionMnistOptions {
  bool normalize = true;
  /// Mean of Fashion-MNIST's training images.
  double mean = 0.2860;
  double std = 0.3530;
  bool flatten = false;
};

/// Returns images (float32) and labels (int64 [N]) of a part. Reads `train-images-idx3-ubyte` and
/// `train-labels-idx1-ubyte`, or `t10k-...` for the test part, in `root` or its `MNIST/raw`, as torchvision stores
/// them; also accepts `.idx3-ubyte` and an additional `.gz`. `split()` is "train" or "test".
/// @throws DataError when a file is missing (with the names tried) or damaged, when their numbers of records differ,
/// and for labels above 9, with file and record.
std::shared_ptr<TensorDataset> mnist(const std::filesystem::path& root, DatasetSplit part,
                                     const MnistOptions& options = {});

/// The same for Fashion-MNIST, in `root` or its `FashionMNIST/raw`.
std::shared_ptr<TensorDataset> fashion_mnist(const std::filesystem::path& root, DatasetSplit part,
                                             const FashionMnistOptions& options = {});

struct IdxDatasetOptions {
  /// Transform of the input, such as {1.0 / 255.0} for pixels.
  std::optional<Affine> input_transform = {};
  /// Labels must be in [0, num_classes); not checked if unset.
  std::optional<std::int64_t> num_classes = {};
  std::string split = {};
};

/// Reads a pair of IDX files, gzipped or not, into memory: `images` [N, ...] as stored, `labels` [N, ...] with integers
/// as int64; no target if `labels` is empty.
/// @throws DataError as mnist; ConfigError for `num_classes` without labels.
std::shared_ptr<TensorDataset> idx_dataset(const std::filesystem::path& images,
                                           const std::filesystem::path& labels = {},
                                           const IdxDatasetOptions& options = {});

}  // namespace danling::inline v0::data
