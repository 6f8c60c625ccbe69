#include <tensors/nested/segment_loops.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

namespace danling::inline v0::detail {
namespace {

/// Minimum number of values per thread.
constexpr std::int64_t loop_grain = 16384;

struct Plus {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN propagates.
struct Larger {
  template <class T>
  T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};
struct Smaller {
  template <class T>
  T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};

/// Joins the same columns of adjacent rows.
template <class Wide, class T, class Join>
void join_rows(const T* rows, std::int64_t count, std::int64_t columns, Wide* out, const Join& join) {
  if (columns == 1) {
    // Independent partial results, so that additions do not wait for each other.
    std::array<Wide, 8> parts;
    parts.fill(*out);
    if constexpr (std::is_same_v<Join, Plus>) {
      std::fill(parts.begin() + 1, parts.end(), Wide(0));
    }
    std::int64_t row = 0;
    for (; row + 8 <= count; row += 8) {
      for (std::size_t part = 0; part < 8; ++part) {
        parts[part] = join(parts[part], static_cast<Wide>(rows[row + static_cast<std::int64_t>(part)]));
      }
    }
    for (; row < count; ++row) {
      parts[0] = join(parts[0], static_cast<Wide>(rows[row]));
    }
    for (std::size_t part = 1; part < 8; ++part) {
      parts[0] = join(parts[0], parts[part]);
    }
    *out = parts[0];
    return;
  }
  if constexpr (std::is_same_v<Join, Plus> && std::is_same_v<T, float>) {
    // Sums runs of rows in float, then in double: twice as many columns per vector.
    constexpr std::int64_t run = 16;
    std::vector<float> part(static_cast<std::size_t>(count >= run ? columns : 0));
    for (; count >= run; count -= run) {
      std::copy_n(rows, columns, part.begin());
      for (std::int64_t row = 1; row < run; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          part[static_cast<std::size_t>(column)] += rows[row * columns + column];
        }
      }
      for (std::int64_t column = 0; column < columns; ++column) {
        out[column] += static_cast<Wide>(part[static_cast<std::size_t>(column)]);
      }
      rows += run * columns;
    }
  }
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      out[column] = join(out[column], static_cast<Wide>(rows[row * columns + column]));
    }
  }
}

template <class Wide, class T, class Join>
void join_segments(const at::Tensor& values, const Segments& segments, const Join& join, Wide initial, T* write) {
  const T* read = values.const_data_ptr<T>();
  const std::int64_t rows = values.size(0), columns = rows == 0 ? 1 : values.numel() / rows;
  const auto store = [&](const std::vector<Wide>& from, std::int64_t first) {
    std::transform(from.begin(), from.end(), write + first, [](Wide value) { return static_cast<T>(value); });
  };
  if (!segments.contiguous) {
    std::vector<Wide> all(static_cast<std::size_t>(segments.size() * columns), initial);
    const std::int64_t* index = segments.index.const_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < rows; ++row) {
      join_rows(read + row * columns, 1, columns, all.data() + index[row] * columns, join);
    }
    store(all, 0);
    return;
  }
  std::vector<std::int64_t> first = {0};
  for (const std::int64_t count : segments.counts) {
    first.push_back(first.back() + count);
  }
  const std::int64_t mean_values = values.numel() / std::max<std::int64_t>(segments.size(), 1) + 1;
  at::parallel_for(0, segments.size(), loop_grain / mean_values + 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Wide> own(static_cast<std::size_t>(columns));
    for (std::int64_t segment = begin; segment < end; ++segment) {
      std::fill(own.begin(), own.end(), initial);
      const auto at = static_cast<std::size_t>(segment);
      join_rows(read + first[at] * columns, segments.counts[at], columns, own.data(), join);
      store(own, segment * columns);
    }
  });
}

}  // namespace

bool has_segment_loop(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16 || type == at::kLong ||
         type == at::kInt || type == at::kShort || type == at::kChar || type == at::kByte;
}

at::Tensor loop_over_segments(const at::Tensor& values, const Segments& segments, SegmentOp op,
                              const at::Scalar& initial) {
  auto sizes = values.sizes().vec();
  sizes[0] = segments.size();
  const at::Tensor rows = readable(values);
  if (values.numel() == 0) {
    return at::empty(sizes, values.options()).fill_(initial);
  }
  at::Tensor out = at::empty(sizes, values.options());
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, values.scalar_type(), "nested_tensor", [&] {
    using Wide = at::acc_type<scalar_t, /*is_cuda=*/false>;
    scalar_t* write = out.mutable_data_ptr<scalar_t>();
    const auto first = static_cast<Wide>(initial.to<scalar_t>());
    if (op == SegmentOp::sum) {
      join_segments<Wide>(rows, segments, Plus(), first, write);
    } else if (op == SegmentOp::max) {
      join_segments<Wide>(rows, segments, Larger(), first, write);
    } else {
      join_segments<Wide>(rows, segments, Smaller(), first, write);
    }
  });
  return out;
}

at::Tensor reduce_by_index(const at::Tensor& values, const Segments& segments, SegmentOp op,
                           const at::Scalar& initial) {
  auto sizes = values.sizes().vec();
  sizes[0] = segments.size();
  const bool narrow = values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16;
  const at::Tensor wide = narrow ? values.to(at::kFloat) : values;
  at::Tensor out = at::full(sizes, initial, wide.options());
  if (values.numel() > 0) {
    if (op == SegmentOp::sum) {
      out.index_add_(0, segments.index, wide);
    } else {
      c10::DimVector ones(static_cast<std::size_t>(values.dim()), 1);
      ones[0] = values.size(0);
      out.scatter_reduce_(0, segments.index.view(ones).expand(values.sizes()), wide,
                          op == SegmentOp::max ? "amax" : "amin");
    }
  }
  return narrow ? out.to(values.scalar_type()) : out;
}

at::Scalar initial_of(SegmentOp op, at::ScalarType type) {
  if (op == SegmentOp::sum) {
    return 0;
  }
  if (type == at::kBool) {
    return op == SegmentOp::min;
  }
  at::Scalar out;
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "nested_tensor", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    const scalar_t low = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    const scalar_t high = Limits::has_infinity ? Limits::infinity() : Limits::max();
    out = op == SegmentOp::max ? low : high;
  });
  return out;
}

}  // namespace danling::inline v0::detail
