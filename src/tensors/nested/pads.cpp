// Padding before and after each sequence: constant, reflect, replicate, circular.
#include <algorithm>
#include <string>

#include <ATen/ops/constant_pad_nd.h>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/rows.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

enum class PadMode { constant, reflect, replicate, circular };

/// Returns the source position of position `at` for a sequence of `size`; -1 for the constant.
std::int64_t source_of(PadMode mode, std::int64_t at, std::int64_t size) {
  if (at >= 0 && at < size) {
    return at;
  }
  switch (mode) {
    case PadMode::reflect:
      return at < 0 ? -at : 2 * (size - 1) - at;
    case PadMode::replicate:
      return at < 0 ? 0 : size - 1;
    case PadMode::circular:
      return ((at % size) + size) % size;
    case PadMode::constant:
      break;
  }
  return -1;
}

/// Pads along one dimension; negative widths cut.
at::Tensor pad_dim(Call& call, const at::Tensor& self, std::int64_t dim, std::int64_t before, std::int64_t behind,
                   PadMode mode, double fill) {
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const auto check_size = [&](std::int64_t size) {
    const std::int64_t most = mode == PadMode::reflect    ? size - 1
                              : mode == PadMode::circular ? size
                              : size == 0                 ? 0
                                                          : -1;
    call.expect(size + std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(behind, 0) >= 0 &&
                    size + before + behind >= 0 &&
                    (mode == PadMode::constant || most == -1 || (before <= most && behind <= most)),
                "expected elements long enough for a padding of ", before, " and ", behind, ", got ",
                text_of_shapes(impl));
    return size + before + behind;
  };
  if (!structure.is_ragged(dim)) {
    const std::int64_t at = structure.values_dim(dim), size = impl.values().size(at), count = check_size(size);
    if (mode == PadMode::constant) {
      std::vector<std::int64_t> widths(static_cast<std::size_t>(2 * (impl.values().dim() - at)), 0);
      widths[widths.size() - 2] = before;
      widths[widths.size() - 1] = behind;
      return wrap(at::constant_pad_nd(values_of(self), widths, fill), structure);
    }
    std::vector<std::int64_t> index;
    for (std::int64_t position = 0; position < count; ++position) {
      index.push_back(source_of(mode, position - before, size));
    }
    return wrap(values_of(self).index_select(at, row_index(index, self.device())), structure);
  }
  const auto sizes = sizes_along(structure, dim);
  std::vector<std::int64_t> counts;
  for (const std::int64_t size : sizes) {
    counts.push_back(check_size(size));
  }
  const auto position_of = [&](std::int64_t element, std::int64_t position) {
    return source_of(mode, position - before, sizes[static_cast<std::size_t>(element)]);
  };
  return mode == PadMode::constant ? take_positions(self, dim, counts, position_of, fill)
                                   : copy_positions(self, dim, counts, position_of);
}

void call_pad(Call& call) {
  const at::Tensor whole = call.tensor("self");
  at::Tensor self = whole;
  const auto widths = *call.integers("pad");
  PadMode mode = PadMode::constant;
  if (call.has("mode")) {
    constexpr PadMode by_number[] = {PadMode::reflect, PadMode::replicate, PadMode::circular, PadMode::constant};
    const c10::IValue& given = call["mode"];
    const std::string name = given.isString() ? given.toStringRef() : "";
    mode = given.isInt()         ? by_number[given.toInt()]
           : name == "reflect"   ? PadMode::reflect
           : name == "replicate" ? PadMode::replicate
           : name == "circular"  ? PadMode::circular
                                 : PadMode::constant;
  }
  double fill = 0;
  if (call.has("value") && !call["value"].isNone()) {
    fill = call["value"].toScalar().toDouble();
  }
  const NestedTensorImpl& impl = *nested(self);
  const std::int64_t rank = impl.element_rank();
  call.expect(widths.size() % 2 == 0 && static_cast<std::int64_t>(widths.size()) <= 2 * (rank + 1),
              "expected two widths for each padded dimension of elements ", text_of_shapes(impl), ", got (",
              join(widths), ")");
  for (std::size_t pair = 0; pair < widths.size() / 2; ++pair) {
    const std::int64_t before = widths[2 * pair], behind = widths[2 * pair + 1];
    if (before == 0 && behind == 0) {
      continue;
    }
    const auto dim = impl.structure().element_dim(self.dim() - 1 - static_cast<std::int64_t>(pair), rank);
    call.expect(dim.has_value(), "expected no padding of the batch, got (", join(widths), ") for elements ",
                text_of_shapes(impl));
    self = pad_dim(call, self, *dim, before, behind, mode, fill);
  }
  call.finish(self.is_same(whole) ? self.clone() : self);
}

}  // namespace

void add_pads(OperatorTable& table) { table.add(Way::offsets, call_pad, {"constant_pad_nd", "pad", "_pad_enum"}); }

}  // namespace danling::inline v0::detail
