// Splitting along one dimension: split, chunk, tensor_split and similar.
#include <algorithm>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

using Cuts = std::vector<std::int64_t>;

/// Returns the start of each part of a dimension of `size`, and its end.
using Cutter = std::function<Cuts(std::int64_t size)>;

Cuts cuts_of_width(std::int64_t size, std::int64_t width) {
  Cuts out = {0};
  do {
    out.push_back(std::min(size, out.back() + width));
  } while (out.back() < size);
  return out;
}

Cuts cuts_of_count(std::int64_t size, std::int64_t count) {
  Cuts out = {0};
  for (std::int64_t part = 0; part < count; ++part) {
    out.push_back(out.back() + size / count + (part < size % count ? 1 : 0));
  }
  return out;
}

void split(Call& call, std::int64_t at, const Cutter& cutter) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const auto dim = structure.element_dim(wrapped_dim(call, self, at), impl.element_rank());
  std::vector<at::Tensor> out;
  if (!dim || !structure.is_ragged(*dim)) {
    const Cuts cuts = cutter(dim ? impl.values().size(structure.values_dim(*dim)) : structure.batch());
    for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
      out.push_back(self.slice(at, cuts[part], cuts[part + 1]));
    }
    call.finish({c10::IValue(out)});
    return;
  }
  std::vector<Cuts> all;
  for (const std::int64_t size : sizes_along(structure, *dim)) {
    all.push_back(cutter(size));
    call.expect(all.back().size() == all.front().size(), "expected elements that have the same number of parts, got ",
                all.front().size() - 1, " and ", all.back().size() - 1, " along dimension ", at, " of elements ",
                text_of_shapes(impl));
  }
  for (std::size_t part = 0; !all.empty() && part + 1 < all.front().size(); ++part) {
    Cuts counts;
    for (const Cuts& cuts : all) {
      counts.push_back(cuts[part + 1] - cuts[part]);
    }
    out.push_back(take_positions(self, *dim, counts, [&](std::int64_t element, std::int64_t position) {
      return all[static_cast<std::size_t>(element)][part] + position;
    }));
  }
  call.finish({c10::IValue(out)});
}

void call_split(Call& call) {
  const std::int64_t width = call.integers("split_size")->front();
  call.expect(width > 0, "expected parts of 1 or above, got ", width);
  split(call, call.integer("dim"), [&](std::int64_t size) { return cuts_of_width(size, width); });
}

void call_split_sizes(Call& call) {
  const auto sizes = *call.integers(call.has("split_sizes") ? "split_sizes" : "split_size");
  split(call, call.integer("dim"), [&](std::int64_t size) {
    Cuts out = {0};
    for (const std::int64_t part : sizes) {
      out.push_back(out.back() + part);
    }
    call.expect(out.back() == size && std::is_sorted(out.begin(), out.end()), "expected parts that make up a size of ",
                size, ", got (", join(sizes), ") for elements ", text_of_shapes(*nested(call.tensor("self"))));
    return out;
  });
}

void call_chunk(Call& call) {
  const std::int64_t chunks = call.integer("chunks");
  call.expect(chunks > 0, "expected 1 or more chunks, got ", chunks);
  split(call, call.integer("dim"), [&](std::int64_t size) {
    const std::int64_t width = (size + chunks - 1) / chunks;
    return width == 0 ? Cuts(static_cast<std::size_t>(chunks) + 1, 0) : cuts_of_width(size, width);
  });
}

void call_tensor_split(Call& call) {
  const bool by_count = call.has("sections");
  const auto given = *call.integers(by_count ? "sections" : "indices");
  split(call,
        call.has("dim")           ? call.integer("dim")
        : call.name() == "hsplit" ? 1
        : call.name() == "vsplit" ? 0
                                  : 2,
        [&](std::int64_t size) {
          if (by_count) {
            call.expect(given[0] > 0, "expected 1 or more sections, got ", given[0]);
            return cuts_of_count(size, given[0]);
          }
          Cuts out = {0};
          for (const std::int64_t index : given) {
            out.push_back(std::max(out.back(), std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size)));
          }
          out.push_back(size);
          return out;
        });
}

}  // namespace

void add_splits(OperatorTable& table) {
  table.add(Way::offsets, call_split, {"split.Tensor", "unsafe_split.Tensor"});
  table.add(Way::offsets, call_split_sizes, {"split_with_sizes", "unsafe_split_with_sizes", "split.sizes"});
  table.add(Way::offsets, call_chunk, {"chunk", "unsafe_chunk"});
  table.add(Way::offsets, call_tensor_split,
            {"tensor_split.sections", "tensor_split.indices", "hsplit.int", "hsplit.array", "vsplit.int",
             "vsplit.array", "dsplit.int", "dsplit.array"});
}

}  // namespace danling::inline v0::detail
