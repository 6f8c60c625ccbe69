// Prints nested tensors, with elements in Python's tensor format.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>
#include <string>

#include <ATen/ops/cat.h>
#include <c10/core/DefaultDtype.h>

#include <danling/core/format.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <tensors/nested/impl.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::int64_t shown_values = 1000, edge_values = 3;
constexpr std::size_t line_width = 80;

const char* name_in_python(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kBool:
      return "bool";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    default:
      return at::toString(type);
  }
}

/// Number format of one element, with one width for all its numbers.
class NumberFormat {
 public:
  explicit NumberFormat(const at::Tensor& values)
      : is_float_(values.is_floating_point()), is_bool_(values.scalar_type() == at::kBool) {
    const at::Tensor flat = numbers(values.flatten());
    double least = INFINITY, most = 0;
    for (std::int64_t at = 0; is_float_ && at < flat.numel(); ++at) {
      const double size = std::abs(flat.const_data_ptr<double>()[at]);
      if (std::isfinite(size) && size != 0) {
        whole_ = whole_ && std::nearbyint(size) == size;
        least = std::min(least, size);
        most = std::max(most, size);
      }
    }
    scientific_ = most > 0 && (most / least > 1000 || most > 1e8 || (!whole_ && least < 1e-4));
    if (whole_ && most / least > 1000) {
      scientific_ = most > 1e8;
    }
    for (std::int64_t at = 0; at < flat.numel(); ++at) {
      width_ = std::max(width_, text(flat, at).size());
    }
  }

  /// Converts a row to the type that `text` reads.
  at::Tensor numbers(const at::Tensor& row) const { return tensors::raw(row.to(is_float_ ? at::kDouble : at::kLong)); }
  std::string text(const at::Tensor& numbers, std::int64_t at) const {
    if (!is_float_) {
      const std::int64_t number = numbers.const_data_ptr<std::int64_t>()[at];
      return !is_bool_ ? to_text(number) : number != 0 ? "True" : "False";
    }
    const double number = numbers.const_data_ptr<double>()[at];
    if (!std::isfinite(number)) {
      return to_text(number);
    }
    return scientific_ ? to_scientific(number, 4) : whole_ ? to_fixed(number, 0) + "." : to_fixed(number, 4);
  }
  std::string padded(const at::Tensor& numbers, std::int64_t at) const {
    const std::string out = text(numbers, at);
    return std::string(width_ - std::min(width_, out.size()), ' ') + out;
  }
  std::size_t width() const { return width_; }

 private:
  bool is_float_, is_bool_, whole_ = true, scientific_ = false;
  std::size_t width_ = 0;
};

/// Returns the printed positions of a dimension: the first and last ones if it is too long, and the gap.
std::vector<std::int64_t> shown_positions(std::int64_t size, bool shortened) {
  std::vector<std::int64_t> out;
  for (std::int64_t at = 0; at < size; ++at) {
    if (!shortened || size <= 2 * edge_values || at < edge_values || at >= size - edge_values) {
      out.push_back(at);
    } else if (at == edge_values) {
      out.push_back(-1);
    }
  }
  return out;
}

std::string text_of(const at::Tensor& values, const NumberFormat& format, std::size_t indent, bool shortened) {
  if (values.dim() == 0) {
    return format.text(format.numbers(values), 0);
  }
  const auto positions = shown_positions(values.size(0), shortened);
  std::string out = "[";
  if (values.dim() == 1) {
    const at::Tensor numbers = format.numbers(values);
    // Python counts the prefix "tensor(".
    const std::size_t in_line = std::max<std::size_t>(1, (line_width - indent - 3) / (format.width() + 2));
    for (std::size_t at = 0; at < positions.size(); ++at) {
      out += at == 0 ? "" : at % in_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      out += positions[at] < 0 ? " ..." : format.padded(numbers, positions[at]);
    }
    return out + "]";
  }
  for (std::size_t at = 0; at < positions.size(); ++at) {
    out += at == 0 ? ""
                   : "," + std::string(static_cast<std::size_t>(values.dim()) - 1, '\n') + std::string(indent + 1, ' ');
    out += positions[at] < 0 ? "..." : text_of(values.select(0, positions[at]), format, indent + 1, shortened);
  }
  return out + "]";
}

std::string text_of_element(const at::Tensor& element) {
  const bool shortened = element.numel() > shown_values;
  at::Tensor shown = element.detach();
  for (std::int64_t dim = 0; shortened && dim < shown.dim(); ++dim) {
    if (shown.size(dim) > 2 * edge_values) {
      // The gap takes one more position, which is not printed.
      shown = at::cat(
          {shown.narrow(dim, 0, edge_values + 1), shown.narrow(dim, shown.size(dim) - edge_values, edge_values)}, dim);
    }
  }
  shown = shown.cpu();
  if (shown.is_complex()) {
    std::ostringstream out;
    out << shown;
    return out.str();
  }
  std::string out = text_of(shown, NumberFormat(shown), 4, shortened);
  const at::ScalarType type = element.scalar_type();
  if (element.numel() == 0 && element.dim() > 1) {
    out = danling::detail::concat("[], size=(", join(element.sizes()), ")");
  }
  if (!element.is_cpu()) {
    out += danling::detail::concat(", device='", element.device().str(), "'");
  }
  const bool plain = element.numel() == 0
                         ? type == at::get_default_dtype_as_scalartype()
                         : type == at::get_default_dtype_as_scalartype() || type == at::kLong || type == at::kBool;
  if (!plain) {
    out += danling::detail::concat(", dtype=torch.", name_in_python(type));
  }
  return out;
}

}  // namespace

std::string NestedTensor::to_string() const {
  std::ostringstream out;
  out << *this;
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const NestedTensor& tensor) {
  constexpr std::int64_t most = 10, first = 5;
  const std::int64_t batch = tensor.batch_size(), shown = batch > most ? first : batch;
  if (batch == 0) {
    return out << "NestedTensor()";
  }
  out << "NestedTensor([\n";
  for (std::int64_t element = 0; element < shown; ++element) {
    out << "    " << text_of_element(detail::element_of(tensor, element)) << (element + 1 < batch ? ",\n" : "\n");
  }
  if (shown < batch) {
    out << "    ... (" << batch << " tensors)\n";
  }
  return out << "])";
}

}  // namespace danling::inline v0
