#include <danling/parallel/slices.hpp>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::parallel {
namespace {

struct Entry {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> parameter;
  std::vector<Slice> slices;
};

/// Keyed by address; ignores an entry whose parameter is destroyed.
struct Table {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Entry> entries;
  std::size_t swept_at = 64;
};

Table& table() {
  [[gnu::used]] static auto* const table = new Table;  // parameters of the program may outlive static objects
  return *table;
}

void check_slices(const at::Tensor& parameter, const std::vector<Slice>& slices) {
  for (std::size_t at = 0; at < slices.size(); ++at) {
    const Slice& slice = slices[at];
    check<ConfigError>(slice.dim >= 0 && slice.dim < parameter.dim(), "parallel.set_slices",
                       "expected a dimension of the parameter, got ", slice.dim, " of ", parameter.dim());
    check<ConfigError>(slice.offset >= 0 && slice.offset + parameter.size(slice.dim) <= slice.size,
                       "parallel.set_slices", "expected a slice inside of the whole, got values ", slice.offset, " to ",
                       slice.offset + parameter.size(slice.dim), " of ", slice.size);
    const bool twice =
        std::any_of(slices.begin(), slices.begin() + static_cast<std::ptrdiff_t>(at),
                    [&](const Slice& other) { return other.axis == slice.axis || other.dim == slice.dim; });
    check<ConfigError>(!twice, "parallel.set_slices",
                       "expected one slice for each axis and dimension, got a second for ", slice.axis,
                       " along dimension ", slice.dim);
  }
}

}  // namespace

void set_slices(const at::Tensor& parameter, std::vector<Slice> slices) {
  check_slices(parameter, slices);
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (all.entries.size() >= all.swept_at) {
    std::erase_if(all.entries, [](const auto& entry) { return entry.second.parameter.expired(); });
    all.swept_at = std::max<std::size_t>(64, 2 * all.entries.size());
  }
  all.entries.insert_or_assign(parameter.unsafeGetTensorImpl(),
                               Entry{decltype(Entry::parameter)(parameter.getIntrusivePtr()), std::move(slices)});
}

std::vector<Slice> slices_of(const at::Tensor& parameter) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(parameter.unsafeGetTensorImpl());
  return found == all.entries.end() || found->second.parameter.expired() ? std::vector<Slice>() : found->second.slices;
}

}  // namespace danling::inline v0::parallel
