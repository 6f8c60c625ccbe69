// A dataset in memory: tensors whose first dimension counts records.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/dataset.hpp>

namespace danling::inline v0::data {

/// `input * scale + shift` in float32. All four numbers, the product and the sum are rounded separately, so that every
/// machine and device computes the same bits.
struct Affine {
  double scale = 1.0;
  double shift = 0.0;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct TensorDatasetOptions {
  /// Applied to each batch's input, which may then be stored in a small dtype (uint8 images).
  std::optional<Affine> input_transform = {};
  /// Other tensors with as many records, batched under their names; dots nest names.
  std::vector<NamedTensor> extra = {};
  std::string split = {};
};

/// Gathers batches from tensors, on any device; batches are on the same device.
class TensorDataset : public Dataset<Batch> {
 public:
  /// `input` [N, ...], `target` [N, ...] or undefined. @throws DataError when the numbers of records differ.
  explicit TensorDataset(at::Tensor input, at::Tensor target = {}, TensorDatasetOptions options = {});

  std::int64_t size() const override { return input_.size(0); }
  /// @throws DataError when an index is not in [0, size()).
  Batch get_batch(std::span<const std::int64_t> indices) override;
  std::string split() const override { return options_.split; }

  /// Returns the input as stored, before `input_transform`.
  const at::Tensor& input() const { return input_; }
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor input_;
  at::Tensor target_;
  TensorDatasetOptions options_;
};

}  // namespace danling::inline v0::data
