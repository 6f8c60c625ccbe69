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

/// `input * scale + shift` in float32: all four numbers, the product and the sum are rounded to it one by one, so that
/// every machine and device computes the same bits.
struct Affine {
  double scale = 1.0;
  double shift = 0.0;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct TensorDatasetOptions {
  /// Applied to each batch's input, which may then be stored in a small type (uint8 images).
  std::optional<Affine> input_transform = {};
  /// Further tensors with as many records, batched under their names; dots nest them.
  std::vector<NamedTensor> extra = {};
  std::string split = {};
};

/// Batches gathered from tensors. They may be on any device; batches are on the same.
class TensorDataset : public Dataset<Batch> {
 public:
  /// `input` [N, ...], `target` [N, ...] or undefined. @throws DataError when the numbers of records differ.
  explicit TensorDataset(at::Tensor input, at::Tensor target = {}, TensorDatasetOptions options = {});

  std::int64_t size() const override { return input_.size(0); }
  /// @throws DataError when an index is not in [0, size()).
  Batch get_batch(std::span<const std::int64_t> indices) override;
  std::string split() const override { return options_.split; }

  /// As stored, before `input_transform`.
  const at::Tensor& input() const { return input_; }
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor input_;
  at::Tensor target_;
  TensorDatasetOptions options_;
};

}  // namespace danling::inline v0::data
