// ElementStream: reads the elements of a tensor with any strides, piece by piece in row-major order.
#include <algorithm>
#include <cstring>

#include <danling/core/error.hpp>

#include "tensor_file.hpp"

namespace danling_command {

using danling::formats::dtype_size;

namespace {

bool is_complex(DType dtype) { return dtype >= DType::complex32; }

// Negates a floating-point number, whose sign is the last bit. (Integers are different.)
void flip_sign(std::span<std::byte> number) { number.back() ^= std::byte{0x80}; }

}  // namespace

std::uint64_t num_elements(const TensorRecord& record) {
  std::uint64_t count = 1;
  for (const auto size : record.sizes) {
    count *= static_cast<std::uint64_t>(size);
  }
  return count;
}

std::pair<TensorRecord, std::uint64_t> without_repetitions(const TensorRecord& record) {
  std::pair out(record, std::uint64_t{1});
  for (std::size_t i = 0; i < record.sizes.size(); ++i) {
    if (record.strides[i] == 0 && record.sizes[i] > 1) {
      out.first.sizes[i] = 1;
      out.second *= static_cast<std::uint64_t>(record.sizes[i]);
    }
  }
  return out;
}

void check_overlap(const TensorFile& file, const TensorRecord& record, std::string_view key) {
  constexpr std::uint64_t most = std::uint64_t{1} << 34;
  const auto count = num_elements(record);
  danling::detail::check<danling::CheckpointError>(
      count <= std::max(most, file.storage_size(record.storage) / dtype_size(record.dtype)), "checkpoint.read",
      "expected a view of at most ", most, " elements, got ", count, " that overlap in memory (file ",
      danling::detail::quote(file.path().string()), ", key ", danling::detail::quote(key), ")");
}

std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> out(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) {
    out[i - 1] = out[i] * std::max<std::int64_t>(sizes[i], 1);
  }
  return out;
}

bool is_row_major(const TensorRecord& record) {
  const auto expected = row_major(record.sizes);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (record.sizes[i] > 1 && record.strides[i] != expected[i]) {
      return num_elements(record) == 0;
    }
  }
  return true;
}

ElementStream::ElementStream(TensorFile& file, const TensorRecord& record)
    : file_(file),
      record_(record),
      width_(dtype_size(record.dtype)),
      left_(num_elements(record)),
      direct_(is_row_major(record)) {
  const bool has_sign_bit = record.dtype <= DType::float8_e5m2 || is_complex(record.dtype);
  danling::detail::check<danling::CheckpointError>(!record.negative || has_sign_bit, "checkpoint.read",
                                                   "expected a negated view of floating-point numbers, got one of ",
                                                   danling::formats::dtype_name(record.dtype), " (file ",
                                                   danling::detail::quote(file.path().string()), ")");
  if (direct_ || left_ == 0) {
    return;
  }
  std::uint64_t span = 1;
  for (std::size_t i = 0; i < record_.sizes.size(); ++i) {
    span += static_cast<std::uint64_t>((record_.sizes[i] - 1) * record_.strides[i]);
  }
  resize(whole_, span * width_, file.path());
  file_.read(record_.storage, static_cast<std::uint64_t>(record_.offset) * width_, whole_);
  index_.resize(record_.sizes.size(), 0);
}

std::span<const std::byte> ElementStream::next(std::uint64_t most) {
  const std::uint64_t count = std::min(most, left_);
  piece_.resize(static_cast<std::size_t>(count) * width_);
  if (count == 0) {
    return {};
  }
  if (direct_) {
    file_.read(record_.storage, (static_cast<std::uint64_t>(record_.offset) + done_) * width_, piece_);
  } else {
    gather(piece_);
  }
  const std::size_t part = is_complex(record_.dtype) ? width_ / 2 : width_;
  for (std::size_t at = 0; (record_.conjugate || record_.negative) && at < piece_.size(); at += part) {
    const bool imaginary = at % width_ != 0;
    if (record_.negative != (record_.conjugate && imaginary)) {
      flip_sign(std::span(piece_).subspan(at, part));
    }
  }
  done_ += count;
  left_ -= count;
  return piece_;
}

void ElementStream::gather(std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size(); at += width_) {
    std::int64_t position = 0;
    for (std::size_t i = 0; i < index_.size(); ++i) {
      position += index_[i] * record_.strides[i];
    }
    std::memcpy(out.data() + at, whole_.data() + static_cast<std::size_t>(position) * width_, width_);
    for (std::size_t i = index_.size(); i-- > 0;) {
      if (++index_[i] < record_.sizes[i]) {
        break;
      }
      index_[i] = 0;
    }
  }
}

}  // namespace danling_command
