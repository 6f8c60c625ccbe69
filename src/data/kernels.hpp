// Loops over plain memory for datasets and transforms: gather rows, scale numbers, move pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace danling::inline v0::data::kernels {

// Every product, sum and quotient below is rounded to float32 separately, never fused: the same bits on every machine.

/// to[i] = from[i] * scale + shift.
void affine(const std::uint8_t* from, float* to, std::size_t count, float scale, float shift);
void affine(const float* from, float* to, std::size_t count, float scale, float shift);

/// to[i] = (from[i] * scale - mean) / std.
void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale, float mean, float std);
/// to[i] = (from[i] - mean) / std.
void normalize(const float* from, float* to, std::size_t count, float mean, float std);

/// Gathers the rows `indices`, of `row_size` numbers each, from `base` to `to`, and scales them.
void gather_affine(const std::uint8_t* base, std::size_t row_size, std::span<const std::int64_t> indices, float* to,
                   float scale, float shift);
void gather_affine(const float* base, std::size_t row_size, std::span<const std::int64_t> indices, float* to,
                   float scale, float shift);

/// Gathers the rows `indices`, of `row_bytes` bytes each, from `base` to `to`.
void gather(const std::byte* base, std::size_t row_bytes, std::span<const std::int64_t> indices, std::byte* to);

/// `rows` rows of `count` items of `item` bytes (1, 2, 4, 8 or 16). Rows are `from_stride` and `to_stride` bytes apart.
/// Source items in a row are `step` items apart: 1, -1, or 0 for `count` copies of one item.
struct Block {
  const std::byte* from;
  std::ptrdiff_t from_stride;
  std::byte* to;
  std::ptrdiff_t to_stride;
  std::size_t rows;
  std::size_t count;
  std::size_t item;
  std::int64_t step;
};
void copy(const Block& block);

}  // namespace danling::inline v0::data::kernels
