#include <tensors/nested/views.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/regroup.hpp>

namespace danling::inline v0::detail {
namespace {

using Sizes = std::vector<std::int64_t>;

std::int64_t product_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// Replaces a size of 0, so that products show which dimensions correspond.
constexpr std::int64_t zero_size = 1'000'003;

/// Old and new dimensions whose sizes have the same product.
struct DimGroup {
  std::size_t begin, end, new_begin, new_end;
};

/// Returns nullopt if the products differ.
std::optional<std::vector<DimGroup>> group_dims(const Sizes& from, const Sizes& to) {
  std::vector<DimGroup> out;
  for (std::size_t i = 0, j = 0; i < from.size() || j < to.size();) {
    DimGroup group{i, i, j, j};
    std::int64_t left = 1, right = 1;
    if (i < from.size() && j < to.size()) {
      left = from[i++];
      right = to[j++];
      while (left != right) {
        if (left < right ? i == from.size() : j == to.size()) {
          return std::nullopt;
        }
        (left < right ? left : right) *= left < right ? from[i++] : to[j++];
      }
    } else if ((i < from.size() ? from[i++] : to[j++]) != 1) {
      return std::nullopt;
    }
    if (j == to.size() && group.new_begin == j && !out.empty()) {  // an old size of 1 without a new one
      out.back().end = i;
      continue;
    }
    group.end = i;
    group.new_end = j;
    out.push_back(group);
  }
  return out;
}

/// One reshape. Rewrites the static sizes of the values twice: without the parts that move to the rows, then with those
/// that move from the rows.
class Reshape {
 public:
  Reshape(Call& call, const at::Tensor& tensor)
      : call_(call),
        impl_(*nested(tensor)),
        structure_(impl_.structure()),
        values_(values_of(tensor)),
        from_(impl_.sizes().begin(), impl_.sizes().end()) {
    std::replace(from_.begin(), from_.end(), std::int64_t{0}, zero_size);
  }

  /// Returns nullopt if the sizes are not those of a padded tensor with a batch.
  std::optional<at::Tensor> run(Sizes to) {
    std::replace(to.begin(), to.end(), std::int64_t{0}, zero_size);
    const auto unknown = std::find(to.begin(), to.end(), -1);
    unknown_ = static_cast<std::size_t>(unknown - to.begin());
    if (unknown != to.end()) {
      *unknown = 1;
      if (product_of(from_) % product_of(to) != 0) {
        return std::nullopt;
      }
      *unknown = product_of(from_) / product_of(to);
    }
    to_ = std::move(to);
    const auto groups = group_dims(from_, to_);
    if (!groups || !std::all_of(groups->begin(), groups->end(), [&](const DimGroup& group) { return add(group); }) ||
        !new_batch_) {
      return std::nullopt;
    }
    return finish();
  }

 private:
  enum class Kind { stays, leaves, comes };
  struct Part {
    std::int64_t size;
    Kind kind;
  };

  bool add(const DimGroup& group) {
    std::vector<std::size_t> ragged;
    bool has_batch = false, static_first = false;
    std::int64_t fixed = 1, longest = 1;
    for (std::size_t at = group.begin; at < group.end; ++at) {
      const auto dim = structure_.element_dim(static_cast<std::int64_t>(at), impl_.element_rank());
      if (!dim) {
        has_batch = true;
        static_first = fixed != 1;
      } else if (structure_.is_ragged(*dim)) {
        ragged.push_back(structure_.ragged_index(*dim));
        longest *= from_[at];
        static_first = static_first || fixed != 1;
      } else {
        fixed *= from_[at];
      }
    }
    if (static_first || (has_batch && !ragged.empty())) {
      return false;
    }
    if (has_batch) {
      return add_batch(group, fixed);
    }
    if (!ragged.empty()) {
      return add_ragged(group, std::move(ragged), longest, fixed);
    }
    add_static(group.new_begin, group.new_end);
    parts_.push_back({fixed, Kind::stays});
    return true;
  }

  std::int64_t real_size(std::int64_t size) const { return values_.numel() == 0 && size % zero_size == 0 ? 0 : size; }

  void add_static(std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; ++at) {
      sizes_.push_back(real_size(to_[at]));
    }
  }

  /// A positive `parts` multiplies the number of elements or rows, a negative one divides it.
  void add_parts(std::int64_t parts, std::int64_t fixed) {
    if (parts != 1) {
      parts_.push_back({std::abs(parts), parts > 0 ? Kind::leaves : Kind::comes});
    }
    parts_.push_back({parts > 0 ? fixed / parts : fixed, Kind::stays});
  }

  bool add_batch(const DimGroup& group, std::int64_t fixed) {
    if (group.new_begin == group.new_end || group.new_begin > 1) {
      return false;
    }
    const std::int64_t batch = structure_.batch(), size = to_[group.new_begin];
    if (size % batch == 0 && fixed % (size / batch) == 0) {
      elements_ = size / batch;
    } else if (batch % size == 0) {
      elements_ = -(batch / size);
    } else {
      return false;
    }
    new_batch_ = group.new_begin;
    elements_part_ = parts_.size();
    add_parts(elements_, fixed);
    add_static(group.new_begin + 1, group.new_end);
    return true;
  }

  bool add_ragged(const DimGroup& group, std::vector<std::size_t> ragged, std::int64_t longest, std::int64_t fixed) {
    // The new ragged dimension: the inferred one, or the one with the old size, or the first.
    std::size_t chosen = group.new_end;
    for (std::size_t at = group.new_begin; at < group.new_end; ++at) {
      const bool inferred = at == unknown_ && (to_[at] != 1 || chosen == group.new_end);
      if (inferred || (to_[at] == longest && (chosen == group.new_end || (chosen == unknown_ && to_[chosen] == 1)))) {
        chosen = at;
      }
    }
    if (chosen == group.new_end) {
      chosen = group.new_begin;
    }
    std::int64_t rest = 1;
    for (std::size_t at = group.new_begin; at < group.new_end; ++at) {
      rest *= at == chosen ? 1 : to_[at];
      if (at < chosen && to_[at] != 1) {
        return false;
      }
    }
    const bool divides = fixed % rest == 0;
    const std::int64_t factor = divides ? fixed / rest : -(rest / fixed);
    const bool last = ragged.back() + 1 == structure_.ragged->rank();
    if (group.new_begin == group.new_end || (!divides && rest % fixed != 0) || (factor != 1 && !last)) {
      return false;
    }
    if (factor != 1) {
      rows_ = factor;
      rows_part_ = parts_.size();
    }
    add_parts(factor, fixed);
    merged_.push_back(std::move(ragged));
    add_static(group.new_begin, chosen);
    new_ragged_.push_back(chosen);
    add_static(chosen + 1, group.new_end);
    return true;
  }

  /// Returns the sizes of the values with the parts of all kinds but one.
  std::vector<std::int64_t> sizes_without(Kind kind, std::int64_t rows) const {
    Sizes out = {rows};
    for (const Part& part : parts_) {
      if (part.kind != kind) {
        out.push_back(real_size(part.size));
      }
    }
    return out;
  }
  /// Returns the place of a part among the dimensions of the values.
  std::int64_t place_of(std::size_t part, Kind without) const {
    return 1 + std::count_if(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(part),
                             [&](const Part& before) { return before.kind != without; });
  }

  at::Tensor finish() {
    RaggedPtr ragged = structure_.ragged;
    const bool as_before = elements_ == 1 && rows_ == 1;
    at::Tensor values = values_;
    if (!as_before) {
      values = values.reshape(sizes_without(Kind::comes, ragged->rows()));
    }
    // The batch's part comes before or after the rows' part.
    std::int64_t gone = 0;
    if (elements_ > 1) {
      values = rows_of_parts(values.movedim(place_of(elements_part_, Kind::comes), 1), ragged);
      ragged = split_elements(ragged, elements_);
      gone = rows_ > 1 && rows_part_ > elements_part_ ? 1 : 0;
    }
    if (rows_ > 1) {
      values = values.movedim(place_of(rows_part_, Kind::comes) - gone, 1).flatten(0, 1);
    }
    values = come_to_values(std::move(values), ragged);
    Sizes sizes = {values.size(0)};
    sizes.insert(sizes.end(), sizes_.begin(), sizes_.end());
    Structure structure = structure_;
    structure.ragged = std::move(ragged);
    structure.batch_first = *new_batch_ == 0;
    structure.ragged_dims.clear();
    for (const std::size_t at : new_ragged_) {
      structure.ragged_dims.push_back(static_cast<std::int64_t>(at) - (at > *new_batch_ ? 1 : 0));
    }
    return wrap(values.reshape(sizes), std::move(structure));
  }

  at::Tensor come_to_values(at::Tensor values, RaggedPtr& ragged) {
    if (elements_ < -1) {
      const auto merged = merge_elements(ragged, -elements_);
      call_.expect(merged != nullptr, "expected ", -elements_,
                   " neighbours of the same sizes to become one element of shape (", join(to_), "), got ",
                   text_of_shapes(impl_));
      values = rows_of_wholes(values, merged, -elements_).movedim(1, place_among_new(elements_part_));
      ragged = merged;
    }
    ragged = with_sizes(ragged);
    if (rows_ < -1) {
      values = values.unflatten(0, {ragged->rows(), -rows_});
      values = values.movedim(1, place_among_new(rows_part_));
    }
    return values;
  }
  /// Returns the place after the static parts before it; the batch's part comes first and may lie on either side.
  std::int64_t place_among_new(std::size_t part) const {
    std::int64_t place = 1;
    for (std::size_t at = 0; at < part; ++at) {
      const bool here = parts_[at].kind == Kind::stays || (parts_[at].kind == Kind::comes && part == rows_part_);
      place += here ? 1 : 0;
    }
    return place;
  }

  /// Merges ragged dimensions with each other and with parts of the static ones.
  RaggedPtr with_sizes(const RaggedPtr& ragged) const {
    if (rows_ == 1 && merged_.size() == ragged->rank()) {
      return ragged;
    }
    Sizes sizes;
    for (std::int64_t element = 0; element < ragged->batch(); ++element) {
      const auto own = ragged->sizes(element);
      for (const auto& group : merged_) {
        std::int64_t size = 1;
        for (const std::size_t dim : group) {
          size *= own[dim];
        }
        if (rows_ != 1 && group.back() + 1 == ragged->rank()) {
          call_.expect(rows_ > 0 || size % -rows_ == 0, "expected elements whose ragged size is a multiple of ", -rows_,
                       " for the shape (", join(to_), "), got ", text_of_shapes(impl_));
          size = rows_ > 0 ? size * rows_ : size / -rows_;
        }
        sizes.push_back(size);
      }
    }
    return std::make_shared<Ragged>(ragged->batch(), merged_.size(), std::move(sizes));
  }

  Call& call_;
  const NestedTensorImpl& impl_;
  const Structure& structure_;
  at::Tensor values_;
  Sizes from_, to_;
  std::size_t unknown_ = 0;
  std::vector<Part> parts_;                       ///< parts of the static dimensions, old and new, in order
  Sizes sizes_;                                   ///< sizes of the new static dimensions
  std::optional<std::size_t> new_batch_;          ///< index of the batch in the new shape
  std::vector<std::size_t> new_ragged_;           ///< indices of the ragged dimensions in the new shape
  std::vector<std::vector<std::size_t>> merged_;  ///< old ragged dimensions merged into each new one
  std::int64_t elements_ = 1, rows_ = 1;          ///< see add_parts
  std::size_t elements_part_ = 0, rows_part_ = 0;
};

/// Merges ragged dimensions with the static ones after them: parts of each row become rows. Returns nullopt for another
/// order.
std::optional<at::Tensor> flatten_rows(const at::Tensor& tensor, std::int64_t first, std::int64_t last,
                                       const c10::DimVector& ragged_dims) {
  const NestedTensorImpl& impl = *nested(tensor);
  Structure structure = impl.structure();
  const std::size_t rank = structure.ragged->rank();
  at::Tensor values = values_of(tensor);
  std::size_t begin = rank, end = 0;  // merged ragged dimensions
  std::int64_t factor = 1, moved = 0;
  for (std::int64_t dim = first; dim <= last; ++dim) {
    if (!structure.is_ragged(dim)) {
      const std::int64_t at = structure.values_dim(dim);
      factor *= values.size(at);
      values = values.movedim(at, ++moved);
      continue;
    }
    if (factor != 1) {
      return std::nullopt;
    }
    begin = std::min(begin, structure.ragged_index(dim));
    end = structure.ragged_index(dim) + 1;
  }
  if (factor != 1 && end != rank) {
    return std::nullopt;
  }
  Sizes sizes;
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    const auto own = structure.ragged->sizes(element);
    sizes.insert(sizes.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(begin));
    sizes.push_back(factor);
    for (std::size_t at = begin; at < end; ++at) {
      sizes.back() *= own[at];
    }
    sizes.insert(sizes.end(), own.begin() + static_cast<std::ptrdiff_t>(end), own.end());
  }
  structure.ragged = std::make_shared<Ragged>(structure.batch(), ragged_dims.size(), std::move(sizes));
  structure.ragged_dims = ragged_dims;
  return wrap(values.flatten(0, moved), std::move(structure));
}

}  // namespace

at::Tensor flatten_nested(Call& call, const at::Tensor& tensor, std::int64_t first, std::int64_t last) {
  const NestedTensorImpl& impl = *nested(tensor);
  Structure structure = impl.structure();
  const std::int64_t gone = last - first;
  c10::DimVector ragged_dims;
  bool merges = false;
  for (const std::int64_t dim : structure.ragged_dims) {
    const bool within = dim >= first && dim <= last;
    if (!within || !merges) {
      ragged_dims.push_back(dim < first ? dim : within ? first : dim - gone);
    }
    merges = merges || within;
  }
  if (!merges) {
    const std::int64_t at = structure.values_dim(first);
    structure.ragged_dims = ragged_dims;
    return wrap(values_of(tensor).flatten(at, at + gone), std::move(structure));
  }
  if (auto out = flatten_rows(tensor, first, last, ragged_dims)) {
    return *out;
  }
  return flatten_elements(call, tensor, first, last, ragged_dims);
}

at::Tensor reshape_nested(Call& call, const at::Tensor& tensor, const Sizes& sizes) {
  call.expect(std::count(sizes.begin(), sizes.end(), -1) <= 1, "expected one size of -1 at most, got (", join(sizes),
              ")");
  const NestedTensorImpl& impl = *nested(tensor);
  if (impl.sizes() == c10::IntArrayRef(sizes)) {
    return wrap(values_of(tensor), impl.structure());
  }
  if (impl.structure().batch() == 0) {
    return reshape_empty(tensor, sizes);
  }
  // A static size of 0 hides which dimensions correspond.
  const auto statics = impl.values().sizes().slice(1);
  const bool empty_rows = std::find(statics.begin(), statics.end(), 0) != statics.end();
  if (!empty_rows) {
    if (auto whole = Reshape(call, tensor).run(sizes)) {
      return *whole;
    }
  }
  // Sizes that begin with the batch are those of the tensor, even if each element could have them.
  const auto at = static_cast<std::size_t>(impl.structure().batch_dim(impl.element_rank()));
  if (sizes.size() > at && sizes[at] == impl.structure().batch()) {
    Sizes rest = sizes;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at));
    if (auto out = reshape_elements(call, tensor, rest)) {
      return *out;
    }
  }
  Sizes with_batch = sizes;
  with_batch.insert(with_batch.begin() + static_cast<std::ptrdiff_t>(sizes.empty() ? 0 : at), impl.structure().batch());
  if (!empty_rows) {
    if (auto each = Reshape(call, tensor).run(with_batch)) {
      return *each;
    }
  }
  if (auto out = reshape_elements(call, tensor, sizes)) {
    return *out;
  }
  call.refuse("expected a shape of the elements ", text_of_shapes(impl), " together or of each element, got (",
              join(sizes), ")");
}

}  // namespace danling::inline v0::detail
