// A shuffled order of 0 .. n-1 that is computed, not stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace danling::inline v0::data {

/// Returns the key of an epoch's order: any change of seed, epoch or split yields an unrelated key.
std::uint64_t order_key(std::uint64_t seed, std::int64_t epoch, std::string_view split);

/// A keyed bijection of [0, size): an alternating Feistel network over a rectangle of at least `size` cells with nearly
/// equal sides, repeated until the result is below `size` (cycle walking). Constant memory, equal on every machine.
/// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002: generalised Feistel and cycle walking.)
class Permutation {
 public:
  /// @throws DataError when `size` is negative or above 2^62.
  Permutation(std::int64_t size, std::uint64_t key);

  std::int64_t size() const { return size_; }

  /// Returns the element at `index` in [0, size); undefined for other indices.
  std::int64_t operator()(std::int64_t index) const;

  /// Writes the elements at `begin`, `begin` + 1, ..., all below `size()`; much faster than single calls.
  void fill(std::int64_t begin, std::span<std::int64_t> to) const;

 private:
  static constexpr std::size_t max_rounds = 24;

  /// Encrypts `cell` until it is below `size()`.
  std::uint64_t walk(std::uint64_t cell) const;

  std::int64_t size_;
  std::uint64_t rows_ = 1;
  std::uint64_t columns_ = 1;
  std::size_t num_rounds_;  // even
  std::array<std::uint64_t, max_rounds> keys_{};
};

}  // namespace danling::inline v0::data
