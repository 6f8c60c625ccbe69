// Kernels that replace LibTorch's with the same bits, without the overhead of its iterators.
#include <tape/own.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <tape/direct.hpp>
#include <tape/kernels/kernels.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::tape {
namespace own {
namespace {

/// Above this number of elements, LibTorch uses several threads.
constexpr std::int64_t grain = 32768;

using Maker = Kernel (*)(const BoundCall&);

bool is_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.is_non_overlapping_and_dense();
}

bool same_shape(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides();
}

/// True if LibTorch's loop would run in this thread alone.
bool is_serial(std::int64_t n) { return n <= grain || at::get_num_threads() == 1; }

using Unary = void (*)(const float*, float*, std::int64_t);
using Binary = void (*)(const float*, const float*, float*, std::int64_t);
using WithNumber = void (*)(const float*, float, float*, std::int64_t);

Kernel unary(const at::Tensor& x, at::Tensor out, Unary loop) {
  if (!is_dense(x) || !is_dense(out) || !same_shape(x, out) || !is_serial(x.numel())) {
    return {};
  }
  return [x, out, loop, n = x.numel()] { loop(floats(x), floats(out), n); };
}

Kernel binary(const at::Tensor& x, const at::Tensor& y, at::Tensor out, Binary loop) {
  if (!is_dense(x) || !is_dense(y) || !is_dense(out) || !same_shape(x, out) || !same_shape(x, y) ||
      !is_serial(x.numel())) {
    return {};
  }
  return [x, y, out, loop, n = x.numel()] { loop(floats(x), floats(y), floats(out), n); };
}

Kernel with_number(const at::Tensor& x, const c10::IValue& number, at::Tensor out, WithNumber loop) {
  if (!is_dense(x) || !is_dense(out) || !same_shape(x, out) || !is_serial(x.numel()) ||
      !number.toScalar().isFloatingPoint()) {
    return {};
  }
  return [x, out, loop, n = x.numel(), value = static_cast<float>(number.toScalar().toDouble())] {
    loop(floats(x), value, floats(out), n);
  };
}

Kernel relu(const BoundCall& b) { return unary(b.argument(0), b.result(), kernels().relu); }

Kernel threshold_backward(const BoundCall& b) {
  const at::Tensor &gradient = b.argument(0), &x = b.argument(1), out = b.result();
  if (!is_dense(gradient) || !is_dense(x) || !is_dense(out) || !same_shape(gradient, x) || !same_shape(x, out) ||
      !is_serial(x.numel())) {
    return {};
  }
  return [gradient, x, out, n = x.numel(), threshold = static_cast<float>(b.number(2).toScalar().toDouble())] {
    kernels().threshold_backward(floats(gradient), floats(x), threshold, floats(out), n);
  };
}

/// Adds one row to each row, as for a bias.
Kernel add_rows(const at::Tensor& x, const at::Tensor& row, const at::Tensor& out) {
  if (!is_dense(x) || !is_dense(row) || !is_dense(out) || !x.is_contiguous() || !same_shape(x, out) || row.dim() != 1 ||
      x.dim() < 2 || x.size(-1) != row.size(0) || row.size(0) == 0 || !is_serial(x.numel())) {
    return {};
  }
  return [x, row, out, n = row.size(0), rows = x.numel() / row.size(0)] {
    kernels().add_rows(floats(x), floats(row), floats(out), rows, n);
  };
}

Kernel add(const BoundCall& b) {
  const c10::Scalar alpha = b.number(2).toScalar();
  if (!alpha.equal(1)) {
    return {};
  }
  Kernel out = binary(b.argument(0), b.argument(1), b.result(), kernels().add);
  return out ? out : add_rows(b.argument(0), b.argument(1), b.result());
}

Kernel mul(const BoundCall& b) { return binary(b.argument(0), b.argument(1), b.result(), kernels().mul); }
Kernel mul_number(const BoundCall& b) {
  return with_number(b.argument(0), b.number(1), b.result(), kernels().mul_number);
}
Kernel div_number(const BoundCall& b) {
  return with_number(b.argument(0), b.number(1), b.result(), kernels().div_number);
}

/// Reads element i of a list for rows and columns: [n], [rows, columns], or `otherwise` if it is empty.
std::int64_t of_pair(const std::vector<std::int64_t>& list, std::size_t i, std::int64_t otherwise) {
  return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[i];
}

Kernel max_pool(const BoundCall& b) {
  const at::Tensor &x = b.argument(0), out = b.result(0), places = b.result(1);
  const auto size = b.number(1).toIntVector(), step = b.number(2).toIntVector(), border = b.number(3).toIntVector();
  const auto dilation = b.number(4).toIntVector();
  if (!is_dense(x) || !x.is_contiguous() || !out.is_contiguous() || !places.is_contiguous() || x.dim() != 4 ||
      x.numel() == 0 || std::any_of(dilation.begin(), dilation.end(), [](std::int64_t d) { return d != 1; })) {
    return {};
  }
  Pooling all{.planes = x.size(0) * x.size(1),
              .in_rows = x.size(2),
              .in_columns = x.size(3),
              .out_rows = out.size(2),
              .out_columns = out.size(3),
              .rows = of_pair(size, 0, 1),
              .columns = of_pair(size, 1, 1),
              .row_step = of_pair(step, 0, of_pair(size, 0, 1)),
              .column_step = of_pair(step, 1, of_pair(size, 1, 1)),
              .row_border = of_pair(border, 0, 0),
              .column_border = of_pair(border, 1, 0)};
  return [x, out, places, all] {
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      Pooling some = all;
      some.planes = end - begin;
      kernels().max_pool(some, floats(x) + begin * all.in_rows * all.in_columns,
                         floats(out) + begin * all.out_rows * all.out_columns,
                         static_cast<std::int64_t*>(places.unsafeGetTensorImpl()->mutable_data()) +
                             begin * all.out_rows * all.out_columns);
    };
    if (is_serial(x.numel())) {
      part(0, all.planes);
    } else {
      tensors::for_each_range(all.planes, 1, part);
    }
  };
}

const std::map<std::pair<std::string, std::string>, Maker>& makers() {
  static const std::map<std::pair<std::string, std::string>, Maker> all = {
      {{"aten::relu", ""}, relu},
      {{"aten::threshold_backward", ""}, threshold_backward},
      {{"aten::add", "Tensor"}, add},
      {{"aten::add_", "Tensor"}, add},
      {{"aten::mul", "Tensor"}, mul},
      {{"aten::mul_", "Tensor"}, mul},
      {{"aten::mul", "Scalar"}, mul_number},
      {{"aten::mul_", "Scalar"}, mul_number},
      {{"aten::div", "Scalar"}, div_number},
      {{"aten::div_", "Scalar"}, div_number},
      {{"aten::max_pool2d_with_indices", ""}, max_pool},
      {{"aten::bernoulli_", "float"}, bernoulli},
      {{"aten::_log_softmax", ""}, log_softmax},
      {{"aten::_log_softmax_backward_data", ""}, log_softmax_backward},
  };
  return all;
}

}  // namespace
}  // namespace own

Kernel own_kernel(const BoundCall& call) {
  const auto& schema = call.call.op.schema();
  const auto found = own::makers().find({schema.name(), schema.overload_name()});
  return found == own::makers().end() ? Kernel() : found->second(call);
}

}  // namespace danling::inline v0::tape
