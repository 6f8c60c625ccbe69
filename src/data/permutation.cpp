#include <danling/data/permutation.hpp>

#include <cmath>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15;

// A bijection of 64-bit numbers in which every input bit affects every output bit: two multiply-xorshift rounds.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

// Scales `hash` to [0, bound) without a division.
std::uint64_t scale(std::uint64_t hash, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * bound) >> 64);
}

std::uint64_t shift(std::uint64_t value, std::uint64_t by, std::uint64_t bound) {
  const std::uint64_t sum = value + by;
  return sum >= bound ? sum - bound : sum;
}

}  // namespace

std::uint64_t order_key(std::uint64_t seed, std::int64_t epoch, std::string_view split) {
  std::uint64_t name = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : split) {
    name = (name ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::uint64_t key = mix(seed + golden_ratio);
  key = mix(key ^ (static_cast<std::uint64_t>(epoch) + golden_ratio));
  return mix(key ^ (name + golden_ratio));
}

// Each round draws one number per row or column: small sizes need more rounds until all orders are equally frequent.
// For five records, 8 rounds leave a bias of 30 %; 24 rounds leave none that two million keys would show.
Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(size), num_rounds_(size < 1024 ? max_rounds : 8) {
  check<DataError>(size >= 0 && size <= (std::int64_t{1} << 62), "data.permutation",
                   "expected a size between 0 and 2^62, got ", size);
  const auto cells = static_cast<std::uint64_t>(size);
  rows_ = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(cells)));
  while (rows_ * rows_ < cells) {
    ++rows_;
  }
  // Shifts of an odd number of cells are even permutations: with both sides odd, half of all orders could not occur.
  rows_ = rows_ < 2 ? 2 : rows_ + rows_ % 2;
  columns_ = (cells + rows_ - 1) / rows_;
  for (auto& round_key : keys_) {
    key += golden_ratio;
    round_key = mix(key);
  }
}

std::uint64_t Permutation::walk(std::uint64_t cell) const {
  do {
    std::uint64_t row = cell / columns_;
    std::uint64_t column = cell % columns_;
    for (std::size_t i = 0; i < num_rounds_; i += 2) {
      row = shift(row, scale(mix(column ^ keys_[i]), rows_), rows_);
      column = shift(column, scale(mix(row ^ keys_[i + 1]), columns_), columns_);
    }
    cell = row * columns_ + column;
  } while (cell >= static_cast<std::uint64_t>(size_));
  return cell;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  return static_cast<std::int64_t>(walk(static_cast<std::uint64_t>(index)));
}

// A single number would wait for multiplications. Several in parallel do not, and consecutive indices need no division.
void Permutation::fill(std::int64_t begin, std::span<std::int64_t> to) const {
  constexpr std::size_t width = 8;
  std::array<std::uint64_t, width> rows;
  std::array<std::uint64_t, width> columns;
  std::size_t done = 0;
  std::uint64_t row = columns_ > 0 ? static_cast<std::uint64_t>(begin) / columns_ : 0;
  std::uint64_t column = columns_ > 0 ? static_cast<std::uint64_t>(begin) % columns_ : 0;
  for (; done + width <= to.size(); done += width) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      rows[lane] = row;
      columns[lane] = column;
      column = column + 1 == columns_ ? 0 : column + 1;
      row += column == 0 ? 1 : 0;
    }
    for (std::size_t i = 0; i < num_rounds_; i += 2) {
      for (std::size_t lane = 0; lane < width; ++lane) {
        rows[lane] = shift(rows[lane], scale(mix(columns[lane] ^ keys_[i]), rows_), rows_);
      }
      for (std::size_t lane = 0; lane < width; ++lane) {
        columns[lane] = shift(columns[lane], scale(mix(rows[lane] ^ keys_[i + 1]), columns_), columns_);
      }
    }
    for (std::size_t lane = 0; lane < width; ++lane) {
      std::uint64_t cell = rows[lane] * columns_ + columns[lane];
      if (cell >= static_cast<std::uint64_t>(size_)) [[unlikely]] {
        cell = walk(cell);
      }
      to[done + lane] = static_cast<std::int64_t>(cell);
    }
  }
  for (; done < to.size(); ++done) {
    to[done] = (*this)(begin + static_cast<std::int64_t>(done));
  }
}

}  // namespace danling::inline v0::data
