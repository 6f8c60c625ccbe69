// Arrays in memory or mapped, whose first dimension counts records, and the dataset that gathers batches from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/dataset.hpp>
#include <danling/formats/detail/mapped_file.hpp>
#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::data {

/// One array. Elements need no alignment.
struct RecordArray {
  /// Name in the batch: `input`, `target`, or the name in `extra`.
  std::string name;
  /// Path of the file, for messages and `source_info`.
  std::string path;
  /// Name within the file; empty if the file has one array.
  std::string member;
  std::span<const std::byte> bytes;
  formats::DType dtype = formats::DType::float32;
  /// Sizes; at least one.
  std::vector<std::int64_t> sizes;
  bool fortran_order = false;
  bool swapped = false;
  /// Owns the bytes; `file` is set if they are mapped, so that its size can be checked.
  std::shared_ptr<const formats::MappedFile> file;
  std::shared_ptr<const void> memory;

  /// `file 'x', array 'y'`
  std::string source() const;
  /// Returns the records at `indices`, all in range.
  at::Tensor gather(std::span<const std::int64_t> indices) const;
};

/// Gathers batches from arrays. @throws DataError with both arrays when they do not fit together.
class RecordDataset final : public Dataset<Batch> {
 public:
  RecordDataset(std::string where, std::vector<RecordArray> arrays, std::string split);

  std::int64_t size() const override { return arrays_.front().sizes.front(); }
  Batch get_batch(std::span<const std::int64_t> indices) override;
  State source_info(std::int64_t index) const override;
  std::string split() const override { return split_; }

 private:
  std::string where_;
  std::vector<RecordArray> arrays_;
  std::string split_;
};

/// Throws unless all indices are in [0, size).
void check_indices(std::span<const std::int64_t> indices, std::int64_t size, std::string_view where);

}  // namespace danling::inline v0::data
